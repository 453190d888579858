"""Named sets against their checksums and against the figures that the paper prints."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from oneof_paper.data.catalogue import Dataset, Named, cifar_path, find, load
from oneof_paper.readers.cifar import binary_rows, images_and_labels, read_batches
from oneof_paper.readers.idx import open_content

_SPLIT = "the paper's train and test are an 80/20 split of the file"


class Comparison(NamedTuple):
    name: str  # of the data set
    what: str
    expected: str
    found: str
    verdict: str  # equal, explained or differs
    note: str = ""


def verify(name: str, folder: Path) -> list[Comparison]:
    """Check the files of a set that is present: checksums, the paper's figures, and that the rows make sense."""
    data, named = load(name, folder), find(name)
    return [*_checksums(name, named, folder), *_figures(data, named), *_rows(data, named)]


def content_sha256(path: Path, name: str) -> str:
    """SHA-256 of a file's content, unpacked where `name` ends in .gz; an archive counts as it is."""
    with open_content(path, name.endswith(".gz") and not name.endswith(".tar.gz")) as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def git_blob(path: Path) -> str:
    """Compute what `git hash-object` says of a file: SHA-1 of its size and content."""
    digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _checksums(name: str, named: Named, folder: Path) -> list[Comparison]:
    known = named.checksums
    if named.folder and (folder / named.folder).is_dir():
        batches = read_batches(cifar_path(name, folder), list(known))
        rows = {part: binary_rows(*images_and_labels(batch, part)) for part, batch in batches.items()}
        found = {part: hashlib.sha256(row.tobytes()).hexdigest() for part, row in rows.items()}
    else:
        found = {file: content_sha256(folder / file, file) for file in named.files if file in known}
    blobs = [
        _compare(name, f"Git blob of {file}", digest[:12], git_blob(folder / file)[:12])
        for file, digest in named.blobs.items()
    ]
    if named.files and not found and not blobs:
        why = "no copy was at hand when this was written"
        return [Comparison(name, "checksum", "none known", "not checked", "explained", why)]
    sums = [_compare(name, f"SHA-256 of {part}", known[part][:12], digest[:12]) for part, digest in found.items()]
    return sums + blobs


def _figures(data: Dataset, named: Named) -> list[Comparison]:
    paper = named.paper
    if paper is None:
        return [Comparison(data.name, "figures", "none", "-", "explained", "the paper does not use this set")]
    rows, sets = len(data.x), data.candidates
    pairs: list[tuple[str, Any, Any]] = [("rows", f"{paper.train} + {paper.test} = {paper.train + paper.test}", rows)]
    if data.test is not None:
        pairs = [("train", paper.train, rows - len(data.test)), ("test", paper.test, len(data.test))]
    pairs += [
        ("features", paper.features, int(np.prod(data.x.shape[1:]))),
        ("classes", paper.classes, len(data.classes)),
        ("average", f"{paper.average:.2f}", "no sets" if sets is None else f"{sets.sum(1).mean():.2f}"),
    ]
    findings = [_compare(data.name, what, str(due), str(got), named.notes.get(what)) for what, due, got in pairs]
    return [f._replace(note=_SPLIT) if f.what == "rows" and f.verdict == "equal" else f for f in findings]


def _compare(name: str, what: str, expected: str, found: str, note: list[str] | None = None) -> Comparison:
    """A difference is explained only where it is the very one that the note is about."""
    if expected.split("= ")[-1] == found:
        return Comparison(name, what, expected, found, "equal")
    if note is not None and note[0] == found:
        return Comparison(name, what, expected, found, "explained", note[1])
    return Comparison(name, what, expected, found, "differs")


def _rows(data: Dataset, named: Named) -> list[Comparison]:
    """What no table prints but every row must satisfy."""
    known = data.labels >= 0
    numbers = data.x[:0] if data.x.dtype == np.uint8 else data.x  # [n, d]; images hold whole levels
    counts = [
        ("classes with an example", len(data.classes), len(np.unique(data.labels[known])), "seen"),
        ("non-finite rows", 0, int((~np.isfinite(numbers)).any(1).sum()), ""),
    ]
    if data.candidates is not None:
        outside = int((~data.candidates[known, data.labels[known]]).sum())
        empty = int((~data.candidates.any(1)).sum())
        counts += [("true label outside its set", 0, outside, "outside"), ("empty sets", 0, empty, "")]
    return [_compare(data.name, what, str(due), str(got), named.notes.get(note)) for what, due, got, note in counts]
