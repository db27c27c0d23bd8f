"""One method, one file."""

from identifiable.estimators.baselines import IndependentComponents, PrincipalComponents, RawData, baselines
from identifiable.estimators.degenerate_mixture import DegenerateGaussianMixture
from identifiable.estimators.grouped_sparse import GroupedSparse
from identifiable.estimators.pdgmm import PDGMM
from identifiable.estimators.sparse_unmixing import SparseUnmixing
from identifiable.estimators.two_stage import TwoStage
from identifiable.estimators.vae import VAE, BetaTCVAE, BetaVAE

__all__ = [
    "PDGMM",
    "VAE",
    "BetaTCVAE",
    "BetaVAE",
    "DegenerateGaussianMixture",
    "GroupedSparse",
    "IndependentComponents",
    "PrincipalComponents",
    "RawData",
    "SparseUnmixing",
    "TwoStage",
    "baselines",
]
