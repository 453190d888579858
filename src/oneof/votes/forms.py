"""Read a file of votes in any of its forms, and make sets by any policy, as `oneof votes` does."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from oneof.votes.ballots import Votes
from oneof.votes.label_studio import is_label_studio, read_label_studio
from oneof.votes.policies import Sets, at_least, top_p, union, vaguest
from oneof.votes.read import read_long, read_wide
from oneof.votes.spelling import Spelling

Form = Literal["long", "wide", "label-studio"]
Policy = Literal["union", "at-least", "vaguest", "dawid-skene"]


@dataclass(frozen=True)
class VoteColumns:
    """Where a file holds items, annotators and labels."""

    item: str = "item"  # long and wide: the column of the item
    annotator: str = "annotator"  # long: the column of the annotator
    label: str = "label"  # long: the column of the label
    confidence: str | None = None  # long: the column of the weight of a vote; Label Studio: a field of predictions
    annotators: Sequence[str] = ()  # wide: a column per annotator
    from_name: str | None = None  # Label Studio: the control whose choices are votes


def guess_form(file: Path, columns: VoteColumns) -> Form:
    """Return the form that a file seems to have."""
    is_json = file.name.lower().removesuffix(".gz").endswith(".json")
    if is_json and (columns.from_name is not None or is_label_studio(file)):
        return "label-studio"
    if columns.annotators:
        return "wide"
    return "long"


def read_votes_file(file: Path, form: Form, columns: VoteColumns, spelling: Spelling) -> Votes:
    """Read the votes of a file."""
    if form == "label-studio":
        return read_label_studio(file, from_name=columns.from_name, confidence=columns.confidence, spelling=spelling)
    if form == "wide":
        if columns.confidence is not None:
            raise ValueError(
                f"confidence must be left out for a wide table; got {columns.confidence!r}. Use the long form."
            )
        return read_wide(file, columns=list(columns.annotators), item=columns.item, spelling=spelling)
    return read_long(
        file,
        item=columns.item,
        annotator=columns.annotator,
        label=columns.label,
        confidence=columns.confidence,
        spelling=spelling,
    )


def make_sets(votes: Votes, policy: Policy, k: int, p: float) -> Sets:
    """Make candidate sets of votes; k votes are what "at-least" needs, p is the probability that "dawid-skene" reaches."""
    if policy == "at-least":
        return at_least(votes, k=k)
    if policy == "vaguest":
        return vaguest(votes)
    if policy == "dawid-skene":
        return top_p(votes, p=p)
    return union(votes)
