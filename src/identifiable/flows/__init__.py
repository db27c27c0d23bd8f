"""Invertible maps with tractable log-determinants, with the member axis first."""

from identifiable.flows.flows import AutoregressiveFlow, SmoothLeakyFlow, SoftplusFlow

__all__ = ["AutoregressiveFlow", "SmoothLeakyFlow", "SoftplusFlow"]
