"""Put the paper's theorems to the test where the posterior is known: what they assume, what they promise, and what happens.

On the `line` the distribution of points and candidate sets is exact: each point has the probabilities of its sets, so that n is
infinite, as the theorems want it. A mixture is a sample. The classifier is a linear softmax that minimises CC's loss, whose
stationary points are those of PRODEN's weights.
"""

import math
from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from oneof.candidates.generate import Flip, Instance, InstancePaper, InstanceRate, draw, generate
from oneof.methods import CC
from oneof.metrics import purified_region
from oneof.storage.rows import Row
from oneof_paper.synthetic import mixture
from oneof_paper.typeset import typeset

EPSILON = 0.1
TOLERANCE = 0.05  # share of a level set on which f and h* may differ, for the region that is reported
THRESHOLDS = (0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)  # used where the theorems' own schedule does not exist
GENERATORS = ("rate", "printed", "uniform", "within the bound")


class Distribution(NamedTuple):
    """n points, each with k candidate sets that it may have."""

    x: Tensor  # [n, d]
    posterior: Tensor  # [n, c]
    sets: Tensor  # [k, n, c]
    mass: Tensor  # [k, n] probabilities; they sum to one
    drawn: Tensor  # [k, n] the true label of the example that has this set
    flips: Tensor  # [n, c] xi: how likely a wrong label joins

    @property
    def bayes(self) -> Tensor:
        """Return the most probable label h*(x) of each point [n]."""
        return self.posterior.argmax(-1)


class Constants(NamedTuple):
    """What the theorems assume about a distribution and its first classifier, and what follows from it."""

    t: float  # xi^j <= t p(j|x)
    low: float  # smallest density of the margin
    high: float  # largest density of the margin
    alpha: float  # the smallest for which equation 1 holds
    e0: float  # of Theorem 2
    growth: float  # smallest growth of the purified region in a round (Theorem 1)
    printed_rounds: float  # R of Theorem 2; NaN: its logarithm does not exist
    rounds: float  # by the growth alone, from e0 to epsilon; NaN: e0 is 1 or more
    final: float  # smallest P(f = h*) at the end


def line(t: float = 0.9, one_sided: bool = True, m: int = 2000) -> Distribution:
    """Return m points on a line with two classes, whose margin is uniform on [0, 1].

    Label 2 joins sets of class 1 with probability t p(2|x): where class 1 is the likelier one, or on both sides.
    """
    u = torch.linspace(-1, 1, m + 2, dtype=torch.float64)[1:-1]
    p = torch.stack([(1 + u) / 2, (1 - u) / 2], 1)
    xi = torch.where((u > 0) | (not one_sided), t * p[:, 1], 0.0)
    three_sets = torch.tensor([[True, False], [True, True], [False, True]])
    mass = torch.stack([p[:, 0] * (1 - xi), p[:, 0] * xi, p[:, 1]]) / m
    drawn = torch.tensor([0, 0, 1])
    return Distribution(
        x=(p[:, :1] / p[:, 1:]).log(),
        posterior=p,
        sets=three_sets[:, None].expand(3, m, 2),
        mass=mass,
        drawn=drawn[:, None].expand(3, m),
        flips=torch.stack([torch.zeros(m), xi], 1).double(),
    )


def sampled(generator: str, seed: int, n: int = 1500) -> Distribution:
    """Draw a mixture of six Gaussians with candidate sets by one of GENERATORS."""
    data = mixture(n=n, d=5, c=6, separation=1.2, seed=seed)
    if generator == "uniform":
        xi = np.full(data.posterior.shape, 0.3)
        sets = generate(data.labels, 6, Flip(0.3), seed=seed)
    elif generator == "within the bound":
        xi = np.minimum(1.0, 0.9 * data.posterior)
        sets = draw(xi, data.labels, np.random.default_rng(seed))
    else:
        kind: Instance = InstancePaper() if generator == "printed" else InstanceRate(0.12)
        logits = np.log(data.posterior)
        xi = kind.probabilities(logits, data.labels)
        sets = generate(data.labels, 6, kind, seed=seed, logits=logits)
    x = (data.x - data.x.mean(0)) / data.x.std(0)
    labels = torch.as_tensor(data.labels)
    return Distribution(
        x=torch.as_tensor(x),
        posterior=torch.as_tensor(data.posterior),
        sets=torch.as_tensor(sets)[None],
        mass=torch.full((1, n), 1 / n, dtype=torch.float64),
        drawn=labels[None],
        flips=torch.as_tensor(xi).scatter(1, labels[:, None], 0.0),
    )


DISTRIBUTIONS = {
    "line, one side": partial(line),
    "line, both sides": partial(line, one_sided=False),
    **{f"mixture, {name}": partial(sampled, name) for name in GENERATORS},
}


def fit_linear(distribution: Distribution, sets: Tensor, decay: float = 1e-5) -> Tensor:
    """Return f [n, c]: the probabilities of the linear softmax that minimises CC's loss on these sets."""
    ones = torch.ones_like(distribution.x[:, :1])
    x = torch.cat([distribution.x, ones], 1)
    weights = torch.zeros(x.shape[1], sets.shape[-1], dtype=x.dtype, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        losses = CC().loss((x @ weights)[None], sets, ())
        loss = (distribution.mass * losses).sum() + decay * weights.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return (x @ weights).detach().softmax(-1)


def margin(posterior: Tensor) -> Tensor:
    """Return u(x) = p(y^x|x) - p(o|x), [n]."""
    best_two = posterior.topk(2, -1).values
    return best_two[:, 0] - best_two[:, 1]


def boundary(f: Tensor, distribution: Distribution) -> float:
    """Return the smallest e whose level set {x : u(x) > e} is pure for f."""
    is_wrong = f.argmax(-1) != distribution.bayes
    if not is_wrong.any():
        return 0.0
    return float(margin(distribution.posterior)[is_wrong].max())


def inconsistency(distribution: Distribution, sets: Tensor) -> Tensor:
    """Return E[1{j != h*(z)} | u(z) >= u(x), j in S_z] of equation 1, [n, c]."""
    order = margin(distribution.posterior).argsort(descending=True)
    member = (distribution.mass[..., None] * sets).sum(0)[order]
    wrong = member.scatter(1, distribution.bayes[order, None], 0.0)
    expectation = wrong.cumsum(0) / member.cumsum(0).clamp_min(1e-300)
    return torch.empty_like(member).index_copy(0, order, expectation)


def alpha_of(f: Tensor, distribution: Distribution, sets: Tensor, epsilon: float) -> float:
    """Return the smallest alpha with |f_j - p_j| <= alpha E[...] + epsilon / 6 everywhere.

    It is infinite where E is zero and f is not near p.
    """
    excess = ((f - distribution.posterior).abs() - epsilon / 6).clamp_min(0)
    ratio = torch.where(excess > 0, excess / inconsistency(distribution, sets), 0.0)
    return float(ratio.max())


def constants(distribution: Distribution, epsilon: float = EPSILON) -> Constants:
    """Compute the theorems' constants for a distribution."""
    density, _ = np.histogram(margin(distribution.posterior).numpy(), 10, (0, 1), density=True)
    low = float(density.min())
    high = float(density.max())
    t = float((distribution.flips / distribution.posterior).max())
    alpha = alpha_of(fit_linear(distribution, distribution.sets), distribution, distribution.sets, epsilon)
    e0 = ((1 + t) * alpha + epsilon / 6) / (1 + alpha)
    growth = 1 + epsilon / (6 * max(alpha, 1e-12) * high / max(low, 1e-12))
    n_classes = distribution.posterior.shape[1]
    argument = (1 - epsilon) / (1 / n_classes - e0)
    printed_rounds = math.nan
    if argument > 0:
        printed_rounds = 6 * alpha * high / low / epsilon * math.log(argument)
    rounds = math.nan
    if epsilon < e0 < 1:
        rounds = math.log((1 - epsilon) / (1 - e0)) / math.log(growth)
    return Constants(t, low, high, alpha, e0, growth, printed_rounds, rounds, 1 - high * epsilon)


def purified(
    distribution: Distribution, known: Constants, keep: Tensor | None = None, epsilon: float = EPSILON
) -> Iterator[Row]:
    """Purify round by round, and yield what each round shows.

    A round fits the classifier and removes the candidates that the best one leads by the threshold, but no label of `keep` [k, n, c].
    The threshold falls as Theorem 1 allows where its e0 exists, else along THRESHOLDS.
    """
    sets = distribution.sets
    removed = torch.zeros_like(sets)
    e = known.e0
    has_schedule = not math.isnan(known.rounds)
    n_rounds = math.ceil(known.rounds) if has_schedule else len(THRESHOLDS)
    for number in range(n_rounds + 1):
        f = fit_linear(distribution, sets)
        measured = _measure(distribution, f, sets, removed, epsilon)
        yield {"round": number, "e": e if has_schedule else None, **measured}
        threshold = THRESHOLDS[min(number, len(THRESHOLDS) - 1)]
        if has_schedule:
            threshold = max(e, epsilon) + epsilon
        lead = (f * sets).amax(-1, keepdim=True) - f
        removed_now = sets & (lead >= threshold)
        if keep is not None:
            removed_now = removed_now & ~keep
        sets = sets & ~removed_now
        removed = removed | removed_now
        e = max(e - (known.growth - 1) * (1 - e), epsilon)


def _measure(distribution: Distribution, f: Tensor, sets: Tensor, removed: Tensor, epsilon: float) -> Row:
    """Return what a round shows; shares are probabilities."""
    mass_of_point = distribution.mass.sum(0)
    mass_of_set = distribution.mass[..., None]
    alpha = alpha_of(f, distribution, sets, epsilon)
    return {
        "boundary": boundary(f, distribution),
        "region": float(purified_region(f, distribution.posterior, TOLERANCE)),
        "agreement": float((mass_of_point * (f.argmax(-1) == distribution.bayes)).sum()),
        "gap": float((mass_of_point * (f - distribution.posterior).abs().amax(-1)).sum()),
        "alpha": alpha if math.isfinite(alpha) else None,
        "size": float((mass_of_set * sets).sum()),
        "true_fell": float((mass_of_set * (removed & _mask_of(distribution.drawn, sets))).sum()),
        "bayes_fell": float((mass_of_set * (removed & _mask_of(distribution.bayes, sets))).sum()),
    }


def _mask_of(labels: Tensor, sets: Tensor) -> Tensor:
    """Return a mask, of the shape of the sets, that holds these labels alone."""
    return one_hot(labels, sets.shape[-1]).bool().expand_as(sets)


def rows(seeds: range = range(130, 133)) -> Iterator[Row]:
    """Yield the rows of every distribution, of samples for every seed.

    They are its constants, its rounds, and the last round if true labels, or Bayes labels, may not be removed.
    """
    for name, make in DISTRIBUTIONS.items():
        if name.startswith("mixture"):
            for seed in seeds:
                yield from _rows_of(make(seed=seed), {"world": name, "seed": seed})
        else:
            yield from _rows_of(make(), {"world": name, "seed": None})


def _rows_of(distribution: Distribution, named: Row) -> Iterator[Row]:
    """Yield the rows of one distribution."""
    known = constants(distribution)
    ratios = (distribution.flips / distribution.posterior).flatten()
    quantiles = torch.quantile(ratios, torch.tensor((0.5, 0.9, 0.99)).double())
    finite = {name: value if math.isfinite(value) else None for name, value in known._asdict().items()}
    yield {**named, "kind": "constants", "epsilon": EPSILON, "flips": quantiles.tolist(), **finite}
    for measured in purified(distribution, known):
        yield {**named, "kind": "round", **measured}
    for kept, labels in (("true", distribution.drawn), ("bayes", distribution.bayes)):
        *_, last = purified(distribution, known, _mask_of(labels, distribution.sets))
        yield {**named, "kind": "kept", "kept": kept, **last}


HEADER = (
    "distribution",
    "t",
    "l",
    "alpha",
    "e0",
    "growth promised",
    "rounds: printed / needed",
    "boundary of the pure set",
    "pure region %",
    "f = h* %",
    "promised %",
    "mean gap to p",
    "true labels removed %",
    "pure region % with none removed",
)


def table(all_rows: Iterable[Row]) -> str:
    """Return the distributions in Markdown, before and after all rounds; samples are averaged over their seeds."""
    by_name: dict[str, list[Row]] = {}
    for row in all_rows:
        by_name.setdefault(row["world"], []).append(row)
    lines = [_table_line(name, rows_of_name) for name, rows_of_name in by_name.items()]
    return typeset(HEADER, lines, "markdown")


def _table_line(name: str, rows_of_name: list[Row]) -> list[str]:
    """Return the cells of a distribution."""
    known = []
    by_round: dict[int, list[Row]] = {}
    none_removed = []
    for row in rows_of_name:
        if row["kind"] == "constants":
            known.append({**row, "l": row["high"] / row["low"]})
        elif row["kind"] == "round":
            by_round.setdefault(row["round"], []).append(row)
        if row.get("kept") == "true":
            none_removed.append(row)
    before = by_round.get(0, [])
    after = by_round[max(by_round)]
    return [
        name,
        *(_mean(known, constant) for constant in ("t", "l", "alpha", "e0", "growth")),
        f"{_mean(known, 'printed_rounds')} / {_mean(known, 'rounds')}",
        f"{_mean(before, 'boundary')} to {_mean(after, 'boundary')}",
        f"{_mean(before, 'region', 100)} to {_mean(after, 'region', 100)}",
        f"{_mean(before, 'agreement', 100)} to {_mean(after, 'agreement', 100)}",
        _mean(known, "final", 100),
        f"{_mean(before, 'gap')} to {_mean(after, 'gap')}",
        _mean(after, "true_fell", 100),
        _mean(none_removed, "region", 100),
    ]


def _mean(rows_of_kind: list[Row], name: str, factor: float = 1.0) -> str:
    """Return the mean of a field as text; "none" if a row has no value."""
    values = [row[name] for row in rows_of_kind]
    if None in values:
        return "none"
    mean = factor * float(np.mean(values))
    if mean >= 1e4:
        return f"{mean:.0e}"
    if mean >= 10:
        return f"{mean:.1f}"
    return f"{mean:.3g}"
