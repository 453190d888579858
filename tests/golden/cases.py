"""Small inputs of every kind that the program takes, made from seeds: what the frozen outputs are outputs of."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from oneof.candidates.generate import Flip, generate
from oneof_paper.synthetic import mixture

NAMES = ("ant", "bee", "cat", "dog", "eel", "fox")
SMALL = ("--epochs", "4", "--networks", "2", "--seed", "3")


def write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return path


def _cell(names: Sequence[str], mask: np.ndarray) -> str:
    return "|".join(name for name, inside in zip(names[: len(mask)], mask, strict=True) if inside)


def _numbers(folder: Path, n: int, d: int, c: int, rate: float, seed: int) -> Path:
    data = mixture(n=n, d=d, c=c, separation=2.5, seed=seed)
    sets = generate(data.labels, c, Flip(rate=rate), seed=seed)
    rows = [[*map(float, x), _cell(NAMES, mask)] for x, mask in zip(data.x.round(4), sets, strict=True)]
    return write_csv(folder / "table.csv", [*(f"x{j}" for j in range(d)), "candidates"], rows)


def numbers(folder: Path) -> list[str]:
    """Numbers alone, few wrong candidates."""
    return [str(_numbers(folder, 160, 4, 4, 0.3, 1)), *SMALL]


def large_sets(folder: Path) -> list[str]:
    """Six classes, half of the wrong labels in every set."""
    return [str(_numbers(folder, 200, 3, 6, 0.5, 2)), *SMALL]


def quick(folder: Path) -> list[str]:
    """Without networks."""
    return [str(_numbers(folder, 150, 4, 3, 0.4, 3)), "--quick", "--seed", "3"]


def _mixed_columns(folder: Path, with_gaps: bool) -> Path:
    rng = np.random.default_rng(4)
    data = mixture(n=180, d=3, c=4, separation=2.5, seed=4)
    sets = generate(data.labels, 4, Flip(rate=0.3), seed=4)
    colours = np.array(["red", "green", "blue", "grey"])
    rows = []
    for i in range(180):
        shown = data.labels[i] if rng.random() < 0.7 else rng.integers(4)
        colour = str(colours[shown])
        size = ["small", "large"][int(data.x[i, 0] > 0)]
        first = f"{data.x[i, 1]:.3f}"
        if with_gaps and rng.random() < 0.15:
            colour = ""
        if with_gaps and rng.random() < 0.15:
            first = ""
        rows.append([colour, size, first, f"{data.x[i, 2]:.3f}", _cell(NAMES[:4], sets[i])])
    return write_csv(folder / "table.csv", ["colour", "size", "a", "b", "candidates"], rows)


def text_columns(folder: Path) -> list[str]:
    """Text columns of few values beside numbers."""
    return [str(_mixed_columns(folder, with_gaps=False)), *SMALL]


def gaps(folder: Path) -> list[str]:
    """The same with gaps in text and numbers."""
    return [str(_mixed_columns(folder, with_gaps=True)), *SMALL]


def gold_and_groups(folder: Path) -> list[str]:
    """True labels of some rows, and rows that belong together."""
    data = mixture(n=160, d=4, c=3, separation=2.0, seed=5)
    sets = generate(data.labels, 3, Flip(rate=0.5), seed=5)
    rows = []
    for i in range(160):
        gold = NAMES[data.labels[i]] if i % 4 == 0 else ""
        rows.append([*map(float, data.x[i].round(4)), f"g{i // 4}", gold, _cell(NAMES[:3], sets[i])])
    header = ["x0", "x1", "x2", "x3", "patient", "truth", "candidates"]
    file = write_csv(folder / "table.csv", header, rows)
    return [str(file), "--group", "patient", "--gold", "truth", *SMALL]


def _voted(folder: Path, votes: Sequence[Sequence[object]], x: np.ndarray) -> list[str]:
    table = write_csv(
        folder / "items.csv",
        ["item", *(f"x{j}" for j in range(x.shape[1]))],
        [[f"i{i}", *map(float, row)] for i, row in enumerate(x.round(4))],
    )
    ballots = write_csv(folder / "votes.csv", ["item", "annotator", "label"], votes)
    return [str(table), "--votes", str(ballots), *SMALL]


def people(folder: Path) -> list[str]:
    """Five people of different care, three votes an item."""
    rng = np.random.default_rng(6)
    data = mixture(n=120, d=3, c=3, separation=2.5, seed=6)
    care = (0.9, 0.8, 0.7, 0.6, 0.4)
    votes = []
    for i in range(120):
        for person in rng.choice(5, 3, replace=False):
            right = rng.random() < care[person]
            label = data.labels[i] if right else rng.integers(3)
            votes.append((f"i{i}", f"p{person}", NAMES[label]))
    return _voted(folder, votes, data.x)


def rules(folder: Path) -> list[str]:
    """Six voters, each of whom names one label or nothing."""
    rng = np.random.default_rng(7)
    data = mixture(n=160, d=4, c=2, separation=2.5, seed=7)
    votes = []
    for i in range(160):
        for rule in range(6):
            label = rule % 2
            rate = 0.5 if data.labels[i] == label else 0.02
            if rng.random() < rate:
                votes.append((f"i{i}", f"rule{rule}", NAMES[label]))
    return _voted(folder, votes, data.x)


def votes_alone(folder: Path) -> list[str]:
    """Votes on items without any feature."""
    rng = np.random.default_rng(8)
    truth = rng.integers(4, size=80)
    votes = []
    for i in range(80):
        for person in range(5):
            label = truth[i] if rng.random() < 0.5 + 0.1 * person else rng.integers(4)
            votes.append((f"i{i}", f"p{person}", NAMES[label]))
    table = write_csv(folder / "items.csv", ["item"], [[f"i{i}"] for i in range(80)])
    ballots = write_csv(folder / "votes.csv", ["item", "annotator", "label"], votes)
    return [str(table), "--votes", str(ballots), *SMALL]


def _write_pictures(folder: Path, count: int) -> np.ndarray:
    digits = load_digits()
    chosen = np.flatnonzero(digits.target < 3)[:count]
    for number, i in enumerate(chosen):
        pixels = (digits.images[i] * 15).astype(np.uint8)
        Image.fromarray(pixels).resize((16, 16)).save(folder / f"{number}.png")
    return np.asarray(digits.target[chosen])


def pictures(folder: Path) -> list[str]:
    """Files of pictures with candidate sets, learned by a network on the pixels."""
    return [*pictures_by_patches(folder), "--architecture", "lenet"]


def pictures_by_patches(folder: Path) -> list[str]:
    """Files of pictures with candidate sets, learned from features of their patches."""
    labels = _write_pictures(folder, 90)
    sets = generate(labels, 3, Flip(rate=0.3), seed=9)
    rows = [[f"{i}.png", _cell(NAMES[:3], sets[i])] for i in range(len(labels))]
    table = write_csv(folder / "table.csv", ["file", "candidates"], rows)
    return [str(table), "--image", "file", "--epochs", "3", "--networks", "1", "--seed", "3"]


def pictures_with_votes(folder: Path) -> list[str]:
    """Files of pictures that three people voted on."""
    rng = np.random.default_rng(10)
    labels = _write_pictures(folder, 90)
    votes = []
    for i, label in enumerate(labels):
        for person in range(3):
            named = label if rng.random() < 0.75 else rng.integers(3)
            votes.append((f"{i}.png", f"p{person}", NAMES[named]))
    table_rows = [[f"{i}.png", f"{i}.png"] for i in range(len(labels))]
    table = write_csv(folder / "table.csv", ["item", "file"], table_rows)
    ballots = write_csv(folder / "votes.csv", ["item", "annotator", "label"], votes)
    small = ("--epochs", "3", "--networks", "1", "--seed", "3")
    return [str(table), "--votes", str(ballots), "--image", "file", *small]


CASES: dict[str, Callable[[Path], list[str]]] = {
    "numbers": numbers,
    "large_sets": large_sets,
    "quick": quick,
    "text_columns": text_columns,
    "gaps": gaps,
    "gold_and_groups": gold_and_groups,
    "people": people,
    "rules": rules,
    "votes_alone": votes_alone,
    "pictures": pictures,
    "pictures_by_patches": pictures_by_patches,
    "pictures_with_votes": pictures_with_votes,
}


def read_golden(path: Path) -> dict[str, object]:
    return dict(json.loads(path.read_text(encoding="utf-8")))
