"""One method, one file."""

from identifiable.estimators.baselines import IndependentComponents, PrincipalComponents, RawData, baselines
from identifiable.estimators.vae import VAE, BetaTCVAE, BetaVAE

__all__ = ["VAE", "BetaTCVAE", "BetaVAE", "IndependentComponents", "PrincipalComponents", "RawData", "baselines"]
