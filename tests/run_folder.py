"""A RUN folder made up for tests of the page: the files that `oneof fit` writes, with labels that are hard to show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

NASTY = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
    "say \"hi\" & 'bye'",
    "🦊 fox",
    "ثعلب أحمر",
    "a name of two hundred characters " + "x" * 167,
    "$\\alpha_",
    "{{ 7 * 7 }}",
    "plain",
    "rare",
]
FALL = pa.struct([("label", pa.string()), ("round", pa.int32()), ("margin", pa.float32()), ("trials", pa.int32())])


def write_run(
    folder: Path, n: int = 400, names: list[str] = NASTY, *, gold: float = 0.3, groups: int = 4, seed: int = 0
) -> Path:
    """Write a RUN of n rows; gold is the share of rows with a gold label (0: no such column), likewise groups."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    columns = _purified(rng, n, names)
    truth = columns.pop("truth")
    if groups:
        columns["group"] = pa.array([f"site <b>{g}</b>" for g in rng.integers(groups, size=n)])
    if gold:
        known = rng.random(n) < gold
        columns["gold"] = pa.array([name if k else None for name, k in zip(truth, known, strict=True)], pa.string())
    pq.write_table(pa.table(columns), folder / "purified.parquet")
    (folder / "training.json").write_text(json.dumps(_training(rng)))
    (folder / "run.json").write_text(json.dumps(_facts(n, names, bool(gold))))
    rows = [{"seed": s, "lr": lr, "covering": 0.9 + s / 100, "epoch": 30} for s in range(3) for lr in (0.01, 0.1)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def _purified(rng: np.random.Generator, n: int, names: list[str]) -> dict[str, Any]:
    """Sets around a true label, purified by a noisy score; everything follows from `score` [n, c]."""
    c = len(names)
    share = np.linspace(2, 0.1, c)
    truth = rng.choice(c, n, p=share / share.sum())
    original = rng.random((n, c)) < np.where((np.arange(c)[:, None] ^ 1) == np.arange(c), 0.6, 0.15)[truth]
    original[np.arange(n), truth] = True
    score = rng.gumbel(size=(n, c)) + 3.2 * np.eye(c)[truth]
    score[:, -1] -= 2.5  # the rarest class is easily lost
    inside = np.where(original, np.exp(score), 0)
    inside /= inside.sum(1, keepdims=True)
    kept = original & (inside > 0.5 * inside.max(1, keepdims=True) - 0.1)
    best = np.sort(inside, 1)
    label, probability = inside.argmax(1), best[:, -1]
    outside = rng.choice(c, n)
    flagged = (rng.random(n) < 0.02) & ~original[np.arange(n), outside]
    text = np.array(names, dtype=object)
    return {
        "row": pa.array(np.arange(n)),
        "original": _lists(original, pa.array(text)),
        "kept": _lists(kept, pa.array(text)),
        "label": pa.array(text[label]),
        "probability": pa.array(probability),
        "margin": pa.array(best[:, -1] - best[:, -2]),
        "agreement": pa.array(np.clip(np.ceil(probability * 5 + rng.random(n) - 0.5), 1, 5) / 5),
        "ask": pa.array(probability < 0.5),
        "trained": pa.array(np.full(n, 5, dtype=np.int32)),
        "gain": pa.array(((1 - probability) * rng.uniform(1, 2, n)).astype(np.float32)),
        "outside": pa.array([name if f else None for name, f in zip(text[outside], flagged, strict=True)], pa.string()),
        "neighbours": pa.array([[]] * n, pa.list_(pa.int64())),
        "removed": _falls(rng, original & ~kept, inside, pa.array(text)),
        "distribution": pa.array([list(row[given]) for row, given in zip(inside, original, strict=True)]),
        "truth": text[truth],
    }


def _lists(mask: np.ndarray, names: pa.Array) -> pa.ListArray:
    offsets = np.concatenate([[0], mask.sum(1).cumsum()]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), names.take(pa.array(mask.nonzero()[1])))


def _falls(rng: np.random.Generator, gone: np.ndarray, inside: np.ndarray, names: pa.Array) -> pa.ListArray:
    row, label = gone.nonzero()
    columns = [
        names.take(pa.array(label)),
        pa.array(rng.integers(0, 9, len(row)).astype(np.int32)),
        pa.array((inside.max(1)[row] - inside[row, label]).astype(np.float32)),
        pa.array(rng.integers(1, 6, len(row)).astype(np.int32)),
    ]
    offsets = np.concatenate([[0], gone.sum(1).cumsum()]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.StructArray.from_arrays(columns, fields=list(FALL)))


def _training(rng: np.random.Generator, epochs: int = 60, t: int = 5) -> dict[str, Any]:
    at = np.arange(epochs)[:, None]
    noise = rng.normal(0, 0.006, (epochs, t))
    rounds = (at >= 20) & (at % 5 == 4)
    columns = {
        "loss": 1.6 * np.exp(-at / 15) + 0.2 + noise,
        "set_size": np.clip(2.6 - 0.2 * np.maximum(at // 5 - 3, 0) + noise, 1.1, None),
        "threshold": np.clip(0.9 - 0.1 * np.maximum(at // 5 - 4, 0), 0.1, None) + 0 * noise,
        "removed": np.where(rounds, np.maximum(120 - at, 0), 0) + 0 * noise,
        "covering": 0.97 - 0.4 * np.exp(-at / 8) + noise,
        "approximated": 0.92 - 0.5 * np.exp(-at / 12) + noise,
    }
    return {
        "trials": t,
        "epochs": epochs,
        "columns": {name: np.round(values, 6).tolist() for name, values in columns.items()},
        "chosen": [48, 52, 55, 57, 59],
    }


def _facts(n: int, names: list[str], gold: bool) -> dict[str, Any]:
    return {
        "oneof": "0.1.0",
        "format": 1,
        "torch": "2.13.0",
        "command": ["oneof", "fit", "animals <v2>.csv", "--candidates", "candidates", "--out", "RUN"],
        "seed": 0,
        "file": "/home/<someone>/animals <v2>.csv",
        "fingerprint": "5f" * 32,
        "n": n,
        "d": 24,
        "classes": names,
        "features": [f"x{j}" for j in range(24)],
        "candidates": "candidates",
        "learners": {"networks": 1.0},
        "chosen": [{"lr": 0.05, "hidden": [128], "scaling": "feature", "purify": {"Pop": {"warm_up": 20}}}],
        "rule": "covering",
        "estimate": {
            "verdict": "interval",
            "value": 0.87,
            "low": 0.82,
            "high": 0.91,
            "bound": 0.95,
            "covering": 0.93,
            "by": "gold labels" if gold else "candidate sets",
            "reason": "50 rows of a random sample have gold labels" if gold else "if wrong labels come by chance",
        },
        "asked": {"train_on_gold": False},
        "warnings": ["'plain' and '<rare>' occur together in 94 % of their sets."],
        "seconds": 41.7,
    }
