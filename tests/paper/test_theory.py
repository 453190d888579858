"""The theorems' quantities against loops, and what holds and fails where the posterior is known."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from commands import call

from oneof.storage.rows import read
from oneof_paper import theory
from oneof_paper.cli.theory import theory as theory_command

ROWS = read(Path(__file__).parents[2] / "results/theory.jsonl")


@pytest.fixture(scope="module")
def line():
    world = theory.line(m=400)
    known = theory.constants(world)
    return world, known, list(theory.purified(world, known))


def test_the_command_uses_one_thread(monkeypatch):
    threads = []

    def no_rows():
        threads.append(torch.get_num_threads())
        return []

    monkeypatch.setattr(theory, "rows", no_rows)
    torch.set_num_threads(2)
    assert call("paper", "theory").returncode == 0
    assert threads == [1]


def test_masses_sum_to_one_and_sets_hold_the_truth():
    for make in (theory.line(m=50), theory.sampled("printed", 0, n=60), theory.sampled("within the bound", 0, n=60)):
        assert make.mass.sum() == pytest.approx(1)
        assert make.sets.any(-1).all()
        assert make.sets.gather(-1, make.drawn[..., None]).all()  # the true label is in its set
        torch.testing.assert_close(make.posterior.sum(-1), torch.ones(len(make.x)).double())


def test_inconsistency_is_the_conditional_expectation():
    world = theory.sampled("rate", 1, n=40)
    found = theory.inconsistency(world, world.sets)
    u, sets = theory.margin(world.posterior), world.sets[0]
    for i in range(40):
        for j in range(6):
            among = [z for z in range(40) if u[z] >= u[i] and sets[z, j]]
            if among:
                wished = sum(int(world.bayes[z]) != j for z in among) / len(among)
                assert float(found[i, j]) == pytest.approx(wished)


def test_the_classifier_of_true_labels_is_the_posterior():
    world = theory.line(m=400)
    truth = torch.nn.functional.one_hot(world.drawn, 2).bool()
    torch.testing.assert_close(theory.fit_linear(world, truth, decay=0.0), world.posterior, atol=1e-3, rtol=0)


def test_alpha_makes_equation_1_hold_and_no_smaller_one_does(line):
    world, known, _ = line
    f = theory.fit_linear(world, world.sets)
    gap, error = (f - world.posterior).abs(), theory.inconsistency(world, world.sets)
    assert (gap <= known.alpha * error + theory.EPSILON / 6 + 1e-9).all()
    assert not (gap <= 0.99 * known.alpha * error + theory.EPSILON / 6).all()


def test_where_the_premises_hold_so_does_the_conclusion(line):
    _, known, rounds = line
    assert known.e0 == pytest.approx(((1 + 0.9) * known.alpha + 0.1 / 6) / (1 + known.alpha), rel=1e-3)
    assert known.e0 < 1
    assert known.high / known.low == pytest.approx(1, abs=0.06)
    assert len(rounds) == math.ceil(known.rounds) + 1
    for before, after in pairwise(rounds):
        assert after["boundary"] <= after["e"]  # L(e) is pure
        assert 1 - after["e"] >= known.growth * (1 - before["e"]) - 1e-9 or after["e"] == theory.EPSILON
        assert after["boundary"] <= before["boundary"]
        assert after["alpha"] <= before["alpha"]
    assert rounds[-1]["agreement"] > rounds[0]["agreement"] > known.final


def test_with_both_sides_the_region_shrinks_and_the_gap_grows():
    world = theory.line(one_sided=False, m=400)
    known = theory.constants(world)
    first, *_, last = theory.purified(world, known)
    assert known.e0 >= 1
    assert math.isnan(known.rounds)
    assert last["boundary"] > first["boundary"]
    assert last["gap"] > first["gap"]
    assert last["true_fell"] > 0.05 > last["bayes_fell"]


def test_pure_sets_contradict_equation_1():
    world = theory.line(m=400)
    sets = torch.nn.functional.one_hot(world.bayes, 2).bool().expand_as(world.sets)
    assert theory.alpha_of(theory.fit_linear(world, sets), world, sets, theory.EPSILON) == math.inf


def test_the_bound_on_flips_fails_for_the_printed_generator():
    assert theory.constants(theory.sampled("printed", 0, n=300)).t > 100
    assert theory.constants(theory.sampled("within the bound", 0, n=300)).t == pytest.approx(0.9)


def test_the_command_prints_every_distribution(monkeypatch, capsys):
    monkeypatch.setattr(theory, "DISTRIBUTIONS", {"line, one side": lambda: theory.line(m=100)})
    theory_command()
    head, _, line = capsys.readouterr().out.strip().splitlines()
    assert head.count("|") == line.count("|") == len(theory.HEADER) + 1
    assert line.startswith("| line, one side | 0.9 | 1")


def test_the_page_says_what_the_rows_say():
    def of(world: str, **wished) -> list[dict]:
        return [
            row for row in ROWS if row["world"].startswith(world) and all(row.get(k) == v for k, v in wished.items())
        ]

    later = [row for row in of("mixture", kind="round") if row["round"]]
    assert len(later) == 4 * 3 * len(theory.THRESHOLDS)
    assert all(row["alpha"] is None for row in later)  # "infinite on every mixture after the first round"
    assert all(row["growth"] < 1.02 for row in of("mixture", kind="constants"))
    (known,) = of("line, one side", kind="constants")
    assert known["printed_rounds"] > 5 * known["rounds"]
    for world in ("line, both sides", "mixture, rate", "mixture, printed"):
        before, after, kept = (
            sum(row["region"] for row in of(world, **which))
            for which in ({"kind": "round", "round": 0}, {"kind": "round", "round": 8}, {"kept": "true"})
        )
        assert after < before <= kept
    assert {row["world"] for row in ROWS} == set(theory.DISTRIBUTIONS)


def test_a_row_can_be_made_again():
    (stored,) = [row for row in ROWS if row["world"] == "line, both sides" and row["kind"] == "constants"]
    again = theory.constants(theory.DISTRIBUTIONS["line, both sides"]())
    assert stored["alpha"] == pytest.approx(again.alpha, rel=1e-3)
