r"""Find the columns of features that rules read, since what is learned from them repeats the rules' votes.

A rule such as "the message has the word *free*" is a function of the features. A learner that has the word as a feature predicts the vote,
whether the rule is right or not, and would confirm it. Columns that no rule reads are independent evidence. A rule a, which only ever gives one
label, reads the column j if it votes on nearly all rows where the column differs from its most frequent value, such as rows that have a word, and
votes there far more often than elsewhere:

    v_ja >= 0.95 n_j      and      v_ja - n_j r_a  >  5 sqrt(n_j r_a (1 - r_a))

n_j: rows where column j differs,  v_ja: those of them on which a votes,  r_a: share of all rows on which a votes.

A number that a rule compares with a threshold is not found, nor is a word in a vector of a whole text.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from oneof.votes.ballots import Floats, Integers, Votes

MIN_VOTE_RATE = 0.95  # of a rule on the rows where a column differs
MIN_STANDARD_DEVIATIONS = 5.0  # by which it votes there more often than on any rows
# Share of the rows on which a column may differ from its most frequent value; it is larger in measurements, which are not searched.
MAX_DIFFERENT = 0.5


def columns_read_by_rules(x: Floats, votes: Votes, item: Integers) -> NDArray[np.bool_]:
    """Return which columns of features x [n, d] are read by a rule, [d]; the rows' items among those of the votes are `item` [n].

    Examples
    --------
    >>> import pyarrow as pa
    >>> from oneof.votes import read_long
    >>> rng = np.random.default_rng(0)
    >>> has_word = (rng.random((200, 3)) < 0.3).astype(float)
    >>> rows = [(i, f"word {j}", "spam") for i, j in zip(*np.nonzero(has_word[:, :2]))]
    >>> rows += [(i, "person", "spam" if i % 2 else "ham") for i in range(200)]
    >>> item, annotator, label = zip(*rows)
    >>> votes = read_long(pa.table({"item": item, "annotator": annotator, "label": label}))
    >>> columns_read_by_rules(has_word[votes.items.to_numpy()], votes, np.arange(200))
    array([ True,  True, False])
    """
    n = len(item)
    has_vote = _votes_of_rules(votes)[item]
    if not x.size or not has_vote.shape[1]:
        return np.zeros(x.shape[1], dtype=bool)
    differs = _differs_from_most_frequent(x)
    n_different = differs.sum(0)[:, None]  # [d, 1]
    n_votes = np.asarray((has_vote.T @ differs.astype(np.float32)).T)  # [d, rules]
    rate = np.asarray(has_vote.sum(0)).ravel() / n
    expected = n_different * rate
    deviation = np.sqrt(n_different * rate * (1 - rate))
    is_read = n_votes >= MIN_VOTE_RATE * n_different
    is_read &= n_votes - expected > MIN_STANDARD_DEVIATIONS * deviation
    is_read &= n_different <= MAX_DIFFERENT * n
    return np.asarray(is_read.any(1))


def _votes_of_rules(votes: Votes) -> Any:
    """Return on which items each annotator who only ever gives one label votes: a sparse array [items, rules] of ones."""
    is_rule = votes.labels_per_annotator == 1
    column = np.cumsum(is_rule) - 1
    n_rules = int(is_rule.sum())
    by_rule = is_rule[votes.annotator]
    cells = np.unique(votes.item[by_rule] * max(n_rules, 1) + column[votes.annotator[by_rule]])
    positions = np.divmod(cells, max(n_rules, 1))
    return csr_array((np.ones(len(cells)), positions), shape=(len(votes.items), n_rules))


def _differs_from_most_frequent(x: Floats) -> NDArray[np.bool_]:
    """Return where a column differs from its most frequent value, [n, d]; that is the median wherever more than half of the rows have it."""
    return np.asarray(x != np.median(x, axis=0))
