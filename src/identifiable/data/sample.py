"""`Sample`, which every data source returns."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from identifiable.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from identifiable.data.simulator import Simulator


@dataclass(frozen=True)
class Sample:
    """Observations, and what is known about their origin.

    Attributes
    ----------
    x : (N, d) observations.
    u : (N,) or (N, m) auxiliary variable: segment, class, experimental condition, time; None where there is none.
    z : (N, n) true latents, known for simulated data only.
    component : (N,) the mixture component of each row, known for simulated data only.
    columns : names of the d columns of x.
    image_shape : (height, width) or (height, width, channels) when rows are images.
    source : the `Simulator` that generated these rows, known for simulated data only.

    Examples
    --------
    >>> import numpy as np
    >>> s = Sample(x=np.zeros((4, 2)), u=np.array([0, 0, 1, 1]))
    >>> s
    Sample(x=(4, 2), u=(4,))
    >>> len(s), s[:3].u.tolist()
    (4, [0, 0, 1])
    """

    x: FloatArray
    u: NDArray[Any] | None = None
    z: FloatArray | None = None
    component: IntArray | None = None
    columns: tuple[str, ...] | None = None
    image_shape: tuple[int, ...] | None = None
    source: "Simulator | None" = None

    def __post_init__(self) -> None:
        for name, values in self._arrays():
            if len(values) != len(self.x):
                raise ValueError(
                    f"{name} must have one row per observation: x has {len(self.x)}, {name} has {len(values)}."
                )

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: slice | NDArray[Any]) -> "Sample":
        """Return the sub-sample of these rows."""
        kept: dict[str, Any] = {name: values[rows] for name, values in self._arrays()}
        return replace(self, **kept)

    def __repr__(self) -> str:
        return f"Sample({', '.join(f'{name}={values.shape}' for name, values in self._arrays())})"

    def _arrays(self) -> list[tuple[str, NDArray[Any]]]:
        """Return name and values of the arrays that have a row per observation."""
        arrays = {"x": self.x, "u": self.u, "z": self.z, "component": self.component}
        return [(name, values) for name, values in arrays.items() if values is not None]
