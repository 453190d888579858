"""Read CIFAR-10 and CIFAR-100, the Python version: pickled batches in a folder, or in the .tar.gz as published.

Also read people's votes on CIFAR-10's images: CIFAR-10N's .pt, without running its pickle, and CIFAR-10H's counts.
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

_MAX_MEMBER_BYTES = 1 << 30  # far above the size of a batch
_MAX_VOTES_BYTES = 1 << 26  # the published file of votes has 2.4 MB
_CIFAR10N_COLUMNS = ("random_label1", "random_label2", "random_label3", "aggre_label", "clean_label")


def read_batches(path: str | Path, files: Sequence[str]) -> dict[str, dict[bytes, Any]]:
    """Unpickle the named batches of a folder or .tar.gz; those that it does not have are left out."""
    path = Path(path)
    contents = {}
    if path.is_dir():
        for name in files:
            if (path / name).is_file():
                contents[name] = (path / name).read_bytes()
    else:
        contents = _read_archive(path, files)
    batches = {}
    for name, content in contents.items():
        batch = pickles.loads(content, f"{path}, {name}")
        if not isinstance(batch, dict):
            raise ValueError(f"{path}, {name} must hold a dict; got {type(batch).__name__}.")
        batches[name] = {key.encode() if isinstance(key, str) else key: part for key, part in batch.items()}
    return batches


def read_cifar(path: Path, files: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.intp], list[str], int]:
    """Read images, labels and class names, and how many of the last images are the test part.

    `files` are the batches of the training part, that of the test part, and the file of names.
    """
    *parts, meta = files
    batches = read_batches(path, files)
    absent = [part for part in parts if part not in batches]
    if absent:
        raise ValueError(f"{path} must hold {', '.join(absent)}; it does not. Download it again.")
    images = []
    labels = []
    for part in parts:
        images_of_part, labels_of_part = images_and_labels(batches[part], f"{path}, {part}")
        images.append(images_of_part)
        labels.append(labels_of_part)
    all_labels = np.concatenate(labels)
    n_labels = 1 + int(all_labels.max(initial=-1))
    classes = [str(j) for j in range(n_labels)]
    if meta in batches:
        classes = class_names(batches[meta], f"{path}, {meta}")
    if n_labels > len(classes):
        raise ValueError(f"{path}, {meta} must name every label; it has {len(classes)} names for {n_labels} labels.")
    return np.concatenate(images), all_labels, classes, len(labels[-1])


def images_and_labels(batch: dict[bytes, Any], name: str) -> tuple[NDArray[np.uint8], NDArray[np.intp]]:
    """Return the images [n, 32, 32, 3] and labels [n] of one batch; of CIFAR-100 the fine labels."""
    data: Any = batch.get(b"data")
    labels: Any = batch.get(b"fine_labels", batch.get(b"labels"))
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != 3072:
        raise ValueError(f"{name} must hold 'data', uint8 [n, 3072]; got {_describe(data)}.")
    is_numbered = isinstance(labels, list) and all(type(label) is int and 0 <= label < 256 for label in labels)
    if not is_numbered or len(labels) != len(data):
        wanted = f"a number from 0 for each of the {len(data)} images"
        raise ValueError(f"{name} must hold 'labels', {wanted}; got {_describe(labels)}.")
    images = data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return images, np.asarray(labels, dtype=np.intp)


def class_names(meta: dict[bytes, Any], name: str) -> list[str]:
    """Return the names of the labels from the content of `batches.meta` or `meta`."""
    names = meta.get(b"fine_label_names", meta.get(b"label_names"))
    if not isinstance(names, list) or not all(isinstance(label, (bytes, str)) for label in names):
        raise ValueError(f"{name} must hold 'label_names', a list of text; got {_describe(names)}.")
    return [label.decode("utf-8", "replace") if isinstance(label, bytes) else label for label in names]


def binary_rows(images: NDArray[np.uint8], labels: NDArray[np.intp]) -> NDArray[np.uint8]:
    """Return the rows [n, 3073] of the publisher's *binary* version; their checksum does not depend on how the batch was pickled."""
    pixels = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    return np.hstack([labels.astype(np.uint8)[:, None], pixels])


def _read_archive(path: Path, files: Sequence[str]) -> dict[str, bytes]:
    """Read the named members of an archive to memory; refuse one with links or paths that lead elsewhere."""
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                _check_member(path, member)
                name = PurePosixPath(member.name).name
                if not member.isfile() or name not in files:
                    continue
                content = archive.extractfile(member)
                if content is not None:
                    contents[name] = content.read()
    except (tarfile.TarError, EOFError, zlib.error) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} must be a whole .tar.gz; {reason}. Download it again.") from error
    return contents


def _check_member(path: Path, member: tarfile.TarInfo) -> None:
    """Raise if a member of an archive is not a plain file or folder of ordinary size below it."""
    member_path = PurePosixPath(member.name)
    leads_elsewhere = ".." in member_path.parts or member_path.is_absolute()
    is_plain = member.isfile() or member.isdir()
    if leads_elsewhere or not is_plain or member.size > _MAX_MEMBER_BYTES:
        raise ValueError(
            f"{path} must hold plain files of ordinary size; {member.name!r} is not one. Download it again."
        )


def _describe(value: Any) -> str:
    """Describe a value for a message."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {list(value.shape)}"
    if value is None:
        return "nothing"
    if hasattr(value, "__len__"):
        return f"{type(value).__name__} of length {len(value)}"
    return repr(value)


class HumanVotes(NamedTuple):
    """The labels that three people gave each training image, as published."""

    labels: NDArray[np.intp]  # [n, 3]
    majority: NDArray[np.intp]  # [n] ties broken by the publisher
    truth: NDArray[np.intp]  # [n]


def read_cifar10n(path: str | Path) -> HumanVotes:
    """Read the votes in CIFAR-10_human.pt (Wei et al., ICLR 2022): a zip archive around a pickle of plain arrays."""
    try:
        with zipfile.ZipFile(path) as archive:
            member = next(info for info in archive.infolist() if info.filename.endswith("/data.pkl"))
            if member.file_size > _MAX_VOTES_BYTES:
                raise ValueError(f"{path} must be the published file; its pickle claims {member.file_size:,} bytes.")
            content = archive.read(member)
    except (zipfile.BadZipFile, NotImplementedError, StopIteration) as error:
        raise ValueError(f"{path} must be a file that torch wrote; it is not. Download it again.") from error
    stored = pickles.loads(content, str(path))
    columns = [_label_column(stored, name, path) for name in _CIFAR10N_COLUMNS]
    lengths = [len(column) for column in columns]
    if len(set(lengths)) > 1:
        raise ValueError(f"{path} must hold as many labels in every column; got {lengths}.")
    *votes, majority, truth = columns
    return HumanVotes(np.stack(votes, axis=1), majority, truth)


def _label_column(stored: Any, name: str, path: str | Path) -> NDArray[np.intp]:
    """Return a column of labels from 0 to 9; keys may be text or bytes."""
    column = None
    if isinstance(stored, dict):
        column = stored.get(name, stored.get(name.encode()))
    if not isinstance(column, np.ndarray) or column.ndim != 1 or not np.issubdtype(column.dtype, np.integer):
        raise ValueError(f"{path} must hold {name!r}, whole numbers [n]; it does not. Download it again.")
    if len(column) == 0 or column.min() < 0 or column.max() > 9:
        raise ValueError(f"{path}, {name!r} must hold labels from 0 to 9; it holds others. Download it again.")
    return column.astype(np.intp)


def read_cifar10h(path: str | Path) -> NDArray[np.intp]:
    """Read the counts [10000, 10] of CIFAR-10H (Peterson et al., ICCV 2019): about 51 votes on each test image."""
    try:
        counts: NDArray[np.float64] = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} must be a NumPy file of numbers; it is not. Download it again.") from error
    if counts.ndim != 2 or counts.shape[1] != 10 or not (counts >= 0).all() or not (counts == counts.round()).all():
        raise ValueError(f"{path} must hold counts of votes [n, 10]; got {counts.dtype} {list(counts.shape)}.")
    return counts.astype(np.intp)
