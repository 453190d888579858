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
from oneof.runs.labels import Judgement
from oneof.runs.learn import Examples
from oneof.selection.space import Space
from oneof.selection.vote_prior import VotePrior, narrowed, vote_prior
from oneof.votes.annotators import mistakes
from oneof.votes.attach import CANDIDATES, attach_votes, counted
from oneof.votes.ballots import Votes
from oneof.votes.label_studio import is_label_studio, read_stars
from oneof.votes.opening import VotesFile, annotator_columns, read_votes

_FEW = 1e-6  # prior of a label that no vote knows, such as one that only gold labels have


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
    """Read the votes and find each row's."""
    votes, source = read_votes(asked), open_table(file)
    attached = attach_votes(source, votes, asked.item)
    own = annotator_columns(asked) if Path(asked.path).resolve() == file.resolve() else []
    stars = _stars(asked, votes, attached.item)
    remarks = [*votes.remarks, *attached.remarks]
    return Voted(attached.source, votes, attached.item, remarks, stars, (asked.item, *own))


def _stars(asked: VotesFile, votes: Votes, item: NDArray[np.intp]) -> dict[int, str]:
    path = Path(asked.path)
    if not path.name.lower().removesuffix(".gz").endswith(".json") or not is_label_studio(path):
        return {}
    said, items = read_stars(path), votes.items.to_pylist()
    return {row: said[items[i]] for row, i in enumerate(item) if i >= 0 and items[i] in said}


def weigh_votes(examples: Examples, voted: Voted, space: Space, seed: int) -> tuple[Examples, Space, dict[str, Any]]:
    """Examples with the prior that held-out votes advise, the space that suits it, and what is known of those who voted."""
    found, classes = vote_prior(examples.plain, voted.votes, voted.item, seed), examples.candidates.classes
    place = {str(name): j for j, name in enumerate(classes.tolist())}
    column = [place[name] for name in voted.votes.labels]

    def widened(values: NDArray[Any], other: float) -> NDArray[Any]:
        wide = np.full((len(values), len(classes)), other, dtype=values.dtype)
        wide[:, column] = values
        return wide

    judges, gold = found.judges, examples.gold
    judges = judges._replace(others=widened(judges.others, np.log(_FEW)), said=widened(judges.said, _FEW))
    opinion = None if found.opinion is None else widened(found.opinion, 0.0)
    if voted.stars:
        gold = np.full(len(examples.x), -1) if gold is None else gold.copy()
        gold[list(voted.stars)] = [place[label] for label in voted.stars.values()]
    weighed = replace(
        examples,
        gold=gold,
        candidates=Candidates(widened(found.candidates, False), classes),
        prior=widened(found.prior, _FEW),
        beside=Judgement(widened(found.said, _FEW), opinion, judges),
        votes=counted(voted.votes, voted.item),
    )
    return weighed, narrowed(space, found), people_of(voted.votes, found)


def people_of(votes: Votes, found: VotePrior) -> dict[str, Any]:
    """Who voted how often, and how often each is right by what votes and features say together; what held-out votes chose."""
    count = np.bincount(votes.annotator, minlength=len(votes.annotators))
    right = np.bincount(votes.annotator, found.joint.posterior[votes.item, votes.label], minlength=len(count))
    accuracy = (right / np.maximum(count, 1)).round(4).tolist()
    order = np.argsort(-count, kind="stable")
    return {
        "items": len(votes.items),
        "votes": len(votes.item),
        "annotators": [
            {"annotator": votes.annotators[a], "votes": int(count[a]), "accuracy": accuracy[a]} for a in order
        ],
        "mistakes": [one._asdict() for one in mistakes(votes, found.joint.posterior)],
        "chosen": found.joint.tried[0] if found.joint.tried else {},
    }
