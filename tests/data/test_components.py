"""Principal components in place of very many columns of numbers."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from oneof.data.components import (
    MAX_COLUMNS,
    N_COMPONENTS,
    N_SPARSE_COMPONENTS,
    learn_components,
    learn_sparse_components,
)
from oneof.data.encode import Encoding, learn_encoding
from oneof.data.roles import ColumnRoles
from oneof.data.table import Columns

WIDTH = MAX_COLUMNS + 200


def embeddings(n: int = 300, rank: int = 20, noise: float = 0.05, seed: int = 0) -> np.ndarray:
    """Make columns that a few directions hold nearly all of, in units from 0.01 to 100."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, WIDTH)) + noise * rng.normal(size=(n, WIDTH))
    return (x * np.logspace(-2, 2, WIDTH) + 3).astype(np.float32)


def as_columns(x: np.ndarray) -> tuple[Columns, ColumnRoles]:
    names = [f"e{j}" for j in range(x.shape[1])]
    return Columns("a table", x, names, {}), ColumnRoles(features=tuple(names), candidates=None)


def test_columns_that_a_few_directions_hold_become_components_with_the_same_distances():
    x = embeddings()
    components = learn_components(x)
    assert components.width == min(N_COMPONENTS, len(x) // 2)
    standardised = (x - x.mean(0)) / x.std(0)
    reduced = components(x)
    assert abs(reduced.mean()) < 0.05
    before = np.linalg.norm(standardised[:50, None] - standardised[None, 50:100], axis=-1)
    after = np.linalg.norm(reduced[:50, None] - reduced[None, 50:100], axis=-1)
    assert np.abs(after / before - 1).max() < 0.01


def test_few_columns_and_independent_columns_stay_as_they_are():
    rng = np.random.default_rng(0)
    assert learn_components(embeddings()[:, :MAX_COLUMNS]) is None
    assert learn_components(rng.normal(size=(200, WIDTH)).astype(np.float32)) is None


def test_an_encoding_with_components_is_stored_and_read_back():
    columns, roles = as_columns(embeddings())
    columns.numbers[3, 5] = np.nan
    encoding = learn_encoding(columns, roles)
    features = encoding.transform(columns)
    assert features.shape == (300, encoding.components.width)
    assert encoding.names[1] == "component 1"
    assert encoding.n_inputs == WIDTH + 1  # with an indicator of the gap
    restored = Encoding.from_json(encoding.to_json(), encoding.arrays)
    np.testing.assert_array_equal(restored.transform(columns), features)


@pytest.mark.parametrize("n", [40, 400])
def test_sparse_columns_become_components(n):
    x = csr_array(np.random.default_rng(0).random((n, 3000)) < 0.01, dtype=np.float32)
    components = learn_sparse_components(x)
    assert components(x).shape == (n, min(N_SPARSE_COMPONENTS, n - 1))
    np.testing.assert_allclose(components(x), components(x.toarray()), atol=1e-5)
