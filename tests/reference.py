"""Every formula once more, slow and obvious: float64, loops over rows i and labels j, written from the papers alone.

logits z [b, c] float64, candidate sets S [b, c] bool, remembered weights w [b, c]. A loss is [b], a memory is [b, c].
Logs and ratios of exponentials subtract the largest logit first, so that no result overflows or divides zero by zero.
"""

import math
from itertools import product

import numpy as np
from scipy.special import digamma

Array = np.ndarray


def log_sum_exp(values: list[float]) -> float:
    top = max(values)
    return top + math.log(sum(math.exp(value - top) for value in values))


def softmax(z: Array) -> Array:
    """Softmax of one row [c]."""
    top = max(z)
    total = sum(math.exp(value - top) for value in z)
    return np.array([math.exp(value - top) / total for value in z])


def log_softmax(z: Array) -> Array:
    """Logarithm of the softmax of one row [c]."""
    return np.array([value - log_sum_exp(list(z)) for value in z])


def log_one_minus_softmax(z: Array, j: int) -> float:
    """log(1 - p_j) of one row [c]."""
    return log_sum_exp([z[k] for k in range(len(z)) if k != j]) - log_sum_exp(list(z))


def sigmoid(u: float) -> float:
    return 1 / (1 + math.exp(-u)) if u >= 0 else math.exp(u) / (1 + math.exp(u))


def dot(u: Array, v: Array) -> float:
    return sum(u[k] * v[k] for k in range(len(u)))


def members(S_i: Array) -> list[int]:
    return [j for j in range(len(S_i)) if S_i[j]]


def best(scores: Array, labels: list[int]) -> int:
    """The label of the highest score, the lowest index among equals."""
    winner = labels[0]
    for j in labels:
        if scores[j] > scores[winner]:
            winner = j
    return winner


# Candidate sets. A row without members gives zeros: the outside of a full set is such a row.
def uniform(S: Array) -> Array:
    out = np.zeros(S.shape)
    for i in range(len(S)):
        for j in members(S[i]):
            out[i, j] = 1 / len(members(S[i]))
    return out


def restrict(w: Array, S: Array) -> Array:
    """w on S, normalised; uniform over S where w has nothing on S."""
    out = uniform(S)
    for i in range(len(S)):
        total = sum(w[i, j] for j in members(S[i]))
        for j in members(S[i]):
            if total > 0:
                out[i, j] = w[i, j] / total
    return out


def posterior(z: Array, S: Array) -> Array:
    """p_j / sum_{k in S} p_k on S, zero elsewhere."""
    out = np.zeros(S.shape)
    for i in range(len(S)):
        inside = members(S[i])
        for j in inside:
            out[i, j] = math.exp(z[i, j] - log_sum_exp([z[i, k] for k in inside]))
    return out


# PRODEN, RC and CAVL share this loss; they differ in when and how w is renewed.
def proden_loss(z: Array, S: Array, w: Array) -> Array:
    """- sum_{j in S} w_j log p_j, with w restricted to S."""
    weights = restrict(w, S)
    out = np.zeros(len(z))
    for i in range(len(z)):
        log_p = log_softmax(z[i])
        for j in members(S[i]):
            out[i] -= weights[i, j] * log_p[j]
    return out


rc_loss = cavl_loss = proden_loss
proden_update = rc_update = posterior


def balanced_proden_renew(w: Array, b: float) -> Array:
    """w_ij / m_j^b, normalised; m_j the mean of w_ij over all rows, and not below 1e-4."""
    out = np.zeros(w.shape)
    means = [max(sum(w[i, j] for i in range(len(w))) / len(w), 1e-4) for j in range(w.shape[1])]
    for i in range(len(w)):
        shares = [w[i, j] / means[j] ** b for j in range(w.shape[1])]
        for j in range(w.shape[1]):
            out[i, j] = shares[j] / sum(shares)
    return out


def cc_loss(z: Array, S: Array) -> Array:
    """- log sum_{j in S} p_j."""
    out = np.zeros(len(z))
    for i in range(len(z)):
        out[i] = log_sum_exp(list(z[i])) - log_sum_exp([z[i, j] for j in members(S[i])])
    return out


def lws_init(S: Array) -> Array:
    return np.full(S.shape, 1 / S.shape[1])


def lws_loss(z: Array, S: Array, w: Array, beta: float) -> Array:
    """sum_{j in S} w_j psi(z_j) + beta sum_{j not in S} w_j psi(-z_j), psi(u) = 1 / (1 + e^u)."""
    inside, outside = restrict(w, S), restrict(w, ~S)
    out = np.zeros(len(z))
    for i in range(len(z)):
        for j in range(z.shape[1]):
            if S[i, j]:
                out[i] += inside[i, j] * sigmoid(-z[i, j])
            else:
                out[i] += beta * outside[i, j] * sigmoid(z[i, j])
    return out


def lws_ce_loss(z: Array, S: Array, w: Array, beta: float) -> Array:
    """- sum_{j in S} w_j log p_j - beta sum_{j not in S} w_j log(1 - p_j)."""
    inside, outside = restrict(w, S), restrict(w, ~S)
    out = np.zeros(len(z))
    for i in range(len(z)):
        for j in range(z.shape[1]):
            if S[i, j]:
                out[i] -= inside[i, j] * log_softmax(z[i])[j]
            else:
                out[i] -= beta * outside[i, j] * log_one_minus_softmax(z[i], j)
    return out


def lws_update(z: Array, S: Array) -> Array:
    """p normalised inside S and, separately, outside S."""
    return posterior(z, S) + posterior(z, ~S)


def cavl_update(z: Array, S: Array) -> Array:
    """One-hot at argmax_{j in S} z_j |1 - z_j|."""
    out = np.zeros(S.shape)
    for i in range(len(z)):
        values = np.array([z[i, j] * abs(1 - z[i, j]) for j in range(z.shape[1])])
        out[i, best(values, members(S[i]))] = 1
    return out


def squared_hinge(u: float) -> float:
    return max(0.0, 1 - u) ** 2


def clpl_loss(z: Array, S: Array) -> Array:
    """phi(mean_{j in S} z_j) + sum_{j not in S} phi(-z_j), phi(u) = max(0, 1 - u)^2."""
    out = np.zeros(len(z))
    for i in range(len(z)):
        inside = members(S[i])
        out[i] = squared_hinge(sum(z[i, j] for j in inside) / len(inside))
        for j in members(~S[i]):
            out[i] += squared_hinge(-z[i, j])
    return out


def clpl_softmax_loss(z: Array, S: Array) -> Array:
    return clpl_loss(np.array([softmax(row) for row in z]), S)


def rcr_loss(views: list[Array], S: Array, w: Array, lam: float) -> Array:
    """- sum_{j not in S} log(1 - p_j(x_0)) + lam sum_k KL(w || p(x_k)), with w restricted to S and 0 log 0 = 0."""
    weights = restrict(w, S)
    out = np.zeros(len(S))
    for i in range(len(S)):
        for j in members(~S[i]):
            out[i] -= log_one_minus_softmax(views[0][i], j)
        for z in views:
            for j in members(S[i]):
                if weights[i, j] > 0:
                    out[i] += lam * weights[i, j] * (math.log(weights[i, j]) - log_softmax(z[i])[j])
    return out


def rcr_update(views: list[Array], S: Array) -> Array:
    """w_j proportional on S to the geometric mean of p_j over the views."""
    log_mean = np.zeros(S.shape)
    for i in range(len(S)):
        for j in range(S.shape[1]):
            log_mean[i, j] = sum(log_softmax(z[i])[j] for z in views) / len(views)
    return posterior(log_mean, S)


# PiCO. Embeddings q, k [b, e], prototypes mu [c, e]; the pool of anchors [m, e] is q, then k, then the queue.
def pico_prototypes(mu: Array, q: Array, yhat: Array, momentum: float = 0.99) -> Array:
    """mu_yhat <- momentum mu_yhat + (1 - momentum) q, one sample after the other; rows of length one at the end."""
    out = np.array(mu, dtype=np.float64)
    for i in range(len(q)):
        out[yhat[i]] = momentum * out[yhat[i]] + (1 - momentum) * q[i]
    for j in range(len(out)):
        length = math.sqrt(dot(out[j], out[j]))
        if length > 0:  # a class that no sample has reached has no direction yet
            out[j] = out[j] / length
    return out


def pico_weights(w: Array, q: Array, mu: Array, S: Array, phi: float) -> Array:
    """phi w + (1 - phi) onehot(argmax_{j in S} q . mu_j)."""
    out = phi * w
    for i in range(len(q)):
        scores = np.array([dot(q[i], mu[j]) for j in range(len(mu))])
        out[i, best(scores, members(S[i]))] += 1 - phi
    return out


def supcon_loss(q: Array, anchors: Array, yhat_q: Array, yhat_anchor: Array, T: float = 0.07) -> Array:
    """Mean of - log softmax(q . a / T) over anchors a of the same label; anchor i is q_i and takes no part in row i."""
    out = np.zeros(len(q))
    for i in range(len(q)):
        others = [a for a in range(len(anchors)) if a != i]
        positives = [a for a in others if yhat_anchor[a] == yhat_q[i]]
        total = log_sum_exp([dot(q[i], anchors[a]) / T for a in others])
        for a in positives:
            out[i] += (total - dot(q[i], anchors[a]) / T) / len(positives)
    return out


def info_nce(q: Array, k: Array, queue: Array, T: float = 0.07) -> Array:
    """- log of the softmax share of q_i . k_i among itself and q_i . queue."""
    out = np.zeros(len(q))
    for i in range(len(q)):
        positive = dot(q[i], k[i]) / T
        out[i] = log_sum_exp([positive] + [dot(q[i], negative) / T for negative in queue]) - positive
    return out


def valen_concentration(a: Array, S: Array, floor: float = 1e-2) -> Array:
    """Softmax(a) masked to S and normalised, plus the floor on every label."""
    return posterior(a, S) + floor


def dirichlet_kl_to_uniform(alpha: Array) -> Array:
    """KL(Dir(alpha) || Dir(1, ..., 1)) [b]."""
    out = np.zeros(len(alpha))
    for i in range(len(alpha)):
        total = sum(alpha[i])
        out[i] = math.lgamma(total) - math.lgamma(len(alpha[i]))
        for value in alpha[i]:
            out[i] += (value - 1) * (digamma(value) - digamma(total)) - math.lgamma(value)
    return out


def valen_graph_term(d: Array, A: Array) -> float:
    """Mean squared error of rowsoftmax(sigmoid(d d^T)) [b, b] against A [b, b]."""
    rebuilt = np.zeros(A.shape)
    for i in range(len(d)):
        rebuilt[i] = softmax(np.array([sigmoid(dot(d[i], d[k])) for k in range(len(d))]))
    return mse(rebuilt, A)


def mse(xhat: Array, x: Array) -> float:
    """Mean squared error over all entries."""
    left, right = xhat.flatten(), x.flatten()
    return sum((left[k] - right[k]) ** 2 for k in range(len(left))) / len(left)


def bce_with_logits(d: Array, S: Array) -> float:
    """Mean over all entries of - log sigmoid(d) on S and - log(1 - sigmoid(d)) off S."""
    total = 0.0
    for i in range(len(d)):
        for j in range(d.shape[1]):
            signed = d[i, j] if S[i, j] else -d[i, j]
            total += log_sum_exp([0.0, -signed])
    return total / d.size


def pop_margin_remove(q: Array, S: Array, e: float) -> Array:
    """Algorithm 1: j leaves S when q_m - q_j >= e, m the best candidate; q is the window mean of the whole softmax."""
    out = np.array(S)
    for i in range(len(S)):
        m = best(q[i], members(S[i]))
        for j in members(S[i]):
            if j != m and q[i, m] - q[i, j] >= e:
                out[i, j] = False
    return out


def pop_ratio_remove(q: Array, S: Array, theta: float) -> Array:
    """Released rule: j leaves S when q_j / max_{k in S} q_k < theta; q is the window mean of posteriors on S."""
    out = np.array(S)
    for i in range(len(S)):
        m = best(q[i], members(S[i]))
        for j in members(S[i]):
            if j != m and q[i, j] / q[i, m] < theta:
                out[i, j] = False
    return out


def pop_margin_schedule(e: float, removed: int, e_end: float, e_s: float, every_round: bool) -> float:
    """e falls by e_s, to e_end at the lowest, after a round that removed nothing (or after every round)."""
    if e > e_end and (removed == 0 or every_round):
        return max(e - e_s, e_end)
    return e


def pop_ratio_schedule(
    theta: float,
    removed: int,
    n: int,
    c: int,
    quiet: float = 1e-4,
    inc: float = 1e-3,
    theta_end: float = 0.4,
    every_round: bool = False,
) -> float:
    """theta grows by the factor 1 + inc while below theta_end, after a quiet round (or after every round)."""
    if theta < theta_end and (removed < quiet * n * c or every_round):
        return theta * (1 + inc)
    return theta


def covering_rate(z: Array, S: Array) -> float:
    """Share of rows whose argmax over all labels lies in S."""
    return sum(bool(S[i, best(z[i], list(range(z.shape[1])))]) for i in range(len(z))) / len(z)


def approximated_accuracy(z: Array, S: Array) -> float:
    """Mean of the posterior on S at the argmax over all labels."""
    weights = posterior(z, S)
    return sum(weights[i, best(z[i], list(range(z.shape[1])))] for i in range(len(z))) / len(z)


# Generation. y [b] are the true labels; the softmax's denominator cancels, so wrong labels are taken over the top wrong one.
def xi_paper(logits: Array, y: Array) -> Array:
    """xi_j = g_j / max_{k != y} g_k, xi_y = 1."""
    out = np.ones(logits.shape)
    for i in range(len(logits)):
        wrong = [j for j in range(logits.shape[1]) if j != y[i]]
        for j in wrong:
            out[i, j] = math.exp(logits[i, j] - max(logits[i, k] for k in wrong))
    return out


def xi_rate(logits: Array, y: Array, rate: float) -> Array:
    """xi_j = min(1, rate s_j / mean(s)), s the paper's xi with s_y = 0, the mean over all c labels; xi_y = 1."""
    out = np.ones(logits.shape)
    paper = xi_paper(logits, y)
    for i in range(len(logits)):
        wrong = [j for j in range(logits.shape[1]) if j != y[i]]
        mean = sum(paper[i, j] for j in wrong) / logits.shape[1]
        for j in wrong:
            out[i, j] = min(1.0, rate * paper[i, j] / mean)
    return out


# The laws of the generators: for a row of true label y, the probability of every set, as a tuple of booleans.
Law = dict[tuple[bool, ...], float]


def all_sets(c: int, y: int) -> list[tuple[bool, ...]]:
    """Every set of labels that holds y."""
    return [members for members in product((False, True), repeat=c) if members[y]]


def independent_law(xi: list[float], y: int) -> Law:
    """P(S) = prod_{j != y} xi_j if j in S, else 1 - xi_j."""
    law = {}
    for members in all_sets(len(xi), y):
        law[members] = 1.0
        for j in range(len(xi)):
            if j != y:
                law[members] *= xi[j] if members[j] else 1 - xi[j]
    return law


def topped_up_law(law: Law, y: int) -> Law:
    """The set {y} gets one more label, each with the same probability."""
    c = len(next(iter(law)))
    result = dict(law)
    single = tuple(j == y for j in range(c))
    alone = result.pop(single)
    for j in range(c):
        if j != y:
            result[tuple(k in (j, y) for k in range(c))] += alone / (c - 1)
    return result


def law_by_size(c: int, y: int, p_of_size: list[float]) -> Law:
    """P(S) = P(|S|) over the number of sets of that size that hold y; p_of_size[k - 1] is proportional to P(k)."""
    law = {}
    for members in all_sets(c, y):
        k = sum(members)
        if k < c:
            law[members] = p_of_size[k - 1] / sum(p_of_size) / math.comb(c - 1, k - 1)
    return law
