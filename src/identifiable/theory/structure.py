r"""The hidden discrete variables behind a factorial Gaussian mixture (Kivva et al. 2022, Theorems 3.3c and F.1).

.. math:: P(U, Z) = P(U) \prod_t P(Z_t | U_{ne(t)}), \quad U_i \in \{0, \ldots, d_i - 1\}, \quad P(U = u) > 0

for all :math:`J = d_1 \cdots d_k` states u, which are the components of P(Z), in some order. ne(t) is the set of
variables that move latent t, ne(U_i) that of the latents U_i moves. The mixture gives all of P(U, Z) if (P3) holds:

    (a) a set of latents has different laws in different states of the variables that move it
    (b) U is maximal
    (c) no ne(U_i) is part of another ne(U_l)

For (a) single latents are enough: given U, laws of several are products.

**Under (P3).** E(A) is the partition of the components by U_A. The common refinement of E(A) and E(B) is
:math:`E(A \cup B)`. Their meet, the finest partition coarser than both, is :math:`E(A \cap B)`: if u and v agree on
:math:`A \cap B`, some w agrees with u on A and with v on B, and P(U = w) > 0, so w is a component. Let p_t be the
partition by the law of Z_t; (a) says p_t = E(ne(t)). The meet of p_t over t in ne(U_i) is E({i}), since an l in all
these ne(t) would have :math:`ne(U_i) \subseteq ne(U_l)`, against (c). So the closure of all p_t under meets consists of
some E(A), of which there are 2^k <= J at most, and every E({i}) is among them: these are its coarsest elements but for
the trivial one, and ne(U_i) is the set of t for which p_t refines E({i}). All this can be read off the mixture, and so
U is unique, up to order and numbering. Kivva et al. (2021) get there by a Möbius inversion over all 2^m sets of
latents; here it takes J partitions at most.

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
latents. It follows from (a): a latent that U_i moves tells all states of U_i apart, so it is moved by both parts. Twins
U_1, U_2 are therefore one variable with d_1 d_2 states here, and this is all that P(Z) says of them.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import isotonic_regression
from scipy.sparse.csgraph import connected_components
from scipy.stats import chi2

from identifiable.distributions.mixture import FloatArray, Mixture
from identifiable.errors import DataError, join_few
from identifiable.theory.certificate import Check, Verdict
from identifiable.theory.degenerate import ESTIMATED, EXACT
from identifiable.theory.supports import ZONE, IntArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BY_CHANCE = 1e-3  # noise alone makes equal laws look different, anywhere in the mixture, with at most this probability
ROUNDING = 1e-12  # a latent that varies by no more, as a share of its size, is constant
COLOURS = ("#2b70aa", "#ea6c48", "#325029", "#8e2c79", "#02958b", "#805900")  # of the variables, in turn
GAP, INCHES = 1.7, 0.7  # between two variables in a picture, in latents; between two latents, in inches

Partition = tuple[int, ...]  # the block of each component; blocks are numbered in order of their first components


@dataclass(frozen=True, eq=False)
class Structure:
    """The hidden variables U_1..U_k of a mixture of J components, or why there are none to be told.

    Attributes
    ----------
    verdict : whether (P3) and P(U = u) > 0 hold. If not, all below is empty but `latents` and `closest`.
    reason : the verdict in words.
    sizes : (d_1, ..., d_k).
    neighbours : ne(U_i) for each variable, the latents it moves; the variables are in this order.
    states : (J, k) the state of each component, numbered in order of first components; -1 for components of weight 0.
    law : (d_1, ..., d_k) P(U = u).
    latents : their number, m.
    closest : the difference between laws that is nearest to the threshold, in multiples of it: up to 1 two laws are
        equal, from 3 different. None where there is nothing to compare.
    """

    verdict: Verdict
    reason: str
    sizes: tuple[int, ...]
    neighbours: tuple[tuple[int, ...], ...]
    states: IntArray
    law: FloatArray
    latents: int
    closest: float | None

    @property
    def k(self) -> int:
        """The number of hidden variables."""
        return len(self.sizes)

    @property
    def check(self) -> Check:
        """(P3) as one check of a certificate."""
        statement = (
            "the components are all states of some hidden variables, of which each latent tells apart those that move "
            "it, and none moves only latents that another moves too"
        )
        return Check("P3", statement, self.closest, None if self.closest is None else 1.0, self.verdict, self.reason)

    def __str__(self) -> str:
        lines = [f"P3 {self.verdict}: {self.reason}"]
        for i, (size, moved) in enumerate(zip(self.sizes, self.neighbours, strict=True), 1):
            lines.append(f"  U_{i}: {size} states, moves {_named('latent', moved)}")
        alone = self._alone
        if self.k and alone:
            lines.append(f"  moved by none: {_named('latent', alone)}")
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
            raise DataError(f"There is no structure to draw, as (P3) is not known to hold: {self.reason}")
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
        for i, (x, size, moved) in enumerate(zip(above, self.sizes, self.neighbours, strict=True)):
            colour = COLOURS[i % len(COLOURS)]
            for t in moved:
                ax.plot([x, below[t]], [1, 0], color=colour, linewidth=1.8, zorder=1)
            box = {"boxstyle": "round,pad=0.45", "facecolor": colour, "edgecolor": "white", "linewidth": 1.5}
            words = f"$U_{{{i + 1}}}$\n{size} states"
            ax.text(x, 1, words, color="white", ha="center", va="center", fontsize=10, linespacing=1.3, bbox=box)
        for t, x in enumerate(below):
            colour = "0.7" if t in self._alone else "0.2"
            ax.scatter(x, 0, s=620, facecolor="white", edgecolor=colour, linewidth=1.4, zorder=2)
            ax.text(x, 0, f"$Z_{{{t}}}$", color=colour, ha="center", va="center_baseline", fontsize=10, zorder=3)
        ax.set(xlim=(left, right), ylim=(-0.25, 1.3))
        ax.axis("off")
        return figure


def structure_of(
    mixture: Mixture,
    *,
    rows: ArrayLike | None = None,
    estimated: bool = False,
    tolerance: float | None = None,
) -> Structure:
    r"""Recover the hidden discrete variables from a mixture of independent latents, or say why this cannot be done.

    Two components a, b have one law of Z_t if the mean and the log standard deviation differ by no more than the
    tolerance or, where the rows are known, than chance explains, at level .001 over all pairs and latents:

    .. math:: \frac{(\mu_a - \mu_b)^2}{\sigma_a^2 / N w_a + \sigma_b^2 / N w_b} +
        \frac{(\log \sigma_a - \log \sigma_b)^2}{1 / 2 N w_a + 1 / 2 N w_b} \le \chi^2_2

    and different laws from 3 times these differences; between, and where equality is not transitive, it cannot be told.

    Parameters
    ----------
    mixture : the law of the latents, with diagonal covariances; components of weight 0 are left out.
    rows : the number of rows N the mixture was estimated on, or (J,) how many rows each component is worth, which are
        fewer where components overlap. Laws within what chance explains are joined, the nearest first; a product
        structure is then its own confirmation, and a difference below about 5 standard errors is not seen. Where that
        could exceed the tolerance, or 0.05, (P3) is not said to fail.
    estimated : the mixture was learnt, and the default tolerance is looser; `rows`, where known, serve better.
    tolerance : differences up to it count as zero, in standard deviations of the latent over all components, and for
        log standard deviations and correlations as they are; default 1e-5, or 0.05 when estimated without `rows`.

    Examples
    --------
    Two hidden variables, which are dependent. Latent 1 is moved by both, latent 3 by none.

    >>> means = [[0, 0, 0, 0], [0, 2, 1, 0], [3, 4, 0, 0], [3, 6, 1, 0]]
    >>> found = structure_of(Mixture([0.1, 0.2, 0.3, 0.4], means, np.ones((4, 4))))
    >>> print(found)
    P3 holds: The 4 components are all states of 2 hidden variables.
      U_1: 2 states, moves latents 0, 1
      U_2: 2 states, moves latents 1, 2
      moved by none: latent 3
    >>> found.law
    array([[0.1, 0.2],
           [0.3, 0.4]])

    Without latent 2, the second variable is never seen without the first.

    >>> print(structure_of(Mixture([0.1, 0.2, 0.3, 0.4], np.array(means)[:, :2], np.ones((4, 2)))))
    P3 fails: U_2 (2 states, moves latent 1) moves only latents that U_1 (2 states, moves latents 0, 1) moves too,
    against (P3c), so that P(U) cannot be known.
    """
    counts = None if rows is None else np.asarray(rows, dtype=np.float64)
    J = len(mixture.weights)
    if counts is not None and (counts.shape not in ((), (J,)) or not (counts > 0).all()):
        raise DataError(
            f"rows must be the number of rows the mixture was estimated on, or one number > 0 for each of {J} "
            f"components, got {rows!r}."
        )
    if tolerance is not None and not 0 < tolerance < 0.3:
        raise DataError(f"tolerance must lie between 0 and 0.3 standard deviations, got {tolerance}.")
    seen = "the rows" if counts is None or counts.ndim else f"{counts:.0f} rows"
    laws = _Laws(mixture, counts, tolerance or (ESTIMATED if estimated and rows is None else EXACT))
    J, m = laws.means.shape
    differences = np.stack([laws.difference(t) for t in range(m)])  # (m, J, J)
    closest = _nearest(differences)

    def refused(verdict: Verdict, reason: str) -> Structure:
        states = np.empty((len(mixture.weights), 0), dtype=np.int64)
        return Structure(verdict, reason, (), (), states, np.empty(0), m, closest)

    unclear = _dependence(laws) or ("" if rows is not None else _unclear(differences, laws.names))
    if unclear:
        return refused("inconclusive", f"{unclear}.")
    partitions = [_partition(d) if rows is None else laws.joined(t) for t, d in enumerate(differences)]
    variables = _variables(partitions)
    if flaw := _alike(partitions, laws.names) or _missing(variables, partitions, laws.names) or _nested(variables):
        if rows is not None and (unclear := _unclear(differences, laws.names)):
            return refused("inconclusive", f"{unclear}.")
        unseen = laws.unseen(differences)
        if unseen <= (tolerance or ESTIMATED):
            return refused("fails", f"{flaw}.")
        blur = f"differences of up to {unseen:.2g} standard deviations would not be seen in {seen}"
        return refused("inconclusive", f"{flaw}; but {blur}.")
    sizes = tuple(v.size for v in variables)
    states = np.full((len(mixture.weights), len(variables)), -1, dtype=np.int64)
    for i, v in enumerate(variables):
        states[laws.names, i] = v.states
    in_order = sorted(laws.names, key=lambda j: tuple(states[j]))
    law = mixture.weights[in_order].reshape(sizes)
    what = f"{len(sizes)} hidden variables" if len(sizes) > 1 else "one hidden variable"
    reason = f"The {J} components are all states of {what}" if sizes else "There is one component, and no U"
    reason += "." if counts is None else f", as far as {seen} can tell."
    return Structure("holds", reason, sizes, tuple(v.neighbours for v in variables), states, law, m, closest)


class _Laws:
    """The law of every latent in every component that has weight, in units of the latent."""

    def __init__(self, mixture: Mixture, rows: FloatArray | None, tol: float) -> None:
        self.names = np.flatnonzero(mixture.weights > 0)  # (J,)
        w, mu, sigma = mixture.weights[self.names], mixture.means[self.names], mixture.covariances[self.names]
        variances = np.maximum(np.diagonal(sigma, axis1=1, axis2=2), 0)
        unit = np.sqrt(w @ variances + w @ (mu - w @ mu) ** 2)
        unit = np.where(unit > ROUNDING * np.abs(mu).max(0), unit, np.inf)  # what never varies differs nowhere
        self.means = (mu - w @ mu) / unit  # (J, m)
        self.deviations = np.sqrt(variances) / unit
        scale = np.where(self.deviations > tol, np.sqrt(variances), np.inf)  # a point has no correlations
        self.correlations = sigma / (scale[:, :, None] * scale[:, None, :]) * (1 - np.eye(mu.shape[1]))
        self.counts = None if rows is None else rows[self.names] if rows.ndim else rows * w
        self.tol = tol

    def by_chance(self, t: int) -> FloatArray:
        """Return how far chance may drive two means, or log deviations, of latent t apart (2, J, J); 0 if exact."""
        J, m = self.means.shape
        if self.counts is None:
            return np.zeros((2, J, J))
        errors = np.stack([self.deviations[:, t] ** 2, np.full(J, 0.5)]) / self.counts  # squared
        threshold = chi2.isf(BY_CHANCE / max(m * J * (J - 1) / 2, 1), 2)
        return np.asarray(np.sqrt(threshold * (errors[:, :, None] + errors[:, None, :])))

    def joined(self, t: int) -> Partition:
        """Join components whose laws of latent t differ by no more than chance explains, the nearest first.

        Joined, they have the mean and log deviation that weigh them by their squared errors.
        """
        J, m = self.means.shape
        assert self.counts is not None
        threshold = chi2.isf(BY_CHANCE / max(m * J * (J - 1) / 2, 1), 2)
        log_deviations = np.log(np.maximum(self.deviations[:, t], self.tol))
        law = np.stack([self.means[:, t], log_deviations])  # (2, J)
        precision = np.stack([self.counts / np.exp(2 * log_deviations), 2 * self.counts])
        groups = [[j] for j in range(J)]
        while len(groups) > 1:
            share = precision[:, :, None] * precision[:, None, :] / (precision[:, :, None] + precision[:, None, :])
            apart = np.abs(law[:, :, None] - law[:, None, :])
            size = np.fmin((share * apart**2).sum(0) / threshold, (apart.max(0) / self.tol) ** 2)
            a, b = np.unravel_index(np.where(np.tri(len(groups), dtype=bool), np.inf, size).argmin(), size.shape)
            if size[a, b] > 1:
                break
            total = precision[:, a] + precision[:, b]
            law[:, a] = (precision[:, a] * law[:, a] + precision[:, b] * law[:, b]) / total
            precision[:, a] = total
            law, precision = np.delete(law, b, 1), np.delete(precision, b, 1)
            groups[a] += groups.pop(b)
        block = {j: g for g, group in enumerate(groups) for j in group}
        return _numbered([block[j] for j in range(J)])

    def difference(self, t: int) -> FloatArray:
        """Compare the law of latent t in all pairs of components (J, J), in multiples of what counts as equal."""
        law = np.stack([self.means[:, t], np.log(np.maximum(self.deviations[:, t], self.tol))])
        apart = np.abs(law[:, :, None] - law[:, None, :])
        with np.errstate(divide="ignore", invalid="ignore"):  # where there are no errors the tolerance decides
            return np.asarray(np.fmin(apart.max(0) / self.tol, np.hypot(*(apart / self.by_chance(t)))))

    def unseen(self, differences: FloatArray) -> float:
        """Return the largest difference that may be hidden where laws count as equal."""
        return max(float((self.by_chance(t) * np.triu(d <= 1, 1)).max()) for t, d in enumerate(differences))

    def dependence(self) -> FloatArray:
        """Return all correlations within components (J, m, m), in multiples of what counts as zero."""
        J, m, _ = self.correlations.shape
        size: FloatArray = np.abs(self.correlations)
        if self.counts is None or m == 1:
            return size / self.tol
        error = np.sqrt(chi2.isf(BY_CHANCE / (J * m * (m - 1) / 2), 1) / self.counts)
        return np.asarray(np.fmin(size / self.tol, size / error[:, None, None]))


def _dependence(laws: _Laws) -> str:
    """Refuse latents that are dependent within components; say so if this is unclear; else return ""."""
    dependence = laws.dependence()
    place = np.unravel_index(dependence.argmax(), dependence.shape)
    j, s, t = laws.names[place[0]], *place[1:]
    found = f"Latents {s} and {t} have correlation {laws.correlations[place]:.2g} within component {j}"
    if dependence[place] >= ZONE:
        raise DataError(
            f"The latents must be independent within every component. {found}: they are still mixed. FactorialUnmixing "
            "comes first; pass the mixture of its latents."
        )
    if dependence[place] > 1:
        return f"{found}, {dependence[place]:.2g} times what counts as zero, and the latents may still be mixed"
    return ""


def _nearest(differences: FloatArray) -> float | None:
    """Return the difference that is nearest, by ratio, to the middle between equal and different."""
    pairs = differences[:, *np.triu_indices(differences.shape[1], 1)].ravel()
    ratios = np.abs(np.log(np.maximum(pairs, 1e-300) / np.sqrt(ZONE)))
    return float(pairs[ratios.argmin()]) if len(pairs) else None


def _partition(difference: FloatArray) -> Partition:
    """Join the components that have equal laws, or are linked by such."""
    return _numbered(connected_components(difference <= 1, directed=False)[1].tolist())


def _unclear(differences: FloatArray, names: IntArray) -> str:
    """Name latents whose laws are neither clearly equal nor different, or equal in a chain only; "" for none."""
    found: dict[int, str] = {}
    for t, difference in enumerate(differences):
        blocks = np.array(_partition(difference))
        doubtful = np.triu((difference > 1) & ((difference < ZONE) | (blocks[:, None] == blocks)), 1)
        if doubtful.any():
            a, b = np.unravel_index(np.where(doubtful, difference, np.inf).argmin(), difference.shape)
            size = difference[a, b]
            why = f"{ZONE:g} times would decide" if size < ZONE else "yet others, each equal to the next, link them"
            found[t] = (
                f"It is not clear whether latent {t} has one law in components {names[a]} and {names[b]}: they differ "
                f"by {size:.3g} times what counts as equal, {why}"
            )
    others = list(found)[1:]
    return "".join(list(found.values())[:1]) + (f"; nor is it for {_named('latent', others)}" if others else "")


def _alike(partitions: Sequence[Partition], names: IntArray) -> str:
    """Name two components that have one law in every latent; "" if there are none."""
    joint = _refinement(partitions, len(names))
    seen: dict[int, int] = {}
    for j, block in enumerate(joint):
        if block in seen:
            return (
                f"Components {names[seen[block]]} and {names[j]} have the same law, against (P3a): merge them into one"
            )
        seen[block] = j
    return ""


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

    def named(self, i: int) -> str:
        return f"U_{i + 1} ({self.size} states, moves {_named('latent', self.neighbours)})"


def _variables(partitions: Sequence[Partition]) -> list[_Variable]:
    """Find what is not the common refinement of what is coarser, in order of latents; [] for too large a closure."""
    found: list[_Variable] = []
    for p in sorted(_closure(partitions), key=max):
        within = tuple(v.partition for v in found if _refines(p, v.partition))
        base = _refinement(within, len(p))
        if base != p:
            moved = tuple(t for t, law in enumerate(partitions) if _refines(law, p))
            found.append(_Variable(p, moved, within, _places(p, base)))
    return sorted(found, key=lambda v: v.neighbours)


def _closure(partitions: Sequence[Partition]) -> set[Partition]:
    """Return the trivial partition and all meets; none if they are more than the components."""
    J, given = len(partitions[0]), set(partitions)
    found, new = given | {(0,) * J}, given
    while new and len(found) <= J:
        new = {_meet(p, q) for p in new for q in given} - found
        found |= new
    return found if len(found) <= J else set()


def _places(p: Partition, base: Partition) -> Partition:
    """Give each component the number of its block of p within its block of a coarser partition."""
    numbers: dict[int, dict[int, int]] = {}
    inner = (numbers.setdefault(outer, {}) for outer in base)
    return tuple(known.setdefault(block, len(known)) for block, known in zip(p, inner, strict=True))


def _nested(variables: Sequence[_Variable]) -> str:
    """Name a variable that moves only latents another moves too; "" if there is none."""
    numbers = {v.partition: i for i, v in enumerate(variables)}
    for i, v in enumerate(variables):
        if v.within:
            j = numbers[v.within[0]]
            return (
                f"{v.named(i)} moves only latents that {variables[j].named(j)} moves too, against (P3c), so that P(U) "
                "cannot be known"
            )
    return ""


def _missing(variables: Sequence[_Variable], partitions: Sequence[Partition], names: IntArray) -> str:
    """Say which state of the variables has no component; "" if none is missing."""
    J, sizes = len(names), [v.size for v in variables]
    if math.prod(sizes) == J:
        return ""
    either = (
        "either P(U = u) = 0 for some u, or some latent has one law in different states of what moves it, against (P3a)"
    )
    if not variables:
        latents = _named("Latent", [t for t, partition in enumerate(partitions) if max(partition)])
        return (
            f"{latents} and what they have in common divide the {J} components in more than {J} ways, and {J} states "
            f"of hidden variables allow no more: {either}"
        )
    words = (
        f"The laws of the latents show {join_few([v.named(i) for i, v in enumerate(variables)])}, which would have "
        f"{math.prod(sizes)} states, and there are {J} components"
    )
    if not any(v.within for v in variables):  # else states of one number in different blocks are not the same
        present = set(zip(*(v.states for v in variables), strict=True))
        absent = next(u for u in islice(np.ndindex(*sizes), J + 1) if u not in present)
        like = [names[v.states.index(u)] for v, u in zip(variables, absent, strict=True)]
        words += f", but none with {join_few([f'U_{i} as in component {j}' for i, j in enumerate(like, 1)])}"
    return f"{words}: {either}"


def _numbered(labels: Iterable[object]) -> Partition:
    """Give blocks numbers in order of their first components."""
    numbers: dict[object, int] = {}
    return tuple(numbers.setdefault(label, len(numbers)) for label in labels)


def _meet(p: Partition, q: Partition) -> Partition:
    """Return the finest partition coarser than both: blocks that overlap are one.

    Examples
    --------
    >>> _meet((0, 0, 1, 2), (0, 1, 1, 2))
    (0, 0, 0, 1)
    """
    above = list(range(max(p) + 1))  # a forest of the blocks of p; a tree is a block of the meet
    meets: dict[int, int] = {}  # the first block of p that a block of q overlaps

    def root(block: int) -> int:
        while above[block] != block:
            above[block] = block = above[above[block]]
        return block

    for block, other in zip(p, q, strict=True):
        above[root(block)] = root(meets.setdefault(other, block))
    return _numbered(root(block) for block in p)


def _refinement(partitions: Sequence[Partition], J: int) -> Partition:
    """Return the coarsest partition finer than all; the trivial one of J components for none.

    Examples
    --------
    >>> _refinement([(0, 0, 1, 1), (0, 1, 1, 1)], 4)
    (0, 1, 2, 2)
    """
    return _numbered(zip(*partitions, strict=True)) if partitions else (0,) * J


def _refines(p: Partition, q: Partition) -> bool:
    """Tell whether every block of p lies in one of q."""
    return len(set(zip(p, q, strict=True))) == max(p) + 1


def _named(noun: str, which: Sequence[int]) -> str:
    return f"{noun}{'s' if len(which) > 1 else ''} " + join_few([str(i) for i in which], most=12)
