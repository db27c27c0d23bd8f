"""Certificates: which theorem applies to a distribution of latents, and what it identifies. One module per paper."""

from identifiable.theory.certificate import Certificate, Check, Level, Verdict
from identifiable.theory.decoders import Decoder
from identifiable.theory.dispatch import certify
from identifiable.theory.latents import certify_latents
from identifiable.theory.structure import Structure, structure_of

__all__ = [
    "Certificate",
    "Check",
    "Decoder",
    "Level",
    "Structure",
    "Verdict",
    "certify",
    "certify_latents",
    "structure_of",
]
