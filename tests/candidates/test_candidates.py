"""Reading candidate sets: every form gives the same mask, every malformed input its own message."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import reference
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from oneof.candidates.mask import log_softmax, posterior, restrict, softmax, uniform
from oneof.candidates.read import read

SETS = [["cat", "dog"], ["dog"], ["cat", "fox"]]
MASK = np.array([[1, 1, 0], [0, 1, 0], [1, 0, 1]], dtype=bool)
CLASSES = ["cat", "dog", "fox"]


@pytest.mark.parametrize(
    "sets",
    [
        SETS,
        [set(s) for s in SETS],
        [tuple(s) for s in SETS],
        [np.array(s) for s in SETS],
        pa.array(SETS),
        pa.chunked_array([SETS[:1], SETS[1:]]),
        pd.Series(SETS),
        MASK,
        MASK.astype(int),
        MASK.astype(float),
        np.vectorize(Decimal)(MASK.astype(object)),
        torch.tensor(MASK),
        scipy.sparse.csr_matrix(MASK.astype(float)),
        pd.DataFrame(MASK, columns=CLASSES),
    ],
    ids=[
        "lists",
        "sets",
        "tuples",
        "arrays",
        "arrow",
        "chunked",
        "series",
        "bool",
        "int",
        "float",
        "decimal",
        "torch",
        "sparse",
        "frame",
    ],
)
def test_every_form_gives_the_same_mask(sets):
    got = read(sets, classes=CLASSES)
    assert got.mask.dtype == bool
    np.testing.assert_array_equal(got.mask, MASK)
    assert got.classes.tolist() == CLASSES


def test_a_frame_is_read_by_the_names_of_its_columns():
    frame = pd.DataFrame(MASK, columns=CLASSES)[["fox", "cat", "dog"]]
    np.testing.assert_array_equal(read(frame, classes=CLASSES).mask, MASK)


def test_classes_are_the_labels_that_occur_sorted():
    assert read(SETS).classes.tolist() == CLASSES
    assert read([[3, 1], [2]]).classes.tolist() == [1, 2, 3]


def test_plain_labels_are_singletons():
    np.testing.assert_array_equal(read(["b", "a", "b"]).mask, [[0, 1], [1, 0], [0, 1]])
    np.testing.assert_array_equal(read(np.array([1, 0])).mask, [[0, 1], [1, 0]])


def test_complementary_sets_are_complements():
    np.testing.assert_array_equal(read(SETS, complementary=True).mask, ~MASK)


def test_unlabelled_rows_are_full_sets():
    np.testing.assert_array_equal(read([["a"], [], ["b"]], empty="unlabelled").mask, [[1, 0], [1, 1], [0, 1]])


def test_a_class_in_no_set_is_allowed_and_reported():
    got = read(SETS, classes=[*CLASSES, "yak"])
    assert got.absent == ["yak"]
    assert got.statistics().absent == 1


BAD = [
    ([["a"], [], ["b"], []], {}, ValueError, r"at least one label per row; 2 of 4 rows are empty, first row 1\. Leave them out; if nothing is known about them, oneof\.read"),
    (np.zeros((2, 3)), {}, ValueError, r"2 of 2 rows are empty, first row 0"),
    ([["a"], ["b", "z"]], {"classes": ["a", "b"]}, ValueError, r"among the classes a, b; row 1 has 'z'"),
    (np.array([[1, 0], [0.3, 1]]), {}, ValueError, r"only 0 and 1; got 0\.3 in row 1, column 0\. Weights are not candidates"),
    (np.array([[1, 0], [1, np.nan]]), {}, ValueError, r"only 0 and 1; got nan in row 1, column 1"),
    (pd.DataFrame({"a": [1, 0], "b": [1, None]}, dtype="Int64"), {}, ValueError, r"only 0 and 1; got <NA> in row 1, column 1\. A mask has no gaps: write 0 or 1, or leave the row out"),
    (np.array([[1, 0], [1, None]], dtype=object), {}, ValueError, r"only 0 and 1; got None in row 1, column 1\. A mask has no gaps"),
    (np.array([[1, 0], [1, 10**400]], dtype=object), {}, ValueError, r"only 0 and 1; got 10{56}\.\.\. in row 1, column 1\. Weights are not"),
    (np.array([[1, 0], [1, 1j]], dtype=object), {}, ValueError, r"only 0 and 1; got 1j in row 1, column 1"),
    (scipy.sparse.csr_matrix([[1.0, 2.0]]), {}, ValueError, r"got 2\.0 in row 0, column 1"),
    (np.array([["x", "y"]]), {}, TypeError, r"mask of candidates must be of bool or 0/1; got dtype <U1"),
    (np.ones((2, 3)), {"classes": ["a", "b"]}, ValueError, r"every column of the mask; got 2 names for 3 columns"),
    ([["a"], ["a"]], {}, ValueError, r"at least two classes; got 1 class \(a\)\. Give classes="),
    ([["a"], ["a"]], {"classes": ["a"]}, ValueError, r"got 1 class \(a\)\. Add rows with another label\."),
    ([["a", 1]], {}, TypeError, r"all strings or all numbers; row 0 has 'a' but row 0 has 1"),
    ([["a"], [None, "b"]], {}, ValueError, r"strings or finite numbers; row 1 has None"),
    ([[1.0], [float("nan")]], {}, ValueError, r"strings or finite numbers; row 1 has nan"),
    ([["a"], "b"], {}, TypeError, r"all sets or all single labels; row 0 is a set but row 1 is the single value 'b'"),
    ([[0, 1, 0], [1, 1, 0]], {}, ValueError, r"must not repeat a label; row 0 does, and all are 0 or 1\. Give a mask as an array"),
    ([[0.1, 0.8, 0.1], [0.2, 0.3, 0.5]], {}, ValueError, r"3 numbers that add up to 1, like counts or probabilities\. Give them as an array"),
    ([[3, 1, 1], [0, 0, 5]], {}, ValueError, r"3 numbers that add up to 5, like counts or probabilities\. Give them as an array"),
    (pd.DataFrame(MASK, columns=CLASSES), {"classes": ["cat", "dog", "yak"]}, ValueError, r"a frame's columns must be the classes cat, dog, yak; got cat, dog, fox"),
    ("abc", {}, TypeError, r"mask \[n, c\] or a sequence of sets; got str"),
    (7, {}, TypeError, r"got int"),
    ([], {}, ValueError, r"at least one row; got none"),
    (np.ones((2, 2, 2)), {}, ValueError, r"got an array of shape \(2, 2, 2\)"),
    ([["a"], ["b"]], {"classes": ["a", "b", "a"]}, ValueError, r"classes must be distinct; 'a' is given twice"),
    ([["a", "b"], ["a"]], {"complementary": True}, ValueError, r"leave at least one label per row; 1 of 2 rows exclude every class, first row 0"),
    ([["a"]], {"empty": "drop"}, ValueError, r"empty must be 'error' or 'unlabelled'; got 'drop'"),
]  # fmt: skip


@pytest.mark.parametrize(("sets", "options", "error", "message"), BAD)
def test_malformed_input_has_its_own_message(sets, options, error, message):
    with pytest.raises(error, match=message) as raised:
        read(sets, **options)
    assert "\n" not in str(raised.value)


def masks():
    shape = st.tuples(st.integers(1, 6), st.integers(2, 5))
    return shape.flatmap(lambda s: arrays(bool, s)).filter(lambda mask: mask.any(1).all())


@given(masks())
def test_lists_of_labels_round_trip(mask):
    lists = [np.flatnonzero(row).tolist() for row in mask]
    np.testing.assert_array_equal(read(lists, classes=range(mask.shape[1])).mask, mask)


@pytest.mark.parametrize("c", [2, 10, 15, 16, 40])
@pytest.mark.parametrize("shape", [(), (7,), (3, 7)])
def test_softmax_is_that_of_torch_in_the_layout_of_the_logits(c, shape):
    logits = 10 * torch.randn(*shape, c, dtype=torch.float64, generator=torch.Generator().manual_seed(c))
    logits[..., 1] = -torch.inf
    torch.testing.assert_close(softmax(logits), logits.softmax(-1))
    torch.testing.assert_close(log_softmax(logits), logits.log_softmax(-1))
    assert softmax(logits).is_contiguous()
    if len(shape) == 2:  # stacks of networks give such logits
        transposed = logits.mT.contiguous().mT
        torch.testing.assert_close(softmax(transposed), logits.softmax(-1))
        if c < 16:
            assert softmax(transposed).stride() == transposed.stride()


@given(masks(), st.integers(0, 2**31))
def test_restrict_posterior_and_uniform_agree_with_the_reference(mask, seed):
    rng = np.random.default_rng(seed)
    logits, weights = 30 * rng.standard_normal(mask.shape), rng.random(mask.shape) * (rng.random(mask.shape) < 0.5)
    S = torch.tensor(mask)
    np.testing.assert_allclose(posterior(torch.tensor(logits), S), reference.posterior(logits, mask), atol=1e-12)
    np.testing.assert_allclose(restrict(torch.tensor(weights), S), reference.restrict(weights, mask), atol=1e-12)
    np.testing.assert_allclose(uniform(S), reference.uniform(mask), atol=1e-6)
