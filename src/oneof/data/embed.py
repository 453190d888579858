"""Texts and images as numbers, by a pretrained network that an extra brings; what was embedded once is kept on disk."""

from __future__ import annotations

import hashlib
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from oneof.storage.files import written_beside
from oneof.storage.progress import bar

MODELS = {"text": "sentence-transformers/all-MiniLM-L6-v2", "image": "resnet18.a1_in1k"}
EXTRAS = {"text": ("sentence_transformers", "text"), "image": ("timm", "vision")}
CACHE = Path.home() / ".cache" / "oneof"
_PIECE = {"text": 256, "image": 32}  # embedded at a time: what is lost at most where one image is bad
_SECONDS = 60.0  # between two writings of the cache: what is lost at most by a kill

Vectors = dict[str, NDArray[np.float32]]  # by the checksum of what was embedded


class Embedder(NamedTuple):
    """A function from words to vectors, and what it does it by."""

    kind: str  # a key of MODELS
    model: str  # name of the pretrained network
    embed: Callable[[Sequence[str]], NDArray[np.float32]]  # [n] texts, or paths of images -> [n, width]


class BadImage(ValueError):
    """A file that no image can be read from."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"an image must be whole and of a known format; {path} is not ({why}).")
        self.path = path


def open_embedder(kind: str, model: str) -> Embedder:
    """The embedder of a kind, "text" or "image"; its weights are fetched by the extra's own package, once."""
    module, extra = EXTRAS[kind]
    if model in MODELS.values() and Path(model).exists():
        raise ValueError(
            f"{model} must be the name of a model; here it is also a folder, which would be opened in its place. Move to another folder."
        )
    try:
        package = import_module(module)
    except ImportError as error:
        raise ValueError(
            f"columns of kind {kind} need the package {module}; it is not installed. Run: pip install 'oneof[{extra}]'."
        ) from error
    try:
        embed = _sentences(package, model) if kind == "text" else _images(package, model)
    except (SafetensorError, RuntimeError) as error:
        raise ValueError(
            f"the weights of {model} must be whole; {module} could not open them ({error}). "
            "Delete them from its cache (by default ~/.cache/huggingface) and repeat the command."
        ) from error
    return Embedder(kind, model, embed)


def embedded(values: Sequence[str | None], embedder: Embedder, folder: Path, cache: Path) -> NDArray[np.float32]:
    """Vectors [n, width] of values; a missing value is zeros. Names of images are looked up below `folder`.

    >>> import tempfile
    >>> lengths = Embedder("text", "length", lambda texts: np.array([[len(text)] for text in texts], dtype=np.float32))
    >>> embedded(["a", None, "abc", "a"], lengths, Path(), Path(tempfile.mkdtemp())).ravel().tolist()
    [1.0, 0.0, 3.0, 1.0]
    """
    first_row = {value: row for row, value in reversed(list(enumerate(values))) if value is not None}
    distinct = sorted(first_row)
    if not distinct:
        raise ValueError(f"a column to embed must hold at least one {embedder.kind}; all {len(values)} are missing.")
    inputs = distinct
    if embedder.kind == "image":
        inputs = [str(_image(folder, name, first_row[name])) for name in distinct]
    keys = [_key(embedder, value) for value in inputs]
    try:
        known = _vectors(dict(zip(keys, inputs, strict=True)), embedder, cache)
    except BadImage as bad:
        row = first_row[distinct[inputs.index(bad.path)]]
        raise ValueError(f"{bad} It is named in row {row}. Replace the file, or empty the cell.") from bad
    vector_of = {value: known[key] for value, key in zip(distinct, keys, strict=True)}
    nothing = np.zeros_like(known[keys[0]])
    return np.stack([nothing if value is None else vector_of[value] for value in values])


def _image(folder: Path, name: str, row: int) -> Path:
    path = folder / name
    if not path.is_file():
        raise ValueError(
            f"an image must be a file below {folder}; there is no {name!r}, which row {row} names. Add it, or empty the cell."
        )
    return path


def _key(embedder: Embedder, value: str) -> str:
    return _digest(Path(value).read_bytes() if embedder.kind == "image" else value.encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# -------------------------------------------------------------------------------------------------------------- the cache


def _vectors(inputs: dict[str, str], embedder: Embedder, cache: Path) -> Vectors:
    """The vectors of inputs by their keys: those that are kept, and new ones, which are kept as they come."""
    store = cache / f"{_digest(f'{embedder.kind} {embedder.model}'.encode())[:16]}.safetensors"
    known = _kept(store)
    new = [key for key in inputs if key not in known]
    size = _PIECE[embedder.kind]
    pieces = [new[start : start + size] for start in range(0, len(new), size)]
    with _keeping(store, known) as keep, bar(f"embed {embedder.kind}s", len(new), show=bool(new)) as step:
        for piece in pieces:
            vectors = np.asarray(embedder.embed([inputs[key] for key in piece]), dtype=np.float32)
            known |= dict(zip(piece, vectors, strict=True))
            keep()
            step(steps=len(piece))
    return known


@contextmanager
def _keeping(store: Path, known: Vectors) -> Iterator[Callable[[], None]]:
    """Write what is known from time to time, as the value is called, and at the end, however it comes."""
    before, written = len(known), time.monotonic()

    def keep() -> None:
        nonlocal before, written
        if time.monotonic() - written >= _SECONDS:
            _write(store, known)
            before, written = len(known), time.monotonic()

    try:
        yield keep
    finally:
        if len(known) > before:
            _write(store, known)


def _kept(store: Path) -> Vectors:
    """What the cache holds; a damaged file is as good as none, since what it held can be made again."""
    try:
        tensors = load(store.read_bytes())
        keys = tensors["keys"].tobytes().decode().split()
        return dict(zip(keys, tensors["vectors"], strict=True))
    except (FileNotFoundError, SafetensorError, KeyError, ValueError):
        return {}


def _write(store: Path, known: Vectors) -> None:
    store.parent.mkdir(parents=True, exist_ok=True)
    keys = np.frombuffer(" ".join(known).encode(), dtype=np.uint8)
    with written_beside(store) as file:
        file.write(save({"keys": keys, "vectors": np.stack(list(known.values()))}))


# ------------------------------------------------------------------------------------------------------------ the networks


def _sentences(package: Any, model: str) -> Callable[[Sequence[str]], NDArray[np.float32]]:
    network = package.SentenceTransformer(model)
    return lambda texts: network.encode(list(texts), show_progress_bar=False)


def _images(package: Any, model: str) -> Callable[[Sequence[str]], NDArray[np.float32]]:
    import torch

    network = package.create_model(model, pretrained=True, num_classes=0).eval()
    view = package.data.create_transform(**package.data.resolve_model_data_config(network), is_training=False)

    def embed(paths: Sequence[str]) -> NDArray[np.float32]:
        with torch.no_grad():
            return network(torch.stack([view(_opened(path)) for path in paths])).numpy()  # type: ignore[no-any-return]

    return embed


def _opened(path: str) -> Any:
    from PIL import Image

    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except (OSError, SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError) as error:
        raise BadImage(path, str(error).rstrip(".")) from error  # a broken PNG is a SyntaxError, for one
