"""Public names and where they are defined; `__init__.py` imports each one on first use."""

from identifiable.agreement.select import agreement_of_halves, choose, stability
from identifiable.agreement.stability import Stability
from identifiable.auto.identify import Identify, Trust
from identifiable.auto.search import Tried
from identifiable.data.sample import Sample
from identifiable.distributions.conditional import ConditionalPrior
from identifiable.distributions.mixture import Mixture
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
from identifiable.persist import load, save
from identifiable.theory import Certificate, Check, Decoder, Level, Structure, certify, structure_of
from identifiable.training import History

__version__: str
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
