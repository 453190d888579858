"""`oneof fit --method --purify --settings`: what is said is not searched, what is wrong is named, what `inspect` advises can be said."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.main import get_command

from oneof.candidates.generate import Flip, generate
from oneof.cli import app, main
from oneof.cli.fit import _set_torch_threads
from oneof.inspect import advice
from oneof.runs.folder import Run
from oneof_paper.synthetic import mixture

pytestmark = pytest.mark.usefixtures("small_forests")

DATA = mixture(n=240, d=2, c=3, separation=4.0, seed=0)
MASK = generate(DATA.labels, 3, Flip(0.4), seed=1)
SHORT = ("--networks", 2, "--epochs", 3)


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("settings") / "table.csv"
    sets = ["|".join("xyz"[j] for j in np.flatnonzero(row)) for row in MASK]
    rows = [f"{a:.4f},{b:.4f},{cell}" for (a, b), cell in zip(DATA.x, sets, strict=True)]
    path.write_text("\n".join(["a,b,candidates", *rows]))
    return path


def command(monkeypatch, capsys, *arguments: object) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["oneof", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        main()
    printed = capsys.readouterr()
    return int(end.value.code or 0), printed.err


def test_what_is_said_is_not_searched(table, tmp_path, monkeypatch, capsys):
    setting = {"hidden_layer_sizes": [16], "scaling": "ranks", "lr": 0.07, "weight_decay": 0.002, "mixup": 0.0}
    (tmp_path / "best.json").write_text(json.dumps(setting))
    said = ("--settings", tmp_path / "best.json", "--method", "cc", "--no-purify")
    code, err = command(monkeypatch, capsys, "fit", table, "--out", tmp_path / "run", *SHORT, *said)
    assert code == 0, err
    facts = Run.open(tmp_path / "run").metadata
    assert facts["chosen"] == [{"hidden": [16], "scaling": "ranks", "lr": 0.07, "weight_decay": 0.002}]
    space = facts["asked"]["config"]["ensemble"]
    assert (space["method"]["kind"], space["purify"], space["mixup"]) == ("CC", None, 0.0)
    other = ("--settings", tmp_path / "best.json", "--method", "cc", "--purify")
    code, err = command(monkeypatch, capsys, "fit", table, "--out", tmp_path / "run", *SHORT, *other)
    assert code == 2
    assert "holds a run of other data or options: config.ensemble.purify was None, now {'kind': 'Pop'" in err


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (["--method", "prodn"], r"method must be one of .*; got 'prodn'\. Did you mean 'proden'\?"),
        (["--method", "pico"], r"method must work on tables; 'pico' compares views of images\."),
        (["--device", "gpu"], r"device must be one that torch knows, such as 'cpu' or 'cuda'; got 'gpu'\."),
        (["--annotators", "llm_*"], r"--annotators requires --votes"),
        (["--taxonomy", "tree.csv"], r"--taxonomy requires --votes"),
        (
            ["--quick", "--learners", "trees"],
            r"quick chooses the learners, .*; got both\. Leave one of them out",
        ),
        (["--deterministic", "--threads", "2"], r"--deterministic needs one thread; got --threads 2\. Leave one"),
        ({"rate": 0.1}, r"a setting must be one of hidden, .*mixup; got 'rate'\."),
        ({"lr": "fast"}, r"lr must be a number; got 'fast'\."),
        ({"scaling": "zscore"}, r"scaling must be one of feature, .*; got 'zscore'\."),
        ({"hidden_layer_sizes": [0]}, r"hidden_layer_sizes must be widths of layers.*\(128,\).*got \[0\]\."),
        (["--time-limit", "2x"], r"--time-limit .*such as 90s, 2m or 1h; got '2x'"),
        ([0.1], r"settings must be a JSON object, as oneof tune writes it; .* holds \[0\.1\]\."),
        ("lr: 0.1", r"settings must be a JSON file, as oneof tune writes it; .* is not one"),
    ],
)
def test_what_is_wrong_is_named(table, tmp_path, monkeypatch, capsys, said, message):
    flags = said
    if not isinstance(said, list) or said == [0.1]:
        (tmp_path / "best.json").write_text(said if isinstance(said, str) else json.dumps(said))
        flags = ["--settings", tmp_path / "best.json"]
    code, err = command(monkeypatch, capsys, "fit", table, "--out", tmp_path / "run", *flags)
    assert code == 2
    assert re.search(message, err), err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_what_inspect_advises_can_be_said_to_fit():
    source = Path(advice.__file__).read_text()
    flags = set(re.findall(r"--[a-z][a-z-]*", source))
    assert {"--method", "--purify", "--empty"} <= flags
    known = get_command(app).commands["fit"].params
    assert flags <= {option for one in known for option in (*one.opts, *one.secondary_opts)}


@pytest.mark.parametrize(("set_to", "cores", "count"), [(1, 8, 1), (4, 8, 4), (8, 2, 2)])
def test_networks_on_pixels_use_at_most_the_threads_that_the_environment_allows(
    set_to: int, cores: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch takes its number of threads from OMP_NUM_THREADS when it is imported."""
    chosen: list[int] = []
    monkeypatch.setattr("torch.get_num_threads", lambda: set_to)
    monkeypatch.setattr("torch.set_num_threads", chosen.append)
    monkeypatch.setattr("oneof.cli.fit.cores", lambda: cores)
    _set_torch_threads(None, trains_on_pixels=True, deterministic=False)
    assert chosen == [count]
