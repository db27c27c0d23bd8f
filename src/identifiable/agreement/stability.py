"""Agreement between runs: latent by latent, up to an affine map of the latents, and between their mixtures.

For runs r, s with latents a, b (N, n) of the same rows, and learnt Gaussian mixtures p, q of these latents:

- strong MCC: max over one-to-one maps of the mean |corr(a_i, b_pi(i))|. 1: the same latents up to order and scale.
- weak MCC: the same of the canonical variates of a and b, the alignment fitted on a random half of the rows and scored
  on the other. 1: the same latents up to an affine map.
- dist_Aff,L2: min over affine maps A of ||A#p - q|| / sqrt(||A#p|| ||q||), in [0, sqrt 2). 0: the same
  distribution up to an affine map.

References
----------
Kivva, Rajendran, Ravikumar, Aragam, Identifiability of deep generative models without auxiliary information, NeurIPS
2022, App. J.1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from identifiable.arrays import Array, FloatArray
from identifiable.distributions.mixture import Mixture
from identifiable.errors import DataError
from identifiable.metrics import agreement, dist_aff_l2, weak_mcc
from identifiable.theory import Check

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_COMPONENTS = 10  # of mixtures that are compared by default: up to 3 s per pair
ROUNDING = 1e-9
ROWS_PER_LATENT = 2  # a half must have more, or the alignment fits noise


@dataclass(frozen=True)
class AgreementThresholds:
    """Agreement (mean |correlation| of matched latents on held-out rows) that decides a verdict."""

    stable: float = 0.96  # raised from 0.94 in experiments with PDGMM (docs/pdgmm.md); elsewhere a convention
    doubtful: float = 0.90  # from the same experiments
    tie: float = 0.005  # candidates closer than this count as equal; chosen by reasoning


THRESHOLDS = AgreementThresholds()


def most_agreeing(agreement: Array, scores: Array) -> int:
    """Return the restart that agrees most with the others; among equals, as two always are, the one that scores higher.

    Examples
    --------
    >>> most_agreeing(np.array([0.9, 0.9]), np.array([1.0, 2.0])), most_agreeing(np.array([np.nan]), np.zeros(1))
    (1, 0)
    """
    return int(np.where(agreement < agreement.max() - 1e-9, -np.inf, scores).argmax())


def judge(score: float) -> str:
    """Return "stable", "doubtful" or "unstable", or "unchecked" for NaN.

    Examples
    --------
    >>> judge(0.97), judge(0.95), judge(0.5), judge(float("nan"))
    ('stable', 'doubtful', 'unstable', 'unchecked')
    """
    if np.isnan(score):
        return "unchecked"
    return "stable" if score >= THRESHOLDS.stable else "doubtful" if score >= THRESHOLDS.doubtful else "unstable"


@dataclass(frozen=True, eq=False, repr=False)
class Stability:
    """Agreement between R restarts on rows they were not trained on.

    pairwise[r, s] is the MCC between the latents of restarts r and s (R, R). A restart's agreement is its mean MCC with
    the others; the one that agrees most is kept. Agreement is necessary for recovery, not sufficient: a method that
    always ends at the same wrong answer agrees with itself.

    Attributes
    ----------
    pairwise : (R, R) strong MCC, on all rows: nothing is fitted.
    weak : (R, R) weak MCC, on the half of the rows the alignment was not fitted to; None for a single restart, and
        where a half has no more than two rows per latent. It is uninformative for linear maps to as many latents as
        columns: any two of them have the same span.
    distances : (R, R) upper bound of dist_Aff,L2 between the learnt mixtures; None without mixtures.
    affine : whether `pairwise` was already measured up to an affine map.

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
        """Compare latents of the same rows, and mixtures if given.

        Parameters
        ----------
        latents : (R, N, n), or R tables (N, n_r). A latent that one of two restarts lacks counts 0. A restart that is
            not finite agrees with none.
        mixtures : distributions of the latents, one per restart, of one dimension and with covariances of full rank.
        seed : int, default=0. Selects the half of the rows that alignments are fitted to, and the starting points of
            the search for distances.
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
        """Mean weak MCC of the chosen restart with the others; NaN if it was not measured."""
        return float("nan") if self.weak is None else float(_with_others(self.weak)[self.chosen])

    @property
    def status(self) -> str:
        """Return "stable", "doubtful", "unstable", or "unchecked" for a single restart."""
        return judge(self.score)

    @property
    def other_axes(self) -> bool:
        """Whether restarts agree clearly better after an affine alignment: the same span, other axes."""
        order = ("unchecked", "unstable", "doubtful", "stable")
        return not self.affine and order.index(judge(self.weak_score)) > order.index(self.status) > 0

    @property
    def reading(self) -> str:
        """The numbers in a sentence."""
        if self.status == "unchecked":
            return "There is one restart only, and nothing to compare it with."
        how = {"stable": "agree", "doubtful": "nearly agree", "unstable": "do not agree"}
        score, weak = f"{self.score:.2f}", f"{self.weak_score:.2f} after an affine alignment"
        if self.other_axes:
            words = f"The runs {how[judge(self.weak_score)]} on the span of the latents ({weak})"
            words += f", {'less so' if self.status == 'doubtful' else 'not'} on the axes ({score})"
        else:
            up_to = "an affine map" if self.affine else "order and scale"
            words = f"The runs {how[self.status]} on the latents up to {up_to} ({score}"
            words += ")" if self.affine or self.weak is None or self.status == "stable" else f"; {weak})"
        if self.distances is not None:
            apart = float(_with_others(self.distances)[self.chosen])
            words += f"; up to an affine map their mixtures are {apart:.2f} apart (at most 1.41)"
        return f"{words}."

    @property
    def check(self) -> Check:
        """Whether restarts recover the same latents, as a check of a certificate."""
        status = self.status
        return Check(
            name="agreement",
            statement="restarts recover the same latents",
            statistic=None if status == "unchecked" else self.score,
            threshold=THRESHOLDS.stable,
            verdict="fails" if status == "unstable" else "holds" if status == "stable" else "inconclusive",
            sentence=f"{self.reading} Stable from {THRESHOLDS.stable}, doubtful from {THRESHOLDS.doubtful}.",
        )

    def plot(self) -> "Figure":
        """Draw the matrices side by side, dark where runs agree; the run that agrees most is framed."""
        from identifiable.agreement.drawing import plot_stability

        return plot_stability(self)

    def __repr__(self) -> str:
        runs = f"{len(self.pairwise)} run{'s' * (len(self.pairwise) > 1)}"
        return f"Stability({runs}, {self.status}. {self.reading} Agreement is necessary for recovery, not sufficient.)"


def stability(
    runs: Sequence[Any] | NDArray[Any],
    X: ArrayLike | None = None,
    *,
    distances: bool | Literal["auto"] = "auto",
    random_state: int | np.random.RandomState | None = None,
) -> Stability:
    r"""Compare runs of any method on the same rows: latent by latent, up to an affine map, and as mixtures.

    .. math:: \mathrm{MCC}(f_r(X), f_s(X)), \quad \mathrm{MCC}(A f_r(X'), B f_s(X')), \quad
        \min_{C \text{ affine}} \Delta(C_\# p_r, p_s) \qquad \text{for all } r, s,

    the canonical directions A, B fitted on a random half of X and scored on the other, X'. A low strong MCC with a high
    weak one means the same span with other axes (Kivva et al. 2022, App. J.1). Two linear maps to as many latents as
    columns always have the same span.

    Parameters
    ----------
    runs : fitted estimators with transform, or the latents they found: an array (R, N, n) or tables (N, n_r). A latent
        that one of two runs lacks counts 0, and so does one that is constant; a run that is not finite agrees with
        none.
    X : (N, d) array or DataFrame of rows to compare on, best rows that no run was fitted to; None with latents.
    distances : bool or "auto", default="auto". Whether to compare the distributions `run.mixture_` of the latents.
        "auto" does so if every run has one, in the coordinates of its latents, of one dimension, with covariances of
        full rank (others have no L2 norm) and at most 10 components: a pair takes up to 3 s, with 30 of them 14 s.
    random_state : int, RandomState or None. Determines the half.

    Examples
    --------
    >>> from identifiable import SparseUnmixing
    >>> from identifiable.data import make_pdgmm
    >>> x = make_pdgmm(3000, n=5, layers=1, random_state=0).x  # layers=1: an affine mixing
    >>> runs = [SparseUnmixing(5, random_state=seed).fit(x[:2000]) for seed in range(3)]
    >>> stability(runs, x[2000:], random_state=0).pairwise.round(3)
    array([[1., 1., 1.],
           [1., 1., 1.],
           [1., 1., 1.]])
    """
    if not (isinstance(distances, bool) or distances == "auto"):
        raise DataError(f"distances must be True, False or 'auto', got {distances!r}.")
    listed = isinstance(runs, Sequence | np.ndarray) and not hasattr(runs, "transform")
    if not listed or len(runs) < 2:
        got = len(runs) if listed else f"a {type(runs).__name__}"
        raise DataError(f"stability compares at least two runs: pass [one, two, ...]. Got {got}.")
    latents = [_latents_of(run, X, f"runs[{r}]") for r, run in enumerate(runs)]
    rows = {f"runs[{r}]": len(z) for r, z in enumerate(latents)} | ({} if X is None else {"X": np.shape(X)[0]})
    if len(set(rows.values())) > 1:
        found = ", ".join(f"{name} has {n}" for name, n in rows.items())
        raise DataError(f"Pass the latents of the same rows, got: {found}.")
    seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max - 1))
    mixtures = [] if distances is False else _mixtures_of(runs, latents, required=distances is True)
    try:
        return Stability.of(latents, mixtures or None, seed)
    except DataError:  # singular covariances, or other dimensions
        if distances is True:
            raise
        return Stability.of(latents, seed=seed)


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


def _latents_of(run: Any, X: ArrayLike | None, name: str) -> FloatArray:
    """Return the latents (N, n) of a run; NaN is let through, and agrees with none."""
    fitted = hasattr(run, "transform") and not isinstance(run, pd.DataFrame)
    if fitted and X is None:
        raise DataError(f"{name} is a {type(run).__name__}, and X is None: pass rows X (N, d) to compare the runs on.")
    latents = np.asarray(run.transform(X) if fitted else run)
    if latents.ndim != 2 or 0 in latents.shape or latents.dtype.kind not in "fiub":
        what = type(run).__name__ if latents.ndim == 0 else f"latents of shape {latents.shape} and type {latents.dtype}"
        raise DataError(
            f"{name} must be a fitted estimator with transform, or a table (N, n) of its latents, got {what}."
        )
    return latents


def _mixtures_of(runs: Sequence[Any] | NDArray[Any], latents: list[FloatArray], *, required: bool) -> list[Mixture]:
    """Return the mixtures of the runs' latents; none if a run lacks one, or if they are too large to be cheap."""
    pairs = zip((getattr(run, "mixture_", None) for run in runs), latents, strict=True)
    usable = [p for p, z in pairs if isinstance(p, Mixture) and p.means.shape[1] == z.shape[1]]
    if required and len(usable) < len(latents):
        raise DataError(
            f"distances=True needs the mixture_ of every run, in the coordinates of its latents; "
            f"{len(latents) - len(usable)} of {len(latents)} have none. Set distances=False."
        )
    small = len(usable) == len(latents) and max(len(p.weights) for p in usable) <= MOST_COMPONENTS
    return usable if required or small else []
