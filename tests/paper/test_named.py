"""The named sets on made files of the same form; on the real ones where ONEOF_DATA says where they are."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse
import typer
from typer.testing import CliRunner

from oneof_paper.cli.data import data
from oneof_paper.data.catalogue import NAMED, Figures, load, missing
from oneof_paper.data.verify import git_blob, verify
from oneof_paper.readers.tagged import indicators

REAL = os.environ.get("ONEOF_DATA")
needs_data = pytest.mark.skipif(not REAL, reason="ONEOF_DATA does not say where the data sets are")
HERE = ["mnist", "fashion-mnist", "kmnist", "cifar10", "cifar10n", "cifar10h", "lost", "birdsong", "msrcv2"]
HERE.append("malagasy-rebuilt")
APP = typer.Typer()
APP.command()(data)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(APP, list(arguments), env={"ONEOF_DATA": ""})
    if isinstance(result.exception, Exception):
        raise result.exception
    return result.exit_code, result.output


def make_idx(folder: Path, name: str, train: int = 20, test: int = 10) -> None:
    for file, n in zip(NAMED[name].files, (train, train, test, test), strict=True):
        shape = (n, 28, 28) if "images" in file else (n,)
        values = np.random.default_rng(0).integers(0, 256, shape) if "images" in file else np.arange(n) % 10
        header = bytes([0, 0, 8, len(shape)]) + np.array(shape, ">u4").tobytes()
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(gzip.compress(header + values.astype(np.uint8).tobytes()))


def make_cifar100(folder: Path) -> None:
    inside = folder / "cifar-100-python"
    inside.mkdir(parents=True)
    for part, n in (("train", 300), ("test", 100)):
        pixels = np.random.default_rng(n).integers(0, 256, (n, 3072), dtype=np.uint8)
        labels = [i % 100 for i in range(n)]
        batch = {b"data": pixels, b"fine_labels": labels, b"coarse_labels": [y // 5 for y in labels]}
        (inside / part).write_bytes(pickle.dumps(batch))
    (inside / "meta").write_bytes(pickle.dumps({b"fine_label_names": [f"name{j}".encode() for j in range(100)]}))


def make_mat(folder: Path, name: str, n: int, bad: bool = False) -> None:
    named = NAMED[name]
    c, d = named.paper.classes, named.paper.features
    rng = np.random.default_rng(0)
    truth = np.arange(n) % c
    target = np.eye(c)[truth]
    sets = np.maximum(target, rng.random((n, c)) < 0.1)
    x = rng.normal(size=(n, d))
    if bad:
        x[3, 1], sets[5] = np.nan, np.roll(target[5], 1)
    path = folder / named.files[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    scipy.io.savemat(path, {"data": x, "target": target.T, "partial_target": scipy.sparse.csc_matrix(sets.T)})


def test_rows_are_the_papers():
    """The figures against the paper's appendix, typed here a second time."""
    printed = {
        "mnist": (60000, 10000, 784, 10, 8.71), "fashion-mnist": (60000, 10000, 784, 10, 3.46),
        "kmnist": (60000, 10000, 784, 10, 3.87), "cifar10": (50000, 10000, 3072, 10, 3.68),
        "cifar100": (50000, 10000, 3072, 100, 4.64), "lost": (898, 224, 108, 16, 2.23), "msrcv2": (1406, 352, 48, 23, 3.16),
        "mirflickr": (2224, 556, 1536, 14, 2.76), "birdsong": (3998, 1000, 38, 13, 2.18),
        "malagasy": (4243, 1069, 384, 44, 8.35), "soccer": (13978, 3494, 279, 171, 2.09),
        "yahoo": (18393, 4598, 163, 219, 1.91),
    }  # fmt: skip
    assert {name: tuple(row.paper) for name, row in NAMED.items() if row.paper} == printed
    assert set(NAMED) - set(printed) == {"digits", "cifar10n", "cifar10h", "malagasy-rebuilt"}
    for row in NAMED.values():
        assert row.address.startswith("http")
        assert row.licence
        assert all(len(digest) == 64 for digest in row.checksums.values())
        assert all(len(digest) == 40 for digest in row.blobs.values())
        assert set(row.blobs) <= set(row.files)


def test_digits_needs_no_folder(monkeypatch):
    monkeypatch.delenv("ONEOF_DATA", raising=False)
    digits = load("digits")
    assert digits.x.dtype == np.float32
    assert np.bincount(digits.labels).sum() == len(digits.x) == 1797


def test_errors_say_what_where_and_how(tmp_path, monkeypatch):
    monkeypatch.delenv("ONEOF_DATA", raising=False)
    with pytest.raises(
        ValueError, match=r"data set must be one of digits, mnist, .*; got 'mnits'\. Did you mean 'mnist'\?"
    ):
        load("mnits")
    with pytest.raises(
        ValueError, match=r"ONEOF_DATA must name the folder of data sets; neither does\. .*real/lost\.mat"
    ):
        load("lost")
    with pytest.raises(
        ValueError,
        match=rf"data set 'soccer' must lie in {tmp_path}; missing there: real/Soccer Player\.mat\. Download it by hand from https://palm\.seu",
    ):
        load("soccer", tmp_path)
    make_idx(tmp_path, "kmnist")
    (tmp_path / "kmnist/t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(
        ValueError,
        match=r"missing there: kmnist/t10k-labels-idx1-ubyte\.gz\. Run 'oneof paper data --get kmnist', or take it from https://codh",
    ):
        load("kmnist", tmp_path)  # fmt: skip
    with pytest.raises(ValueError, match=r"it needs cifar-10-python\.tar\.gz \(or the folder cifar-10-batches-py\)"):
        load("cifar10", tmp_path)
    monkeypatch.setenv("ONEOF_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=f"'lost' must lie in {tmp_path}"):
        load("lost")


def test_idx_sets_join_train_and_test(tmp_path):
    make_idx(tmp_path, "mnist")
    mnist = load("mnist", tmp_path)
    assert mnist.x.shape == (30, 28, 28)
    assert mnist.x.dtype == np.uint8
    assert mnist.test.tolist() == list(range(20, 30))
    assert mnist.labels.tolist() == [*(np.arange(20) % 10), *range(10)]
    assert mnist.candidates is None
    (tmp_path / "mnist/t10k-labels-idx1-ubyte.gz").write_bytes(
        (tmp_path / "mnist/train-labels-idx1-ubyte.gz").read_bytes()
    )
    with pytest.raises(ValueError, match="mnist must hold one label per image, and images of one size; got"):
        load("mnist", tmp_path)


@pytest.mark.parametrize("packed", [False, True])
def test_cifar100_from_folder_or_archive(tmp_path, packed):
    make_cifar100(tmp_path)
    folder = tmp_path / "cifar-100-python"
    if packed:
        with tarfile.open(tmp_path / "cifar-100-python.tar.gz", "w:gz") as tar:
            tar.add(folder, folder.name)
        folder.rename(tmp_path / "elsewhere")
    cifar = load("cifar100", tmp_path)
    assert cifar.x.shape == (400, 32, 32, 3)
    assert cifar.classes[99] == "name99"
    assert cifar.test.tolist() == list(range(300, 400))
    assert cifar.labels[301] == 1


def test_cifar_without_names_or_parts(tmp_path):
    make_cifar100(tmp_path)
    folder = tmp_path / "cifar-100-python"
    (folder / "meta").write_bytes(pickle.dumps({b"fine_label_names": [b"one"]}))
    with pytest.raises(ValueError, match="meta must name every label; it has 1 names for 100 labels"):
        load("cifar100", tmp_path)
    (folder / "meta").unlink()
    assert load("cifar100", tmp_path).classes[:3] == ["0", "1", "2"]
    (folder / "test").unlink()
    assert missing("cifar100", tmp_path) == ["cifar-100-python/test"]
    with tarfile.open(tmp_path / "cifar-100-python.tar.gz", "w:gz") as tar:
        tar.add(folder, folder.name)
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"cifar-100-python\.tar\.gz must hold test; it does not"):
        load("cifar100", tmp_path)


@pytest.mark.parametrize("name", ["mirflickr", "malagasy", "soccer", "yahoo"])
def test_real_sets_of_made_files(tmp_path, name):
    make_mat(tmp_path, name, 300)
    loaded = load(name, tmp_path)
    assert loaded.x.shape == (300, NAMED[name].paper.features)
    assert loaded.candidates[np.arange(300), loaded.labels].all()
    assert len(loaded.classes) == NAMED[name].paper.classes


def verdicts(name: str, folder: Path) -> dict[str, tuple[str, str]]:
    return {finding.what: (finding.verdict, finding.note) for finding in verify(name, folder)}


def test_verify_explains_only_the_known_differences(tmp_path, monkeypatch):
    make_mat(tmp_path, "malagasy", 5303)
    found = verdicts("malagasy", tmp_path)
    assert found["rows"][0] == "explained"
    assert "1060" in found["rows"][1]
    assert found["Git blob of real/Malagasy.mat"][0] == "differs"
    assert found["features"][0] == found["classes"][0] == found["non-finite rows"][0] == "equal"
    assert found["average"][0] == "differs"
    make_mat(tmp_path, "malagasy", 500, bad=True)
    found = verdicts("malagasy", tmp_path)
    assert [what for what, (verdict, _) in found.items() if verdict == "differs"] == [
        "Git blob of real/Malagasy.mat", "rows", "average", "non-finite rows", "true label outside its set"]  # fmt: skip
    path = tmp_path / "real/Malagasy.mat"
    command = ["git", "hash-object", str(path)]
    blob = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert git_blob(path) == blob
    monkeypatch.setitem(NAMED, "malagasy", replace(NAMED["malagasy"], blobs={"real/Malagasy.mat": blob}))
    assert verdicts("malagasy", tmp_path)["Git blob of real/Malagasy.mat"][0] == "equal"
    monkeypatch.setitem(NAMED, "malagasy", replace(NAMED["malagasy"], blobs={}))
    assert verdicts("malagasy", tmp_path)["checksum"] == ("explained", "no copy was at hand when this was written")


def make_tagged(folder: Path) -> None:
    (folder / "malagasy").mkdir(parents=True)
    (folder / "malagasy/test.txt").write_text("Ny|DT alika|N .|.\n\nAlika|N sy|CONJ 29|CD\n", encoding="utf-8")
    (folder / "malagasy/mlg-tagdict-4hr-lc4.txt").write_text("Ny|DT Ny|N\nsy|CONJ .|.", encoding="utf-8")


def test_tags_of_a_dictionary_are_candidates_and_of_an_unknown_word_all(tmp_path):
    make_tagged(tmp_path)
    data = load("malagasy-rebuilt", tmp_path)
    assert data.classes == [".", "CD", "CONJ", "DT", "N"]
    sets = [{data.classes[j] for j in np.flatnonzero(row)} for row in data.candidates]
    unknown = {".", "CONJ", "DT", "N"}  # a true tag that the dictionary lacks is in no set
    assert sets == [{"DT", "N"}, unknown, {"."}, unknown, {"CONJ"}, unknown]
    assert [data.classes[y] for y in data.labels] == ["DT", "N", ".", "N", "CONJ", "CD"]
    assert set(np.unique(data.x)) == {0, 1}
    assert len({row.tobytes() for row in data.x}) == 6  # the context tells two places of a word apart


def test_features_of_a_token_are_its_word_affixes_neighbours_and_shape():
    assert indicators("ny", "Alika", ".") == [
        "word alika", "prefix a", "prefix al", "prefix ali", "suffix a", "suffix ka", "suffix ika",
        "previous ny", "previous suffix ny", "next .", "next suffix .", "capital", "long",
    ]  # fmt: skip
    assert indicators("", "29", "")[-2:] == ["digit", "short"]
    assert "punctuation" in indicators("", "@-@", "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"Ny|DT alika\n", r"test\.txt must hold word\|TAG divided by spaces; line 1 has 'alika'"),
        (b"\xff|N", r"test\.txt must be text in UTF-8"),
        (b"\n\n", r"test\.txt must hold at least one token"),
    ],
)
def test_damaged_tagged_text_is_named(tmp_path, text, message):
    make_tagged(tmp_path)
    (tmp_path / "malagasy/test.txt").write_bytes(text)
    with pytest.raises(ValueError, match=message):
        load("malagasy-rebuilt", tmp_path)


def test_verify_finds_other_bytes_and_equal_ones(tmp_path, monkeypatch):
    make_idx(tmp_path, "mnist")
    found = verdicts("mnist", tmp_path)
    assert found["SHA-256 of mnist/train-images-idx3-ubyte.gz"][0] == "differs"
    assert found["train"][0] == "differs"
    assert found["average"][0] == "explained"
    assert "bounded by 5" in found["average"][1]
    from oneof_paper.data.verify import content_sha256

    sums = {file: content_sha256(tmp_path / file, file) for file in NAMED["mnist"].files}
    right = replace(NAMED["mnist"], checksums=sums, paper=Figures(20, 10, 784, 10, 8.71))
    monkeypatch.setitem(NAMED, "mnist", right)
    assert {verdict for verdict, _ in verdicts("mnist", tmp_path).values()} == {"equal", "explained"}


def test_command_lists_and_verifies(tmp_path):
    make_mat(tmp_path, "lost", 1122)
    code, output = run("--data-dir", str(tmp_path))
    assert code == 0
    assert all(name in output for name in NAMED)
    assert str(tmp_path / "real/lost.mat") in output
    assert "absent: https://www.cs.toronto.edu" in output
    assert output.count("1797") == 1  # of digits alone
    code, output = run("--data-dir", str(tmp_path), "--verify")
    assert code == 1  # made bytes do not have the checksum of the real ones
    assert "differs" in output
    assert "Not here: mnist, " in output
    code, output = run("digits", "--data-dir", str(tmp_path), "--verify", "--json")
    assert code == 0
    assert {row["verdict"] for row in json.loads(output)} == {"equal", "explained"}
    code, output = run("lost", "yahoo", "--json", "--data-dir", str(tmp_path))
    assert [bool(row["where"]) for row in json.loads(output)] == [True, False]
    assert json.loads(output)[1]["needs"] == "real/Yahoo! News.mat"


def test_command_errors(tmp_path):
    with pytest.raises(ValueError, match="must name the folder of data sets; neither does"):
        run("--verify")
    with pytest.raises(ValueError, match="must name the folder of data sets; neither does"):
        run("--get", "mnist")
    with pytest.raises(ValueError, match="Did you mean 'yahoo'"):
        run("yaho")
    with pytest.raises(
        ValueError, match=r"'lost' must be downloaded by hand; get it from https://palm.* and put real/lost\.mat into"
    ):
        run("--get", "lost", "--data-dir", str(tmp_path))
    with pytest.raises(ValueError, match="'digits' comes with the package; there is nothing to get"):
        run("--get", "digits", "--data-dir", str(tmp_path))


@pytest.mark.data
@needs_data
@pytest.mark.parametrize("name", HERE)
def test_real_files_verify(name):
    findings = verify(name, Path(str(REAL)))
    assert [finding for finding in findings if finding.verdict == "differs"] == []
    assert sum(finding.what.startswith("SHA-256") for finding in findings) == {"cifar10": 6}.get(
        name, len(NAMED[name].files)
    )


@pytest.mark.data
@needs_data
def test_real_sets_against_an_independent_count():
    stored = scipy.io.loadmat(Path(str(REAL)) / "real/lost.mat")
    lost = load("lost", REAL)
    assert lost.candidates.sum() == stored["partial_target"].sum()
    np.testing.assert_array_equal(np.bincount(lost.labels, minlength=16), np.asarray(stored["target"].sum(1)).ravel())
    np.testing.assert_array_equal(lost.x, stored["data"].astype(np.float32))
    np.testing.assert_array_equal(lost.candidates, stored["partial_target"].toarray().T)
