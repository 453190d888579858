"""Texts and images as numbers, by a pretrained network of another package; what was embedded once is kept on disk."""

import hashlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from oneof.data.picture import attempt
from oneof.storage.files import written_beside
from oneof.storage.optional_packages import load_package
from oneof.storage.progress import bar

_log = logging.getLogger(__name__)
MODELS = {"text": "sentence-transformers/all-MiniLM-L6-v2", "image": "resnet18.a1_in1k"}
PACKAGES = {"text": "sentence_transformers", "image": "timm"}
_PIECE = {"text": 256, "image": 32}  # embedded at a time: what is lost at most where one image is bad
_SECONDS = 60.0  # between two writings of the cache: what is lost at most by a kill

Vectors = dict[str, NDArray[np.float32]]  # by the checksum of what was embedded


class Embedder(NamedTuple):
    """A function from words to vectors, and what it does it by."""

    kind: str  # a key of MODELS
    model: str  # name of the pretrained network
    embed: Callable[[Sequence[str]], NDArray[np.float32]]  # [n] texts, or paths of images -> [n, width]


class BadImage(Exception):
    """A file, or bytes, that no image can be read from, and why."""


def default_cache() -> Path:
    """Where embeddings are kept if nobody says where."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oneof"
    except RuntimeError as error:
        raise ValueError("a cache must have a place; there is no home folder. Say --cache-dir FOLDER.") from error


def open_embedder(kind: str, model: str) -> Embedder:
    """The embedder of a kind, "text" or "image"; the network is asked for weights only if they are not on this machine."""
    if model in MODELS.values() and Path(model).exists():
        taken = "here it is also a folder, which would be opened in its place. Move to another folder."
        raise ValueError(f"{model} must be the name of a model; {taken}")
    try:
        embed = _sentences(model) if kind == "text" else _images(model)
    except (SafetensorError, RuntimeError) as error:
        got = f"{PACKAGES[kind]} could not open them ({error})"
        remedy = "Delete them from its cache (by default ~/.cache/huggingface) and repeat the command."
        raise ValueError(f"the weights of {model} must be whole; {got}. {remedy}") from error
    except OSError as error:
        raise ValueError(f"the embedder {model} must be a model of {PACKAGES[kind]}; it is none ({error}).") from error
    return Embedder(kind, model, embed)


def embedded(values: Sequence[Any], embedder: Embedder, folder: Path, cache: Path | None = None) -> NDArray[np.float32]:
    """Vectors [n, width] of values; a missing value is zeros. Names of images are looked up below `folder`."""
    files = embedder.kind == "image"
    inputs = [str(folder / value) if files and isinstance(value, str) else value for value in values]
    first_row = {one: row for row, one in reversed(list(enumerate(inputs))) if one is not None}
    if not first_row:
        raise ValueError(f"a column to embed must hold at least one {embedder.kind}; all {len(values)} are missing.")
    distinct = sorted(first_row, key=str)
    lost = next((one for one in distinct if files and isinstance(one, str) and not Path(one).is_file()), None)
    if lost is not None:
        row = first_row[lost]
        got = f"there is no {values[row]!r}, which row {row} names. Add it, or empty the cell."
        raise ValueError(f"an image must be a file below {folder}; {got}")
    keys = {one: _checksum(one, embedder.kind) for one in distinct}
    try:
        known = _vectors({key: one for one, key in keys.items()}, embedder, cache or default_cache())
    except BadImage as bad:
        path, why = bad.args
        shown = "a cell of bytes" if isinstance(path, bytes) else path
        got = f"{shown} is not ({why}). It is named in row {first_row[path]}. Replace the file, or empty the cell."
        raise ValueError(f"an image must be whole and of a known format; {got}") from bad
    nothing = np.zeros_like(known[keys[distinct[0]]])
    return np.stack([nothing if one is None else known[keys[one]] for one in inputs])


def _checksum(value: str | bytes, kind: str) -> str:
    content = value if isinstance(value, bytes) else Path(value).read_bytes() if kind == "image" else value.encode()
    return hashlib.sha256(content).hexdigest()


def _vectors(inputs: dict[str, str], embedder: Embedder, cache: Path) -> Vectors:
    """The vectors of inputs by their keys: those that are kept, and new ones, which are kept as they come."""
    path = Path(embedder.model)  # a network in a file or a folder is told from a later one of the same name
    files = [(file.name, file.stat()) for file in sorted((path, *path.rglob("*"))) if file.is_file()]
    version = "".join(f" {name} {facts.st_size} {facts.st_mtime_ns}" for name, facts in files)
    network = f"{embedder.kind} {embedder.model}{version}"
    store = cache / f"{_checksum(network.encode(), embedder.kind)[:16]}.safetensors"
    known = _kept(store)
    new = [key for key in inputs if key not in known]
    size = _PIECE[embedder.kind]
    kept, written = len(known), time.monotonic()
    try:
        with bar(f"embed {embedder.kind}s", len(new), show=bool(new)) as step:
            for piece in (new[start : start + size] for start in range(0, len(new), size)):
                vectors = np.asarray(embedder.embed([inputs[key] for key in piece]), dtype=np.float32)
                known |= dict(zip(piece, vectors, strict=True))
                if time.monotonic() - written >= _SECONDS:
                    _write(store, known)
                    kept, written = len(known), time.monotonic()
                step(steps=len(piece))
    finally:  # however the end comes
        if len(known) > kept:
            _write(store, known)
    return known


def _kept(store: Path) -> Vectors:
    """What the cache holds; a damaged file is as good as none, since what it held can be made again."""
    try:
        tensors = load(store.read_bytes())
        return dict(zip(tensors["keys"].tobytes().decode().split(), tensors["vectors"], strict=True))
    except (OSError, SafetensorError, KeyError, ValueError):
        return {}


def _write(store: Path, known: Vectors) -> None:
    """Keep what is known, and what other processes have kept meanwhile."""
    known = _kept(store) | known
    keys = np.frombuffer(" ".join(known).encode(), dtype=np.uint8)
    content = save({"keys": keys, "vectors": np.stack(list(known.values()))})
    try:
        store.parent.mkdir(parents=True, exist_ok=True)
        with written_beside(store) as file:
            file.write(content)
    except OSError as error:
        lost = f"embeddings could not be kept in {store.parent} ({error}); next time they are made again."
        _log.warning(f"{lost} Say --cache-dir FOLDER.", stacklevel=2)


def _sentences(model: str) -> Callable[[Sequence[str]], NDArray[np.float32]]:
    advice = "Give --text-model a folder, or leave it out: TF-IDF needs no network."
    repository = model if "/" in model else f"sentence-transformers/{model}"
    if find_spec(PACKAGES["text"]) and not Path(model).is_dir() and not _fetched(repository, "config.json"):
        _check_hub(model, advice)  # before the import, which takes many seconds
    package = load_package(PACKAGES["text"], "--text-model")
    try:
        network = package.SentenceTransformer(model, local_files_only=True)
    except OSError:
        _check_hub(model, advice)
        network = package.SentenceTransformer(model)
    return lambda texts: network.encode(list(texts), show_progress_bar=False)


def _images(model: str) -> Callable[[Sequence[str]], NDArray[np.float32]]:
    import torch

    package = load_package(PACKAGES["image"], "--image")
    name, file = _weights(package, model)
    overlay = {"file": file} if file else None
    network = package.create_model(name, pretrained=True, num_classes=0, pretrained_cfg_overlay=overlay).eval()
    view = package.data.create_transform(**package.data.resolve_model_data_config(network), is_training=False)

    def embed(paths: Sequence[str]) -> NDArray[np.float32]:
        seen = {path: attempt(lambda image: view(image.convert("RGB")), path, Path()) for path in paths}
        if bad := [(path, why) for path, why in seen.items() if isinstance(why, str)]:
            raise BadImage(*bad[0])
        with torch.no_grad():
            return network(torch.stack(list(seen.values()))).numpy()  # type: ignore[no-any-return]

    return embed


def _weights(package: Any, model: str) -> tuple[str, str | None]:
    """What timm calls a network, and the file of its weights; None: timm may fetch them."""
    path = Path(model)
    name = path.stem if path.is_file() else model
    if not package.is_model(name) or (path.is_file() and path.suffix != ".safetensors"):
        known = f"a network that timm knows, such as {MODELS['image']}, or a file of its weights that is called so"
        raise ValueError(f"--image-model must be {known}, such as {MODELS['image']}.safetensors; got {model!r}.")
    if path.is_file():
        return name, model
    fetched = _fetched(package.get_pretrained_cfg(name).hf_hub_id, "model.safetensors")
    if fetched is None:
        _check_hub(model, "Give --image-model a file of weights.")
    return name, fetched


def weights_here(model: str) -> bool:
    """Can pictures be embedded by a model of timm's without asking the network?"""
    with suppress(ValueError):  # a package that is absent or broken has no weights to offer
        return find_spec(PACKAGES["image"]) is not None and _fetched(f"timm/{model}", "model.safetensors") is not None
    return False


def text_embedder_here() -> bool:
    """Can texts be embedded by the default model without asking the network?"""
    with suppress(ValueError):  # a package that is absent or broken has no weights to offer
        return find_spec(PACKAGES["text"]) is not None and _fetched(MODELS["text"], "config.json") is not None
    return False


def _fetched(repository: str, file: str) -> str | None:
    """Where the hub's own cache has a file."""
    look_up = load_package("huggingface_hub", f"the embedder {repository}", "try_to_load_from_cache")
    path = look_up(repository, file)
    return path if isinstance(path, str) else None


def _check_hub(model: str, advice: str) -> None:
    """Ask once and quickly whether there is a network; the packages themselves would try for more than a minute."""
    hub = load_package("huggingface_hub.constants", f"the embedder {model}")
    try:
        if hub.HF_HUB_OFFLINE:
            raise OSError("HF_HUB_OFFLINE is set")
        with suppress(HTTPError):  # any answer is one
            urlopen(Request(hub.ENDPOINT, method="HEAD"), timeout=5).close()
    except OSError as error:
        got = f"it is not here, and there is no network ({error}). {advice}"
        raise ValueError(
            f"the embedder {model} must be on this machine or to be had from {hub.ENDPOINT}; {got}"
        ) from error
