"""Partitions of components: refinements, meets, and the blocks that links between items form."""

from collections.abc import Iterable, Sequence

import numpy as np
from scipy.sparse.csgraph import connected_components

from identifiable.arrays import BoolArray
from identifiable.theory.certificate import Blocks

Partition = tuple[int, ...]  # the block of each component; blocks are numbered in order of their first components


def numbered(labels: Iterable[object]) -> Partition:
    """Return block numbers in order of first components.

    Examples
    --------
    >>> numbered("bab")
    (0, 1, 0)
    """
    numbers: dict[object, int] = {}
    return tuple(numbers.setdefault(label, len(numbers)) for label in labels)


def linked(links: BoolArray) -> Partition:
    """Return the blocks of items that links (n, n), or chains of links, join."""
    return numbered(connected_components(links, directed=False)[1].tolist())


def blocks_of(partition: Partition) -> Blocks:
    """Return the items of every block.

    Examples
    --------
    >>> blocks_of((0, 1, 0))
    ((0, 2), (1,))
    """
    return tuple(tuple(i for i, own in enumerate(partition) if own == block) for block in dict.fromkeys(partition))


def meet(p: Partition, q: Partition) -> Partition:
    """Return the finest partition coarser than both: blocks that overlap are one.

    Examples
    --------
    >>> meet((0, 0, 1, 2), (0, 1, 1, 2))
    (0, 0, 0, 1)
    """
    blocks = max(p) + 1
    overlaps = np.zeros((blocks + max(q) + 1,) * 2, dtype=bool)  # of the blocks of p and, after them, those of q
    overlaps[np.array(p), np.array(q) + blocks] = True
    return numbered(linked(overlaps)[block] for block in p)


def refinement(partitions: Sequence[Partition], size: int) -> Partition:
    """Return the coarsest partition of `size` components finer than all; the trivial one for none.

    Examples
    --------
    >>> refinement([(0, 0, 1, 1), (0, 1, 1, 1)], 4)
    (0, 1, 2, 2)
    """
    return numbered(zip(*partitions, strict=True)) if partitions else (0,) * size


def refines(p: Partition, q: Partition) -> bool:
    """Return whether every block of p lies in one of q."""
    return len(set(zip(p, q, strict=True))) == max(p) + 1


def closure(partitions: Sequence[Partition]) -> set[Partition]:
    """Return the trivial partition and all meets; none if they are more than the components."""
    size, given = len(partitions[0]), set(partitions)
    found, new = given | {(0,) * size}, given
    while new and len(found) <= size:
        new = {meet(p, q) for p in new for q in given} - found
        found |= new
    return found if len(found) <= size else set()


def states_within(p: Partition, base: Partition) -> Partition:
    """Return the number of each block of p within its block of a coarser partition, from 0.

    Examples
    --------
    >>> states_within((0, 1, 2, 3), (0, 0, 1, 1))
    (0, 1, 0, 1)
    """
    numbers: dict[int, dict[int, int]] = {}
    inner = (numbers.setdefault(outer, {}) for outer in base)
    return tuple(known.setdefault(block, len(known)) for block, known in zip(p, inner, strict=True))
