"""From features and sets to all that a run holds, in memory: what `oneof fit` writes down and the estimator shows."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from oneof.candidates.mask import Candidates
from oneof.data.encode import Encoding
from oneof.data.images import coarse
from oneof.metrics import CRITERIA
from oneof.runs.accuracy import ENOUGH, SAMPLE, Claim, Judged, claim, drawn_rows, random_sample
from oneof.runs.calibrate import calibrate
from oneof.runs.folder import FACTS, PURIFIED, ROWS, TRAINING, write_json, write_rows, write_table
from oneof.runs.labels import (
    Judgement,
    Opinions,
    Resolved,
    ensemble_table,
    gather_falls,
    kept_sets,
    resolve,
    trained_rows,
    without_opinion,
)
from oneof.runs.model import Model, PictureMember, member_of
from oneof.runs.nearest_rows import Floats, find_evidence
from oneof.runs.pictures import BY_SIZE, OnPictures, train_on_pictures
from oneof.runs.sample import write_sample
from oneof.runs.stored_model import FORMAT, save_model
from oneof.runs.weighing import Rows, weigh_learners
from oneof.selection.leave_one_out import ask_strangers
from oneof.selection.outside import disbelieved
from oneof.selection.search import Found, search
from oneof.selection.space import Space
from oneof.selection.trying import Search
from oneof.storage.rows import Row
from oneof.storage.settings import plain_value
from oneof.training.device import best_device, device_for
from oneof.training.state import Fit
from oneof.version import __version__

SPACE = Space(parts=5)
"""Five parts: every row is held out by one network in five, and by trees and kernel too."""
_JUDGED, _CELLS = 4000, 2**21  # rows at most that networks are judged by, and cells [m, c] of them


@dataclass(frozen=True, eq=False)
class Examples:
    """n rows to learn from."""

    x: NDArray[Any]  # [n, d] floats, or levels of pictures
    candidates: Candidates  # [n, c]
    encoding: Encoding  # by which new rows become features
    gold: NDArray[np.intp] | None = None  # [n] true labels, -1 where unknown
    groups: Sequence[str] | None = None  # [n] rows of one group stay on one side of a split
    prior: NDArray[np.floating[Any]] | None = None  # [n, c] how much votes speak for each label
    beside: Judgement | None = (
        None  # what is weighed beside the networks when a row is resolved; None: the prior, if any
    )
    votes: pa.Array | None = None  # [n] the votes themselves, for a person to read
    taught: NDArray[np.bool_] | None = None  # [n, c] sets to learn from in place of the candidates: people decided
    unbelieved: NDArray[np.bool_] | None = None  # [n] sets that teach nothing; None: found out
    drawn: NDArray[np.intp] | None = None  # [n] what people said of rows drawn at random, -1 elsewhere: to estimate by
    readable: NDArray[np.bool_] | None = None  # [n] rows whose picture could be read, where pictures are learned from

    @property
    def plain(self) -> NDArray[np.floating[Any]]:
        """Features for learners that compare rows column by column."""
        pixels = self.encoding.pixels
        return coarse(self.x, pixels[0]) if pixels else self.x

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
    chosen: list[dict[str, Any]]  # settings
    rule: str  # by which they were chosen; "gold": by gold labels
    seed: int
    left_out: list[str]  # for want of time, in words

    @property
    def facts(self) -> dict[str, Any]:
        """What run.json says of any run, however its examples came in."""
        return {
            "format": FORMAT,
            "oneof": __version__,
            "torch": torch.__version__,
            "seed": self.seed,
            "n": self.purified.num_rows,
            "d": len(self.model.encoding.names),
            "classes": self.model.classes,
            "features": self.model.encoding.names,
            "chosen": self.chosen,
            "learners": self.model.learners,
            "rule": self.rule,
            "estimate": self.claim.plain,
        }


def learn(examples: Examples, asked: Search, *, train_on_gold: bool = False, how: OnPictures = BY_SIZE) -> Learned:
    """Search settings, train the ensemble, teach other learners what it found, weigh all, resolve every row, and say what may be said of the accuracy.

    Gold labels of rows that were drawn at random measure; of the others, ENOUGH choose the settings. Where pictures are the features, networks on them are the ensemble, trained as `how` says.
    """
    examples = replace(examples, x=np.ascontiguousarray(examples.x))  # sums are rounded by how rows lie in memory
    x, original, gold = examples.x, examples.candidates.mask, examples.gold
    measuring = random_sample(gold) if gold is not None else None
    measuring = examples.drawn if examples.drawn is not None else measuring
    choosing = None if gold is None else gold if measuring is None else np.where(measuring >= 0, -1, gold)
    enough = choosing is not None and (choosing >= 0).sum() >= ENOUGH
    device, by = _place(asked.device, examples), choosing if enough else None
    asked = replace(asked, groups=examples.groups, prior=examples.prior, gold=by, device=device)
    by_others = examples.prior is None and asked.space.kernel and examples.readable is None
    sets = _believed(examples, asked) if by_others else _given(examples)
    sets = _taught(sets, gold) if train_on_gold else sets
    if examples.readable is None:
        found = search(x, sets, asked)
    else:
        asked = replace(asked, space=replace(asked.space, learners=("networks",)))
        found = train_on_pictures(x, sets, examples.readable, examples.encoding.pixels[0], asked, how)
    _check_finite(found)
    classes = [str(name) for name in examples.candidates.classes.tolist()]
    networks = Model(classes, examples.encoding, tuple(map(member_of, found.fits)), {})
    ensemble = weigh_learners(networks, found, Rows(x, original, sets, known=_taught(original, by)), asked)
    found, model, opinions = found._replace(fits=ensemble.fits), ensemble.model, ensemble.opinions
    if examples.readable is not None:
        opinions = without_opinion(opinions, ~examples.readable)
    beside = examples.beside or (None if examples.prior is None else Judgement(examples.prior))
    kept = (kept_sets(found.fits, found.candidates) if found.fits else original) & _given(examples)
    resolved = resolve(opinions, original, np.where(kept.any(1, keepdims=True), kept, original), beside)
    seen = _seen(model, examples)
    said = claim(judged := _judged(examples, seen, opinions, measuring))
    return Learned(
        replace(model.on_cpu(), calibration=calibrate(judged, said)),
        _purified(examples, classes, found, resolved, seen, device),
        training_record(found.fits),
        found.tried + ensemble.tried,
        said,
        plain_value([one._asdict() for one in found.chosen]),
        "size and device" if examples.readable is not None else "gold" if enough else asked.rule,
        asked.seed,
        found.left_out + ensemble.left_out,
    )


def _place(device: str | torch.device, examples: Examples) -> torch.device:
    """Where to learn; "auto": pictures wherever is best, tables where it pays."""
    pictures = examples.readable is not None
    return best_device() if pictures and device == "auto" else device_for(device, *examples.x.shape)


def _judged(examples: Examples, seen: Floats, opinions: Opinions, gold: NDArray[np.intp] | None) -> Judged:
    """Held-out rows to judge the networks by: all, or of a large table those that are drawn first."""
    n, c = examples.candidates.mask.shape
    some = np.sort(drawn_rows(n)[: max(min(_JUDGED, _CELLS // c), SAMPLE)])
    mask, known = examples.candidates.mask[some], np.full(n, -1) if gold is None else gold
    plain = ask_strangers((seen if examples.readable is None else examples.plain)[some], mask)
    judged = Judged(opinions.mean[some], mask, known[some], plain, examples.prior is not None)
    return judged.where(opinions.held_out[some])


def _given(examples: Examples) -> NDArray[np.bool_]:
    """The sets, as people left them."""
    return examples.candidates.mask if examples.taught is None else examples.taught


def _believed(examples: Examples, asked: Search) -> NDArray[np.bool_]:
    """The sets to learn from: one that seems to miss the truth teaches nothing."""
    sets, wrong = _given(examples), examples.unbelieved
    if wrong is None:
        wrong = disbelieved(examples.x, sets, rows=asked.space.rows, seed=asked.seed, device=asked.device)
    return np.asarray(sets | wrong[:, None])


def _taught(mask: NDArray[np.bool_], gold: NDArray[np.intp] | None) -> NDArray[np.bool_]:
    """The sets with gold labels in the place of theirs."""
    if gold is None:
        return mask
    return np.where((gold >= 0)[:, None], np.arange(mask.shape[1]) == gold[:, None], mask)


def _check_finite(found: Found) -> None:
    if not found.fits:
        return
    finite = torch.cat(
        [
            torch.stack([weight.flatten(1).isfinite().all(1) for weight in fitted.stack.weights.values()]).all(0)
            for fitted in found.fits
        ]
    )
    if not finite.all():
        rates = ", ".join(str(one.lr) for one in found.chosen)
        raise ValueError(
            f"training diverged in {int((~finite).sum())} of {len(finite)} networks. Lower lr ({rates} now), or scale the features."
        )


def _purified(
    examples: Examples, classes: list[str], found: Found, resolved: Resolved, seen: Floats, device: torch.device
) -> pa.Table:
    trained = trained_rows(found.fits, len(examples.x))
    evidence = find_evidence(seen, resolved.distribution, resolved.ask, device=device)
    falls = gather_falls(found.fits, len(classes)).among(_given(examples))
    table = ensemble_table(resolved, examples.candidates.mask, falls, trained.sum(0), evidence, classes)
    if examples.groups is not None:
        table = table.append_column("group", [pa.array(examples.groups, pa.string())])
    if examples.votes is not None:
        table = table.append_column("votes", [examples.votes])
    if examples.gold is not None:
        names = [classes[j] if j >= 0 else None for j in examples.gold]
        table = table.append_column("gold", [pa.array(names, pa.string())])
    return table


def _seen(model: Model, examples: Examples) -> Floats:
    """Features as the first network sees them, of pictures those that it makes; without networks, each with unit deviation."""
    x = examples.x
    if model.members:
        first = model.members[0]
        return first.features(x) if isinstance(first, PictureMember) else first.seen(x, slice(1))[0].cpu().numpy()
    return np.asarray((x - x.mean(0)) / np.maximum(x.std(0), 1e-12))


def training_record(fits: Sequence[Fit]) -> dict[str, Any]:
    """Every column of the histories as lists [epochs][t]; None after the last epoch of a network that had fewer."""
    epochs = max((fitted.history.epoch for fitted in fits), default=0)
    histories = [fitted.history.columns for fitted in fits]
    columns = {}
    for name in ("loss", "set_size", "threshold", "removed", *CRITERIA):
        if histories and all(name in history for history in histories):
            parts = [history[name] for history in histories]
            columns[name] = [
                [value for part in parts for value in (part[e].tolist() if e < len(part) else [None] * part.shape[1])]
                for e in range(epochs)
            ]
    chosen = [epoch for fitted in fits for epoch in fitted.epoch.tolist()]
    return {"trials": len(chosen), "epochs": epochs, "columns": columns, "chosen": chosen}


def write_learned(learned: Learned, folder: Path, facts: dict[str, Any]) -> None:
    """Write every part into a folder that exists, run.json last: with it the run is finished."""
    save_model(learned.model, folder)
    write_table(learned.purified, folder / PURIFIED)
    write_json(learned.training, folder / TRAINING)
    write_rows(learned.tried, folder / ROWS)
    write_sample(learned.purified, folder)
    write_json(learned.facts | facts, folder / FACTS)
