"""THE resolver: which label every training row gets and how probable it is, by an ensemble; and the table that says so.

The *probability* of a label is its share within the row's original set, by the networks that did not train on the row; where all
of them did, by all. Where there are votes, what the networks say is weighed by them; where there are counts or probabilities, `oneof.ensemble.combine_prior` weighs both. The label of a row is the most probable one that was kept. Estimator, run folder, `clean` and report have
these numbers from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from oneof.ensemble.combine_prior import combine_prior
from oneof.ensemble.model import Model
from oneof.ensemble.noisy_sets import probability_of_missing
from oneof.storage.sheets import lists_of
from oneof.training.state import Fit
from oneof.votes.joint import HeldOutVotes

Mask = NDArray[np.bool_]
FEW = 1e-6  # prior of a label that nobody who voted knows, such as one that only gold labels have
POWERS = (1.0, 0.7, 0.5, 0.2, 0.0, 1.5)  # of an opinion beside votes
MARGIN = 0.3  # a person is asked about a row whose label leads the next candidate by less,
AGREEMENT = 0.7  # that fewer of the networks name,
SEVERAL = 2  # unanimous votes that keep a class from being lost
OUTSIDE = 0.5  # or whose set misses the truth with at least this probability
FALL = pa.struct([("label", pa.string()), ("round", pa.int32()), ("margin", pa.float32()), ("trials", pa.int32())])


class Opinions(NamedTuple):
    """What the networks say of n rows."""

    mean: NDArray[np.float32]  # [n, c] over the networks that did not train on the row; over all where all did
    held_out: Mask  # [n] was the row held out by some network?
    first: NDArray[np.float32]  # [n, c] share of networks whose best candidate it is


def ask_networks(model: Model, x: NDArray[Any], candidates: Mask, trained: Mask) -> Opinions:
    """Every network's opinion of every row, summed up; `trained` [t, n] says who trained on what."""
    n, c = candidates.shape
    mean, first = (np.zeros((n, c), dtype=np.float32) for _ in range(2))
    held_out: Mask = np.logical_not(trained.all(axis=0))
    voices = np.logical_not(trained & held_out).astype(np.float32)  # [t, n]
    for rows, each in model.blocks(x):
        p = each.cpu().numpy()
        mean[rows] = np.einsum("tnc,tn->nc", p, voices[:, rows]) / voices[:, rows].sum(0)[:, None]
        best = np.where(candidates[rows], p, -1).argmax(-1)  # [t, rows]
        first[rows] = (best[..., None] == np.arange(c)).mean(0)
    return Opinions(mean, held_out, first)


def heard_once(left_out: NDArray[np.float32], candidates: Mask) -> Opinions:
    """The opinion [n, c] of a learner that speaks with one voice, and of every row without having learned from it."""
    first = np.where(candidates, left_out, -1).argmax(1)[:, None] == np.arange(candidates.shape[1])
    return Opinions(left_out, np.ones(len(left_out), dtype=bool), first.astype(np.float32))


def join_opinions(parts: Sequence[Opinions], shares: Sequence[float], voices: Sequence[int]) -> Opinions:
    """Opinions of several learners as one, by their shares; of the first places every voice has one."""
    heard = [(part, share, count) for part, share, count in zip(parts, shares, voices, strict=True) if share > 0]
    mean = np.stack([np.float32(share) * part.mean for part, share, _ in heard]).sum(0)
    first = np.sum([count * part.first for part, _, count in heard], axis=0) / sum(count for *_, count in heard)
    return Opinions(mean, np.all([part.held_out for part, *_ in heard], axis=0), first.astype(np.float32))


def without_opinion(opinions: Opinions, rows: Mask) -> Opinions:
    """The opinions with none of some rows [n], of which there was nothing to see: every label is as likely there."""
    alike = np.float32(1 / opinions.mean.shape[1])
    mean, first = (np.where(rows[:, None], alike, one) for one in (opinions.mean, opinions.first))
    return Opinions(mean, opinions.held_out & ~rows, first)


def trained_rows(fits: Sequence[Fit], n: int) -> Mask:
    """Which network trained on which row, [t, n]."""
    rows = [own.cpu().numpy() for fitted in fits for own in fitted.rows]
    return np.array([np.isin(np.arange(n), own) for own in rows], dtype=bool).reshape(-1, n)


def kept_sets(fits: Sequence[Fit], candidates: Mask) -> Mask:
    """A label is gone when every network that trained on the row removed it; rows that none trained on keep their candidates."""
    kept = np.zeros_like(candidates)
    for fitted in fits:
        for rows, sets in zip(fitted.rows.cpu().numpy(), fitted.candidates.cpu().numpy(), strict=True):
            kept[rows] |= sets
    return np.where(kept.any(1, keepdims=True), kept, candidates)


def gather_falls(fits: Sequence[Fit], sets: Mask, names: pa.Array) -> pa.ListArray:
    """The labels that fell from each row's set [n, c]: the median round and mean margin over the networks that removed it, and how many these are.

    A set that was not believed had other labels too, which are passed over.
    """
    logs = [tuple(np.empty(0, dtype=kind) for kind in (int, int, int, np.float32))]
    for fitted in fits:
        if fitted.removals is not None:
            trial, place, *rest = (column.cpu() for column in fitted.removals)
            logs.append((fitted.rows.cpu()[trial, place].numpy(), *(column.numpy() for column in rest)))
    row, label, round, margin = map(np.concatenate, zip(*logs, strict=True))
    own = np.flatnonzero(sets[row, label])
    key = row * sets.shape[1] + label
    order = own[np.argsort((key * (round.max(initial=0) + 1) + round)[own], kind="stable")]
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    counts = np.diff(np.append(starts, len(order)))
    middle = order[starts + (counts - 1) // 2]
    margins = np.add.reduceat(margin[order], starts) / counts
    columns = (names.take(pa.array(label[middle])), round[middle], margins, counts)
    cast = [pa.array(column).cast(field.type) for column, field in zip(columns, FALL, strict=True)]
    return lists_of(row[middle], len(sets), pa.StructArray.from_arrays(cast, fields=list(FALL)))


class Judgement(NamedTuple):
    """What is weighed beside the networks where there are votes."""

    prior: NDArray[np.floating[Any]]  # [n, c] what the votes say
    opinion: NDArray[np.floating[Any]] | None = None  # [n, c] what other rows say, NaN where they say nothing
    votes: HeldOutVotes | None = None  # by which opinions are weighed
    counts: NDArray[np.floating[Any]] | None = None  # [n, c] votes for each label
    accuracy: float = 1.0  # how often a vote is right, by the posterior of votes and features

    def joined(self, opinions: Opinions, candidates: Mask) -> NDArray[np.float32]:
        """Return the prior combined with the learners' probabilities [n, c], as far as held-out votes or held-out priors support these.

        With votes: prior x opinion^power, where the opinion is the networks', that of other rows, or their mean, which errs less than either. With
        power 0 votes decide alone. Without votes `oneof.ensemble.combine_prior` weighs the learners.
        """
        networks = opinions.mean
        if self.votes is None:
            return combine_prior(self.prior, networks, candidates, opinions.held_out).astype(np.float32)
        others = networks if self.opinion is None else np.where(np.isnan(self.opinion), networks, self.opinion)
        mean = (networks + others) / 2
        logs = [np.log(np.maximum(one, 1e-12)) for one in (mean, networks, others)]
        best = max((power * one for one in logs for power in POWERS), key=self.votes.score)
        return np.asarray(np.exp(best) * self.prior, dtype=np.float32)

    def over(self, columns: Sequence[int], c: int) -> Judgement:
        """The same over c labels, of which those of these columns were known to whoever voted."""
        votes, opinion = self.votes, self.opinion
        if votes is not None:
            others, said = spread(votes.others, columns, c, np.log(FEW)), spread(votes.said, columns, c)
            votes = votes._replace(others=others, said=said)
        opinion = None if opinion is None else spread(opinion, columns, c, 0.0)
        counts = None if self.counts is None else spread(self.counts, columns, c, 0.0)
        return Judgement(spread(self.prior, columns, c), opinion, votes, counts, self.accuracy)


def spread(values: NDArray[Any], columns: Sequence[int], c: int, other: float = FEW) -> NDArray[Any]:
    """Values [n, ...] in these columns of [n, c], and the same value in all others."""
    wide = np.full((len(values), c), other, dtype=values.dtype)
    wide[:, columns] = values
    return wide


class Resolved(NamedTuple):
    """The label of every row, and what speaks for it."""

    label: NDArray[np.intp]  # [n]
    distribution: NDArray[np.float32]  # [n, c] probabilities: shares within the original set, zero off it
    probability: NDArray[np.float32]  # [n] of the label
    margin: NDArray[np.float32]  # [n] its lead over the next in the original set
    agreement: NDArray[np.float32]  # [n] share of networks that name it
    kept: Mask  # [n, c]
    outside: NDArray[np.intp]  # [n] the label outside the set that a row seems to have; -1: none
    ask: Mask  # [n]


def resolve(opinions: Opinions, original: Mask, kept: Mask, beside: Judgement | None = None) -> Resolved:
    """Choose within what was kept; weigh within what was given, by what the networks say and what is judged beside them."""
    rows = np.arange(len(original))
    said = opinions.mean if beside is None else beside.joined(opinions, original)
    shares = np.where(original, said + np.float32(1e-12), np.float32(0))
    shares /= shares.sum(1, keepdims=True)
    label = np.where(kept, shares, -1).argmax(1)
    if beside is not None and beside.counts is not None:
        shares, label = respect_unanimous_votes(shares, label, kept, beside.counts, beside.accuracy)
    probability, agreement = shares[rows, label], opinions.first[rows, label]
    margin = probability - np.where(np.arange(shares.shape[1]) == label[:, None], 0, shares).max(1)
    missing = probability_of_missing(opinions.mean, original) if beside is None else np.zeros(len(original))
    outside = np.where(missing >= OUTSIDE, np.where(original, 0, opinions.mean).argmax(1), -1)
    doubtful = (margin < MARGIN) | (agreement < AGREEMENT)
    ask = (doubtful & (original.sum(1) > 1)) | (outside >= 0)
    return Resolved(label, shares, probability, margin, agreement, kept, outside, ask)


def respect_unanimous_votes(
    shares: NDArray[np.float32], label: NDArray[np.intp], kept: Mask, counts: NDArray[Any], accuracy: float
) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    """Return the probabilities [n, c] and labels [n] after unanimous votes (`counts` [n, c]) were heeded.

    A label that contradicts all k votes on its row is at most as probable as that k votes are right, or as the label that they name.
    And a class that two or more unanimous votes name somewhere is not lost: where no row has it, those rows get it.
    """
    rows = np.arange(len(shares))
    named = counts.argmax(1)
    votes = counts.sum(1)
    is_unanimous = ((counts > 0).sum(1) == 1) & kept[rows, named]
    is_lost = np.bincount(label, minlength=shares.shape[1]) == 0
    gets_back = is_unanimous & is_lost[named] & (votes >= SEVERAL)
    label = np.where(gets_back, named, label)

    of_named = shares[rows, named]
    of_label = shares[rows, label]
    least = np.where(gets_back, 0.5, 1 - accuracy**votes)  # probability of the label that the votes name
    moved = np.maximum(least - of_named, 0) / np.maximum(1 - of_named, 1e-12)
    until_equal = np.maximum(of_label - of_named, 0) / (1 + np.maximum(of_label - of_named, 0))
    moved = np.where(gets_back, moved, np.minimum(moved, until_equal))
    moved = np.where(is_unanimous & (gets_back | (label != named)), moved, 0)[:, None]
    is_named = np.arange(shares.shape[1]) == named[:, None]
    return np.asarray((1 - moved) * shares + moved * is_named, dtype=np.float32), label


def ensemble_table(resolved: Resolved, original: Mask, names: pa.Array, more: Mapping[str, pa.Array]) -> pa.Table:
    """One row per training row, in the order of the data: with the columns that come from elsewhere, those of a run's purified.parquet."""
    given, outside = _lists(original, names), pa.array(resolved.outside, mask=resolved.outside < 0)
    columns = {"row": pa.array(np.arange(len(original))), "original": given, "kept": _lists(resolved.kept, names)}
    columns["label"] = names.take(pa.array(resolved.label))
    columns |= {name: pa.array(getattr(resolved, name)) for name in ("probability", "margin", "agreement", "ask")}
    shares = pa.ListArray.from_arrays(given.offsets, pa.array(resolved.distribution[original]))
    return pa.table(columns | {"outside": names.take(outside), **more, "distribution": shares})


def _lists(mask: Mask, names: pa.Array) -> pa.ListArray:
    rows, labels = np.nonzero(mask)
    return lists_of(rows, len(mask), names.take(pa.array(labels)))
