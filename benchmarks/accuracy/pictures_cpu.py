"""Few pictures on a CPU by the front door: people's votes on CIFAR-10 (CIFAR-10N), and a weak classifier's sets on Fashion-MNIST.

    python benchmarks/accuracy/pictures_cpu.py --task votes --seeds 105-107        # 1,500 pictures, three people's votes on each
    python benchmarks/accuracy/pictures_cpu.py --task doubts --seeds 105-107       # 2,000 pictures, the truth and what a weak classifier takes for possible
    python benchmarks/accuracy/pictures_cpu.py --task weak --seeds 105-107         # its own sets, which may miss the truth
    python benchmarks/accuracy/pictures_cpu.py --task votes --seeds 0 --options "--architecture lenet --time-limit 5m" --rows /tmp/rows.jsonl
    python benchmarks/accuracy/pictures_cpu.py --report

A row for each seed: wall and processor seconds of `oneof fit` (files to labels), the share of its labels that are right, and the accuracy on
2,000 test pictures. True labels only count what came out. Seeds 0 to 9 chose, 105 and up report.
"""

from __future__ import annotations

import argparse
import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray
from pictures import oneof, share_right, workplace, write_pictures
from sklearn.linear_model import LogisticRegression

from oneof.storage.rows import Row, append, read
from oneof_paper.data.catalogue import LabelledData, data_folder, load
from oneof_paper.image_sets import training_part
from oneof_paper.readers.cifar import read_cifar10n
from oneof_paper.results import origin

ROWS = Path("results/pictures_cpu.jsonl")
N_TEST = 2000
N_TAUGHT = 300  # pictures with true labels that the weak classifier learns from, none of which is in the table
MASS = 0.9  # of the weak classifier's probability that its own sets hold
DOUBT = 0.15  # of the largest probability, from which the weak classifier takes a label for possible


class Task(NamedTuple):
    """What is given for the pictures."""

    dataset: str
    n: int


TASKS = {"votes": Task("cifar10", 1500), "doubts": Task("fashion-mnist", 2000), "weak": Task("fashion-mnist", 2000)}


def weak_sets(data: LabelledData, rows: NDArray[np.intp], taught: NDArray[np.intp], task: str) -> NDArray[np.bool_]:
    """Return the sets [n, c] of a logistic regression on the pixels of a few pictures.

    Its own sets hold MASS of its probability; its doubts are the truth, and what it finds at least DOUBT as probable as its favourite.
    """
    x = data.x.reshape(len(data.x), -1) / 255
    weak = LogisticRegression(C=0.1, max_iter=100).fit(x[taught], data.labels[taught])
    probabilities = np.zeros((len(rows), len(data.classes)))
    probabilities[:, weak.classes_] = weak.predict_proba(x[rows])
    if task == "doubts":
        sets = probabilities >= DOUBT * probabilities.max(1, keepdims=True)
        sets[np.arange(len(rows)), data.labels[rows]] = True
        return sets
    order = np.argsort(-probabilities, axis=1)
    before = np.take_along_axis(probabilities, order, 1).cumsum(1) - np.take_along_axis(probabilities, order, 1)
    sets = np.zeros(probabilities.shape, dtype=bool)
    np.put_along_axis(sets, order, before < MASS, axis=1)
    return sets


def write_votes(data: LabelledData, rows: NDArray[np.intp], folder: Path) -> float:
    """Write the votes of three people on each picture; return the share of rows whose majority, ties drawn, is right."""
    human = data_folder(None)
    if human is None:
        raise SystemExit("ONEOF_DATA must name the folder with cifar10n")
    people = read_cifar10n(human / "cifar10n/CIFAR-10_human.pt")
    votes = people.labels[rows]
    names = [f"png/{row:05d}.png" for row in rows]
    columns = {
        "file": np.repeat(names, votes.shape[1]).tolist(),
        "annotator": [f"person {j}" for j in range(votes.shape[1])] * len(rows),
        "label": [str(data.classes[j]) for j in votes.ravel()],
    }
    pyarrow.csv.write_csv(pyarrow.table(columns), folder / "votes.csv")
    counts = np.zeros((len(rows), len(data.classes)))
    np.add.at(counts, (np.arange(len(rows))[:, None], votes), 1)
    is_top = counts == counts.max(1, keepdims=True)
    right = is_top[np.arange(len(rows)), data.labels[rows]] / is_top.sum(1)
    return float(right.mean())


def perform(task_name: str, n: int | None, seed: int, options: Sequence[str], folder: Path) -> Row:
    """Fit, clean and predict once; return what came out."""
    task = TASKS[task_name]
    data = load(task.dataset)
    m = training_part(data)
    n = n or task.n
    rng = np.random.default_rng(seed)
    order = rng.permutation(m)
    train = np.sort(order[:n])
    test = np.sort(m + rng.permutation(len(data.x) - m)[:N_TEST])
    given: dict[str, Any] = {}
    command = ["--image", "file", "--seed", seed, *options]
    if task_name == "votes":
        table = write_pictures(data, train, folder / "train", None)
        given["majority"] = round(write_votes(data, train, folder / "train"), 6)
        command += ["--votes", folder / "train/votes.csv", "--on", "file"]
    else:
        sets = np.zeros((m, len(data.classes)), dtype=bool)
        sets[train] = weak_sets(data, train, order[n : n + N_TAUGHT], task_name)
        table = write_pictures(data, train, folder / "train", sets)
        given["covered"] = round(float(sets[train, data.labels[train]].mean()), 6)
        given["set size"] = round(float(sets[train].sum(1).mean()), 3)
    new = write_pictures(data, test, folder / "test", None)
    run = folder / "run"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = oneof("fit", table, "--out", run, *command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    oneof("clean", run, "--out", folder / "labels.parquet")
    oneof("predict", run, new, "--out", folder / "new.csv")
    found = pyarrow.parquet.read_table(folder / "labels.parquet").sort_by("row")
    predicted = pyarrow.csv.read_csv(folder / "new.csv")["label"].to_pylist()
    return {
        "task": task_name,
        "dataset": task.dataset,
        "images": n,
        "seed": seed,
        "options": list(options),
        **given,
        "seconds": round(seconds, 1),
        "processor_seconds": round(processor, 1),
        "resolved": share_right(found["label"].to_pylist(), data.labels[train], data.classes),
        "accuracy": share_right(predicted, data.labels[test], data.classes),
    }


def table(rows: Sequence[Row]) -> str:
    """Return a Markdown table of means over seeds."""
    head = [
        "pictures",
        "given",
        "options",
        "seeds",
        "labels right %",
        "given alone %",
        "new pictures right %",
        "processor s",
    ]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["images"], row["dataset"], row["task"], " ".join(row["options"])), []).append(row)
    for (n, dataset, task, options), group in groups.items():
        alone = [row.get("majority", row.get("covered")) for row in group]
        cells = [
            f"{n:,} of {dataset}",
            task,
            options,
            str(len(group)),
            f"{100 * np.mean([row['resolved'] for row in group]):.1f}",
            f"{100 * np.mean(alone):.1f}" if task == "votes" else f"({100 * np.mean(alone):.1f} covered)",
            f"{100 * np.mean([row['accuracy'] for row in group]):.1f}",
            f"{np.mean([row['processor_seconds'] for row in group]):.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=TASKS, default="votes")
    parser.add_argument("--seeds", default="0", help="such as 0 or 105-107")
    parser.add_argument("--images", type=int, help="default: 1,500 of CIFAR-10, 2,000 of Fashion-MNIST")
    parser.add_argument("--options", default="", help="more options of oneof fit")
    parser.add_argument("--folder", type=Path, help="where to work; default: a temporary folder")
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--report", action="store_true", help="print the table of all rows")
    given = parser.parse_args(arguments)
    if given.report:
        print(table(read(given.rows)))
        return
    first, _, last = given.seeds.partition("-")
    for seed in range(int(first), int(last or first) + 1):
        with workplace(given.folder) as folder:
            row = perform(given.task, given.images, seed, given.options.split(), folder)
        row |= origin("cpu")
        append(given.rows, [row])
        print(row, flush=True)


if __name__ == "__main__":
    main()
