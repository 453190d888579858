r"""Mixtures of forms, weighed by held-out probabilities and the candidate sets of the same rows; no true label enters.

The weights w of a mixture sum_k w_k p_k are those under which the sets are likeliest,

    max_w  sum_i log sum_k w_k e_ik,      e_ik = sum_{j in S_i} p_kij q_ij,

where q_ij says how likely the *other* labels of the set are if j is right, up to a factor that is the same for all j. Three models of it:

    mass          q_ij = 1: wrong labels enter by chance. Of labels that often enter together, this cannot tell which is right.
    pairs         q_ij = prod_{l != j} P(l in S_i or not | j), counted over the rows by the mixture itself.
    plausibility  q_ij = 1 / r_ij, r_ij the chance that label j enters where it is wrong, a logistic function of how probable the mixture finds it.

`agreement` compares each form with the mean of the others within the set: forms that others confirm get more.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from on_tables.problems import Floats, Mask
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

ROUNDS = 4  # in which the model of sets follows the mixture
STEPS = 200  # of the EM algorithm for the weights
SMALLEST = 1e-4
POWERS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
Rule = Callable[[Floats, Mask], Floats]  # (held-out probabilities [k, n, c], sets [n, c]) -> weights [k]
Factors = Callable[[Floats, Mask], Floats]  # (probabilities [n, c], sets) -> q [n, c]


def mix(probabilities: Floats, weights: Floats) -> Floats:
    """Return the weighted mean [n, c] of probabilities [k, n, c]."""
    return np.tensordot(weights, probabilities, axes=1)


def likeliest_weights(evidence: Floats) -> Floats:
    """Return the weights [k] that maximise the sum of logarithms of mixed evidence [n, k], by the EM algorithm."""
    n_forms = evidence.shape[1]
    weights = np.full(n_forms, 1 / n_forms)
    scaled = evidence / np.maximum(evidence.max(1, keepdims=True), 1e-300)
    for _ in range(STEPS):
        share = scaled * weights
        share /= np.maximum(share.sum(1, keepdims=True), 1e-300)
        weights = share.mean(0)
    return weights


def within(probabilities: Floats, sets: Mask) -> Floats:
    """Return probabilities within the sets, normalised."""
    inside = (probabilities + SMALLEST) * sets
    return inside / inside.sum(-1, keepdims=True)


def mass_factors(probabilities: Floats, sets: Mask) -> Floats:
    return np.ones(sets.shape)


def pair_factors(probabilities: Floats, sets: Mask) -> Floats:
    """Return q by how often each label enters when another is right; the rows of a half are judged by counts of the other half."""
    targets = within(probabilities, sets)
    order = np.random.default_rng(0).permutation(len(sets))
    factors = np.empty(sets.shape)
    for rows, others in ((order[::2], order[1::2]), (order[1::2], order[::2])):
        present = (targets[others].T @ sets[others] + 0.5) / (targets[others].sum(0)[:, None] + 1)  # [j, l]
        itself = np.eye(len(present), dtype=bool)
        log_in = np.where(itself, 0.0, np.log(present))
        log_out = np.where(itself, 0.0, np.log(np.maximum(1 - present, 1e-6)))
        logs = sets[rows] @ log_in.T + ~sets[rows] @ log_out.T
        best = np.where(sets[rows], logs, -np.inf).max(1, keepdims=True)
        factors[rows] = np.exp(np.minimum(logs - best, 0.0))
    return factors


def plausibility_factors(probabilities: Floats, sets: Mask) -> Floats:
    """Return q by how often wrong labels enter that are as probable as this one."""
    wrong = 1 - within(probabilities, sets)  # [n, c]; 1 off the set
    plausible = logit(np.clip(probabilities, 1e-4, 1 - 1e-4)).reshape(-1, 1)
    entered = sets.ravel()
    if entered.all() or not entered.any():
        return np.ones(sets.shape)
    model = LogisticRegression(C=1e3)
    model.fit(plausible, entered, sample_weight=wrong.ravel() + 1e-9)
    rate = expit(model.decision_function(plausible)).reshape(sets.shape)
    return 1 / np.maximum(rate, 0.01)


def weights_by_sets(probabilities: Floats, sets: Mask, factors: Factors) -> Floats:
    """Alternate the weights of the mixture and the model of how sets come about."""
    n_forms = len(probabilities)
    weights = np.full(n_forms, 1 / n_forms)
    for _ in range(ROUNDS):
        q = factors(mix(probabilities, weights), sets) * sets
        weights = likeliest_weights(np.einsum("knc,nc->nk", probabilities + SMALLEST, q))
    return weights


def best_by_sets(probabilities: Floats, sets: Mask, factors: Factors) -> Floats:
    """Give all weight to the form under which the sets are likeliest."""
    q = factors(probabilities.mean(0), sets) * sets
    evidence = np.einsum("knc,nc->nk", probabilities + SMALLEST, q)
    return one_of(np.log(np.maximum(evidence, 1e-300)).mean(0))


def one_of(scores: Floats) -> Floats:
    """Return weights [k] that are 1 for the best score."""
    return (np.arange(len(scores)) == scores.argmax()).astype(float)


def equal(probabilities: Floats, sets: Mask) -> Floats:
    return np.full(len(probabilities), 1 / len(probabilities))


def best_covering(probabilities: Floats, sets: Mask) -> Floats:
    """Give all weight to the form whose best label is most often a candidate."""
    best = probabilities.argmax(2)  # [k, n]
    covered = np.take_along_axis(sets[None], best[..., None], axis=2)
    return one_of(covered.mean((1, 2)))


def agreement(probabilities: Floats, sets: Mask) -> Floats:
    """Weigh each form by how probable it finds the mean of the others within the set."""
    n_forms = len(probabilities)
    if n_forms == 1:
        return np.ones(1)
    total = probabilities.sum(0)
    logs = np.empty((sets.shape[0], n_forms))
    for k, own in enumerate(probabilities):
        others = within((total - own) / (n_forms - 1), sets)
        logs[:, k] = (others * np.log(own + SMALLEST)).sum(1)
    return likeliest_weights(np.exp(logs - logs.max(1, keepdims=True)))


def powered(probabilities: Floats, power: float) -> Floats:
    """Return probabilities to a power, normalised: sharper above 1."""
    raised = (probabilities + 1e-6) ** power
    return raised / raised.sum(-1, keepdims=True)


def best_power(probabilities: Floats, sets: Mask) -> float:
    """Return the power under which held-out probabilities [n, c] put most mass on the sets, in the mean of logarithms."""
    scores = []
    for power in POWERS:
        inside = (powered(probabilities, power) * sets).sum(1)
        scores.append(float(np.log(0.99 * inside + 0.01).mean()))
    return POWERS[int(np.argmax(scores))]


def by_sets(factors: Factors) -> Rule:
    return lambda probabilities, sets: weights_by_sets(probabilities, sets, factors)


def best_of(factors: Factors) -> Rule:
    return lambda probabilities, sets: best_by_sets(probabilities, sets, factors)


RULES: dict[str, Rule] = {
    "mean": equal,
    "mass": by_sets(mass_factors),
    "pairs": by_sets(pair_factors),
    "plausibility": by_sets(plausibility_factors),
    "agreement": agreement,
    "best covering": best_covering,
    "best mass": best_of(mass_factors),
    "best pairs": best_of(pair_factors),
    "best plausibility": best_of(plausibility_factors),
}
