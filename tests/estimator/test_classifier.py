"""PartialLabelClassifier: scikit-learn's own checks without an exception, and what is ours."""

from __future__ import annotations

import json
import pickle
import re

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from oneof import PartialLabelClassifier, read
from oneof.candidates.generate import Flip, generate
from oneof.methods import CC, LWS
from oneof.metrics import approximated_accuracy
from oneof.purify import PopRatio
from oneof.runs.decisions import Decision, Log
from oneof_paper.synthetic import mixture

pytestmark = pytest.mark.usefixtures("small_forests")
DATA = mixture(n=200, d=3, c=4, separation=5.0, seed=0)
MASK = generate(DATA.labels, 4, Flip(0.4), seed=1)
NAMES = np.array(["ant", "bee", "cow", "dog"])
LISTS = [NAMES[row].tolist() for row in MASK]


@parametrize_with_checks([PartialLabelClassifier(epochs=8, n_estimators=3, lr=0.1)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def quick(**changes):
    return PartialLabelClassifier(
        **({"epochs": 25, "n_estimators": 3, "lr": 0.1, "weight_decay": 1e-3, "random_state": 0} | changes)
    )


@pytest.fixture(scope="module")
def clf(small_forests):
    """Learned from lists; read, never fitted again."""
    return quick().fit(DATA.x, LISTS)


def test_every_form_of_y_gives_the_same_classifier():
    fits = [
        quick(epochs=5).fit(DATA.x, MASK),
        quick(epochs=5, classes=NAMES).fit(DATA.x, MASK.astype(int)),
        quick(epochs=5).fit(DATA.x, LISTS),
        quick(epochs=5).fit(DATA.x, pd.Series(LISTS)),
        quick(epochs=5).fit(pd.DataFrame(DATA.x, columns=list("abc")), pd.DataFrame(MASK, columns=NAMES)),
    ]
    for fitted in fits[1:]:
        assert fitted.classes_.tolist() == NAMES.tolist()
        x = pd.DataFrame(DATA.x, columns=list("abc")) if hasattr(fitted, "feature_names_in_") else DATA.x
        np.testing.assert_array_equal(fitted.predict_proba(x), fits[0].predict_proba(DATA.x))


def test_learns_and_resolves_the_training_rows(clf):
    truth = NAMES[DATA.labels]
    assert (clf.transduction_ == truth).mean() > 0.93
    assert clf.score(DATA.x, truth) > 0.93
    assert clf.candidates_.sum() < MASK.sum()
    assert not (clf.candidates_ & ~MASK).any()
    assert clf.candidates_.any(1).all()
    np.testing.assert_allclose(clf.label_distributions_.sum(1), 1)
    assert (clf.label_distributions_[~MASK] == 0).all()
    chosen = np.where(clf.candidates_, clf.label_distributions_, -1).argmax(1)
    assert clf.transduction_.tolist() == NAMES[chosen].tolist()
    share = clf.label_distributions_[np.arange(200), chosen]
    assert (clf.label_probability_ <= share + 1e-6).all()  # the set may miss the true label
    assert (clf.label_probability_ > share - 0.01).mean() > 0.9
    assert clf.history_["set_size"].shape == (25, 3)  # three networks, or three linear ones
    assert clf.n_iter_ == 25


def test_what_is_said_is_not_searched():
    clf = quick(hidden_layer_sizes=(16,), scaling="ranks").fit(DATA.x, MASK)
    assert clf.result_.metadata["chosen"] == [{"hidden": [16], "scaling": "ranks", "lr": 0.1, "weight_decay": 1e-3}]
    plain = quick(method="proden", purify=None, prepurify=False, hidden_layer_sizes=(), scaling="feature").fit(
        DATA.x, MASK
    )
    assert {row["stage"] for row in plain.result_.tried} == {"learners"}
    np.testing.assert_array_equal(plain.candidates_, MASK)


@pytest.mark.parametrize("asked", [{"learners": ("trees",)}, {"learners": "kernel"}, {"quick": True}])
def test_learners_that_are_no_networks(asked, tmp_path):
    clf = PartialLabelClassifier(random_state=0, **asked).fit(DATA.x, LISTS)
    assert (clf.transduction_ == NAMES[DATA.labels]).mean() > 0.93
    assert set(clf.result_.model.learners) <= {"trees", "kernel"}
    assert clf.history_ == {}
    clf.save(tmp_path / "run")
    again = PartialLabelClassifier.from_run(tmp_path / "run")
    np.testing.assert_array_equal(again.predict_proba(DATA.x), clf.predict_proba(DATA.x))
    np.testing.assert_array_equal(again.transduction_, clf.transduction_)


@pytest.mark.parametrize(
    "names",
    [np.array([3, 1, 7, 20]), np.array([3, 1, 7, 20], dtype=np.int16), np.array([0.0, 1.0, 2.0, 9.0]), NAMES],
    ids=["int64", "int16", "float", "text"],
)
def test_labels_keep_their_type_in_a_folder(names, tmp_path):
    clf = quick(quick=True).fit(DATA.x, names[DATA.labels])
    clf.save(tmp_path / "run")
    again = PartialLabelClassifier.from_run(tmp_path / "run")
    for name in ("classes_", "transduction_"):
        assert getattr(again, name).dtype == getattr(clf, name).dtype
        np.testing.assert_array_equal(getattr(again, name), getattr(clf, name))
    assert again.predict(DATA.x).dtype.kind == names.dtype.kind
    assert again.score(DATA.x, names[DATA.labels]) > 0.9


def test_truth_values_as_labels_keep_their_type_in_a_folder(tmp_path):
    high = DATA.labels > 1
    quick(quick=True).fit(DATA.x, high).save(tmp_path / "run")
    again = PartialLabelClassifier.from_run(tmp_path / "run")
    assert again.transduction_.dtype == bool
    assert (again.transduction_ == high).mean() > 0.9


PARAMS = [
    {"quick": True, "random_state": 3},
    {"quick": True, "random_state": None, "classes": NAMES.tolist(), "criterion": "covering"},
    {
        "learners": ("kernel", "trees"),
        "hidden_layer_sizes": [16, 8],
        "scaling": "ranks",
        "lr": 0.1,
        "random_state": np.int64(3),
    },
    {
        "method": LWS(beta=1.0),
        "purify": PopRatio(),
        "hidden_layer_sizes": (4,),
        "n_estimators": 1,
        "epochs": 2,
        "random_state": 0,
    },
    {
        "method": "cc",
        "purify": None,
        "hidden_layer_sizes": (),
        "n_estimators": 1,
        "epochs": 2,
        "learners": "networks",
        "random_state": 0,
    },
]


@pytest.mark.parametrize("params", PARAMS, ids=lambda params: " ".join(params))
def test_a_reopened_classifier_has_the_parameters_it_was_fitted_with(params, tmp_path):
    clf = PartialLabelClassifier(**params).fit(DATA.x, LISTS)
    clf.save(tmp_path / "run")
    again = PartialLabelClassifier.from_run(tmp_path / "run")
    assert again.get_params() == clf.get_params()
    assert type(again.hidden_layer_sizes) is type(clf.hidden_layer_sizes)
    assert clone(again).get_params() == clf.get_params()


def test_parameters_that_were_stored_under_earlier_names_are_read(tmp_path):
    quick(quick=True).fit(DATA.x, LISTS).save(tmp_path / "run")
    file = tmp_path / "run" / "run.json"
    metadata = json.loads(file.read_text())
    earlier = {"hidden": {"tuple": [16]}, "n_trials": 7, "processes": 1, "resolve_first": False}
    metadata["estimator"]["params"] = earlier
    file.write_text(json.dumps(metadata))
    again = PartialLabelClassifier.from_run(tmp_path / "run")
    assert (again.hidden_layer_sizes, again.n_estimators, again.n_jobs, again.prepurify) == ((16,), 7, 1, False)


def test_of_a_random_generator_the_seed_is_kept(tmp_path):
    clf = quick(quick=True, random_state=np.random.RandomState(5)).fit(DATA.x, LISTS)
    clf.save(tmp_path / "run")
    assert PartialLabelClassifier.from_run(tmp_path / "run").random_state == clf.result_.metadata["seed"]


def test_folders_without_parameters_still_open_and_damaged_ones_are_refused(tmp_path):
    clf = quick(quick=True, random_state=4).fit(DATA.x, DATA.labels)
    clf.save(tmp_path / "run")
    file = tmp_path / "run" / "run.json"
    facts = json.loads(file.read_text())
    stored = facts.pop("estimator")
    file.write_text(json.dumps(facts))
    older = PartialLabelClassifier.from_run(tmp_path / "run")
    assert older.random_state == 4
    assert older.classes_.tolist() == ["0", "1", "2", "3"]
    others = {"labels": {"dtype": "<i8", "values": [4, 5, 6, 7]}}
    for damage in (5, {}, stored | others, stored | {"params": {"method": {"kind": "Other"}}}):
        file.write_text(json.dumps(facts | {"estimator": damage}))
        with pytest.raises(ValueError, match=r"run\.json must be the file that save wrote.*Fit it again"):
            PartialLabelClassifier.from_run(tmp_path / "run")


def test_score_of_sets_is_the_approximated_accuracy(clf):
    logs = torch.as_tensor(clf.predict_proba(DATA.x)).log()
    assert clf.score(DATA.x, MASK) == pytest.approx(float(approximated_accuracy(logs, torch.as_tensor(MASK))))


def test_works_in_pipeline_grid_search_and_cross_validation():
    small = quick(epochs=10, hidden_layer_sizes=(), scaling="feature")
    pipeline = make_pipeline(StandardScaler(), small)
    assert cross_val_score(pipeline, DATA.x, MASK, cv=3).mean() > 0.8
    search = GridSearchCV(small, {"method": ["proden", "cc"], "purify": [None, "pop"]}, cv=2).fit(DATA.x, MASK)
    assert search.best_score_ > 0.8


SETS = [set(labels) for labels in LISTS]
IN_A_COLUMN = np.array(SETS, dtype=object)
COUNTS = MASK + np.eye(4, dtype=int)[DATA.labels]
SPLIT_BY_A_NUMBER = {
    "sets": SETS,
    "frozen sets": [frozenset(labels) for labels in LISTS],
    "a Series of sets": pd.Series(SETS),
    "an array of sets": IN_A_COLUMN,
    "a mask": MASK,
    "a 0/1 mask": MASK.astype(int),
    "a frame": pd.DataFrame(MASK, columns=NAMES),
    "counts": COUNTS,
    "probabilities": COUNTS / COUNTS.sum(1, keepdims=True),
}
SPLIT_BY_A_SPLITTER = {
    "lists": LISTS,
    "tuples": [tuple(labels) for labels in LISTS],
    "a Series of lists": pd.Series(LISTS),
}


@pytest.mark.parametrize("form", SPLIT_BY_A_NUMBER)
def test_forms_of_y_that_cross_validation_takes_as_they_are(form):
    scores = cross_val_score(quick(quick=True), DATA.x, SPLIT_BY_A_NUMBER[form], cv=2, error_score="raise")
    assert scores.mean() > 0.8


@pytest.mark.parametrize("form", SPLIT_BY_A_SPLITTER)
def test_forms_of_y_that_cross_validation_takes_with_a_splitter(form):
    """scikit-learn itself refuses ragged lists when it has to choose the splitter, and its message names the binary array."""
    y = SPLIT_BY_A_SPLITTER[form]
    with pytest.raises(ValueError, match="use a binary array"):
        cross_val_score(quick(quick=True), DATA.x, y, cv=2, error_score="raise")
    assert cross_val_score(quick(quick=True), DATA.x, y, cv=KFold(2), error_score="raise").mean() > 0.8


def test_grid_search_over_sets():
    search = GridSearchCV(quick(), {"quick": [True], "random_state": [0, 1]}, cv=2, error_score="raise")
    assert search.fit(DATA.x, SETS).best_score_ > 0.8


def test_clone_and_pickle():
    clf = quick(epochs=5, method=CC(), purify=PopRatio()).fit(DATA.x, MASK)
    assert clone(clf).get_params() == clf.get_params()
    for trials in (1, 3):
        fitted = quick(epochs=5, n_estimators=trials).fit(DATA.x, MASK)
        again = pickle.loads(pickle.dumps(fitted))
        np.testing.assert_array_equal(again.predict_proba(DATA.x), fitted.predict_proba(DATA.x))


def test_a_class_that_is_absent_can_be_named():
    clf = quick(epochs=5, classes=["ant", "bee", "cow", "dog", "eel"]).fit(DATA.x, LISTS)
    assert clf.predict_proba(DATA.x).shape == (200, 5)


@pytest.mark.parametrize(
    ("changes", "y", "message"),
    [
        ({"method": "prodn"}, MASK, r"method must be one of proden, .*; got 'prodn'\. Did you mean 'proden'\?"),
        (
            {"purify": "popp"},
            MASK,
            r"purify must be one of pop, pop_printed, pop_ratio, pop_released; got 'popp'\. Did you mean 'pop'\?",
        ),
        ({"method": "pico"}, MASK, r"method must work on tables; 'pico' compares views of images"),
        ({"hidden_layer_sizes": (0,)}, MASK, r"hidden_layer_sizes must be widths of layers.*\(128,\).*got \(0,\)"),
        ({"scaling": "zscore"}, MASK, r"scaling must be one of feature, global, root, .*; got 'zscore'"),
        ({"lr": 1e8, "scaling": "feature"}, MASK, r"training diverged in 6 of 6 networks\. Lower lr"),
        (
            {"quick": True, "learners": ("trees",)},
            MASK,
            r"quick chooses the learners, .*; got both. Leave one of them out",
        ),
        ({"n_estimators": 0}, MASK, r"n_estimators must be at least 1; got 0"),
        ({"criterion": "oracle"}, MASK, r"criterion must be one of both, covering, approximated; got 'oracle'"),
        ({}, MASK[:50], r"y must have one entry per row of X; got 50 for 200 rows"),
        ({}, np.zeros_like(MASK), r"200 of 200 rows are empty, first row 0\. Leave them out; if nothing is known"),
        ({}, [["ant"]] * 200, r"at least two classes; got 1 class \(ant\)\. Give classes= if some are in no set\."),
        ({"classes": ["ant"]}, [["ant"]] * 200, r"got 1 class \(ant\)\. Add rows with another label\."),
        ({"epochs": 0}, MASK, r"epochs must be a whole number of at least 1, or None for the default; got 0\."),
        ({"batch_size": 0}, MASK, r"batch_size must be a whole number of at least 1, or None .*; got 0\."),
        ({"epochs": 2.5}, MASK, r"epochs must be a whole number .*; got 2\.5\."),
    ],
)
def test_messages(changes, y, message):
    with pytest.raises(ValueError, match=message):
        quick(**changes).fit(DATA.x, y)


@pytest.mark.parametrize("changes", [{"method": CC}, {"method": 3}, {"purify": PopRatio}])
def test_instances_not_classes(changes):
    with pytest.raises(TypeError, match=r"must be a name or an instance, such as .*\(\); got"):
        quick(**changes).fit(DATA.x, MASK)


def test_weights_have_no_meaning_for_sets():
    with pytest.raises(ValueError, match="sample_weight must be None when y holds sets"):
        quick(epochs=1).fit(DATA.x, MASK).score(DATA.x, MASK, sample_weight=np.ones(200))


def test_the_remedy_for_rows_of_which_nothing_is_known_works():
    sets = [[], *LISTS[1:]]
    with pytest.raises(ValueError, match=r"1 of 200 rows are empty, first row 0\. Leave them out; .*oneof\.read"):
        quick().fit(DATA.x, sets)
    given = read(sets, empty="unlabelled")
    assert quick(epochs=1, classes=given.classes).fit(DATA.x, given.mask).classes_.tolist() == NAMES.tolist()


# ---------------------------------------------------------------------------------------------- scores of unknown labels


def test_a_rare_label_does_not_spoil_cross_validation():
    lists = [*LISTS[:-1], ["yak"]]
    scores = cross_val_score(quick(epochs=10), DATA.x, lists, cv=KFold(3))
    assert np.isfinite(scores).all()
    assert scores.mean() > 0.8


def test_unknown_candidates_are_ignored_and_rows_without_others_are_not_covered(clf):
    whole = clf.score(DATA.x, LISTS)
    assert clf.score(DATA.x, [[*row, "yak"] for row in LISTS]) == whole
    half = clf.score(DATA.x, [*LISTS[:100], *[["yak"]] * 100])
    assert half == pytest.approx(clf.score(DATA.x[:100], LISTS[:100]) / 2)
    assert clf.score(DATA.x, [["yak"]] * 200) == 0
    frame = pd.DataFrame(MASK, columns=NAMES).assign(yak=1)
    assert clf.score(DATA.x, frame) == clf.score(DATA.x, MASK) == whole
    with pytest.raises(TypeError, match=r"labels must be of the kind of the classes ant, bee, cow, dog; got 1, 2\."):
        clf.score(DATA.x, [[1, 2]] * 200)
    with pytest.raises(ValueError, match=r"y must have one entry per row of X; got 50 for 200 rows"):
        clf.score(DATA.x, LISTS[:50])
    with pytest.raises(ValueError, match=r"1 of 200 rows are empty, first row 0"):
        clf.score(DATA.x, [[], *LISTS[1:]])


# ------------------------------------------------------------------------------------------------ sets written as text


@pytest.mark.parametrize(
    ("write", "message"),
    [
        ("|".join, r"hold '\|', such as '.*\|.*', and count as classes of their own\. Split them, e\.g\. y\.str\.split\('\|'\)\."),
        (";".join, r"hold ';', such as .*y\.str\.split\(';'\)\."),
        (str, r"200 of 200 look like a printed list, such as \"\['.*y\.map\(ast\.literal_eval\)\."),
    ],
)  # fmt: skip
def test_sets_written_as_text_are_warned_of(write, message, caplog):
    quick(epochs=1).fit(DATA.x, [write(row) for row in LISTS])
    assert [line.count("\n") for line in caplog.messages] == [0]
    assert re.search(message, caplog.messages[0])
    assert caplog.records[0].pathname == __file__  # the line that calls fit


def test_ordinary_labels_are_not_warned_of(caplog):
    names = np.array(["ant, red", "bee (wild)", "cow|ox", "[other]"])
    quick(epochs=1).fit(DATA.x, names[DATA.labels])
    assert caplog.messages == []


def test_counts_of_votes_are_taken_as_y():
    """Three votes against one: counts tell what sets cannot."""
    data = mixture(n=300, d=3, c=4, separation=2.0, seed=0)
    votes = np.random.default_rng(1).multinomial(4, 0.5 * np.eye(4)[data.labels] + 0.125)
    small = {"n_estimators": 3, "epochs": 15, "random_state": 0}
    by_sets = PartialLabelClassifier(**small).fit(data.x, votes > 0)
    by_counts = PartialLabelClassifier(**small).fit(data.x, votes)
    by_prior = PartialLabelClassifier(**small).fit(data.x, votes > 0, prior=votes)
    right = [(one.transduction_ == data.labels).mean() for one in (by_sets, by_counts)]
    assert right[1] > right[0] + 0.01
    np.testing.assert_array_equal(by_counts.label_distributions_, by_prior.label_distributions_)
    frame = pd.DataFrame(votes, columns=list("abcd"))
    named = PartialLabelClassifier(**small).fit(data.x, frame)
    assert named.transduction_.tolist() == [list("abcd")[j] for j in by_counts.transduction_]
    with pytest.raises(ValueError, match=r"prior must hold numbers .*\[300, 4\], a column per class; got \[300, 3\]"):
        PartialLabelClassifier().fit(data.x, votes > 0, prior=votes[:, :3])


def counts_and_probabilities(labels, c):
    """Four votes for the truth against one, and a probability of 0.8 for the truth, in every row."""
    rows = np.arange(len(labels))
    counts = np.zeros((len(labels), c), dtype=int)
    counts[rows, labels] = 4
    counts[rows, (labels + 1 + rows % (c - 1)) % c] = 1
    probabilities = np.full((len(labels), c), 0.2 / (c - 1))
    probabilities[rows, labels] = 0.8
    return {"counts": counts, "probabilities": probabilities}


@pytest.mark.parametrize("form", ["counts", "probabilities"])
@pytest.mark.parametrize("c", [2, 4])
@pytest.mark.parametrize("features", ["constant", "noise"])
def test_features_that_say_nothing_leave_the_prior_as_it_is(form, c, features):
    rng = np.random.default_rng(0)
    labels = rng.integers(c, size=200)
    x = np.zeros((200, 4)) if features == "constant" else rng.normal(size=(200, 4))
    fitted = quick(epochs=5).fit(x, counts_and_probabilities(labels, c)[form])
    np.testing.assert_array_equal(fitted.transduction_, labels)
    np.testing.assert_allclose(fitted.label_probability_, 0.8, atol=0.02)


def test_constant_features_do_not_overturn_the_rare_class():
    labels = (np.arange(200) % 10 == 0).astype(int)
    fitted = quick(epochs=5).fit(np.zeros((200, 2)), counts_and_probabilities(labels, 2)["probabilities"])
    np.testing.assert_array_equal(fitted.transduction_, labels)


@pytest.mark.parametrize("learners", [None, ("networks",), ("kernel", "trees")])
def test_noise_is_not_learned_from_by_any_kind_of_learner(learners):
    """Uneven probabilities: a row's own must not come back in what is predicted for it."""
    rng = np.random.default_rng(1)
    probabilities = rng.dirichlet(np.ones(3), size=200)
    fitted = quick(epochs=5, learners=learners).fit(rng.normal(size=(200, 3)), probabilities)
    np.testing.assert_array_equal(fitted.transduction_, probabilities.argmax(1))
    np.testing.assert_allclose(fitted.label_distributions_, probabilities, atol=0.01)


def test_features_that_help_correct_counts():
    data = mixture(n=300, d=3, c=3, separation=4.0, seed=0)
    votes = np.random.default_rng(1).multinomial(3, 0.5 * np.eye(3)[data.labels] + 1 / 6)
    fitted = quick(epochs=10).fit(data.x, votes)
    right = (fitted.transduction_ == data.labels).mean()
    assert right > (votes.argmax(1) == data.labels).mean() + 0.05
    assert fitted.label_probability_.mean() == pytest.approx(right, abs=0.1)


def test_features_that_help_correct_counts_of_unequal_classes():
    rng = np.random.default_rng(0)
    labels = rng.choice(3, size=300, p=[0.7, 0.2, 0.1])
    x = rng.normal(size=(300, 3)) + 4 * np.eye(3)[labels]
    votes = np.array([rng.multinomial(3, 0.5 * np.eye(3)[label] + 1 / 6) for label in labels])
    fitted = quick(epochs=10).fit(x, votes)
    assert (fitted.transduction_ == labels).mean() > (votes.argmax(1) == labels).mean() + 0.05


def test_query_names_the_rows_to_ask_about(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 2))
    sets = [{"a", "b"} if abs(one) < 0.6 else {"ab"[int(one > 0)]} for one in x[:, 0]]
    gold = [None] * 80
    made = PartialLabelClassifier(
        n_estimators=2, epochs=3, scaling="feature", lr=0.1, weight_decay=1e-3, random_state=0
    )
    first = made.fit(x, sets).query(5)
    assert len(set(first)) == 5
    table = made.result_.purified
    gain, ask = table["gain"].to_numpy(), table["ask"].to_numpy()
    assert first.tolist() == np.lexsort((-gain, ~ask))[:5].tolist()
    assert all(len(sets[row]) == 2 for row in first[: ask.sum()])
    made.save(tmp_path / "run")
    Log(tmp_path / "run").write(Decision(int(first[0]), "label", ("a",), "ann"))
    assert PartialLabelClassifier.from_run(tmp_path / "run").query(4).tolist() == first[1:].tolist()
    gold[first[0]] = "a"
    assert first[0] not in made.fit(x, sets, gold=gold).query(80)
    with pytest.raises(ValueError, match="n must be a whole number of at least 1"):
        made.query(0)
