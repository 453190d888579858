"""Forms of learning that are studied on the suite: (sets, train, test, seed) -> probabilities of test rows and of training rows.

Probabilities of training rows [n, c] are held out: the model that gives them has not seen the row's own target. It may have seen targets of other rows that were computed with it,
so the sets flatter a form the more, the more rounds it takes. `nested` forms hold out the set itself: all rounds are run without it.
Every form starts from uniform weights within the set and alternates two steps,

    p_i  <-  held-out prediction for row i of a learner of the targets w
    w_ij <-  p_ij / m_j^b  within S_i, normalised;    m_j = mean_i w_ij,  b the balance.

No true label enters. `mixtures.py` combines the probabilities that `suite.py --store` writes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from on_tables.columns import Features, distance_features, piecewise_features, tree_features
from on_tables.problems import Floats, Labels, Mask, all_classes, take_rows
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingClassifier
from sklearn.model_selection import KFold
from torch import Tensor, nn

SMALLEST = 1e-3  # probability that a candidate keeps
N_FOLDS = 3
Learner = Callable[[Floats, Floats, Floats, int], Floats]  # (x, targets, new x, seed) -> probabilities of new rows
Encode = Callable[[Any, Any], Features]
Pair = tuple[Floats, Floats]  # probabilities of test rows, and held out of training rows


def uniform_targets(sets: Mask) -> Floats:
    return sets / sets.sum(1, keepdims=True)


def within_sets(probabilities: Floats, sets: Mask, targets: Floats, balance: float) -> Floats:
    """Return new targets: probabilities within the sets, divided by the mass of each label in the old targets."""
    mass = np.maximum(targets.mean(0), 1 / len(targets))
    new = (probabilities + SMALLEST) * sets / mass**balance
    return new / new.sum(1, keepdims=True)


def normalise(scores: Floats) -> Floats:
    """Return non-negative scores [n, c] that sum to one."""
    positive = np.maximum(scores, 1e-4)
    return positive / positive.sum(1, keepdims=True)


def forest(
    sets: Mask, train: Any, test: Any, seed: int, balance: float = 0.0, rounds: int = 5, max_features: Any = 1.0
) -> Pair:
    """Fit forests of regression trees to soft targets; out-of-bag predictions give the next targets."""
    x, x_test = tree_features(train, test)
    targets = uniform_targets(sets)
    for number in range(rounds):
        _, held_out = fit_forest(x, targets, 80, 100 * seed + number, max_features)
        targets = within_sets(held_out, sets, targets, balance)
    model, held_out = fit_forest(x, targets, 200, 100 * seed + rounds, max_features)
    return normalise(model.predict(x_test)), held_out


def fit_forest(
    x: Floats, targets: Floats, n_trees: int, seed: int, max_features: Any = 1.0
) -> tuple[ExtraTreesRegressor, Floats]:
    """Fit a forest to targets [n, c], and return it with its out-of-bag predictions."""
    model = ExtraTreesRegressor(
        n_trees, bootstrap=True, oob_score=True, max_features=max_features, random_state=seed % 2**32
    )
    model.fit(x, targets)
    return model, normalise(model.oob_prediction_)


def cross_fitted(
    sets: Mask,
    train: Any,
    test: Any,
    seed: int,
    learner: Learner,
    encode: Encode = tree_features,
    balance: float = 0.0,
    rounds: int = 3,
) -> Pair:
    """Alternate a learner on three folds with new targets; the last targets train a learner of all rows."""
    x, x_test = encode(train, test)
    targets = uniform_targets(sets)
    held_out = np.zeros(sets.shape)
    for number in range(rounds):
        folds = KFold(N_FOLDS, shuffle=True, random_state=100 * seed + number)
        for fitted, held in folds.split(x):
            held_out[held] = learner(x[fitted], targets[fitted], x[held], seed)
        targets = within_sets(held_out, sets, targets, balance)
    return learner(x, targets, x_test, seed), held_out


def soft_trees(x: Floats, targets: Floats, new: Floats, seed: int) -> Floats:
    """Fit extremely randomised regression trees to targets [n, c]."""
    model = ExtraTreesRegressor(100, random_state=seed)
    return normalise(model.fit(x, targets).predict(new))


def soft_boosting(x: Floats, targets: Floats, new: Floats, seed: int) -> Floats:
    """Fit gradient boosting to every label of a row as a weighted row."""
    row, label = np.nonzero(targets > 0.02)
    model = HistGradientBoostingClassifier(max_iter=60, random_state=seed)
    model.fit(x[row], label, sample_weight=targets[row, label])
    return all_classes(model, new, targets.shape[1])


def soft_logistic(x: Floats, targets: Floats, new: Floats, seed: int, penalty: float = 1.0) -> Floats:
    """Minimise the cross-entropy of a linear model to targets [n, c], with half the squared weights as a penalty."""
    n, c = targets.shape
    design = np.hstack([x, np.ones((n, 1))])
    shape = (design.shape[1], c)

    def loss_and_gradient(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(shape)
        logs = log_softmax(design @ weights, axis=1)
        slope = design.T @ (np.exp(logs) - targets)
        slope[:-1] += penalty * weights[:-1]
        loss = -float((targets * logs).sum()) + penalty / 2 * float((weights[:-1] ** 2).sum())
        return loss, slope.ravel()

    found = minimize(loss_and_gradient, np.zeros(shape[0] * c), jac=True, method="L-BFGS-B", options={"maxiter": 100})
    design_new = np.hstack([new, np.ones((len(new), 1))])
    return softmax(design_new @ found.x.reshape(shape), axis=1)


class Regression:
    """Kernel ridge regression in the span of some rows, with leave-one-out predictions in closed form.

    k(x, z) = exp(-width |x - z|^2 / mean |x|^2)
    """

    def __init__(self, x: Floats, seed: int, width: float, ridge: float, n_landmarks: int = 800) -> None:
        rng = np.random.default_rng(seed)
        self.landmarks = x[rng.permutation(len(x))[:n_landmarks]]
        self.gamma = width / max(float((x**2).sum(1).mean()), 1e-12)
        similarity = self.kernel(x)
        self.inner = self.kernel(self.landmarks) + 1e-6 * np.eye(len(self.landmarks))
        self.factor = cho_factor(similarity.T @ similarity + ridge * self.inner)
        self.similarity = similarity
        self.leverage = np.einsum("nm,mn->n", similarity, cho_solve(self.factor, similarity.T))

    def kernel(self, x: Floats) -> Floats:
        """Return similarities of rows to landmarks [n, m]."""
        distances = (x**2).sum(1)[:, None] + (self.landmarks**2).sum(1) - 2 * x @ self.landmarks.T
        return np.exp(-self.gamma * np.maximum(distances, 0.0))

    def coefficients(self, targets: Floats) -> Floats:
        """Fit targets [n, c], from which their mean has been subtracted."""
        return cho_solve(self.factor, self.similarity.T @ targets)

    def leave_one_out(self, targets: Floats) -> Floats:
        """Return leave-one-out predictions for targets [n, c] that are probabilities, as probabilities."""
        mean = targets.mean(0)
        return normalise(self.leave_one_out_scores(targets - mean) + mean)

    def leave_one_out_scores(self, targets: Floats) -> Floats:
        """Return the prediction for each row of a regression on all other rows."""
        fitted = self.similarity @ self.coefficients(targets)
        leverage = np.minimum(self.leverage, 0.999)[:, None]
        return (fitted - leverage * targets) / (1 - leverage)

    def predict(self, targets: Floats, new: Floats) -> Floats:
        mean = targets.mean(0)
        return normalise(self.kernel(new) @ self.coefficients(targets - mean) + mean)


def choose_regression(x: Floats, sets: Mask, seed: int) -> Regression:
    """Choose width and ridge by the mass that leave-one-out predictions put on the sets, after one round."""
    best = (-np.inf, None)
    for width in (0.1, 0.3, 1.0, 3.0):
        for ridge in (0.03, 0.3):
            regression = Regression(x, seed, width, ridge)
            targets = uniform_targets(sets)
            targets = within_sets(regression.leave_one_out(targets), sets, targets, 0.0)
            mass = (regression.leave_one_out(targets) * sets).sum(1)
            score = float(np.log(mass).mean())
            if best[1] is None or score > best[0]:
                best = (score, regression)
    assert best[1] is not None
    return best[1]


def kernel(sets: Mask, train: Any, test: Any, seed: int, balance: float = 0.0, rounds: int = 10) -> Pair:
    """Fit kernel ridge regression to soft targets; leave-one-out predictions give the next targets."""
    x, x_test = distance_features(train, test)
    regression = choose_regression(x, sets, seed)
    targets = uniform_targets(sets)
    for _ in range(rounds):
        targets = within_sets(regression.leave_one_out(targets), sets, targets, balance)
    return regression.predict(targets, x_test), regression.leave_one_out(targets)


def joint(sets: Mask, train: Any, test: Any, seed: int, balance: float = 0.0, rounds: int = 5) -> Pair:
    """Let forest and kernel share the targets: the mean of their held-out predictions gives the next ones."""
    x, x_test = tree_features(train, test)
    near, near_test = distance_features(train, test)
    regression = choose_regression(near, sets, seed)
    targets = uniform_targets(sets)
    for number in range(rounds):
        _, by_trees = fit_forest(x, targets, 80, 100 * seed + number)
        held_out = (by_trees + regression.leave_one_out(targets)) / 2
        targets = within_sets(held_out, sets, targets, balance)
    model, by_trees = fit_forest(x, targets, 200, 100 * seed + rounds)
    test_mean = (normalise(model.predict(x_test)) + regression.predict(targets, near_test)) / 2
    return test_mean, (by_trees + regression.leave_one_out(targets)) / 2


class Networks(nn.Module):
    """k multilayer perceptrons side by side, each with weights of its own."""

    def __init__(self, k: int, widths: tuple[int, ...], generator: torch.Generator) -> None:
        super().__init__()
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for n_in, n_out in pairwise(widths):
            scale = (2 / n_in) ** 0.5
            self.weights.append(nn.Parameter(scale * torch.randn(k, n_in, n_out, generator=generator)))
            self.biases.append(nn.Parameter(torch.zeros(k, 1, n_out)))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [k, b, c] of rows [k, b, d], or of the same rows [b, d] for all."""
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = x @ weight + bias
            if number < len(self.weights) - 1:
                x = torch.relu(x)
        return x


def networks(
    sets: Mask,
    train: Any,
    test: Any,
    seed: int,
    balance: float = 0.0,
    encode: Encode = piecewise_features,
    crossed: bool = True,
    repeats: int = 2,
) -> Pair:
    """Train networks on folds with mixup; after each epoch, networks give new targets.

    Each network leaves out a fold; there are `repeats` divisions into folds. With `crossed` a row's targets come from the networks that leave it out, else every
    network computes those of its own training rows, as PRODEN does.
    """
    x_train, x_test = encode(train, test)
    x = torch.as_tensor(x_train, dtype=torch.float32)
    n, c = sets.shape
    rng = np.random.default_rng(seed)
    left_out = leave_out_folds(n, repeats, rng)  # [k, n]
    k = len(left_out)
    generator = torch.Generator().manual_seed(seed)
    model = Networks(k, (x.shape[1], 256, 256, c), generator)
    epochs = int(np.clip(40_000 // n, 40, 120))
    batch = int(np.clip(n // 10, 16, 256))
    rows = [np.flatnonzero(~out) for out in left_out]
    n_steps = min(len(part) for part in rows) // batch
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * n_steps)
    targets = np.repeat(uniform_targets(sets)[None], k, axis=0)  # [k, n, c]
    for epoch in range(epochs):
        order = np.stack([rng.permutation(part)[: n_steps * batch] for part in rows])
        known = torch.as_tensor(targets, dtype=torch.float32)
        for step in range(n_steps):
            index = torch.as_tensor(order[:, step * batch : (step + 1) * batch])
            inputs = x[index]
            wanted = torch.gather(known, 1, index[..., None].expand(-1, -1, c))
            share = torch.as_tensor(rng.beta(1.0, 1.0, (k, 1, 1)), dtype=torch.float32)
            inputs = share * inputs + (1 - share) * inputs.flip(1)
            wanted = share * wanted + (1 - share) * wanted.flip(1)
            loss = -(wanted * model(inputs).log_softmax(-1)).sum(-1).mean(1).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        if epoch >= epochs // 10:
            targets = network_targets(predict_networks(model, x), left_out, sets, targets, balance, crossed)
    held_out = mean_left_out(predict_networks(model, x), left_out)
    new = torch.as_tensor(x_test, dtype=torch.float32)
    return predict_networks(model, new).mean(0), held_out


def leave_out_folds(n: int, repeats: int, rng: np.random.Generator) -> Mask:
    """Return which rows each network leaves out [repeats * folds, n]; every row is left out once in each repeat."""
    parts: list[Labels] = []
    for _ in range(repeats):
        parts.append(rng.permutation(n) % N_FOLDS)
    fold = np.stack(parts)
    return (fold[:, None] == np.arange(N_FOLDS)[:, None]).reshape(-1, n)


@torch.no_grad()
def predict_networks(model: Networks, x: Tensor) -> Floats:
    """Return the probabilities [k, n, c] of every network."""
    return model(x.expand(len(model.biases[0]), -1, -1)).softmax(-1).double().numpy()


def mean_left_out(probabilities: Floats, left_out: Mask) -> Floats:
    """Return the mean [n, c] over the networks that leave the row out."""
    weights = left_out[..., None]
    return (probabilities * weights).sum(0) / weights.sum(0)


def network_targets(
    probabilities: Floats, left_out: Mask, sets: Mask, targets: Floats, balance: float, crossed: bool
) -> Floats:
    """Return new targets [k, n, c] of every network."""
    if crossed:
        shared = within_sets(mean_left_out(probabilities, left_out), sets, targets[0], balance)
        return np.repeat(shared[None], len(targets), axis=0)
    return np.stack([within_sets(p, sets, w, balance) for p, w in zip(probabilities, targets, strict=True)])


FORMS: dict[str, Callable[[Mask, Any, Any, int], Pair]] = {
    "forest b=0": forest,
    "forest b=0.25": partial(forest, balance=0.25),
    "forest b=0.5": partial(forest, balance=0.5),
    "forest, sqrt b=0": partial(forest, max_features="sqrt"),
    "forest, sqrt b=0.25": partial(forest, max_features="sqrt", balance=0.25),
    "trees EM b=0": partial(cross_fitted, learner=soft_trees),
    "trees EM b=0.25": partial(cross_fitted, learner=soft_trees, balance=0.25),
    "boosting EM b=0": partial(cross_fitted, learner=soft_boosting, rounds=2),
    "boosting EM b=0.25": partial(cross_fitted, learner=soft_boosting, rounds=2, balance=0.25),
    "logistic EM b=0": partial(cross_fitted, learner=soft_logistic, encode=distance_features),
    "logistic EM b=0.25": partial(cross_fitted, learner=soft_logistic, encode=distance_features, balance=0.25),
    "logistic bins EM b=0": partial(cross_fitted, learner=soft_logistic, encode=piecewise_features),
    "kernel b=0": kernel,
    "kernel b=0.25": partial(kernel, balance=0.25),
    "kernel b=0.5": partial(kernel, balance=0.5),
    "joint b=0": joint,
    "joint b=0.25": partial(joint, balance=0.25),
    "networks b=0": networks,
    "networks b=0.25": partial(networks, balance=0.25),
    "networks, PRODEN b=0": partial(networks, crossed=False),
    "networks, PRODEN b=0.25": partial(networks, crossed=False, balance=0.25),
    "networks, z-scores b=0": partial(networks, encode=distance_features),
}


def nested(sets: Mask, train: Any, test: Any, seed: int, form: Callable[[Mask, Any, Any, int], Pair]) -> Pair:
    """Run a form on all rows for the test rows, and on two thirds of them for each third: its rounds never see the sets of that third."""
    held_out = np.zeros(sets.shape)
    for fitted, held in KFold(N_FOLDS, shuffle=True, random_state=seed).split(sets):
        held_out[held], _ = form(sets[fitted], take_rows(train, fitted), take_rows(train, held), seed)
    probabilities, _ = form(sets, train, test, seed)
    return probabilities, held_out


NESTED = {f"{name}, nested": partial(nested, form=form) for name, form in FORMS.items()}
