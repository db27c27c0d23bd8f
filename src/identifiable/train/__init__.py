"""The one training loop of the library, `minimise`, and the words it is spoken to in."""

from identifiable.train.clock import time_limit
from identifiable.train.extragradient import extragradient
from identifiable.train.loop import minimise
from identifiable.train.plan import Anneal, Batch, Constrained, Data, Loss, Plan, Step
from identifiable.train.state import History

__all__ = [
    "Anneal",
    "Batch",
    "Constrained",
    "Data",
    "History",
    "Loss",
    "Plan",
    "Step",
    "extragradient",
    "minimise",
    "time_limit",
]
