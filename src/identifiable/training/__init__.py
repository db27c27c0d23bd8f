"""The one training loop of the library, `minimise`, and the words it is spoken to in."""

from identifiable.training.clock import seconds_left, time_limit
from identifiable.training.extragradient import extragradient
from identifiable.training.loop import minimise
from identifiable.training.plan import Anneal, Batch, Constrained, Data, Loss, Plan, Step
from identifiable.training.state import History

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
    "seconds_left",
    "time_limit",
]
