"""The training loop of the library, `minimise`, and the types of its arguments."""

from identifiable.training.clock import seconds_left, time_limit
from identifiable.training.loop import minimise, run
from identifiable.training.plan import SETTLED_FROM, Anneal, Batch, Constrained, Data, Loss, Plan, Stage, Step
from identifiable.training.state import History

__all__ = [
    "SETTLED_FROM",
    "Anneal",
    "Batch",
    "Constrained",
    "Data",
    "History",
    "Loss",
    "Plan",
    "Stage",
    "Step",
    "minimise",
    "run",
    "seconds_left",
    "time_limit",
]
