"""Compare named data sets with their checksums and with the figures that the paper prints."""

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from oneof_paper.data.catalogue import LabelledData, Named, cifar_path, find, load
from oneof_paper.readers.cifar import binary_rows, images_and_labels, read_batches
from oneof_paper.readers.idx import open_content

_SPLIT = "the paper's train and test are an 80/20 split of the file"


class Verification(NamedTuple):
    """A value of a data set beside the one that it should have."""

    name: str  # of the data set
    what: str
    expected: str
    found: str
    verdict: str  # equal, explained or differs
    note: str = ""


def verify(name: str, folder: Path) -> list[Verification]:
    """Check the files of a data set: checksums, the paper's figures, and conditions that all rows must satisfy."""
    data = load(name, folder)
    named = find(name)
    return [*_check_files(name, named, folder), *_check_figures(data, named), *_check_rows(data, named)]


def content_sha256(path: Path, name: str) -> str:
    """Compute the SHA-256 of a file's content, unpacked if `name` ends in .gz; a .tar.gz counts as it is."""
    is_packed = name.endswith(".gz") and not name.endswith(".tar.gz")
    with open_content(path, is_packed) as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def git_blob(path: Path) -> str:
    """Compute what `git hash-object` prints for a file: SHA-1 of its size and content."""
    digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _check_files(name: str, named: Named, folder: Path) -> list[Verification]:
    """Compare the files of a data set with the checksums and Git blobs that are known."""
    comparisons = []
    for part, checksum in _checksums(name, named, folder).items():
        comparisons.append(_compare(name, f"SHA-256 of {part}", named.checksums[part][:12], checksum[:12]))
    for file, blob in named.blobs.items():
        comparisons.append(_compare(name, f"Git blob of {file}", blob[:12], git_blob(folder / file)[:12]))
    if named.files and not comparisons:
        why = "no copy was at hand when this was written"
        return [Verification(name, "checksum", "none known", "not checked", "explained", why)]
    return comparisons


def _checksums(name: str, named: Named, folder: Path) -> dict[str, str]:
    """Compute the SHA-256 of each file, or of each batch of an unpacked CIFAR, whose checksum is known."""
    checksums = {}
    if named.folder and (folder / named.folder).is_dir():
        batches = read_batches(cifar_path(name, folder), list(named.checksums))
        for part, batch in batches.items():
            rows = binary_rows(*images_and_labels(batch, part))
            checksums[part] = hashlib.sha256(rows.tobytes()).hexdigest()
        return checksums
    for file in named.files:
        if file in named.checksums:
            checksums[file] = content_sha256(folder / file, file)
    return checksums


def _check_figures(data: LabelledData, named: Named) -> list[Verification]:
    """Compare rows, features, classes and average set size with the paper's."""
    paper = named.paper
    if paper is None:
        return [Verification(data.name, "figures", "none", "-", "explained", "the paper does not use this set")]
    comparisons = []
    n = len(data.x)
    if data.test is None:
        total = f"{paper.train} + {paper.test} = {paper.train + paper.test}"
        rows = _compare(data.name, "rows", total, str(n), named.notes.get("rows"))
        if rows.verdict == "equal":
            rows = rows._replace(note=_SPLIT)
        comparisons.append(rows)
        figures = []
    else:
        test_count = len(data.test)
        figures = [("train", str(paper.train), str(n - test_count)), ("test", str(paper.test), str(test_count))]
    average = "no sets" if data.candidates is None else f"{data.candidates.sum(1).mean():.2f}"
    figures += [
        ("features", str(paper.features), str(int(np.prod(data.x.shape[1:])))),
        ("classes", str(paper.classes), str(len(data.classes))),
        ("average", f"{paper.average:.2f}", average),
    ]
    for what, expected, found in figures:
        comparisons.append(_compare(data.name, what, expected, found, named.notes.get(what)))
    return comparisons


def _compare(name: str, what: str, expected: str, found: str, note: list[str] | None = None) -> Verification:
    """Compare two values; a difference is explained only if the note is about this very value."""
    if expected.split("= ")[-1] == found:
        return Verification(name, what, expected, found, "equal")
    if note is not None and note[0] == found:
        return Verification(name, what, expected, found, "explained", note[1])
    return Verification(name, what, expected, found, "differs")


def _check_rows(data: LabelledData, named: Named) -> list[Verification]:
    """Check what the paper does not print but all rows must satisfy."""
    is_known = data.labels >= 0
    known_labels = data.labels[is_known]
    non_finite_count = 0
    if data.x.dtype != np.uint8:  # images hold whole numbers
        non_finite_count = int((~np.isfinite(data.x)).any(1).sum())
    counts = [
        ("classes with an example", len(data.classes), len(np.unique(known_labels)), "seen"),
        ("non-finite rows", 0, non_finite_count, ""),
    ]
    if data.candidates is not None:
        outside_count = int((~data.candidates[is_known, known_labels]).sum())
        empty_count = int((~data.candidates.any(1)).sum())
        counts.append(("true label outside its set", 0, outside_count, "outside"))
        counts.append(("empty sets", 0, empty_count, ""))
    comparisons = []
    for what, expected, found, note in counts:
        comparisons.append(_compare(data.name, what, str(expected), str(found), named.notes.get(note)))
    return comparisons
