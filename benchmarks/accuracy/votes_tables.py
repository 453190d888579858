"""Votes on tables and texts: majority, Dawid-Skene, rivals and ours, on real votes and on simulated ones.

    python benchmarks/accuracy/votes_tables.py --sets music --seeds 0-9
    python benchmarks/accuracy/votes_tables.py --sets sentiment emotion discourse --seeds 0-0
    python benchmarks/accuracy/votes_tables.py --sets digits lost msrcv2 birdsong --seeds 140-149 --jobs 16     # hours of one core
    python benchmarks/accuracy/votes_tables.py --report

A row per set, system and seed: `right`, the share of items whose label is the true one, and `test`, where the set has test rows, the accuracy of the
system's classifier there. Truth reports and chooses nothing. A system whose row is in the file is skipped. crowd-kit and cleanlab run
where they can be imported (`pip install crowd-kit cleanlab`). ONEOF_DATA names the folder of the data.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from oneof import PartialLabelClassifier
from oneof.candidates.mask import Candidates
from oneof.data.dataset import Dataset
from oneof.data.encode import Encoding
from oneof.data.roles import ColumnRoles
from oneof.ensemble.pipeline import fit
from oneof.ensemble.records import FitResult
from oneof.learners.base import Resources
from oneof.learners.config import EnsembleConfig, FitConfig
from oneof.runs.read_dataset import TableWithVotes, add_votes
from oneof.storage.rows import append, read
from oneof.votes import Spelling, Votes, dawid_skene, join, read_long, top_p, union
from oneof_paper.data.catalogue import data_folder, load
from oneof_paper.paired_tests import holm, paired
from oneof_paper.results import origin

Floats = NDArray[np.float64]
SIMULATED = ("digits", "lost", "msrcv2", "birdsong")
TEXTS = ("sentiment", "emotion", "discourse")


class Jury(NamedTuple):
    """Votes on rows with features; the truth only reports."""

    votes: Votes
    x: Floats  # [n, d]
    truth: NDArray[np.intp]  # [n], numbers of the votes' labels
    text: bool
    x_test: Floats | None = None
    test: NDArray[np.intp] | None = None


class Outcome(NamedTuple):
    """Labels of the items and, where there are test rows, of these."""

    labels: NDArray[np.intp]
    test: NDArray[np.intp] | None = None
    facts: dict[str, Any] = {}  # noqa: RUF012 - never written to


# ------------------------------------------------------------------------------------------------------------------- data


@cache
def jury(name: str, each: int | None, seed: int) -> Jury:
    """A set of real votes by its name, or so many simulated votes on each row of a named table."""
    if name in SIMULATED:
        return simulated(name, each or 3, seed)
    folder = data_folder(None)
    if folder is None:
        raise SystemExit("ONEOF_DATA must name the folder of the data.")
    match name:
        case "music":
            stored = np.load(folder / "votes/music-mturk/music.npz")
            item, annotator = np.nonzero(stored["votes"] >= 0)
            votes = numbered(item, annotator, stored["votes"][item, annotator], 10)
            tables = (stored["X_train"].astype(float), stored["y_train"].astype(np.intp), False)
            return Jury(votes, *tables, stored["X_test"].astype(float), stored["y_test"].astype(np.intp))
        case "sentiment":
            items, cast = (rows_of_csv(folder / f"votes/sentiment-mturk/{part}.csv") for part in ("items", "votes"))
            columns = (np.array([int(row[key]) for row in cast]) for key in ("item", "annotator", "label"))
            return texts(numbered(*columns, 2), items)
        case _:
            items = rows_of_csv(folder / f"votes/llm-css-small/{name}.csv")
            classes = json.loads((folder / "votes/llm-css-small/classes.json").read_text())[name]
            models = [key for key in items[0] if key not in ("item", "text", "truth")]
            cells = [(i, a, int(row[key])) for i, row in enumerate(items) for a, key in enumerate(models) if row[key]]
            return texts(numbered(*map(np.array, zip(*cells, strict=True)), len(classes)), items)


def rows_of_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def texts(votes: Votes, items: list[dict[str, str]]) -> Jury:
    """TF-IDF of words and pairs of words, cut to 200 directions."""
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2).fit_transform(
        [row["text"] for row in items]
    )
    x = TruncatedSVD(200, random_state=0).fit_transform(words)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9)
    return Jury(votes, x, np.array([int(row["truth"]) for row in items]), True)


def numbered(item: Any, annotator: Any, label: Any, c: int) -> Votes:
    """Votes whose items, annotators and labels are numbers from 0 on."""
    table = {
        "item": item,
        "annotator": [f"{a:04d}" for a in annotator],
        "label": [f"{j:02d}" for j in label],
    }
    votes = read_long(pa.table(table), spelling=Spelling(classes=[f"{j:02d}" for j in range(c)]))
    if votes.items.to_pylist() != list(range(len(votes.items))):
        raise SystemExit("every item must have votes, in the order of the rows.")
    return votes


def simulated(name: str, each: int, seed: int) -> Jury:
    """Four fifths of a table with votes of 30 people, the rest to test on.

    A person of care r ~ Beta(4, 2) names the truth with probability r, else with equal chances a label that the person
    confuses it with (a permutation of one's own), or a favourite label.
    """
    rng = np.random.default_rng([seed, each])
    data = load(name)
    known = np.flatnonzero(data.labels >= 0)
    present, truth = np.unique(data.labels[known], return_inverse=True)
    x, c, people = data.x[known].reshape(len(known), -1).astype(float), len(present), 30
    care, mistaken = rng.beta(4, 2, people), np.stack([rng.permutation(c) for _ in range(people)])
    favourite = rng.integers(c, size=people)
    order = rng.permutation(len(x))
    rows, test = order[: len(x) * 4 // 5], order[len(x) * 4 // 5 :]
    item = np.repeat(np.arange(len(rows)), each)
    annotator = np.concatenate([rng.permutation(people)[:each] for _ in rows])
    true = truth[rows][item]
    error = np.where(rng.random(len(item)) < 0.5, mistaken[annotator, true], favourite[annotator])
    label = np.where(rng.random(len(item)) < care[annotator], true, error)
    return Jury(numbered(item, annotator, label, c), x[rows], truth[rows], False, x[test], truth[test])


# -------------------------------------------------------------------------------------------------------------------- ours


@cache
def with_votes(name: str, each: int | None, seed: int) -> tuple[Dataset, EnsembleConfig, dict[str, Any]]:
    """Return the data set, the config and what is known about the annotators, as `oneof fit --votes` makes them."""
    given = jury(name, each, seed if each else 0)
    sets = Candidates(union(given.votes).mask, np.array(given.votes.labels))
    names = tuple(f"x{k}" for k in range(given.x.shape[1]))
    data = Dataset.build(given.x, sets, Encoding(names, (0.0,) * len(names), (), {}, ()))
    voted = TableWithVotes(pa.table({}), ColumnRoles(), given.votes, np.arange(len(given.x)), [], {})
    return add_votes(data, voted, EnsembleConfig(), seed)


@cache
def fitted(name: str, each: int | None, seed: int) -> FitResult:
    data, config, _ = with_votes(name, each, seed)
    return fit(data, FitConfig(config, seed=seed), Resources("cpu"))


def ours(name: str, each: int | None, seed: int) -> Outcome:
    given = jury(name, each, seed if each else 0)
    result = fitted(name, each, seed)
    column = {label: j for j, label in enumerate(given.votes.labels)}
    labels = np.array([column[label] for label in result.purified["label"].to_pylist()])
    tested = None if given.x_test is None else result.model.probabilities(given.x_test).argmax(1)
    return Outcome(labels, tested, {"chosen": with_votes(name, each, seed)[2]["chosen"]})


def held_out(name: str, each: int | None, seed: int) -> Floats:
    """Probabilities [n, c] by two models, each for the half that it has not seen."""
    data, config, _ = with_votes(name, each, seed)
    halves = np.array_split(np.random.default_rng(seed).permutation(len(data)), 2)
    p = np.zeros(data.prior.shape)
    for half, other in (halves, halves[::-1]):
        sets = Candidates(data.candidates.mask[other], data.candidates.classes)
        part = Dataset.build(data.features[other], sets, data.encoding, prior=data.prior[other])
        result = fit(part, FitConfig(config, seed=seed), Resources("cpu"))
        p[half] = result.model.probabilities(data.features[half])
    return p


# ----------------------------------------------------------------------------------------------------------------- systems


def majority(data: Jury, seed: int) -> NDArray[np.intp]:
    """Ties fall at random."""
    counts = np.random.default_rng(seed).random((len(data.truth), len(data.votes.labels))) / 10
    np.add.at(counts, (data.votes.item, data.votes.label), 1)
    return counts.argmax(1)


def logistic(data: Jury) -> Any:
    return make_pipeline(StandardScaler(with_mean=not data.text), LogisticRegression(C=0.1, max_iter=2000))


def then_logistic(data: Jury, labels: NDArray[np.intp]) -> Outcome:
    tested = None if data.x_test is None else logistic(data).fit(data.x, labels).predict(data.x_test)
    return Outcome(labels, tested)


def from_sets(data: Jury, mask: NDArray[np.bool_], seed: int) -> Outcome:
    """Today's default on sets."""
    learned = PartialLabelClassifier(random_state=seed, classes=list(range(mask.shape[1]))).fit(data.x, mask)
    tested = None if data.x_test is None else np.asarray(learned.predict(data.x_test), dtype=np.intp)
    return Outcome(np.asarray(learned.transduction_, dtype=np.intp), tested)


def crowd_kit(data: Jury, name: str) -> Outcome:
    from crowdkit import aggregation  # type: ignore[import-not-found]
    from pandas import DataFrame

    votes = DataFrame({"task": data.votes.item, "worker": data.votes.annotator, "label": data.votes.label})
    random = {"random_state": 0} if name == "MMSR" else {}
    model = getattr(aggregation, name)(**random)
    return then_logistic(data, model.fit_predict(votes).sort_index().to_numpy().astype(np.intp))


def crowdlab(data: Jury, probabilities: Floats) -> Outcome:
    from cleanlab.multiannotator import get_label_quality_multiannotator  # type: ignore[import-not-found]

    cells = np.full((len(data.truth), len(data.votes.annotators)), np.nan)
    cells[data.votes.item, data.votes.annotator] = data.votes.label
    found = get_label_quality_multiannotator(cells, probabilities, verbose=False)
    return then_logistic(data, found["label_quality"]["consensus_label"].to_numpy().astype(np.intp))


def logistic_probabilities(data: Jury, labels: NDArray[np.intp]) -> Floats:
    """Of rows left out in five folds; a class that nobody was given has none."""
    p = np.zeros((len(labels), len(data.votes.labels)))
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    p[:, np.unique(labels)] = cross_val_predict(logistic(data), data.x, labels, cv=folds, method="predict_proba")
    return p + 1e-9


def systems(name: str, each: int | None, seed: int) -> dict[str, Callable[[], Outcome]]:
    """What can be run, by name; nothing runs before it is called."""
    data = jury(name, each, seed if each else 0)
    found: dict[str, Callable[[], Outcome]] = {
        "majority": lambda: then_logistic(data, majority(data, seed)),
        "Dawid-Skene": lambda: then_logistic(data, dawid_skene(data.votes).posterior.argmax(1)),
        "annotators": lambda: then_logistic(data, join(data.votes).posterior.argmax(1)),
        "oneof fit --votes": partial(ours, name, each, seed),
        "sets: union": lambda: from_sets(data, union(data.votes).mask, seed),
        "sets: Dawid-Skene 90 %": lambda: from_sets(data, top_p(data.votes, 0.9).mask, seed),
    }
    if find_spec("crowdkit"):
        for rival in ("MajorityVote", "DawidSkene", "GLAD", "MMSR"):
            found[f"crowd-kit {rival}"] = partial(crowd_kit, data, rival)
    if find_spec("cleanlab"):
        found["CROWDLAB, logistic"] = lambda: crowdlab(data, logistic_probabilities(data, majority(data, seed)))
        found["CROWDLAB, ours"] = lambda: crowdlab(data, held_out(name, each, seed) + 1e-9)
    return found


ONCE = ("Dawid-Skene", "annotators")  # nothing random in them but simulated votes


# -------------------------------------------------------------------------------------------------------------------- rows


def run(name: str, each: int | None, seed: int, wanted: list[str] | None, path: Path) -> None:
    done = {(row["set"], row["votes"], row["system"], row["seed"]) for row in read(path)} if path.exists() else set()
    data = jury(name, each, seed if each else 0)
    for system, call in systems(name, each, seed).items():
        first_only = each is None and (system in ONCE or system.startswith("crowd-kit"))
        if (name, each, system, seed) in done or (wanted and system not in wanted) or (first_only and seed > 0):
            continue
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # rivals warn of versions and of convergence
            outcome = call()
        right = float((outcome.labels == data.truth).mean())
        test = None if outcome.test is None or data.test is None else float((outcome.test == data.test).mean())
        row = {
            "set": name,
            "votes": each,
            "system": system,
            "seed": seed,
            "right": right,
            "test": test,
            **outcome.facts,
        }
        row |= {"seconds": round(time.perf_counter() - start, 2), **origin("cpu")}
        append(path, [row])
        print(f"{name:10} {each or '':2} {system:34} seed {seed}  right {right:.4f}  test {test or 0:.4f}", flush=True)


RIVALS = ("majority", "Dawid-Skene", "annotators", "CROWDLAB, logistic", "CROWDLAB, ours")
OURS = "oneof fit --votes"


def report(path: Path) -> str:
    """Real votes: means and deviations over seeds, as Markdown."""
    lines = ["| set | system | labels right % | test % | seeds |", "|---|---|---|---|---|"]
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for row in read(path):
        if row["votes"] is None:
            groups.setdefault((row["set"], row["system"]), []).append(row)
    sets = list(dict.fromkeys(name for name, _ in groups))
    for key in sorted(groups, key=lambda one: sets.index(one[0])):
        rows = groups[key]
        cells = [spread([row[name] for row in rows]) for name in ("right", "test")]
        lines.append(f"| {' | '.join(map(str, [*key, *cells, len(rows)]))} |")
    return "\n".join(lines)


def simulated_report(path: Path) -> str:
    """Simulated votes: labels right by every system, and whether ours are more, by paired t-tests with Holm's correction."""
    rows = {(row["set"], row["votes"], row["system"], row["seed"]): row["right"] for row in read(path) if row["votes"]}
    lines = [f"| set | votes | {' | '.join(RIVALS)} | {OURS} | not above, p > 0.05 |", "|---" * (len(RIVALS) + 4) + "|"]
    cells = sorted({(name, each) for name, each, _, _ in rows}, key=lambda one: (SIMULATED.index(one[0]), one[1]))
    right = {
        (*cell, system): [rows[*cell, system, seed] for seed in sorted({key[3] for key in rows})]
        for cell in cells
        for system in (*RIVALS, OURS)
    }
    tests = {(*cell, rival): paired(right[*cell, OURS], right[*cell, rival]) for cell in cells for rival in RIVALS}
    p = dict(zip(tests, holm([test.t_p for test in tests.values()]), strict=True))
    for cell in cells:
        open_ = [rival for rival in RIVALS if tests[*cell, rival].gain <= 0 or p[*cell, rival] > 0.05]
        said = "; ".join(f"{rival} (p = {p[*cell, rival]:.2f})" for rival in open_)
        shown = [spread(list(right[*cell, system])) for system in (*RIVALS, OURS)]
        lines.append(f"| {' | '.join(map(str, [*cell, *shown, said]))} |")
    return "\n".join(lines)


PEOPLE = {
    "music": "700 songs, 44 people",
    "sentiment": "4,999 sentences, 203 people",
    "emotion": "500 texts, 12 language models",
    "discourse": "500 texts, 13 language models",
}
PICTURES = "CIFAR-10N: 50,000 pictures, 3 people each"
SHOWN = {
    "majority": "majority",
    "Dawid-Skene": "Dawid-Skene",
    "GLAD": "crowd-kit GLAD",
    "MMSR": "crowd-kit MMSR",
    "CROWDLAB": "CROWDLAB, ours",
    "oneof": OURS,
}
ON_PICTURES = {
    "majority": "majority",
    "Dawid-Skene": "rival-dawid-skene",
    "GLAD": "rival-glad",
    "MMSR": "rival-mmsr",
    "CROWDLAB": "rival-crowdlab",
    "oneof": "votes + 0.2, balanced",
}


def real(path: Path, pictures: Path) -> dict[str, dict[str, list[float]]]:
    """Return labels right in % on real votes: what -> system -> one number for each run."""
    found: dict[str, dict[str, list[float]]] = {}
    on_pictures = [row for row in read(pictures) if row["plan"] == "forms" and row["epochs"] == 40]
    for what, key in (("", "resolved"), (", new pictures", "accuracy")):
        found[PICTURES + what] = {}
        for name, form in ON_PICTURES.items():
            found[PICTURES + what][name] = [100 * row[key] for row in on_pictures if row["form"] == form]
    rows = [row for row in read(path) if row["votes"] is None]
    for name, people in PEOPLE.items():
        cells = {}
        for short, system in SHOWN.items():
            values = [100 * row["right"] for row in rows if (row["set"], row["system"]) == (name, system)]
            if values:
                cells[short] = values
        found[f"{name}: {people}"] = cells
    return found


def short_report(path: Path, pictures: Path) -> str:
    """Return the table of README: means, with the number of runs in brackets."""
    lines = [f"| labels right, % (runs) | {' | '.join(SHOWN)} |", "|---" * (len(SHOWN) + 1) + "|"]
    for what, cells in real(path, pictures).items():
        means = {name: round(float(np.mean(values)), 1) for name, values in cells.items()}
        best = max(means.values())
        shown = []
        for name in SHOWN:
            if name not in means:
                shown.append("")
                continue
            mean = f"**{means[name]}**" if means[name] == best else f"{means[name]}"
            shown.append(f"{mean} ({len(cells[name])})")
        lines.append(f"| {what} | {' | '.join(shown)} |")
    return "\n".join(lines)


def draw(path: Path, pictures: Path, out: Path) -> None:
    """Draw README's picture: wrong labels that are left by each system, and the number of runs behind each bar."""
    from matplotlib import pyplot as plt

    found = real(path, pictures)
    figure, axes = plt.subplots(figsize=(10, 3.6), layout="constrained")
    colours = ("#d5d9df", "#b9c1cb", "#9aa4b2", "#7d8a9c", "#5d6b80", "#0b6e4f")
    width = 0.8 / len(SHOWN)
    for k, name in enumerate(SHOWN):
        wrong = [100 - float(np.mean(cells[name])) for cells in found.values()]
        runs = [len(cells[name]) for cells in found.values()]
        places = np.arange(len(found)) + width * (k - (len(SHOWN) - 1) / 2)
        bars = axes.bar(places, wrong, 0.95 * width, label=name, color=colours[k])
        texts = [f"{share:.1f}\n({count})" for share, count in zip(wrong, runs, strict=True)]
        axes.bar_label(bars, labels=texts, fontsize=5.5, padding=1)
    labels = [what.replace(": ", "\n").replace(", ", ",\n") for what in found]
    axes.set_xticks(np.arange(len(found)), labels, fontsize=8)
    axes.set_ylabel("wrong labels left, % (runs)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=3, fontsize=8, loc="upper left")
    axes.margins(y=0.12)
    figure.savefig(out, dpi=160, metadata={"Software": None})
    plt.close(figure)


def spread(values: list[float | None]) -> str:
    known = 100 * np.array([value for value in values if value is not None])
    if not len(known):
        return ""
    return f"{known.mean():.1f}" + (f" ± {known.std(ddof=1):.1f}" if len(known) > 1 else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=("music", *TEXTS, *SIMULATED), default=["music"])
    parser.add_argument("--votes", nargs="+", type=int, default=[2, 3, 5], help="votes per row of simulated sets")
    parser.add_argument("--seeds", default="0-9", help="first-last")
    parser.add_argument("--systems", nargs="+", help="names of systems; default: all that can run")
    parser.add_argument("--rows", type=Path, default=Path("results/votes_tables.jsonl"))
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with one thread")
    parser.add_argument("--picture", type=Path, help="draw README's picture of the rows, and run nothing")
    parser.add_argument("--report", action="store_true", help="print the table of the rows and run nothing")
    asked = parser.parse_args()
    if asked.report:
        print(report(asked.rows), simulated_report(asked.rows), sep="\n\n")
        return
    if asked.picture:
        draw(asked.rows, asked.rows.with_name("votes_cifar10n.jsonl"), asked.picture)
        return
    first, last = map(int, asked.seeds.split("-"))
    work = [
        (name, each, seed, asked.systems, asked.rows)
        for seed in range(first, last + 1)
        for name in asked.sets
        for each in (asked.votes if name in SIMULATED else [None])
    ]
    with ProcessPoolExecutor(asked.jobs, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        for future in [pool.submit(run, *one) for one in work]:
            future.result()


if __name__ == "__main__":
    main()
