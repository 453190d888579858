"""CIFAR-10N: three people's votes on each training image. What is learned from one vote, the majority, sets, and weighed votes?

    python benchmarks/accuracy/votes_cifar10n.py --plan forms --limit-seconds 540     # on a GPU; resumable
    python benchmarks/accuracy/votes_cifar10n.py --plan held-out                      # which form do held-out votes prefer?
    python benchmarks/accuracy/votes_cifar10n.py --plan rivals --rivals rivals.npz    # consensus labels of votes_rivals.py, and CROWDLAB's
    python benchmarks/accuracy/votes_cifar10n.py --plan dividemix-one-person          # a method for noisy labels
    python benchmarks/accuracy/votes_cifar10n.py --plan average chosen                # forms with an average; the best by held-out votes
    python benchmarks/accuracy/votes_cifar10n.py --report

WRN-28-2, POP's three views, SGD 0.05 with a cosine, weight decay 1e-3, batch 256, all 50,000 images; the last epoch counts. Every row is
written as soon as its run ends; a run whose row is in the file is skipped. `accuracy` is on CIFAR-10's test images, `resolved`
the share of training images whose label, argmax of prior x posterior, is the true one: both report, neither chooses.

The plans `held-out` and `average` train on two of each image's votes, drawn at random, and ask how often the third person named the resolved
label (`agreement`), and how probable their vote was (`likelihood`): no truth is needed for that. The plan `chosen` trains on all votes in the form
that makes these votes most probable, among the rows of the file and those in results/.

With `--keep FOLDER` the probabilities of a run are stored there. `--kept FOLDER` writes rows of the means over its seeds, and of how far
probabilities of the test images agree with the votes of 51 people on each (CIFAR-10H).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from on_votes.cifar10n import (
    AVERAGED,
    COMPARED,
    EXTRA,
    LONG,
    N_CLASSES,
    TABLE,
    Floats,
    Form,
    Labels,
    count_votes,
    draw_held_out,
    make_form,
    one_hot,
    pooled_dawid_skene,
    read_data,
    read_pixels,
)
from on_votes.cifar10n_tables import forms_table, held_out_table, humans_table
from on_votes.dividemix import DivideMix, train_dividemix
from torch import Tensor

from oneof.data.augment import views
from oneof.data.augment.views import Views
from oneof.networks import LeNet, Network, WideResNet
from oneof.storage.rows import Row, append, read
from oneof.storage.settings import to_serializable
from oneof.training.fit import fit
from oneof.training.state import Fit
from oneof.training.trials import Training, Trial
from oneof_paper.data.catalogue import load
from oneof_paper.readers.cifar import HumanVotes
from oneof_paper.results import origin, rows_of

ROWS = Path(__file__).parents[2] / "results/votes_cifar10n.jsonl"
KEY = ("plan", "form", "seed", "epochs")
CONSENSUS = ("rival-dawid-skene", "rival-glad", "rival-mmsr", "rival-crowdlab")
DIVIDEMIX = ("DivideMix, one person", "DivideMix, strong views, one person", "DivideMix, strong views, majority")
BASELINES = ("votes + 0.2, balanced", "true labels", "true labels, average, weak view")
CHOSEN = "chosen"  # stands for the form that held-out votes prefer
SECONDS_PER_EPOCH = {"ours": 1.4, "DivideMix": 3.0}  # on an H200, until a run was timed
NETWORKS: dict[str, Network] = {"wrn": WideResNet(), "lenet": LeNet()}


class Run(NamedTuple):
    """One line of a plan."""

    plan: str
    form: str
    seed: int
    epochs: int


def _runs(plan: str, forms: Sequence[str], seeds: Sequence[int], epochs: int) -> list[Run]:
    """Return the runs of several forms, seed by seed."""
    runs = []
    for seed in seeds:
        for form in forms:
            runs.append(Run(plan, form, seed, epochs))
    return runs


PLANS: dict[str, list[Run]] = {
    "held-out": _runs("held-out", COMPARED, [0], 40),
    "forms": _runs("forms", TABLE, [100, 101, 102], 40),
    "extra": _runs("forms", EXTRA, [100, 101, 102], 40),
    "rivals": _runs("forms", CONSENSUS, [100], 40),
    "long": _runs("forms", LONG, [100], 150),
    "average": _runs("held-out", AVERAGED, [0], 40),
    "chosen": _runs("forms", [CHOSEN], [105, 106, 107], 40),
    "chosen-long": _runs("forms", [CHOSEN], [105], 150),
    "dividemix-one-person": _runs("forms", DIVIDEMIX[:1], [105], 40),
    "dividemix-more": _runs("forms", DIVIDEMIX[1:], [105], 40),
    "baselines": _runs("forms", BASELINES, [105, 106, 107], 40),
    "tiny": _runs("tiny", [*TABLE, *COMPARED, *CONSENSUS, *AVERAGED, *DIVIDEMIX], [0], 2),
}


class Settings(NamedTuple):
    """What all runs of a call share."""

    count: int | None  # images of each part
    device: str
    network: Network
    consensus: dict[str, Labels]  # labels of rivals
    keep: Path | None  # folder for probabilities
    capture: bool  # whether DivideMix runs as CUDA graphs


# ------------------------------------------------------------------------------------------------------------------- a run


def perform(run: Run, settings: Settings) -> Row:
    """Train as a line of a plan says, and return its row."""
    if run.form in DIVIDEMIX:
        return perform_dividemix(run, settings)
    data, people = read_data(settings.count)
    n = len(people.truth)
    pixels = read_pixels(settings.count, settings.device)
    held_out = draw_held_out(n, run.seed) if run.plan == "held-out" else None
    form = _form_of(run, count_votes(people, held_out), settings)
    start = time.perf_counter()
    fitted = train(form, np.arange(n), run, settings)
    fitted.history["loss"].tolist()  # waits for the device
    seconds = time.perf_counter() - start
    setting = {
        "plan": run.plan,
        "form": run.form,
        "epochs": run.epochs,
        "images": n,
        "slack": form.slack,
        "method": form.method,
        "purify": form.purify,
        "network": settings.network,
        "training": _training(form, run.epochs),
    }
    if form.views != "pop":
        setting["views"] = form.views
    (row,) = rows_of(fitted, seeds=[run.seed], seconds=seconds, **setting)
    resolved = resolve(fitted, form, pixels[:n])
    tested = fitted.logits(pixels[data.test])[0].float().softmax(-1).cpu().numpy()
    _keep(run, settings, resolved, tested)
    return row | judge(resolved, people, held_out)


def perform_dividemix(run: Run, settings: Settings) -> Row:
    """Train DivideMix from one person's labels or the majority's, and return its row."""
    data, people = read_data(settings.count)
    labels = people.majority if run.form.endswith("majority") else people.labels[:, 0]
    setting = DivideMix(run.epochs, strong="strong views" in run.form)
    pixels = read_pixels(settings.count, settings.device)
    given = torch.as_tensor(labels, device=settings.device)
    start = time.perf_counter()
    predicted = train_dividemix(
        setting, pixels, given, N_CLASSES, settings.network, _views("pop", settings), run.seed, settings.capture
    )
    seconds = time.perf_counter() - start
    _keep(run, settings, predicted.train, predicted.test)
    accuracy = (predicted.test.argmax(1) == data.labels[data.test]).mean()
    return {
        "plan": run.plan,
        "form": run.form,
        "epochs": run.epochs,
        "images": len(labels),
        "networks": 2,
        "network": to_serializable(settings.network),
        "training": to_serializable(setting),
        "seed": run.seed,
        "accuracy": round(float(accuracy), 6),
        "seconds": round(seconds, 4),
        **origin(str(pixels.device)),
        **judge(predicted.train, people, None),
    }


def train(form: Form, rows: Labels, run: Run, settings: Settings) -> Fit:
    """Return a network that was trained on these rows."""
    data, people = read_data(settings.count)
    n_others = len(data.x) - len(people.truth)
    prior = None
    if form.prior is not None:
        prior = np.concatenate([form.prior, np.ones((n_others, N_CLASSES))])
    return fit(
        read_pixels(settings.count, settings.device),
        np.concatenate([form.candidates, np.ones((n_others, N_CLASSES), dtype=bool)]),
        trials=[Trial(run.seed, rows, None, data.test, lr=0.05, weight_decay=1e-3)],
        method=form.method,
        purify=form.purify,
        network=settings.network,
        training=_training(form, run.epochs),
        views=_views(form.views, settings),
        prior=prior,
        slack=form.slack,
        labels=data.labels,
        device=settings.device,
    )


def _form_of(run: Run, counts: Floats, settings: Settings) -> Form:
    """Return what a run trains on: labels of a rival, or a form of the votes."""
    if run.form in CONSENSUS:
        return Form(one_hot(settings.consensus[run.form]))
    return make_form(run.form, read_data(settings.count)[1], counts, run.epochs)


def _training(form: Form, epochs: int) -> Training:
    return Training(epochs, 256, mixup=form.mixup, average=form.average)


def _views(recipe: str, settings: Settings) -> Views:
    dtype = torch.bfloat16 if settings.device == "cuda" else torch.float32
    return views(recipe, "cifar10", device=settings.device, dtype=dtype)


def _keep(run: Run, settings: Settings, train_probabilities: Floats, test_probabilities: NDArray[np.floating]) -> None:
    """Store the probabilities of a run, where a folder for them was given."""
    if settings.keep is None:
        return
    path = settings.keep / f"{run.form}.{run.seed}.{run.epochs}.npz"
    np.savez_compressed(path, train=train_probabilities.astype(np.float16), test=test_probabilities.astype(np.float16))


def resolve(fitted: Fit, form: Form, x: Tensor) -> Floats:
    """Return the probabilities of the training images [n, c]: prior x posterior."""
    logits = fitted.logits(x)[0].double().cpu()
    if form.prior is not None:
        logits = logits + torch.as_tensor(form.prior + form.slack).clamp_min(1e-12).log()
    allowed = fitted.candidates[0].cpu()
    if form.slack:
        allowed = allowed | ~torch.as_tensor(form.candidates)
    return np.asarray(logits.masked_fill(~allowed, -torch.inf).softmax(-1).numpy())


def judge(resolved: Floats, people: HumanVotes, held_out: Labels | None) -> Row:
    """Return the share of labels that are right; and, where a vote of every image was held out, what it says of them."""
    judged: Row = {"resolved": round(float((resolved.argmax(1) == people.truth).mean()), 6)}
    if held_out is None:
        return judged
    rows = np.arange(len(held_out))
    vote = people.labels[rows, held_out]
    matrix = pooled_dawid_skene(count_votes(people, held_out))[1]
    probability = (resolved @ matrix)[rows, vote]
    judged["agreement"] = round(float((resolved.argmax(1) == vote).mean()), 6)
    judged["likelihood"] = round(float(np.log(probability.clip(1e-12)).mean()), 6)
    return judged


def crowdlab(settings: Settings, epochs: int) -> Labels:
    """Return CROWDLAB's consensus [n], with probabilities by two of our networks, each for the half that it has not seen."""
    from cleanlab.multiannotator import get_label_quality_multiannotator  # type: ignore[import-not-found]

    people = read_data(settings.count)[1]
    run = Run("halves", "votes + 0.2, balanced", 100, epochs)
    form = make_form(run.form, people, count_votes(people), epochs)
    halves = np.array_split(np.random.default_rng(run.seed).permutation(len(people.truth)), 2)
    pixels = read_pixels(settings.count, settings.device)
    p = np.zeros(form.candidates.shape)
    for half, other in (halves, halves[::-1]):
        logits = train(form, np.sort(other), run, settings).logits(pixels[half])
        p[half] = logits[0].double().softmax(-1).cpu().numpy()
    quality = get_label_quality_multiannotator(people.labels.astype(float), p + 1e-9, verbose=False)
    return np.asarray(quality["label_quality"]["consensus_label"].to_numpy(), dtype=np.intp)


# --------------------------------------------------------------------------------------------------------------- all runs


def perform_all(runs: Sequence[Run], path: Path, limit: float, settings: Settings, commit: str | None) -> None:
    """Perform the runs whose rows are not in the file, but for those that would not end before the limit, and append their rows."""
    torch.backends.cudnn.benchmark = True
    start = time.perf_counter()
    seconds_per_epoch = SECONDS_PER_EPOCH.copy()
    for planned in runs:
        rows = read(path) if path.exists() else []
        run = planned
        if run.form == CHOSEN:
            stored = (
                read(ROWS) if settings.count is None else []
            )  # a form that was compared before may still be the best
            run = run._replace(form=chosen_form([*stored, *rows]))
        done = {tuple(row[name] for name in KEY) for row in rows}
        if tuple(run) in done or not _has_labels(run, settings):
            continue
        kind = "DivideMix" if run.form in DIVIDEMIX else "ours"
        spent = time.perf_counter() - start
        if spent + seconds_per_epoch[kind] * run.epochs > limit:
            print(f"{spent:6.0f} s  {run}: no time left", flush=True)
            continue
        row = perform(run, settings)
        if commit:
            row["commit"] = commit
        append(path, [row])
        seconds_per_epoch[kind] = row["seconds"] / run.epochs
        judged = {name: row[name] for name in ("agreement", "likelihood") if name in row}  # no label tempts
        print(f"{time.perf_counter() - start:6.0f} s  {run}: {row['seconds']:.1f} s {judged or ''}", flush=True)
    print("done", flush=True)


def chosen_form(rows: Sequence[Row]) -> str:
    """Return the form that makes the held-out votes most probable.

    The share of votes that are met is coarser: forms whose shares differ by less than its standard error differ clearly here.
    """
    held_out = [row for row in rows if row["plan"] == "held-out"]
    if not held_out:
        raise SystemExit("--plan chosen needs rows of held-out votes in --rows. Run --plan average first.")
    best = max(held_out, key=lambda row: row["likelihood"])
    return str(best["form"])


def _has_labels(run: Run, settings: Settings) -> bool:
    """Return whether the labels of a rival are at hand; CROWDLAB's are made where cleanlab can be imported."""
    if run.form == "rival-crowdlab" and run.form not in settings.consensus and find_spec("cleanlab"):
        settings.consensus[run.form] = crowdlab(settings, run.epochs)
    return run.form not in CONSENSUS or run.form in settings.consensus


def mean_rows(folder: Path) -> Iterator[Row]:
    """Yield rows of several networks of one form: means of their probabilities."""
    data, people = read_data(None)
    groups: dict[tuple[str, int], list[Path]] = {}
    for path in sorted(folder.glob("*.npz")):
        form, _, epochs = path.stem.rsplit(".", 2)
        groups.setdefault((form, int(epochs)), []).append(path)
    for (form, epochs), paths in groups.items():
        if len(paths) < 2:
            continue
        stored = [np.load(path) for path in paths]
        train_mean = np.mean([probabilities["train"].astype(float) for probabilities in stored], axis=0)
        test_mean = np.mean([probabilities["test"].astype(float) for probabilities in stored], axis=0)
        yield {
            "plan": "ensemble",
            "form": form,
            "epochs": epochs,
            "seed": None,
            "networks": len(paths),
            "accuracy": float((test_mean.argmax(1) == data.labels[data.test]).mean()),
            "resolved": float((train_mean.argmax(1) == people.truth).mean()),
            **origin("cpu"),
        }


def human_rows(folder: Path) -> Iterator[Row]:
    """Yield the cross-entropy of each model's probabilities of the test images against the shares of 51 people's votes (CIFAR-10H)."""
    data = load("cifar10h")
    assert data.votes is not None
    shares = data.votes[data.test] / data.votes[data.test].sum(1, keepdims=True)
    for path in sorted(folder.glob("*.npz")):
        form, seed, epochs = path.stem.rsplit(".", 2)
        p = np.load(path)["test"].astype(float).clip(1e-6)  # stored in 16 bits
        p /= p.sum(1, keepdims=True)
        entropy = float(-(shares * np.log(p)).sum(1).mean())
        yield {
            "plan": "humans",
            "form": form,
            "seed": int(seed),
            "epochs": int(epochs),
            "cross_entropy": round(entropy, 4),
            "agrees": float((p.argmax(1) == shares.argmax(1)).mean()),
        }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run plans, add rows of stored probabilities, or print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", choices=PLANS, nargs="+", default=[])
    parser.add_argument("--rows", type=Path, default=Path("results/votes_cifar10n.jsonl"))
    parser.add_argument("--limit-seconds", type=float, default=float("inf"))
    parser.add_argument("--images", type=int, help="of each part; default: all")
    parser.add_argument("--network", choices=NETWORKS, default="wrn")
    parser.add_argument("--epochs", type=int, help="of every run, in place of the plan's: to try it out")
    parser.add_argument(
        "--rivals", type=Path, help="an npz of consensus labels [50000] by name, made by votes_rivals.py"
    )
    parser.add_argument("--no-graphs", action="store_true", help="run DivideMix without CUDA graphs, which is slower")
    parser.add_argument("--commit", help="of the source, where git cannot say")
    parser.add_argument("--keep", type=Path, help="a folder for the probabilities of every run")
    parser.add_argument(
        "--kept", type=Path, help="such a folder: append rows of means over seeds, and beside CIFAR-10H"
    )
    parser.add_argument("--report", action="store_true", help="print the tables of all rows")
    options = parser.parse_args(arguments)
    if options.plan:
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        consensus = dict(np.load(options.rivals)) if options.rivals else {}
        network = NETWORKS[options.network]
        settings = Settings(options.images, device, network, consensus, options.keep, not options.no_graphs)
        runs = []
        for plan in options.plan:
            for run in PLANS[plan]:
                runs.append(run._replace(epochs=options.epochs or run.epochs))
        perform_all(runs, options.rows, options.limit_seconds, settings, options.commit)
    if options.kept:
        append(options.rows, [*mean_rows(options.kept), *human_rows(options.kept)])
    if options.report:
        rows = read(options.rows)
        print("\n\n".join([forms_table(rows), held_out_table(rows), humans_table(rows)]))


if __name__ == "__main__":
    main()
