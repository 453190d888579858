"""Load data sets by name: the paper's twelve, Malagasy rebuilt, digits and people's votes on CIFAR-10; `catalogue.toml` lists them."""

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
class LabelledData:
    """A data set in memory."""

    name: str
    x: NDArray[Any]  # [n, d] float32, or uint8 images [n, h, w] or [n, h, w, 3]; test rows last where there are such
    labels: Labels  # [n]; -1 where unknown
    classes: list[str]  # [c]
    candidates: NDArray[np.bool_] | None  # [n, c], if it comes with candidate sets
    test: Labels | None  # rows of the publisher's test part
    votes: NDArray[np.intp] | None = None  # [n, c] how many people named each label


class Figures(NamedTuple):
    """The characteristics of a data set that the paper's appendix prints."""

    train: int
    test: int
    features: int
    classes: int
    average: float  # labels per set; for images, of the generated sets


@dataclass(frozen=True)
class Named:
    """An entry of the catalogue."""

    title: str
    address: str  # the publisher's page
    licence: str
    form: str  # a key of _READERS
    files: list[str] = field(default_factory=list)  # below the data folder
    download: str = ""  # address of the folder that serves the files; empty: by hand
    checksums: dict[str, str] = field(default_factory=dict)  # file -> SHA-256 of its uncompressed content
    blobs: dict[str, str] = field(default_factory=dict)  # file -> its Git blob hash, if its SHA-256 is not known
    folder: str = ""  # the unpacked archive, which may replace `files`
    batches: list[str] = field(default_factory=list)  # for CIFAR: training parts, the test part, the names
    classes: list[str] = field(default_factory=list)  # if no file names them
    paper: Figures | None = None
    notes: dict[str, list[str]] = field(default_factory=dict)  # figure -> the value of the files, and why it differs


def load(name: str, data_dir: str | Path | None = None) -> LabelledData:
    """Load a set by name from `data_dir`, or from the folder that ONEOF_DATA names; digits needs neither.

    >>> digits = load("digits")
    >>> digits.x.shape, len(digits.classes)
    ((1797, 64), 10)
    """
    named = find(name)
    reader = _READERS[named.form]
    if not named.files:
        return reader(name, Path())
    folder = data_folder(data_dir)
    if folder is None:
        requirement = "data_dir or the environment variable ONEOF_DATA must name the folder of data sets; neither does."
        raise ValueError(f"{requirement} {_how_to_get(name)}")
    absent = missing(name, folder)
    if absent:
        requirement = f"data set {name!r} must lie in {folder}; missing there: {', '.join(absent)}."
        raise ValueError(f"{requirement} {_how_to_get(name)}")
    return reader(name, folder)


def _how_to_get(name: str) -> str:
    """Return where the files of a data set are, and which it needs."""
    named = NAMED[name]
    files = ", ".join(named.files)
    if named.folder:
        files += f" (or the folder {named.folder})"
    if named.download:
        return f"Run 'oneof paper data --get {name}', or take it from {named.address}; it needs {files}."
    return f"Download it by hand from {named.address}; it needs {files}."


def find(name: str) -> Named:
    """Return the entry of a name; raise with the names that exist."""
    if name not in NAMED:
        raise ValueError(f"data set must be one of {', '.join(NAMED)}; got {name!r}.{did_you_mean(name, NAMED)}")
    return NAMED[name]


def data_folder(data_dir: str | Path | None) -> Path | None:
    """Return `data_dir`, or the folder that ONEOF_DATA names; None if neither is set."""
    folder = data_dir or os.environ.get("ONEOF_DATA")
    return Path(folder) if folder else None


def missing(name: str, folder: Path) -> list[str]:
    """Return the files of a data set that are not in the folder, by the paths that they should have there."""
    named = find(name)
    files = named.files
    if named.folder and (folder / named.folder).is_dir():
        files = [f"{named.folder}/{part}" for part in named.batches[:-1]]
    return [file for file in files if not (folder / file).is_file()]


def _digits(name: str, folder: Path) -> LabelledData:
    from sklearn.datasets import load_digits

    digits = load_digits()
    x = digits.data.astype(np.float32)
    labels = digits.target.astype(np.intp)
    return LabelledData(name, x, labels, list("0123456789"), None, None)


def _idx(name: str, folder: Path) -> LabelledData:
    images, labels, test_images, test_labels = (read_idx(folder / file) for file in NAMED[name].files)
    counts = [(len(images), labels.shape), (len(test_images), test_labels.shape)]
    shapes = {images.shape[1:], test_images.shape[1:]}
    if len(shapes) > 1 or any(shape != (n,) for n, shape in counts):
        got = f"got {counts} and {sorted(shapes)}."
        raise ValueError(f"{name} must hold one label per image, and images of one size; {got}")
    x = np.concatenate([images, test_images])
    all_labels = np.concatenate([labels, test_labels]).astype(np.intp)
    return LabelledData(name, x, all_labels, NAMED[name].classes, None, np.arange(len(images), len(x)))


def _cifar(name: str, folder: Path) -> LabelledData:
    x, labels, classes, test_count = read_cifar(cifar_path(name, folder), NAMED[name].batches)
    return LabelledData(name, x, labels, classes, None, np.arange(len(x) - test_count, len(x)))


def cifar_path(name: str, folder: Path) -> Path:
    """Return the unpacked folder if it exists, else the archive."""
    unpacked = folder / NAMED[name].folder
    if unpacked.is_dir():
        return unpacked
    return folder / NAMED[name].files[0]


def _with_votes(name: str, folder: Path) -> LabelledData:
    """Load CIFAR-10 with people's votes on training images, or on test images; candidates are the labels that somebody named."""
    data = load("cifar10", folder)
    file = folder / NAMED[name].files[0]
    if name == "cifar10n":
        people = read_cifar10n(file)
        counts = (people.labels[..., None] == np.arange(10)).sum(1)
        truth = people.truth
        rows = slice(0, len(counts))
    else:
        counts = read_cifar10h(file)
        rows = slice(-len(counts), None)
        truth = data.labels[rows]
    if not np.array_equal(data.labels[rows], truth) or len(truth) != len(counts):
        raise ValueError(f"{NAMED[name].files[0]} must have votes on CIFAR-10's images, in its order; it has others.")
    votes = np.zeros((len(data.x), 10), dtype=np.intp)
    votes[rows] = counts
    was_named = votes > 0
    has_no_votes = ~was_named.any(1, keepdims=True)
    return replace(data, name=name, votes=votes, candidates=was_named | has_no_votes)


def _mat(name: str, folder: Path) -> LabelledData:
    mat = read_mat(folder / NAMED[name].files[0])
    x = mat["x"].astype(np.float32)
    candidates = mat["candidates"]
    labels = mat.get("labels", np.full(len(x), -1))
    classes = [str(j) for j in range(candidates.shape[1])]
    return LabelledData(name, x, labels, classes, candidates, None)


def _tagged(name: str, folder: Path) -> LabelledData:
    text, dictionary = NAMED[name].files
    tokens = read_tagged(folder / text, folder / dictionary)
    return LabelledData(name, tokens.x, tokens.labels, tokens.classes, tokens.candidates, None)


_READERS: dict[str, Callable[[str, Path], LabelledData]] = {
    "digits": _digits,
    "idx": _idx,
    "cifar": _cifar,
    "votes": _with_votes,
    "mat": _mat,
    "tagged": _tagged,
}


def _read_catalogue() -> dict[str, Named]:
    """Read the entries of catalogue.toml by name."""
    content = resources.files("oneof_paper.data").joinpath("catalogue.toml").read_text(encoding="utf-8")
    named = {}
    for name, entry in tomllib.loads(content).items():
        figures = entry.pop("paper", None)
        named[name] = Named(**entry, paper=None if figures is None else Figures(**figures))
    return named


NAMED = _read_catalogue()
