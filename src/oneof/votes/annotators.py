"""Estimate true labels and annotators' confusion matrices jointly, by EM with shrinkage.

Dawid-Skene fits a free matrix of c x c probabilities to every annotator, which a few dozen votes cannot determine, and takes votes to be independent
given the true label, which they are not: what misleads one annotator misleads the next. Here an annotator has a *shape* of few parameters (accuracy,
and which labels are given in error); the free matrix departs from it only where there are votes enough. Several votes on an item count as fewer.
Rules and detectors, which name one label or abstain, have vote rates instead of a matrix, and that they abstain is evidence too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.sparse import csr_array
from scipy.special import softmax

from oneof.votes.ballots import Floats, Integers, Votes, check_table_memory
from oneof.votes.dawid_skene import shares, vote_matrices

START_SMOOTHING = 0.1  # pseudo-votes for every label in the vote shares that EM starts from
# How far many votes on an item err together. Of seven sets of real votes (people on songs, tweets, sentences and pictures; two juries of language
# models) the labels' probabilities are right in the mean if 2, 3, 5, 8 and 12 votes count as about 1.4, 1.5, 1.9, 2.1 and 2.4 independent ones.
CORRELATION = 0.4
_FEW_VOTES = 0.5  # votes by which the correlation of few is less
_ANNOTATOR_PRIOR = 5.0  # pseudo-votes by which an annotator's accuracy is shrunk to the pooled one
_RULE_PRIOR = 20.0  # pseudo-items by which a rule's vote rates are shrunk to the pooled ones
_VOTE_RATE_ROUNDS = 3  # of EM that update vote rates; with more, classes with few rules are absorbed by others
# Variance of the number of rules that vote on an item, relative to independent rules: below it, items were assigned.
_MIN_DISPERSION = 0.5
_MIN_MEAN_COUNT = 1.01  # of annotators per item; with fewer, their number hardly varies whatever the cause
_ROUNDING = 1e-9  # of sums of votes for several labels, which are fractions
_EPS = 1e-3  # accuracies are clipped to [eps, 1 - eps]: nobody is certain
_BLOCK_SIZE = 1 << 16  # numbers computed at a time, so that they stay in the cache


@dataclass(frozen=True)
class Annotators:
    r"""Configure a model of annotators whose confusion matrices are shrunk to a shape of few parameters.

    T [n, c] is the posterior of the true labels:

        T_ij     proportional to   (m_j L_ij)^(1 / (1 + rho_i (n_i - 1)))                m_j: mean of T_ij over items, n_i: votes on item i
        rho_i    = rho n_i / (n_i + 0.5)
        L_ij     = prod_{a, l} pi_a(j -> l) ^ w_ial
        pi_a(j -> l) = (N_ajl + k B_ajl) / (N_aj + k)                                    N_ajl = sum_i w_ial T_ij
        B_ajj = r_aj,      B_ajl = (1 - r_aj) u_al / (1 - u_aj)   for l != j

    u_a is the distribution of a's wrong labels, whatever the truth, which models annotators with a favourite answer. The odds of r_aj
    are the pooled odds of a correct vote for label j, times the odds ratio of a to the pool. Both are shrunk to the pool, so that an
    annotator of few votes equals the pooled mean.

    The exponent is the design effect of samples whose members are correlated by rho: n votes count as n / (1 + rho (n - 1)) independent
    ones. Votes cannot show rho, since annotators who err together are as predictable as annotators who are right together.

    An annotator who only ever gives one label l, such as a rule or a detector, has no confusion matrix: "gives l, whatever the truth"
    would explain such votes perfectly and carry no information. Such a *rule* has vote rates f_a(j), the probabilities that it votes at all
    rather than abstains: one for j = l and a lower one for all other labels, each shrunk to the pooled rate. A vote multiplies L_ij by
    f_a(j) / (1 - f_a(j)), and every item, also one without votes, has the factor prod_a (1 - f_a(j)) for abstention. Where the number of
    rules that vote varies too little over items for that, items were assigned to annotators, and abstention is no evidence: a vote then
    multiplies L_ij by f_a(j) alone.

    Parameters
    ----------
    strength
        k, the pseudo-votes per true label by which the shape outweighs an annotator's own counts.
    correlation
        rho in [0, 1]. 0: votes are independent given the true label; 1: any number of votes counts as one.
    one_coin
        Give annotators an accuracy each and no more: all wrong labels are equally likely, and all classes equally frequent.
    pooled
        The same with one accuracy for all of them, so that the majority wins.
    shared
        Give all annotators the same confusion matrix: what one of them takes for another label, all do.
    tolerance
        Stop when a round moves at most this much of an item's mass, on average.
    rounds
        Maximum number of EM rounds.
    """

    strength: float = 30.0
    correlation: float = CORRELATION
    one_coin: bool = False
    pooled: bool = False
    shared: bool = False
    tolerance: float = 1e-5
    rounds: int = 200

    @property
    def is_coin(self) -> bool:
        """Return whether annotators have an accuracy each, or together, and no confusion matrix."""
        return self.one_coin or self.pooled

    @property
    def has_own_confusions(self) -> bool:
        """Return whether every annotator has a confusion matrix."""
        return not self.is_coin and not self.shared

    @property
    def shape_strength(self) -> float:
        """Return k, which is infinite where the shape is all that there is."""
        return self.strength if self.has_own_confusions else np.inf

    def __post_init__(self) -> None:
        if not self.strength > 0:
            raise ValueError(f"strength must be positive; got {self.strength}.")
        if not 0 <= self.correlation <= 1:
            raise ValueError(f"correlation must lie in [0, 1]; got {self.correlation}.")


class Shape(NamedTuple):
    """Confusions of few parameters: B_ajl."""

    accuracy_by_label: Floats  # [a, c] r_aj
    error_labels: Floats  # [a, c] u_al
    shared_errors: Floats | None = None  # [c, c] wrong labels of all annotators, by true label; replaces u_al

    def of(self, annotator: Integers, label: Integers) -> Floats:
        """Return the probability [k, c] that annotators [k] give labels [k], for every true label."""
        accuracy = self.accuracy_by_label[annotator]
        rows = np.arange(len(label))
        if self.shared_errors is None:
            error_labels = self.error_labels[annotator]
            of_wrong = error_labels[rows, label][:, None] / np.maximum(1 - error_labels, 1e-12)
        else:
            of_wrong = self.shared_errors[:, label].T
        shape: Floats = (1 - accuracy) * of_wrong
        shape[rows, label] = accuracy[rows, label]
        return shape


class Confusions(NamedTuple):
    """Confusion matrices of a annotators; only the q pairs (annotator, label) that occur have counts."""

    strength: float  # infinite: the counts do not matter
    pair: Integers  # [q] annotator * c + label, ascending
    pair_counts: Floats  # [q, c] N_ajl of the pair (a, l) for every true label j
    true_counts: Floats  # [a, c] N_aj
    shape: Shape
    is_rule: NDArray[np.bool_]  # [a] True: the annotator only ever gives one label
    vote_rates: Floats  # [a, c] f_a(j), of rules

    def of(self, annotator: Integers, label: Integers) -> Floats:
        """Return the probability [k, c] that annotators [k] give labels [k], for every true label."""
        c = self.true_counts.shape[1]
        pair = annotator * c + label
        index = np.minimum(np.searchsorted(self.pair, pair), len(self.pair) - 1)
        occurs = (self.pair[index] == pair)[:, None]
        counts = np.where(occurs, self.pair_counts[index], 0.0)
        return _shrunk_probabilities(self, annotator, label, counts)

    def table(self, annotator: int) -> Floats:
        """Return the confusion matrix [true, given] of one annotator who is no rule."""
        c = self.true_counts.shape[1]
        return self.of(np.full(c, annotator), np.arange(c)).T


class AnnotatorFit(NamedTuple):
    """Result of `fit_annotators`."""

    posterior: Floats  # [n, c]
    likelihood: Floats  # [n, c] log-likelihood of an item's votes under each true label; the largest is 0
    frequencies: Floats  # [c] m_j
    confusions: Confusions
    vote_logs: Floats  # [n, c] log-likelihood if votes were independent, and without abstention
    n_votes: Floats  # [n] n_i
    correlation: float  # rho
    abstention: Floats  # [c] log-likelihood of an item on which all rules abstain; zero where that is no evidence
    silent_posterior: Floats  # [c] of an item without votes
    rule_vote_logs: Floats  # [a, c] logs by which a rule's vote counts
    is_counted: NDArray[np.bool_]  # [a] whether an annotator's votes are counted in n_i
    rounds: int  # of EM
    converged: bool  # the last round moved at most `tolerance` of an item's mass, on average

    def with_correlation(self, correlation: float) -> AnnotatorFit:
        """Return the same with another rho, which flattens the likelihood and the posterior."""
        exponent = vote_exponent(self.n_votes, correlation)
        likelihood = exponent * self.vote_logs + self.abstention
        likelihood -= likelihood.max(1, keepdims=True)
        posterior = softmax(likelihood + exponent * np.log(self.frequencies), axis=1)
        return self._replace(posterior=posterior, likelihood=likelihood, correlation=correlation)

    def logs_of_votes(self, annotator: Integers, label: Integers) -> Floats:
        """Return what votes of annotators [k] for labels [k] add to the log-likelihoods of their items, [k, c]."""
        logs: Floats = np.log(self.confusions.of(annotator, label))
        is_rule = self.confusions.is_rule[annotator]
        logs[is_rule] = self.rule_vote_logs[annotator[is_rule]]
        return logs


def vote_exponent(n_votes: Floats, correlation: float) -> Floats:
    """Return 1 / (1 + rho n / (n + 0.5) (n - 1)) for numbers of votes [n], and 1 for less than a vote, as a column [n, 1]."""
    correlation_of_n = correlation * n_votes / (n_votes + _FEW_VOTES)
    exponent: Floats = 1 / (1 + correlation_of_n * np.maximum(n_votes - 1, 0))
    return exponent[:, None]


def fit_annotators(votes: Votes, model: Annotators = Annotators(), n_silent: int = 0) -> AnnotatorFit:  # noqa: B008 - frozen
    """Estimate the true labels of all items and the confusion matrices of all annotators.

    The result is deterministic. A round takes time in proportion to votes times classes; memory grows with
    (items + pairs of annotator and label that occur) times classes.

    Parameters
    ----------
    votes
        m votes of a annotators on n items with c labels.
    model
        Settings of the model and of EM.
    n_silent
        Number of further items, on which nobody voted.

    Returns
    -------
    AnnotatorFit
        The posterior [n, c], the log-likelihood of each item's votes [n, c], class frequencies [c] and the confusions.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from oneof.votes import read_long
    >>> rows = {"item": [0, 0, 0, 1, 1, 1], "annotator": ["x", "y", "z"] * 2, "label": ["a", "a", "b", "b", "b", "b"]}
    >>> fit_annotators(read_long(pa.table(rows))).posterior.argmax(1)
    array([0, 1])
    """
    n = len(votes.items)
    data = _prepare(votes, model, n_silent)
    posterior = shares(votes, START_SMOOTHING)
    silent_posterior = posterior.mean(0)
    vote_rates = None
    n_rounds = 0
    converged = False
    while n_rounds < model.rounds and not converged:
        parameters = _maximise(data, model, posterior, silent_posterior, vote_rates)
        expected = _expect(data, parameters)
        moved = np.abs(posterior - expected.posterior).sum() / (2 * n)
        posterior = expected.posterior
        silent_posterior = expected.silent_posterior
        converged = bool(moved <= model.tolerance)
        n_rounds += 1
        if n_rounds == _VOTE_RATE_ROUNDS:
            vote_rates = parameters.confusions.vote_rates
    return AnnotatorFit(
        posterior=posterior,
        likelihood=expected.vote_logs,
        frequencies=parameters.frequencies,
        confusions=parameters.confusions,
        vote_logs=expected.vote_logs,
        n_votes=data.by_annotator @ data.rules.is_counted.astype(np.float64),
        correlation=model.correlation,
        abstention=expected.abstention,
        silent_posterior=silent_posterior,
        rule_vote_logs=expected.rule_vote_logs,
        is_counted=data.rules.is_counted,
        rounds=n_rounds,
        converged=converged,
    ).with_correlation(model.correlation)


class _VoteData(NamedTuple):
    """Votes as EM reads them."""

    by_pair: Any  # [n, q] sparse weights of the votes, by item and pair of annotator and label
    by_annotator: Any  # [n, a] the same by item and annotator
    pair: Integers  # [q] annotator * c + label, ascending
    label_counts: Floats  # [a, c] weight of an annotator's votes for each label
    rules: _Rules
    n_silent: int


class _Parameters(NamedTuple):
    """Parameters of the model, from an M step."""

    frequencies: Floats  # [c] m_j
    item_frequencies: Floats  # [c] the same, also where the model takes all classes to be equally frequent
    confusions: Confusions


class _Expected(NamedTuple):
    """Probabilities of the true labels, from an E step; the fields are those of `AnnotatorFit`."""

    posterior: Floats
    silent_posterior: Floats
    vote_logs: Floats
    abstention: Floats
    rule_vote_logs: Floats


def _prepare(votes: Votes, model: Annotators, n_silent: int) -> _VoteData:
    """Return the votes as EM reads them; raise ValueError if its tables do not fit in memory."""
    n = len(votes.items)
    a = len(votes.annotators)
    c = len(votes.labels)
    by_pair, by_annotator, pair = vote_matrices(votes)
    check_table_memory(votes, 8 * c * (4 * n + 2 * len(pair) + 7 * a))
    label_counts = np.zeros((a, c))
    np.add.at(label_counts, (votes.annotator, votes.label), votes.share)
    rules = _find_rules(label_counts, by_annotator, model, n_silent)
    return _VoteData(by_pair, by_annotator, pair, label_counts, rules, n_silent)


def _maximise(
    data: _VoteData, model: Annotators, posterior: Floats, silent_posterior: Floats, vote_rates: Floats | None
) -> _Parameters:
    """Return the parameters that the true labels imply: the M step. Vote rates of rules are estimated too unless they are given."""
    n, c = posterior.shape
    pair_counts = data.by_pair.T @ posterior
    true_counts = data.by_annotator.T @ posterior
    item_counts = posterior.sum(0) + data.n_silent * silent_posterior
    item_frequencies = (item_counts + 1) / (n + data.n_silent + c)
    frequencies = item_frequencies
    if model.is_coin:
        frequencies = np.full(c, 1 / c)
    if vote_rates is None:
        vote_rates = _vote_rates(data.label_counts, data.rules.is_rule, true_counts, item_counts)
    confusions = Confusions(
        strength=model.shape_strength,
        pair=data.pair,
        pair_counts=pair_counts,
        true_counts=true_counts,
        shape=_shape(model, data.pair, data.label_counts, pair_counts, true_counts),
        is_rule=data.rules.is_rule,
        vote_rates=vote_rates,
    )
    return _Parameters(frequencies, item_frequencies, confusions)


def _expect(data: _VoteData, parameters: _Parameters) -> _Expected:
    """Return the probabilities of the true labels under these parameters: the E step."""
    rule_vote_logs, abstention = data.rules.logs(parameters.confusions.vote_rates)
    vote_logs = _log_likelihood(data.by_pair, parameters.confusions, rule_vote_logs)
    posterior = softmax(vote_logs + abstention + np.log(parameters.frequencies), axis=1)
    silent_posterior = softmax(abstention + np.log(parameters.item_frequencies))
    return _Expected(posterior, silent_posterior, vote_logs, abstention, rule_vote_logs)


class Mistake(NamedTuple):
    """A true label that annotators take for another."""

    truth: str
    said: str
    votes: float  # expected number under the posterior
    share: float  # of all votes on items of this true label


def mistakes(votes: Votes, posterior: Floats, most: int = 5) -> list[Mistake]:
    """Return the most frequent confusions of one label with another, most votes first.

    Parameters
    ----------
    votes
        m votes on n items with c labels.
    posterior
        Probabilities [n, c] of the true labels.
    most
        Maximum number of confusions. Those with less than half a vote are left out.
    """
    by_label = csr_array((votes.share, (votes.label, votes.item)), shape=(len(votes.labels), len(votes.items)))
    counts = np.asarray(by_label @ posterior).T  # [true, given]
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1e-12)
    wrong_counts = counts.copy()
    np.fill_diagonal(wrong_counts, 0.0)
    top_confusions = []
    for cell in np.argsort(-wrong_counts, axis=None, kind="stable")[:most]:
        true, answered = np.unravel_index(cell, wrong_counts.shape)
        if wrong_counts[true, answered] < 0.5:
            break  # the rest have still fewer votes
        n_votes = float(wrong_counts[true, answered])
        top_confusions.append(
            Mistake(votes.labels[true], votes.labels[answered], n_votes, float(share[true, answered]))
        )
    return top_confusions


class _Rules(NamedTuple):
    """The annotators who only ever give one label."""

    is_rule: NDArray[np.bool_]  # [a]
    abstention_is_evidence: bool  # else their abstention is ignored

    @property
    def is_counted(self) -> NDArray[np.bool_]:
        """Return whose votes are counted in n_i [a]: not those of rules, whose errors are their own."""
        if not self.abstention_is_evidence:
            return np.ones_like(self.is_rule)
        return ~self.is_rule

    def logs(self, vote_rates: Floats) -> tuple[Floats, Floats]:
        """Return the logs by which their votes count [a, c], and those of their abstention on an item [c], from f_a(j) [a, c]."""
        rule_vote_logs = np.log(vote_rates)
        if not self.abstention_is_evidence:
            return rule_vote_logs, np.zeros(vote_rates.shape[1])
        abstention_logs = np.log1p(-vote_rates)
        return rule_vote_logs - abstention_logs, abstention_logs[self.is_rule].sum(0)


def _find_rules(label_counts: Floats, by_annotator: Any, model: Annotators, n_silent: int) -> _Rules:
    """Find the annotators who only ever give one label, from the weights of their votes by label [a, c] and by item [n, a]."""
    is_rule = np.logical_and((label_counts > 0).sum(1) == 1, model.has_own_confusions)
    share_of_votes = label_counts[is_rule].sum() / label_counts.sum()
    cast_most_votes = share_of_votes > 0.5 + _ROUNDING  # else they are people who voted little
    abstention_is_evidence = cast_most_votes and _is_abstention_informative(by_annotator, is_rule, n_silent)
    return _Rules(is_rule, bool(abstention_is_evidence))


def _is_abstention_informative(by_annotator: Any, is_rule: NDArray[np.bool_], n_silent: int) -> bool:
    """Return whether annotators of one label could vote on every item, as rules can, from the weights of votes by item and annotator [n, a].

    Where items were assigned to annotators, as to people, the number of votes on an item varies less than if everybody voted independently.
    A file that lists no item without votes lacks those on which everybody abstained. The number varies less for that too, by as much as is known.
    """
    n_items = by_annotator.shape[0] + n_silent
    if _is_dispersed(by_annotator[:, np.flatnonzero(is_rule)], n_items, _MIN_DISPERSION):
        return True
    if n_silent > 0:
        return False
    mean_count = float((by_annotator > 0).sum() / n_items)
    return _is_dispersed(by_annotator, n_items, _MIN_DISPERSION * _dispersion_without_zeros(mean_count))


def _is_dispersed(by_annotator: Any, n_items: int, least: float) -> bool:
    """Return whether the number of annotators [n, a] who vote on an item has at least this variance, relative to independent annotators."""
    is_vote = by_annotator > 0
    count = np.asarray(is_vote.sum(1)).ravel()
    rate = np.asarray(is_vote.sum(0)).ravel() / n_items
    variance = (count**2).sum() / n_items - (count.sum() / n_items) ** 2
    independent = (rate * (1 - rate)).sum()
    return bool(independent > 0 and variance >= least * independent)


def _dispersion_without_zeros(mean: float) -> float:
    r"""Return variance / mean of a Poisson count that is known to be positive, from its mean.

    With the rate r of the count, the mean is r / (1 - exp(-r)), and variance / mean is 1 + r - mean.
    """
    if mean <= _MIN_MEAN_COUNT:
        return 1.0
    rate = brentq(lambda rate: rate / -np.expm1(-rate) - mean, 1e-6, mean)
    return float(1 + rate - mean)


def _vote_rates(label_counts: Floats, is_rule: NDArray[np.bool_], true_counts: Floats, item_counts: Floats) -> Floats:
    """Return the vote rates f_a(j) [a, c] of rules: one for the rule's label, a lower one for all others."""
    is_own = label_counts > 0
    n_own = is_own @ item_counts  # [a] expected items of the rule's label
    n_other = item_counts.sum() - n_own
    own_votes = np.where(is_own, true_counts, 0.0).sum(1)
    other_votes = np.where(is_own, 0.0, true_counts).sum(1)
    pooled_own = own_votes[is_rule].sum() / max(n_own[is_rule].sum(), _EPS)
    pooled_other = other_votes[is_rule].sum() / max(n_other[is_rule].sum(), _EPS)
    own = (own_votes + _RULE_PRIOR * pooled_own) / (n_own + _RULE_PRIOR)
    other = (other_votes + _RULE_PRIOR * pooled_other) / (n_other + _RULE_PRIOR)
    own = np.maximum(own, other)
    rates: Floats = np.clip(np.where(is_own, own[:, None], other[:, None]), 1e-6, 1 - _EPS)
    return rates


def estimate_confusions(a: int, pair: Integers, pair_counts: Floats, model: Annotators) -> Confusions:
    """Estimate the confusions of a annotators from how many votes each pair (annotator, label) [q] has under each true label, [q, c]."""
    c = pair_counts.shape[1]
    annotator, label = np.divmod(pair, c)
    true_counts = np.zeros((a, c))
    np.add.at(true_counts, annotator, pair_counts)
    label_counts = np.zeros((a, c))
    label_counts[annotator, label] = pair_counts.sum(1)
    return Confusions(
        strength=model.shape_strength,
        pair=pair,
        pair_counts=pair_counts,
        true_counts=true_counts,
        shape=_shape(model, pair, label_counts, pair_counts, true_counts),
        is_rule=np.zeros(a, dtype=bool),
        vote_rates=np.full((a, c), 0.5),
    )


def _shape(model: Annotators, pair: Integers, label_counts: Floats, pair_counts: Floats, true_counts: Floats) -> Shape:
    """Return the shape of the model, from expected votes."""
    if model.shared:
        return _shared_shape(pair, pair_counts, true_counts)
    if model.is_coin:
        return _coin_shape(pair, pair_counts, true_counts, model.pooled)
    return _fit_shape(pair, label_counts, pair_counts, true_counts)


def _shared_shape(pair: Integers, pair_counts: Floats, true_counts: Floats) -> Shape:
    """Return the confusions of all annotators together, shrunk to wrong labels that are given whatever the truth."""
    a, c = true_counts.shape
    counts = np.zeros((c, c))  # [given, true]
    np.add.at(counts, pair % c, pair_counts)
    accuracy = _clip((np.diag(counts) + 1) / (counts.sum(0) + 2))
    wrong = counts.T  # [true, given]
    np.fill_diagonal(wrong, 0.0)
    whatever_truth = np.tile(wrong.sum(0) + 1, (c, 1))
    np.fill_diagonal(whatever_truth, 0.0)
    whatever_truth /= np.maximum(whatever_truth.sum(1, keepdims=True), _EPS)
    errors = wrong + whatever_truth
    errors /= np.maximum(errors.sum(1, keepdims=True), _EPS)
    return Shape(np.tile(accuracy, (a, 1)), np.full((a, c), 1 / c), errors)


def _coin_shape(pair: Integers, pair_counts: Floats, true_counts: Floats, pooled: bool) -> Shape:
    """Return an accuracy for every annotator, or the same for all, and equally frequent wrong labels."""
    a, c = true_counts.shape
    annotator, label = np.divmod(pair, c)
    correct = pair_counts[np.arange(len(pair)), label]
    pooled_accuracy = correct.sum() / max(true_counts.sum(), _EPS)
    accuracy = np.full(a, pooled_accuracy)
    if not pooled:
        correct_by_annotator = np.bincount(annotator, weights=correct, minlength=a)
        accuracy = _shrink_accuracy(correct_by_annotator, true_counts, pooled_accuracy)
    clipped = np.maximum(_clip(accuracy), 1 / c)
    return Shape(np.repeat(clipped[:, None], c, axis=1), np.full((a, c), 1 / c))


def _shrink_accuracy(correct: NDArray[Any], true_counts: Floats, pooled: float) -> Floats:
    """Return the accuracy of each annotator [a], shrunk to the pooled one."""
    shrunk: Floats = (correct + _ANNOTATOR_PRIOR * pooled) / (true_counts.sum(1) + _ANNOTATOR_PRIOR)
    return shrunk


def _fit_shape(pair: Integers, label_counts: Floats, pair_counts: Floats, true_counts: Floats) -> Shape:
    """Return the accuracies r_aj and the distributions of wrong labels u_al."""
    a, c = true_counts.shape
    annotator, label = np.divmod(pair, c)
    correct = pair_counts[np.arange(len(label)), label]  # [q] expected votes for the true label
    wrong = label_counts.copy()  # [a, c] expected votes for another than the true label
    wrong[annotator, label] -= correct

    correct_by_label = np.bincount(label, weights=correct, minlength=c)
    correct_by_annotator = np.bincount(annotator, weights=correct, minlength=a)
    pooled = _clip(correct_by_label.sum() / max(true_counts.sum(), _EPS))
    label_accuracy = (correct_by_label + c * pooled) / (true_counts.sum(0) + c)
    annotator_accuracy = _shrink_accuracy(correct_by_annotator, true_counts, pooled)
    label_odds = _odds(_clip(label_accuracy))
    odds_ratio = _odds(_clip(annotator_accuracy)) / _odds(pooled)
    odds = label_odds * odds_ratio[:, None]

    pooled_error_labels = (wrong.sum(0) + 1) / (wrong.sum() + c)  # [c]
    error_labels = (wrong + c * pooled_error_labels) / (wrong.sum(1, keepdims=True) + c)
    return Shape(odds / (1 + odds), error_labels)


def _shrunk_probabilities(confusions: Confusions, annotator: Integers, label: Integers, counts: Floats) -> Floats:
    """Return pi_a(j -> l) of k pairs (a, l) with their counts [k, c], for every true label j, [k, c]."""
    shape = confusions.shape.of(annotator, label)
    shrunk: Floats = shape
    if np.isfinite(confusions.strength):
        shrunk = (counts + confusions.strength * shape) / (confusions.true_counts[annotator] + confusions.strength)
    is_rule = confusions.is_rule[annotator] & (counts.sum(1) > 0)  # a held-out vote may be for another label
    shrunk[is_rule] = confusions.vote_rates[annotator[is_rule]]
    return shrunk


def _log_likelihood(by_pair: Any, confusions: Confusions, rule_vote_logs: Floats) -> Floats:
    """Return the log-likelihood of every item's votes under each true label, [n, c]."""
    log_probabilities = np.empty_like(confusions.pair_counts)  # [q, c]
    n_pairs, c = log_probabilities.shape
    step = max(1, _BLOCK_SIZE // c)
    for start in range(0, n_pairs, step):
        block = slice(start, start + step)
        annotator, label = np.divmod(confusions.pair[block], c)
        probabilities = _shrunk_probabilities(confusions, annotator, label, confusions.pair_counts[block])
        logs = np.log(probabilities, out=log_probabilities[block])
        is_rule = confusions.is_rule[annotator]
        logs[is_rule] = rule_vote_logs[annotator[is_rule]]
    log_likelihood: Floats = by_pair @ log_probabilities
    return log_likelihood


def _clip(rate: Any) -> Any:
    return np.clip(rate, _EPS, 1 - _EPS)


def _odds(rate: Any) -> Any:
    return rate / (1 - rate)
