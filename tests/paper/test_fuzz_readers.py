"""Damaged files of every form: whatever the damage, a reader gives a value or one clear error."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oneof.data.table import read_table
from oneof_paper.readers.cifar import class_names, images_and_labels, read_batches
from oneof_paper.readers.idx import read_idx

X = np.arange(12.0).reshape(6, 2)
SETS = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0], [0, 0, 1], [0, 1, 0], [1, 1, 0]])
TRUE = np.eye(3)[[0, 1, 0, 2, 1, 1]]


def idx(path: Path) -> None:
    path.write_bytes(bytes([0, 0, 8, 2, 0, 0, 0, 3, 0, 0, 0, 4]) + bytes(range(12)))


def idx_gz(path: Path) -> None:
    idx(path)
    path.write_bytes(gzip.compress(path.read_bytes()))


def batch() -> bytes:
    return pickle.dumps(
        {b"data": np.zeros((2, 3072), np.uint8)[:, ::1], b"labels": [1, 2], b"label_names": [b"a", b"b"]}
    )


def archive(path: Path) -> None:
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo("cifar/test_batch")
        member.size = len(batch())
        tar.addfile(member, io.BytesIO(batch()))


def mat(path: Path) -> None:
    scipy.io.savemat(path, {"data": X, "partial_target": scipy.sparse.csc_matrix(SETS.T), "target": TRUE.T})


def mat_packed(path: Path) -> None:
    scipy.io.savemat(path, {"data": X, "partial_target": SETS.T, "target": TRUE.T}, do_compression=True)


def npz(path: Path) -> None:
    np.savez_compressed(path, x=X, candidates=SETS, labels=TRUE.argmax(1))


def parquet(path: Path) -> None:
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "candidates": ["p|q", "q"] * 3}), path)


def csv(path: Path) -> None:
    path.write_text("a,b,candidates\n" + "".join(f"{a},{b},p|q\n" for a, b in X))


def read_cifar(path: Path) -> None:
    folder = path if path.suffix == ".gz" else path.parent
    for name, read in read_batches(folder, ["test_batch"]).items():
        images_and_labels(read, name)
        class_names(read, name)


FORMS: dict[str, tuple[Callable[[Path], object], Callable[[Path], object]]] = {
    "images-idx2-ubyte": (idx, read_idx),
    "images-idx2-ubyte.gz": (idx_gz, read_idx),
    "test_batch": (lambda path: path.write_bytes(batch()), read_cifar),
    "cifar.tar.gz": (archive, read_cifar),
    "a.mat": (mat, read_table),
    "packed.mat": (mat_packed, read_table),
    "a.npz": (npz, read_table),
    "a.parquet": (parquet, read_table),
    "a.csv": (csv, read_table),
}

damage = st.one_of(
    st.tuples(st.just("cut"), st.floats(0, 1), st.just(b"")),
    st.tuples(st.just("put"), st.floats(0, 1), st.binary(min_size=1, max_size=8)),
    st.tuples(st.just("insert"), st.floats(0, 1), st.binary(min_size=1, max_size=4)),
    st.tuples(st.just("drop"), st.floats(0, 1), st.binary(min_size=1, max_size=4)),
)


def spoil(content: bytes, steps: list[tuple[str, float, bytes]]) -> bytes:
    for kind, place, new in steps:
        at = int(place * len(content))
        rest = {"cut": b"", "put": content[at + len(new) :], "insert": content[at:], "drop": content[at + len(new) :]}[
            kind
        ]
        content = content[:at] + (new if kind in ("put", "insert") else b"") + rest
    return content


@pytest.mark.parametrize("name", FORMS)
def test_damage_never_escapes(tmp_path, name):
    write, read = FORMS[name]
    path = tmp_path / name
    write(path)
    read(path)  # sound before the damage
    sound = path.read_bytes()

    @settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(damage, min_size=1, max_size=3))
    def check(steps: list[tuple[str, float, bytes]]) -> None:
        path.write_bytes(spoil(sound, steps))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            said = ""
            try:
                read(path)
            except (ValueError, TypeError, OSError) as error:
                said = str(error)
        assert "\n" not in said

    check()


def test_a_zip_of_a_later_version_is_one_line(tmp_path):
    """Its central directory says 6.4: the module zipfile gives up with an error of its own."""
    np.savez(tmp_path / "a.npz", x=np.eye(3), candidates=np.eye(3, dtype=bool))
    data = bytearray((tmp_path / "a.npz").read_bytes())
    at = data.index(b"PK\x01\x02")
    data[at + 6 : at + 8] = (64).to_bytes(2, "little")
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(ValueError, match="must be a whole npz file"):
        read_table(tmp_path / "a.npz")
