"""The defaults that docstrings state are those of the code."""

from __future__ import annotations

import ast
import inspect
import re

import numpy as np
import pytest
import torch

from oneof import PartialLabelClassifier, PartialLabelImageClassifier
from oneof.data.images import ImageSpec
from oneof.learners.config import EnsembleConfig, ImageConfig
from oneof.learners.images import plan_images
from oneof.learners.scaling import SCALINGS_WITH_RANKS

CONFIG = EnsembleConfig()
ESTIMATORS = [PartialLabelClassifier, PartialLabelImageClassifier]


def parameters(estimator) -> str:
    """The section of the docstring that describes the parameters."""
    section = inspect.getdoc(estimator).split("Parameters\n----------\n")[1]
    return re.split(r"\n\n(?=Attributes\n|See Also\n)", section)[0]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_stated_defaults_are_those_of_the_signature(estimator):
    stated = {}
    for names, default in re.findall(r"^(\w+(?:, \w+)*) : .*default=(.+)$", parameters(estimator), re.MULTILINE):
        for name in names.split(", "):
            stated[name] = ast.literal_eval(default)
    signature = inspect.signature(estimator).parameters
    assert stated == {name: parameter.default for name, parameter in signature.items()}


def described(name: str) -> str:
    """What the table estimator's docstring says of a parameter, in one line."""
    (text,) = re.findall(
        rf"^(?:\w+, )*{name}(?:, \w+)* : .*\n((?:    .*\n?)+)", parameters(PartialLabelClassifier), re.MULTILINE
    )
    return " ".join(text.split())


def test_what_none_stands_for_is_what_the_config_has():
    assert f"None: {CONFIG.method.__class__.__name__}()" in described("method")
    assert f"None: {CONFIG.lr} and {np.format_float_positional(CONFIG.weight_decay)}." in described("weight_decay")
    assert CONFIG.hidden == (128, 128)
    assert "None: two of 128" in described("hidden_layer_sizes")
    assert len(CONFIG.learners) == 6
    assert "None: all six" in described("learners")
    assert all(f'"{name}"' in described("learners") for name in CONFIG.learners)
    assert CONFIG.without_networks().trees.count == 100
    assert "100 trees" in described("quick")


def test_ways_to_see_features_are_those_that_there_are():
    (ways,) = re.findall(r"^scaling : (\{.*\})", parameters(PartialLabelClassifier), re.MULTILINE)
    assert ast.literal_eval(ways) == set(SCALINGS_WITH_RANKS)


@pytest.mark.parametrize(
    ("n", "pixels", "device", "network", "networks", "epochs"),
    [
        (100, ImageSpec("x", 3, 32), "cpu", "lenet", 3, 60),
        (10**6, ImageSpec("x", 1, 28), "cpu", "lenet", 1, 5),
        (20_000, ImageSpec("x", 1, 32), "cuda", "lenet", 3, 100),
        (20_001, ImageSpec("x", 3, 32), "cuda", "wrn", 1, 100),
        (100, ImageSpec("x", 1, 64), "cuda", "wrn", 3, 100),
    ],
)
def test_what_none_stands_for_with_pictures(n, pixels, device, network, networks, epochs):
    plan = plan_images(ImageConfig(), CONFIG, n, pixels, torch.device(device))
    assert (plan.network, plan.networks, plan.epochs) == (network, networks, epochs)
    text = " ".join(parameters(PartialLabelImageClassifier).split())
    for stated in (
        "None: patches on a CPU; on a GPU WRN-28-2",
        "32 pixels a side, else LeNet",
        "above 20,000 pictures one",
        "on pixels 100 on a GPU, 5 to 60 on a CPU",
    ):
        assert stated in text
