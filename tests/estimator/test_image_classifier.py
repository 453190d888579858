"""The estimator for pictures: arrays and files, and what it learned is a run like any other."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.base import clone
from sklearn.datasets import load_digits

from oneof import PartialLabelImageClassifier
from oneof.runs.folder import Run

PICTURES, LABELS = load_digits(n_class=4, return_X_y=True)
X = (15 * PICTURES[:240]).astype(np.uint8).reshape(-1, 8, 8)
SETS = [[y, (y + i) % 4] for i, y in enumerate(LABELS[:240].tolist())]


@pytest.fixture(scope="module")
def clf() -> PartialLabelImageClassifier:
    return PartialLabelImageClassifier(epochs=8, random_state=0).fit(X[:200], SETS[:200])


def test_labels_and_new_pictures_are_mostly_right(clf):
    assert (clf.transduction_ == LABELS[:200]).mean() > 0.9
    assert (clf.predict(X[200:]) == LABELS[200:240]).mean() > 0.85
    np.testing.assert_allclose(clf.predict_proba(X[200:]).sum(1), 1)
    assert clone(clf).get_params() == clf.get_params()


def test_files_are_seen_as_their_levels_and_a_broken_one_is_told(clf, tmp_path: Path, caplog):
    files = [tmp_path / f"{row}.png" for row in range(5)]
    for file, levels in zip(files, X, strict=False):
        Image.fromarray(levels).save(file)
    np.testing.assert_allclose(clf.predict_proba(files), clf.predict_proba(X[:5]), atol=1e-6)
    files[2].write_text("no picture")
    clf.predict(files)
    assert "1 of 5 pictures cannot be read" in caplog.text


def test_it_is_saved_as_a_run_and_read_again(clf, tmp_path: Path):
    clf.save(tmp_path / "run")
    again = PartialLabelImageClassifier.from_run(tmp_path / "run")
    np.testing.assert_allclose(again.predict_proba(X[200:]), clf.predict_proba(X[200:]), atol=1e-6)
    assert Run.open(tmp_path / "run").purified.num_rows == 200
    assert again.get_params() == clf.get_params()
    np.testing.assert_array_equal(again.transduction_, clf.transduction_)


@pytest.mark.parametrize(
    "wrong", [X.astype(float), X[:, :6], np.zeros((4, 600, 600), np.uint8), np.zeros((4, 8, 8, 2), np.uint8)]
)
def test_an_array_that_is_no_pictures_is_told(wrong):
    with pytest.raises(ValueError, match="X must be levels 0 to 255"):
        PartialLabelImageClassifier().fit(wrong, SETS[: len(wrong)])


def test_pictures_of_another_shape_are_refused(clf):
    with pytest.raises(ValueError, match=r"X must hold pictures as in training, \(1, 8, 8\); got \(3, 8, 8\)"):
        clf.predict(np.zeros((2, 8, 8, 3), np.uint8))


def test_an_unknown_network_is_told_before_training():
    with pytest.raises(ValueError, match="lenett"):
        PartialLabelImageClassifier(architecture="lenett").fit(X, SETS)
