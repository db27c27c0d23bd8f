"""`certify`: the theorem that applies to a distribution of latents, or the certificate of a fitted estimator."""

from typing import Any

from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from identifiable.distributions.conditional import ConditionalPrior
from identifiable.distributions.mixture import Mixture
from identifiable.errors import DataError
from identifiable.theory import degenerate, full_rank
from identifiable.theory.certificate import Certificate
from identifiable.theory.decoders import Decoder
from identifiable.theory.given_u import Observation, certify_conditional
from identifiable.theory.supports import supports_of
from identifiable.theory.thresholds import THRESHOLDS


def certify(
    model: Any,
    *,
    estimated: bool = False,
    injective: bool | None = None,
    affine: bool = False,
    decoder: Decoder | None = None,
    rows: ArrayLike | None = None,
    observation: Observation | None = None,
    tolerance: float | None = None,
) -> Certificate:
    """Return what is identified when z follows a distribution and x is observed: none < ATwC < AT < blocks < PS.

    Parameters
    ----------
    model : the distribution of the latents, true or learnt, or a fitted estimator. A `Mixture` is judged by Kivva et
        al. (2022) if all its components have full rank (`identifiable.theory.full_rank`), else by Xu et al. (2026,
        `identifiable.theory.degenerate`); a `ConditionalPrior` by Khemakhem et al. (2020,
        `identifiable.theory.given_u`). For an estimator the result is its `certificate_`, and no other argument is
        accepted: the estimator knows them.
    estimated : bool, default=False. Whether the distribution was learnt: the default tolerance is larger, and the
        certificate says so.
    injective : bool or None, default=None. Whether the mixing is injective and continuous, for a mixture also piecewise
        affine. None: not known; the check is then inconclusive, which lowers the level.
    affine : bool, default=False. Mixtures only: the mixing is known to be affine.
    decoder : Decoder or None, default=None. Mixtures only: the mixing by its layers, which are judged; see
        `identifiable.theory.injectivity`.
    rows : int, array (J,) or None, default=None. Mixtures only: the number of rows the mixture was estimated on, or
        that each component is worth. If components are singular, each row has to belong to its component beyond doubt.
    observation : str or None, default=None. Conditional priors only: the noise of x around f(z), "none", "gaussian",
        "gaussian-unknown", "bernoulli" or "categorical"; see `certify_conditional`. None: inconclusive.
    tolerance : float or None, default=None. Differences up to it count as zero, in standard deviations. None: 1e-5, or
        0.05 when estimated.

    Examples
    --------
    >>> print(certify(Mixture([0.7, 0.3], [[3, 0], [1, 4]], [[1, 0], [0, 1]]), injective=True).theorem)
    Theorem 3.9 (Xu et al. 2026), with straight latents in place of 3.4
    >>> print(certify(Mixture([0.5, 0.5], [[3, 0], [1, 4]], [[1, 2], [2, 1]]), injective=True).theorem)
    Theorem 3.2b (Kivva et al. 2022), and f by Theorem 3.2c
    >>> prior = ConditionalPrior("mean", [[0, 0], [2, 0], [0, 3]], [[1, 1], [1, 1], [1, 1]])
    >>> print(certify(prior, injective=True, observation="none").theorem)
    Theorem 1 (Khemakhem et al. 2020)
    """
    given: dict[str, Any] = {"estimated": estimated, "injective": injective, "tolerance": tolerance}
    if isinstance(model, Mixture):
        _refuse("a Mixture", observation=observation)
        return _certify_mixture(model, decoder, rows, affine=affine, **given)
    for_mixtures = {"affine": affine or None, "decoder": decoder, "rows": rows}
    if isinstance(model, ConditionalPrior):
        _refuse("a ConditionalPrior", **for_mixtures)
        return certify_conditional(model, observation=observation, **given)
    certificate = _certificate_of(model)
    _refuse("an estimator", **given | for_mixtures | {"estimated": estimated or None, "observation": observation})
    return certificate


def _certify_mixture(mixture: Mixture, decoder: Decoder | None, rows: ArrayLike | None, **given: Any) -> Certificate:
    """Choose the paper by the ranks of the components."""
    given["estimated"] = given["estimated"] or rows is not None
    supports = supports_of(mixture, THRESHOLDS.tolerance(given["tolerance"], estimated=given["estimated"]))
    if (supports.ranks == len(supports.white)).all():
        return full_rank.certify(mixture, decoder=decoder, rows=rows, **given)
    if decoder is not None:
        piecewise, _, _, one_to_one = full_rank.check_decoder(
            mixture, decoder, given["injective"], affine=given["affine"]
        )
        verdicts = {piecewise.verdict, one_to_one.verdict}
        given["injective"] = False if "fails" in verdicts else True if verdicts == {"holds"} else None
    return degenerate.certify(mixture, rows=rows, **given)


def _certificate_of(model: Any) -> Certificate:
    """Return the certificate of a fitted estimator."""
    if isinstance(model, BaseEstimator):
        check_is_fitted(model)
    certificate = getattr(model, "certificate_", None)
    if not isinstance(certificate, Certificate):
        kinds = "a Mixture, a ConditionalPrior or a fitted estimator with a certificate"
        raise TypeError(f"certify takes {kinds}, got {type(model).__name__}.")
    return certificate


def _refuse(kind: str, **arguments: Any) -> None:
    """Raise if an argument was given that has no meaning for this kind of model."""
    for name, value in arguments.items():
        if value is not None:
            raise DataError(f"{name} does not apply to {kind}, got {value!r}. Leave it out.")
