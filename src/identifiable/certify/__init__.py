"""Certificates: which theorem applies to a mixture of latents, and what it says is identified. One module per paper."""

from identifiable.certify.pdgmm import certify
from identifiable.certify.result import Certificate, Check, Level, Verdict

__all__ = ["Certificate", "Check", "Level", "Verdict", "certify"]
