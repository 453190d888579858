"""Tables whose labels are votes: read together, and weighed by people and features."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneof.candidates.mask import Candidates
from oneof.data.files.columns import open_table
from oneof.data.files.source import Source
from oneof.data.roles import Roles
from oneof.runs.labels import Judgement, spread
from oneof.runs.learn import Examples
from oneof.selection.space import Space
from oneof.selection.vote_prior import VotePrior, narrowed, vote_prior
from oneof.votes.annotators import mistakes
from oneof.votes.attach import CANDIDATES, attach_votes, counted
from oneof.votes.ballots import Votes
from oneof.votes.label_studio import is_label_studio, read_stars
from oneof.votes.opening import VotesFile, annotator_columns, read_votes


@dataclass(frozen=True, eq=False)
class Voted:
    """A table and the votes on its rows."""

    source: Source
    votes: Votes
    item: NDArray[np.intp]  # [n] of each row, -1 where nobody voted
    remarks: list[str]
    stars: dict[int, str]  # labels that Label Studio's stars say are true, by row
    ignored: tuple[str, ...]  # columns that are no features: the item's, and those of annotators in the table

    def roles(self, asked: Roles) -> Roles:
        ignore = tuple({*asked.ignore, *self.ignored} - {""})
        return replace(asked, candidates=CANDIDATES, empty="unlabelled", ignore=ignore)


def read_voted(file: Path, asked: VotesFile) -> Voted:
    """Read the votes and find each row's; the stars of a Label Studio export say which labels are true."""
    votes, source, path = read_votes(asked), open_table(file), Path(asked.path)
    attached = attach_votes(source, votes, asked.item)
    own = annotator_columns(asked) if path.resolve() == file.resolve() else []
    starred = path.name.lower().removesuffix(".gz").endswith(".json") and is_label_studio(path)
    said, items = read_stars(path) if starred else {}, votes.items.to_pylist()
    stars = {row: said[items[i]] for row, i in enumerate(attached.item) if i >= 0 and items[i] in said}
    remarks = [*votes.remarks, *attached.remarks]
    return Voted(attached.source, votes, attached.item, remarks, stars, (asked.item, *own))


def weigh_votes(examples: Examples, voted: Voted, space: Space, seed: int) -> tuple[Examples, Space, dict[str, Any]]:
    """Examples with the prior that held-out votes advise, the space that suits it, and what is known of those who voted."""
    found, classes = vote_prior(examples.plain, voted.votes, voted.item, seed), examples.candidates.classes
    place = {str(name): j for j, name in enumerate(classes.tolist())}
    columns, gold = [place[name] for name in voted.votes.labels], examples.gold
    if voted.stars:
        gold = np.full(len(examples.x), -1) if gold is None else gold.copy()
        gold[list(voted.stars)] = [place[label] for label in voted.stars.values()]
    weighed = replace(
        examples,
        gold=gold,
        candidates=Candidates(spread(found.candidates, columns, len(classes), False), classes),
        prior=spread(found.prior, columns, len(classes)),
        beside=Judgement(found.said, found.opinion, found.judges).over(columns, len(classes)),
        votes=counted(voted.votes, voted.item),
    )
    return weighed, narrowed(space, found), people_of(voted.votes, found)


def people_of(votes: Votes, found: VotePrior) -> dict[str, Any]:
    """Who voted how often, and how often each is right by what votes and features say together; what held-out votes chose."""
    count = np.bincount(votes.annotator, minlength=len(votes.annotators))
    right = np.bincount(votes.annotator, found.joint.posterior[votes.item, votes.label], minlength=len(count))
    accuracy = (right / np.maximum(count, 1)).round(4).tolist()
    order = np.argsort(-count, kind="stable")
    people = [{"annotator": votes.annotators[a], "votes": int(count[a]), "accuracy": accuracy[a]} for a in order]
    return {
        "items": len(votes.items),
        "votes": len(votes.item),
        "annotators": people,
        "mistakes": [one._asdict() for one in mistakes(votes, found.joint.posterior)],
        "chosen": found.joint.tried[0] if found.joint.tried else {},
    }
