"""Sparse features, and more columns than learners see one by one."""

import numpy as np
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from oneof import PartialLabelClassifier
from oneof.data.components import MAX_COLUMNS
from oneof.runs.export import export_model

TOPICS = {
    "sea": "boat wave fish sail tide harbour",
    "town": "street car shop house tram market",
    "wood": "tree fox leaf moss owl path",
}


def texts_and_sets(n: int = 150, seed: int = 0) -> tuple[list[str], list[set[str]], np.ndarray]:
    """Make texts on three topics, with many rare words besides, and sets of two labels."""
    rng = np.random.default_rng(seed)
    names = list(TOPICS)
    texts = []
    sets = []
    labels = rng.choice(names, size=n)
    for label in labels:
        words = [*rng.choice(TOPICS[label].split(), 5), *(f"word{j}" for j in rng.integers(4000, size=12))]
        texts.append(" ".join(words))
        other = rng.choice([name for name in names if name != label])
        sets.append({str(label), str(other)})
    return texts, sets, labels


def test_a_pipeline_of_texts_is_learned_from_and_stored(tmp_path):
    texts, sets, labels = texts_and_sets()
    pipeline = make_pipeline(TfidfVectorizer(), PartialLabelClassifier(quick=True, random_state=0)).fit(texts, sets)
    classifier = pipeline[-1]
    assert classifier.n_features_in_ > MAX_COLUMNS
    new_texts, _, new_labels = texts_and_sets(seed=1)
    assert (pipeline.predict(new_texts) == new_labels).mean() > 0.9
    assert (classifier.transduction_ == labels).mean() > 0.9
    vectors = pipeline[0].transform(new_texts)
    expected = classifier.predict_proba(vectors)
    np.testing.assert_allclose(classifier.predict_proba(vectors.toarray()), expected, atol=1e-5)
    classifier.save(tmp_path / "run")
    stored = PartialLabelClassifier.from_run(tmp_path / "run")
    assert stored.n_features_in_ == classifier.n_features_in_
    np.testing.assert_allclose(stored.predict_proba(vectors), expected, atol=1e-6)


def test_few_sparse_columns_give_what_the_array_gives():
    rng = np.random.default_rng(0)
    x = np.where(rng.random((60, 8)) < 0.3, rng.normal(size=(60, 8)), 0)
    y = [{int(value), int(value > 0.2)} for value in x[:, 0] > 0]
    dense = PartialLabelClassifier(quick=True, random_state=0).fit(x, y)
    sparse = PartialLabelClassifier(quick=True, random_state=0).fit(csr_array(x), y)
    np.testing.assert_array_equal(sparse.predict_proba(csr_array(x)), dense.predict_proba(x))


def test_wide_embeddings_are_exported_with_their_components(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=120)
    codes = rng.normal(size=(3, 10))[labels] + 0.3 * rng.normal(size=(120, 10))
    x = (codes @ rng.normal(size=(10, MAX_COLUMNS + 76))).astype(np.float32)
    classifier = PartialLabelClassifier(quick=True, random_state=0)
    others = (labels + rng.integers(1, 3, size=120)) % 3
    classifier.fit(x, [{int(label), int(other)} for label, other in zip(labels, others, strict=True)])
    assert classifier.model_.encoding.components.width < 100
    assert (classifier.transduction_ == labels).mean() > 0.9
    assert export_model(classifier.model_, tmp_path / "model.pt2") < 1e-4
