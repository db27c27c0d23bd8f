"""Where data come from: simulators, real sets, the user's own tables."""

from identifiable.data.catalogue import Source, catalogue
from identifiable.data.images import make_balls
from identifiable.data.inspection import TableInspection, inspect_table
from identifiable.data.real import (
    load_cifar10,
    load_digits,
    load_fashion_mnist,
    load_mnist,
    load_sachs,
    load_svhn,
    sachs_graph,
)
from identifiable.data.sample import Sample
from identifiable.data.shapes import make_parallelograms, make_pinwheel
from identifiable.data.simulator import Simulator
from identifiable.data.simulators import DIFFICULTIES, make_gmm, make_pdgmm, make_segments, make_tcl
from identifiable.data.summary import TableSummary, describe
from identifiable.data.table import TableReader, read_table

__all__ = [
    "DIFFICULTIES",
    "Sample",
    "Simulator",
    "Source",
    "TableInspection",
    "TableReader",
    "TableSummary",
    "catalogue",
    "describe",
    "inspect_table",
    "load_cifar10",
    "load_digits",
    "load_fashion_mnist",
    "load_mnist",
    "load_sachs",
    "load_svhn",
    "make_balls",
    "make_gmm",
    "make_parallelograms",
    "make_pdgmm",
    "make_pinwheel",
    "make_segments",
    "make_tcl",
    "read_table",
    "sachs_graph",
]
