"""The one thing every source returns."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from identifiable.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from identifiable.data.simulator import Simulator


@dataclass(frozen=True)
class Sample:
    """Observations, and whatever is known about where they came from.

    Attributes
    ----------
    x : (N, d) observations.
    u : (N,) or (N, m) auxiliary variable: segment, class, experimental condition, time; None where there is none.
    z : (N, n) true latents, known for simulated data only.
    component : (N,) the mixture component each row was drawn from, known for simulated data only.
    columns : names of the d columns of x.
    image_shape : (height, width) or (height, width, channels) when rows are images.
    source : the `Simulator` these rows were drawn from, known for simulated data only.

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
        for name in ("u", "z", "component"):
            rows = getattr(self, name)
            if rows is not None and len(rows) != len(self.x):
                raise ValueError(
                    f"{name} must have one row per observation: x has {len(self.x)}, {name} has {len(rows)}."
                )

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: slice | NDArray[Any]) -> "Sample":
        """Return the sub-sample of these rows."""
        kept = {
            name: getattr(self, name)[rows] for name in ("x", "u", "z", "component") if getattr(self, name) is not None
        }
        return replace(self, **kept)

    def __repr__(self) -> str:
        shapes = (
            f"{name}={getattr(self, name).shape}"
            for name in ("x", "u", "z", "component")
            if getattr(self, name) is not None
        )
        return f"Sample({', '.join(shapes)})"
