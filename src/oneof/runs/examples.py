"""From a person's table, or a table and votes on its rows, to what is learned from; and what to say of it beforehand."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.mask import Candidates
from oneof.data.embed import MODELS
from oneof.data.encode import learn_encoding
from oneof.data.files.columns import open_table
from oneof.data.files.source import Source
from oneof.data.roles import Roles
from oneof.data.table import Table
from oneof.ensemble.pipeline import Examples
from oneof.ensemble.resolve import Judgement, spread
from oneof.ensemble.vote_prior import VotePrior, narrowed, vote_prior
from oneof.inspect import inspect_sets, inspect_table
from oneof.inspect.advice import Finding
from oneof.learners.config import Space
from oneof.learners.pictures import streamed
from oneof.votes.annotators import mistakes
from oneof.votes.attach import CANDIDATES, attach_votes, counted
from oneof.votes.ballots import Votes
from oneof.votes.label_studio import is_label_studio, read_stars
from oneof.votes.read import VotesFile, annotator_columns, read_votes


def examples_of(
    mixed: Table, folder: Path, cache: Path | None = None, pixels: Path | None = None, stream: bool | None = None
) -> tuple[Examples, list[str]]:
    """What is learned from a table, and what to say of it; names of images in it are of files in the folder.

    Where `streamed` says so, levels of pictures are kept in a file `pixels`.
    """
    encoding = learn_encoding(mixed.columns, mixed.roles, folder=folder, cache=cache)
    named = [part.model for part in encoding.embedded]
    told = [f"pictures are embedded by {name}. To train a network on them instead, say --architecture NAME." for name in named if name == MODELS["image"]]  # fmt: skip
    if not encoding.pixels:
        x = encoding.transform(mixed.columns, folder=folder, cache=cache, named=named)
        return Examples(x, mixed.candidates, encoding, mixed.gold, mixed.groups), told
    on_disk = streamed(len(mixed.columns), encoding.pixels[0], stream)
    read = encoding.pictures(mixed.columns, folder, pixels if on_disk else None)
    beside = [*mixed.columns.names, *mixed.roles.categories]
    told = [f"columns beside the pictures are not learned from: {', '.join(beside)}. To use both, say --image-model NAME."] * bool(beside)  # fmt: skip
    told += [read.fault] if read.fault else []
    return Examples(read.levels, mixed.candidates, encoding, mixed.gold, mixed.groups, blank=~read.readable), told


def column_facts(mixed: Table, examples: Examples) -> dict[str, dict[str, str]]:
    """Return what each column became and why, for run.json."""
    uses = {name: asdict(use) for name, use in mixed.uses.items()}
    if examples.encoding.pixels:
        for name in (*mixed.columns.names, *mixed.roles.categories):
            uses[name] = {"use": "left out", "reason": "a network on pictures learns from them alone"}
    return uses


def look_at(examples: Examples, mixed: Table, seed: int) -> list[str]:
    """What to warn of; what cannot be learned is an error. Of pictures the sets alone are looked at: no single pixel says much."""
    if examples.x.shape[1] == 0:
        reading = mixed.remarks()
        reading.append("The table has no features: votes alone decide its labels, and new rows cannot be predicted.")
        findings = tuple(Finding("warn", "reading", line) for line in reading)
    elif not examples.encoding.pixels:
        names = examples.encoding.names
        findings = inspect_table(mixed, examples.x, names, seed=seed, test_dependence=False).findings
    else:
        said = tuple(Finding("warn", "reading", line) for line in mixed.remarks())
        findings = inspect_sets(None, mixed.candidates, seed=seed, test_dependence=False).findings + said
    stop = next((finding.text for finding in findings if finding.severity == "stop"), None)
    if stop is not None:
        raise ValueError(f"{mixed.columns.source} cannot be learned from: {stop}")
    return [finding.text for finding in findings if finding.severity == "warn"]


@dataclass(frozen=True, eq=False)
class Voted:
    """A table and the votes on its rows."""

    source: Source
    roles: Roles  # its columns' parts; the item's, and those of annotators in the table, are no features
    votes: Votes
    item: NDArray[np.intp]  # [n] of each row, -1 where nobody voted
    remarks: list[str]
    stars: dict[int, str]  # labels that Label Studio's stars say are true, by row


def read_voted(file: Path, asked: VotesFile, roles: Roles) -> Voted:
    """Read the votes and find each row's; the stars of a Label Studio export say which labels are true."""
    votes, source, path = read_votes(asked), open_table(file), Path(asked.path)
    with_sets, item, remarks = attach_votes(source, votes, asked.item)
    own = annotator_columns(asked) if path.resolve() == file.resolve() else []
    said, items = read_stars(path) if is_label_studio(path) else {}, votes.items.to_pylist()
    stars = {row: said[items[i]] for row, i in enumerate(item) if i >= 0 and items[i] in said}
    ignore = tuple({*roles.ignore, asked.item, *own} - {""})
    roles = replace(roles, candidates=CANDIDATES, empty="unlabelled", ignore=ignore)
    return Voted(with_sets, roles, votes, item, [*votes.remarks, *remarks], stars)


def weigh_votes(examples: Examples, voted: Voted, space: Space, seed: int) -> tuple[Examples, Space, dict[str, Any]]:
    """Examples with the prior that held-out votes advise, the space that suits it, and what is known of those who voted."""
    found, classes = vote_prior(examples.plain(), voted.votes, voted.item, seed), examples.candidates.classes
    place = {str(name): j for j, name in enumerate(classes.tolist())}
    columns, gold = [place[name] for name in voted.votes.labels], examples.gold
    if voted.stars:
        gold = np.full(len(examples.x), -1) if gold is None else gold.copy()
        gold[list(voted.stars)] = [place[label] for label in voted.stars.values()]
    candidates = Candidates(spread(found.candidates, columns, len(classes), False), classes)
    prior = spread(found.prior, columns, len(classes))
    judgement = Judgement(found.said, found.opinion, found.judges, found.counts, found.accuracy)
    beside = judgement.over(columns, len(classes))
    votes = counted(voted.votes, voted.item)
    weighed = replace(examples, gold=gold, candidates=candidates, prior=prior, beside=beside, votes=votes)
    space = narrowed(space, found, on_pictures=bool(examples.encoding.pixels))
    return weighed, space, people_of(voted.votes, found)


def people_of(votes: Votes, found: VotePrior) -> dict[str, Any]:
    """Who voted how often, and how often each is right by what votes and features say together; what held-out votes chose."""
    count = np.bincount(votes.annotator, minlength=len(votes.annotators))
    right = np.bincount(votes.annotator, found.joint.posterior[votes.item, votes.label], minlength=len(count))
    accuracy = (right / np.maximum(count, 1)).round(4).tolist()
    order = np.argsort(-count, kind="stable")
    people = [{"annotator": votes.annotators[a], "votes": int(count[a]), "accuracy": accuracy[a]} for a in order]
    taken = [one._asdict() for one in mistakes(votes, found.joint.posterior)]
    chosen = found.joint.tried[0] if found.joint.tried else {}
    told = {"items": len(votes.items), "votes": len(votes.item), "annotators": people}
    return told | {"mistakes": taken, "chosen": chosen}
