"""Latent variables you can trust: estimators with identifiability guarantees, and an account of how far they hold."""

__version__ = "0.1.0"

from identifiable.data.sample import Sample
from identifiable.errors import DamagedFileError, DataError, FitFailedError, RecoveryWarning
from identifiable.estimators import (
    VAE,
    BetaTCVAE,
    BetaVAE,
    IndependentComponents,
    PrincipalComponents,
    RawData,
    baselines,
)
from identifiable.estimators.base import Stability
from identifiable.mixture import Mixture
from identifiable.persist import load, save
from identifiable.train import History

__all__ = [
    "VAE",
    "BetaTCVAE",
    "BetaVAE",
    "DamagedFileError",
    "DataError",
    "FitFailedError",
    "History",
    "IndependentComponents",
    "Mixture",
    "PrincipalComponents",
    "RawData",
    "RecoveryWarning",
    "Sample",
    "Stability",
    "__version__",
    "baselines",
    "load",
    "save",
]
