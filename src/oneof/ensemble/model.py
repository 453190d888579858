"""A fitted ensemble: its learners, how much each counts, and how columns become features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneof.data.dataset import Dataset
from oneof.data.encode import Encoding
from oneof.learners.base import FittedLearner
from oneof.learners.boosting import BoostedTrees
from oneof.learners.forest import Forest
from oneof.learners.kernel_ensemble import KernelEnsemble
from oneof.learners.network_models import Networks, TableNetworks, probability_blocks
from oneof.learners.sklearn_classifier import SklearnModel
from oneof.training.device import on_cpu

ROUNDING = 1e-6  # of a sum of weights
OtherModel = Forest | BoostedTrees | KernelEnsemble | SklearnModel


@dataclass(frozen=True)
class Model:
    """Everything that is needed to predict new rows."""

    classes: list[str]  # [c]
    encoding: Encoding  # columns -> features [n, d]
    members: tuple[Networks, ...]  # stacks of networks, each of one architecture
    calibration: dict[str, Any]  # as `oneof.ensemble.calibrate` makes it
    others: tuple[OtherModel, ...] = ()  # models that are not networks
    # Weight of each member, then of each other model; (): every network counts the same. What they lack to 1 is spread evenly over the labels.
    shares: tuple[float, ...] = ()

    @property
    def t(self) -> int:
        """Return the number of networks."""
        return sum(member.stack.t for member in self.members)

    @property
    def n_models(self) -> int:
        """Return the number of networks and other models."""
        return self.t + len(self.others)

    @property
    def weights(self) -> Sequence[float]:
        """Return the weight of each stack of networks, then of each other model."""
        return self.shares or [member.stack.t / self.t for member in self.members]

    @property
    def chance(self) -> float:
        """Return the probability that every label has by chance, whatever the learners predict."""
        missing = 1 - sum(self.weights)
        if missing < ROUNDING:
            return 0.0
        return missing / len(self.classes)

    @property
    def learners(self) -> dict[str, float]:
        """Return the weight of each kind of learner."""
        names = []
        for member in self.members:
            if member.is_linear:
                names.append("linear")
            else:
                names.append("networks")
        for model in self.others:
            if isinstance(model, SklearnModel):
                names.append(model.name)
            else:
                names.append(model.kind)
        totals = dict.fromkeys(names, 0.0)
        for name, weight in zip(names, self.weights, strict=True):
            totals[name] = round(totals[name] + weight, 4)
        return totals

    def features(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return rows as the first network represents them; without networks, standardised features."""
        if self.members:
            return self.members[0].features(x)
        mean = x.mean(0, dtype=np.float64)  # the squares of large values overflow float32
        deviation = x.std(0, dtype=np.float64)
        scaled: NDArray[Any] = (x - mean) / np.maximum(deviation, 1e-12)
        return scaled.astype(x.dtype)

    def with_fitted(self, learners: Sequence[FittedLearner], weights: NDArray[np.floating[Any]]) -> Model:
        """Return the model with these learners, networks first."""
        members = []
        member_shares = []
        others = []
        other_shares = []
        for learner, weight in zip(learners, weights.tolist(), strict=True):
            if learner.training is not None:
                members.append(learner.model)
                member_shares.append(weight)
            else:
                others.append(learner.model)
                other_shares.append(weight)
        shares = (*member_shares, *other_shares)
        return replace(self, members=tuple(members), others=tuple(others), shares=shares)

    def trusted(self, trust: float) -> Model:
        """Return the model whose learners are believed with this probability; else all labels are equally probable."""
        return replace(self, shares=tuple(trust * weight for weight in self.weights))

    def without_zero_weights(self) -> Model:
        """Return the model without learners whose weight is zero."""
        n_members = len(self.members)
        members = []
        for member, weight in zip(self.members, self.weights[:n_members], strict=True):
            if weight > 0:
                members.append(member)
        others = []
        for model, weight in zip(self.others, self.weights[n_members:], strict=True):
            if weight > 0:
                others.append(model)
        shares = [weight for weight in self.weights if weight > 0]
        return replace(self, members=tuple(members), others=tuple(others), shares=tuple(shares))

    def on_cpu(self) -> Model:
        """Return the model with its networks on tables on the CPU."""
        members = []
        for member in self.members:
            if isinstance(member, TableNetworks):
                member = on_cpu(member)
            members.append(member)
        return replace(self, members=tuple(members))

    def blocks(self, x: NDArray[Any]) -> Iterator[tuple[slice, Tensor]]:
        """Yield the probabilities [t, rows, c] of every network for a few rows at a time."""
        return probability_blocks(self.members, x, len(self.classes))

    def check_predicts(self) -> None:
        """Raise ValueError for a model of votes alone, which has no features to predict new rows from."""
        if not self.members and not self.others:
            remedy = "Fit again with columns to learn from, such as a text (--text COLUMN)."
            raise ValueError(
                f"new rows cannot be predicted: the run was fitted to votes alone, without features. {remedy}"
            )

    def probabilities(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """Return the weighted mean probability [n, c] over networks and other models."""
        self.check_predicts()
        mean = np.zeros((len(x), len(self.classes)), dtype=np.float32)
        n_members = len(self.members)
        if n_members:
            network_weights = []
            for member, weight in zip(self.members, self.weights[:n_members], strict=True):
                network_weights.append(torch.full((member.stack.t,), weight / member.stack.t))
            for rows, probabilities in self.blocks(x):
                mean[rows] = torch.einsum("t,tnc->nc", torch.cat(network_weights), probabilities).numpy()
        for weight, model in zip(self.weights[n_members:], self.others, strict=True):
            mean += np.float32(weight) * model(x)
        return mean + np.float32(self.chance)

    def check_exportable(self) -> None:
        """Raise ValueError for a classifier of the user's own, which is not a graph of tensors."""
        for model in self.others:
            if isinstance(model, SklearnModel):
                raise ValueError(
                    f"learners must be oneof's own to be exported; {model.name} is not. "
                    "Fit without it to export, or use the folder that save writes."
                )


def represent_rows(data: Dataset, networks: Sequence[Networks]) -> NDArray[Any]:
    """Return each row as the first network represents it [n, width]; without networks, standardised features."""
    return Model(data.classes, data.encoding, tuple(networks), calibration={}).features(data.features)
