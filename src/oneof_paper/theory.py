"""The paper's theorems on trial, where the posterior is known: what they assume, what they promise, and what is seen.

A world is a distribution of points and sets. On the `line` it is one exactly, each point with the probabilities of its sets (n is
infinite there, as the theorems want it); a `mixture` is a sample. The classifier is a linear softmax that minimises CC's loss,
whose stationary points are those of PRODEN's weights.
"""

import math
from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from oneof.candidates.generate import Flip, InstancePaper, InstanceRate, draw, generate
from oneof.methods import CC
from oneof.metrics import purified_region
from oneof.storage.rows import Row
from oneof_paper.synthetic import mixture
from oneof_paper.typeset import typeset

EPSILON = 0.1
TOLERANCE = 0.05  # share of a level set on which f and h* may differ, for the region that is reported
THRESHOLDS = (0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)  # where the theorems' own schedule does not exist
GENERATORS = ("rate", "printed", "uniform", "within the bound")


class World(NamedTuple):
    """n points, each with k sets that it may have."""

    x: Tensor  # [n, d]
    posterior: Tensor  # [n, c]
    sets: Tensor  # [k, n, c]
    mass: Tensor  # [k, n] probabilities; they sum to one
    drawn: Tensor  # [k, n] the true label of the example that has this set
    flips: Tensor  # [n, c] xi: how likely a wrong label joins

    @property
    def bayes(self) -> Tensor:
        return self.posterior.argmax(-1)


class Constants(NamedTuple):
    """What the theorems assume of a world and its first classifier, and what follows."""

    t: float  # xi^j <= t p(j|x)
    low: float  # density of the margin, at least
    high: float  # ... and at most
    alpha: float  # the smallest for which equation 1 holds
    e0: float  # of Theorem 2
    growth: float  # of the purified region in a round, at least (Theorem 1)
    printed_rounds: float  # R of Theorem 2; NaN: its logarithm does not exist
    rounds: float  # by the growth alone, from e0 to epsilon; NaN: e0 is 1 or more
    final: float  # P(f = h*) at the end, at least


def line(t: float = 0.9, one_sided: bool = True, m: int = 2000) -> World:
    """Two classes with a margin uniform on [0, 1]; label 2 joins sets of class 1 with probability t p(2|x), on its own side or both."""
    u = torch.linspace(-1, 1, m + 2, dtype=torch.float64)[1:-1]
    p = torch.stack([(1 + u) / 2, (1 - u) / 2], 1)
    xi = torch.where((u > 0) | (not one_sided), t * p[:, 1], 0.0)
    sets = torch.tensor([[True, False], [True, True], [False, True]])[:, None].expand(3, m, 2)
    mass = torch.stack([p[:, 0] * (1 - xi), p[:, 0] * xi, p[:, 1]]) / m
    drawn = torch.tensor([0, 0, 1])[:, None].expand(3, m)
    return World((p[:, :1] / p[:, 1:]).log(), p, sets, mass, drawn, torch.stack([torch.zeros(m), xi], 1).double())


def sampled(generator: str, seed: int, n: int = 1500) -> World:
    """A mixture of six Gaussians with sets by one of GENERATORS."""
    data = mixture(n=n, d=5, c=6, separation=1.2, seed=seed)
    if generator == "uniform":
        xi, sets = np.full(data.posterior.shape, 0.3), generate(data.labels, 6, Flip(0.3), seed=seed)
    elif generator == "within the bound":
        xi = np.minimum(1.0, 0.9 * data.posterior)
        sets = draw(xi, data.labels, np.random.default_rng(seed))
    else:
        kind, logits = InstancePaper() if generator == "printed" else InstanceRate(0.12), np.log(data.posterior)
        xi, sets = kind.probabilities(logits, data.labels), generate(data.labels, 6, kind, seed=seed, logits=logits)
    x = torch.as_tensor((data.x - data.x.mean(0)) / data.x.std(0))
    labels = torch.as_tensor(data.labels)
    flips = torch.as_tensor(xi).scatter(1, labels[:, None], 0.0)
    mass = torch.full((1, n), 1 / n, dtype=torch.float64)
    return World(x, torch.as_tensor(data.posterior), torch.as_tensor(sets)[None], mass, labels[None], flips)


WORLDS = {
    "line, one side": partial(line),
    "line, both sides": partial(line, one_sided=False),
    **{f"mixture, {name}": partial(sampled, name) for name in GENERATORS},
}


def learned(world: World, sets: Tensor, decay: float = 1e-5) -> Tensor:
    """f [n, c]: the linear softmax that minimises CC's loss on these sets."""
    x = torch.cat([world.x, torch.ones_like(world.x[:, :1])], 1)
    weights = torch.zeros(x.shape[1], sets.shape[-1], dtype=x.dtype, requires_grad=True)
    search = torch.optim.LBFGS([weights], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        search.zero_grad()
        value = (world.mass * CC().loss((x @ weights)[None], sets, ())).sum() + decay * weights.square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    search.step(loss)  # type: ignore[no-untyped-call]
    return (x @ weights).detach().softmax(-1)


def margin(posterior: Tensor) -> Tensor:
    """u(x) = p(y^x|x) - p(o|x), [n]."""
    two = posterior.topk(2, -1).values
    return two[:, 0] - two[:, 1]


def boundary(f: Tensor, world: World) -> float:
    """The smallest e whose level set {x : u(x) > e} is pure for f."""
    wrong = f.argmax(-1) != world.bayes
    return float(margin(world.posterior)[wrong].max()) if wrong.any() else 0.0


def inconsistency(world: World, sets: Tensor) -> Tensor:
    """E[1{j != h*(z)} | u(z) >= u(x), j in S_z] of equation 1, [n, c]."""
    order = margin(world.posterior).argsort(descending=True)
    member = (world.mass[..., None] * sets).sum(0)[order]
    wrong = member.scatter(1, world.bayes[order, None], 0.0)
    return torch.empty_like(member).index_copy(0, order, wrong.cumsum(0) / member.cumsum(0).clamp_min(1e-300))


def alpha_of(f: Tensor, world: World, sets: Tensor, epsilon: float) -> float:
    """The smallest alpha with |f_j - p_j| <= alpha E[...] + epsilon / 6 everywhere; infinite where E is zero and f is not near p."""
    over = ((f - world.posterior).abs() - epsilon / 6).clamp_min(0)
    ratio = torch.where(over > 0, over / inconsistency(world, sets), 0.0)
    return float(ratio.max())


def constants(world: World, epsilon: float = EPSILON) -> Constants:
    """The theorems' constants for a world."""
    density, _ = np.histogram(margin(world.posterior).numpy(), 10, (0, 1), density=True)
    low, high = float(density.min()), float(density.max())
    t = float((world.flips / world.posterior).max())
    alpha = alpha_of(learned(world, world.sets), world, world.sets, epsilon)
    e0 = ((1 + t) * alpha + epsilon / 6) / (1 + alpha)
    growth = 1 + epsilon / (6 * max(alpha, 1e-12) * high / max(low, 1e-12))
    inside = (1 - epsilon) / (1 / world.posterior.shape[1] - e0)
    printed = 6 * alpha * high / low / epsilon * math.log(inside) if inside > 0 else math.nan
    rounds = math.log((1 - epsilon) / (1 - e0)) / math.log(growth) if epsilon < e0 < 1 else math.nan
    return Constants(t, low, high, alpha, e0, growth, printed, rounds, 1 - high * epsilon)


def purified(world: World, known: Constants, keep: Tensor | None = None, epsilon: float = EPSILON) -> Iterator[Row]:
    """Round by round: learn, look, remove what the best candidate leads by enough, but no label of `keep` [k, n, c]."""
    sets, e, fallen = world.sets, known.e0, torch.zeros_like(world.sets)
    promised = not math.isnan(known.rounds)
    for number in range((math.ceil(known.rounds) if promised else len(THRESHOLDS)) + 1):
        f = learned(world, sets)
        yield {"round": number, "e": e if promised else None, **_seen(world, f, sets, fallen, epsilon)}
        # e falls as Theorem 1 lets it, where its e0 exists
        threshold = max(e, epsilon) + epsilon if promised else THRESHOLDS[min(number, len(THRESHOLDS) - 1)]
        now = sets & ((f * sets).amax(-1, keepdim=True) - f >= threshold)
        now = now if keep is None else now & ~keep
        sets, fallen = sets & ~now, fallen | now
        e = max(e - (known.growth - 1) * (1 - e), epsilon)


def _seen(world: World, f: Tensor, sets: Tensor, fallen: Tensor, epsilon: float) -> Row:
    """What a round shows; shares are probabilities."""
    at = world.mass.sum(0)
    alpha = alpha_of(f, world, sets, epsilon)
    return {
        "boundary": boundary(f, world),
        "region": float(purified_region(f, world.posterior, TOLERANCE)),
        "agreement": float((at * (f.argmax(-1) == world.bayes)).sum()),
        "gap": float((at * (f - world.posterior).abs().amax(-1)).sum()),
        "alpha": alpha if math.isfinite(alpha) else None,
        "size": float((world.mass[..., None] * sets).sum()),
        "true_fell": float((world.mass[..., None] * (fallen & _only(world.drawn, sets))).sum()),
        "bayes_fell": float((world.mass[..., None] * (fallen & _only(world.bayes, sets))).sum()),
    }


def _only(labels: Tensor, like: Tensor) -> Tensor:
    return one_hot(labels, like.shape[-1]).bool().expand_as(like)


def rows(seeds: range = range(130, 133)) -> Iterator[Row]:
    """Every world with its constants, its rounds, and how it ends if true (or Bayes) labels may not fall; samples for every seed."""
    for name, make in WORLDS.items():
        for seed in seeds if name.startswith("mixture") else (None,):
            world = make() if seed is None else make(seed=seed)
            known, named = constants(world), {"world": name, "seed": seed}
            ratios = torch.quantile((world.flips / world.posterior).flatten(), torch.tensor((0.5, 0.9, 0.99)).double())
            given = {field: value if math.isfinite(value) else None for field, value in known._asdict().items()}
            yield named | {"kind": "constants", "epsilon": EPSILON, "flips": ratios.tolist(), **given}
            yield from (named | {"kind": "round"} | one for one in purified(world, known))
            for kept, labels in (("true", world.drawn), ("bayes", world.bayes)):
                *_, last = purified(world, known, _only(labels, world.sets))
                yield named | {"kind": "kept", "kept": kept} | last


HEADER = (
    "world", "t", "l", "alpha", "e0", "growth promised", "rounds: printed / needed", "boundary of the pure set", "pure region %", "f = h* %",
    "promised %", "mean gap to p", "true labels that fell %", "pure region % had none fallen",
)  # fmt: skip


def table(some: Iterable[Row]) -> str:
    """The worlds in Markdown, before and after all rounds; samples in the mean over their seeds."""
    every = list(some)
    lines = []
    for name in dict.fromkeys(row["world"] for row in every):
        own = [row for row in every if row["world"] == name]
        known = [row for row in own if row["kind"] == "constants"]
        rounds = [row for row in own if row["kind"] == "round"]
        last = max(row["round"] for row in rounds)
        before, after = ([row for row in rounds if row["round"] == number] for number in (0, last))
        kept = [row for row in own if row.get("kept") == "true"]
        known = [row | {"l": row["high"] / row["low"]} for row in known]
        cells = [name, *(_mean(known, one) for one in ("t", "l", "alpha", "e0", "growth"))]
        cells += [f"{_mean(known, 'printed_rounds')} / {_mean(known, 'rounds')}"]
        cells += [f"{_mean(before, 'boundary')} to {_mean(after, 'boundary')}"]
        cells += [f"{_mean(before, one, 100)} to {_mean(after, one, 100)}" for one in ("region", "agreement")]
        cells += [_mean(known, "final", 100), f"{_mean(before, 'gap')} to {_mean(after, 'gap')}"]
        cells += [_mean(after, "true_fell", 100), _mean(kept, "region", 100)]
        lines.append(cells)
    return typeset(HEADER, lines, "markdown")


def _mean(some: list[Row], name: str, factor: float = 1.0) -> str:
    values = [row[name] for row in some]
    if None in values:
        return "none"
    mean = factor * float(np.mean(values))
    return f"{mean:.0e}" if mean >= 1e4 else f"{mean:.1f}" if mean >= 10 else f"{mean:.3g}"
