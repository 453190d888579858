"""Votes of many kinds: majority, rivals and ours, each with its labels, its probabilities and its review queue.

    python benchmarks/accuracy/votes_kinds.py --seeds 0-1
    ONEOF_DATA=DIR python benchmarks/accuracy/votes_kinds.py --seeds 400-402
    python benchmarks/accuracy/votes_kinds.py --report --seeds 400-402

A row per kind, system and seed, on the items that somebody voted on: `right`, the share of labels that are true; `gap`, the mean probability of the
labels less that share; `ece`, the calibration error over ten bins of equal mass, and `ece_band`, which 95 % of calibrated systems with these
probabilities stay below; `unanimous_gap`, the gap where two or more votes agree and none differs; `first_tenth`, the share of all wrong labels among
the tenth of the items whose probability is lowest. Ours is what `oneof fit --votes` resolves before networks are trained: annotators, and kernel and linear
regressions on features. crowd-kit, cleanlab, peerannot and scikit-activeml run where they can be imported; CROWDLAB has logistic regression on the
majority's labels, networks have a hidden layer of 128 and 50 epochs. Truth reports and chooses nothing. The models were developed on seeds below 10.
A row that is in the file is not computed again. Real votes are read from ONEOF_DATA where it is set.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from on_votes.more_kinds import MORE_KINDS
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from oneof.candidates.mask import Candidates
from oneof.data.dataset import Dataset
from oneof.data.encode import Encoding
from oneof.ensemble.resolve import resolve_labels
from oneof.ensemble.vote_prior import vote_prior
from oneof.learners.base import Predictions
from oneof.storage.rows import Row, append, read
from oneof.votes import Votes, dawid_skene, read_long
from oneof.votes.dawid_skene import vote_counts
from oneof_paper.data.catalogue import data_folder
from oneof_paper.results import origin

ROOT = Path(__file__).parents[2]
ROWS = ROOT / "results/votes_kinds.jsonl"
N_ITEMS = 300
N_CLASSES = 4
N_PEOPLE = 20
VOTES_PER_ITEM = 5
Floats = NDArray[np.float64]
Integers = NDArray[np.intp]
VoteRow = tuple[int, str, int]  # item, annotator, label


class Task(NamedTuple):
    """Votes on n items, their features and their true labels."""

    votes: Votes
    x: Floats  # [n, d]; d is 0 where there are no features
    truth: Integers  # [n]


# ------------------------------------------------------------------------------------------------------ simulated votes


def draw_truth(rng: np.random.Generator, frequencies: Floats | None = None) -> Integers:
    """Return a true label for each item, among equally frequent classes unless frequencies are given."""
    return np.asarray(rng.choice(N_CLASSES, size=N_ITEMS, p=frequencies), dtype=np.intp)


def draw_label(rng: np.random.Generator, truth: int, accuracy: float) -> int:
    """Return the true label with the given probability, otherwise another one."""
    if rng.random() < accuracy:
        return truth
    return int((truth + rng.integers(1, N_CLASSES)) % N_CLASSES)


def people_vote(
    rng: np.random.Generator, truth: Integers, accuracy: Floats, n_votes: int = VOTES_PER_ITEM
) -> list[VoteRow]:
    """Return the votes of people [a] of the given accuracy, a few random ones on each item."""
    rows = []
    for item, true_label in enumerate(truth):
        for person in rng.permutation(len(accuracy))[:n_votes]:
            rows.append((item, f"p{person}", draw_label(rng, int(true_label), accuracy[person])))
    return rows


def mixed_care(rng: np.random.Generator) -> Floats:
    """Return accuracies of people, from careless to careful."""
    return np.asarray(rng.uniform(0.35, 0.9, size=N_PEOPLE))


def people(rng: np.random.Generator) -> tuple[list[VoteRow], Integers]:
    """People of mixed care."""
    truth = draw_truth(rng)
    return people_vote(rng, truth, mixed_care(rng)), truth


def rules(rng: np.random.Generator) -> tuple[list[VoteRow], Integers]:
    """Rules that name one label or nothing, shown every item. Some are eager and some precise; the first class has few."""
    truth = draw_truth(rng)
    rows = []
    for label in range(N_CLASSES):
        for number in range(1 + label):
            recall = rng.uniform(0.3, 0.8)
            false_alarms = rng.choice([0.01, 0.05, 0.2])
            rate = np.where(truth == label, recall, false_alarms)
            for item in np.flatnonzero(rng.random(N_ITEMS) < rate):
                rows.append((int(item), f"rule {label}.{number}", label))
    return rows, truth


def spammers(rng: np.random.Generator) -> tuple[list[VoteRow], Integers]:
    """Careful people, beside as many who answer at random or always the same."""
    truth = draw_truth(rng)
    accuracy = np.full(N_PEOPLE, 0.75)
    accuracy[::4] = 1 / N_CLASSES
    always_first = {f"p{person}" for person in range(1, N_PEOPLE, 4)}
    rows = []
    for item, annotator, label in people_vote(rng, truth, accuracy):
        rows.append((item, annotator, 0 if annotator in always_first else label))
    return rows, truth


def herds(rng: np.random.Generator) -> tuple[list[VoteRow], Integers]:
    """Three who judge alone, and six who mostly repeat the answer of one."""
    truth = draw_truth(rng)
    rows = []
    for item, true_label in enumerate(truth):
        for person in range(3):
            rows.append((item, f"alone {person}", draw_label(rng, int(true_label), 0.7)))
        leader = draw_label(rng, int(true_label), 0.7)
        for person in range(6):
            label = leader if rng.random() < 0.85 else draw_label(rng, int(true_label), 0.7)
            rows.append((item, f"herd {person}", label))
    return rows, truth


def hard_items(rng: np.random.Generator) -> tuple[list[VoteRow], Integers]:
    """People of equal care; three items in ten draw the same mistake from more than half of them."""
    truth = draw_truth(rng)
    is_hard = rng.random(N_ITEMS) < 0.3
    mistaken_for = (truth + rng.integers(1, N_CLASSES, size=N_ITEMS)) % N_CLASSES
    rows = []
    for item, true_label in enumerate(truth):
        for person in rng.permutation(N_PEOPLE)[:VOTES_PER_ITEM]:
            label = draw_label(rng, int(true_label), 0.85)
            if is_hard[item] and rng.random() < 0.55:
                label = int(mistaken_for[item])
            rows.append((item, f"p{person}", label))
    return rows, truth


def rare_classes(rng: np.random.Generator) -> tuple[list[VoteRow], Integers]:
    """People of mixed care; nine items in ten are of one class."""
    truth = draw_truth(rng, np.array([0.9, 0.05, 0.03, 0.02]))
    return people_vote(rng, truth, mixed_care(rng)), truth


def one_vote_each(rng: np.random.Generator) -> tuple[list[VoteRow], Integers]:
    """Every vote is by another person."""
    truth = draw_truth(rng)
    rows = []
    for number, (item, _, label) in enumerate(people_vote(rng, truth, mixed_care(rng))):
        rows.append((item, f"p{number}", label))
    return rows, truth


def few_votes(rng: np.random.Generator) -> tuple[list[VoteRow], Integers]:
    """People of mixed care, two on each item."""
    truth = draw_truth(rng)
    return people_vote(rng, truth, mixed_care(rng), n_votes=2), truth


def jury(rng: np.random.Generator) -> tuple[list[VoteRow], Integers]:
    """Ten models that answer every item. Half of them are weak; on an item in four the strong ones share a mistake."""
    truth = draw_truth(rng)
    is_misleading = rng.random(N_ITEMS) < 0.25
    mistaken_for = (truth + rng.integers(1, N_CLASSES, size=N_ITEMS)) % N_CLASSES
    rows = []
    for item, true_label in enumerate(truth):
        for model in range(10):
            label = draw_label(rng, int(true_label), 0.85 if model < 5 else 0.4)
            if is_misleading[item] and model < 5 and rng.random() < 0.7:
                label = int(mistaken_for[item])
            rows.append((item, f"model {model}", label))
    return rows, truth


SIMULATED: dict[str, Callable[[np.random.Generator], tuple[list[VoteRow], Integers]]] = {
    "people": people,
    "rules": rules,
    "spammers": spammers,
    "herds": herds,
    "hard items": hard_items,
    "rare classes": rare_classes,
    "one vote each": one_vote_each,
    "few votes": few_votes,
    "jury": jury,
}
FEATURES = {"": 0.0, ", weak features": 0.7, ", good features": 2.0}  # distance of the classes' means
WITH_FEATURES = ("people", "rules", "hard items", "rare classes", "few votes")


ALONE = ", votes alone"


def simulate(kind: str, seed: int) -> Task:
    """Draw the votes of a kind, and eight features that are as informative as its name says."""
    base, comma, suffix = kind.partition(",")
    draw = SIMULATED[base]
    rng = np.random.default_rng([seed, list(SIMULATED).index(base)])
    rows, truth = draw(rng)
    votes = votes_of(rows)
    items = np.array(votes.items.to_pylist())
    x = np.zeros((len(truth), 0))
    distance = FEATURES[comma + suffix]
    if distance > 0:
        means = distance * rng.normal(size=(N_CLASSES, 8)) / np.sqrt(2)
        x = means[truth] + rng.normal(size=(len(truth), 8))
    return Task(votes, x[items], truth[items])


def simulate_more(kind: str, seed: int) -> Task:
    """Draw votes of one of MORE_KINDS, with its features or, where the name ends in "votes alone", without them."""
    base = kind.removesuffix(ALONE)
    rng = np.random.default_rng([seed, 777, list(MORE_KINDS).index(base)])
    rows, truth, x = MORE_KINDS[base](rng)
    named = np.unique([label for _, _, label in rows])
    is_named = np.isin(truth, named)  # an item of a class without rules cannot be right
    new_item = np.cumsum(is_named) - 1
    kept = []
    for item, annotator, label in rows:
        if is_named[item]:
            kept.append((int(new_item[item]), annotator, int(np.searchsorted(named, label))))
    if x is None or kind.endswith(ALONE):
        return task_of_rows(kept, np.searchsorted(named, truth[is_named]))
    return task_of_rows(kept, np.searchsorted(named, truth[is_named]), x[is_named])


def votes_of(rows: list[VoteRow]) -> Votes:
    """Return the votes; the index of a label is its number."""
    items, annotators, labels = zip(*rows, strict=True)
    return read_long(pa.table({"item": items, "annotator": annotators, "label": [str(label) for label in labels]}))


# ----------------------------------------------------------------------------------------------------------- real votes


def read_real(name: str, folder: Path) -> Task:
    """Read a set of real votes; only music has features here, since texts take longer."""
    if name == "music":
        stored = np.load(folder / "music-mturk/music.npz")
        voted_items, annotators = np.nonzero(stored["votes"] >= 0)
        labels = stored["votes"][voted_items, annotators]
        rows = []
        for item, annotator, label in zip(voted_items, annotators, labels, strict=True):
            rows.append((int(item), f"p{annotator}", int(label)))
        return task_of_rows(rows, stored["y_train"], np.asarray(stored["X_train"], dtype=np.float64))
    if name in ("emotion", "discourse"):
        with (folder / f"llm-css-small/{name}.csv").open(encoding="utf-8") as file:
            table = list(csv.DictReader(file))
        models = [column for column in table[0] if column not in ("item", "text", "truth")]
        rows = []
        for item, answers in enumerate(table):
            for model in models:
                rows.append((item, model, int(answers[model])))
        return task_of_rows(rows, np.array([int(answers["truth"]) for answers in table]))
    set_folder = folder / ("sentiment-mturk" if name == "sentiment" else name)
    items_file = "train.csv" if name == "sms-rules" else "items.csv"
    with (set_folder / items_file).open(encoding="utf-8") as file:
        truth_of_item = {row["item"]: row["truth"] for row in csv.DictReader(file)}
    with (set_folder / "votes.csv").open(encoding="utf-8") as file:
        vote_rows = [row for row in csv.DictReader(file) if row["item"] in truth_of_item]
    item_index = {item: index for index, item in enumerate(truth_of_item)}
    label_index = {label: index for index, label in enumerate(sorted({row["label"] for row in vote_rows}))}
    rows = [(item_index[row["item"]], row["annotator"], label_index[row["label"]]) for row in vote_rows]
    return task_of_rows(rows, np.array([label_index[label] for label in truth_of_item.values()]))


def task_of_rows(rows: list[VoteRow], truth: Any, x: Floats | None = None) -> Task:
    """Return the task of the items with votes."""
    votes = votes_of(rows)
    items = np.array(votes.items.to_pylist())
    features = np.zeros((len(truth), 0)) if x is None else x
    label_numbers = [int(label) for label in votes.labels]  # as text they need not be sorted as numbers
    position = np.full(max(label_numbers) + 1, -1)
    position[label_numbers] = np.arange(len(label_numbers))
    return Task(votes, features[items], position[np.asarray(truth, dtype=np.intp)[items]])


REAL = ("music", "sentiment", "sms-rules", "weather-tweets", "emotion", "discourse")


# -------------------------------------------------------------------------------------------------------------- systems


def majority(task: Task, seed: int) -> Floats:
    """Return vote shares; ties fall at random."""
    counts = vote_counts(task.votes)
    counts += np.random.default_rng(seed).random(counts.shape) / 1000
    return np.asarray(counts / counts.sum(1, keepdims=True))


def resolve(task: Task, seed: int) -> Floats:
    """Return the probabilities of `oneof fit --votes` as they are before networks are trained."""
    n, d = task.x.shape
    found = vote_prior(task.x, task.votes, np.arange(n), seed)
    encoding = Encoding(tuple(f"x{j}" for j in range(d)), (0.0,) * d, (), {}, ())
    data = Dataset.build(task.x, Candidates(found.candidates, np.array(task.votes.labels)), encoding, prior=found.prior)
    if d == 0:
        return np.asarray(found.evidence.posterior, dtype=np.float64)
    # In place of learners: the kernel regression or, where held-out votes do not choose it, a linear one.
    learned = found.evidence.neighbours
    if learned is None:
        learned = found.evidence.vote_model.predictions[-1]
    predictions = Predictions.from_single_model(learned.astype(np.float32), found.candidates)
    resolved = resolve_labels(replace(data, votes=found.evidence), predictions, found.candidates)
    return np.asarray(resolved.distribution, dtype=np.float64)


def crowd_kit(name: str, task: Task, seed: int) -> Floats:
    """Return what a model of crowd-kit makes of the votes; MMSR gives labels without probabilities."""
    from crowdkit import aggregation  # type: ignore[import-not-found]
    from pandas import DataFrame

    votes = DataFrame({"task": task.votes.item, "worker": task.votes.annotator, "label": task.votes.label})
    settings = {"random_state": seed} if name == "MMSR" else {}
    model = getattr(aggregation, name)(**settings)
    probabilities = np.zeros((len(task.truth), len(task.votes.labels)))
    if name == "MMSR":
        labels = model.fit_predict(votes).sort_index()
        probabilities[labels.index.to_numpy(), labels.to_numpy()] = 1.0
        return probabilities
    found = model.fit_predict_proba(votes).sort_index()
    probabilities[np.ix_(found.index.to_numpy(), found.columns.to_numpy())] = found.to_numpy()
    return probabilities


def crowdlab(task: Task, seed: int) -> Floats:
    """Return the consensus of CROWDLAB with cross-validated logistic regression, and its quality as the label's probability."""
    from cleanlab.multiannotator import get_label_quality_multiannotator  # type: ignore[import-not-found]

    n, c = len(task.truth), len(task.votes.labels)
    cells = np.full((n, len(task.votes.annotators)), np.nan)
    cells[task.votes.item, task.votes.annotator] = task.votes.label
    labels = majority(task, seed).argmax(1)
    classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=2000))
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    predicted = np.full((n, c), 1e-9)
    predicted[:, np.unique(labels)] += cross_val_predict(classifier, task.x, labels, cv=folds, method="predict_proba")
    found = get_label_quality_multiannotator(cells, predicted, verbose=False)["label_quality"]
    consensus = found["consensus_label"].to_numpy().astype(np.intp)
    quality = found["consensus_quality_score"].to_numpy()
    probabilities = np.tile((1 - quality)[:, None] / max(c - 1, 1), (1, c))
    probabilities[np.arange(n), consensus] = np.maximum(quality, probabilities[:, 0] + 1e-9)
    return probabilities


def peerannot(name: str, task: Task, seed: int) -> Floats:
    """Return the labels of a model of peerannot, with probability 1."""
    from peerannot.models.aggregation import iwmv, wawa  # type: ignore[import-not-found]

    answers: dict[int, dict[int, int]] = {}
    for item, annotator, label in zip(task.votes.item, task.votes.annotator, task.votes.label, strict=True):
        answers.setdefault(int(item), {})[int(annotator)] = int(label)
    c = len(task.votes.labels)
    classes = {"WAWA": wawa.Wawa, "IWMV": iwmv.IWMV}
    model = classes[name](answers, n_classes=c, n_workers=len(task.votes.annotators))
    model.run()
    labels = np.asarray(model.get_answers(), dtype=np.intp)
    return np.asarray(np.eye(c)[labels])


def activeml(name: str, task: Task, seed: int) -> Floats:
    """Return the probabilities of a classifier of scikit-activeml for the items that it learned from."""
    import torch
    from skactiveml.classifier import SklearnClassifier  # type: ignore[import-not-found]
    from skactiveml.classifier.multiannotator import (  # type: ignore[import-not-found]
        AnnotatorEnsembleClassifier,
        AnnotMixClassifier,
        CrowdLayerClassifier,
    )

    c = len(task.votes.labels)
    cells = np.full((len(task.truth), len(task.votes.annotators)), np.nan)
    cells[task.votes.item, task.votes.annotator] = task.votes.label
    x = StandardScaler().fit_transform(task.x).astype(np.float32)
    torch.manual_seed(seed)
    if name == "annotator ensemble":
        regression = LogisticRegression(C=0.1, max_iter=2000)
        members = []
        for annotator in task.votes.annotators:
            members.append((str(annotator), SklearnClassifier(regression, classes=range(c), random_state=seed)))
        model = AnnotatorEnsembleClassifier(members, voting="soft", classes=range(c), random_state=seed)
        model.fit(x, cells)
        return np.asarray(model.predict_proba(x), dtype=np.float64)

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = torch.nn.Linear(x.shape[1], 128)
            self.out = torch.nn.Linear(128, c)

        def forward(self, batch: Any) -> Any:
            embedding = torch.relu(self.hidden(batch))
            return self.out(embedding), embedding

    training = {"max_epochs": 50, "batch_size": 64, "lr": 0.01, "optimizer": torch.optim.AdamW, "verbose": 0}
    classes = {"annot-mix": AnnotMixClassifier, "crowd layer": CrowdLayerClassifier}
    model = classes[name](Network, neural_net_param_dict=training, classes=range(c), random_state=seed)
    model.fit(x, cells)  # returns None
    return np.asarray(model.predict_proba(x), dtype=np.float64)


SYSTEMS: dict[str, Callable[[Task, int], Floats]] = {
    "majority": majority,
    "dawid-skene": lambda task, seed: dawid_skene(task.votes).posterior,
    "ours": resolve,
}
if find_spec("crowdkit"):
    SYSTEMS["GLAD"] = partial(crowd_kit, "GLAD")
    SYSTEMS["MMSR"] = partial(crowd_kit, "MMSR")
if find_spec("cleanlab"):
    SYSTEMS["CROWDLAB"] = crowdlab
if find_spec("peerannot"):
    SYSTEMS |= {name: partial(peerannot, name) for name in ("WAWA", "IWMV")}
if find_spec("skactiveml"):
    SYSTEMS |= {name: partial(activeml, name) for name in ("annot-mix", "crowd layer", "annotator ensemble")}
NEED_FEATURES = ("CROWDLAB", "annot-mix", "crowd layer", "annotator ensemble")
NOT_RANDOM = ("dawid-skene", "ours", "GLAD", "WAWA", "IWMV")  # one seed is enough on real votes
SLOW = ("GLAD",)  # one seed is enough everywhere


def calibration_error(confidence: Floats, is_right: NDArray[Any], n_bins: int = 10) -> float:
    """Return the mean distance of confidence and accuracy over bins of equal mass."""
    order = np.argsort(confidence, kind="stable")
    total = 0.0
    for rows in np.array_split(order, n_bins):
        total += len(rows) * abs(confidence[rows].mean() - is_right[rows].mean())
    return total / len(confidence)


def calibration_band(confidence: Floats, n_draws: int = 200) -> float:
    """Return the 95 % quantile of the error of a calibrated system."""
    rng = np.random.default_rng(0)
    errors = [calibration_error(confidence, rng.random(len(confidence)) < confidence) for _ in range(n_draws)]
    return float(np.quantile(errors, 0.95))


def judge(probabilities: Floats, task: Task) -> dict[str, float]:
    """Return how good labels, probabilities and the review queue are."""
    is_right = probabilities.argmax(1) == task.truth
    confidence = probabilities.max(1)
    counts = vote_counts(task.votes)
    is_unanimous = ((counts > 0).sum(1) == 1) & (counts.sum(1) >= 2)
    first = np.argsort(confidence, kind="stable")[: max(1, len(confidence) // 10)]
    n_wrong = max(int((~is_right).sum()), 1)
    figures = {
        "right": is_right.mean(),
        "gap": confidence.mean() - is_right.mean(),
        "ece": calibration_error(confidence, is_right),
        "ece_band": calibration_band(confidence),
        "first_tenth": (~is_right[first]).sum() / n_wrong,
    }
    if is_unanimous.any():
        figures["unanimous_gap"] = confidence[is_unanimous].mean() - is_right[is_unanimous].mean()
    return {name: round(float(value), 5) for name, value in figures.items()}


# -------------------------------------------------------------------------------------------------------- rows and report


def all_kinds() -> list[str]:
    """Return the simulated kinds, those of WITH_FEATURES also with features, and the real sets where there is a data folder."""
    kinds = list(SIMULATED)
    for kind in WITH_FEATURES:
        kinds += [kind + suffix for suffix in FEATURES if suffix]
    for kind in MORE_KINDS:
        kinds.append(kind)
        if MORE_KINDS[kind](np.random.default_rng(0))[2] is not None:
            kinds.append(kind + ALONE)
    if data_folder(None) is not None:
        kinds += REAL
    return kinds


def draw(kind: str, seed: int, folder: Path) -> Task:
    """Return the votes of a kind: real ones from the folder, or simulated ones."""
    if kind in REAL:
        return read_real(kind, folder)
    if kind.removesuffix(ALONE) in MORE_KINDS:
        return simulate_more(kind, seed)
    return simulate(kind, seed)


def measure(kinds: list[str], systems: list[str], seeds: range, path: Path) -> None:
    """Append the rows that are missing."""
    done = {(row["kind"], row["system"], row["seed"]) for row in read(path)} if path.exists() else set()
    folder = (data_folder(None) or Path()) / "votes"
    for kind in kinds:
        for seed in seeds:
            missing = []
            for system in systems:
                is_needed = seed == seeds[0] or not (system in SLOW or (kind in REAL and system in NOT_RANDOM))
                if is_needed and (kind, system, seed) not in done:
                    missing.append(system)
            if not missing:
                continue
            task = draw(kind, seed, folder)
            for system in missing:
                if system in NEED_FEATURES and task.x.shape[1] == 0:
                    continue
                start = time.perf_counter()
                try:
                    probabilities = SYSTEMS[system](task, seed)
                except ValueError as error:  # MMSR finds no answer where all annotators vote on every item
                    print(f"{system} has no row for {kind}, seed {seed}: {error}")
                    continue
                figures = judge(probabilities, task)
                seconds = round(time.perf_counter() - start, 2)
                append(
                    path,
                    [{"kind": kind, "system": system, "seed": seed, **figures, "seconds": seconds, **origin("cpu")}],
                )


def table(rows: list[Row], kinds: list[str]) -> str:
    """Return the means over seeds as a table: labels right, gap, calibration error, errors in the first tenth; all in percent."""
    lines = ["| kind | " + " | ".join(SYSTEMS) + " |", "|---|" + "---|" * len(SYSTEMS)]
    for kind in kinds:
        cells = []
        for system in SYSTEMS:
            own_rows = [row for row in rows if row["kind"] == kind and row["system"] == system]
            means = []
            for name in ("right", "gap", "ece", "first_tenth"):
                values = [row[name] for row in own_rows if name in row]
                means.append(f"{100 * np.mean(values):.1f}" if values else "-")
            cells.append(" / ".join(means))
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


PUBLISHED = range(410, 413)  # seeds with rows of all rivals
FRESH = range(430, 433)  # seeds that were looked at once, after all of them
FRESH_RIVALS = ("majority", "dawid-skene", "CROWDLAB")
RIVALS = (
    "majority", "dawid-skene", "GLAD", "MMSR", "WAWA", "IWMV", "CROWDLAB", "annot-mix", "crowd layer", "annotator ensemble",
)  # fmt: skip


def means_of(rows: list[Row], seeds: range = PUBLISHED) -> dict[str, dict[str, dict[str, float]]]:
    """Return the mean of each figure over the seeds, in percent: kind -> system -> figure."""
    values: dict[str, dict[str, dict[str, list[float]]]] = {}
    for row in rows:
        if row["seed"] in seeds:
            figures = values.setdefault(row["kind"], {}).setdefault(row["system"], {})
            for name in ("right", "gap", "ece", "ece_band", "first_tenth"):
                figures.setdefault(name, []).append(100 * row[name])
    means: dict[str, dict[str, dict[str, float]]] = {}
    for kind, systems in values.items():
        means[kind] = {}
        for system, figures in systems.items():
            means[kind][system] = {name: float(np.mean(each)) for name, each in figures.items()}
    return means


def labels_section(rows: list[Row], seeds: range = PUBLISHED, rivals: tuple[str, ...] = RIVALS) -> str:
    """Return the share of labels that are right as Markdown, and by how much ours are short of the majority or of the best rival."""
    lines = ["| votes | " + " | ".join(rivals) + " | oneof | short by |", "|---" * (len(rivals) + 3) + "|"]
    means = means_of(rows, seeds)
    for kind, systems in means.items():
        cells = [f"{systems[system]['right']:.1f}" if system in systems else "" for system in rivals]
        lead = max(lead_of(rows, kind, system, seeds) - (0.5 if system == "majority" else 1.0) for system in rivals)
        cells += [f"**{systems['ours']['right']:.1f}**", f"{lead:.1f}" if lead > 0 else ""]
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def lead_of(rows: list[Row], kind: str, rival: str, seeds: range = PUBLISHED) -> float:
    """Return by how many points more labels of a rival are right than ours, on the seeds that it has; ours has one on real votes."""
    right: dict[str, dict[int, float]] = {rival: {}, "ours": {}}
    for row in rows:
        if row["kind"] == kind and row["system"] in right and row["seed"] in seeds:
            right[row["system"]][row["seed"]] = 100 * row["right"]
    if not right[rival]:
        return -100.0
    common_seeds = set(right[rival]) & set(right["ours"])
    if kind in REAL:
        return float(np.mean(list(right[rival].values()))) - float(np.mean(list(right["ours"].values())))
    return float(np.mean([right[rival][seed] - right["ours"][seed] for seed in common_seeds]))


def crowdlab_section(rows: list[Row]) -> str:
    """Return the mean lead over CROWDLAB on kinds with features, as a sentence."""
    leads = {
        kind: -lead_of(rows, kind, "CROWDLAB") for kind, systems in means_of(rows).items() if "CROWDLAB" in systems
    }
    least = min(leads, key=lambda kind: leads[kind])
    return (
        f"On the {len(leads)} sets with features `oneof` has {np.mean(list(leads.values())):.1f} points more of the labels right than CROWDLAB "
        f"in the mean; the smallest difference is {leads[least]:+.1f} ({least})."
    )


def reliability_section(rows: list[Row]) -> str:
    """Return how far our probabilities hold, as Markdown; of errors, the most that a tenth of the items can hold is in brackets."""
    lines = [
        "| votes | right | probability - right | calibration error (band) | errors in the first tenth |",
        "|---|---|---|---|---|",
    ]
    for kind, systems in means_of(rows).items():
        ours = systems["ours"]
        reachable = min(100.0, 10 / max(1 - ours["right"] / 100, 1e-9))
        cells = [f"{ours['right']:.1f}", f"{ours['gap']:+.1f}", f"{ours['ece']:.1f} ({ours['ece_band']:.1f})"]
        cells.append(f"{ours['first_tenth']:.0f} ({reachable:.0f})")
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", default=all_kinds(), choices=(*all_kinds(), *REAL), metavar="KIND")
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=list(SYSTEMS), metavar="SYSTEM")
    parser.add_argument("--seeds", default="0-1", help="first-last")
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--report", action="store_true", help="only print the table of the rows")
    options = parser.parse_args()
    first, last = map(int, options.seeds.split("-"))
    seeds = range(first, last + 1)
    if not options.report:
        measure(options.kinds, options.systems, seeds, options.rows)
    print(table([row for row in read(options.rows) if row["seed"] in seeds], options.kinds))


if __name__ == "__main__":
    main()
