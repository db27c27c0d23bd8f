"""Agreement between runs: what comes back from another start, latent by latent, up to an affine map, or as a law.

For runs r, s with latents a, b (N, n) of the same rows, and learnt Gaussian mixtures p, q of these latents:

- strong MCC: max over one-to-one maps of the mean |corr(a_i, b_pi(i))|. 1: the same latents up to order and scale.
- weak MCC: the same of the canonical variates of a and b, the alignment fitted on a random half of the rows and scored
  on the other. 1: the same latents up to an affine map.
- dist_Aff,L2: min over affine maps A of ||A#p - q|| / sqrt(||A#p|| ||q||), in [0, sqrt 2). 0: the same law up to an
  affine map.

References
----------
Kivva, Rajendran, Ravikumar, Aragam, Identifiability of deep generative models without auxiliary information, NeurIPS
2022, App. J.1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from identifiable.arrays import Array
from identifiable.distributions.mixture import Mixture
from identifiable.metrics import agreement, dist_aff_l2, weak_mcc
from identifiable.theory import Check

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STABLE, DOUBTFUL = 0.96, 0.90  # agreement between restarts; see docs/estimators.md
ROUNDING = 1e-9
ROWS_PER_LATENT = 2  # a half must have more, or the alignment fits noise
_ANNOTATED = 15  # runs whose numbers a picture has room for


def judge(score: float) -> str:
    """Return "stable", "doubtful" or "unstable", or "unchecked" for NaN.

    Examples
    --------
    >>> judge(0.97), judge(0.95), judge(0.5), judge(float("nan"))
    ('stable', 'doubtful', 'unstable', 'unchecked')
    """
    if np.isnan(score):
        return "unchecked"
    return "stable" if score >= STABLE else "doubtful" if score >= DOUBTFUL else "unstable"


@dataclass(frozen=True, eq=False, repr=False)
class Stability:
    """How far R restarts agree on rows they were not trained on.

    pairwise[r, s] is the MCC between the latents of restarts r and s (R, R). A restart's agreement is its mean MCC with
    the others; the one that agrees most is kept. Agreement is necessary for recovery and not sufficient: a method that
    always ends at the same wrong answer agrees with itself.

    Attributes
    ----------
    pairwise : (R, R) strong MCC, on all rows: nothing is fitted.
    weak : (R, R) weak MCC, on the half of the rows the alignment was not fitted to; None for a single restart, and
        where a half has no more than two rows per latent. It tells nothing of linear maps to as many latents as
        columns: any two of them have the same span.
    distances : (R, R) dist_Aff,L2 between the learnt mixtures, an upper bound of it; None where there are none.
    affine : whether `pairwise` was measured up to an affine map already.

    Examples
    --------
    >>> import numpy as np
    >>> s = Stability(np.array([[1.0, 0.9, 0.5], [0.9, 1.0, 0.6], [0.5, 0.6, 1.0]]))
    >>> s.chosen, round(s.score, 2), s.status
    (1, 0.75, 'unstable')
    >>> z = np.random.default_rng(0).normal(size=(1000, 2))
    >>> s = Stability.of([z, z @ [[0.8, 0.6], [-0.6, 0.8]]])
    >>> round(s.score, 2), round(s.weak_score, 2), s.other_axes
    (0.8, 1.0, True)
    >>> print(s.reading)
    The runs agree on the span of the latents (1.00 after an affine alignment), not on the axes (0.80).
    """

    pairwise: Array
    weak: Array | None = None
    distances: Array | None = None
    affine: bool = False

    @classmethod
    def of(
        cls, latents: NDArray[Any] | Sequence[NDArray[Any]], mixtures: Sequence[Mixture] | None = None, seed: int = 0
    ) -> "Stability":
        """Compare latents of the same rows, and mixtures where they are given.

        Parameters
        ----------
        latents : (R, N, n), or R tables (N, n_r): a latent that one of two restarts lacks counts 0. A restart that is
            not finite agrees with none.
        mixtures : the laws of the latents, one per restart, of one dimension and with covariances of full rank.
        seed : which half of the rows an alignment is fitted to, and the starts of the search for a distance.
        """
        runs = [np.asarray(run, dtype=np.float64) for run in latents]
        finite = [r for r, run in enumerate(runs) if np.isfinite(run).all()]
        pairwise = np.zeros((len(runs), len(runs)))
        if finite:
            found = agreement([runs[r] for r in finite])
            same_width = len({runs[r].shape[1] for r in finite}) == 1
            pairwise[np.ix_(finite, finite)] = found if same_width else np.minimum(found, found.T)  # the wider first
        return cls(pairwise, _weak(runs, finite, seed), None if mixtures is None else distances_of(mixtures, seed))

    @property
    def agreement(self) -> Array:
        """Mean MCC of each restart with the others (R,); NaN for a single restart."""
        return _with_others(self.pairwise)

    @property
    def chosen(self) -> int:
        """The restart that agrees most with the others; the first of those that differ by rounding errors."""
        return int((self.agreement >= self.agreement.max() - ROUNDING).argmax())

    @property
    def score(self) -> float:
        """Agreement of the chosen restart."""
        return float(self.agreement[self.chosen])

    @property
    def weak_score(self) -> float:
        """Mean weak MCC of the chosen restart with the others; NaN where it was not measured."""
        return float("nan") if self.weak is None else float(_with_others(self.weak)[self.chosen])

    @property
    def status(self) -> str:
        """Return "stable", "doubtful", "unstable", or "unchecked" for a single restart."""
        return judge(self.score)

    @property
    def other_axes(self) -> bool:
        """Whether an affine alignment makes restarts agree that do not, or not as well, without one."""
        order = ("unchecked", "unstable", "doubtful", "stable")
        return not self.affine and order.index(judge(self.weak_score)) > order.index(self.status) > 0

    @property
    def reading(self) -> str:
        """What the numbers say, in a sentence."""
        if self.status == "unchecked":
            return "There is one run only, and nothing to compare it with."
        how = {"stable": "agree", "doubtful": "nearly agree", "unstable": "do not agree"}
        if self.other_axes:
            but = "less so" if self.status == "doubtful" else "not"
            words = (
                f"The runs {how[judge(self.weak_score)]} on the span of the latents ({self.weak_score:.2f} after an "
                f"affine alignment), {but} on the axes ({self.score:.2f})"
            )
        else:
            up_to = "an affine map" if self.affine else "order and scale"
            words = f"The runs {how[self.status]} on the latents up to {up_to} ({self.score:.2f})"
            if not (self.affine or self.weak is None or self.status == "stable"):
                no_more = "nor" if self.status == "unstable" else "and no more"
                words += f", {no_more} after an affine alignment ({self.weak_score:.2f})"
        if self.distances is not None:
            apart = float(_with_others(self.distances)[self.chosen])
            words += f"; up to an affine map their mixtures are {apart:.2f} apart (at most 1.41)"
        return f"{words}."

    @property
    def check(self) -> Check:
        """Whether restarts recover the same latents, as a check of a certificate."""
        status, seen = self.status, f"Restarts agree at {self.score:.2f} on held-out rows (stable from {STABLE}, "
        words = "not recovered" if status == "unstable" else status
        aligned = f" After an affine alignment they agree at {self.weak_score:.2f}." if self.other_axes else ""
        return Check(
            name="agreement",
            statement="restarts recover the same latents",
            statistic=None if status == "unchecked" else self.score,
            threshold=STABLE,
            verdict="fails" if status == "unstable" else "holds" if status == "stable" else "inconclusive",
            sentence="There is one restart only, and nothing to compare it with."
            if status == "unchecked"
            else f"{seen}doubtful from {DOUBTFUL}): {words}.{aligned}",
        )

    def plot(self) -> "Figure":
        """Draw the matrices side by side, dark where runs agree; the run that agrees most is framed."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        strong = "sqrt R²\nup to an affine map" if self.affine else "strong MCC\nup to order and scale"
        panels: list[tuple[str, Array, str, float]] = [(strong, self.pairwise, "Blues", 1.0)]
        if self.weak is not None:
            panels.append(("weak MCC\nup to an affine map", self.weak, "Blues", 1.0))
        if self.distances is not None:
            panels.append(("dist_Aff,L2\nbetween the mixtures", self.distances, "Blues_r", 2**0.5))
        side = min(max(2.2, 0.46 * len(self.pairwise)), 7.0)  # of a panel, in inches
        width = len(panels) * (side + 0.45) + 0.4
        words = fill(self.reading, int(13 * width))
        layout = ConstrainedLayoutEngine(compress=True, h_pad=0.08, w_pad=0.08)
        figure = Figure(figsize=(width, side + 1.35 + 0.14 * len(words.splitlines())), layout=layout)
        FigureCanvasAgg(figure)
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            self._draw(axes, *panel)
        figure.suptitle(words, fontsize=9)
        figure.supxlabel("run (framed: agrees most)", fontsize=9)
        return figure

    def _draw(self, axes: "Axes", title: str, values: Array, colours: str, most: float) -> None:
        """Draw a matrix of values between 0 and `most`; the diagonal says nothing and stays empty."""
        runs = len(values)
        shown = np.where(np.eye(runs, dtype=bool), np.nan, values)
        image = axes.imshow(shown, vmin=0, vmax=most, cmap=colours)
        axes.set_facecolor("0.94")
        if runs <= _ANNOTATED:
            for (r, s), value in np.ndenumerate(shown):
                if r != s:
                    ink = "white" if sum(image.to_rgba(value)[:3]) < 1.5 else "black"
                    words = f"{value:.{3 if runs <= 5 else 2}f}"
                    axes.text(s, r, words, ha="center", va="center", color=ink, fontsize=9 if runs <= 5 else 8)
        every = range(0, runs, 1 + runs // 20)
        axes.set_xticks(every, [str(r) for r in every], fontsize=8)
        axes.set_yticks(every, [str(r) for r in every], fontsize=8)
        for edge in np.arange(1, runs) - 0.5:
            axes.axhline(edge, color="white", linewidth=1)
            axes.axvline(edge, color="white", linewidth=1)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        if runs > 1:
            x, y = np.array([0, runs, runs, 0, 0]) - 0.5, self.chosen + np.array([0, 0, 1, 1, 0]) - 0.5
            axes.plot(x, y, color="black", linewidth=1.5, clip_on=False)
            axes.set(xlim=(-0.5, runs - 0.5), ylim=(runs - 0.5, -0.5))
        axes.set_title(title, fontsize=10)

    def __repr__(self) -> str:
        runs = len(self.pairwise)
        return (
            f"Stability({runs} run{'s' * (runs > 1)}, {self.status}. {self.reading} Agreement is necessary for "
            "recovery, not sufficient.)"
        )


def distances_of(mixtures: Sequence[Mixture], seed: int = 0) -> Array:
    """Return dist_Aff,L2 between all pairs of R mixtures, (R, R), symmetric with a diagonal of 0.

    Examples
    --------
    >>> p = Mixture([0.2, 0.3, 0.5], [[0, 0], [3, 1], [-1, 2]], [[1, 2], [2, 1], [1, 1]])
    >>> distances_of([p, p.pushforward([[2, 1], [0, -3]], [5, 5])]).round(5)
    array([[0., 0.],
           [0., 0.]])
    """
    found = np.zeros((len(mixtures), len(mixtures)))
    for r, s in combinations(range(len(mixtures)), 2):
        found[r, s] = found[s, r] = dist_aff_l2(mixtures[r], mixtures[s], random_state=seed)
    return found


def _weak(runs: Sequence[Array], finite: Sequence[int], seed: int) -> Array | None:
    """Weak MCC of all pairs; None where there is no pair, or too few rows to align the widest."""
    widths = [run.shape[1] for run in runs]
    if len(runs) == 1 or len(runs[0]) // 2 <= ROWS_PER_LATENT * max(widths):
        return None
    # The peak is divided out, which changes no correlation, so that a run that has diverged does not overflow.
    units = {r: runs[r] / np.maximum(np.abs(runs[r]).max(0), np.finfo(np.float64).tiny) for r in finite}
    found = np.zeros((len(runs), len(runs)))
    for r, s in combinations_with_replacement(finite, 2):
        shared = min(widths[r], widths[s]) / max(widths[r], widths[s])  # a latent without a partner counts 0
        found[r, s] = found[s, r] = shared * weak_mcc(units[r], units[s], random_state=seed)
    return found


def _with_others(values: Array) -> Array:
    """Mean of each row (R,) without the diagonal; NaN for a single row."""
    if len(values) == 1:
        return np.full(1, np.nan)
    return (values.sum(1) - np.diag(values)) / (len(values) - 1)
