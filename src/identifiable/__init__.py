"""Latent variables you can trust: estimators with identifiability guarantees, and an account of how far they hold."""

__version__ = "0.1.0"

from identifiable.certify import Certificate, Check, Level, certify
from identifiable.conditional import ConditionalPrior
from identifiable.data.sample import Sample
from identifiable.errors import DamagedFileError, DataError, FitFailedError, RecoveryWarning
from identifiable.estimators import (
    IVAE,
    PDGMM,
    VAE,
    BetaTCVAE,
    BetaVAE,
    DegenerateGaussianMixture,
    GroupedSparse,
    IFlow,
    IndependentComponents,
    PrincipalComponents,
    RawData,
    SegmentUnmixing,
    SparseUnmixing,
    TwoStage,
    baselines,
)
from identifiable.estimators.base import Stability
from identifiable.mixture import Mixture
from identifiable.persist import load, save
from identifiable.select import agreement_of_halves, choose
from identifiable.train import History

__all__ = [
    "IVAE",
    "PDGMM",
    "VAE",
    "BetaTCVAE",
    "BetaVAE",
    "Certificate",
    "Check",
    "ConditionalPrior",
    "DamagedFileError",
    "DataError",
    "DegenerateGaussianMixture",
    "FitFailedError",
    "GroupedSparse",
    "History",
    "IFlow",
    "IndependentComponents",
    "Level",
    "Mixture",
    "PrincipalComponents",
    "RawData",
    "RecoveryWarning",
    "Sample",
    "SegmentUnmixing",
    "SparseUnmixing",
    "Stability",
    "TwoStage",
    "__version__",
    "agreement_of_halves",
    "baselines",
    "certify",
    "choose",
    "load",
    "save",
]
