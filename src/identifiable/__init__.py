"""Latent variables you can trust: estimators with identifiability guarantees, and an account of how far they hold."""

__version__ = "0.1.0"

from identifiable.certify import Certificate, Check, Decoder, Level, Structure, certify, structure_of
from identifiable.conditional import ConditionalPrior
from identifiable.data.sample import Sample
from identifiable.errors import DamagedFileError, DataError, FitFailedError, OutOfTimeError, RecoveryWarning
from identifiable.estimators import (
    IVAE,
    MFCVAE,
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
    RademacherVAE,
    RawData,
    RelaxedVQVAE,
    SegmentUnmixing,
    SparseUnmixing,
    TwoStage,
    Unmixed,
    VaDE,
    baselines,
    unmix,
)
from identifiable.identify import Identify, Trust
from identifiable.mixture import Mixture
from identifiable.persist import load, save
from identifiable.restarts import Stability
from identifiable.search import Tried
from identifiable.select import agreement_of_halves, choose, stability
from identifiable.train import History

__all__ = [
    "IVAE",
    "MFCVAE",
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
    "Identify",
    "IndependentComponents",
    "Level",
    "Mixture",
    "OutOfTimeError",
    "PrincipalComponents",
    "RademacherVAE",
    "RawData",
    "RecoveryWarning",
    "RelaxedVQVAE",
    "Sample",
    "SegmentUnmixing",
    "SparseUnmixing",
    "Stability",
    "Structure",
    "Tried",
    "Trust",
    "TwoStage",
    "Unmixed",
    "VaDE",
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
