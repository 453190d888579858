"""Texts and images as numbers, by a pretrained network that an extra brings; what was embedded once is kept on disk."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

from oneof.files import written_beside

MODELS = {"text": "sentence-transformers/all-MiniLM-L6-v2", "image": "resnet18.a1_in1k"}
EXTRAS = {"text": ("sentence_transformers", "text"), "image": ("timm", "vision")}
CACHE = Path.home() / ".cache" / "oneof"
_BATCH = 64  # images in memory at a time


class Embedder(NamedTuple):
    """A function from words to vectors, and what it does it by."""

    kind: str  # a key of MODELS
    model: str  # name of the pretrained network
    embed: Callable[[Sequence[str]], NDArray[np.float32]]  # [n] texts, or paths of images -> [n, width]


def open_embedder(kind: str, model: str) -> Embedder:
    """The embedder of a kind, "text" or "image"; its weights are fetched by the extra's own package, once."""
    module, extra = EXTRAS[kind]
    try:
        package = import_module(module)
    except ImportError as error:
        raise ValueError(
            f"columns of kind {kind} need the package {module}; it is not installed. Run: pip install 'oneof[{extra}]'."
        ) from error
    embed = _sentences(package, model) if kind == "text" else _images(package, model)
    return Embedder(kind, model, embed)


def embedded(values: Sequence[str | None], embedder: Embedder, folder: Path, cache: Path) -> NDArray[np.float32]:
    """Vectors [n, width] of values; a missing value is zeros. Names of images are looked up below `folder`.

    >>> import tempfile
    >>> lengths = Embedder("text", "length", lambda texts: np.array([[len(text)] for text in texts], dtype=np.float32))
    >>> embedded(["a", None, "abc", "a"], lengths, Path(), Path(tempfile.mkdtemp())).ravel().tolist()
    [1.0, 0.0, 3.0, 1.0]
    """
    distinct = sorted({value for value in values if value is not None})
    inputs = [str(_image(folder, name)) for name in distinct] if embedder.kind == "image" else distinct
    keys = [_key(embedder, value) for value in inputs]
    store = cache / f"{_digest(f'{embedder.kind} {embedder.model}'.encode())[:16]}.safetensors"
    known = _kept(store)
    new = [i for i, key in enumerate(keys) if key not in known]
    if new:
        vectors = np.asarray(embedder.embed([inputs[i] for i in new]), dtype=np.float32)
        known |= {keys[i]: vector for i, vector in zip(new, vectors, strict=True)}
        _keep(store, known)
    if not keys:
        raise ValueError(f"a column to embed must hold at least one {embedder.kind}; all {len(values)} are missing.")
    vector_of = {value: known[key] for value, key in zip(distinct, keys, strict=True)}
    nothing = np.zeros_like(known[keys[0]])
    return np.stack([nothing if value is None else vector_of[value] for value in values])


def _image(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise ValueError(f"an image must be a file below {folder}; there is no {name!r}.")
    return path


def _key(embedder: Embedder, value: str) -> str:
    return _digest(Path(value).read_bytes() if embedder.kind == "image" else value.encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _kept(store: Path) -> dict[str, NDArray[np.float32]]:
    try:
        tensors = load(store.read_bytes())
    except FileNotFoundError:
        return {}
    keys = tensors["keys"].tobytes().decode().split()
    return dict(zip(keys, tensors["vectors"], strict=True))


def _keep(store: Path, known: dict[str, NDArray[np.float32]]) -> None:
    store.parent.mkdir(parents=True, exist_ok=True)
    keys = np.frombuffer(" ".join(known).encode(), dtype=np.uint8)
    with written_beside(store) as file:
        file.write(save({"keys": keys, "vectors": np.stack(list(known.values()))}))


def _sentences(package: Any, model: str) -> Callable[[Sequence[str]], NDArray[np.float32]]:
    network = package.SentenceTransformer(model)
    return lambda texts: network.encode(list(texts), show_progress_bar=False)


def _images(package: Any, model: str) -> Callable[[Sequence[str]], NDArray[np.float32]]:
    import torch
    from PIL import Image

    network = package.create_model(model, pretrained=True, num_classes=0).eval()
    view = package.data.create_transform(**package.data.resolve_model_data_config(network), is_training=False)

    def embed(paths: Sequence[str]) -> NDArray[np.float32]:
        with torch.no_grad():
            parts = [
                network(torch.stack([view(Image.open(path).convert("RGB")) for path in paths[start : start + _BATCH]]))
                for start in range(0, len(paths), _BATCH)
            ]
        return torch.cat(parts).numpy()

    return embed
