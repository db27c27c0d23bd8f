r"""Ties: equal distributions of a latent in different components, which determine the unmixing better than variances.

Where latent t has one mean and variance in all components of a group g, the likelihood of rows y (N, n) is highest,
responsibilities given, at

    min_W  L(W) = 1/2 Σ_t Σ_g p_g log(w_t' S_tg w_t) - log |det W|,

S_tg the covariance of the rows of the group about their common mean, p_g their share. The quadratic
Q_t = Σ_g p_g S_tg / (w_t' S_tg w_t) majorises the first term in w_t, and its exact minimum, the other rows of W held,
is w_t <- (W Q_t)^-1 e_t / sqrt(w_t' Q_t w_t): L never rises (iterative projection, Ono 2011). If the means of other
latents differ by δ within a tie, an error E_ts of W shows as E_ts δ_s in the mean of latent t. Without ties, means have
no information on W.

Groups are found from the most certain to the least. The difference x of the means and log variances of two groups has
covariance Σ = Σ_0 + D V_t D', of which V_t, the covariance of row t of E, is a block of the inverse Hessian N L''. That
they are equal, rather than different by N(0, 1) each in units of the latent, has the log Bayes factor

    log N(x; 0, Σ) - log N(x; 0, Σ + I).

It is large only where W is known well enough to compare them, and every tie improves W.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from identifiable.algorithms.factorial import FactorialMixture, covariances_of
from identifiable.algorithms.singular import log_sum_exp
from identifiable.arrays import Array
from identifiable.distributions.mixture import Mixture

LEAST_FACTOR = 1.0  # least log Bayes factor, and least fall of a criterion, for a tie
LEAST_CURVATURE = 1e-6  # of the loss
SWEEPS = 10  # of iterative projection, after each round of ties
TRIED = 8  # moves of a component, and joins of groups, that are tried with their own W
NEWTON_STEPS = 4  # at most
EM_SWEEPS = 3  # of iterative projection, in every step of EM
ROUNDS = 3  # of finding groups and EM

Groups = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Tied:
    """A mixture in which some distributions of a latent are equal.

    Attributes
    ----------
    model : the mixture; tied distributions are exactly equal.
    groups : (n, J) the group of each component, for each latent.
    bic : p log N - 2 log p(y), with p = n² + J - 1 and 2 for each group.
    """

    model: FactorialMixture
    groups: Groups
    bic: float

    @property
    def any(self) -> bool:
        """Whether any two components are tied."""
        return bool((self.groups.max(1) + 1 < self.groups.shape[1]).any())

    def moved(self, W: Array, order: Groups) -> "Tied":
        """Return this with the latents of W, in another order, sign and scale, and the components in an order (J,)."""
        gain = W @ np.linalg.inv(self.model.W)
        latent = np.abs(gain).argmax(1)
        size = gain[np.arange(len(W)), latent]
        mixture = self.model
        means, variances = mixture.means[order][:, latent] * size, mixture.variances[order][:, latent] * size**2
        groups = np.stack([pd.factorize(group[order])[0] for group in self.groups[latent]])
        return Tied(FactorialMixture(W, mixture.weights[order], means, variances), groups, self.bic)


def tied(model: FactorialMixture, y: Array, *, max_iter: int, tol: float) -> Tied:
    """Find equal distributions in a mixture fitted to rows y (N, n), and fit the mixture again with these ties.

    The mixture is returned unchanged if ties do not lower the Bayesian information criterion, or leave every latent
    more than J / 2 distributions. Of several hidden variables, each moves a latent that another one, of d states, does
    not move (P3c) and that has J / d distributions at most; fewer ties occur by chance.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> u = rng.integers(2, size=(2000, 2))  # two hidden variables, one for each latent
    >>> z = 4 * u + rng.normal(size=(2000, 2)) * (1 + [0, 1] * u)
    >>> y = z @ np.array([[1, 0.5], [0.3, 1]])
    >>> means = [y[(u == state).all(1)].mean(0) for state in np.ndindex(2, 2)]
    >>> start = FactorialMixture.of(Mixture(np.full(4, 0.25), means, np.ones((4, 2))), np.eye(2))
    >>> start = start.improved(y, max_iter=200, tol=1e-6).model
    >>> tied(start, y, max_iter=200, tol=1e-6).groups
    array([[0, 0, 1, 1],
           [0, 1, 0, 1]])
    """
    J, n = model.means.shape
    best = Tied(model, np.tile(np.arange(J), (n, 1)), model.bic(y))
    free = covariances_of(y, model)
    for _ in range(ROUNDS):
        if len(free.weights) < J:
            break
        rows = model.effective_rows(y)
        groups = groups_of(free, rows, model.W)
        groups = exchanged(free, groups, rows, projected(free, groups, model.W, SWEEPS))
        model = _improved(model.W, groups, y, free, max_iter, tol)
        bic, free = _bic(model, groups, y), covariances_of(y, model)
        if bic >= best.bic - LEAST_FACTOR or len(free.weights) < J or 2 * (groups.max(1).min() + 1) > J:
            break
        best = Tied(model, groups, bic)
    return best


def _improved(W: Array, groups: Groups, y: Array, free: Mixture, max_iter: int, tol: float) -> FactorialMixture:
    """Run EM with ties on rows y (N, n), from the moments of components, until the gain is less than tol."""
    before = -np.inf
    model = maximised(free, groups, W, SWEEPS)
    for _ in range(max_iter):
        joint = model.log_joint(y)
        now = float(log_sum_exp(joint).mean())
        if now - before < tol:
            break
        before = now
        after = covariances_of(y, model)
        if len(after.weights) < len(model.weights):
            break
        model = maximised(after, groups, model.W, EM_SWEEPS)
    return model


def maximised(free: Mixture, groups: Groups, W: Array, sweeps: int) -> FactorialMixture:
    """Return the likeliest mixture with ties, for moments of components."""
    W = projected(free, groups, W, sweeps)
    n, J = groups.shape
    means, variances = np.empty((J, n)), np.empty((J, n))
    for t in range(n):
        mixture = pooled(free, groups[t])
        means[:, t] = (mixture.means @ W[t])[groups[t]]
        variances[:, t] = (mixture.covariances @ W[t] @ W[t])[groups[t]]
    return FactorialMixture(W, free.weights, means, np.maximum(variances, np.finfo(np.float64).tiny))


def pooled(free: Mixture, group: Groups) -> Mixture:
    """Merge components into groups: p_g, means and S_g, the covariance within and between them."""
    member = np.eye(group.max() + 1)[group].T  # (G, J)
    p = member @ free.weights
    share = member * free.weights / p[:, None]
    centres = share @ free.means
    off = free.means - centres[group]
    spread = free.covariances + off[:, :, None] * off[:, None, :]
    return Mixture(p, centres, np.einsum("gj,jab->gab", share, spread))


def loss(free: Mixture, groups: Groups, W: Array) -> float:
    """Return L(W)."""
    return _loss([pooled(free, group) for group in groups], W)


def _loss(mixtures: list[Mixture], W: Array) -> float:
    inside = (mixture.weights @ np.log(mixture.covariances @ w @ w) for w, mixture in zip(W, mixtures, strict=True))
    return float(0.5 * sum(inside) - np.linalg.slogdet(W)[1])


def projected(free: Mixture, groups: Groups, W: Array, sweeps: int) -> Array:
    """Minimise L from W (n, n) by iterative projection, and then, where its curvature is small, by Newton steps."""
    W = W.copy()
    mixtures = [pooled(free, group) for group in groups]
    for _ in range(sweeps):
        for t, mixture in enumerate(mixtures):
            S = mixture.covariances
            Q = np.einsum("g,gab->ab", mixture.weights / (S @ W[t] @ W[t]), S)
            w = np.linalg.solve(W @ Q, np.eye(len(W))[t])
            W[t] = w / np.sqrt(w @ Q @ w)
    now = _loss(mixtures, W)
    for _ in range(NEWTON_STEPS):
        here = [mixture.pushforward(W, np.zeros(len(W))) for mixture in mixtures]
        step = np.linalg.solve(_hessian(here) + LEAST_CURVATURE * np.eye(W.size), _gradient(here).ravel())
        after = W - step.reshape(W.shape) @ W
        if (value := _loss(mixtures, after)) >= now:
            break
        W, now = after, value
    return W


def groups_of(free: Mixture, rows: Array, W: Array) -> Groups:
    """Group the components of a mixture of y, estimated from (J,) rows each, by equal distributions of W y; (n, J)."""
    n, J = len(W), len(rows)
    groups = np.tile(np.arange(J), (n, 1))
    while True:
        moved = free.pushforward(W, np.zeros(n))
        mixtures = [pooled(moved, group) for group in groups]
        V = _errors(mixtures) / rows.sum()
        found = False
        for t in range(n):
            factor = _factors(t, mixtures[t], np.eye(J)[groups[t]].T[: len(mixtures[t].weights)] @ rows, V[t])
            if factor.size > 1 and factor.max() > LEAST_FACTOR:
                a, b = sorted(np.unravel_index(factor.argmax(), factor.shape))
                groups[t][groups[t] == b] = a
                groups[t][groups[t] > b] -= 1
                found = True
        if not found:
            return groups
        W = projected(free, groups, W, SWEEPS)


def exchanged(free: Mixture, groups: Groups, rows: Array, W: Array) -> Groups:
    """Move components to other groups or to new ones, and join groups, as long as 2 N L + 2 G log N falls.

    The changes with the smallest cost at the present W are tried with their own W.
    """

    def criterion(groups: Groups, W: Array) -> float:
        return float(2 * rows.sum() * loss(free, groups, W) + 2 * (groups.max(1) + 1).sum() * np.log(rows.sum()))

    now = criterion(groups, W)
    for _ in range(groups.shape[1]):
        moves = list(_moves(free, groups, rows, W))
        ended = [(moved, projected(free, moved, W, SWEEPS)) for moved in moves]
        values = [criterion(*one) for one in ended]
        if not values or min(values) > now - LEAST_FACTOR:
            break
        now = min(values)
        groups, W = ended[int(np.argmin(values))]
    return groups


def _moves(free: Mixture, groups: Groups, rows: Array, W: Array) -> Iterator[Groups]:
    """Yield groups with one component moved, and with two groups joined, that cost least at the present W."""
    n, J = groups.shape
    moved = free.pushforward(W, np.zeros(n))
    cost = np.full((n, J, J + 1), np.inf)  # of latent t, component j and its new group
    joined = np.full((n, J, J), np.inf)  # of latent t and two groups
    for t, group in enumerate(groups):
        m, v = moved.means[:, t], moved.covariances[:, t, t]
        own = rows.sum() * free.weights * np.stack([np.ones(J), m, m**2 + v])  # (3, J)
        G = group.max() + 1
        sums = own @ np.eye(G + 1)[group]  # the last group is empty
        whole = _minus_two_log(sums, rows)
        gained = _minus_two_log(sums[:, None] + own[:, :, None], rows) - whole  # (J, G + 1)
        lost = _minus_two_log(sums[:, group] - own, rows) - whole[group]
        alone = np.bincount(group)[group] == 1
        lost[alone] = -whole[group][alone]
        cost[t, :, : G + 1] = gained + lost[:, None]
        cost[t, np.arange(J), group] = np.inf
        cost[t, alone, G] = np.inf
        both = _minus_two_log(sums[:, :G, None] + sums[:, None, :G], rows) - whole[:G, None] - whole[:G]
        joined[t, :G, :G] = np.where(np.tri(G, dtype=bool), np.inf, both)
    for costs, names in ((cost, np.tile(np.arange(J), (n, 1))), (joined, groups)):
        for place in np.argsort(costs, axis=None)[:TRIED]:
            t, which, g = np.unravel_index(place, costs.shape)
            if np.isfinite(costs[t, which, g]):
                after = groups.copy()
                after[t, names[t] == which] = g
                after[t] = pd.factorize(after[t])[0]
                yield after


def _minus_two_log(sums: Array, rows: Array) -> Array:
    """Return N_g log v_g + 2 log N of groups with sums (3, ...) of 1, z and z²; 0 where there are no rows."""
    count = np.maximum(sums[0], 1e-9)
    variance = np.maximum(sums[2] / count - (sums[1] / count) ** 2, np.finfo(np.float64).tiny)
    return np.where(sums[0] > 1e-9, count * np.log(variance) + 2 * np.log(rows.sum()), 0.0)


def _errors(mixtures: list[Mixture]) -> Array:
    """Return the covariances (n, n, n) of the rows of E at W <- (I + E) W, for one row of data."""
    n, at = len(mixtures), np.arange(len(mixtures))
    values, vectors = np.linalg.eigh(_hessian(mixtures))
    return ((vectors / np.maximum(values, LEAST_CURVATURE)) @ vectors.T).reshape(n, n, n, n)[at, :, at]


def _gradient(mixtures: list[Mixture]) -> Array:
    """Return the gradient of L in E (n, n), at W <- (I + E) W, for mixtures of the latents."""
    S = [mixture.covariances[:, t] for t, mixture in enumerate(mixtures)]  # (G, n) each
    rows = [(mixture.weights / s[:, t]) @ s for t, (mixture, s) in enumerate(zip(mixtures, S, strict=True))]
    return np.stack(rows) - np.eye(len(mixtures))


def _hessian(mixtures: list[Mixture]) -> Array:
    """Return the Hessian of L in E, (n n, n n); 1 is added where it is 0, as the scale is free."""
    n = len(mixtures)
    H = np.zeros((n, n, n, n))
    for t, mixture in enumerate(mixtures):
        p, S = mixture.weights, mixture.covariances
        u = S[:, t] / S[:, t, t, None]
        H[t, :, t] = np.einsum("g,gab->ab", p / S[:, t, t], S) - 2 * (p * u.T) @ u
    at = np.arange(n)
    H[at[:, None], at, at, at[:, None]] += 1  # of -log |det(I + E)|
    H[at, at, at, at] += 1
    return H.reshape(n * n, n * n)


def _factors(t: int, mixture: Mixture, counts: Array, V: Array) -> Array:
    """Return the log Bayes factors (G, G) that two groups have one distribution of latent t, above the diagonal."""
    p, m, S = mixture.weights, mixture.means, mixture.covariances
    v = S[:, t, t]
    unit = p @ v + p @ (m[:, t] - p @ m[:, t]) ** 2
    slope = np.stack([m / np.sqrt(unit), 2 * S[:, t] / v[:, None]])  # of mean and log variance in E_t
    slope[:, :, t] = 0
    x = np.stack([m[:, t] / np.sqrt(unit), np.log(v)], -1)
    x = x[:, None] - x  # (G, G, 2)
    D = slope[:, :, None] - slope[:, None, :]  # (2, G, G, n)
    own = np.stack([v / unit, np.full(len(v), 2.0)], -1) / counts[:, None]
    cov = np.einsum("xabs,sr,yabr->abxy", D, V, D) + (own[:, None] + own)[..., None] * np.eye(2)
    wide = cov + np.eye(2)
    quadratic = (x[..., None, :] @ (np.linalg.inv(cov) - np.linalg.inv(wide)) @ x[..., None])[..., 0, 0]
    value: Array = 0.5 * (np.log(np.linalg.det(wide) / np.linalg.det(cov)) - quadratic)
    return np.where(np.tri(len(v), dtype=bool), -np.inf, value)


def _bic(model: FactorialMixture, groups: Groups, y: Array) -> float:
    n, J = groups.shape
    parameters = n * n + J - 1 + 2 * int((groups.max(1) + 1).sum())
    return float(parameters * np.log(len(y)) - 2 * log_sum_exp(model.log_joint(y)).sum())
