r"""Starts of EM for a degenerate mixture, and its number of components.

.. math:: \mathrm{BIC} = p \log N - 2 \sum_i \log p(x_i), \qquad
          p = J - 1 + \sum_j \left(d + \frac{r_j (r_j + 1)}{2} + r_j (d - r_j)\right) + 1

`starts` groups the rows by the affine subspaces they lie on. `Search.split` fits each subspace by the number of
Gaussians with the least BIC. `Search.reduced` runs EM on all of them together and drops or merges components as long
as BIC falls.

References
----------
Schwarz, Estimating the dimension of a model, Annals of Statistics 1978.
"""

import warnings
from dataclasses import dataclass, replace

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from identifiable.algorithms.singular import DEGENERATE, Floor, Gaussians, Run, em, from_labels, log_sum_exp
from identifiable.algorithms.subspaces import share_on_subspaces, subspace_groups
from identifiable.arrays import Array, Rows

EXACT, NOISY = 1e-6, (3e-3, 3e-2)  # distances from a subspace that are tried, in units of the scale of the data
COINCIDENT = 1e-3  # two components with a smaller symmetric Kullback-Leibler divergence are one
SHORT = 10  # EM steps that compare starts


@dataclass(frozen=True)
class Start:
    """Groups of rows, the largest distance of a row from its subspace, the share of rows on subspaces, the floor."""

    groups: list[Rows]
    tolerance: float
    share: float
    floor: Floor


def starts(X: Array, least: float, given: float | None, batches: int, rng: np.random.Generator) -> list[Start]:
    """Return one or two starts for X in units of its scale.

    One groups the rows by subspaces, at the least tolerance that finds them; the other has a single group. `least` is
    the smallest floor that rounding allows, `given` the floor if it is known.
    """
    if given is not None:
        floors = [(3 * given if given > EXACT / 10 else EXACT, Floor(given**2, given**2, False))]
    else:
        floors = [(max(EXACT, 3 * least), Floor(least**2, least**2, True))]
        floors += [(t, Floor((t / 3) ** 2, least**2, True)) for t in NOISY if t > 10 * least]
    tried: list[Start] = []
    for tolerance, floor in floors:
        tried.append(_start(X, tolerance, floor, batches, rng))
        if tried[-1].share > 0.9:
            break  # a wider tolerance would only blur these subspaces
    most = max(start.share for start in tried)
    best = next(start for start in tried if start.share >= most - 0.05)
    if most > 0 and given is None:
        best = _widened(X, best, batches, rng)
    if most >= 0.5:
        return [best]
    one_group = Start([np.arange(len(X))], 0.0, 0.0, floors[0][1])
    return [one_group, best] if most > 0 else [one_group]


def _start(X: Array, tolerance: float, floor: Floor, batches: int, rng: np.random.Generator) -> Start:
    groups = subspace_groups(X, tolerance, rng, batches=batches)
    return Start(groups, tolerance, share_on_subspaces(X, groups, tolerance), floor)


def _widened(X: Array, start: Start, batches: int, rng: np.random.Generator) -> Start:
    """Search the subspaces again at tolerance 3 s, if EM from these finds a floor s that is too large for theirs.

    A tolerance below the noise still finds hyperplanes that hold several subspaces, since many rows are near those by
    chance, but not the subspaces. A few steps of EM from such hyperplanes are enough to estimate s.
    """
    labels = np.empty(len(X), dtype=np.int64)
    for number, rows in enumerate(start.groups):
        labels[rows] = number
    s = float(np.sqrt(em(X, from_labels(X, labels, start.floor), start.floor, SHORT, tol=0.0).model.floor2))
    if s <= start.tolerance / 2:
        return start
    wider = _start(X, 3 * s, replace(start.floor, start=s**2), batches, rng)
    return wider if wider.share >= start.share - 0.05 else start


@dataclass(frozen=True)
class Search:
    """EM and the choice of the number of components: n_components, or the one of least BIC up to most."""

    n_components: int | None
    most: int
    restarts: int
    max_iter: int
    tol: float
    rng: np.random.Generator

    def em(self, X: Array, start: Gaussians, floor: Floor) -> Run:
        """Run EM to its end."""
        return em(X, start, floor, self.max_iter, self.tol)

    def split(self, X: Array, start: Start) -> Gaussians:
        """Fit each group by itself, and return all their components as one mixture."""
        fewest = max(X.shape[1] + 2, len(X) // 1000)
        groups = [g for g in start.groups if len(g) >= fewest][: self.most] or [np.arange(len(X))]
        if self.n_components is None:
            runs = [self._least_bic(X[g], self.most - len(groups) + 1, start.floor) for g in groups]
        elif len(groups) == 1:
            runs = [self._gaussians(X[groups[0]], self.n_components, start.floor)]
        else:
            runs = self._shared_out(X, groups, self.n_components, start.floor)
        shares = np.array([len(g) for g in groups], dtype=np.float64)
        return joined([run.model for run in runs], shares, start.floor.start)

    def reduced(self, X: Array, start: Gaussians, floor: Floor) -> Run:
        """Alternate EM on all components and the removal of those that are not needed, until none is removed.

        Without n_components, components that raise BIC are removed; with it, only those that coincide.
        """
        run = self.em(X, start, floor)
        while True:
            smaller = simplified(X, run.model) if self.n_components is None else coincident_merged(run.model)
            if len(smaller) == len(run.model):
                return run
            run = self.em(X, smaller, floor)

    def _least_bic(self, X: Array, most: int, floor: Floor) -> Run:
        """Return the mixture of 1, 2, ... Gaussians with the least BIC; two numbers without a gain end the search."""
        best = self._gaussians(X, 1, floor)
        criterion, failures, k = best.model.bic(X), 0, 1
        while failures < 2 and k < min(most, len(X)):
            k += 1
            run = self._gaussians(X, k, floor)
            failures += 1
            if len(run.model) == k and run.model.bic(X) < criterion:
                best, criterion, failures = run, run.model.bic(X), 0
        return best

    def _shared_out(self, X: Array, groups: list[Rows], number: int, floor: Floor) -> list[Run]:
        """Give each group one Gaussian, then one more to the group whose likelihood gains most, up to number in all."""
        runs = [self._gaussians(X[g], 1, floor) for g in groups]
        while sum(len(run.model) for run in runs) < number:
            more = [
                self._gaussians(X[g], min(len(r.model) + 1, len(g)), floor) for g, r in zip(groups, runs, strict=True)
            ]
            gains = [
                len(g) * (m.score - r.score) if len(m.model) > len(r.model) else -np.inf
                for g, m, r in zip(groups, more, runs, strict=True)
            ]
            where = int(np.argmax(gains))
            if gains[where] == -np.inf:
                break
            runs[where] = more[where]
        return runs

    def _gaussians(self, X: Array, k: int, floor: Floor) -> Run:
        """Return EM with k components from the best of short runs, each from k-means in whitened coordinates."""
        floor = replace(floor, learnt=False)
        one = self.em(X, from_labels(X, np.zeros(len(X), dtype=np.int64), floor), floor)
        signal = one.model.variances[0] > 0
        if k == 1 or not signal.any():
            return one
        white = (X - one.model.means[0]) @ one.model.axes[0][:, signal] / np.sqrt(one.model.variances[0][signal])
        runs = []
        for _ in range(self.restarts):
            with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):  # fewer distinct rows than k
                labels = KMeans(k, n_init=1, random_state=int(self.rng.integers(2**31))).fit(white).labels_
            runs.append(em(X, from_labels(X, labels, floor), floor, min(SHORT, self.max_iter), self.tol))
        return self.em(X, max(runs, key=lambda run: run.score).model, floor)


def joined(models: list[Gaussians], shares: Array, floor2: float) -> Gaussians:
    """Return the mixture of mixtures."""
    weights = np.concatenate([s * m.weights for m, s in zip(models, shares / shares.sum(), strict=True)])
    parts = [np.concatenate([getattr(m, part) for m in models]) for part in ("means", "axes", "variances")]
    return Gaussians(weights, parts[0], parts[1], parts[2], floor2)


def simplified(X: Array, model: Gaussians) -> Gaussians:
    r"""Drop or merge components, one at a time, as long as BIC falls, all else equal.

    Without component j the log-likelihood changes by :math:`\sum_i \log(1 - p(j | x_i)) - N \log(1 - w_j)`; the first
    sum alone counts, which favours keeping components.
    """
    joint = model.log_joint(X)
    while len(model) > 1:
        number, evidence = np.arange(len(model)), log_sum_exp(joint)
        responsibilities = np.minimum(np.exp(joint - evidence[:, None]), 1 - 1e-12)
        lost = -np.log1p(-responsibilities).sum(0)
        spared = np.array([model.n_parameters - model.subset(np.delete(number, j)).n_parameters for j in number])
        change = 2 * lost - spared * np.log(len(X))
        j = int(change.argmin())
        if change[j] < 0:
            joint = np.delete(joint, j, axis=1) - np.log1p(-model.weights[j])
            model = model.subset(np.delete(number, j))
            continue
        first, second = np.triu_indices(len(number), 1)
        for p in np.argsort(divergences(model)[first, second], kind="stable")[:5]:
            pair = [first[p], second[p]]
            both = merged(model, *pair)
            column = both.subset(np.array([-1])).log_joint(X) + np.log(both.weights[-1])
            trial = np.hstack([np.delete(joint, pair, axis=1), column])
            gain = 2 * (log_sum_exp(trial) - evidence).sum()
            if gain + (model.n_parameters - both.n_parameters) * np.log(len(X)) > 0:
                model, joint = both, trial
                break
        else:
            break
    return model


def coincident_merged(model: Gaussians) -> Gaussians:
    """Merge components whose divergence is below COINCIDENT."""
    while len(model) > 1:
        apart = divergences(model)
        if apart.min() >= COINCIDENT:
            break
        j, k = np.unravel_index(apart.argmin(), apart.shape)
        model = merged(model, int(j), int(k))
    return model


def divergences(model: Gaussians) -> Array:
    r"""Return the symmetric Kullback-Leibler divergences (J, J) between the smoothed components; inf on the diagonal.

    .. math:: D_{jk} = \tfrac{1}{2} \left(\mathrm{tr}\, C_k^{-1} C_j + \mathrm{tr}\, C_j^{-1} C_k
              + (\mu_j - \mu_k)^T (C_j^{-1} + C_k^{-1}) (\mu_j - \mu_k)\right) - d, \quad C_j = S_j + s^2 I
    """
    total = model.variances + model.floor2
    turned = np.einsum("kde,jdf->kjef", model.axes, model.axes) ** 2
    trace = np.einsum("kjef,ke,jf->kj", turned, 1 / total, total)  # tr(C_k^-1 C_j), a sum of squares: no cancellation
    shift = np.einsum("kde,kjd->kje", model.axes, model.means[None] - model.means[:, None])
    square = np.einsum("kje,ke->kj", shift**2, 1 / total)
    both = 0.5 * (trace + square + (trace + square).T) - total.shape[1]
    np.fill_diagonal(both, np.inf)
    return both


def merged(model: Gaussians, j: int, k: int) -> Gaussians:
    """Replace components j and k by the one with the same mean and covariance, which comes last."""
    w = model.weights[[j, k]] / model.weights[[j, k]].sum()
    pair = model.means[[j, k]]
    mean = w @ pair
    root = np.sqrt(w)[:, None, None] * model.axes[[j, k]] * np.sqrt(model.variances[[j, k]])[:, None, :]
    between = ((pair - mean) * np.sqrt(w)[:, None]).T
    axes, values, _ = np.linalg.svd(np.concatenate([root[0], root[1], between], axis=1))  # S = columns columns^T
    variances = np.where(values**2 > (DEGENERATE - 1) * model.floor2, values**2, 0.0)[::-1]
    others = np.delete(np.arange(len(model)), [j, k])
    return Gaussians(
        np.append(model.weights[others], model.weights[[j, k]].sum()),
        np.vstack([model.means[others], mean]),
        np.concatenate([model.axes[others], axes[None, :, ::-1]]),
        np.vstack([model.variances[others], variances]),
        model.floor2,
    )
