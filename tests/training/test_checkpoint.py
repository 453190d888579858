"""Checkpoints: stopped anywhere and resumed, a run ends with the numbers of one never stopped."""

from __future__ import annotations

import hashlib
import json
import signal
import threading
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import save

import oneof.training.fit
import oneof.training.loop
from oneof.candidates.generate import Flip, generate
from oneof.data.augment import views
from oneof.methods import METHODS, RCR, PiCO, Proden, Valen
from oneof.networks import MLP, GeneratorMLP, LeNet
from oneof.purify import Pop, PopRatio
from oneof.training.fit import fit
from oneof.training.trials import Training, Trial
from oneof_paper.synthetic import mixture

DATA = mixture(n=90, d=3, c=4, seed=1)
SETS = generate(DATA.labels, 4, Flip(0.4), seed=2)
ROWS = {"rows": np.arange(60), "held_out": np.arange(60, 75), "test": np.arange(75, 90)}
TRAINING = Training(epochs=6, batch=16)
POP = Pop(1, 2, 2, True, 0.6, 0.1, 0.1)


@dataclass(frozen=True)
class Signs:
    """An optimiser of one's own: steps of equal size against the sign of a running mean."""

    share: float = 0.5

    def init(self, weights):
        return [[torch.zeros_like(w)] for w in weights]

    def step(self, weights, gradients, state, lr, decay):
        for w, g, (mean,) in zip(weights, gradients, state, strict=True):
            mean.lerp_(g, self.share)
            w.sub_(0.1 * lr.view(-1, *[1] * (w.dim() - 1)) * mean.sign())


class Killed(Exception):
    """Stands for the end of the process."""


def run(folder=None, *, stop_after=None, every=0.0, monkeypatch=None, **changes):
    """A run; with `stop_after`, one that dies after so many steps."""
    setting = {
        "trials": [Trial(seed=seed, scaling="feature", **ROWS) for seed in range(2)], "method": Proden(), "purify": POP,
        "network": MLP((8,)), "training": TRAINING, "labels": DATA.labels, "choose": "approximated",
    } | changes  # fmt: skip
    x, sets = setting.pop("x", DATA.x), setting.pop("sets", SETS)
    if stop_after is not None:
        monkeypatch.setattr(oneof.training.fit, "steps", dying(stop_after))
    try:
        return fit(x, sets, checkpoint=folder, every=every, **setting)
    finally:
        if monkeypatch:
            monkeypatch.undo()


def dying(after):
    from oneof.training.loop import steps

    def some_steps(problem, state):
        for number, record in enumerate(steps(problem, state)):
            yield record
            if number == after:
                raise Killed

    return some_steps


def assert_same(one, other, x=DATA.x):
    assert torch.equal(one.logits(x), other.logits(x))
    assert torch.equal(one.candidates, other.candidates)
    assert torch.equal(one.epoch, other.epoch)
    for a, b in zip(one.history.values(), other.history.values(), strict=True):
        assert torch.equal(a, b)
    for a, b in zip(one.removals or (), other.removals or (), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("stop_after", [0, 3, 4, 7, 13, 28])
def test_stopped_anywhere_it_ends_the_same(tmp_path, monkeypatch, stop_after):
    """Four steps and a record an epoch: within an epoch, at its end, before, at and after an event."""
    with pytest.raises(Killed):
        run(tmp_path, stop_after=stop_after, monkeypatch=monkeypatch)
    assert_same(run(tmp_path), run())


def count_steps(monkeypatch, interrupt_at=()):
    """Count the steps of training; Ctrl-C comes in the middle of those whose numbers are given."""
    step = oneof.training.loop.step
    numbers = []

    def counted(*arguments):
        numbers.append(len(numbers))
        if numbers[-1] in interrupt_at:
            signal.raise_signal(signal.SIGINT)
        return step(*arguments)

    monkeypatch.setattr(oneof.training.loop, "step", counted)
    return numbers


@pytest.mark.parametrize("interrupt_at", [0, 2, 3, 13, 23])
def test_interrupted_before_the_first_interval_it_goes_on_from_there(tmp_path, monkeypatch, interrupt_at):
    with monkeypatch.context() as patched:
        count_steps(patched, [interrupt_at])
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, every=1e9)
    steps = count_steps(monkeypatch)
    resumed = run(tmp_path, every=1e9)
    assert len(steps) == 24 - (interrupt_at + 1)
    assert_same(resumed, run())


def test_interrupted_again_and_again_no_step_is_repeated(tmp_path, monkeypatch):
    steps = count_steps(monkeypatch, [3, 4, 11])
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, every=1e9)
    resumed = run(tmp_path, every=1e9)
    assert len(steps) == 24
    assert_same(resumed, run())


def test_a_second_interrupt_does_not_wait(tmp_path, monkeypatch):
    count_steps(monkeypatch, [0])
    monkeypatch.setattr(
        oneof.training.fit.Checkpointer, "save", lambda *arguments, **now: signal.raise_signal(signal.SIGINT)
    )
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, every=1e9)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_it_trains_in_a_thread_where_signals_cannot_be_handled(tmp_path):
    fits = []
    thread = threading.Thread(target=lambda: fits.append(run(tmp_path)))
    thread.start()
    thread.join()
    assert_same(fits[0], run())


@pytest.mark.parametrize(
    "changes",
    [
        *[{"method": METHODS[name]()} for name in METHODS if METHODS[name].views == 1 and name != "valen"],
        {"method": Valen(warm_up=2)},
        {"purify": None},
        {"purify": PopRatio(1, 2, 1)},
        {"training": replace(TRAINING, mixup=0.5, noise=0.1)},
        {"training": replace(TRAINING, optimizer=Signs())},
        {"training": replace(TRAINING, average=0.95)},
        {"training": replace(TRAINING, average=0.95), "network": GeneratorMLP((8,))},  # with batch normalisation
        {"trials": [Trial(seed=5, **ROWS)], "choose": "last"},
        {"memory": 1},
    ],
)
def test_whatever_is_trained(tmp_path, monkeypatch, changes):
    with pytest.raises(Killed):
        run(tmp_path, stop_after=16, monkeypatch=monkeypatch, **changes)
    assert_same(run(tmp_path, **changes), run(**changes))


@pytest.mark.parametrize(
    ("method", "recipe"), [(RCR(ramp=2), "rcr"), (PiCO(queue=64, epochs=3), "pico"), (Proden(), "pop")]
)
def test_images_with_views_and_shared_state(tmp_path, monkeypatch, method, recipe):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, size=(60, 1, 8, 8), dtype=np.uint8)
    changes = {
        "x": x, "sets": SETS[:60], "labels": None, "choose": "last", "network": LeNet(), "method": method,
        "trials": [Trial(seed=0, lr=0.01)], "training": Training(2, 32), "views": views(recipe, "mnist"), "purify": Pop(0, 1, 1),
    }  # fmt: skip
    with pytest.raises(Killed):
        run(tmp_path, stop_after=2, monkeypatch=monkeypatch, **changes)
    assert_same(run(tmp_path, **changes), run(**changes), x)


def test_a_finished_run_is_not_run_again(tmp_path, monkeypatch):
    first = run(tmp_path)
    assert_same(run(tmp_path, stop_after=0, monkeypatch=monkeypatch), first)


def test_only_the_last_two_are_kept(tmp_path):
    run(tmp_path)
    names = sorted(path.name for path in (tmp_path / "stack-1").iterdir())
    assert len(names) == 4
    assert {name.rsplit(".", 1)[1] for name in names} == {"json", "safetensors"}


@pytest.mark.parametrize("damage", ["cut", "flip", "json", "deep", "null", "gone"])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path, monkeypatch, damage):
    with pytest.raises(Killed):
        run(tmp_path, stop_after=17, monkeypatch=monkeypatch)
    newest = sorted((tmp_path / "stack-1").glob("*.safetensors"))[-1]
    content = newest.read_bytes()
    if damage == "cut":
        newest.write_bytes(content[: len(content) // 2])
    elif damage == "flip":
        newest.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    elif damage == "json":
        newest.with_suffix(".json").write_text('{"epoch": 3')
    elif damage == "deep":
        newest.with_suffix(".json").write_text("[" * 100_000)
    elif damage == "null":
        newest.with_suffix(".json").write_text("null")
    else:
        newest.unlink()
    assert_same(run(tmp_path), run())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training": Training(epochs=9, batch=16)}, r"training\.epochs was 6, now 9\. Give another folder, or delete"),
        ({"method": METHODS["cc"]()}, r"method\.kind was 'Proden', now 'CC'"),
        ({"purify": None}, r"purify was .*, now None"),
        ({"network": MLP((9,))}, r"network\.hidden was \[8\], now \[9\]"),
        ({"x": DATA.x * 2}, r"data was '.*', now '.*'"),
        ({"sets": ~SETS | SETS}, r"data was"),
        ({"choose": "covering"}, r"choose was 'approximated', now 'covering'"),
        ({"trials": [Trial(seed=seed, **ROWS) for seed in range(2)]}, r"trials was"),
        ({"trials": [Trial(seed=0, **ROWS)]}, r"it has 2 trials, now 1"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path, monkeypatch, changes, message):
    with pytest.raises(Killed):
        run(tmp_path, stop_after=6, monkeypatch=monkeypatch)
    with pytest.raises(ValueError, match=message):
        run(tmp_path, **changes)


def test_functions_are_known_by_what_they_do(tmp_path):
    """A lambda that does the same resumes, one that does another thing is refused; so for partials."""
    schedules = [lambda epoch, epochs: 1.0, lambda epoch, epochs: 1.0, lambda epoch, epochs: 0.5]
    first = run(tmp_path / "a", training=replace(TRAINING, schedule=schedules[0]))
    assert_same(run(tmp_path / "a", training=replace(TRAINING, schedule=schedules[1])), first)
    with pytest.raises(ValueError, match=r"training\.schedule was"):
        run(tmp_path / "a", training=replace(TRAINING, schedule=schedules[2]))
    networks = [partial(wide, 8), partial(wide, 8), partial(wide, 9)]
    first = run(tmp_path / "b", network=networks[0])
    assert_same(run(tmp_path / "b", network=networks[1]), first)
    with pytest.raises(ValueError, match=r"network\.of was \[8\], now \[9\]"):
        run(tmp_path / "b", network=networks[2])


def wide(width, shape, classes):
    return MLP((width,))(shape, classes)


def test_a_checkpoint_with_other_tensors_is_refused_though_its_checksum_is_right(tmp_path, monkeypatch):
    with pytest.raises(Killed):
        run(tmp_path, stop_after=6, monkeypatch=monkeypatch)
    for path in (tmp_path / "stack-1").glob("*.json"):
        content = save({"order": torch.zeros(1)})
        path.with_suffix(".safetensors").write_bytes(content)
        metadata = json.loads(path.read_text())
        path.write_text(json.dumps({**metadata, "sha256": hashlib.sha256(content).hexdigest()}))
    with pytest.raises(ValueError, match=r"step-.*\.json must be the checkpoint that was written; it was changed"):
        run(tmp_path)


@pytest.mark.parametrize("content", ["", "null", "3", "[0, 2]", "[-1, 3]", '["x"]', "[" * 100_000])
def test_a_damaged_note_of_stacks_is_said(tmp_path, content):
    run(tmp_path)
    (tmp_path / "stacks.json").write_text(content)
    with pytest.raises(ValueError, match=r"stacks\.json must hold the sizes of the stacks; it is damaged"):
        run(tmp_path)


def test_another_version_is_refused(tmp_path, monkeypatch):
    run(tmp_path)
    for path in (tmp_path / "stack-1").glob("*.json"):
        facts = json.loads(path.read_text())
        facts["identity"]["oneof"] = "0.0.1"
        path.write_text(json.dumps(facts))
    with pytest.raises(ValueError, match=r"another run: oneof was '0\.0\.1', now"):
        run(tmp_path)
