"""Classifiers of the user's own as learners: fitted with weights or without, saved by skops or refused."""

from __future__ import annotations

import inspect
import io
import json
import zipfile

import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import LinearSVC
from stages import context_for, make_dataset

from oneof import PartialLabelClassifier
from oneof.candidates.generate import Flip, generate
from oneof.learners.base import Targets
from oneof.learners.sklearn_classifier import SklearnLearner, draw_rows, weight_parameter
from oneof.runs.stored_classifiers import load_classifiers
from oneof_paper.synthetic import mixture

pytestmark = pytest.mark.usefixtures("small_forests")
DATA = mixture(n=200, d=3, c=4, separation=5.0, seed=0)
MASK = generate(DATA.labels, 4, Flip(0.4), seed=1)
NAMES = np.array(["ant", "bee", "cow", "dog"])
LISTS = [NAMES[row].tolist() for row in MASK]


def has_skops() -> bool:
    try:
        import skops.io  # noqa: F401
    except ImportError:
        return False
    return True


needs_skops = pytest.mark.skipif(not has_skops(), reason="the extra 'skops' is not installed")


class BoosterStub(ClassifierMixin, BaseEstimator):
    """Has the signature of XGBoost's classifier, and refuses labels that are not 0, 1, ... without gaps, as it does."""

    def __init__(self, n_estimators=10, **kwargs):
        self.n_estimators = n_estimators
        self.kwargs = kwargs

    def get_params(self, deep=True):
        return {"n_estimators": self.n_estimators}

    def fit(self, X, y, *, sample_weight=None, base_margin=None, eval_set=None, verbose=True, **kwargs):
        found = np.unique(y)
        if found.tolist() != list(range(len(found))):
            raise ValueError(f"Invalid classes inferred from unique values of `y`: got {found}")
        self.inner_ = GaussianNB().fit(X, y, sample_weight)
        return self

    @property
    def classes_(self):
        return self.inner_.classes_

    def predict_proba(self, X, validate_features=True, base_margin=None, iteration_range=None):
        return self.inner_.predict_proba(X).astype(np.float32)


def fitted(*learners, **params):
    return PartialLabelClassifier(learners=list(learners), random_state=0, epochs=15, **params).fit(DATA.x, LISTS)


@pytest.mark.parametrize(
    ("learner", "name"),
    [
        (make_pipeline(StandardScaler(), LogisticRegression()), "LogisticRegression"),
        (make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), GaussianNB())), "GaussianNB"),
        (make_pipeline(StandardScaler(), KNeighborsClassifier()), "KNeighborsClassifier"),
        (HistGradientBoostingClassifier(max_iter=10), "HistGradientBoostingClassifier"),
        (BoosterStub(), "BoosterStub"),
    ],
)
def test_a_learner_of_ones_own_in_one_line(learner, name):
    clf = fitted(learner)
    assert clf.result_.model.learners == {name: 1.0}
    assert clf.score(DATA.x, NAMES[DATA.labels]) > 0.9
    np.testing.assert_allclose(clf.predict_proba(DATA.x).sum(1), 1)


def test_names_and_classifiers_are_mixed_and_cloned():
    clf = PartialLabelClassifier(learners=["trees", make_pipeline(StandardScaler(), LogisticRegression())])
    copy = clone(clf).set_params(random_state=0).fit(DATA.x, LISTS)
    assert set(copy.result_.metadata["learners"]) <= {"trees", "LogisticRegression"}
    assert {row["learner"] for row in copy.result_.tried if row["stage"] == "learners"} == {
        "trees",
        "LogisticRegression",
    }
    assert not hasattr(clf.learners[1], "classes_")  # the user's object is not fitted


class WeightRecorder(GaussianNB):
    """Records the weights that it is fitted with."""

    def fit(self, X, y, sample_weight=None):
        self.weights_ = sample_weight
        return super().fit(X, y, sample_weight)


@pytest.mark.parametrize("routing", [False, True])
def test_weights_reach_the_last_step_of_a_pipeline(routing):
    soft_labels = 0.4 * np.eye(4)[DATA.labels] + 0.15
    data = make_dataset(DATA.x.astype(np.float32), np.ones_like(MASK))
    pipeline = make_pipeline(StandardScaler(), WeightRecorder())
    with sklearn.config_context(enable_metadata_routing=routing):
        learned = SklearnLearner(pipeline).fit(data, Targets(data.candidates.mask, soft_labels), context_for(data))
    for classifier in learned.model.classifiers:
        np.testing.assert_allclose(classifier[-1].weights_, 0.55)


def test_where_weights_are_not_taken_rows_are_drawn():
    assert weight_parameter(KNeighborsClassifier()) is None
    assert weight_parameter(make_pipeline(StandardScaler(), KNeighborsClassifier())) is None
    confidence = np.array([1.0, 0.3, 0.0, 0.1] * 500)
    label = np.array([0, 0, 1, 2] * 500)
    drawn = draw_rows(label, confidence, np.random.default_rng(0))
    assert drawn[::4].all()
    assert drawn[1::4].mean() == pytest.approx(0.3, abs=0.05)
    assert drawn[2::4].sum() == 1  # the label is not lost


@pytest.mark.parametrize("learner", [BoosterStub(), LogisticRegression(), KNeighborsClassifier(2)])
def test_a_class_that_is_missing_from_a_fold_has_probability_zero(learner):
    labels = np.where(np.arange(60) < 30, 0, 2)
    labels[7] = 1
    x = (3.0 * labels[:, None] + np.random.default_rng(0).normal(size=(60, 2))).astype(np.float32)
    soft_labels = np.eye(3)[labels]
    data = make_dataset(x, soft_labels > 0)
    learned = SklearnLearner(learner).fit(data, Targets(soft_labels > 0, soft_labels), context_for(data))
    assert learned.oof.mean[7, 1] == 0
    np.testing.assert_allclose(learned.oof.mean.sum(1), 1, atol=1e-6)
    assert (learned.model(x).argmax(1) == labels).mean() > 0.9


def test_a_single_class():
    soft_labels = np.eye(2)[np.zeros(20, dtype=int)]
    data = make_dataset(np.arange(20, dtype=np.float32)[:, None], soft_labels > 0)
    learned = SklearnLearner(LogisticRegression()).fit(data, Targets(soft_labels > 0, soft_labels), context_for(data))
    assert (learned.oof.mean == [1, 0]).all()


def test_an_error_of_the_classifier_says_which_it_was():
    with pytest.raises(ValueError) as raised:
        fitted(KNeighborsClassifier(n_neighbors=-1))
    assert "KNeighborsClassifier was fitted on" in raised.value.__notes__[0]


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        (LinearSVC(), r"LinearSVC.*without predict_proba.*CalibratedClassifierCV"),
        (GaussianNB, r"instances; got the class GaussianNB. Write GaussianNB\(\)"),
        ("tree", "got 'tree'.*trees"),
        (3, "got 3, without fit, predict_proba, get_params"),
    ],
)
def test_other_things_are_refused(learner, message):
    with pytest.raises(ValueError, match=message):
        fitted("trees", learner)


# --------------------------------------------------------------------------------------------------------------- storage


@needs_skops
@pytest.mark.parametrize(
    "learners",
    [
        [make_pipeline(StandardScaler(), LogisticRegression())],
        [
            "trees",
            GaussianNB(),
            KNeighborsClassifier(algorithm="brute"),
            "kernel",
        ],
    ],
)
def test_what_is_saved_predicts_the_same(learners, tmp_path):
    clf = fitted(*learners)
    clf.save(tmp_path / "run")
    again = PartialLabelClassifier.from_run(tmp_path / "run")
    np.testing.assert_array_equal(again.predict_proba(DATA.x), clf.predict_proba(DATA.x))
    assert again.model_.learners == clf.model_.learners
    again.save(tmp_path / "copy")
    assert (tmp_path / "copy/model.safetensors").read_bytes() == (tmp_path / "run/model.safetensors").read_bytes()


@needs_skops
@pytest.mark.parametrize(
    ("learner", "reason"),
    [
        (HistGradientBoostingClassifier(max_iter=5), "HistGradientBoostingClassifier holds a random generator"),
        (ExtraTreesClassifier(5, random_state=0), "ExtraTreesClassifier holds types .*Tree"),
        (BoosterStub(), "BoosterStub holds types that skops does not trust: .*BoosterStub"),
        (make_pipeline(FunctionTransformer(inspect.unwrap), GaussianNB()), "GaussianNB holds types .*inspect.unwrap"),
    ],
)
def test_types_that_are_not_scikit_learns_are_not_saved(learner, reason, tmp_path):
    clf = fitted(learner)
    with pytest.raises(ValueError, match=f"{reason}.*Fit without it"):
        clf.save(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_without_skops_the_remedy_is_named(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "skops", None)
    clf = fitted(GaussianNB())
    with pytest.raises(ValueError, match=r"saving GaussianNB of learners needs the package skops"):
        clf.save(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def rewritten(content: bytes, change, compression: int = zipfile.ZIP_STORED) -> bytes:
    """Return a skops file whose schema was changed."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(target, "w", compression) as archive:
        for part in source.namelist():
            payload = source.read(part)
            if part == "schema.json":
                payload = change(payload.decode()).encode()
            archive.writestr(part, payload)
    return target.getvalue()


class Evil(BaseEstimator):
    """A type of a stranger's, with state that would be set on loading."""

    def __setstate__(self, state):
        raise AssertionError("code of the file was run")


@needs_skops
def test_a_strangers_file_runs_no_code_and_is_refused():
    import skops.io

    x = np.zeros((4, 2), dtype=np.float32)
    y = np.array([0, 1, 0, 1])
    good = skops.io.dumps([GaussianNB().fit(x + y[:, None], y)])
    labels = (np.array([0, 1]),)
    assert load_classifiers(good, "GaussianNB", labels, 2, 2).n_classes == 2

    generator = skops.io.dumps([GaussianNB().fit(x, y).set_params(priors=np.random.RandomState(0))])
    bad_files = {
        "types that skops does not trust": skops.io.dumps([Evil()]),
        "cannot be read": b"no archive",
        "compressed": rewritten(good, str, zipfile.ZIP_DEFLATED),
        "random generator": generator,
        "classifier for each fold": skops.io.dumps([1, 2]),
        "must predict its labels": skops.io.dumps([StandardScaler()]),
    }
    for reason, content in bad_files.items():
        with pytest.raises(ValueError, match=reason):
            load_classifiers(content, "GaussianNB", labels, 2, 2)
    renamed = rewritten(
        good, lambda text: text.replace("sklearn.naive_bayes", "subprocess").replace("GaussianNB", "Popen")
    )
    with pytest.raises(ValueError, match=r"subprocess\.Popen"):
        load_classifiers(renamed, "GaussianNB", labels, 2, 2)
    for d, c, known in ((3, 2, labels), (2, 1, labels), (2, 2, (np.array([1, 0]),)), (2, 3, (np.array([0, 1, 2]),))):
        with pytest.raises(ValueError, match="must predict its labels"):
            load_classifiers(good, "GaussianNB", known, d, c)


@needs_skops
@pytest.mark.parametrize("damage", [[], [{"name": "GaussianNB"}], [{"name": "GaussianNB", "labels": [["a"]]}]])
def test_a_damaged_description_is_refused(damage, tmp_path):
    from oneof.runs.stored_model import checksum

    fitted(GaussianNB()).save(tmp_path / "run")
    path = tmp_path / "run/model.json"
    metadata = json.loads(path.read_text())
    metadata["own"] = damage
    metadata["checksum"] = checksum(metadata)
    path.write_text(json.dumps(metadata))
    with pytest.raises(ValueError, match=r"model\.json.*own.*Fit it again"):
        PartialLabelClassifier.from_run(tmp_path / "run")
