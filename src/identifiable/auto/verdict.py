"""What is said of a table and of each latent: rules on agreements, certificates and numbers of rows.

Two statements are kept apart. A latent is *reproducible* ("stable") if refits find it again; this is measured. It is
*guaranteed* if a theorem says so whose assumptions were tested; this is the certificate. A table is "identified" only
if all its latents are both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from identifiable.agreement.stability import THRESHOLDS, judge
from identifiable.arrays import Array, FloatArray
from identifiable.data.columns import THRESHOLDS as COLUMNS
from identifiable.errors import join_few
from identifiable.theory import Certificate, Level

MOST_COST = 0.1  # share of the gain that estimating a reproducible model costs; set on Laplace latents
LATE = "not enough time to train it"
GAIN_PER_LATENT = 0.05  # nats per row: what few rows must not hide. A Laplace latent gains .07, a uniform one .18


@dataclass(frozen=True)
class Candidate:
    """A model that was tried.

    Attributes
    ----------
    name, says : the model, and the structure that it assumes.
    linear, given_u : whether its mixing is affine; whether it was given u.
    gain, error : mean log-likelihood of held-out rows above that of a Gaussian with as many latents, in nats per row,
        and its standard error.
    agreement : of its restarts on held-out rows; NaN if nothing about it is random.
    non_gaussian : whether a test on all rows shows that some latent is not Gaussian, where held-out rows are too few.
    inactive : number of latents shown to be inactive in many rows, up to noise (`SparseUnmixing.established_`).
    halves : (n,) of each latent of a linear model with fits to two halves of the rows; empty if not measured.
    like_linear : of a trained model: mean |correlation| of its latents with those of the linear model most like it.
    seconds : time it took.
    note : why it does not count; "" if it does.
    steps : training steps, by name of the parameter; they depend on the time budget. Empty for linear models.
    """

    name: str
    says: str
    linear: bool
    given_u: bool
    gain: float = np.nan
    error: float = np.nan
    agreement: float = np.nan
    non_gaussian: bool = False
    inactive: int = 0
    halves: tuple[float, ...] = ()
    like_linear: float = np.nan
    seconds: float = 0.0
    note: str = ""
    steps: Mapping[str, int] = field(default_factory=dict)

    def on(self, gain: FloatArray) -> "Candidate":
        """Return the same candidate with the gains of these rows."""
        return replace(self, gain=float(gain.mean()), error=float(gain.std() / len(gain) ** 0.5))

    @property
    def reproducible(self) -> float:
        """Mean agreement of latents between halves, each counted up to what is needed; 0 if not measured."""
        return float(np.minimum(self.halves, THRESHOLDS.stable).mean()) if self.halves else 0.0


@dataclass(frozen=True)
class LatentReport:
    """Reliability of one latent.

    Attributes
    ----------
    verdict : "stable", "doubtful" or "unstable": whether it is reproducible, by the lowest of the next three.
    seed_agreement : |correlation| with the matched latent in refits from other seeds, on held-out rows. Linear models:
        the mean of several refits to all training rows. Trained models: one refit to 80 % of the training rows.
    split_half_agreement : the lower |correlation| with the matched latents of two fits to disjoint halves of the rows,
        on rows held out from both. Linear models: the mean over three splits. Each fit computes its own components.
    alternative_agreement : mean |correlation| with the matched latents of alternative models; NaN without one.
    inactive_share : share of rows in which the latent is inactive; NaN for models without inactive latents.
    block : latents it is known together with only, itself among them.
    columns : its effect on each column, in standard deviations of the column, of moving it from its lower to its upper
        decile, by name, strongest first. Empty for keypoints of images.
    meaning : what it is by the architecture of the model, such as "x of thing 1"; "" if the architecture does not say.
    column : the column that it equals, by name; "" if it equals none.
    guaranteed : whether a theorem guarantees it, alone or with its block: see the certificate.
    rows : effective number of rows that carry it; NaN if not measured.
    """

    verdict: str
    seed_agreement: float
    split_half_agreement: float
    alternative_agreement: float
    inactive_share: float
    block: tuple[int, ...]
    columns: Mapping[str, float] = field(default_factory=dict)
    meaning: str = ""
    column: str = ""
    guaranteed: bool = False
    rows: float = np.nan


@dataclass(frozen=True)
class Verdict:
    """The verdict on each latent, that on the table (one of `HEADLINES`), and why, a sentence each."""

    latents: tuple[LatentReport, ...]
    fit: str
    reasons: tuple[str, ...] = ()


HEADLINES = {  # verdicts on a table, and whether its latents may be used
    "identified": True,
    "reproducible": True,
    "partly reproducible": True,
    "not a mixture": False,
    "Gaussian": False,
    "too few rows": False,
    "not enough time": False,
    "not reproducible": False,
}


def headline(verdict: str, stable: int, n: int) -> str:
    """Return the verdict on n latents, of which some are stable, in one sentence.

    Examples
    --------
    >>> print(headline("partly reproducible", 3, 5))
    3 of 5 latents are reproducible
    """
    every = {1: "The latent is", 2: "Both latents are"}.get(n, f"All {n} latents are")
    return {
        "identified": f"{every} reproducible and identified",
        "reproducible": f"{every} reproducible",
        "partly reproducible": f"{stable} of {n} latents are reproducible",
        "not a mixture": "The columns are not mixed: the latents are the columns",
        "Gaussian": "A Gaussian explains the table as well, and has no preferred axes",
        "too few rows": "There are too few rows to find reproducible latents",
        "not enough time": "There was not enough time to confirm the latents",
    }.get(verdict, "No latent is reproducible")


def judge_latents(
    seeds: Array, halves: Array, alternatives: Array, *, rows: Array | None = None, identifiable: bool = True
) -> tuple[LatentReport, ...]:
    """Judge latents by their agreements (n,) with refits from other seeds and to halves, and with alternative models.

    NaN in `seeds` or `halves` means that no refit ended: the latent is not confirmed, and doubtful at best. NaN in
    `alternatives` means that no alternative model exists. A latent that fewer `rows` (n,) carry than ten is unstable.
    """
    lowest = np.fmin(np.minimum(seeds, halves), alternatives)
    carried = np.full(len(lowest), np.nan) if rows is None else rows
    found = []
    for i, low in enumerate(lowest):
        verdict = "doubtful" if np.isnan(seeds[i] + halves[i]) else judge(float(low))
        if not identifiable or carried[i] < COLUMNS.carried:
            verdict = "unstable"
        numbers = float(seeds[i]), float(halves[i]), float(alternatives[i])
        found.append(LatentReport(verdict, *numbers, np.nan, (i,), rows=float(carried[i])))
    return tuple(found)


@dataclass(frozen=True)
class Evidence:
    """What a verdict on a table depends on, apart from its latents.

    Attributes
    ----------
    n_rows : of the table.
    gaussian : whether no model explains held-out rows better than a Gaussian.
    gain : of the selected model, in nats per row, and its standard error.
    confirmed : whether all refits ended.
    certificate : of the selected model, or None.
    unmixed : whether each latent equals another column, and no column is left.
    enough : number of rows at which all latents would be reproducible, by simulation; None if unknown.
    final : whether no other model is still to be tried.
    """

    n_rows: int
    gaussian: bool = False
    gain: tuple[float, float] = (np.nan, np.nan)
    confirmed: bool = True
    certificate: Certificate | None = None
    unmixed: bool = False
    enough: int | None = None
    final: bool = True


def verdict_of(latents: Sequence[LatentReport], evidence: Evidence) -> Verdict:
    """Return the verdict on a table with these latents."""
    n, stable = len(latents), sum(latent.verdict == "stable" for latent in latents)
    if evidence.gaussian:
        return _gaussian(tuple(latents), evidence)
    if not evidence.confirmed:
        reason = "Not all refits that would confirm the latents ended in time: they are not confirmed."
        return Verdict(tuple(latents), "not enough time", (reason,))
    if evidence.unmixed:
        reason = "Each latent equals one column: the columns vary independently of each other, and nothing is mixed."
        return Verdict(tuple(latents), "not a mixture", (reason,))
    if stable == n:
        return _reproducible(tuple(latents), evidence)
    reasons = [f"{stable} of {n} latents are reproducible: from other seeds, and from each half of the rows."]
    enough = evidence.enough or rows_by_cost(evidence.n_rows, n, evidence.gain[0])
    if enough is not None:
        reasons.append(f"About {_rounded(enough)} rows would make all of them reproducible.")
    few = enough is not None and 2 * stable < n
    fit = "too few rows" if few else "partly reproducible" if stable else "not reproducible"
    return Verdict(tuple(latents), fit, tuple(reasons))


def _reproducible(latents: tuple[LatentReport, ...], evidence: Evidence) -> Verdict:
    reason = f"All {len(latents)} latents are reproducible: from other seeds, and from each half of the rows."
    certificate = evidence.certificate
    if certificate is None:
        return Verdict(latents, "reproducible", (reason, "No theorem says whether they are identified."))
    if certificate.level != Level.PS:
        open_checks = [check.name for check in certificate.checks if check.verdict != "holds"]
        names = f" ({join_few(open_checks)})" if open_checks else ""
        return Verdict(latents, "reproducible", (reason, f"Not guaranteed by a theorem: see the certificate{names}."))
    guaranteed = "A theorem guarantees them, as far as its assumptions can be tested: see the certificate."
    return Verdict(latents, "identified" if evidence.final else "reproducible", (reason, guaranteed))


def _gaussian(latents: tuple[LatentReport, ...], evidence: Evidence) -> Verdict:
    needed = rows_to_tell(evidence.n_rows, len(latents), *evidence.gain)
    if needed is None:
        return Verdict(latents, "Gaussian")
    reason = (
        f"{evidence.n_rows} rows are too few to tell {len(latents)} latents from a Gaussian: the gain of "
        f"{evidence.gain[0]:+.2f} ± {evidence.gain[1]:.2f} nats per row may be chance. About {needed} rows would do."
    )
    return Verdict(latents, "too few rows", (reason,))


def rows_to_tell(rows: int, n: int, gain: float, error: float) -> int | None:
    """Return about how many rows tell n latents from a Gaussian; None if the held-out gain (nats per row) already does.

    It does if a gain of 0.05 per latent is more than two standard errors above what was found, and what estimating n (n
    - 1) / 2 angles and about five numbers per density costs.

    >>> rows_to_tell(200, 5, 0.2, 0.1), rows_to_tell(3000, 5, -0.01, 0.01)
    (290, None)
    """
    least, cost = GAIN_PER_LATENT * n, _numbers(n) / (2 * rows)
    if gain + cost + 2 * error < least:
        return None
    return _rounded(rows * max(1.0, cost / least, (3 * error / max(gain, least)) ** 2))


def rows_by_cost(rows: int, n: int, gain: float) -> int | None:
    """Return at how many rows estimating n latents costs a tenth of their gain (nats per row); None if more are there.

    Where simulation gives no number, as densities fitted to few rows are too sharp, this is the reason. Laplace latents
    in 200 to 800 rows become reproducible at about this cost.

    >>> rows_by_cost(400, 10, 0.58), rows_by_cost(5000, 10, 0.58)
    (818, None)
    """
    enough = _numbers(n) / (2 * MOST_COST * gain) if gain > 0 else 0.0
    return int(enough) if enough > rows else None


def _numbers(n: int) -> float:
    """Return how many numbers describe n independent latents: the angles, and about five for each density."""
    return n * (n - 1) / 2 + 5 * n


def _rounded(rows: float) -> int:
    """Return two leading digits of a number of rows."""
    digits = 10 ** max(int(np.log10(max(rows, 1))) - 1, 0)
    return int(round(rows / digits) * digits)
