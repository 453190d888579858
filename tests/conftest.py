"""One torch thread for every test, no instruction that a CPU announces and may not run, double precision where a test asks for it."""

from __future__ import annotations

import logging
import os
import random
import signal

# Before torch and NumPy are imported, and for the processes that tests start: two workers with two threads each wait for one another.
os.environ["OMP_NUM_THREADS"] = "1"
# Some virtual machines announce amx_bf16 and do not run it: oneDNN then fails, or the interpreter dies.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import settings

collect_ignore = ["fixtures/label_studio_project.py"]  # for another Python, which has label-studio
torch.set_num_threads(1)
# A shell starts commands in the background with Ctrl-C ignored, which they pass on: tests of an interrupt must not depend on that.
signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("oneof", deadline=None, max_examples=60)
settings.load_profile("oneof")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, help="Run the tests of each file in a random order, drawn with this seed.")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """File by file, so that what the tests of a file share is made once."""
    if config.getoption("--shuffle") is not None:
        draw = random.Random(config.getoption("--shuffle"))
        place = {path: number for number, path in enumerate(dict.fromkeys(item.path for item in items))}
        items.sort(key=lambda item: (place[item.path], draw.random()))


@pytest.fixture(autouse=True)
def heard(request: pytest.FixtureRequest) -> Iterator[None]:
    """Warnings of the library are errors, too, unless a test asks for caplog and looks at them itself."""
    told: list[logging.LogRecord] = []
    listener = logging.Handler(logging.WARNING)
    listener.emit = told.append  # type: ignore[method-assign]
    logging.getLogger("oneof").addHandler(listener)
    yield
    logging.getLogger("oneof").removeHandler(listener)
    assert "caplog" in getattr(request.node, "fixturenames", ()) or not told, [one.getMessage() for one in told]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Whatever a command before has set: two threads in each of two workers wait for one another, a hundred times as long."""
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def small_forests() -> Iterator[None]:
    """A tenth of the trees, for tests of what a fit takes and gives: of a small table, trees are most of its seconds."""
    from oneof.learners.set_trees import weigh_candidates

    def weigh_by_few_trees(x: Any, sets: Any, config: Any, seed: int = 0, n_jobs: int | None = None) -> Any:
        few = replace(config, rounds=2, trees_per_round=6)
        return weigh_candidates(x, sets, few, seed, n_jobs)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("oneof.learners.config.TreesConfig.per_fold", lambda trees, classes: 3)
        patched.setattr("oneof.learners.set_trees.weigh_candidates", weigh_by_few_trees)
        yield


@pytest.fixture
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
