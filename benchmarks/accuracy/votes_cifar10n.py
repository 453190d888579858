"""CIFAR-10N: three people's votes on each training image. What is learned from one vote, the majority, sets, and weighed votes?

    python benchmarks/accuracy/votes_cifar10n.py --plan forms --limit-seconds 540     # on a GPU; resumable
    python benchmarks/accuracy/votes_cifar10n.py --plan held-out                      # which form do held-out votes prefer?
    python benchmarks/accuracy/votes_cifar10n.py --plan rivals --rivals rivals.npz    # consensus labels of votes_rivals.py, and CROWDLAB's
    python benchmarks/accuracy/votes_cifar10n.py --report

WRN-28-2, POP's three views, SGD 0.05 with a cosine, weight decay 1e-3, batch 256, all 50,000 images; the last epoch counts. Every row is
written as soon as its run ends; a run whose row is in the file is skipped. `accuracy` is on CIFAR-10's test images, `resolved`
the share of training images whose label, argmax of prior x posterior, is the true one: both report, neither chooses.

The plan `held-out` trains on two of each image's votes, drawn at random, and asks how often the third person named the resolved
label (`agreement`), and how probable their vote was (`likelihood`): no truth is needed for that.

With `--keep FOLDER` the probabilities of a run are stored there. `--kept FOLDER` writes rows of the means over its seeds, and of how far
probabilities of the test images agree with the votes of 51 people on each (CIFAR-10H).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneof.data.augment import views
from oneof.methods import BalancedProden, Method, Proden
from oneof.networks import WideResNet
from oneof.purify import Pop, Purify
from oneof.storage.rows import Row, append, read
from oneof.training.fit import fit
from oneof.training.state import Fit
from oneof.training.trials import Training, Trial
from oneof_paper.data.catalogue import Dataset, data_folder, load
from oneof_paper.readers.cifar import HumanVotes, read_cifar10n
from oneof_paper.results import origin, rows_of
from oneof_paper.teacher import channels_first

KEY = ("plan", "form", "seed", "epochs")
C = 10
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Shares(Proden):
    """Cross-entropy against the shares of the votes, which stay as they are."""

    def update(self, logits: Tensor, candidates: Tensor, weights: Tensor) -> Tensor:
        return weights


class Form(NamedTuple):
    """What training is given in place of true labels."""

    candidates: NDArray[np.bool_]  # [n, c]
    prior: Floats | None = None  # [n, c]
    slack: float = 0.0
    method: Method = Proden()
    purify: Purify | None = None


# ----------------------------------------------------------------------------------------------------------------- the forms


def confusion(counts: Floats, rounds: int = 50) -> tuple[Floats, Floats]:
    """Dawid-Skene with one matrix for everybody: posterior of the truth [n, c], and P(vote | truth) [c, c]."""
    posterior = counts / counts.sum(1, keepdims=True)
    for _ in range(rounds):
        table = posterior.T @ counts + 0.01
        matrix, share = table / table.sum(1, keepdims=True), posterior.mean(0)
        logs = counts @ np.log(matrix).T + np.log(share)
        posterior = np.exp(logs - logs.max(1, keepdims=True))
        posterior /= posterior.sum(1, keepdims=True)
    return posterior, matrix


def truth_given_vote(counts: Floats) -> Floats:
    """P(truth | vote) [vote, truth] by the pooled matrix."""
    posterior, matrix = confusion(counts)
    joint = matrix * posterior.mean(0)[:, None]
    return (joint / joint.sum(0)).T


def likelihood(counts: Floats, power: float) -> Floats:
    """P(votes | truth) ^ power, up to a factor per row [n, c]."""
    logs = power * (counts @ np.log(confusion(counts)[1]).T)
    return np.exp(logs - logs.max(1, keepdims=True))


def late(epochs: int) -> Pop:
    """POP from four fifths of the epochs on, as in docs/research/findings.md ("last")."""
    every = max(1, round(0.05 * epochs))
    events = max(1, (epochs - round(0.8 * epochs)) // every)
    return Pop(
        warm_up=round(0.8 * epochs),
        interval=every,
        window=every,
        e0=0.95,
        e_end=0.1,
        e_s=0.85 / max(1, round(0.8 * events)),
    )


def one_hot(labels: NDArray[np.intp]) -> NDArray[np.bool_]:
    return np.eye(C, dtype=bool)[labels]


def form_of(name: str, people: HumanVotes, counts: Floats, epochs: int, labels: dict[str, NDArray[np.intp]]) -> Form:
    """A line of the table; `counts` [n, c] may be of fewer votes than there are."""
    named, every = counts > 0, np.ones(counts.shape, dtype=bool)
    if name.startswith("rival-"):
        return Form(one_hot(labels[name]))
    forms = {
        "one person": lambda: Form(one_hot(people.labels[:, 0])),
        "majority": lambda: Form(one_hot(people.majority)),
        "shares": lambda: Form(named, counts, method=Shares()),
        "sets": lambda: Form(named),
        "sets, POP": lambda: Form(named, purify=late(epochs)),
        "votes": lambda: Form(named, counts),
        "votes + 0.2": lambda: Form(named, counts, 0.2),
        "votes + 0.2, balanced": lambda: Form(named, counts, 0.2, BalancedProden()),
        "votes through confusion": lambda: Form(every, counts @ truth_given_vote(counts) + 0.02),
        "likelihood": lambda: Form(every, likelihood(counts, 1.0)),
        "root of likelihood": lambda: Form(every, likelihood(counts, 0.5)),
        "true labels": lambda: Form(one_hot(people.truth)),
    }
    return forms[name]()


TABLE = ("one person", "majority", "shares", "sets", "sets, POP", "votes", "votes + 0.2", "likelihood", "true labels")
COMPARED = (
    "sets",
    "votes",
    "votes + 0.2",
    "votes + 0.2, balanced",
    "votes through confusion",
    "likelihood",
    "root of likelihood",
)
LONG = ("true labels", "votes + 0.2, balanced", "majority", "sets")  # held-out votes find the second most probable
RIVALS = ("rival-dawid-skene", "rival-glad", "rival-mmsr", "rival-crowdlab")
EXTRA = ("votes + 0.2, balanced", "root of likelihood", "votes through confusion")


class Run(NamedTuple):
    plan: str
    form: str
    seed: int
    epochs: int


PLANS: dict[str, list[Run]] = {
    "held-out": [Run("held-out", form, 0, 40) for form in COMPARED],
    "forms": [Run("forms", form, seed, 40) for seed in (100, 101, 102) for form in TABLE],
    "extra": [Run("forms", form, seed, 40) for form in EXTRA for seed in (100, 101, 102)],
    "rivals": [Run("forms", form, 100, 40) for form in RIVALS],
    "long": [Run("forms", form, 100, 150) for form in LONG],
    "tiny": [Run("tiny", form, 0, 1) for form in (*TABLE, *COMPARED, *RIVALS)],
}


# ------------------------------------------------------------------------------------------------------------------- a run


@cache
def data_of(count: int | None) -> tuple[Dataset, HumanVotes]:
    """CIFAR-10 and people's votes; of both parts the first `count` images."""
    folder = data_folder(None)
    assert folder is not None, "set ONEOF_DATA"
    data, people = load("cifar10"), read_cifar10n(folder / "cifar10n/CIFAR-10_human.pt")
    if count is None:
        return data, people
    keep = np.r_[:count, 50000 : 50000 + count]
    small = replace(data, x=data.x[keep], labels=data.labels[keep], test=np.arange(count, 2 * count))
    return small, HumanVotes(*(column[:count] for column in people))


@cache
def pixels(count: int | None, device: str) -> Tensor:
    return torch.as_tensor(channels_first(data_of(count)[0].x).copy(), device=device)


def counts_of(people: HumanVotes, held_out: NDArray[np.intp] | None) -> Floats:
    """Votes for each label [n, c], without the person held out [n]."""
    kept = np.ones(people.labels.shape, dtype=bool)
    if held_out is not None:
        kept[np.arange(len(kept)), held_out] = False
    return ((people.labels[..., None] == np.arange(C)) & kept[..., None]).sum(1).astype(np.float64)


class Asked(NamedTuple):
    """What all runs of a call share."""

    count: int | None  # images of each part
    device: str
    labels: dict[str, NDArray[np.intp]]  # of rivals
    keep: Path | None  # folder for probabilities


def perform(run: Run, asked: Asked) -> Row:
    data, people = data_of(asked.count)
    n, pixel = len(people.truth), pixels(asked.count, asked.device)
    held_out = np.random.default_rng(run.seed).integers(3, size=n) if run.plan == "held-out" else None
    form = form_of(run.form, people, counts_of(people, held_out), run.epochs, asked.labels)
    start = time.perf_counter()
    fitted = trained(form, np.arange(n), run, asked)
    fitted.history["loss"].tolist()  # waits for the device
    seconds = time.perf_counter() - start
    setting = {
        "method": form.method,
        "purify": form.purify,
        "network": WideResNet(),
        "training": Training(run.epochs, 256),
    }
    named = {"plan": run.plan, "form": run.form, "epochs": run.epochs, "images": n, "slack": form.slack, **setting}
    (row,) = rows_of(fitted, seeds=[run.seed], seconds=seconds, **named)
    resolved = shares_of(fitted, form, pixel[:n])
    if asked.keep is not None:
        tested = fitted.logits(pixel[data.test])[0].float().softmax(-1).cpu().numpy()
        name = f"{run.form}.{run.seed}.{run.epochs}.npz"
        np.savez_compressed(asked.keep / name, train=resolved.astype(np.float16), test=tested.astype(np.float16))
    return row | judged(resolved, people, held_out)


def trained(form: Form, rows: NDArray[np.intp], run: Run, asked: Asked) -> Fit:
    """A network that has seen these rows."""
    data, people = data_of(asked.count)
    rest = len(data.x) - len(people.truth)
    dtype = torch.bfloat16 if asked.device == "cuda" else torch.float32
    return fit(
        pixels(asked.count, asked.device),
        np.concatenate([form.candidates, np.ones((rest, C), dtype=bool)]),
        trials=[Trial(run.seed, rows, None, data.test, lr=0.05, weight_decay=1e-3)],
        method=form.method,
        purify=form.purify,
        network=WideResNet(),
        training=Training(run.epochs, 256),
        views=views("pop", "cifar10", device=asked.device, dtype=dtype),
        prior=None if form.prior is None else np.concatenate([form.prior, np.ones((rest, C))]),
        slack=form.slack,
        labels=data.labels,
        device=asked.device,
    )


def crowdlab(asked: Asked, epochs: int) -> NDArray[np.intp]:
    """CROWDLAB's consensus [n], with probabilities by two of our networks, each for the half that it has not seen."""
    from cleanlab.multiannotator import get_label_quality_multiannotator  # type: ignore[import-not-found]

    people = data_of(asked.count)[1]
    run = Run("halves", "votes + 0.2, balanced", 100, epochs)
    form = form_of(run.form, people, counts_of(people, None), epochs, {})
    halves = np.array_split(np.random.default_rng(run.seed).permutation(len(people.truth)), 2)
    p = np.zeros(form.candidates.shape)
    for half, other in (halves, halves[::-1]):
        logits = trained(form, np.sort(other), run, asked).logits(pixels(asked.count, asked.device)[half])
        p[half] = logits[0].double().softmax(-1).cpu().numpy()
    found = get_label_quality_multiannotator(people.labels.astype(float), p + 1e-9, verbose=False)
    return np.asarray(found["label_quality"]["consensus_label"].to_numpy(), dtype=np.intp)


def shares_of(fitted: Fit, form: Form, x: Tensor) -> Floats:
    """Probabilities of the training images [n, c]: prior x posterior."""
    logits = fitted.logits(x)[0].double().cpu().log_softmax(-1)
    prior = (
        torch.zeros(logits.shape)
        if form.prior is None
        else torch.as_tensor(form.prior + form.slack).clamp_min(1e-12).log()
    )
    allowed = fitted.candidates[0].cpu() | (~torch.as_tensor(form.candidates) if form.slack else False)
    return np.asarray((logits + prior).masked_fill(~allowed, -torch.inf).softmax(-1).numpy())


def judged(resolved: Floats, people: HumanVotes, held_out: NDArray[np.intp] | None) -> Row:
    """How many labels are resolved; and, where a vote of every image was held out, what it says of them."""
    found = {"resolved": round(float((resolved.argmax(1) == people.truth).mean()), 6)}
    if held_out is None:
        return found
    vote = people.labels[np.arange(len(held_out)), held_out]
    matrix = confusion(counts_of(people, held_out))[1]
    chance = (resolved @ matrix)[np.arange(len(vote)), vote]
    return found | {
        "agreement": round(float((resolved.argmax(1) == vote).mean()), 6),
        "likelihood": round(float(np.log(chance.clip(1e-12)).mean()), 6),
    }


# --------------------------------------------------------------------------------------------------------------- all runs


def do(runs: Sequence[Run], path: Path, limit: float, asked: Asked, commit: str | None) -> None:
    torch.backends.cudnn.benchmark = True
    start, pace = time.perf_counter(), 2.5
    for run in runs:
        done = {tuple(row[name] for name in KEY) for row in read(path)} if path.exists() else set()
        if tuple(run) in done or not _known(run, asked):
            continue
        spent = time.perf_counter() - start
        if spent + pace * run.epochs > limit:
            print(f"stopped after {spent:.0f} s before {run}", flush=True)
            return
        row = perform(run, asked)
        append(path, [row | ({"commit": commit} if commit else {})])
        pace = row["seconds"] / run.epochs
        said = {name: row[name] for name in ("agreement", "likelihood") if name in row}  # no label tempts
        print(f"{time.perf_counter() - start:6.0f} s  {run}: {row['seconds']:.1f} s {said or ''}", flush=True)
    print("done", flush=True)


def _known(run: Run, asked: Asked) -> bool:
    """Are the labels of this rival at hand? CROWDLAB's are made where cleanlab can be imported."""
    if run.form == "rival-crowdlab" and run.form not in asked.labels and find_spec("cleanlab"):
        asked.labels[run.form] = crowdlab(asked, run.epochs)
    return not run.form.startswith("rival-") or run.form in asked.labels


def ensembles(folder: Path) -> Iterator[Row]:
    """Rows of several networks of one form: means of their probabilities."""
    data, people = data_of(None)
    groups: dict[tuple[str, int], list[Path]] = {}
    for path in sorted(folder.glob("*.npz")):
        form, _, epochs = path.stem.rsplit(".", 2)
        groups.setdefault((form, int(epochs)), []).append(path)
    for (form, epochs), paths in groups.items():
        if len(paths) > 1:
            kept = [np.load(path) for path in paths]
            train, test = (np.mean([one[part].astype(float) for one in kept], axis=0) for part in ("train", "test"))
            yield {
                "plan": "ensemble",
                "form": form,
                "epochs": epochs,
                "seed": None,
                "networks": len(paths),
                "accuracy": float((test.argmax(1) == data.labels[data.test]).mean()),
                "resolved": float((train.argmax(1) == people.truth).mean()),
                **origin("cpu"),
            }


def beside_humans(folder: Path) -> Iterator[Row]:
    """Cross-entropy of each model's probabilities of the test images against the shares of 51 people's votes (CIFAR-10H)."""
    data = load("cifar10h")
    assert data.votes is not None
    shares = data.votes[data.test] / data.votes[data.test].sum(1, keepdims=True)
    for path in sorted(folder.glob("*.npz")):
        form, seed, epochs = path.stem.rsplit(".", 2)
        p = np.load(path)["test"].astype(float).clip(1e-6)  # stored in 16 bits
        p /= p.sum(1, keepdims=True)
        entropy = float(-(shares * np.log(p)).sum(1).mean())
        named = {"plan": "humans", "form": form, "seed": int(seed), "epochs": int(epochs)}
        yield {**named, "cross_entropy": round(entropy, 4), "agrees": float((p.argmax(1) == shares.argmax(1)).mean())}


def humans_lines(rows: Sequence[Row]) -> Iterator[str]:
    yield "| trained on | epochs | cross-entropy against people | most people name its label % | runs |"
    yield "|---|---|---|---|---|"
    own = [row for row in rows if row["plan"] == "humans"]
    for form, epochs in sorted({(row["form"], row["epochs"]) for row in own}, key=lambda one: (one[1], one[0])):
        some = [row for row in own if (row["form"], row["epochs"]) == (form, epochs)]
        means = (f"{np.mean([row['cross_entropy'] for row in some]):.3f}", _cell([100 * row["agrees"] for row in some]))
        yield f"| {form} | {epochs} | {' | '.join(means)} | {len(some)} |"


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """The table in Markdown: mean and deviation of what the rows of a form have."""
    yield "| trained on | epochs | test accuracy | training labels resolved | runs |"
    yield "|---|---|---|---|---|"
    forms = list(dict.fromkeys((row["form"], row["epochs"]) for row in rows if row["plan"] == "forms"))
    order = {name: i for i, name in reversed(list(enumerate((*TABLE, *COMPARED, *RIVALS))))}
    for form, epochs in sorted(forms, key=lambda one: (one[1], order[one[0]])):
        own = [row for row in rows if (row["plan"], row["form"], row["epochs"]) == ("forms", form, epochs)]
        cells = [_cell([100 * row[name] for row in own]) for name in ("accuracy", "resolved")]
        yield f"| {form} | {epochs} | {cells[0]} | {cells[1]} | {len(own)} |"


def _cell(values: list[float]) -> str:
    return f"{np.mean(values):.2f}" + (f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else "")


def held_out_lines(rows: Sequence[Row]) -> Iterator[str]:
    yield "| form | third person agrees % | log-likelihood of their vote |"
    yield "|---|---|---|"
    for row in sorted((row for row in rows if row["plan"] == "held-out"), key=lambda row: -row["agreement"]):
        yield f"| {row['form']} | {100 * row['agreement']:.2f} | {row['likelihood']:.4f} |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", choices=PLANS, nargs="+", default=[])
    parser.add_argument("--rows", type=Path, default=Path("results/votes_cifar10n.jsonl"))
    parser.add_argument("--limit-seconds", type=float, default=float("inf"))
    parser.add_argument("--images", type=int, help="of each part; default: all")
    parser.add_argument(
        "--rivals", type=Path, help="an npz of consensus labels [50000] by name, made by votes_rivals.py"
    )
    parser.add_argument("--commit", help="of the source, where git cannot say")
    parser.add_argument("--keep", type=Path, help="a folder for the probabilities of every run")
    parser.add_argument(
        "--kept", type=Path, help="such a folder: append rows of means over seeds, and beside CIFAR-10H"
    )
    parser.add_argument("--report", action="store_true", help="print the tables of all rows")
    given = parser.parse_args(arguments)
    if given.plan:
        if given.keep:
            given.keep.mkdir(parents=True, exist_ok=True)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        asked = Asked(given.images, device, dict(np.load(given.rivals)) if given.rivals else {}, given.keep)
        do([run for plan in given.plan for run in PLANS[plan]], given.rows, given.limit_seconds, asked, given.commit)
    if given.kept:
        append(given.rows, [*ensembles(given.kept), *beside_humans(given.kept)])
    if given.report:
        rows: list[dict[str, Any]] = read(given.rows)
        print("\n".join([*lines(rows), "", *held_out_lines(rows), "", *humans_lines(rows)]))


if __name__ == "__main__":
    main()
