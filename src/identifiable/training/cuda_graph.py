"""Faster training on a GPU: recorded steps, because small nets spend most time on kernel launches, and TF32."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

import torch

from identifiable.training.plan import Batch

Result = TypeVar("Result")


class CudaGraph(Generic[Result]):
    """A function of a batch as a CUDA graph: two calls run directly, the third is recorded, later ones replay it.

    The function must do the same at every call, on batches of one shape. Each call overwrites the result of the last.
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

    For training from noisy gradients; outputs of trained nets are computed in full precision.
    """
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@contextmanager
def _side_stream() -> Iterator[None]:
    """Run on a separate stream, as warm-up of recorded work requires."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)
