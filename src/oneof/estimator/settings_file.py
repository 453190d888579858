"""Settings of networks as a JSON file: `oneof tune` writes it, `oneof fit --settings` and PartialLabelClassifier take it.

The file has the parameter names of PartialLabelClassifier.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oneof.ensemble.tune import read_setting
from oneof.runs.folder import write_json

LAYER_SIZES = "hidden_layer_sizes"  # as PartialLabelClassifier names it
HIDDEN = "hidden"  # as the search names it


def write_settings(settings: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Write the settings that a search chose; return them under the estimator's names."""
    params = _renamed(settings, HIDDEN, LAYER_SIZES)
    write_json(params, path)
    return params


def read_settings(path: Path) -> dict[str, Any]:
    """Read settings that `write_settings` wrote, under the names of the search."""
    return _renamed(read_setting(path), LAYER_SIZES, HIDDEN)


def _renamed(settings: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    """Return settings with one of them under another name."""
    renamed = {}
    for name, value in settings.items():
        if name == old:
            name = new
        renamed[name] = value
    return renamed
