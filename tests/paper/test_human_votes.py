"""CIFAR-10N and CIFAR-10H: votes read from the published files, nothing of a pickle run."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from oneof_paper.data.catalogue import load
from oneof_paper.readers.cifar import read_cifar10h, read_cifar10n

REAL = os.environ.get("ONEOF_DATA")
LABELS = np.array([[3, 3, 5], [1, 1, 1], [0, 9, 2]])


def published(folder: Path, **changes: object) -> Path:
    """A file as the publisher's: a dict of arrays, written by torch."""
    columns: dict[str, object] = {f"random_label{j + 1}": LABELS[:, j] for j in range(3)}
    columns |= {"aggre_label": np.array([3, 1, 0]), "clean_label": np.array([3, 1, 2]), **changes}
    torch.save(columns, folder / "CIFAR-10_human.pt")
    return folder / "CIFAR-10_human.pt"


def test_votes_as_torch_wrote_them(tmp_path):
    people = read_cifar10n(published(tmp_path))
    assert people.labels.tolist() == LABELS.tolist()
    assert people.majority.tolist() == [3, 1, 0]
    assert people.truth.tolist() == [3, 1, 2]


def test_a_pickle_that_would_run_code_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    path = tmp_path / "evil.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"random_label1": Evil()}))
    with pytest.raises(
        ValueError, match=r"evil\.pt must be a pickle of plain values and arrays; .*Nothing of it was run"
    ):
        read_cifar10n(path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"random_label2": "no"}, "must hold 'random_label2', whole numbers"),
        ({"aggre_label": np.array([3, 1, 10])}, "'aggre_label' must hold labels from 0 to 9"),
        ({"clean_label": np.array([3, 1])}, "must hold as many labels in every column"),
    ],
)
def test_other_content(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        read_cifar10n(published(tmp_path, **changes))


def test_no_archive(tmp_path):
    (tmp_path / "x.pt").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="must be a file that torch wrote; it is not"):
        read_cifar10n(tmp_path / "x.pt")


def test_counts(tmp_path):
    np.save(tmp_path / "counts.npy", np.full((3, 10), 5.0))
    assert read_cifar10h(tmp_path / "counts.npy").sum() == 150
    np.save(tmp_path / "shares.npy", np.full((3, 10), 0.1))
    with pytest.raises(ValueError, match=r"must hold counts of votes \[n, 10\]; got float64 \[3, 10\]"):
        read_cifar10h(tmp_path / "shares.npy")
    (tmp_path / "bad.npy").write_bytes(io.BytesIO(b"x").read())
    with pytest.raises(ValueError, match="must be a NumPy file of numbers"):
        read_cifar10h(tmp_path / "bad.npy")


@pytest.mark.data
@pytest.mark.skipif(not REAL, reason="ONEOF_DATA does not say where the data sets are")
def test_the_published_files():
    people, many = load("cifar10n"), load("cifar10h")
    assert people.votes[:50000].sum(1).tolist() == [3] * 50000
    assert people.candidates[:50000].sum(1).mean() == pytest.approx(1.457, abs=5e-4)
    assert (people.votes[np.arange(50000), people.labels[:50000]] > 0).mean() == pytest.approx(0.9787, abs=5e-5)
    assert not people.votes[people.test].any()
    assert people.candidates[people.test].all()
    assert many.votes[many.test].sum(1).min() >= 47
