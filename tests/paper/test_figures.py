"""The figures: what they are made of, and that the same rows give the same picture."""

from __future__ import annotations

from pathlib import Path

import drawing
import matplotlib
import numpy as np
import pytest
import torch
from figures import RATES
from paper_pages import FIGURES

from oneof.metrics import purified_region
from oneof.storage.rows import read

ROOT = Path(__file__).parents[2]


def test_the_purified_region_is_the_longest_run_of_sure_rows_that_agree():
    posterior = torch.tensor([[0.95, 0.05], [0.9, 0.1], [0.3, 0.7], [0.45, 0.55]])  # surest first
    right = posterior.log()
    assert purified_region(right, posterior) == 1
    wrong = right.clone()
    wrong[2] = wrong[2].flip(0)
    assert purified_region(wrong, posterior) == 0.5
    assert purified_region(wrong, posterior, tolerance=0.25) == 1
    assert purified_region(torch.stack([right, wrong]), posterior).tolist() == [1, 0.5]
    assert purified_region(right.flip(1), posterior) == 0


def test_a_figure_is_written_twice_and_is_the_same_each_time(tmp_path):
    region = np.linspace(0, 1, 20).reshape(10, 2)
    for name in ("one", "two"):
        drawing.save(drawing.draw_region({"Lost": {"PRODEN": region}}), tmp_path / name / "region")
    first, second = ((tmp_path / name / "region.svg").read_text() for name in ("one", "two"))
    assert first == second
    assert (tmp_path / "one/region.png").stat().st_size > 1000


def mean_of(rows: list[dict], key: str, **wanted: object) -> float:
    values = [row[key] for row in rows if all(row.get(name) == value for name, value in wanted.items())]
    assert len(values) == 10
    return float(np.mean(values))


def test_what_the_page_says_of_figures_is_in_the_rows():
    rows = read(ROOT / "results/figures.jsonl")
    for row in rows:
        if row["figure"] == "region":
            row["end"] = row["region"][-1]
    ends = {}
    for dataset in ("lost", "mixture"):
        for system in ("PRODEN", "PRODEN+POP"):
            ends[dataset, system] = f"{mean_of(rows, 'end', figure='region', dataset=dataset, system=system):.2f}"
    text = FIGURES["region"]
    assert f"PRODEN's region ends at {ends['lost', 'PRODEN']}, POP's at {ends['lost', 'PRODEN+POP']}." in text
    assert f"{ends['mixture', 'PRODEN+POP']} in place of {ends['mixture', 'PRODEN']}." in text
    gains = {}
    for rate in RATES:
        for loss in ("PRODEN", "CC"):
            plain = mean_of(rows, "accuracy", figure="sizes", rate=rate, system=loss)
            gains[loss, rate] = 100 * (
                mean_of(rows, "accuracy", figure="sizes", rate=rate, system=f"{loss} + POP") - plain
            )
    assert round(gains["PRODEN", RATES[-1]]) == 4
    assert f"{max(gains['CC', rate] for rate in RATES):.1f} points above CC" in FIGURES["set-size"]
    assert f"{-gains['CC', RATES[-1]]:.1f} below" in FIGURES["set-size"]


def test_ranks_are_joined_where_they_cannot_be_told_apart():
    ranks = drawing.Ranks(np.array([1.0, 1.4, 3.6]), 0.01, 1.0, 30)
    figure = drawing.draw_ranks(["a", "b", "c"], ranks)
    words = [text.get_text() for text in figure.axes[0].texts]
    assert words == ["a  1.00", "b  1.40", "c  3.60"]
    assert drawing.cliques(ranks.mean, ranks.critical) == [(0, 1)]


@pytest.mark.parametrize(
    "name",
    [
        "region",
        "sensitivity-margin",
        "sensitivity-ratio",
        "set-size",
        "warm-up",
        "ranks",
        "images-difficulty",
        "images-gain",
        "images-sensitivity",
        "images-seconds",
    ],
)
def test_the_figures_in_the_docs_are_those_of_the_rows(name, redrawn):
    shown = (ROOT / f"docs/figures/{name}.svg").read_text()
    if f"Matplotlib v{matplotlib.__version__}" not in shown:
        pytest.skip(f"drawn by another Matplotlib than {matplotlib.__version__}, which may set text differently")
    assert (redrawn / f"{name}.svg").read_text() == shown


@pytest.fixture(scope="module")
def redrawn(tmp_path_factory) -> Path:
    import image_figures
    from figures import draw

    from oneof.storage.rows import read

    folder = tmp_path_factory.mktemp("figures")
    draw(read(ROOT / "results/figures.jsonl"), read(ROOT / "results/tables.jsonl"), folder)
    image_figures.draw(read(ROOT / "results/images.jsonl"), folder)
    return folder
