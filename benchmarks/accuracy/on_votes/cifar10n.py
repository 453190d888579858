"""CIFAR-10N for `votes_cifar10n.py`: the data, and the forms in which three people's votes are given to training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneof.methods import BalancedProden, Method, Proden
from oneof.purify import Pop, Purify
from oneof_paper.data.catalogue import LabelledData, data_folder, load
from oneof_paper.readers.cifar import HumanVotes, read_cifar10n
from oneof_paper.teacher import channels_first

N_CLASSES = 10
Floats = NDArray[np.float64]
Labels = NDArray[np.intp]


# ------------------------------------------------------------------------------------------------------------------- the data


@cache
def read_data(count: int | None) -> tuple[LabelledData, HumanVotes]:
    """Return CIFAR-10 and people's votes; of both parts the first `count` images."""
    folder = data_folder(None)
    assert folder is not None, "set ONEOF_DATA"
    data = load("cifar10")
    people = read_cifar10n(folder / "cifar10n/CIFAR-10_human.pt")
    if count is None:
        return data, people
    first_images = np.r_[:count, 50000 : 50000 + count]
    test = np.arange(count, 2 * count)
    small = replace(data, x=data.x[first_images], labels=data.labels[first_images], test=test)
    return small, HumanVotes(*(column[:count] for column in people))


@cache
def read_pixels(count: int | None, device: str) -> Tensor:
    """Return the images of both parts, uint8 [n, 3, 32, 32], on a device."""
    images = channels_first(read_data(count)[0].x)
    return torch.as_tensor(images.copy(), device=device)


def draw_held_out(n: int, seed: int) -> Labels:
    """Draw which of an image's three people is held out [n]."""
    return np.random.default_rng(seed).integers(3, size=n)


def count_votes(people: HumanVotes, held_out: Labels | None = None) -> Floats:
    """Return the votes for each label [n, c], without the person held out [n]."""
    is_counted = np.ones(people.labels.shape, dtype=bool)
    if held_out is not None:
        is_counted[np.arange(len(held_out)), held_out] = False
    votes = people.labels[..., None] == np.arange(N_CLASSES)
    return (votes & is_counted[..., None]).sum(1).astype(np.float64)


# ------------------------------------------------------------------------------------------------------- models of the voters


def pooled_dawid_skene(counts: Floats, rounds: int = 50) -> tuple[Floats, Floats]:
    """Fit Dawid-Skene with one matrix for everybody; return the posterior of the truth [n, c] and P(vote | truth) [c, c]."""
    posterior = counts / counts.sum(1, keepdims=True)
    for _ in range(rounds):
        table = posterior.T @ counts + 0.01
        matrix = table / table.sum(1, keepdims=True)
        logs = counts @ np.log(matrix).T + np.log(posterior.mean(0))
        posterior = np.exp(logs - logs.max(1, keepdims=True))
        posterior /= posterior.sum(1, keepdims=True)
    return posterior, matrix


def truth_given_vote(counts: Floats) -> Floats:
    """Return P(truth | vote) [vote, truth] by the pooled matrix."""
    posterior, matrix = pooled_dawid_skene(counts)
    joint = matrix * posterior.mean(0)[:, None]
    return (joint / joint.sum(0)).T


def vote_likelihood(counts: Floats, power: float) -> Floats:
    """Return P(votes | truth) ^ power, up to a factor per row [n, c]."""
    matrix = pooled_dawid_skene(counts)[1]
    logs = power * (counts @ np.log(matrix).T)
    return np.exp(logs - logs.max(1, keepdims=True))


# ----------------------------------------------------------------------------------------------------------------- the forms


@dataclass(frozen=True)
class Shares(Proden):
    """Cross-entropy against the shares of the votes, which stay as they are."""

    def update(self, logits: Tensor, candidates: Tensor, weights: Tensor) -> Tensor:
        return weights


@dataclass(frozen=True, eq=False)
class Form:
    """What training is given in place of true labels, and how it trains on it."""

    candidates: NDArray[np.bool_]  # [n, c]
    prior: Floats | None = None  # [n, c]
    slack: float = 0.0
    method: Method = Proden()  # noqa: RUF009 - frozen
    purify: Purify | None = None
    views: str = "pop"
    average: float = 0.0
    mixup: float = 0.0


def late_pop(epochs: int) -> Pop:
    """Return POP from four fifths of the epochs on, as in docs/research/findings.md ("last")."""
    warm_up = round(0.8 * epochs)
    interval = max(1, round(0.05 * epochs))
    n_events = max(1, (epochs - warm_up) // interval)
    step = 0.85 / max(1, round(0.8 * n_events))
    return Pop(warm_up=warm_up, interval=interval, window=interval, e0=0.95, e_end=0.1, e_s=step)


def one_hot(labels: Labels) -> NDArray[np.bool_]:
    """Return sets of one label each [n, c]."""
    return np.eye(N_CLASSES, dtype=bool)[labels]


def make_form(name: str, people: HumanVotes, counts: Floats, epochs: int) -> Form:
    """Return a form by its name; `counts` [n, c] may be of fewer votes than there are."""
    named = counts > 0
    every_label = np.ones(counts.shape, dtype=bool)
    balanced = Form(named, counts, 0.2, method=BalancedProden())
    averaged = replace(balanced, average=0.999)
    weak_view = replace(averaged, views="rcr")
    forms: dict[str, Callable[[], Form]] = {
        "one person": lambda: Form(one_hot(people.labels[:, 0])),
        "majority": lambda: Form(one_hot(people.majority)),
        "shares": lambda: Form(named, counts, method=Shares()),
        "sets": lambda: Form(named),
        "sets, POP": lambda: Form(named, purify=late_pop(epochs)),
        "votes": lambda: Form(named, counts),
        "votes + 0.2": lambda: Form(named, counts, 0.2),
        "votes + 0.2, balanced": lambda: balanced,
        "votes through confusion": lambda: Form(every_label, counts @ truth_given_vote(counts) + 0.02),
        "likelihood": lambda: Form(every_label, vote_likelihood(counts, 1.0)),
        "root of likelihood": lambda: Form(every_label, vote_likelihood(counts, 0.5)),
        "true labels": lambda: Form(one_hot(people.truth)),
        "votes + 0.2, balanced, average": lambda: averaged,
        "votes + 0.2, balanced, average, weak view": lambda: weak_view,
        "votes + 0.6, balanced, average, weak view": lambda: replace(weak_view, slack=0.6),
        "votes + 1.5, balanced, average, weak view": lambda: replace(weak_view, slack=1.5),
        "votes + 0.6, balanced, average, weak view, mixup": lambda: replace(weak_view, slack=0.6, mixup=0.2),
        "true labels, average, weak view": lambda: Form(one_hot(people.truth), average=0.999, views="rcr"),
    }
    return forms[name]()


TABLE = ("one person", "majority", "shares", "sets", "sets, POP", "votes", "votes + 0.2", "likelihood", "true labels")
COMPARED = (
    "sets",
    "votes",
    "votes + 0.2",
    "votes + 0.2, balanced",
    "votes through confusion",
    "likelihood",
    "root of likelihood",
)
EXTRA = ("votes + 0.2, balanced", "root of likelihood", "votes through confusion")
LONG = ("true labels", "votes + 0.2, balanced", "majority", "sets")  # held-out votes find the second most probable
AVERAGED = (
    "votes + 0.2, balanced, average",
    "votes + 0.2, balanced, average, weak view",
    "votes + 0.6, balanced, average, weak view",
    "votes + 1.5, balanced, average, weak view",
    "votes + 0.6, balanced, average, weak view, mixup",
)
