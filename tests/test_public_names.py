"""`import oneof` is quick, and every public name can be found and imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

import oneof

HEAVY = ("torch", "sklearn", "numpy", "pyarrow", "matplotlib")


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.strip()


def test_import_loads_nothing_heavy():
    assert run(f"import sys, oneof; dir(oneof); print([name for name in {HEAVY} if name in sys.modules])") == "[]"


def test_every_public_name_is_listed_before_it_is_used():
    listed = run("import oneof; print(*dir(oneof))").split()
    assert set(oneof.__all__) <= set(listed)
    assert {"votes", "methods", "fit", "PartialLabelClassifier", "CandidateLoss"} <= set(listed)


@pytest.mark.parametrize("name", oneof.__all__)
def test_every_public_name_can_be_imported(name):
    assert getattr(oneof, name) is not None


def test_submodules_are_imported_on_first_use():
    assert run("import oneof; print(oneof.votes.union.__name__, 'proden' in oneof.methods.METHODS)") == "union True"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'fitt'"):
        oneof.fitt  # noqa: B018 - looked up for its error
