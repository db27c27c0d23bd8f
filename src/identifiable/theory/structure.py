r"""The hidden discrete variables behind a factorial Gaussian mixture (Kivva et al. 2022, Theorems 3.3c and F.1).

.. math:: P(U, Z) = P(U) \prod_t P(Z_t | U_{ne(t)}), \quad U_i \in \{0, \ldots, d_i - 1\}, \quad P(U = u) > 0

for all :math:`J = d_1 \cdots d_k` states u, which are the components of P(Z), in some order. ne(t) is the set of
variables that move latent t, ne(U_i) that of the latents U_i moves. The mixture gives all of P(U, Z) if (P3) holds:

    (a) a set of latents has different distributions in different states of the variables that move it
    (b) U is maximal
    (c) no ne(U_i) is part of another ne(U_l)

For (a) single latents are enough: given U, distributions of several are products.

**Under (P3).** E(A) is the partition of the components by U_A. The common refinement of E(A) and E(B) is
:math:`E(A \cup B)`. Their meet, the finest partition coarser than both, is :math:`E(A \cap B)`: if u and v agree on
:math:`A \cap B`, some w agrees with u on A and with v on B, and P(U = w) > 0, so w is a component. Let p_t be the
partition by the distribution of Z_t; (a) says p_t = E(ne(t)). The meet of p_t over t in ne(U_i) is E({i}), since an l
in all these ne(t) would have :math:`ne(U_i) \subseteq ne(U_l)`, against (c). So the closure of all p_t under meets
consists of some E(A), of which there are 2^k <= J at most, and every E({i}) is among them: these are its coarsest
elements but for the trivial one, and ne(U_i) is the set of t for which p_t refines E({i}). All this can be read off the
mixture, and so U is unique, up to order and numbering. Kivva et al. (2021) use a Möbius inversion over all 2^m sets of
latents; here J partitions at most are enough.

**Whether (P3) holds.** Take any mixture of different components. Call an element p of the closure a variable if it is
not the common refinement p' of all coarser elements, and number the blocks of p within each block of p' from 0, to
d_p - 1 at most. By induction every element is the partition by the variables it refines, itself included. So (a) holds
for these variables, and no two components have the same state. There are three cases.

- Some state has no component. Then no U has both P(U = u) > 0 for all u and (a). For if one had, the closure would
  consist of E(A), and its variables would be p = E(A_i), with A_i the intersection of all ne(t) that hold i, and
  p' = E(A_i without B_i), with B_i those l that have ne(U_l) = ne(U_i). So d_p would be the product of their sizes, in
  each block of p', and no state would be missing.
- All are there, but a variable q is coarser than p. Then :math:`ne(U_p) \subset ne(U_q)`, and (c) fails, for every U
  with P(U = u) > 0 and (a). In different blocks of q, the states of p were numbered arbitrarily: P(U) is not known.
- All are there, and every p' is trivial. Then (c) holds: p is a meet of some p_t, so no second variable is in all of
  these ne(t).

**Maximality, (b).** As it stands it would rule out every U_i of, say, four states, which two of two states may replace.
What the proof of Theorem F.1 uses is (L2): no U_i can be split in two that are not twins, variables that move the same
latents. It follows from (a): a latent that U_i moves separates all states of U_i, so it is moved by both parts. Twins
U_1, U_2 are therefore one variable with d_1 d_2 states here; P(Z) determines no more.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import isotonic_regression
from scipy.stats import chi2

from identifiable.arrays import Array, IntArray
from identifiable.distributions.mixture import Mixture
from identifiable.errors import DataError, join_few
from identifiable.theory.certificate import Check, Verdict, named
from identifiable.theory.partitions import Partition, closure, linked, numbered, refinement, refines, states_within
from identifiable.theory.thresholds import THRESHOLDS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FACTOR = THRESHOLDS.undecided_factor
COLOURS = ("#2b70aa", "#ea6c48", "#325029", "#8e2c79", "#02958b", "#805900")  # of the variables, in turn
GAP, INCHES = 1.7, 0.7  # between two variables in a picture, in latents; between two latents, in inches


@dataclass(frozen=True, eq=False)
class Structure:
    """The hidden variables U_1..U_k of a mixture of J components, or why they cannot be determined.

    Attributes
    ----------
    verdict : whether (P3) and P(U = u) > 0 hold. If not, everything below is empty but `latents` and `closest`.
    reason : the verdict in words.
    sizes : (d_1, ..., d_k).
    neighbours : ne(U_i) for each variable, the latents it moves; the variables are in this order.
    states : (J, k) the state of each component, numbered in order of first components; -1 for components of weight 0.
    probabilities : (d_1, ..., d_k) P(U = u).
    latents : their number, m.
    closest : the difference between distributions that is nearest to the threshold, in multiples of it: up to 1 two
        distributions are equal, from 3 different. None where there is nothing to compare.
    """

    verdict: Verdict
    reason: str
    sizes: tuple[int, ...]
    neighbours: tuple[tuple[int, ...], ...]
    states: IntArray
    probabilities: Array
    latents: int
    closest: float | None

    @property
    def k(self) -> int:
        """The number of hidden variables."""
        return len(self.sizes)

    @property
    def check(self) -> Check:
        """(P3) as one check of a certificate."""
        statement = "the components are all states of hidden variables, of which none moves only latents of another"
        return Check("P3", statement, self.closest, None if self.closest is None else 1.0, self.verdict, self.reason)

    def __str__(self) -> str:
        lines = [f"P3 {self.verdict}: {self.reason}"]
        for i, (size, moved) in enumerate(zip(self.sizes, self.neighbours, strict=True), 1):
            lines.append(f"  U_{i}: {size} states, moves {named('latent', moved)}")
        alone = self._alone
        if self.k and alone:
            lines.append(f"  moved by none: {named('latent', alone)}")
        return "\n".join(lines)

    @property
    def _alone(self) -> list[int]:
        """The latents no variable moves."""
        return [t for t in range(self.latents) if not any(t in moved for moved in self.neighbours)]

    def plot(self) -> "Figure":
        """Draw what moves what: hidden variables with their numbers of states above, latents below."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        if self.verdict != "holds":
            raise DataError(f"There is no structure to draw, because (P3) is not known to hold: {self.reason}")
        below = np.arange(self.latents) * max(1, GAP * (self.k - 1) / max(self.latents - 1, 1))
        middles = np.array([below[list(moved)].mean() for moved in self.neighbours])
        order, steps = np.argsort(middles, kind="stable"), GAP * np.arange(self.k)
        above = np.zeros(self.k)  # as near to the middle of their latents as the gap allows
        if self.k:
            above[order] = isotonic_regression(middles[order] - steps).x + steps
        left, right = np.append(above, below).min() - 0.9, np.append(above, below).max() + 0.9
        figure = Figure(figsize=(INCHES * (right - left), 2.5), layout="constrained")
        FigureCanvasAgg(figure)
        ax = figure.subplots()
        centred: dict[str, Any] = {"ha": "center", "fontsize": 10}
        for i, (x, size, moved) in enumerate(zip(above, self.sizes, self.neighbours, strict=True)):
            colour = COLOURS[i % len(COLOURS)]
            for t in moved:
                ax.plot([x, below[t]], [1, 0], color=colour, linewidth=1.8, zorder=1)
            box = {"boxstyle": "round,pad=0.45", "facecolor": colour, "edgecolor": "white", "linewidth": 1.5}
            ax.text(x, 1, f"$U_{{{i + 1}}}$\n{size} states", color="white", va="center", bbox=box, **centred)
        for t, x in enumerate(below):
            colour = "0.7" if t in self._alone else "0.2"
            ax.scatter(x, 0, s=620, facecolor="white", edgecolor=colour, linewidth=1.4, zorder=2)
            ax.text(x, 0, f"$Z_{{{t}}}$", color=colour, va="center_baseline", zorder=3, **centred)
        ax.set(xlim=(left, right), ylim=(-0.25, 1.3))
        ax.axis("off")
        return figure


def structure_of(
    mixture: Mixture, *, rows: ArrayLike | None = None, estimated: bool = False, tolerance: float | None = None
) -> Structure:
    r"""Recover the hidden discrete variables from a mixture of independent latents, or say why this is impossible.

    Two components a, b have the same distribution of Z_t if the mean and the log standard deviation differ by no more
    than the tolerance or, where the rows are known, than chance explains, at the error level of the certificate over
    all pairs and latents:

    .. math:: \frac{(\mu_a - \mu_b)^2}{\sigma_a^2 / N w_a + \sigma_b^2 / N w_b} +
        \frac{(\log \sigma_a - \log \sigma_b)^2}{1 / 2 N w_a + 1 / 2 N w_b} \le \chi^2_2

    and different ones from 3 times these differences. Between, and where equality is not transitive, the verdict is
    inconclusive.

    Parameters
    ----------
    mixture : Mixture. The distribution of the latents, with diagonal covariances; components of weight 0 are left out.
    rows : int, array (J,) or None, default=None. The number of rows N the mixture was estimated on, or the rows that
        each component is worth, which are fewer where components overlap. Distributions within what chance explains are
        joined, the nearest first; a product structure is then its own confirmation, and a difference below about 5
        standard errors is not seen. Where that could exceed the tolerance, or 0.05, (P3) is inconclusive instead of
        failing.
    estimated : bool, default=False. Whether the mixture was learnt: the default tolerance is larger. Pass `rows`
        instead if they are known.
    tolerance : float or None, default=None. Differences up to it count as zero, in standard deviations of the latent
        over all components, and for log standard deviations and correlations as they are. None: 1e-5, or 0.05 when
        estimated without `rows`.

    Examples
    --------
    Two hidden variables, which are dependent. Latent 1 is moved by both, latent 3 by none.

    >>> means = [[0, 0, 0, 0], [0, 2, 1, 0], [3, 4, 0, 0], [3, 6, 1, 0]]
    >>> found = structure_of(Mixture([0.1, 0.2, 0.3, 0.4], means, np.ones((4, 4))))
    >>> print(found)
    P3 holds: The 4 components are all states of 2 hidden variables.
      U_1: 2 states, moves latents 0 and 1
      U_2: 2 states, moves latents 1 and 2
      moved by none: latent 3
    >>> found.probabilities
    array([[0.1, 0.2],
           [0.3, 0.4]])

    Without latent 2, the second variable is never seen without the first.

    >>> print(structure_of(Mixture([0.1, 0.2, 0.3, 0.4], np.array(means)[:, :2], np.ones((4, 2)))))
    P3 fails: U_2 (2 states, moves latent 1) moves only latents that U_1 (2 states, moves latents 0 and 1) moves too,
    against (P3c), so that P(U) cannot be known.
    """
    counts = None if rows is None else np.asarray(rows, dtype=np.float64)
    J = len(mixture.weights)
    if counts is not None and (counts.shape not in ((), (J,)) or not (counts > 0).all()):
        raise DataError(f"rows must be positive: one number, or one for each of {J} components. Got {rows!r}.")
    tol = THRESHOLDS.tolerance(tolerance, estimated=estimated and rows is None)
    seen = "the rows" if counts is None or counts.ndim else f"{counts:.0f} rows"
    components = _Components(mixture, counts, tol)
    names, J, m, differences = components.names, components.J, components.m, components.differences()

    def refused(verdict: Verdict, reason: str) -> Structure:
        states = np.empty((len(mixture.weights), 0), dtype=np.int64)
        return Structure(verdict, f"{reason}.", (), (), states, np.empty(0), m, _closest(differences))

    unclear = components.dependence() or ("" if rows is not None else _unclear(differences, names))
    if unclear:
        return refused("inconclusive", unclear)
    partitions = [linked(d <= 1) if rows is None else components.joined(t) for t, d in enumerate(differences)]
    variables = _variables(partitions)
    if flaw := _equal_components(partitions, names) or _missing(variables, partitions, names) or _nested(variables):
        if rows is not None and (unclear := _unclear(differences, names)):
            return refused("inconclusive", unclear)
        unseen = float((components.chance * np.triu(differences <= 1, 1)).max())
        if unseen <= (tolerance or THRESHOLDS.estimated):
            return refused("fails", flaw)
        hidden = f"differences of up to {unseen:.2g} standard deviations would not be seen in {seen}"
        return refused("inconclusive", f"{flaw}; but {hidden}")
    sizes = tuple(v.size for v in variables)
    states = np.full((len(mixture.weights), len(variables)), -1, dtype=np.int64)
    for i, v in enumerate(variables):
        states[names, i] = v.states
    probabilities = mixture.weights[sorted(names, key=lambda j: tuple(states[j]))].reshape(sizes)
    what = f"{len(sizes)} hidden variables" if len(sizes) > 1 else "one hidden variable"
    reason = f"The {J} components are all states of {what}" if sizes else "There is one component, and no U"
    reason += "." if counts is None else f", as far as {seen} show."
    neighbours = tuple(v.neighbours for v in variables)
    return Structure("holds", reason, sizes, neighbours, states, probabilities, m, _closest(differences))


def _noise(items: int, freedom: int) -> float:
    """Return the chi-square that chance exceeds in any of so many items with the probability of a false difference."""
    return float(chi2.isf(THRESHOLDS.error_level / max(items, 1), freedom))


class _Components:
    """The distribution of every latent in every component that has weight, in units of the latent."""

    def __init__(self, mixture: Mixture, rows: Array | None, tol: float) -> None:
        self.names = np.flatnonzero(mixture.weights > 0)  # (J,)
        w, mu, sigma = mixture.weights[self.names], mixture.means[self.names], mixture.covariances[self.names]
        self.J, self.m = mu.shape
        variances = np.maximum(np.diagonal(sigma, axis1=1, axis2=2), 0)
        unit = np.sqrt(w @ variances + w @ (mu - w @ mu) ** 2)
        constant = unit <= THRESHOLDS.constant_latent * np.abs(mu).max(0)
        unit = np.where(constant, np.inf, unit)  # a latent that never varies is equal everywhere
        deviations = np.sqrt(variances) / unit
        scale = np.where(deviations > tol, np.sqrt(variances), np.inf)  # a point has no correlations
        self.correlations = sigma / (scale[:, :, None] * scale[:, None, :]) * (1 - np.eye(self.m))
        self.counts = None if rows is None else rows[self.names] if rows.ndim else rows * w
        self.tol, self.threshold = tol, _noise(self.m * self.J * (self.J - 1) // 2, 2)
        # Means and log deviations, and by how much chance may separate equal ones: 0 for an exact mixture.
        self.moments = np.stack([((mu - w @ mu) / unit).T, np.log(np.maximum(deviations, tol)).T])  # (2, m, J)
        self.chance = np.zeros((2, self.m, self.J, self.J))
        if self.counts is not None:
            errors = np.stack([deviations.T**2, np.full((self.m, self.J), 0.5)]) / self.counts  # squared
            self.chance = np.sqrt(self.threshold * (errors[..., :, None] + errors[..., None, :]))

    def differences(self) -> Array:
        """Compare all pairs of components in every latent (m, J, J), in multiples of what counts as equal."""
        apart = np.abs(self.moments[..., :, None] - self.moments[..., None, :])
        with np.errstate(divide="ignore", invalid="ignore"):  # without errors the tolerance decides
            return np.asarray(np.fmin(apart.max(0) / self.tol, np.hypot(*(apart / self.chance))))

    def joined(self, t: int) -> Partition:
        """Join components in which latent t differs by no more than chance explains, the nearest first.

        Joined components get the mean and log deviation that weigh them by their squared errors.
        """
        assert self.counts is not None
        moments = self.moments[:, t]  # (2, J)
        precision = np.stack([self.counts / np.exp(2 * moments[1]), 2 * self.counts])
        groups = [[j] for j in range(self.J)]
        while len(groups) > 1:
            share = precision[:, :, None] * precision[:, None, :] / (precision[:, :, None] + precision[:, None, :])
            apart = np.abs(moments[:, :, None] - moments[:, None, :])
            size = np.fmin((share * apart**2).sum(0) / self.threshold, (apart.max(0) / self.tol) ** 2)
            a, b = np.unravel_index(np.where(np.tri(len(groups), dtype=bool), np.inf, size).argmin(), size.shape)
            if size[a, b] > 1:
                break
            total = precision[:, [a, b]].sum(1)
            pooled = (precision[:, [a, b]] * moments[:, [a, b]]).sum(1) / total
            moments, precision = np.delete(moments, b, 1), np.delete(precision, b, 1)
            moments[:, a], precision[:, a] = pooled, total
            groups[a] += groups.pop(b)
        block = {j: g for g, group in enumerate(groups) for j in group}
        return numbered(block[j] for j in range(self.J))

    def dependence(self) -> str:
        """Refuse latents that are dependent within components; say so if this is unclear; else return ""."""
        size = np.abs(self.correlations) / self.tol  # in multiples of what counts as zero
        if self.counts is not None and self.m > 1:
            error = np.sqrt(_noise(self.J * self.m * (self.m - 1) // 2, 1) / self.counts)
            size = np.fmin(size, np.abs(self.correlations) / error[:, None, None])
        place = np.unravel_index(size.argmax(), size.shape)
        j, s, t = self.names[place[0]], *place[1:]
        found = f"Latents {s} and {t} have correlation {self.correlations[place]:.2g} within component {j}"
        if size[place] >= FACTOR:
            raise DataError(
                f"The latents must be independent within every component. {found}: they are still mixed. Fit "
                "FactorialUnmixing first and pass the mixture of its latents."
            )
        if size[place] > 1:
            return f"{found}, {size[place]:.2g} times what counts as zero, and the latents may still be mixed"
        return ""


def _closest(differences: Array) -> float | None:
    """Return the difference that is closest, by ratio, to the middle between equal and different."""
    pairs = differences[:, *np.triu_indices(differences.shape[1], 1)].ravel()
    ratios = np.abs(np.log(np.maximum(pairs, 1e-300) / np.sqrt(FACTOR)))
    return float(pairs[ratios.argmin()]) if len(pairs) else None


def _unclear(differences: Array, names: IntArray) -> str:
    """Name latents in which components are neither clearly equal nor different, or equal in a chain; "" for none."""
    found: dict[int, str] = {}
    for t, difference in enumerate(differences):
        blocks = np.array(linked(difference <= 1))
        doubtful = np.triu((difference > 1) & ((difference < FACTOR) | (blocks[:, None] == blocks)), 1)
        if doubtful.any():
            a, b = np.unravel_index(np.where(doubtful, difference, np.inf).argmin(), difference.shape)
            size = difference[a, b]
            why = f"{FACTOR:g} times would decide" if size < FACTOR else "others, each equal to the next, link them"
            found[t] = (
                f"Latent {t} may have the same distribution in components {names[a]} and {names[b]} or not: the "
                f"difference is {size:.3g} times what counts as equal, {why}"
            )
    others = list(found)[1:]
    return "".join(list(found.values())[:1]) + (
        f"; the same is unclear for {named('latent', others)}" if others else ""
    )


def _equal_components(partitions: Sequence[Partition], names: IntArray) -> str:
    """Name two components that agree in every latent; "" if there are none."""
    joint = refinement(partitions, len(names))
    again = next((j for j, block in enumerate(joint) if joint.index(block) < j), None)
    if again is None:
        return ""
    first = names[joint.index(joint[again])]
    return f"Components {first} and {names[again]} have the same distribution, against (P3a): merge them into one"


@dataclass(frozen=True, eq=False)
class _Variable:
    """A hidden variable: its partition, the latents it moves, coarser variables, and the state of each component."""

    partition: Partition
    neighbours: tuple[int, ...]
    within: tuple[Partition, ...]
    states: Partition

    @property
    def size(self) -> int:
        return max(self.states) + 1

    def describe(self, i: int) -> str:
        return f"U_{i + 1} ({self.size} states, moves {named('latent', self.neighbours)})"


def _variables(partitions: Sequence[Partition]) -> list[_Variable]:
    """Find what is not the common refinement of what is coarser, in order of latents; [] for too large a closure."""
    found: list[_Variable] = []
    for p in sorted(closure(partitions), key=max):
        within = tuple(v.partition for v in found if refines(p, v.partition))
        base = refinement(within, len(p))
        if base != p:
            moved = tuple(t for t, of_latent in enumerate(partitions) if refines(of_latent, p))
            found.append(_Variable(p, moved, within, states_within(p, base)))
    return sorted(found, key=lambda v: v.neighbours)


def _nested(variables: Sequence[_Variable]) -> str:
    """Name a variable that moves only latents another moves too; "" if there is none."""
    numbers = {v.partition: i for i, v in enumerate(variables)}
    for i, v in enumerate(variables):
        if v.within:
            j = numbers[v.within[0]]
            return (
                f"{v.describe(i)} moves only latents that {variables[j].describe(j)} moves too, against (P3c), so that "
                "P(U) cannot be known"
            )
    return ""


def _missing(variables: Sequence[_Variable], partitions: Sequence[Partition], names: IntArray) -> str:
    """Name a state of the variables that has no component; "" if none is missing."""
    J, sizes = len(names), [v.size for v in variables]
    if math.prod(sizes) == J:
        return ""
    either = (
        "either P(U = u) = 0 for some u, or some latent has the same distribution in different states of what moves "
        "it, against (P3a)"
    )
    if not variables:
        latents = named("latent", [t for t, partition in enumerate(partitions) if max(partition)])
        return (
            f"{J} states of hidden variables cannot divide the components in more than {J} ways, as {latents} do: "
            f"{either}"
        )
    described = join_few([v.describe(i) for i, v in enumerate(variables)])
    words = f"The latents show {described}, which would have {math.prod(sizes)} states, for {J} components"
    if not any(v.within for v in variables):  # else states of one number in different blocks are not the same
        present = set(zip(*(v.states for v in variables), strict=True))
        absent = next(u for u in islice(np.ndindex(*sizes), J + 1) if u not in present)
        like = [names[v.states.index(u)] for v, u in zip(variables, absent, strict=True)]
        words += f", but none with {join_few([f'U_{i} as in component {j}' for i, j in enumerate(like, 1)])}"
    return f"{words}: {either}"
