"""The script behind the rows on images, at its smallest: what it writes, that it resumes, that it keeps to its time."""

from __future__ import annotations

import gzip
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import images
import numpy as np
import pytest
import torch
from on_images import plans, report
from on_images import sets as cards
from on_images.adam import Adam
from on_images.posteriors import FairProden, ProdenSeenByAll, TrailingProden
from scipy.stats import spearmanr

from oneof.cli import main
from oneof.data.augment import views
from oneof.data.augment.views import Plain, Weak
from oneof.methods import Batch, Proden
from oneof.methods.proden import BalancedProden
from oneof.networks import MLP, LeNet
from oneof.purify import PopPrinted, PopRatio, PopReleased
from oneof.storage.rows import read
from oneof.storage.settings import to_serializable
from oneof.training.fit import fit
from oneof.training.training_data import make_training_data
from oneof.training.trials import Training
from oneof_paper import image_sets, teacher
from oneof_paper.compute_image_rows import by_signal, resolved_accuracy, run_row, trial_of
from oneof_paper.compute_rows import rules
from oneof_paper.data.catalogue import NAMED, LabelledData
from oneof_paper.experiments import TABLES
from oneof_paper.images import EPOCHS, KEY, run_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Separable images in MNIST's files: a bright square whose place is the class."""
    folder = tmp_path_factory.mktemp("data")
    for file, n in zip(NAMED["mnist"].files, (120, 120, 50, 50), strict=True):
        labels = np.arange(n) % 10
        values = labels
        if "images" in file:
            values = np.random.default_rng(n).integers(0, 60, (n, 28, 28))
            for i, y in enumerate(labels):
                values[i, 5 * (y // 5) + 4 : 5 * (y // 5) + 9, 5 * (y % 5) : 5 * (y % 5) + 5] += 150
        header = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes()
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(gzip.compress(header + values.astype(np.uint8).tobytes()))
    return folder


@pytest.fixture
def run(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("ONEOF_DATA", str(folder))
    images.images.cache_clear()
    images.pixels.cache_clear()
    places = ["--rows", str(tmp_path / "rows.jsonl"), "--sets", str(tmp_path / "sets")]
    return lambda *arguments: images.main([*arguments, *places])


def rows(tmp_path: Path) -> list[dict]:
    return [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]


def test_tiny_plan_writes_resumes_and_reports(run, tmp_path, capsys):
    run("--plan", "tiny", "--commit", "abc1234")
    found = rows(tmp_path)
    wished = [one.key for one in plans.tiny()]
    assert [images.key_of(row) for row in found] == wished
    for row in found:
        assert row["images"] == 54
        assert row["epoch"] == 4 == len(row["curves"]["accuracy"])
        assert row["accuracy"] == pytest.approx(row["curves"]["accuracy"][-1], abs=1e-4)
        assert row["commit"] == "abc1234"
        assert row["by_oracle"]["epoch"] in (1, 2, 3, 4)
        assert row["by_covering"]["accuracy"] == pytest.approx(
            row["curves"]["accuracy"][row["by_covering"]["epoch"] - 1], abs=1e-4
        )
    by = {(row["system"], row["variant"]): row for row in found}
    assert by["supervised", ""]["accuracy"] > 0.5
    assert by["supervised", ""]["set_size"] == by["supervised", ""]["resolved"] == 1
    assert by["PRODEN", ""]["set_size"] > by["POP", "late"]["set_size"]
    assert by["PRODEN", ""]["true_labels_removed"] == 0
    assert by["POP", "ratio-late"]["purify"]["kind"] == "PopRatio"
    assert by["POP", "balanced-late"]["method"] == by["PRODEN", "balanced"]["method"] != by["PRODEN", ""]["method"]
    shared = by["POP", "late"]["shared_epochs"]
    assert shared == 2 == by["PRODEN", ""]["shared_epochs"]
    for name in ("accuracy", "covering"):  # one run until then
        assert by["PRODEN", ""]["curves"][name][:shared] == by["POP", "late"]["curves"][name][:shared]

    capsys.readouterr()
    run("--plan", "tiny", "--report")
    assert rows(tmp_path) == found  # nothing to do again
    printed = capsys.readouterr().out
    assert "| MNIST | true labels | 4 | supervised |" in printed
    assert printed.count("\n|") == len(found) + 2
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found[:-1]))
    run("--plan", "tiny")
    assert rows(tmp_path)[:-1] == found[:-1]
    assert rows(tmp_path)[-1]["accuracy"] == found[-1]["accuracy"]  # the same seed, the same result
    alone = run_row(
        plans.tiny()[1], "tiny", images.images("mnist", 60), tmp_path / "sets", "cpu"
    )  # as `oneof paper table` does
    assert json.loads(json.dumps(alone | {"seconds": 0, "shared_epochs": 2})) == found[1] | {
        "seconds": 0,
        "commit": alone["commit"],
    }
    assert list(alone) == list(found[1])


@pytest.fixture
def table(folder, tmp_path, monkeypatch, capsys):
    """`oneof paper table`, with trainings that are short."""
    monkeypatch.setitem(EPOCHS, "mnist", 5)
    monkeypatch.setitem(image_sets.DIFFICULTIES, "saturated", 2)

    def table(*arguments: str) -> tuple[int, str, str]:
        places = ["--data-dir", str(folder), "--rows", str(tmp_path / "rows.jsonl"), "--format", "markdown"]
        monkeypatch.setattr(sys, "argv", ["oneof", "paper", "table", *places, *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        return int(end.value.code or 0), *capsys.readouterr()

    return table


def test_table_1_runs_its_cells_and_shows_them(table, tmp_path):
    asked = ("1", "--datasets", "mnist", "--methods", "pop,rcr", "--seeds", "1")
    code, out, err = table(*asked)
    assert (code, "2 trials in" in err) == (0, True), err
    found = [json.loads(line) for line in (tmp_path / "images.jsonl").read_text().splitlines()]
    assert [row["method"]["kind"] for row in found] == ["Proden", "RCR"]
    assert [row["network"]["kind"] for row in found] == ["LeNet", "LeNet"]
    assert [row["views"] for row in found] == ["pop", "rcr"]
    assert found[0]["purify"]["warm_up"] == 4 < found[0]["epochs"]
    for row, shown in zip(found, ("POP (ours)", "RCR"), strict=True):
        accuracies = f"{100 * row['accuracy']:.2f} | {100 * row['by_oracle']['accuracy']:.2f}"
        assert f"| MNIST | {shown} | {accuracies} |" in out
    assert "Filled: 2 of 2 cells" in out
    code, again, err = table(*asked)
    assert (again, "Nothing to run" in err) == (out, True)
    average = np.mean(list(image_sets.read(tmp_path / "sets/mnist-2.npz").card["average"].values()))
    assert f"| MNIST | ours | 120 | 50 | 784 | 10 | {average:.2f} |" in table("6")[1]


def test_table_3_trains_flat_images_in_a_stack_and_tiny_rows_lie_apart(table, tmp_path):
    code, out, err = table("3", "--datasets", "mnist", "--methods", "cc+pop", "--tiny")
    assert (code, "4 trials in" in err) == (0, True), err
    found = [json.loads(line) for line in (tmp_path / "tiny/rows.jsonl").read_text().splitlines()]
    assert [(row["system"], row["seed"]) for row in found] == [("CC+POP", 100)] * 4
    assert found[0]["protocol"]["network"]["kind"] == "GeneratorMLP"
    assert "It runs." in out
    assert "Filled: 0 of 1 cells" in table("3", "--datasets", "mnist", "--methods", "cc+pop", "--show")[1]
    code, _, err = table("3", "--datasets", "mnist", "--seeds", "5-9")
    assert (code, err) == (
        2,
        "oneof: seeds must be of 0, 100, 101, 102, 103, 104 on images, which have sets; got 5-9.\n",
    )


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.skipif("ONEOF_DATA" not in os.environ, reason="needs real data sets: set ONEOF_DATA")
@pytest.mark.parametrize(("number", "dataset"), [("1", "cifar100"), ("3", "cifar10"), ("5", "kmnist")])
def test_tables_run_on_real_images_in_small(table, tmp_path, number, dataset, monkeypatch):
    place = ("--data-dir", os.environ["ONEOF_DATA"])
    names = {"1": "pop-printed,clpl", "3": "lws,lws+pop", "5": "warm-up-1"}[number]
    code, out, err = table(number, "--datasets", dataset, "--methods", names, "--tiny", *place)
    assert (code, "It runs." in out) == (0, True), err


@pytest.mark.parametrize(
    ("number", "dataset", "plan"), [(1, "mnist", "lenet"), (1, "cifar10", "saturated"), (3, "cifar10", "bare")]
)
def test_the_runs_of_a_table_are_those_of_the_plans(number, dataset, plan):
    wanted = [run_of(number, name, dataset, 100) for name in TABLES[number].systems]
    planned = {run.key: run for run in plans.PLANS[plan]()}
    assert len({run.key for run in wanted}) == len(wanted)
    for run in wanted:
        for name in ("method", "purify", "network", "training", "views", "lr", "recipe"):
            assert getattr(run, name) == getattr(planned[run.key], name)


def test_the_rows_that_were_obtained_are_those_of_today_s_specification():
    """Every row of a table's run holds the method, rule and training that the run would have now."""
    wanted = {run.key: run for plan in ("lenet", "saturated", "cifar100", "bare") for run in plans.PLANS[plan]()}
    found = [
        row
        for row in read(ROOT / "results/images.jsonl")
        if report.key_of(row) in wanted and row["plan"] in plans.PLANS
    ]
    assert len(found) > 8
    for row in found:
        run = wanted[report.key_of(row)]
        for name in ("method", "purify", "network", "training"):
            assert row[name] == json.loads(json.dumps(to_serializable(getattr(run, name)))), report.key_of(row)


def test_rows_say_how_many_programs_shared_the_card(run, tmp_path):
    run("--plan", "tiny", "--part", "1/9")
    (first, *_) = rows(tmp_path)
    assert first["programs"] == 9


def test_of_a_plan_some_data_sets_alone(run, tmp_path):
    run("--plan", "tiny", "--datasets", "cifar10,kmnist")
    assert list(tmp_path.iterdir()) == []


def test_of_a_plan_some_variants_alone(run, tmp_path):
    run("--plan", "tiny", "--variants", "late,balanced")
    assert [row["variant"] for row in rows(tmp_path)] == ["late", "balanced"]


def test_programs_that_share_a_plan_take_each_beginning_once(run, tmp_path, monkeypatch):
    performed = []

    def perform(runs, *_):
        performed.append([run.key for run in runs])
        return ()  # the other program has not written its rows yet

    monkeypatch.setattr(images, "perform", perform)
    taken = str(tmp_path / "taken")
    run("--plan", "tiny", "--claims", taken)
    first_program = list(performed)
    assert first_program
    run("--plan", "tiny", "--claims", taken)
    assert performed == first_program


def test_runs_with_rows_in_another_file_are_done(run, tmp_path, monkeypatch):
    other = tmp_path / "other.jsonl"
    other.write_text("".join(json.dumps(dict(zip(KEY, one.key, strict=True))) + "\n" for one in plans.tiny()))
    monkeypatch.setattr(images, "perform", lambda *_: pytest.fail("a run that is done was trained again"))
    run("--plan", "tiny", "--known", str(other))


def test_no_time_no_run(run, tmp_path, capsys):
    run("--plan", "tiny", "--limit-seconds", "0")
    assert list(tmp_path.iterdir()) == []
    assert "would take about" in capsys.readouterr().out


def test_saved_sets_are_the_drawn_ones_with_a_card(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("ONEOF_DATA", str(folder))
    images.images.cache_clear()
    data = images.images("mnist", 120)
    monkeypatch.setitem(image_sets.DIFFICULTIES, "tiny", 10)
    made = image_sets.draw(data, "tiny", "cpu", cards.difficulty)
    monkeypatch.setitem(image_sets.DIFFICULTIES, "tiny", 1)
    image_sets.write(image_sets.path_of(tmp_path, "mnist", "tiny"), made)
    read = image_sets.sets_of(tmp_path, data, "tiny", "cpu")
    for seed, mask in made.masks.items():
        np.testing.assert_array_equal(read.masks[seed], mask)
        assert mask[np.arange(120), data.labels[:120]].all()
        assert read.card["average"][str(seed)] == round(float(mask.sum(1).mean()), 4)
    assert (read.masks[0] != read.masks[100]).any()
    assert read.card["kind"] == {"kind": "InstanceRate", "rate": 0.4, "temperature": 1.0}
    assert read.card["paper_average_reached"] is False  # 8.71 is beyond the bound
    assert read.card["top_wrong_in_set"] > 0.5
    half = LabelledData("mnist", data.x[::2], data.labels[::2], data.classes, None, np.arange(60, 85))
    with pytest.raises(
        ValueError, match=r"mnist-1\.npz must hold a set per training image \(60\); got 120\. Remove the file"
    ):
        image_sets.sets_of(tmp_path, half, "tiny", "cpu")


def test_predictable_tells_systematic_sets_from_noise():
    rng = np.random.default_rng(0)
    x, labels = rng.integers(0, 256, (600, 6, 6)), rng.integers(3, size=600)
    noise = np.eye(4, dtype=bool)[labels]
    systematic = noise.copy()
    noise[:, 3] = rng.random(600) < 0.5
    systematic[:, 3] = x[:, 0, 0] > 128
    assert cards.predictable(x, labels, noise) < 0.05
    assert cards.predictable(x, labels, systematic) > 0.4
    assert cards.predictable(x, labels, np.eye(4, dtype=bool)[labels]) == 0


def test_a_branch_is_the_run_it_would_have_been_alone(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("ONEOF_DATA", str(folder))
    images.images.cache_clear()
    images.pixels.cache_clear()
    runs = [*plans.tiny()[:4], plans.Run("mnist", "tiny", "POP", 0, 4, "last", 60, batch=6)]  # which leaves it later
    network, data = LeNet(), images.images("mnist", 60)
    mask = images.candidates(runs[0], data, tmp_path, "cpu")
    x, own, training = images.pixels("mnist", 60, "cpu"), trial_of(runs[0], data), Training(4, 18)
    seen = views("pop", "mnist", device="cpu", dtype=torch.float32)
    problem = make_training_data(x, mask, [own], Proden(), None, training, seen, data.labels, torch.device("cpu"))
    for run, fitted, _, _ in images.fits_of(runs, network, problem):
        setting = {"method": run.method, "purify": run.purify, "network": network, "training": training}
        solo = fit(x, mask, trials=[own], views=seen, labels=data.labels, **setting)
        assert torch.equal(fitted.candidates, solo.candidates)
        assert torch.equal(fitted.history["accuracy"], solo.history["accuracy"])
        for name, weight in solo.stack.weights.items():
            assert torch.equal(fitted.stack.weights[name], weight)


def test_held_out_rows_are_never_trained_on_and_every_seed_has_its_own():
    data = LabelledData("mnist", np.zeros((70, 2, 2)), np.zeros(70, dtype=int), list("ab"), None, np.arange(60, 70))
    one, two = (trial_of(plans.Run("mnist", "20", "PRODEN", seed, 1), data) for seed in (100, 101))
    assert len(one.held_out) == 6
    assert sorted([*one.rows, *one.held_out]) == list(range(60))
    assert set(one.held_out) != set(two.held_out)
    np.testing.assert_array_equal(one.test, data.test)


def test_a_row_is_resolved_to_a_label_of_its_set():
    logits = torch.tensor([[[0.0, 3.0, 1.0], [2.0, 0.0, 1.0], [0.0, 1.0, 5.0]]])
    left = torch.tensor([[[True, False, True], [True, True, False]]])
    fitted = SimpleNamespace(rows=torch.tensor([[0, 1]]), candidates=left, logits=lambda x: logits)
    assert resolved_accuracy(fitted, None, np.array([2, 0, 0])) == 1
    assert resolved_accuracy(fitted, None, np.array([1, 1, 0])) == 0


def test_of_equal_epochs_the_latest_is_taken():
    column = torch.tensor([[0.5], [0.9], [0.9], [0.1]])
    accuracy = torch.arange(4.0)[:, None]
    history = {**dict.fromkeys(rules(), column), "accuracy": accuracy}
    found = by_signal(SimpleNamespace(history=history))
    assert found["by_covering"] == {"epoch": 3, "accuracy": 2.0}


def test_pop_sees_the_geometric_mean_of_all_views_and_proden_the_first():
    logits = torch.randn(1, 3, 2, 4)  # one trial, three views, two rows
    batch = Batch(torch.ones(1, 2, 4, dtype=torch.bool), torch.full((1, 2, 4), 0.25), torch.tensor(0), [])
    done = ProdenSeenByAll().step(lambda x: logits.flatten(1, 2), torch.zeros(3, 1, 2, 5), batch, ())
    mean = logits[0].log_softmax(-1).mean(0)
    torch.testing.assert_close(done.logits[0].softmax(-1), mean.softmax(-1))
    torch.testing.assert_close(done.memory[0], logits[0, 0].softmax(-1))


@pytest.mark.parametrize(
    ("method", "plain"),
    [
        (FairProden(), BalancedProden(1.0)),
        (TrailingProden(balance=1.0, momentum=0.0), BalancedProden(1.0)),
        (TrailingProden(balance=0.0, momentum=0.0), Proden()),
    ],
)
def test_without_pop_and_delay_other_posteriors_are_those_they_are_made_from(method, plain):
    rng = np.random.default_rng(0)
    x, mask = rng.normal(size=(60, 5)), rng.random((60, 4)) < 0.5
    mask[:, 0] |= ~mask.any(1)
    setting = {"training": Training(6, 20), "network": MLP(hidden=(8,))}
    found, wished = (fit(x, mask, method=one, **setting) for one in (method, plain))
    for name, weight in wished.stack.weights.items():
        torch.testing.assert_close(found.stack.weights[name], weight)
    trailing = fit(x, mask, method=TrailingProden(balance=1.0, momentum=0.9), **setting)
    assert any(
        (trailing.stack.weights[name] - weight).abs().max() > 1e-3 for name, weight in found.stack.weights.items()
    )


def test_pop_sees_the_posterior_over_what_each_label_has_gathered():
    logits, gathered = torch.randn(1, 6, 4), torch.tensor([[[0.5, 0.2, 0.2, 0.1]]])
    net = SimpleNamespace(weights={"head.bias": torch.zeros(1, 4)})
    method = FairProden()
    memory, shared = method.refresh(net, None, gathered.expand(1, 2, 4), method.shared(net), 0)
    torch.testing.assert_close(memory, torch.full((1, 2, 4), 0.25))
    batch = Batch(torch.ones(1, 2, 4, dtype=torch.bool), memory, torch.tensor(0), [])
    done = method.step(lambda x: logits, torch.zeros(3, 1, 2, 5), batch, shared)
    fair = logits[:, :2].softmax(-1) / gathered
    torch.testing.assert_close(done.logits.softmax(-1), fair / fair.sum(-1, keepdim=True))
    torch.testing.assert_close(done.memory, logits[:, :2].softmax(-1))  # balanced before the next epoch, not twice


def test_variants_name_bases_and_a_schedule():
    run = plans.Run("kmnist", "20", "POP", 0, 50, "upright-fair-trailing-late-strict")
    assert run.bases == ["upright", "fair", "trailing"]
    assert run.schedule is plans.SCHEDULES["late-strict"]
    assert run.views == "upright"
    assert run.method == TrailingProden(balance=1.0)
    mixed = plans.Run("kmnist", "20", "PRODEN", 0, 50, "mixup")
    assert (mixed.training.mixup, mixed.purify, mixed.trunk == run.trunk) == (0.3, None, False)
    both = plans.together("kmnist", "20", 0, 50, ["late", "fair-last", "last"])
    assert [(one.system, one.variant) for one in both] == [
        ("PRODEN", ""), ("POP", "late"), ("POP", "last"), ("PRODEN", "fair"), ("POP", "fair-last"),
    ]  # fmt: skip


def test_a_row_of_the_old_second_forward_is_not_that_of_a_run_of_today(tmp_path):
    runs = [plans.Run("mnist", "20", loss, 100, 50, variant) for loss in ("PRODEN", "RC") for variant in ("", "bare")]
    runs.append(plans.Run("mnist", "20", "PRODEN", 100, 50, "mixup"))
    assert [run.second_forward for run in runs] == ["", "", "all views", "", "all views"]
    written = dict(zip(KEY, runs[2].key, strict=True))
    without = {name: value for name, value in written.items() if name != "second_forward"}
    assert report.key_of(written) == runs[2].key != report.key_of(without)
    other = dict(zip(KEY, runs[0].key, strict=True)) | {"accuracy": 0.5}
    for name, rows in (("old", [other, without]), ("new", [other | {"accuracy": 0.4}, without, written])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for _ in range(2):  # a second time changes nothing
        images.main(["--merge", str(tmp_path / "new.jsonl"), "--rows", str(tmp_path / "old.jsonl")])
        assert read(tmp_path / "old.jsonl") == [other, written]


def test_pop_as_released_purifies_from_epoch_20_on_by_the_released_schedule():
    by_variant = {run.variant: run for run in plans.released() if run.dataset == "cifar10"}
    assert list(by_variant) == ["stepped", "stepped-released", "stepped-printed-20", "stepped-last"]
    assert len({run.trunk for run in by_variant.values()}) == 1
    rates = [by_variant["stepped"].training.schedule(epoch, 200) for epoch in (0, 99, 100, 150)]
    assert rates == pytest.approx([1, 1, 0.1, 0.01])
    assert by_variant["stepped-released"].purify == PopReleased()
    assert by_variant["stepped-printed-20"].purify.warm_up == 20
    assert by_variant["stepped-last"].purify.warm_up == 160


def test_adam_is_that_of_torch_in_every_trial():
    rng = torch.Generator().manual_seed(0)
    weight = torch.randn(2, 3, 4, generator=rng, dtype=torch.float64)
    alone = [torch.nn.Parameter(weight[trial].clone()) for trial in range(2)]
    theirs = [torch.optim.Adam([alone[trial]], lr=lr, weight_decay=1e-3) for trial, lr in enumerate((0.1, 0.01))]
    ours = Adam()
    state = ours.init([weight])
    for _ in range(5):
        gradient = torch.randn(2, 3, 4, generator=rng, dtype=torch.float64)
        ours.step([weight], [gradient], state, torch.tensor([0.1, 0.01], dtype=torch.float64), (1e-3, 1e-3))
        for trial, optimizer in enumerate(theirs):
            alone[trial].grad = gradient[trial]
            optimizer.step()
    torch.testing.assert_close(weight, torch.stack([parameter.detach() for parameter in alone]))


def test_weight_decay_and_views_of_a_variant():
    run = plans.Run("cifar100", "saturated", "PRODEN", 100, 100, "decay.0005")
    assert (run.weight_decay, run.lr, run.views) == (5e-4, 0.05, "pop")
    assert plans.Run("mnist", "20", "CAVL", 100, 50, "slow").lr == 0.01
    assert run_of(1, "valen", "cifar10", 100).views == "pop"
    assert replace(run_of(1, "valen", "cifar10", 100), variant="authors").views == "plain"


def test_the_classifier_that_draws_sets_sees_colour_images_varied():
    assert [type(kind) for kind, _ in teacher._teacher_views("cifar10", False, "cpu").kinds] == [Weak]
    assert [type(kind) for kind, _ in teacher._teacher_views("mnist", True, "cpu").kinds] == [Plain]


def test_parts_share_a_plan_and_keep_beginnings_together():
    runs = plans.cifar()
    parts = [images.part_of(runs, f"{i}/2") for i in (1, 2)]
    assert sorted(run.key for part in parts for run in part) == sorted(run.key for run in runs)
    assert {run.difficulty for run in parts[0]} == {"saturated", "clean"}
    assert {run.difficulty for run in parts[1]} == {"20", "clean"}


@pytest.mark.parametrize("epochs", [4, 40, 50, 150])
@pytest.mark.parametrize("variant", plans.SCHEDULES)
def test_thresholds_reach_their_end_within_the_training(variant, epochs):
    schedule = plans.SCHEDULES[variant]
    rule = schedule.rule(epochs)
    events = sum(map(rule.event, range(epochs)))
    if isinstance(rule, PopRatio):
        reached = rule.theta
        for _ in range(events):
            reached *= 1 + rule.inc if reached < rule.theta_end else 1
        assert 0.35 < reached < 0.45 or events == 1
    else:
        assert rule.e0 - events * rule.e_s <= rule.e_end + 1e-9
    assert rule.warm_up >= schedule.start * epochs - 1


def test_covering_rate_ranks_the_schedules_in_the_mean_and_not_within_a_cell():
    rows = [row for row in read(ROOT / "results/images.jsonl") if row["plan"] == "schedules" and row["system"] == "POP"]

    def correlation(rows: list[dict]) -> float:
        names = sorted({row["variant"] for row in rows})
        signals = [[np.mean([row[name] for row in rows if row["variant"] == one]) for one in names] for name in ("covering", "accuracy")]  # fmt: skip
        return float(spearmanr(*np.round(signals, 9)).statistic)

    cells = {(row["dataset"], row["difficulty"]) for row in rows}
    within = [correlation([row for row in rows if (row["dataset"], row["difficulty"]) == cell]) for cell in cells]
    assert correlation(rows) > 0.8
    assert min(within) < 0.5


def row(run: plans.Run, accuracy: float, covering: float = 0.9) -> dict:
    """What tables look at, as `images.py` would write it."""
    named = {name: getattr(run, name) for name in KEY} | {"plan": "mnist-like", "views": run.views}
    same = {"resolved": 0.5, "approximated": 0.5, "set_size": 2.0, "true_labels_removed": 0.0}
    return named | same | {"accuracy": accuracy, "covering": covering}


def test_a_table_compares_on_the_same_sets_views_and_seeds_and_corrects_its_tests():
    rows = []
    for seed, noise in zip(range(100, 104), (0.0, 0.001, 0.002, 0.001), strict=True):
        for variant, accuracy in (("upright", 0.8), ("upright-fair", 0.85 + 20 * noise)):
            rows.append(row(plans.Run("mnist", "20", "PRODEN", seed, 50, variant), accuracy))
        rows.append(row(plans.Run("mnist", "20", "POP", seed, 50, "upright-fair-quiet"), 0.84 + noise))
    rows.append(row(plans.Run("mnist", "20", "PRODEN", 100, 50), 0.1))  # flipped: compared with nothing
    rows.append(row(plans.Run("mnist", "20", "POP", 100, 50, "last"), 0.3))
    lines = {line.split(" | ")[3]: line.split(" | ") for line in report.table(rows, rows).splitlines()[2:]}
    assert lines["POP upright-fair-quiet"][4:6] == ["84.10 ± 0.08 (4)", "+4.10"]
    p, corrected = map(float, lines["POP upright-fair-quiet"][6:8])
    assert corrected == pytest.approx(2 * p, rel=0.05)  # the smaller of two
    assert lines["POP upright-fair-quiet"][8] == "-2.90"
    assert lines["PRODEN upright-fair"][5] == "+7.00"
    assert lines["PRODEN upright-fair"][6] == lines["PRODEN upright-fair"][7]
    assert lines["PRODEN upright"][5:9] == ["", "", "", ""]
    assert lines["POP last"][5:9] == ["+20.00", "", "", "+20.00"]


def test_signs_are_counted_seed_by_seed():
    rows = []
    for seed, (signal, truth) in enumerate([(0.1, 0.1), (-0.1, -0.1), (0.1, -0.1), (0.0, 0.1), (0.1, 0.0)], 100):
        rows.append(row(plans.Run("mnist", "20", "PRODEN", seed, 50, "upright"), 0.5, 0.5))
        rows.append(row(plans.Run("mnist", "20", "POP", seed, 50, "upright-last"), 0.5 + truth, 0.5 + signal))
    assert report.signs(rows, "POP", "last") == (2, 1, 2)


def test_the_schedule_that_is_reported_is_the_one_that_held_out_sets_prefer():
    choice = report.choice(read(ROOT / "results/images.jsonl")).splitlines()
    assert {line.split(" | ")[3] for line in choice[2:]} == {"6 |"}  # all were tried in every cell
    best = next(line for line in choice if line.startswith("| POP"))
    assert best.split(" | ")[0] == f"| POP {plans.CHOSEN}"


def test_every_system_of_table_1_trains_with_its_own_loss_and_settings():
    planned = [*plans.saturated(), *plans.clpl()]
    losses = {run.system: type(run.method).__name__ for run in planned if run.purify is None}
    assert losses == {
        "PRODEN": "Proden", "RC": "RC", "CC": "CC", "LWS": "LWS", "CAVL": "CAVL", "CLPL": "CLPL", "CLPL (softmax)": "CLPLSoftmax",
        "RCR": "RCR", "PiCO": "PiCO", "VALEN": "Valen",
    }  # fmt: skip
    by = {(run.system, run.variant): run for run in [*plans.lenet(), *plans.saturated(), *plans.bare()]}
    assert [by["RCR", "authors"].lr, by["RCR", "authors"].training.batch, by["RCR", ""].lr] == [0.1, 64, 0.05]
    assert [by["PiCO", "authors"].views, by["PiCO", "authors"].lr] == ["pico", 0.01]
    assert by["POP", "printed-last"].purify == PopPrinted(80, e0=0.95, e_end=0.1, e_s=0.05)
    assert by["CC+POP", "bare-last"].method == by["CC", "bare"].method
    assert by["CC+POP", "bare-last"].trunk == by["CC", "bare"].trunk != by["RC", "bare"].trunk
    assert [by["CC", one].views for one in ("bare", "upright", "")] == ["plain", "upright", "pop"]


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["lenet", "printed"])
def test_a_plan_runs_in_small(run, tmp_path, plan, monkeypatch):
    wished = [one for one in plans.PLANS[plan]() if one.dataset == "mnist"]
    monkeypatch.setitem(plans.PLANS, plan, lambda: wished)
    run("--plan", plan, "--tiny")
    found = {(row["system"], row["variant"]): row for row in rows(tmp_path)}
    assert set(found) == {(one.system, one.variant) for one in wished}
    assert all(row["epoch"] == 5 and 0 <= row["accuracy"] <= 1 for row in found.values())


def test_a_hundred_classes_have_a_tenth_of_the_rate(monkeypatch):
    rng = np.random.default_rng(0)
    data = LabelledData(
        "cifar100",
        rng.integers(0, 256, (400, 4, 4, 3)),
        np.arange(400) % 100,
        list(range(100)),
        None,
        np.arange(300, 400),
    )
    monkeypatch.setattr(image_sets, "dataset_logits", lambda *_, **__: rng.normal(size=(400, 100)))
    made = image_sets.draw(data, "tiny", "cpu")
    assert made.card["kind"]["rate"] == 0.04
    assert made.card["average"][0] == pytest.approx(NAMED["cifar100"].paper.average, abs=0.5)


def test_the_printed_generator_reaches_the_printed_average_of_mnist(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    labels = rng.integers(10, size=400)
    data = LabelledData("mnist", rng.integers(0, 256, (400, 6, 6)), labels, list(range(10)), None, np.arange(300, 400))
    monkeypatch.setattr(image_sets, "dataset_logits", lambda *_, **__: rng.normal(size=(400, 10)))
    made = image_sets.sets_of(tmp_path, data, "printed", "cpu")
    assert (tmp_path / "mnist-200-printed.npz").exists()
    assert made.card["kind"]["kind"] == "InstancePaper"
    assert made.card["paper_average_reached"] is True
    assert made.card["average"]["0"] == pytest.approx(8.71, abs=0.2)


def test_plans_have_no_run_twice():
    for plan in plans.PLANS.values():
        keys = [run.key for run in plan()]
        assert len(keys) == len(set(keys))
        assert all(run.method and bool(run.purify) == run.system.endswith("POP") for run in plan())
