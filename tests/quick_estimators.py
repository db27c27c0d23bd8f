"""Every estimator with settings that fit in a moment."""

import numpy as np

from identifiable.estimators import (
    IVAE,
    MFCVAE,
    PDGMM,
    VAE,
    BetaTCVAE,
    BetaVAE,
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
    VaDE,
)

QUICK = {"n_restarts": 2, "max_steps": 20, "batch_size": 32, "hidden": (8,), "random_state": 0, "verbose": 0}
ESTIMATORS = [
    RawData(n_latents=2, n_restarts=2),
    PrincipalComponents(n_latents=2, n_restarts=2),
    IndependentComponents(n_latents=2, n_restarts=2, random_state=0),
    SegmentUnmixing(n_latents=2, n_restarts=2, random_state=0),
    FactorialUnmixing(n_latents=2, n_restarts=2, random_state=0, max_components=4),
    SparseUnmixing(n_latents=2, n_restarts=2, random_state=0, max_rounds=1),
    IFlow(n_latents=2, n_restarts=2, random_state=0, verbose=0, depth=3, max_steps=10, batch_size=32),
    GMMFlow(
        n_latents=2,
        n_restarts=2,
        n_components=4,
        random_state=0,
        verbose=0,
        depth=3,
        full_covariance_steps=5,
        max_steps=5,
        batch_size=32,
    ),
    PDGMM(n_latents=2, n_restarts=2, random_state=0, verbose=0, depth=3, max_steps=10, batch_size=32, extended=False),
    IVAE(**QUICK),
    VAE(**QUICK),
    BetaVAE(**QUICK),
    BetaTCVAE(**QUICK),
    VaDE(**QUICK, n_components=3, init="autoencoder", pretrain_steps=10),
    MFCVAE(**QUICK, n_latents=2, n_components=2, facets=2, pretrain_steps=10),
    RademacherVAE(**QUICK, n_bits=3),
    RelaxedVQVAE(**QUICK, n_codes=8),
    TwoStage(**QUICK, sparse_steps=20, sparse_hidden=(4,)),
    GroupedSparse(**QUICK),
]


def labels(x):
    """Two components; methods that need none ignore them."""
    return np.arange(np.shape(x)[0]) % 2
