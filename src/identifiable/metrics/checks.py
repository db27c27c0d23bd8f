"""Checks of the input of metrics."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from identifiable.arrays import FloatArray
from identifiable.errors import DataError


def table(name: str, values: ArrayLike, *, min_rows: int = 2) -> FloatArray:
    """Return `values` as a finite (N, n) array of floats, or say why it cannot be one."""
    try:
        array: FloatArray = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be a table of numbers: {error}. Encode or drop other columns.") from None
    if array.ndim != 2:
        cure = f"a single latent is {name}[:, None]" if array.ndim == 1 else "flatten each row first"
        raise DataError(f"{name} must be 2-D (rows, latents), got shape {array.shape}: {cure}.")
    if array.shape[0] < min_rows or array.shape[1] < 1:
        raise DataError(
            f"{name} must have at least {min_rows} rows and 1 column, got shape {array.shape}: pass more data."
        )
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        row, column = bad[0]
        raise DataError(
            f"{name} must be finite, got {array[row, column]} at row {row}, column {column} "
            f"({len(bad)} such entries): drop or impute them."
        )
    return array


def same_rows(**tables: NDArray[Any]) -> None:
    """Refuse arrays whose rows cannot be the same samples."""
    if len({len(values) for values in tables.values()}) > 1:
        found = ", ".join(f"{name} has {len(values)}" for name, values in tables.items())
        raise DataError(f"Expected one row per sample in each input, got: {found}. Pass the same samples to both.")
