"""The paper's twelve data sets, Malagasy rebuilt, digits and people's votes on CIFAR-10: `catalogue.toml` has a row for each, here they are loaded."""

import os
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oneof.storage.did_you_mean import did_you_mean
from oneof_paper.readers.cifar import read_cifar, read_cifar10h, read_cifar10n
from oneof_paper.readers.idx import read_idx
from oneof_paper.readers.mat import read_mat
from oneof_paper.readers.tagged import read_tagged

Labels = NDArray[np.intp]


@dataclass(frozen=True)
class Dataset:
    name: str
    x: NDArray[Any]  # [n, d] float32, or uint8 images [n, h, w] or [n, h, w, 3]; test rows last where there are such
    labels: Labels  # [n]; -1 where the file does not say
    classes: list[str]  # [c]
    candidates: NDArray[np.bool_] | None  # [n, c], where the set comes with candidate sets
    test: Labels | None  # rows of the publisher's test part
    votes: NDArray[np.intp] | None = None  # [n, c] how many people named each label; 0 where nobody was asked


class Figures(NamedTuple):
    """What the paper's appendix prints."""

    train: int
    test: int
    features: int
    classes: int
    average: float  # labels per set; for images, of the generated sets


@dataclass(frozen=True)
class Named:
    title: str
    address: str  # the publisher's page
    licence: str
    form: str  # a key of _READERS
    files: list[str] = field(default_factory=list)  # below the data folder
    download: str = ""  # address of the folder that serves the files; empty: by hand
    checksums: dict[str, str] = field(default_factory=dict)  # file -> SHA-256 of its uncompressed content
    blobs: dict[str, str] = field(
        default_factory=dict
    )  # file -> its Git blob hash, where no copy is at hand to take SHA-256 of
    folder: str = ""  # may stand in for `files`: the archive unpacked
    batches: list[str] = field(default_factory=list)  # of CIFAR: training parts, the test part, the names
    classes: list[str] = field(default_factory=list)  # where no file names them
    paper: Figures | None = None
    notes: dict[str, list[str]] = field(default_factory=dict)  # figure -> what is found instead, and why


def load(name: str, data_dir: str | Path | None = None) -> Dataset:
    """Load a set by name from `data_dir`, or from the folder that ONEOF_DATA names; digits needs neither.

    >>> digits = load("digits")
    >>> digits.x.shape, len(digits.classes)
    ((1797, 64), 10)
    """
    named = find(name)
    if not named.files:
        return _READERS[named.form](name, Path())
    how = f"Run 'oneof paper data --get {name}', or take" if named.download else "Download"
    by_hand = "" if named.download else " by hand"
    unpacked = f" (or the folder {named.folder})" if named.folder else ""
    needs = f"{how} it{by_hand} from {named.address}; it needs {', '.join(named.files)}{unpacked}."
    folder = data_folder(data_dir)
    if folder is None:
        got = f"neither does. {needs}"
        raise ValueError(f"data_dir or the environment variable ONEOF_DATA must name the folder of data sets; {got}")
    if absent := missing(name, folder):
        raise ValueError(f"data set {name!r} must lie in {folder}; missing there: {', '.join(absent)}. {needs}")
    return _READERS[named.form](name, folder)


def find(name: str) -> Named:
    """The row of a name, or an error that says which names there are."""
    if name not in NAMED:
        raise ValueError(f"data set must be one of {', '.join(NAMED)}; got {name!r}.{did_you_mean(name, NAMED)}")
    return NAMED[name]


def data_folder(data_dir: str | Path | None) -> Path | None:
    """The folder given, or the one that ONEOF_DATA names."""
    given = data_dir or os.environ.get("ONEOF_DATA")
    return Path(given) if given else None


def missing(name: str, folder: Path) -> list[str]:
    """The files of a set that are not in the folder, by the paths that they should have there."""
    named = find(name)
    unpacked = named.folder and (folder / named.folder).is_dir()
    files = [f"{named.folder}/{part}" for part in named.batches[:-1]] if unpacked else named.files
    return [file for file in files if not (folder / file).is_file()]


def _digits(name: str, folder: Path) -> Dataset:
    from sklearn.datasets import load_digits

    digits = load_digits()
    return Dataset(name, digits.data.astype(np.float32), digits.target.astype(np.intp), list("0123456789"), None, None)


def _idx(name: str, folder: Path) -> Dataset:
    images, labels, test_images, test_labels = (read_idx(folder / file) for file in NAMED[name].files)
    counts = [(len(images), labels.shape), (len(test_images), test_labels.shape)]
    shapes = {images.shape[1:], test_images.shape[1:]}
    if len(shapes) > 1 or any(shape != (n,) for n, shape in counts):
        got = f"got {counts} and {sorted(shapes)}."
        raise ValueError(f"{name} must hold one label per image, and images of one size; {got}")
    x, y = np.concatenate([images, test_images]), np.concatenate([labels, test_labels]).astype(np.intp)
    return Dataset(name, x, y, NAMED[name].classes, None, np.arange(len(images), len(x)))


def _cifar(name: str, folder: Path) -> Dataset:
    x, labels, classes, test = read_cifar(cifar_path(name, folder), NAMED[name].batches)
    return Dataset(name, x, labels, classes, None, np.arange(len(x) - test, len(x)))


def cifar_path(name: str, folder: Path) -> Path:
    """The unpacked folder where there is one, else the archive."""
    unpacked = folder / NAMED[name].folder
    return unpacked if unpacked.is_dir() else folder / NAMED[name].files[0]


def _with_votes(name: str, folder: Path) -> Dataset:
    """CIFAR-10 with people's votes on training images, or on test images; candidates are the labels that somebody named."""
    data, file = load("cifar10", folder), folder / NAMED[name].files[0]
    if name == "cifar10n":
        people = read_cifar10n(file)
        counts, truth = (people.labels[..., None] == np.arange(10)).sum(1), people.truth
        rows = slice(0, len(counts))
    else:
        counts = read_cifar10h(file)
        rows = slice(-len(counts), None)
        truth = data.labels[rows]
    if not np.array_equal(data.labels[rows], truth) or len(truth) != len(counts):
        raise ValueError(f"{NAMED[name].files[0]} must have votes on CIFAR-10's images, in its order; it has others.")
    votes = np.zeros((len(data.x), 10), dtype=np.intp)
    votes[rows] = counts
    named = votes > 0
    return replace(data, name=name, votes=votes, candidates=named | ~named.any(1, keepdims=True))


def _mat(name: str, folder: Path) -> Dataset:
    mat = read_mat(folder / NAMED[name].files[0])
    x, sets = mat["x"].astype(np.float32), mat["candidates"]
    labels = mat.get("labels", np.full(len(x), -1))
    return Dataset(name, x, labels, [str(j) for j in range(sets.shape[1])], sets, None)


def _tagged(name: str, folder: Path) -> Dataset:
    text, dictionary = NAMED[name].files
    tokens = read_tagged(folder / text, folder / dictionary)
    return Dataset(name, tokens.x, tokens.labels, tokens.classes, tokens.candidates, None)


_READERS: dict[str, Callable[[str, Path], Dataset]] = {
    "digits": _digits,
    "idx": _idx,
    "cifar": _cifar,
    "votes": _with_votes,
    "mat": _mat,
    "tagged": _tagged,
}
_ROWS = tomllib.loads(resources.files("oneof_paper.data").joinpath("catalogue.toml").read_text(encoding="utf-8"))
NAMED = {
    name: Named(**row | {"paper": Figures(**row["paper"]) if "paper" in row else None}) for name, row in _ROWS.items()
}
