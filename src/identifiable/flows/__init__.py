"""Invertible maps R^n -> R^n with exact log-determinants, batched over members.

A flow knows nothing of a prior: it returns t = f(x) and log|det df/dx|, and the log-likelihood of x under any density p
of the latents is log p(t) + log|det df/dx|. As in `nets`, every parameter and buffer has the member axis R first.
"""

from identifiable.flows.autoregressive import AutoregressiveFlow
from identifiable.flows.smooth_leaky import SmoothLeakyFlow
from identifiable.flows.softplus import SoftplusFlow

__all__ = ["AutoregressiveFlow", "SmoothLeakyFlow", "SoftplusFlow"]
