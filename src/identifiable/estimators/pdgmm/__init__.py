"""`PDGMM`: nonlinear recovery of a potentially degenerate Gaussian mixture by exact maximum likelihood."""

from identifiable.estimators.pdgmm.estimator import PDGMM

__all__ = ["PDGMM"]
