"""Make candidate sets of votes by any policy, as `oneof votes` does."""

from typing import Literal

from oneof.votes.ballots import Votes
from oneof.votes.policies import Sets, at_least, top_p, union, vaguest

Policy = Literal["union", "at-least", "vaguest", "dawid-skene"]


def make_sets(votes: Votes, policy: Policy, k: int, p: float) -> Sets:
    """Make candidate sets of votes; k votes are what "at-least" needs, p is the probability that "dawid-skene" reaches."""
    if policy == "at-least":
        return at_least(votes, k=k)
    if policy == "vaguest":
        return vaguest(votes)
    if policy == "dawid-skene":
        return top_p(votes, p=p)
    return union(votes)
