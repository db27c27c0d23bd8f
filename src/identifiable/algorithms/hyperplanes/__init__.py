"""The search for hyperplanes that hold the samples in which a latent is inactive."""

from identifiable.algorithms.hyperplanes.excess import Excess, excess_of
from identifiable.algorithms.hyperplanes.planes import Unmixing
from identifiable.algorithms.hyperplanes.search import centred_rows, find_hyperplanes
from identifiable.algorithms.hyperplanes.spans import Spans, spans_of
from identifiable.algorithms.hyperplanes.unmixing import refine, sample_rows, unmix

__all__ = [
    "Excess",
    "Spans",
    "Unmixing",
    "centred_rows",
    "excess_of",
    "find_hyperplanes",
    "refine",
    "sample_rows",
    "spans_of",
    "unmix",
]
