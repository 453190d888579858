"""How learners that are no networks are written as arrays, and read back if they fit the model."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from oneof.data.ranks import Ranks
from oneof.selection.learners import Forest, Learner, Regression, Seen
from oneof.selection.leave_one_out import Machine

_FOREST = ("right", "feature", "threshold", "root", "origin")
_WAY = ("shift", "scale", "landmarks", "coefficients", "mean", "gamma")
_KINDS = {"right": np.int32, "feature": np.int32, "threshold": np.float32, "root": np.int32}  # others: double precision


def arrays_of(learner: Learner) -> Iterator[tuple[str, NDArray[Any]]]:
    """Its arrays by name."""
    if isinstance(learner, Forest):
        yield from ((name, getattr(learner, name)) for name in _FOREST)
    if isinstance(learner, Regression):
        yield "knots", learner.ranks.knots.copy()
        for i, way in enumerate(learner.ways):
            parts = (way.shift, way.scale, *way.machine[:3], np.array([way.machine.gamma]))
            yield from ((f"{i}.{name}", np.ascontiguousarray(part)) for name, part in zip(_WAY, parts, strict=True))


def learner_of(kind: str, own: dict[str, Tensor], sharpness: float, d: int, c: int) -> Learner | None:
    """The learner that was stored; None if the arrays are not those of one from d features to c classes."""
    arrays = {name: tensor.numpy() for name, tensor in own.items()}
    if any(array.dtype != _KINDS.get(name, np.float64) for name, array in arrays.items()):
        return None
    if kind == "trees":
        forest = Forest(**arrays, classes=c) if set(arrays) == set(_FOREST) else None
        return None if forest is None or forest.misfit(d, c) else forest
    count = (len(arrays) - 1) // len(_WAY)
    names = ["knots", *(f"{i}.{name}" for i in range(count) for name in _WAY)]
    if not count or set(arrays) != set(names) or arrays["knots"].shape[1:] != (d,):
        return None
    ways = [[arrays[f"{i}.{name}"] for name in _WAY] for i in range(count)]
    if not all(_is_way(way, d, c) for way in ways):
        return None
    seen = [Seen(way[0], way[1], Machine(way[2], way[3], way[4], float(way[5][0]))) for way in ways]
    return Regression(Ranks(arrays["knots"]), tuple(seen), sharpness)


def _is_way(way: list[NDArray[Any]], d: int, c: int) -> bool:
    m, inputs = len(way[2]), int((way[1] != 0).sum())
    return [part.shape for part in way] == [(2 * d,), (2 * d,), (m, inputs), (m, c), (c,), (1,)]
