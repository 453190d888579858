"""Features of pictures that are learned from their patches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from oneof.data import patches as module
from oneof.data.images import ImageSpec
from oneof.data.patches import PatchParameters, learn_patches, patch_side, pool_responses

DIGITS, LABELS = load_digits(n_class=5, return_X_y=True)
LEVELS = (15 * DIGITS[:300]).astype(np.uint8)
SPEC = ImageSpec("file", 1, 8)


@pytest.fixture(scope="module", autouse=True)
def few_filters() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "N_FILTERS", 64)
        patch.setattr(module, "N_PATCHES", 2000)
        yield


def test_few_labels_suffice_for_a_linear_model() -> None:
    learn = learn_patches(LEVELS, SPEC)
    features = learn(LEVELS)
    assert features.shape == (300, learn.width)
    assert learn.width == 100  # a third of the pictures
    few = LogisticRegression(max_iter=300).fit(features[:60], LABELS[:60])
    assert few.score(features[60:], LABELS[60:300]) > 0.9


def test_a_row_has_the_same_features_alone_and_in_any_order() -> None:
    learn = learn_patches(LEVELS, SPEC)
    features = learn(LEVELS)
    order = np.random.default_rng(0).permutation(300)
    np.testing.assert_allclose(learn(LEVELS[order]), features[order], atol=1e-4)
    np.testing.assert_allclose(learn(LEVELS[:1]), features[:1], atol=1e-4)


def test_brightness_and_contrast_hardly_matter_and_blank_pictures_are_finite() -> None:
    learn = learn_patches(LEVELS, SPEC)
    blank = learn(np.full((2, 64), 200, dtype=np.uint8))
    assert np.isfinite(blank).all()
    pictures = torch.rand(2, 1, 8, 8)
    parameters = PatchParameters.of(learn)
    responses = pool_responses(pictures, parameters.filters, parameters.offset)
    dimmer = pool_responses(0.7 * pictures + 0.2, parameters.filters, parameters.offset)
    torch.testing.assert_close(dimmer, responses, rtol=0.05, atol=0.02)


def test_rounding_is_no_difference_between_pictures() -> None:
    picture = np.random.default_rng(0).integers(0, 255, 3 * 24 * 24, dtype=np.uint8)
    learned = learn_patches(np.tile(picture, (12, 1)), ImageSpec("file", 3, 24))
    assert not learned.axes.any()


def test_the_same_pictures_are_one_feature() -> None:
    learn = learn_patches(np.tile(LEVELS[:1], (12, 1)), SPEC)
    assert learn.width == 1
    assert (learn(LEVELS) == 0).all()


def halves(n: int, handed: bool) -> tuple[np.ndarray, np.ndarray]:
    """Pictures with a bright half: which one is the label, or in every picture whether it is upright or lies."""
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 60, (n, 8, 8))
    label = np.arange(n) % 2
    for picture, one, side in zip(pictures, label, rng.integers(0, 2, n), strict=True):
        if handed:
            picture[:, :4] += 150 * one
            picture[:, 4:] += 150 * (1 - one)
        elif one:
            picture[:, 4 * side : 4 * side + 4] += 150
        else:
            picture[4 * side : 4 * side + 4] += 150
    return pictures.astype(np.uint8).reshape(n, 64), label


@pytest.mark.parametrize("handed", [True, False])
def test_held_out_sets_decide_whether_pictures_are_mirrored(handed: bool) -> None:
    levels, label = halves(60, handed)
    sets = label[:, None] == np.arange(2)
    learn = learn_patches(levels, SPEC, sets)
    assert learn.mirrored != handed
    flipped = np.ascontiguousarray(levels.reshape(-1, 8, 8)[:, :, ::-1]).reshape(-1, 64)
    assert np.allclose(learn(flipped), learn(levels), atol=1e-3) == learn.mirrored


def test_patches_grow_with_the_picture() -> None:
    assert [patch_side(side) for side in (8, 16, 28, 64, 512)] == [3, 4, 6, 6, 6]
