"""Resolve a table that has votes and no features: nothing is trained, and the votes decide."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pyarrow as pa
import torch

from oneof.ensemble import resolve as labels
from oneof.ensemble.accuracy import Claim
from oneof.ensemble.model import Model
from oneof.ensemble.pipeline import Examples, Learned, purified_table, training_record
from oneof.version import RUN_FORMAT, __version__


def resolve_votes(examples: Examples, seed: int) -> Learned:
    """Give every row the label that the votes find most probable.

    The model has no learners, so it predicts nothing. A row without votes gets the most frequent label, and is to be reviewed.
    """
    if examples.beside is None:
        raise ValueError("a table without features must have votes; got none. Add columns to learn from, or votes.")
    classes = [str(name) for name in examples.candidates.classes.tolist()]
    original = examples.candidates.mask
    n, c = original.shape
    allowed = original & examples.given
    allowed = np.where(allowed.any(1, keepdims=True), allowed, original)
    uniform = np.full((n, c), 1 / c, dtype=np.float32)
    opinions = labels.Opinions(uniform, np.zeros(n, dtype=bool), np.ones((n, c), dtype=np.float32))
    resolved = labels.resolve(opinions, original, allowed, examples.beside._replace(opinion=None, votes=None))

    reason = "the run was fitted to votes alone, so it predicts no new rows"
    estimate = Claim("bound", None, 0.0, 1.0, 1.0, 1.0, "votes", reason)
    calibration = {"by": "nothing", "reason": reason, "rows": 0, "accuracy": [], "scores": []}
    model = Model(classes, examples.encoding, (), calibration)
    names = pa.array(classes, pa.string())
    columns = {
        "removed": labels.gather_falls([], original, names),
        "trained": pa.array(np.zeros(n, dtype=np.int32)),
        "neighbours": pa.array([[]] * n, pa.list_(pa.int64())),
        "gain": pa.array((1 - resolved.margin) / 2),  # the probability that an answer changes the label, about
    }
    facts = {
        "format": RUN_FORMAT,
        "oneof": __version__,
        "torch": torch.__version__,
        "seed": seed,
        "n": n,
        "d": 0,
        "classes": classes,
        "features": [],
        "chosen": [],
        "learners": {},
        "rule": "votes",
        "estimate": asdict(estimate),
    }
    purified = purified_table(examples, names, resolved, columns)
    return Learned(model, purified, training_record([]), [], estimate, facts, [])
