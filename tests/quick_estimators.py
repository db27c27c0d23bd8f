"""Every estimator with settings that fit in a moment; the tiny ones hardly train at all."""

import numpy as np

from identifiable.estimators import (
    IVAE,
    MFCVAE,
    PDGMM,
    VAE,
    BetaTCVAE,
    BetaVAE,
    FactorialUnmixing,
    FastICABaseline,
    GMMFlow,
    GroupedSparse,
    IFlow,
    LinearICA,
    PrincipalComponents,
    RademacherVAE,
    RawData,
    RelaxedVQVAE,
    SegmentUnmixing,
    SparseUnmixing,
    TwoStage,
    VaDE,
)

LINEAR = {"n_latents": 2, "n_restarts": 2, "random_state": 0}
FLOW = LINEAR | {"verbose": 0, "depth": 3, "max_steps": 10, "batch_size": 32}
QUICK = LINEAR | {"verbose": 0, "max_steps": 20, "batch_size": 32, "hidden": [8]}
ESTIMATORS = [
    RawData(**LINEAR),
    PrincipalComponents(**LINEAR),
    FastICABaseline(**LINEAR),
    LinearICA(**LINEAR),
    SegmentUnmixing(**LINEAR),
    FactorialUnmixing(**LINEAR, max_components=4),
    SparseUnmixing(**LINEAR, max_rounds=1),
    IFlow(**FLOW),
    GMMFlow(**FLOW, n_components=4, full_covariance_steps=5),
    PDGMM(**FLOW, extended=False),
    IVAE(**QUICK),
    VAE(**QUICK),
    BetaVAE(**QUICK),
    BetaTCVAE(**QUICK),
    VaDE(**QUICK, n_components=3, init="autoencoder", pretrain_steps=10),
    MFCVAE(**QUICK, n_components=2, facets=2, pretrain_steps=10),
    RademacherVAE(**QUICK, n_bits=3),
    RelaxedVQVAE(**QUICK, n_codes=8),
    TwoStage(**QUICK, sparse_steps=20, sparse_hidden=(4,)),
    GroupedSparse(**QUICK),
]

ONE_RESTART = {"n_restarts": 1}
FEW_STEPS = ONE_RESTART | {"max_steps": 2, "batch_size": 16}
TINY_FLOW = FEW_STEPS | {"depth": 2}
TINY_NETS = FEW_STEPS | {"hidden": (4,)}
TINY = {
    FactorialUnmixing: {"max_components": 2},
    SparseUnmixing: {"noisy": False},
    IFlow: TINY_FLOW,
    GMMFlow: TINY_FLOW | {"n_components": 1, "full_covariance_steps": 1},
    PDGMM: TINY_FLOW,
    IVAE: TINY_NETS | {"init": "random"},
    VaDE: TINY_NETS | {"init": "random"},
    MFCVAE: TINY_NETS | {"init": "random"},
    TwoStage: TINY_NETS | {"sparse_steps": 1},
}


def tiny(estimator):
    """Return an estimator of the same class that hardly trains."""
    nets = TINY_NETS if hasattr(estimator, "hidden") else ONE_RESTART
    return type(estimator)(**estimator.get_params() | ONE_RESTART | TINY.get(type(estimator), nets))


TINY_ESTIMATORS = [tiny(estimator) for estimator in ESTIMATORS]


def labels(x):
    """Two components; methods that need none ignore them."""
    return np.arange(np.shape(x)[0]) % 2
