"""People's votes on CIFAR-10's images: CIFAR-10N's .pt, read without running its pickle, and CIFAR-10H's counts."""

import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oneof.data.files import pickles

_VOTES = ("random_label1", "random_label2", "random_label3")
_MOST_BYTES = 1 << 26  # the published file has 2.4 MB


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
            if member.file_size > _MOST_BYTES:
                raise ValueError(f"{path} must be the published file; its pickle claims {member.file_size:,} bytes.")
            content = archive.read(member)
    except (zipfile.BadZipFile, StopIteration) as error:
        raise ValueError(f"{path} must be a file that torch wrote; it is not. Download it again.") from error
    found = pickles.loads(content, str(path))
    columns = [_column(found, name, path) for name in (*_VOTES, "aggre_label", "clean_label")]
    if len({len(column) for column in columns}) > 1:
        raise ValueError(f"{path} must hold as many labels in every column; got {[len(one) for one in columns]}.")
    return HumanVotes(np.stack(columns[:3], axis=1), columns[3], columns[4])


def _column(found: object, name: str, path: str | Path) -> NDArray[np.intp]:
    column = found.get(name, found.get(name.encode())) if isinstance(found, dict) else None
    if not isinstance(column, np.ndarray) or column.ndim != 1 or not np.issubdtype(column.dtype, np.integer):
        raise ValueError(f"{path} must hold {name!r}, whole numbers [n]; it does not. Download it again.")
    if len(column) == 0 or column.min() < 0 or column.max() > 9:
        raise ValueError(f"{path}, {name!r} must hold labels from 0 to 9; it holds others. Download it again.")
    return column.astype(np.intp)


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
