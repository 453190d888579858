"""CIFAR-10 and CIFAR-100, the Python version: pickled batches in a folder, or in the .tar.gz as published.

With them people's votes on CIFAR-10's images: CIFAR-10N's .pt, read without running its pickle, and CIFAR-10H's counts.
"""

import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oneof_paper.readers import pickles

_MOST_BYTES = 1 << 30  # no batch is near this; a member that claims more is not one
_MOST_VOTES = 1 << 26  # bytes; the published file of votes has 2.4 MB
_VOTES = ("random_label1", "random_label2", "random_label3")


def read_batches(path: str | Path, files: Sequence[str]) -> dict[str, dict[bytes, Any]]:
    """The named batches of a folder or .tar.gz, unpickled; those that are not there are left out."""
    path, batches = Path(path), {}
    there = [name for name in files if (path / name).is_file()]
    contents = {name: (path / name).read_bytes() for name in there} if path.is_dir() else _unpacked(path, files)
    for name, content in contents.items():
        batch = pickles.loads(content, f"{path}, {name}")
        if not isinstance(batch, dict):
            raise ValueError(f"{path}, {name} must hold a dict; got {type(batch).__name__}.")
        batches[name] = {key.encode() if isinstance(key, str) else key: part for key, part in batch.items()}
    return batches


def read_cifar(path: Path, files: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.intp], list[str], int]:
    """Images, labels and class names of (training parts, test part, names), and how many images are the test part's."""
    *parts, meta = files
    batches = read_batches(path, files)
    if absent := [part for part in parts if part not in batches]:
        raise ValueError(f"{path} must hold {', '.join(absent)}; it does not. Download it again.")
    images, labels = zip(*(images_and_labels(batches[part], f"{path}, {part}") for part in parts), strict=True)
    x, y = np.concatenate(images), np.concatenate(labels)
    count = 1 + int(y.max(initial=-1))
    classes = class_names(batches[meta], f"{path}, {meta}") if meta in batches else [str(j) for j in range(count)]
    if count > len(classes):
        raise ValueError(f"{path}, {meta} must name every label; it has {len(classes)} names for {count} labels.")
    return x, y, classes, len(labels[-1])


def images_and_labels(batch: dict[bytes, Any], name: str) -> tuple[NDArray[np.uint8], NDArray[np.intp]]:
    """Images [n, 32, 32, 3] and labels [n] of one batch; CIFAR-100's fine labels."""
    data: Any = batch.get(b"data")
    labels: Any = batch.get(b"fine_labels", batch.get(b"labels"))
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != 3072:
        raise ValueError(f"{name} must hold 'data', uint8 [n, 3072]; got {_describe(data)}.")
    numbered = isinstance(labels, list) and all(type(y) is int and 0 <= y < 256 for y in labels)
    if not numbered or len(labels) != len(data):
        wanted = f"a number from 0 for each of the {len(data)} images"
        raise ValueError(f"{name} must hold 'labels', {wanted}; got {_describe(labels)}.")
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


def _unpacked(path: Path, files: Sequence[str]) -> dict[str, bytes]:
    """Members are read in memory, never written; links and paths that lead elsewhere mark a file as not CIFAR's."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                place = PurePosixPath(member.name)
                elsewhere = ".." in place.parts or place.is_absolute()
                if elsewhere or not (member.isfile() or member.isdir()) or member.size > _MOST_BYTES:
                    wrong = f"{member.name!r} is not one. Download it again."
                    raise ValueError(f"{path} must hold plain files of ordinary size; {wrong}")
                content = archive.extractfile(member) if member.isfile() and place.name in files else None
                if content is not None:
                    found[place.name] = content.read()
    except (tarfile.TarError, EOFError, zlib.error) as error:
        said = " ".join(str(error).split())
        raise ValueError(f"{path} must be a whole .tar.gz; {said}. Download it again.") from error
    return found


def _describe(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {list(value.shape)}"
    if value is None:
        return "nothing"
    return f"{type(value).__name__} of length {len(value)}" if hasattr(value, "__len__") else repr(value)


class HumanVotes(NamedTuple):
    """Three people's labels of each training image, as published."""

    labels: NDArray[np.intp]  # [n, 3]
    majority: NDArray[np.intp]  # [n] ties broken by the publisher
    truth: NDArray[np.intp]  # [n]


def read_cifar10n(path: str | Path) -> HumanVotes:
    """The votes in CIFAR-10_human.pt (Wei et al., ICLR 2022): a zip archive around a pickle of plain arrays."""
    try:
        with zipfile.ZipFile(path) as archive:
            member = next(info for info in archive.infolist() if info.filename.endswith("/data.pkl"))
            if member.file_size > _MOST_VOTES:
                raise ValueError(f"{path} must be the published file; its pickle claims {member.file_size:,} bytes.")
            content = archive.read(member)
    except (zipfile.BadZipFile, NotImplementedError, StopIteration) as error:
        raise ValueError(f"{path} must be a file that torch wrote; it is not. Download it again.") from error
    found, columns = pickles.loads(content, str(path)), []
    for name in (*_VOTES, "aggre_label", "clean_label"):
        column = found.get(name, found.get(name.encode())) if isinstance(found, dict) else None
        if not isinstance(column, np.ndarray) or column.ndim != 1 or not np.issubdtype(column.dtype, np.integer):
            raise ValueError(f"{path} must hold {name!r}, whole numbers [n]; it does not. Download it again.")
        if len(column) == 0 or column.min() < 0 or column.max() > 9:
            raise ValueError(f"{path}, {name!r} must hold labels from 0 to 9; it holds others. Download it again.")
        columns.append(column.astype(np.intp))
    if len({len(column) for column in columns}) > 1:
        raise ValueError(f"{path} must hold as many labels in every column; got {[len(one) for one in columns]}.")
    return HumanVotes(np.stack(columns[:3], axis=1), columns[3], columns[4])


def read_cifar10h(path: str | Path) -> NDArray[np.intp]:
    """The counts [10000, 10] of CIFAR-10H (Peterson et al., ICCV 2019): about 51 votes on each test image."""
    try:
        counts: NDArray[np.float64] = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} must be a NumPy file of numbers; it is not. Download it again.") from error
    if counts.ndim != 2 or counts.shape[1] != 10 or not (counts >= 0).all() or not (counts == counts.round()).all():
        raise ValueError(f"{path} must hold counts of votes [n, 10]; got {counts.dtype} {list(counts.shape)}.")
    whole: NDArray[np.intp] = counts.astype(np.intp)
    return whole
