"""CIFAR-10 and CIFAR-100, the Python version: pickled batches in a folder, or in the .tar.gz as published."""

import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneof.data.files import pickles

_MOST_BYTES = 1 << 30  # no batch is near this; a member that claims more is not one


def read_batches(path: str | Path, files: Sequence[str]) -> dict[str, dict[bytes, Any]]:
    """The named batches of a folder or .tar.gz, unpickled; those that are not there are left out."""
    path = Path(path)
    contents = _from_folder(path, files) if path.is_dir() else _from_archive(path, files)
    return {
        name: _as_dict(pickles.loads(content, f"{path}, {name}"), f"{path}, {name}")
        for name, content in contents.items()
    }


def images_and_labels(batch: dict[bytes, Any], name: str) -> tuple[NDArray[np.uint8], NDArray[np.intp]]:
    """Images [n, 32, 32, 3] and labels [n] of one batch; CIFAR-100's fine labels."""
    data, labels = batch.get(b"data"), batch.get(b"fine_labels", batch.get(b"labels"))
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != 3072:
        raise ValueError(f"{name} must hold 'data', uint8 [n, 3072]; got {_describe(data)}.")
    if (
        not isinstance(labels, list)
        or len(labels) != len(data)
        or not all(type(y) is int and 0 <= y < 256 for y in labels)
    ):
        raise ValueError(
            f"{name} must hold 'labels', a number from 0 for each of the {len(data)} images; got {_describe(labels)}."
        )
    return data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), np.asarray(labels, dtype=np.intp)


def class_names(meta: dict[bytes, Any], name: str) -> list[str]:
    """The labels' names as `batches.meta` or `meta` gives them."""
    names = meta.get(b"fine_label_names", meta.get(b"label_names"))
    if not isinstance(names, list) or not all(isinstance(part, (bytes, str)) for part in names):
        raise ValueError(f"{name} must hold 'label_names', a list of text; got {_describe(names)}.")
    return [part.decode("utf-8", "replace") if isinstance(part, bytes) else part for part in names]


def binary_rows(images: NDArray[np.uint8], labels: NDArray[np.intp]) -> NDArray[np.uint8]:
    """The rows of the publisher's *binary* version, [n, 3073]: what a checksum can rest on, however the batch was pickled."""
    return np.hstack([labels.astype(np.uint8)[:, None], images.transpose(0, 3, 1, 2).reshape(len(images), -1)])


def _from_folder(path: Path, files: Sequence[str]) -> dict[str, bytes]:
    return {name: (path / name).read_bytes() for name in files if (path / name).is_file()}


def _from_archive(path: Path, files: Sequence[str]) -> dict[str, bytes]:
    """Members are read in memory and never written; links and paths that lead elsewhere mark a file that is not CIFAR's."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                _check_member(member, path)
                name = PurePosixPath(member.name).name
                content = archive.extractfile(member) if member.isfile() and name in files else None
                if content is not None:
                    found[name] = content.read()
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise ValueError(
            f"{path} must be a whole .tar.gz; {' '.join(str(error).split())}. Download it again."
        ) from error
    return found


def _check_member(member: tarfile.TarInfo, path: Path) -> None:
    parts = PurePosixPath(member.name).parts
    if (
        not (member.isfile() or member.isdir())
        or member.size > _MOST_BYTES
        or ".." in parts
        or member.name.startswith("/")
    ):
        raise ValueError(
            f"{path} must hold plain files of ordinary size; {member.name!r} is not one. Download it again."
        )


def _as_dict(value: Any, name: str) -> dict[bytes, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} must hold a dict; got {type(value).__name__}.")
    return {key.encode() if isinstance(key, str) else key: part for key, part in value.items()}


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {list(value.shape)}"
    return (
        "nothing"
        if value is None
        else f"{type(value).__name__} of length {len(value)}"
        if hasattr(value, "__len__")
        else repr(value)
    )
