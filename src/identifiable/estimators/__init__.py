"""One method, one file."""

from identifiable.estimators.baselines import (
    FastICABaseline,
    IndependentComponents,
    PrincipalComponents,
    RawData,
    baselines,
)
from identifiable.estimators.degenerate_mixture import DegenerateGaussianMixture
from identifiable.estimators.factorial_unmixing import FactorialUnmixing
from identifiable.estimators.gmm_flow import GMMFlow
from identifiable.estimators.grouped_sparse import GroupedSparse
from identifiable.estimators.iflow import IFlow
from identifiable.estimators.ivae import IVAE
from identifiable.estimators.linear_ica import LinearICA
from identifiable.estimators.mfcvae import MFCVAE
from identifiable.estimators.pdgmm.estimator import PDGMM
from identifiable.estimators.rademacher_vae import RademacherVAE
from identifiable.estimators.relaxed_vqvae import RelaxedVQVAE
from identifiable.estimators.segment_unmixing import SegmentUnmixing
from identifiable.estimators.sparse_unmixing import SparseUnmixing
from identifiable.estimators.two_stage import TwoStage
from identifiable.estimators.vade import VaDE
from identifiable.estimators.vae import VAE, BetaTCVAE, BetaVAE

__all__ = [
    "IVAE",
    "MFCVAE",
    "PDGMM",
    "VAE",
    "BetaTCVAE",
    "BetaVAE",
    "DegenerateGaussianMixture",
    "FactorialUnmixing",
    "FastICABaseline",
    "GMMFlow",
    "GroupedSparse",
    "IFlow",
    "IndependentComponents",
    "LinearICA",
    "PrincipalComponents",
    "RademacherVAE",
    "RawData",
    "RelaxedVQVAE",
    "SegmentUnmixing",
    "SparseUnmixing",
    "TwoStage",
    "VaDE",
    "baselines",
]
