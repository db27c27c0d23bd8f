"""Scores against a known truth, or between runs: arrays in, a number or a small result out."""

from identifiable.metrics.clusters import ari, clustering_accuracy, nmi
from identifiable.metrics.graphs import dag_to_cpdag, shd
from identifiable.metrics.latents import (
    BlockR2,
    Matching,
    agreement,
    block_r2,
    correlation_matrix,
    match,
    mcc,
    r2,
    strong_mcc,
    weak_mcc,
)
from identifiable.metrics.mixtures import AffineAlignment, align_mixtures, dist_aff_l2, l2_distance

__all__ = [
    "AffineAlignment",
    "BlockR2",
    "Matching",
    "agreement",
    "align_mixtures",
    "ari",
    "block_r2",
    "clustering_accuracy",
    "correlation_matrix",
    "dag_to_cpdag",
    "dist_aff_l2",
    "l2_distance",
    "match",
    "mcc",
    "nmi",
    "r2",
    "shd",
    "strong_mcc",
    "weak_mcc",
]
