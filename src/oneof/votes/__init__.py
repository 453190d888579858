"""Votes of annotators, people or machines, made into candidate sets.

`resolve` returns the label of every item. `read_votes` reads votes of any form, `read_long`, `read_wide` and `read_label_studio` those of one
form; `union`, `at_least`, `vaguest` and `top_p` make candidate sets of them; `summarise` computes how far the annotators agree;
`fit_annotators` estimates how accurate each annotator is, `join` chooses its settings by held-out votes and combines votes with features;
`write` saves the sets as Parquet or CSV, with a column `item` to join features on.
Rows in messages are counted from 0 at the first row below the header.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from oneof.votes.agreement import AnnotatorAgreement, Summary, alpha, annotator_agreement, summarise
from oneof.votes.annotators import AnnotatorFit, Annotators, Confusions, fit_annotators
from oneof.votes.ballots import Votes
from oneof.votes.dawid_skene import dawid_skene
from oneof.votes.joint import Choice, Joint, choose, join
from oneof.votes.label_studio import is_label_studio, read_label_studio
from oneof.votes.policies import Sets, at_least, to_table, top_p, union, vaguest, write
from oneof.votes.read import read_long, read_votes, read_wide
from oneof.votes.spelling import Spelling, read_map, read_taxonomy

if TYPE_CHECKING:
    from oneof.estimator.vote_labels import VoteLabels as VoteLabels
    from oneof.estimator.vote_labels import resolve as resolve

__all__ = [
    "AnnotatorAgreement", "AnnotatorFit", "Annotators", "Choice", "Confusions", "Joint", "Sets", "Spelling", "Summary",
    "VoteLabels", "Votes", "alpha", "annotator_agreement", "at_least", "choose", "dawid_skene", "fit_annotators", "is_label_studio",
    "join", "read_label_studio", "read_long", "read_map", "read_taxonomy", "read_votes", "read_wide", "resolve", "summarise", "to_table",
    "top_p", "union", "vaguest", "write",
]  # fmt: skip

# These learn from features too, so they are defined in a package that imports this one.
_DEFINED_LATER = {"VoteLabels": "oneof.estimator.vote_labels", "resolve": "oneof.estimator.vote_labels"}


def __getattr__(name: str) -> Any:
    """Import a name that needs the learners when it is first used."""
    if name in _DEFINED_LATER:
        return getattr(import_module(_DEFINED_LATER[name]), name)
    raise AttributeError(f"module 'oneof.votes' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return all public names, also those that are not imported yet."""
    return sorted({*globals(), *__all__})
