"""MATLAB files in every orientation, against SciPy, and damaged."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from oneof.data.table import ColumnRoles, read_table
from oneof_paper.readers.mat import read_mat, variables


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


SETS = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0], [0, 0, 1]])  # [n, c]
TRUE = np.array([[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]])
X = np.arange(8.0).reshape(4, 2)


def mat(path: Path, **keys: object) -> Path:
    scipy.io.savemat(path, keys)
    return path


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csc_matrix, scipy.sparse.csc_array])
@pytest.mark.parametrize("transpose", [True, False])
def test_mat_in_every_orientation(tmp_path, form, transpose):
    turn = np.transpose if transpose else np.asarray
    path = mat(tmp_path / "a.mat", data=X, partial_target=form(turn(SETS)), target=form(turn(TRUE)))
    table = read_table(path, ColumnRoles(gold="target"))
    np.testing.assert_array_equal(table.columns.numbers, X)
    np.testing.assert_array_equal(table.candidates.mask, SETS)
    assert table.gold.tolist() == [0, 1, 0, 2]
    assert table.columns.names == ["x0", "x1"]


def test_square_sets_are_read_by_their_truth(tmp_path):
    sets, true, x = SETS[:3], np.array([[1, 0, 0], [0, 1, 0], [1, 0, 0]]), X[:3]
    for turn in (np.transpose, np.asarray):
        path = mat(tmp_path / "a.mat", data=x, partial_target=turn(sets), target=turn(true))
        np.testing.assert_array_equal(read_mat(path)["candidates"], sets)
    path = mat(tmp_path / "a.mat", data=x, partial_target=sets.T)
    np.testing.assert_array_equal(read_mat(path)["candidates"], sets)  # nothing decides: [c, n] is the custom
    with pytest.raises(ValueError, match="column 'target' must be in a table of columns"):
        read_table(path, ColumnRoles(gold="target"))


def compressed(*parts: bytes) -> bytes:
    """The bytes of a .mat whose parts are compressed ones that hold these."""
    packed = [zlib.compress(part) for part in parts]
    elements = [struct.pack("<II", 15, len(part)) + part for part in packed]
    return b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM" + b"".join(elements)


def test_a_file_that_unpacks_to_too_much_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    def zeros(size: int) -> bytes:
        return struct.pack("<II", 1, size) + bytes(size)

    path = write(tmp_path / "bomb.mat", compressed(zeros(2**26)))
    assert path.stat().st_size < 2**17
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"must not hold more than 0\.01 GB; .*bomb\.mat does.*--unpacked"):
            read_table(path, ColumnRoles(unpacked=0.01))
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()
    several = write(tmp_path / "several.mat", compressed(*[zeros(2**22)] * 3))
    with pytest.raises(ValueError, match=r"must not hold more than 0\.01 GB; .*several\.mat does"):
        read_table(several, ColumnRoles(unpacked=0.01))


def test_a_compressed_part_holds_no_other_one(tmp_path: Path) -> None:
    inner = zlib.compress(bytes(100))
    path = write(tmp_path / "nested.mat", compressed(struct.pack("<II", 15, len(inner)) + inner))
    with pytest.raises(
        ValueError, match=r"nested\.mat must be a whole \.mat file; a compressed part holds another one"
    ):
        read_mat(path)


def test_a_sparse_matrix_of_few_entries_does_not_claim_the_memory(tmp_path: Path) -> None:
    n = 20_000
    sets = scipy.sparse.eye(n, format="csc")
    path = mat(tmp_path / "wide.mat", data=np.zeros((n, 1)), partial_target=sets)
    with pytest.raises(ValueError, match=r"must not hold more than 0\.1 GB; .*wide\.mat does.*--unpacked"):
        read_table(path, ColumnRoles(unpacked=0.1))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"data": X}, r"a\.mat must hold the key 'partial_target'; it has data\."),
        ({"data": X, "partial_target": SETS[:3]}, r"key 'partial_target' must be a matrix with an axis of the 4 rows of 'data'; got shape \[3, 3\]"),
        ({"data": X, "partial_target": SETS * 2}, r"must hold only 0 and 1; got 2.*threshold"),
        ({"data": X, "partial_target": SETS, "target": TRUE.T}, r"key 'target' must have the shape of 'partial_target', \[4, 3\]"),
        ({"data": X, "partial_target": SETS, "target": SETS}, "must mark at most one label per row; row 0 has several"),
        ({"data": np.array(["ab"]), "partial_target": SETS}, r"key 'data' must be a matrix of numbers \[n, d\]"),
        ({"data": X, "partial_target": SETS, "target": 1 - SETS[:, [1, 0, 2]] - (SETS > 9)}, "must mark at most one|candidate set"),
    ],
)  # fmt: skip
def test_wrong_mats_are_described(tmp_path, keys, message):
    with pytest.raises(ValueError, match=message):
        read_table(mat(tmp_path / "a.mat", **keys))


def test_mats_of_other_versions_and_damage(tmp_path):
    newer = b"MATLAB 7.3 MAT-file, Platform" + bytes(483) + b"\x89HDF\r\n\x1a\n"
    with pytest.raises(
        ValueError, match=r"version 7 or below; it is version 7\.3 \(HDF5\)\. Save it in MATLAB with '-v7'"
    ):
        read_mat(write(tmp_path / "a.mat", newer))
    with pytest.raises(ValueError, match=r"must begin with 'MATLAB 5\.0 MAT-file'; got b'hello'"):
        read_mat(write(tmp_path / "a.mat", b"hello"))
    whole = mat(tmp_path / "a.mat", data=X, partial_target=SETS).read_bytes()
    with pytest.raises(ValueError, match=r"cut\.mat must be a whole \.mat file; .*Download it again"):
        read_mat(write(tmp_path / "cut.mat", whole[:-30]))


def test_sparse_sets_with_indices_outside_are_refused(tmp_path):
    sets = scipy.sparse.csc_matrix(SETS.T.astype(float))
    sets.indices[0] = 77
    with pytest.raises(ValueError, match="a sparse matrix has an entry outside its shape"):
        read_mat(mat(tmp_path / "a.mat", data=X, partial_target=sets))
    claimed = scipy.sparse.csc_matrix((10**6, 4))
    with pytest.raises(ValueError, match="must hold marks; got a sparse matrix"):
        read_mat(mat(tmp_path / "a.mat", data=X, partial_target=claimed))


def test_a_damaged_name_is_told_on_one_line(tmp_path):
    scipy.io.savemat(tmp_path / "a.mat", {"data": X, "partial_target": SETS.T})
    damaged = (tmp_path / "a.mat").read_bytes().replace(b"partial_target", b"partial_t\nrget")
    (tmp_path / "a.mat").write_bytes(damaged)
    with pytest.raises(ValueError, match=r"it has data, partial_t rget\.$"):
        read_mat(tmp_path / "a.mat")


def test_sparse_marks_do_not_become_dense_floats(tmp_path):
    sets = scipy.sparse.random_array((500, 2000), density=0.01, format="csc", rng=np.random.default_rng(0))
    path = mat(tmp_path / "a.mat", data=np.zeros((2000, 1)), partial_target=sets.astype(bool).astype(float))
    tracemalloc.start()
    found = read_mat(path)["candidates"]
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(found, sets.toarray().T != 0)
    assert most < 3 * found.size  # bytes: dense floats alone are eight times as many


@pytest.mark.parametrize("packed", [True, False])
def test_mat_values_agree_with_scipy(tmp_path, packed):
    rng = np.random.default_rng(0)
    kinds = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64]
    stored = {f"k{kind.__name__}": rng.integers(0, 100, (3, 5)).astype(kind) for kind in kinds}
    stored |= {"small": np.array([[7]], np.uint8), "cube": rng.normal(size=(2, 3, 4)), "none": np.zeros((0, 3))}
    stored |= {"flags": rng.random((4, 3)) < 0.5, "s": scipy.sparse.random(6, 9, 0.3, format="csc", random_state=0)}
    scipy.io.savemat(tmp_path / "a.mat", {**stored, "text": "abc", "cell": [{"a": 1}], "z": 1j}, do_compression=packed)
    read, reference = variables((tmp_path / "a.mat").read_bytes()), scipy.io.loadmat(tmp_path / "a.mat")
    for name in stored:
        ours = read[name]
        if scipy.sparse.issparse(ours):
            ours, reference[name] = ours.toarray(), reference[name].toarray()
        np.testing.assert_array_equal(ours, reference[name])
    assert read["text"] is read["cell"] is read["z"] is None


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda content: content[:126] + b"XX" + content[128:], "its header does not say its endianness"),
        (lambda content: content + b"abc", "it ends inside a tag"),
        (lambda content: content + bytes([14, 0, 0, 0, 0, 0, 0, 0]), "a variable has no header"),
        (lambda content: content + bytes([15, 0, 0, 0, 2, 0, 0, 0]) + b"xx", "a compressed part cannot be unpacked"),
        (lambda content: content[:136] + bytes([99]) + content[137:], "an element has type 99"),
    ],
)
def test_damage_to_a_mat_is_named(tmp_path, spoil, message):
    whole = mat(tmp_path / "a.mat", data=X, partial_target=SETS).read_bytes()
    with pytest.raises(ValueError, match=rf"a\.mat must be a whole \.mat file; .*{message}"):
        read_mat(write(tmp_path / "a.mat", spoil(whole)))


def test_truth_outside_the_set_and_bad_features_of_arrays(tmp_path):
    with pytest.raises(
        ValueError,
        match=r"a true label must be in its row's candidate set; .*a\.mat, key 'target', row 2 is 1, the set is \[0\]",
    ):
        read_table(mat(tmp_path / "a.mat", data=X, partial_target=SETS, target=TRUE[[0, 1, 1, 3]]))
    for value, said in ((np.nan, "nan"), (np.inf, "inf"), (1e300, r"1e\+300")):
        x = X.copy()
        x[2, 1] = value
        with pytest.raises(ValueError, match=rf"a\.mat, key 'data', column 'x1', row 2 is {said}"):
            read_table(mat(tmp_path / "a.mat", data=x, partial_target=SETS))
