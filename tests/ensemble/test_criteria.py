"""Criteria are data: an entry in `metrics.CRITERIA` is a column of histories, rows and pages, and may choose."""

from __future__ import annotations

from html import unescape

import numpy as np
import pytest
import torch
from run_folder import write_run
from stages import fit_stages, make_dataset

from oneof.candidates.generate import Flip, generate
from oneof.ensemble.records import training_record
from oneof.learners.config import EnsembleConfig
from oneof.metrics import CRITERIA, MEANS, Criterion, criteria, with_means
from oneof.networks import Linear
from oneof.report.page import render_page
from oneof.training.fit import fit
from oneof.training.trials import Training, Trial
from oneof_paper.compute_rows import Cell, compute_rows
from oneof_paper.data.catalogue import LabelledData
from oneof_paper.experiments import TABLES, Protocol
from oneof_paper.results import rows_of
from oneof_paper.synthetic import mixture

DATA = mixture(n=300, d=3, c=3, separation=4.0, seed=0)
MASK = generate(DATA.labels, 3, Flip(0.4), seed=1)


def doubt(logits: torch.Tensor, candidates: torch.Tensor) -> torch.Tensor:
    """A criterion that likes what others do not: flat predictions."""
    return -logits.softmax(-1).amax(-1).mean(-1)


@pytest.fixture
def third(monkeypatch):
    monkeypatch.setitem(CRITERIA, "doubt", Criterion("flatness", doubt, "how flat its probabilities are"))


def run(**options):
    trials = [Trial(seed, np.arange(200), np.arange(200, 300), lr=0.05) for seed in range(2)]
    training = Training(epochs=6, batch=20)
    return fit(DATA.x, MASK, trials=trials, labels=DATA.labels, training=training, **options)


@pytest.mark.usefixtures("third")
def test_a_new_criterion_is_measured_and_may_choose_the_epoch():
    fitted = run(choose="doubt")
    column = fitted.history["doubt"]
    assert column.shape == (6, 2)
    assert fitted.epoch.tolist() == (column.argmax(0) + 1).tolist()
    assert (fitted.epoch < 6).all()  # another epoch than the last, which accuracy would take
    logits, sets = fitted.logits(DATA.x[200:]), torch.as_tensor(MASK[200:]).expand(2, -1, -1)
    torch.testing.assert_close(column.gather(0, fitted.epoch[None] - 1)[0], criteria(logits, sets)["doubt"])


@pytest.mark.usefixtures("third")
def test_a_new_criterion_survives_a_checkpoint(tmp_path):
    once = run(choose="doubt", checkpoint=tmp_path)
    again = run(choose="doubt", checkpoint=tmp_path)
    torch.testing.assert_close(again.history["doubt"], once.history["doubt"], rtol=0, atol=0)


@pytest.mark.usefixtures("third")
def test_a_new_criterion_is_in_every_kind_of_row():
    fitted = run()
    assert rows_of(fitted, seeds=range(2), seconds=1.0)[1]["doubt"] == pytest.approx(
        float(fitted.history["doubt"][-1, 1]), abs=1e-6
    )
    protocol = Protocol(Linear(), Training(epochs=3, batch=20), lr=(0.01, 0.5), weight_decay=(1e-3,))
    data = LabelledData("lost", DATA.x, DATA.labels, ["a", "b", "c"], MASK, None)
    chosen, grid = (
        [
            row
            for row in compute_rows(Cell("lost", TABLES[4].systems["cc"], protocol, (0,)), data)
            if row["kind"] == kind
        ]
        for kind in ("chosen", "grid")
    )
    assert [row["rule"] for row in chosen] == ["covering", "approximated", "doubt", "oracle"]
    assert {row["rule"]: row["lr"] for row in chosen}["doubt"] == 0.01
    assert len(grid[0]["last"]["doubt"]) == 2


@pytest.mark.usefixtures("third")
def test_a_new_criterion_chooses_how_a_search_sees_the_features():
    space = EnsembleConfig(scalings=("feature", "both", "minmax"), n_networks=2, epochs=2, n_folds=None)
    data = make_dataset(DATA.x, MASK)
    _, by_doubt = fit_stages(data, space, criterion="doubt")
    kernels, by_both = fit_stages(data, space, criterion="both")
    assert [found.configs[0].scaling for found in (by_doubt, by_both)] == ["minmax", "both"]
    assert all({"covering", "approximated", "doubt", "both"} <= row.keys() for row in kernels.tried)
    assert "doubt" in training_record([learner.training for learner in by_both.learners])["columns"]


def test_the_page_shows_every_criterion(tmp_path, monkeypatch):
    from oneof.runs.folder import Run

    monkeypatch.setitem(CRITERIA, "loss", Criterion("loss", doubt, "what it paid"))  # a column that the folder has
    run = Run.open(write_run(tmp_path / "run"))
    page = unescape(render_page(run.metadata, run.purified, run.training, run.rows))
    assert "Solid, covering: its label lies in the row's set. " in page
    assert "Dotted, loss: what it paid. " in page


def test_both_is_the_mean_of_two_whatever_else_there_is():
    assert set(MEANS) == {"both"}
    assert with_means({"covering": 0.9, "approximated": 0.7, "doubt": -5.0})["both"] == pytest.approx(0.8)
