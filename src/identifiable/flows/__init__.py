"""Invertible maps with tractable log-determinants, with the member axis first."""

from identifiable.flows.flows import AutoregressiveFlow, BentFlow, SmoothLeakyFlow

__all__ = ["AutoregressiveFlow", "BentFlow", "SmoothLeakyFlow"]
