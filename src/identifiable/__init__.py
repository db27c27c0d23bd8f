"""Latent variables you can trust: estimators with identifiability guarantees, and an account of how far they hold."""

__version__ = "0.1.0"

from identifiable.certify import Certificate, Check, Decoder, Level, Structure, certify, structure_of
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
    FactorialUnmixing,
    GMMFlow,
    GroupedSparse,
    IFlow,
    IndependentComponents,
    PrincipalComponents,
    RawData,
    SegmentUnmixing,
    SparseUnmixing,
    TwoStage,
    Unmixed,
    baselines,
    unmix,
)
from identifiable.mixture import Mixture
from identifiable.persist import load, save
from identifiable.restarts import Stability
from identifiable.select import agreement_of_halves, choose, stability
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
    "Decoder",
    "DegenerateGaussianMixture",
    "FactorialUnmixing",
    "FitFailedError",
    "GMMFlow",
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
    "Structure",
    "TwoStage",
    "Unmixed",
    "__version__",
    "agreement_of_halves",
    "baselines",
    "certify",
    "choose",
    "load",
    "save",
    "stability",
    "structure_of",
    "unmix",
]
