"""What makes a GPU fast: recorded steps, for launching small nets takes most of their time, and short mantissas."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import torch

from identifiable.training.plan import Batch

Result = TypeVar("Result")


class CudaGraph(Generic[Result]):
    """A function of a batch as a CUDA graph: two calls are taken as they are, the third is recorded, others replay it.

    The function must do the same at every call, on batches of one shape. What it returns is overwritten by the next.
    """

    def __init__(self, function: Callable[[Batch], Result], rng: torch.Generator | None = None) -> None:
        self.function, self.rng = function, rng
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, batch: Batch) -> Result:
        """Call the function, or replay it."""
        self.calls += 1
        if self.calls <= 2:
            with _side_stream():
                return self.function(batch)
        if self.graph is None:
            self.batch = tuple(t.clone() for t in batch)
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            if self.rng is not None:
                self.graph.register_generator_state(self.rng)  # so that every replay draws anew
            with torch.cuda.graph(self.graph):
                self.result = self.function(self.batch)
        for mine, new in zip(self.batch, batch, strict=True):
            mine.copy_(new)
        self.graph.replay()
        return self.result


@contextmanager
def tf32() -> Iterator[None]:
    """Let products of float32 on a GPU round their factors to 10 bits (TF32): many times faster for wide nets.

    For training from noisy gradients; what a trained net says is computed in full.
    """
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@contextmanager
def _side_stream() -> Iterator[None]:
    """Run on a stream of its own, which is how work that will be recorded must be warmed up."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)
