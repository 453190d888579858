"""Votes in place of y, in the estimator and in `oneof.votes.resolve`."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from oneof import PartialLabelClassifier, votes
from oneof.votes import resolve
from oneof_paper.synthetic import mixture

pytestmark = pytest.mark.usefixtures("small_forests")
DATA = mixture(n=120, d=3, c=3, separation=4.0, seed=0)
NAMES = np.array(["ant", "bee", "cow"])
ACCURACY = {"ann": 0.9, "bob": 0.7, "cat": 0.7, "dan": 0.34}


def frame_of_votes(first_id=0):
    generator = np.random.default_rng(0)
    rows = []
    for item, truth in enumerate(DATA.labels):
        for annotator, accuracy in ACCURACY.items():
            is_right = generator.random() < accuracy
            label = truth if is_right else (truth + generator.integers(1, 3)) % 3
            rows.append((first_id + item, annotator, NAMES[label]))
    return pd.DataFrame(rows, columns=["item", "annotator", "label"])


VOTES = frame_of_votes()


def small(**changes):
    return PartialLabelClassifier(**({"epochs": 10, "n_estimators": 2, "random_state": 0} | changes))


@pytest.fixture(scope="module")
def fitted(small_forests):
    return small().fit(DATA.x, votes=VOTES)


def test_votes_teach_labels_and_tell_careful_annotators(fitted):
    truth = NAMES[DATA.labels]
    counts = pd.crosstab(VOTES["item"], VOTES["label"]).to_numpy()
    majority_right = (NAMES[counts.argmax(1)] == truth).mean()
    assert (fitted.transduction_ == truth).mean() >= majority_right
    assert (fitted.predict(DATA.x) == truth).mean() > 0.85
    accuracy = {row["annotator"]: row["accuracy"] for row in fitted.annotators_}
    assert max(accuracy, key=accuracy.get) == "ann"
    assert min(accuracy, key=accuracy.get) == "dan"


def test_rows_are_found_by_column_index_or_ids(fitted):
    shifted = frame_of_votes(first_id=500)
    ids = np.arange(500, 620)
    frame = pd.DataFrame(DATA.x, columns=list("abc"))
    with_column = frame.assign(item=ids)
    ways = [
        small().fit(DATA.x, votes=shifted, items=ids),
        small().fit(frame.set_index(ids), votes=shifted),
        small().fit(with_column, votes=shifted),
        small().fit(pa.Table.from_pandas(with_column.rename(columns={"item": "key"})), votes=shifted, items="key"),
    ]
    for other in ways:
        assert other.transduction_.tolist() == fitted.transduction_.tolist()
        assert other.n_features_in_ == 3


def test_a_saved_classifier_remembers_its_annotators(fitted, tmp_path):
    fitted.save(tmp_path / "run")
    again = PartialLabelClassifier.from_run(tmp_path / "run")
    assert again.annotators_ == fitted.annotators_
    assert again.transduction_.tolist() == fitted.transduction_.tolist()


def test_classes_give_labels_their_type():
    numbered = VOTES.assign(label=VOTES["label"].map({"ant": 0, "bee": 1, "cow": 2}))
    fitted = small(classes=[0, 1, 2, 3]).fit(DATA.x, votes=numbered)
    assert fitted.classes_.tolist() == [0, 1, 2, 3]
    assert (fitted.transduction_ == DATA.labels).mean() > 0.85


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"y": DATA.labels, "votes": VOTES}, "y must be left out"),
        ({"y": DATA.labels, "items": np.arange(120)}, "items must be left out"),
        ({"votes": frame_of_votes(first_id=500)}, "'500'.*'0'.*items="),
        ({"votes": VOTES, "items": np.zeros(120)}, "rows 0 and 1"),
        ({"votes": VOTES, "items": np.arange(3)}, "3 for 120"),
        ({"votes": VOTES, "items": "id"}, "'id'"),
    ],
)
def test_what_does_not_belong_together_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        small().fit(DATA.x, **arguments)


def test_classes_without_a_label_of_the_votes_are_refused():
    with pytest.raises(ValueError, match="'cow'"):
        small(classes=["ant", "bee"]).fit(DATA.x, votes=VOTES)


def test_resolve_weighs_annotators_without_features():
    found = votes.resolve(VOTES)
    truth = NAMES[DATA.labels]
    counts = pd.crosstab(VOTES["item"], VOTES["label"]).to_numpy()
    assert found.items == list(range(120))
    assert (found.labels == truth).mean() >= (NAMES[counts.argmax(1)] == truth).mean()
    assert found.annotators[0]["votes"] == 120
    np.testing.assert_allclose(found.distribution.sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(found.distribution.max(1), found.probabilities, rtol=1e-5)


def test_resolve_with_features_is_the_classifiers_answer():
    frame = pd.DataFrame(DATA.x, columns=list("abc")).assign(item=np.arange(120))
    found = votes.resolve(VOTES.rename(columns={"label": "choice"}), frame, label="choice")
    direct = PartialLabelClassifier(random_state=0).fit(frame, votes=VOTES)
    assert found.labels.tolist() == direct.transduction_.tolist()
    assert found.items == list(range(120))


def test_resolve_needs_x_for_items():
    with pytest.raises(ValueError, match="without X"):
        votes.resolve(VOTES, items=np.arange(120))


def wide_votes():
    """A column per annotator; rows are known by the index alone."""
    wide = VOTES.pivot_table(index="item", columns="annotator", values="label", aggfunc="first")
    return wide.rename_axis(None).rename_axis(None, axis=1)


@pytest.mark.usefixtures("caplog")  # how the votes were read is logged
def test_the_index_of_a_wide_frame_has_the_ids_of_the_items():
    wide = wide_votes()
    named = [f"tweet {i}" for i in wide.index]
    shuffled = wide.set_axis(named).sample(frac=1, random_state=0)
    resolved = resolve(shuffled)
    assert resolved.items == shuffled.index.tolist()
    by_number = resolve(wide.reset_index(drop=True))
    assert dict(zip(resolved.items, resolved.labels, strict=True)) == dict(zip(named, by_number.labels, strict=True))


@pytest.mark.usefixtures("caplog")  # how the votes were read is logged
def test_rows_without_ids_are_matched_with_rows_of_votes_by_position():
    rng = np.random.default_rng(0)
    wide = wide_votes()
    x = rng.normal(size=(len(wide), 2))
    gaps = wide.set_axis(np.arange(len(wide)) + 5)
    expected = small().fit(x, votes=wide.reset_index(drop=True)).transduction_
    assert (small().fit(x, votes=gaps).transduction_ == expected).all()


@pytest.mark.usefixtures("caplog")  # how the votes were read is logged
def test_lists_of_objects_and_arrays_are_votes_too():
    expected = resolve(VOTES).labels.tolist()
    assert resolve(VOTES.to_dict("records")).labels.tolist() == expected
    assert resolve(VOTES.to_dict("list")).labels.tolist() == expected
    array = resolve(wide_votes().to_numpy())
    assert array.labels.tolist() == resolve(wide_votes()).labels.tolist()
