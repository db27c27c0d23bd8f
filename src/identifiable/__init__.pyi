"""Public names and where they are defined; `__init__.py` imports each one on first use."""

from identifiable.agreement.select import choose, split_half_agreement
from identifiable.agreement.stability import Stability, stability
from identifiable.algorithms.diagonal_basis import DiagonalBasis, diagonal_basis
from identifiable.auto.identify import Identify
from identifiable.auto.verdict import Candidate, LatentReport
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
    FastICABaseline,
    GMMFlow,
    GroupedSparse,
    IFlow,
    IndependentComponents,
    LinearICA,
    PrincipalComponents,
    RademacherVAE,
    RawData,
    RelaxedVQVAE,
    SegmentUnmixing,
    SparseUnmixing,
    TwoStage,
    VaDE,
    baselines,
)
from identifiable.estimators.conv_autoencoder import ConvAutoencoder
from identifiable.estimators.image_unmixing import ImageUnmixing
from identifiable.estimators.keypoints import KeypointEncoder
from identifiable.persist import load, save
from identifiable.theory import Certificate, Check, Decoder, Level, Structure, certify, certify_latents, structure_of
from identifiable.training import History

__version__: str
__all__ = [
    "IVAE",
    "MFCVAE",
    "PDGMM",
    "VAE",
    "BetaTCVAE",
    "BetaVAE",
    "Candidate",
    "Certificate",
    "Check",
    "ConditionalPrior",
    "ConvAutoencoder",
    "DamagedFileError",
    "DataError",
    "Decoder",
    "DegenerateGaussianMixture",
    "DiagonalBasis",
    "FactorialUnmixing",
    "FastICABaseline",
    "FitFailedError",
    "GMMFlow",
    "GroupedSparse",
    "History",
    "IFlow",
    "Identify",
    "ImageUnmixing",
    "IndependentComponents",
    "KeypointEncoder",
    "LatentReport",
    "Level",
    "LinearICA",
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
    "TwoStage",
    "VaDE",
    "__version__",
    "baselines",
    "certify",
    "certify_latents",
    "choose",
    "diagonal_basis",
    "load",
    "save",
    "split_half_agreement",
    "stability",
    "structure_of",
]
