"""Embed texts and images by a pretrained network of sentence-transformers or timm; vectors are cached on disk."""

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

from oneof.data.picture import try_decode
from oneof.storage.files import atomic_write
from oneof.storage.optional_packages import load_package
from oneof.storage.printable import describe_error
from oneof.storage.progress import progress_bar

_log = logging.getLogger(__name__)
MODELS = {"text": "sentence-transformers/all-MiniLM-L6-v2", "image": "resnet18.a1_in1k"}
PACKAGES = {"text": "sentence_transformers", "image": "timm"}
_BATCH_SIZE = {"text": 256, "image": 32}  # embedded at a time; an unreadable image loses at most one batch
_SAVE_INTERVAL = 60.0  # seconds between two writes of the cache; a kill loses at most that much work

Vectors = dict[str, NDArray[np.float32]]  # checksum of a text or an image -> its vector


class Embedder(NamedTuple):
    """A function from texts or images to vectors, and the network it runs."""

    kind: str  # a key of MODELS
    model: str  # name of the pretrained network
    embed: Callable[[Sequence[str]], NDArray[np.float32]]  # texts, or paths or bytes of images [n] -> [n, width]


class BadImage(Exception):
    """Raised with the path or bytes of an image that cannot be read, and the reason."""


def default_cache() -> Path:
    """Return the folder of cached embeddings unless the user names another."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "oneof"
    except RuntimeError as error:
        raise ValueError(
            "embeddings need a folder for their cache; there is no home folder. Give --cache-dir FOLDER."
        ) from error


def open_embedder(kind: str, model: str) -> Embedder:
    """Open the embedder of a kind, "text" or "image"; weights are downloaded only if they are not on this machine."""
    if model in MODELS.values() and Path(model).exists():
        raise ValueError(
            f"{model} must be the name of a model; here it is also a folder, which would be opened in its place. "
            "Move to another folder."
        )
    package = PACKAGES[kind]
    try:
        if kind == "text":
            embed = _open_text_embedder(model)
        else:
            embed = _open_image_embedder(model)
    except (SafetensorError, RuntimeError) as error:
        raise ValueError(
            f"the weights of {model} must be whole; {package} could not open them ({error}). "
            "Delete them from its cache (by default ~/.cache/huggingface) and repeat the command."
        ) from error
    except OSError as error:
        raise ValueError(f"the embedder {model} must be a model of {package}; it is not one ({error}).") from error
    return Embedder(kind, model, embed)


def embed_values(
    values: Sequence[Any], embedder: Embedder, folder: Path, cache: Path | None = None
) -> NDArray[np.float32]:
    """Embed texts or images.

    Parameters
    ----------
    values
        Texts, or names or bytes of images [n]; None where missing.
    embedder
        The opened network.
    folder
        Folder that names of images are relative to.
    cache
        Folder of cached embeddings; None for `default_cache()`.

    Returns
    -------
    NDArray
        Vectors [n, width]; zeros where a value is missing.
    """
    is_image = embedder.kind == "image"
    inputs: list[Any] = []
    first_row: dict[Any, int] = {}
    for row, value in enumerate(values):
        item = value
        if is_image and isinstance(value, str):
            item = str(folder / value)
        inputs.append(item)
        if item is not None:
            first_row.setdefault(item, row)
    if not first_row:
        raise ValueError(f"a column to embed must hold at least one {embedder.kind}; all {len(values)} are missing.")
    distinct = sorted(first_row, key=str)
    if is_image:
        _check_image_files(distinct, first_row, values, folder)
    keys = {item: _checksum(item, embedder.kind) for item in distinct}
    item_by_key = {key: item for item, key in keys.items()}
    try:
        vectors = _cached_vectors(item_by_key, embedder, cache or default_cache())
    except BadImage as error:
        image, reason = error.args
        description = image
        if isinstance(image, bytes):
            description = "a cell of bytes"
        raise ValueError(
            f"an image must be whole and of a known format; {description} is not ({reason}). "
            f"It is named in row {first_row[image]}. Replace the file, or empty the cell."
        ) from error
    width = len(vectors[keys[distinct[0]]])
    rows = np.zeros((len(inputs), width), dtype=np.float32)
    for row, item in enumerate(inputs):
        if item is not None:
            rows[row] = vectors[keys[item]]
    return rows


def _check_image_files(
    images: Sequence[str | bytes], first_row: dict[Any, int], values: Sequence[Any], folder: Path
) -> None:
    """Raise if an image is named by a path that is not a file."""
    for image in images:
        if isinstance(image, str) and not Path(image).is_file():
            row = first_row[image]
            raise ValueError(
                f"an image must be a file below {folder}; there is no {values[row]!r}, which row {row} names. "
                "Add it, or empty the cell."
            )


def _checksum(value: str | bytes, kind: str) -> str:
    """Return the SHA-256 of a text, or of the content of an image."""
    if isinstance(value, bytes):
        content = value
    elif kind == "image":
        content = Path(value).read_bytes()
    else:
        content = value.encode()
    return hashlib.sha256(content).hexdigest()


def _cached_vectors(items: dict[str, str], embedder: Embedder, cache: Path) -> Vectors:
    """Return vectors by key: those in the cache, and new ones of the items that it lacks, which are saved as they come."""
    store = cache / f"{_network_id(embedder)}.safetensors"
    vectors = _load_vectors(store)
    new_keys = [key for key in items if key not in vectors]
    batch_size = _BATCH_SIZE[embedder.kind]
    n_saved = len(vectors)
    last_save = time.monotonic()
    try:
        with progress_bar(f"embed {embedder.kind}s", len(new_keys), show=bool(new_keys)) as step:
            for start in range(0, len(new_keys), batch_size):
                batch = new_keys[start : start + batch_size]
                inputs = [items[key] for key in batch]
                batch_vectors = np.asarray(embedder.embed(inputs), dtype=np.float32)
                vectors.update(dict(zip(batch, batch_vectors, strict=True)))
                if time.monotonic() - last_save >= _SAVE_INTERVAL:
                    _save_vectors(store, vectors)
                    n_saved = len(vectors)
                    last_save = time.monotonic()
                step(steps=len(batch))
    finally:  # also after an error or Ctrl-C
        if len(vectors) > n_saved:
            _save_vectors(store, vectors)
    return vectors


def _network_id(embedder: Embedder) -> str:
    """Return a short checksum of kind and model; for a model on disk also of its files, so that a changed one differs."""
    path = Path(embedder.model)
    network = f"{embedder.kind} {embedder.model}"
    for file in sorted((path, *path.rglob("*"))):
        if file.is_file():
            status = file.stat()
            network += f" {file.name} {status.st_size} {status.st_mtime_ns}"
    return _checksum(network.encode(), embedder.kind)[:16]


def _load_vectors(store: Path) -> Vectors:
    """Load the vectors of a cache file; a missing or damaged file is empty, since its vectors can be computed again."""
    try:
        tensors = load(store.read_bytes())
        keys = tensors["keys"].tobytes().decode().split()
        return dict(zip(keys, tensors["vectors"], strict=True))
    except (OSError, SafetensorError, KeyError, ValueError):
        return {}


def _save_vectors(store: Path, vectors: Vectors) -> None:
    """Save vectors, together with those that other processes have saved meanwhile."""
    merged = _load_vectors(store)
    merged.update(vectors)
    keys = np.frombuffer(" ".join(merged).encode(), dtype=np.uint8)
    content = save({"keys": keys, "vectors": np.stack(list(merged.values()))})
    try:
        store.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(store) as file:
            file.write(content)
    except OSError as error:
        _log.warning(
            f"embeddings could not be kept in {store.parent} ({describe_error(error)}); they will be computed again next time. "
            "Give --cache-dir FOLDER.",
            stacklevel=2,
        )


def _open_text_embedder(model: str) -> Callable[[Sequence[str]], NDArray[np.float32]]:
    """Return a function that embeds texts by a model of sentence-transformers, a name or a folder."""
    advice = "Give --text-model a folder, or leave it out: TF-IDF needs no network."
    repository = model
    if "/" not in model:
        repository = f"sentence-transformers/{model}"
    is_installed = find_spec(PACKAGES["text"]) is not None
    if is_installed and not Path(model).is_dir() and not _cached_file(repository, "config.json"):
        _check_hub(model, advice)  # before the import, which takes many seconds
    package = load_package(PACKAGES["text"], "--text-model", extra="text")
    try:
        network = package.SentenceTransformer(model, local_files_only=True)
    except OSError:
        _check_hub(model, advice)
        network = package.SentenceTransformer(model)
    return lambda texts: network.encode(list(texts), show_progress_bar=False)


def _open_image_embedder(model: str) -> Callable[[Sequence[str]], NDArray[np.float32]]:
    """Return a function that embeds images by a network of timm, a name or a file of weights."""
    import torch

    package = load_package(PACKAGES["image"], "--image", extra="vision")
    name, weights = _find_weights(package, model)
    overlay = None
    if weights is not None:
        overlay = {"file": weights}
    network = package.create_model(name, pretrained=True, num_classes=0, pretrained_cfg_overlay=overlay).eval()
    data_config = package.data.resolve_model_data_config(network)
    transform = package.data.create_transform(**data_config, is_training=False)

    def embed(images: Sequence[str]) -> NDArray[np.float32]:
        inputs = []
        for image in images:
            decoded = try_decode(lambda opened: transform(opened.convert("RGB")), image, Path())
            if isinstance(decoded, str):
                raise BadImage(image, decoded)
            inputs.append(decoded)
        with torch.no_grad():
            return network(torch.stack(inputs)).numpy()  # type: ignore[no-any-return]

    return embed


def _find_weights(package: Any, model: str) -> tuple[str, str | None]:
    """Return timm's name of a network and the file of its weights, or None if timm is to download them."""
    path = Path(model)
    name = model
    if path.is_file():
        name = path.stem
    if not package.is_model(name) or (path.is_file() and path.suffix != ".safetensors"):
        default_model = MODELS["image"]
        raise ValueError(
            f"--image-model must be a network that timm knows, such as {default_model}, or a file of its weights that "
            f"is called so, such as {default_model}.safetensors; got {model!r}."
        )
    if path.is_file():
        return name, model
    weights = _cached_file(package.get_pretrained_cfg(name).hf_hub_id, "model.safetensors")
    if weights is None:
        _check_hub(model, "Give --image-model a file of weights.")
    return name, weights


def find_cached_weights(model: str) -> str | None:
    """Return the file of a timm model's weights in the hub's cache; None if it was not downloaded."""
    try:
        return _cached_file(f"timm/{model}", "model.safetensors")
    except ValueError:  # no cache without huggingface_hub, and none for a name that it does not allow
        return None


def weights_here(model: str) -> bool:
    """Return whether the weights of a timm model are on this machine."""
    return _is_available("image", f"timm/{model}", "model.safetensors")


def text_embedder_here() -> bool:
    """Return whether the default text model is on this machine."""
    return _is_available("text", MODELS["text"], "config.json")


def _is_available(kind: str, repository: str, file: str) -> bool:
    """Return whether the package of a kind is installed and the hub's cache has a file of the repository."""
    try:
        return find_spec(PACKAGES[kind]) is not None and _cached_file(repository, file) is not None
    except ValueError:  # a package is missing or broken
        return False


def _cached_file(repository: str, file: str) -> str | None:
    """Return the path of a file in the hub's cache; None if it was not downloaded."""
    look_up = load_package("huggingface_hub", f"the embedder {repository}", "try_to_load_from_cache")
    path = look_up(repository, file)
    if isinstance(path, str):
        return path
    return None  # or a mark that the hub has no such file


def _check_hub(model: str, advice: str) -> None:
    """Raise if the hub cannot be reached, after one quick request; the packages would try for more than a minute."""
    hub = load_package("huggingface_hub.constants", f"the embedder {model}")
    try:
        if hub.HF_HUB_OFFLINE:
            raise OSError("HF_HUB_OFFLINE is set")
        with suppress(HTTPError):  # an error status is an answer, too
            urlopen(Request(hub.ENDPOINT, method="HEAD"), timeout=5).close()
    except OSError as error:
        raise ValueError(
            f"the embedder {model} must be on this machine or available from {hub.ENDPOINT}; "
            f"it is not here, and there is no network ({error}). {advice}"
        ) from error
