"""From features and sets to all that a run holds, in memory: what `oneof fit` writes down and the estimator shows."""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from oneof.candidates.mask import Candidates
from oneof.data.encode import Encoding
from oneof.data.images import coarse
from oneof.ensemble import resolve as labels
from oneof.ensemble.accuracy import ENOUGH, SAMPLE, Claim, Judged, claim, drawn_rows, random_sample
from oneof.ensemble.calibrate import calibrate
from oneof.ensemble.combine import Rows, weigh_learners
from oneof.ensemble.model import Model, member_of
from oneof.ensemble.noisy_sets import find_noisy_sets
from oneof.ensemble.review_order import Floats, find_evidence
from oneof.ensemble.set_likelihood import choose_raw_set_temperature
from oneof.learners.config import Space, checked_learners, method_for_tables
from oneof.learners.kernel import KernelConfig, KernelScores, cross_fit_scores
from oneof.learners.networks import Found, regression_as_given, search
from oneof.learners.pictures import BY_SIZE, OnPictures, train_on_pictures
from oneof.learners.scaled_rows import Search
from oneof.metrics import CRITERIA
from oneof.purify import Purify
from oneof.storage.rows import Row
from oneof.storage.settings import plain_value
from oneof.training.device import device_for, device_for_pictures
from oneof.training.state import Fit
from oneof.version import RUN_FORMAT, __version__

SPACE = Space(parts=5)
"""Five parts: every row is held out by one network in five, and by trees and kernel too."""
_JUDGED, _CELLS = 4000, 2**21  # rows at most that networks are judged by, and cells [m, c] of them


def space_for(
    said: Mapping[str, Any], method: Any, purify: Purify | None, learners: Any, quick: bool, **more: Any
) -> Space:
    """What is tried: everything that was not said."""
    if quick and learners is not None:
        raise ValueError("quick must not stand beside learners, which it chooses; got both. Leave one of them out.")
    method = SPACE.method if method is None else method_for_tables(method)
    space = replace(SPACE.narrowed(said), method=method, purify=purify, **more)
    if learners is not None:
        space = replace(space, learners=checked_learners(learners))
    return space.quick if quick else space


@dataclass(frozen=True, eq=False)
class Examples:
    """n rows to learn from."""

    x: NDArray[Any]  # [n, d] floats, or levels of pictures
    candidates: Candidates  # [n, c]
    encoding: Encoding  # by which new rows become features
    gold: NDArray[np.intp] | None = None  # [n] true labels, -1 where unknown
    groups: Sequence[str] | None = None  # [n] rows of one group stay on one side of a split
    prior: NDArray[np.floating[Any]] | None = None  # [n, c] how much votes speak for each label
    beside: labels.Judgement | None = None  # what is weighed beside the networks; None: the prior, if any
    votes: pa.Array | None = None  # [n] the votes themselves, for a person to read
    taught: NDArray[np.bool_] | None = None  # [n, c] sets to learn from in place of the candidates: people decided
    unbelieved: NDArray[np.bool_] | None = None  # [n] sets that teach nothing; None: found out
    drawn: NDArray[np.intp] | None = None  # [n] what people said of rows drawn at random, -1 elsewhere: to estimate by
    blank: NDArray[np.bool_] | None = None  # [n] rows of which there is nothing to see: their picture could not be read

    @property
    def given(self) -> NDArray[np.bool_]:
        """The sets [n, c], as people left them."""
        return self.candidates.mask if self.taught is None else self.taught

    def plain(self, rows: Any = slice(None)) -> NDArray[np.floating[Any]]:
        """Features for learners that compare rows column by column."""
        pixels = self.encoding.pixels
        return coarse(self.x[rows], pixels[0]) if pixels else self.x[rows]

    @property
    def facts(self) -> dict[str, Any]:
        """What run.json says of arrays that came from no file."""
        checksum = hashlib.sha256(np.ascontiguousarray(self.x).data)
        checksum.update(np.ascontiguousarray(self.candidates.mask).data)
        asked = {"oneof": __version__, "data": checksum.hexdigest(), "train_on_gold": False}
        return {"file": "arrays", "fingerprint": asked["data"], "asked": asked, "warnings": []}


class Learned(NamedTuple):
    """Everything that a run holds."""

    model: Model
    purified: pa.Table  # a row for every example
    training: dict[str, Any]  # how the networks were trained, epoch by epoch
    tried: list[Row]
    claim: Claim  # what may be said of the accuracy on new rows
    facts: dict[str, Any]  # what run.json says of any run, however its examples came in
    left_out: list[str]  # for want of time, in words


def learn(examples: Examples, asked: Search, *, train_on_gold: bool = False, how: OnPictures = BY_SIZE) -> Learned:
    """Search settings, train the ensemble, teach other learners what it found, weigh all, resolve every row, and say what may be said of the accuracy.

    Gold labels of rows that were drawn at random measure; of the others, ENOUGH choose the settings. Where pictures are the features, networks on them are the ensemble, trained as `how` says.
    """
    # sums are rounded by how rows lie in memory
    examples = replace(examples, x=np.require(examples.x, requirements="C"))
    x, original, gold, pixels = examples.x, examples.candidates.mask, examples.gold, examples.encoding.pixels
    blank = np.zeros(len(x), dtype=bool) if examples.blank is None else examples.blank
    measuring = random_sample(gold) if examples.drawn is None and gold is not None else examples.drawn
    choosing = gold if gold is None or measuring is None else np.where(measuring >= 0, -1, gold)
    choosing = None if choosing is None or (choosing >= 0).sum() < ENOUGH else choosing
    device = device_for_pictures(asked.device) if pixels else device_for(asked.device, *x.shape)
    asked = replace(asked, groups=examples.groups, prior=examples.prior, gold=choosing, device=device)
    train: Callable[..., Found] = search
    rule = asked.rule if choosing is None else "gold"
    if pixels:  # networks learn alone there: single pixels of other rows say little
        asked = replace(asked, space=replace(asked.space, learners=("networks",), kernel=None))
        rule, train = "size and device", partial(train_on_pictures, how=how, pixels=pixels[0], blank=blank)
    if examples.prior is not None and examples.beside is None:
        asked = replace(asked, space=_space_for_prior(asked.space))
    sets, heard = _believed(examples, asked)
    if train_on_gold and gold is not None:
        sets, heard = _taught(sets, gold), None
    found = train(x, sets, replace(asked, heard=heard))
    _check_finite(found)
    names = [str(name) for name in examples.candidates.classes.tolist()]
    networks = Model(names, examples.encoding, tuple(map(member_of, found.fits)), {})
    seen = networks.features(x)
    found, some, plain = _ask_strangers(examples, found, sets, asked, seen)
    ensemble = weigh_learners(networks, found, Rows(x, original, sets, _taught(original, choosing)), asked)
    found, opinions = found._replace(fits=ensemble.fits), labels.without_opinion(ensemble.opinions, blank)
    beside = examples.beside or (None if examples.prior is None else labels.Judgement(examples.prior))
    kept = (labels.kept_sets(found.fits, found.candidates) if found.fits else original) & examples.given
    resolved = labels.resolve(opinions, original, np.where(kept.any(1, keepdims=True), kept, original), beside)
    measured = np.full(len(some), -1) if measuring is None else measuring[some]
    judged = Judged(opinions.mean[some], original[some], measured, plain, examples.prior is not None)
    said = claim(judged := judged.where(opinions.held_out[some]))
    model = replace(ensemble.model.on_cpu(), calibration=calibrate(judged, said))
    purified = _purified(examples, names, found, resolved, seen, device)
    told = {"seed": asked.seed, "n": len(x), "d": len(model.encoding.names), "classes": names}
    told |= {"features": model.encoding.names, "chosen": plain_value([one._asdict() for one in found.chosen])}
    told |= {"learners": model.learners, "rule": rule, "estimate": asdict(said)}
    facts = {"format": RUN_FORMAT, "oneof": __version__, "torch": torch.__version__, **told}
    tried, left_out = found.tried + ensemble.tried, found.left_out + ensemble.left_out
    return Learned(model, purified, training_record(found.fits), tried, said, facts, left_out)


def _space_for_prior(space: Space) -> Space:
    """Return the space for counts or probabilities: they are weighed, and nothing is cut from the sets.

    Learners are fitted on each row's own prior, not on labels that rounds of regression or other learners resolved: through these a row's prior
    would come back in predictions that are meant to be held out, and these would seem to agree with it.
    """
    kernel = replace(space.kernel or KernelConfig(), rounds=0)
    return replace(space, kernel=kernel, margin=math.inf, purify=None)


def _ask_strangers(
    examples: Examples, found: Found, sets: NDArray[np.bool_], asked: Search, seen: Floats
) -> tuple[Found, NDArray[np.intp], Floats]:
    """With the kernel that they prefer; rows to judge by, all or of a large table those that are drawn first, and what strangers say of them."""
    n, c = examples.candidates.mask.shape
    some = np.sort(drawn_rows(n)[: max(min(_JUDGED, _CELLS // c), SAMPLE)])
    mask = examples.candidates.mask[some]
    strangers = cross_fit_scores(examples.plain(some) if examples.encoding.pixels else seen[some], mask)
    believed = ~(sets[some] & ~mask).any(1)  # a set that misses the truth is unlikely by whoever is right
    if found.regression and asked.prior is None and believed.any():
        resolved, given = (said[believed] for said in strangers)
        if sharpness := choose_raw_set_temperature((resolved, given), mask[believed]):
            found = regression_as_given(found, examples.x, sets, asked, sharpness)
    return found, some, strangers[0]


def _believed(examples: Examples, asked: Search) -> tuple[NDArray[np.bool_], KernelScores | None]:
    """The sets to learn from: one that seems to miss the truth, by other rows, teaches nothing. And what these say, if the search would ask the same."""
    sets, wrong, heard = examples.given, examples.unbelieved, None
    if examples.prior is not None or asked.space.kernel is None:
        return sets, None
    if wrong is None:
        wrong, heard = find_noisy_sets(
            examples.x, sets, max_rows=asked.space.rows, seed=asked.seed, device=asked.device
        )
    alike = asked.space.kernel == KernelConfig() and asked.groups is None
    return np.asarray(sets | wrong[:, None]), heard if alike else None


def _taught(mask: NDArray[np.bool_], gold: NDArray[np.intp] | None) -> NDArray[np.bool_]:
    """The sets with gold labels in the place of theirs."""
    if gold is None:
        return mask
    return np.where((gold >= 0)[:, None], np.arange(mask.shape[1]) == gold[:, None], mask)


def _check_finite(found: Found) -> None:
    networks = [[weight[t] for weight in one.stack.weights.values()] for one in found.fits for t in range(one.stack.t)]
    diverged = sum(not all(bool(weight.isfinite().all()) for weight in network) for network in networks)
    if diverged:
        counts, rates = f"{diverged} of {len(networks)}", ", ".join(str(one.lr) for one in found.chosen)
        raise ValueError(f"training diverged in {counts} networks. Lower lr ({rates} now), or scale the features.")


def _purified(
    examples: Examples, classes: list[str], found: Found, resolved: labels.Resolved, seen: Floats, device: torch.device
) -> pa.Table:
    trained, names = labels.trained_rows(found.fits, len(examples.x)), pa.array(classes, pa.string())
    neighbours, gain = find_evidence(seen, resolved.distribution, resolved.ask, device)
    more = {"removed": labels.gather_falls(found.fits, examples.given, names)}
    more |= {"trained": pa.array(trained.sum(0).astype(np.int32)), "neighbours": neighbours, "gain": pa.array(gain)}
    return purified_table(examples, names, resolved, more)


def purified_table(
    examples: Examples, names: pa.Array, resolved: labels.Resolved, more: Mapping[str, pa.Array]
) -> pa.Table:
    """Return the rows of purified.parquet, with the groups, votes and gold labels that the examples have."""
    table = labels.ensemble_table(resolved, examples.candidates.mask, names, more)
    if examples.groups is not None:
        table = table.append_column("group", [pa.array(examples.groups, pa.string())])
    if examples.votes is not None:
        table = table.append_column("votes", [examples.votes])
    if examples.gold is not None:
        table = table.append_column("gold", [names.take(pa.array(examples.gold, mask=examples.gold < 0))])
    return table


def training_record(fits: Sequence[Fit]) -> dict[str, Any]:
    """Every column that all histories have as lists [epochs][t]; None after the last epoch of a network that had fewer."""
    histories = [fitted.history for fitted in fits]
    epochs = max((len(history["loss"]) for history in histories), default=0)
    columns: dict[str, list[Any]] = {}
    for name in ("loss", "set_size", "threshold", "removed", *CRITERIA):
        if fits and all(name in history for history in histories):
            parts = [history[name].tolist() for history in histories]
            padded = [part + [[None] * len(part[0])] * (epochs - len(part)) for part in parts]
            columns[name] = [list(chain.from_iterable(rows)) for rows in zip(*padded, strict=True)]
    chosen = [epoch for fitted in fits for epoch in fitted.epoch.tolist()]
    return {"trials": len(chosen), "epochs": epochs, "columns": columns, "chosen": chosen}
