"""idx files and CIFAR batches, sound and bad; pickles that try to run code."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import struct
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest

from oneof_paper.readers import pickles
from oneof_paper.readers.cifar import binary_rows, class_names, images_and_labels, read_batches
from oneof_paper.readers.idx import read_idx


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def idx(values: np.ndarray, code: int = 8) -> bytes:
    header = struct.pack(">BBBB", 0, 0, code, values.ndim) + struct.pack(f">{values.ndim}I", *values.shape)
    return header + values.astype({8: ">u1", 0x0C: ">i4", 0x0E: ">f8"}[code]).tobytes()


# ------------------------------------------------------------------------------------------------------------------- idx


def test_idx_gives_what_was_written(tmp_path):
    values = np.arange(24).reshape(2, 3, 4)
    np.testing.assert_array_equal(read_idx(write(tmp_path / "a-idx3-ubyte.gz", gzip.compress(idx(values)))), values)
    for code in (0x0C, 0x0E):
        read = read_idx(write(tmp_path / "a", idx(values, code)))
        np.testing.assert_array_equal(read, values)
        assert read.dtype.isnative


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x89PNG....", r"bad must begin with an idx magic number .*; got 89 50 4e 47\."),
        (b"", r"got nothing\."),
        (bytes([0, 0, 8, 3, 0, 0]), "must hold 3 dimensions; it ends inside its header"),
        (idx(np.arange(9))[:-1], "must hold 9 bytes of values, as its header says; got fewer"),
        (idx(np.arange(9)) + b"x", "must hold 9 bytes of values, as its header says; got more"),
        (bytes([0, 0, 8, 2, 255, 255, 255, 255, 255, 255, 255, 255]), "got fewer"),
    ],
)
def test_bad_idx_names_the_file(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        read_idx(write(tmp_path / "bad", content))


def test_truncated_gzip_is_one_clear_error(tmp_path):
    whole = gzip.compress(idx(np.random.default_rng(0).integers(0, 256, (50, 28))))
    for content in (whole[:-9], whole[:40], b"plain text"):
        with pytest.raises(ValueError, match=r"a\.gz must be a whole gzip file; .*Download it again"):
            read_idx(write(tmp_path / "a.gz", content))


# ----------------------------------------------------------------------------------------------------------------- CIFAR


def batch(n: int = 4, key: bytes = b"labels") -> dict[bytes, object]:
    data = np.random.default_rng(0).integers(0, 256, (n, 3072), dtype=np.uint8)
    return {b"data": data, key: [i % 3 for i in range(n)]}


# What Python 2 and NumPy 1 wrote: short strings instead of bytes, and the old place of _reconstruct.
PYTHON_2 = (
    b"\x80\x02}q\x01(U\x06labelsq\x02]q\x03(K\x06K\x02eU\x04dataq\x04cnumpy.core.multiarray\n_reconstruct\nq\x05cnumpy\n"
    b"ndarray\nq\x06K\x00\x85U\x01b\x87Rq\x07(K\x01K\x02K\x03\x86cnumpy\ndtype\nq\x08U\x02u1K\x00K\x01\x87Rq\x09"
    b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x06abcdeftbu."
)


def test_pickles_of_every_age_are_read():
    plain = batch()
    for protocol in (2, 3, 4, 5):
        read = pickles.loads(pickle.dumps(plain, protocol), "batch")
        np.testing.assert_array_equal(read[b"data"], plain[b"data"])
        assert read[b"labels"] == plain[b"labels"]
    old = pickles.loads(PYTHON_2, "batch")
    assert old[b"labels"] == [6, 2]
    np.testing.assert_array_equal(old[b"data"], np.frombuffer(b"abcdef", np.uint8).reshape(2, 3))
    big_end = {b"a": np.arange(4, dtype=">i4"), b"f": np.asfortranarray(np.arange(6.0).reshape(2, 3))}
    for name, values in pickles.loads(pickle.dumps(big_end), "batch").items():
        np.testing.assert_array_equal(values, big_end[name])


class Payload:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    ("make", "asks"),
    [
        (lambda mark: Payload(os.system, (f"touch {mark}",)), r"posix\.system"),
        (lambda mark: {b"data": [Payload(eval, (f"open({mark!r}, 'w')",))]}, r"builtins\.eval|__builtin__\.eval"),
        (lambda mark: Payload(getattr, (Payload(__import__, ("os",)), "system")), "getattr|__import__"),
        (lambda mark: Payload(subprocess.Popen, (["touch", mark],)), r"(subprocess|commands)\.Popen"),
        (lambda mark: np.array([{1}], dtype=object), "array of type O8|instruction|set"),
        (lambda mark: Payload(np.ndarray, ((3,),)), r"calls numpy\.ndarray"),
        (lambda mark: 1.5, "instruction BINFLOAT"),
    ],
)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_tries_to_run_code_runs_nothing(tmp_path, make, asks, protocol):
    mark = tmp_path / "ran"
    content = pickle.dumps(make(str(mark)), protocol)
    asks = "instruction|" + asks if protocol == 0 else asks
    with pytest.raises(ValueError, match=rf"evil must be a pickle of plain values.*({asks}).*Nothing of it was run"):
        pickles.loads(content, "evil")
    assert not mark.exists()


def test_pickles_built_to_exhaust_or_to_alter_are_refused():
    memo = b"\x80\x02]r\xff\xff\xff\xff."
    nested = b"\x80\x02}" + b")" + b"\x85" * 100_000 + b"Ns."
    for content in (memo, nested):
        with pytest.raises(ValueError, match="built in a way that no data batch is"):
            pickles.loads(content, "evil")
    alter = b"\x80\x02c_codecs\nencode\nN}(U\x08__code__Nu\x86b."  # BUILD on a stand-in must find nothing to change
    with pytest.raises(ValueError, match="evil must be a whole pickle"):
        pickles.loads(alter, "evil")


def test_cifar_from_folder_and_archive(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    write(folder / "data_batch_1", pickle.dumps(batch()))
    write(folder / "batches.meta", pickle.dumps({b"label_names": [b"cat", b"dog"]}))
    archive = tmp_path / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, folder.name)
    for path in (folder, archive):
        batches = read_batches(path, ["data_batch_1", "batches.meta", "test_batch"])
        assert set(batches) == {"data_batch_1", "batches.meta"}
        images, labels = images_and_labels(batches["data_batch_1"], "x")
        assert images.shape == (4, 32, 32, 3)
        assert labels.tolist() == [0, 1, 2, 0]
        np.testing.assert_array_equal(images[1, 5, 7], batch()[b"data"][1].reshape(3, 32, 32)[:, 5, 7])
        np.testing.assert_array_equal(binary_rows(images, labels)[:, 1:], batch()[b"data"])
        assert class_names(batches["batches.meta"], "x") == ["cat", "dog"]


def test_odd_archives_are_refused(tmp_path):
    for name, kind in (
        ("../data_batch_1", tarfile.REGTYPE),
        ("data_batch_1", tarfile.SYMTYPE),
        ("/etc/x", tarfile.REGTYPE),
    ):
        path = tmp_path / "odd.tar.gz"
        with tarfile.open(path, "w:gz") as tar:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            tar.addfile(member, io.BytesIO())
        with pytest.raises(ValueError, match=r"odd\.tar\.gz must hold plain files of ordinary size; .* is not one"):
            read_batches(path, ["data_batch_1"])
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"no archive"):
        with pytest.raises(ValueError, match=r"cut\.tar\.gz must be a whole \.tar\.gz"):
            read_batches(write(tmp_path / "cut.tar.gz", content), ["data_batch_1"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({b"data": None}, r"x must hold 'data', uint8 \[n, 3072\]; got nothing"),
        ({b"data": np.zeros((4, 3))}, r"got float64 \[4, 3\]"),
        ({b"labels": [1]}, "a number from 0 for each of the 4 images; got list of length 1"),
        ({b"labels": [1, 2, -1, 0]}, "a number from 0"),
    ],
)
def test_wrong_batches_are_described(change, message):
    with pytest.raises(ValueError, match=message):
        images_and_labels({**batch(), **change}, "x")


def test_a_batch_must_be_a_dict_and_name_its_labels(tmp_path):
    write(tmp_path / "test_batch", pickle.dumps([1]))
    with pytest.raises(ValueError, match="test_batch must hold a dict; got list"):
        read_batches(tmp_path, ["test_batch"])
    with pytest.raises(ValueError, match="meta must hold 'label_names', a list of text; got nothing"):
        class_names({}, "meta")
