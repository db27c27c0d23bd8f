"""Certificates: which theorem applies to a law of latents, and what it says is identified. One module per paper."""

from typing import overload

from identifiable.distributions.conditional import ConditionalPrior
from identifiable.distributions.mixture import Mixture
from identifiable.errors import DataError
from identifiable.theory import degenerate, full_rank
from identifiable.theory.certificate import Certificate, Check, Level, Verdict
from identifiable.theory.decoders import Decoder
from identifiable.theory.given_u import Observation, certify_conditional
from identifiable.theory.structure import Structure, structure_of
from identifiable.theory.supports import supports_of

__all__ = ["Certificate", "Check", "Decoder", "Level", "Structure", "Verdict", "certify", "structure_of"]


@overload
def certify(
    law: Mixture,
    *,
    estimated: bool = False,
    injective: bool | None = None,
    affine: bool = False,
    decoder: Decoder | None = None,
    rows: int | None = None,
    tolerance: float | None = None,
) -> Certificate: ...


@overload
def certify(
    law: ConditionalPrior,
    *,
    estimated: bool = False,
    injective: bool | None = None,
    observation: Observation | None = None,
    tolerance: float | None = None,
) -> Certificate: ...


def certify(
    law: Mixture | ConditionalPrior,
    *,
    estimated: bool = False,
    injective: bool | None = None,
    affine: bool = False,
    decoder: Decoder | None = None,
    rows: int | None = None,
    observation: Observation | None = None,
    tolerance: float | None = None,
) -> Certificate:
    """Say what is identified when z follows this law and x is observed: none < ATwC < AT < blocks < PS.

    Parameters
    ----------
    law : the law of the latents, true or learnt. A `Mixture` is judged by Kivva et al. (2022) if all its components
        have full rank (`identifiable.theory.full_rank`), else by Xu et al. (2026, `identifiable.theory.degenerate`); a
        `ConditionalPrior` by Khemakhem et al. (2020, `identifiable.theory.given_u`).
    estimated : the law was learnt: the default tolerance is looser, and the certificate says so.
    injective : whether the mixing is injective and continuous, for a mixture also piecewise affine; None: a premise.
    affine : mixtures only: the mixing is known to be affine.
    decoder : mixtures only: the mixing by its layers, which are judged; see `identifiable.theory.decoders`.
    rows : mixtures only: how many rows the law was estimated on; their number is used if all components have full rank.
    observation : conditional priors only: how x is drawn about f(z), "gaussian", "bernoulli", "categorical" or "none";
        None: a premise.
    tolerance : up to it a difference counts as zero, in standard deviations; default 1e-5, or 0.05 when estimated.

    Examples
    --------
    >>> print(certify(Mixture([0.5, 0.5], [[3, 0], [1, 4]], [[1, 0], [0, 1]])).theorem)
    Theorem 3.9 (Xu et al. 2026)
    >>> print(certify(Mixture([0.5, 0.5], [[3, 0], [1, 4]], [[1, 2], [2, 1]])).theorem)
    Theorem 3.2b (Kivva et al. 2022)
    >>> print(certify(ConditionalPrior("mean", [[0, 0], [2, 0], [0, 3]], [[1, 1], [1, 1], [1, 1]])).theorem)
    Theorem 1 (Khemakhem et al. 2020)
    """
    if isinstance(law, Mixture):
        if observation is not None:
            raise DataError(
                "observation is for a ConditionalPrior: the theorems on mixtures have no noise. Leave it out."
            )
        estimated = estimated or rows is not None
        supports = supports_of(law, tolerance or (degenerate.ESTIMATED if estimated else degenerate.EXACT))
        if (supports.ranks == len(supports.white)).all():
            return full_rank.certify(
                law,
                decoder=decoder,
                injective=injective,
                affine=affine,
                estimated=estimated,
                rows=rows,
                tolerance=tolerance,
            )
        if decoder is not None:
            piecewise, _, _, one_to_one = full_rank.check_decoder(law, decoder, injective, affine=affine)
            verdicts = {piecewise.verdict, one_to_one.verdict}
            injective = False if "fails" in verdicts else True if verdicts == {"holds"} else None
        return degenerate.certify(law, estimated=estimated, injective=injective, affine=affine, tolerance=tolerance)
    if not isinstance(law, ConditionalPrior):
        raise TypeError(f"certify takes a Mixture or a ConditionalPrior, got {type(law).__name__}.")
    for name, given in (("affine", affine), ("decoder", decoder is not None), ("rows", rows is not None)):
        if given:
            raise DataError(f"{name} is for a Mixture: the theorems on a ConditionalPrior do not use it. Leave it out.")
    return certify_conditional(
        law, estimated=estimated, injective=injective, observation=observation, tolerance=tolerance
    )
