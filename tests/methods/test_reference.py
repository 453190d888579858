"""The reference against numbers worked out by hand, so that it is not itself taken on faith.

Most rows are z = ln(1, 2, 5), whose softmax is p = (1/8, 2/8, 5/8); weights (1, 3, 4) restricted to {0, 1} are (1/4, 3/4).
"""

import math
from math import log

import numpy as np
import reference as ref

Z = np.log([[1.0, 2.0, 5.0]])
W = np.array([[1.0, 3.0, 4.0]])


def sets(*rows: str) -> np.ndarray:
    """Masks from text: "110" holds labels 0 and 1."""
    return np.array([[mark == "1" for mark in row] for row in rows])


def near(value: object, expected: object) -> None:
    np.testing.assert_allclose(value, expected, rtol=0, atol=1e-12)


def test_softmax_and_its_log() -> None:
    near(ref.softmax(Z[0]), [1 / 8, 2 / 8, 5 / 8])
    near(ref.log_softmax(Z[0]), [-log(8), -log(4), log(5 / 8)])
    near(ref.log_one_minus_softmax(Z[0], 2), log(3 / 8))
    near(ref.softmax(np.array([800.0, -800.0])), [1, 0])
    near(ref.log_softmax(np.array([800.0, -800.0])), [0, -1600])


def test_candidate_sets() -> None:
    near(ref.uniform(sets("110", "001")), [[1 / 2, 1 / 2, 0], [0, 0, 1]])
    near(ref.restrict(W, sets("110")), [[1 / 4, 3 / 4, 0]])
    near(ref.restrict(W / 8, sets("110")), [[1 / 4, 3 / 4, 0]])
    near(ref.restrict(np.array([[0.0, 0.0, 1.0]]), sets("110")), [[1 / 2, 1 / 2, 0]])  # no weight left on S
    near(ref.posterior(Z, sets("110")), [[1 / 3, 2 / 3, 0]])
    # p underflows to zero on both candidates, their ratio e^-1 does not: 1 / (1 + e^-1)
    share = 1 / (1 + math.exp(-1))
    near(ref.posterior(np.array([[-1000.0, -1001.0, 0.0]]), sets("110")), [[share, 1 - share, 0]])


def test_proden_rc_and_cc() -> None:
    # 1/4 ln 8 + 3/4 ln 4 = 3/4 ln 2 + 6/4 ln 2
    near(ref.proden_loss(Z, sets("110"), W), [9 / 4 * log(2)])
    # a singleton is cross-entropy whatever is remembered: ln 4 at label 1, also with no weight there
    near(ref.proden_loss(Z, sets("010"), W), [log(4)])
    near(ref.proden_loss(Z, sets("010"), np.array([[1.0, 0.0, 0.0]])), [log(4)])
    near(ref.proden_update(Z, sets("011")), [[0, 2 / 7, 5 / 7]])
    near(ref.cc_loss(Z, sets("110")), [-log(3 / 8)])
    near(ref.cc_loss(Z, sets("010")), [log(4)])
    near(ref.cc_loss(Z, sets("111")), [0])


def test_balanced_proden() -> None:
    # means (1/2, 1/2, 0): at b = 1 rows are divided by the same number, and the third label, never seen, stays at zero
    near(ref.balanced_proden_renew(np.array([[1.0, 0, 0], [0, 1.0, 0]]), 1.0), [[1, 0, 0], [0, 1, 0]])
    # means (3/4, 1/4): (1/2) / (3/4) to (1/2) / (1/4) is 1 to 3; at b = 1/2 it is 1 to the root of 3
    w = np.array([[1 / 2, 1 / 2], [1.0, 0.0]])
    near(ref.balanced_proden_renew(w, 1.0), [[1 / 4, 3 / 4], [1, 0]])
    near(ref.balanced_proden_renew(w, 0.5)[0, 1], 3**0.5 / (1 + 3**0.5))
    near(ref.balanced_proden_renew(w, 0.0), w)


def test_lws() -> None:
    near(ref.lws_init(sets("110")), [[1 / 3, 1 / 3, 1 / 3]])
    # psi(z) = 1 / (1 + e^z) = 1/2, 1/3, 1/6 and psi(-z) = 1/2, 2/3, 5/6
    # S = {0, 1}: 1/4 1/2 + 3/4 1/3 = 3/8 inside, 2 * 5/6 outside
    near(ref.lws_loss(Z, sets("110"), W, 2.0), [3 / 8 + 5 / 3])
    # S = {1}: 1/3 inside; weights (1/5, 4/5) outside give 1/5 1/2 + 4/5 5/6 = 23/30
    near(ref.lws_loss(Z, sets("010"), W, 2.0), [1 / 3 + 2 * 23 / 30])
    # S full: weights (1/8, 3/8, 4/8), no second term: 1/16 + 1/8 + 1/12
    near(ref.lws_loss(Z, sets("111"), W, 2.0), [13 / 48])
    near(ref.lws_ce_loss(Z, sets("010"), W, 2.0), [log(4) - 2 * (1 / 5 * log(7 / 8) + 4 / 5 * log(3 / 8))])
    near(ref.lws_update(Z, sets("010")), [[1 / 6, 1, 5 / 6]])
    near(ref.lws_update(Z, sets("111")), [[1 / 8, 2 / 8, 5 / 8]])


def test_cavl_update() -> None:
    # values z |1 - z|: -12, -2, 1/4; both candidates are negative and label 2, at 1/4 or masked to 0, must not win
    near(ref.cavl_update(np.array([[-3.0, -1.0, 0.5]]), sets("110")), [[0, 1, 0]])
    # the value is not monotone: 1 |1 - 1| = 0 loses to 0.5 |1 - 0.5| = 0.25
    near(ref.cavl_update(np.array([[1.0, 0.5, 9.0]]), sets("110")), [[0, 1, 0]])
    # 0 |1 - 0| = 1 |1 - 1|: the lowest index of a tie
    near(ref.cavl_update(np.array([[0.0, 1.0, -1.0]]), sets("111")), [[1, 0, 0]])


def test_clpl() -> None:
    # mean of (1, -1) is 0: phi(0) = 1; phi(-1/2) = (3/2)^2
    near(ref.clpl_loss(np.array([[1.0, -1.0, 0.5]]), sets("110")), [1 + 9 / 4])
    # mean of (3, 1) is 2 and the other score -2: both beyond the margin
    near(ref.clpl_loss(np.array([[3.0, 1.0, -2.0]]), sets("110")), [0])
    # on p: mean 3/16, so (13/16)^2, and (1 + 5/8)^2 = (26/16)^2: 5 * 169/256
    near(ref.clpl_softmax_loss(Z, sets("110")), [845 / 256])


def test_rcr() -> None:
    # p on {0, 1}: (1/8, 2/8), (1/4, 1/4), (1/8, 4/8)
    views = [Z, np.log([[1.0, 1.0, 2.0]]), np.log([[1.0, 4.0, 3.0]])]
    # KL of (1/4, 3/4): 1/4 ln 2 + 3/4 ln 3;  0 + 3/4 ln 3;  1/4 ln 2 + 3/4 ln 3/2;  in sum 9/4 ln 3 - 1/4 ln 2
    near(ref.rcr_loss(views, sets("110"), W, 0.5), [-log(3 / 8) + 0.5 * (9 / 4 * log(3) - 1 / 4 * log(2))])
    # w = (0, 1): KL is - ln p_1: ln 4 + ln 4 + ln 2
    near(ref.rcr_loss(views, sets("110"), np.array([[0.0, 5.0, 1.0]]), 1.0), [-log(3 / 8) + 5 * log(2)])
    # p_1 / p_0 is 2, 1, 4: the cube root of 8 is 2
    near(ref.rcr_update(views, sets("110")), [[1 / 3, 2 / 3, 0]])


def test_pico_prototypes_and_weights() -> None:
    mu = np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    q = np.array([[0.0, 1.0], [1.0, 0.0]])
    # class 0: (1, 0) -> (1/2, 1/2) -> (3/4, 1/4); in the other order it would be (1/2, 1/2)
    near(ref.pico_prototypes(mu, q, np.array([0, 0]), 0.5), [[3 / 10**0.5, 1 / 10**0.5], [0, 1], [0, 0]])
    near(mu, [[1, 0], [0, 2], [0, 0]])
    near(ref.pico_prototypes(mu, q[:1], np.array([0]))[0], np.array([0.99, 0.01]) / (0.9801 + 0.0001) ** 0.5)
    # scores 0.2, 0.6, 0.9, of which the last is no candidate's: 0.8 (1/2, 1/2) + 0.2 (0, 1)
    scores = np.array([[0.2], [0.6], [0.9]])
    near(ref.pico_weights(np.array([[0.5, 0.5, 0.0]]), np.ones((1, 1)), scores, sets("110"), 0.8), [[0.4, 0.6, 0]])


def test_contrastive_losses() -> None:
    # T = 1, similarities 1 (q itself, left out), ln 2, ln 3, ln 5: shares 2/10, 3/10, 5/10, the first two positive
    q, anchors = np.ones((1, 1)), np.array([[1.0], [log(2)], [log(3)], [log(5)]])
    labels = np.array([0, 0, 0, 1])
    near(ref.supcon_loss(q, anchors, np.array([0]), labels, 1.0), [-(log(0.2) + log(0.3)) / 2])
    near(ref.supcon_loss(q, 0.07 * anchors, np.array([1]), labels), [-log(0.5)])
    near(ref.supcon_loss(q, anchors, np.array([7]), labels, 1.0), [0])
    # the second row leaves out the second anchor: e, 3, 5 remain, of which ln 3 and the first anchor (1) are positive
    total = log(math.e + 3 + 5)
    both = ref.supcon_loss(np.ones((2, 1)), anchors, np.array([0, 0]), labels, 1.0)
    near(both[1], total - (1 + log(3)) / 2)
    near(ref.info_nce(q, anchors[1:2], anchors[2:], 1.0), [-log(0.2)])
    near(ref.info_nce(q, 0.07 * anchors[1:2], 0.07 * anchors[2:]), [-log(0.2)])


def test_valen_terms() -> None:
    near(ref.valen_concentration(Z, sets("110")), [[1 / 3 + 0.01, 2 / 3 + 0.01, 0.01]])
    # two labels, density 3x^2: ln 3 + 2 int 3x^2 ln x = ln 3 - 2/3
    # density 6x(1-x): ln 6 + 2 (psi(2) - psi(4)) = ln 6 - 2 (1/2 + 1/3)
    alpha = np.array([[1.0, 1.0], [3.0, 1.0], [2.0, 2.0]])
    near(ref.dirichlet_kl_to_uniform(alpha), [0, log(3) - 2 / 3, log(6) - 5 / 3])
    # three labels, density 6x against 2: E ln 3x = ln 3 + psi(2) - psi(4)
    near(ref.dirichlet_kl_to_uniform(np.array([[2.0, 1.0, 1.0]])), [log(3) - 5 / 6])
    # d d^T = ln 3 on the diagonal, 0 off it; sigmoid 3/4 and 1/2; each entry is off the identity by 1 / (1 + e^(1/4))
    d = np.sqrt(log(3)) * np.eye(2)
    near(ref.valen_graph_term(d, np.eye(2)), (1 / (1 + math.exp(1 / 4))) ** 2)
    near(ref.mse(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 0.0], [0.0, 4.0]])), 13 / 4)
    # - ln 1/2 on S; - ln(1 - 3/4) = 2 ln 2 off S
    near(ref.bce_with_logits(np.array([[0.0, log(3)]]), sets("10")), 3 / 2 * log(2))


def test_pop_margin_rule() -> None:
    q = np.array([[5.0, 2.0, 1.0]]) / 8  # differences to label 0: 3/8 and 4/8
    assert (ref.pop_margin_remove(q, sets("111"), 3 / 8) == sets("100")).all()  # the boundary is removed
    assert (ref.pop_margin_remove(q, sets("111"), 0.4) == sets("110")).all()
    # the best label is no candidate: m = 1, whose difference to label 2 is 1/8
    assert (ref.pop_margin_remove(q, sets("011"), 3 / 8) == sets("011")).all()
    assert (ref.pop_margin_remove(q, sets("011"), 1 / 8) == sets("010")).all()


def test_pop_ratio_rule() -> None:
    q = np.array([[4.0, 2.0, 1.0]]) / 7  # ratios to label 0: 1/2 and 1/4
    assert (ref.pop_ratio_remove(q, sets("111"), 0.25) == sets("111")).all()  # the boundary stays
    assert (ref.pop_ratio_remove(q, sets("111"), 0.4) == sets("110")).all()
    assert (ref.pop_ratio_remove(q, sets("111"), 0.6) == sets("100")).all()
    # q on S = {1, 2} is (2/3, 1/3)
    assert (ref.pop_ratio_remove(np.array([[0.0, 2 / 3, 1 / 3]]), sets("011"), 0.6) == sets("010")).all()


def test_pop_rules_meet_where_the_margin_is_one_minus_theta_of_the_best() -> None:
    q = ref.posterior(2 * np.random.default_rng(0).normal(size=(50, 5)), np.ones((50, 5), dtype=bool))
    full = np.ones((1, 5), dtype=bool)
    kept = [ref.pop_ratio_remove(row[None], full, 0.2) for row in q]
    assert 50 < np.sum(kept) < 250
    for row, expected in zip(q, kept, strict=True):
        assert (ref.pop_margin_remove(row[None], full, 0.8 * max(row)) == expected).all()


def test_pop_schedules() -> None:
    near(ref.pop_margin_schedule(0.95, 0, 0.3, 0.05, False), 0.9)
    assert ref.pop_margin_schedule(0.95, 1, 0.3, 0.05, False) == 0.95
    near(ref.pop_margin_schedule(0.95, 1, 0.3, 0.05, True), 0.9)
    assert ref.pop_margin_schedule(0.32, 0, 0.3, 0.05, False) == 0.3
    assert ref.pop_margin_schedule(0.3, 0, 0.3, 0.05, True) == 0.3
    # quiet on 54,000 rows of 10 classes: fewer than 54 entries
    near(ref.pop_ratio_schedule(0.001, 53, 54_000, 10), 0.001001)
    assert ref.pop_ratio_schedule(0.001, 55, 54_000, 10) == 0.001
    assert ref.pop_ratio_schedule(0.001, 1, 4, 2, quiet=1 / 8) == 0.001  # 1 is not fewer than 1
    near(ref.pop_ratio_schedule(0.001, 55, 54_000, 10, inc=0.5, every_round=True), 0.0015)
    near(ref.pop_ratio_schedule(0.39, 0, 54_000, 10, inc=0.5), 0.585)  # past the end by one step
    assert ref.pop_ratio_schedule(0.4, 0, 54_000, 10, every_round=True) == 0.4


def test_selection_without_truth() -> None:
    # label 2 is predicted in both rows; the first set lacks it, the second gives it 5/7
    logits = np.concatenate([Z, Z])
    assert ref.covering_rate(logits, sets("110", "011")) == 0.5
    near(ref.approximated_accuracy(logits, sets("110", "011")), 5 / 14)


def test_generation() -> None:
    # y = 1: wrong labels 1 and 5 over 5.  y = 2: 1 and 2 over 2
    logits, y = np.concatenate([Z, Z]), np.array([1, 2])
    near(ref.xi_paper(logits, y), [[1 / 5, 1, 1], [1 / 2, 1, 1]])
    # means over three labels, the true one at zero: 0.4 and 0.5; 0.3 / mean = 0.75 and 0.6
    near(ref.xi_rate(logits, y, 0.3), [[0.15, 1, 0.75], [0.3, 0.6, 1]])
    # 0.5 / 0.4 = 1.25 is clipped
    near(ref.xi_rate(logits[:1], y[:1], 0.5), [[0.25, 1, 1]])
    # the softmax of the wrong labels underflows to zero; their shares do not
    near(ref.xi_paper(np.array([[0.0, 2000.0, log(2)]]), np.array([1])), [[1 / 2, 1, 1]])


def test_losses_are_finite_for_extreme_logits() -> None:
    z, S = 800 * np.array([[1.0, -1.0, 0.5], [-1.0, 1.0, -0.5]]), sets("011", "101")
    w = ref.lws_init(S)
    losses = [ref.proden_loss(z, S, w), ref.cc_loss(z, S), ref.lws_loss(z, S, w, 2.0), ref.lws_ce_loss(z, S, w, 2.0)]
    losses += [ref.clpl_softmax_loss(z, S), ref.rcr_loss([z, -z, z], S, w, 1.0), np.array(ref.bce_with_logits(z, S))]
    assert all(np.isfinite(loss).all() for loss in losses)
    # row 0: ln sum_{S} p = 400 - 800
    near(ref.cc_loss(z, S)[0], 400)
