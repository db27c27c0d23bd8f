"""What figures need of a model of any class: its clusters, samples of them, rows and images of its width."""

import math
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import NotFittedError

from identifiable.arrays import FloatArray, IntArray
from identifiable.distributions.mixture import Mixture
from identifiable.errors import DataError
from identifiable.metrics.checks import table
from identifiable.report.plots.figures import are_indices, as_text, listed

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Clusters:
    """Clusters to draw, in order.

    Attributes
    ----------
    order : their numbers.
    names : a name for each.
    caption : what their order and names mean.
    labels : (N,) the cluster of each row, if there are rows.
    """

    order: IntArray
    names: list[str]
    caption: str
    labels: IntArray | None = None


def clusters_of(model: Any, X: ArrayLike | None, mixture: Mixture | None, facet: int | None, most: int) -> Clusters:
    """Sort the clusters by confidence; by their number of rows without probabilities; by weight without X."""
    whose = "" if facet is None else f"Facet {facet}. "
    if X is None:
        if mixture is None:
            raise DataError(f"{type(model).__name__} has no mixture_ that describes its clusters: pass X.")
        order = np.argsort(-mixture.weights, kind="stable")
        names = [f"cluster {k}, {100 * mixture.weights[k]:.1f} %" for k in order[:most]]
        return Clusters(order[:most], names, f"{whose}%: weight in the mixture. {_sorted_by('weight', order, most)}")
    labels, confidence, total = _predicted(model, X, mixture, facet)
    counts = np.bincount(labels, minlength=total)
    present = np.flatnonzero(counts)
    names = [f"cluster {k}, {100 * count / len(labels):.1f} %" for k, count in enumerate(counts)]
    scores, meaning, by = counts / len(labels), "", "share"
    if confidence is not None:
        scores = np.bincount(labels, confidence, total) / np.maximum(counts, 1)
        meaning, by = "; p: their mean p(k | x)", "p"
        names = [f"{name}, p {mean:.2f}" for name, mean in zip(names, scores, strict=True)]
    order = present[np.argsort(-scores[present], kind="stable")]
    caption = f"{whose}%: share of rows{meaning}. {_sorted_by(by, order, most)}"
    if len(present) < total:
        caption += f" {total - len(present)} of {total} clusters have no row and are left out."
    return Clusters(order[:most], [names[k] for k in order[:most]], caption, labels)


def _predicted(
    model: Any, X: ArrayLike, mixture: Mixture | None, facet: int | None
) -> tuple[IntArray, FloatArray | None, int]:
    """Return the cluster of each row, its probability if the model has it, and the number of clusters."""
    options, name = {} if facet is None else {"facet": facet}, type(model).__name__
    if has(model, "predict_proba"):
        p = np.asarray(model.predict_proba(X, **options))
        return p.argmax(1), p.max(1), p.shape[1]
    if not has(model, "predict"):
        raise DataError(f"{name} has no predict_proba() and no predict(): one of them must assign rows to clusters.")
    labels = np.asarray(model.predict(X, **options))
    if labels.dtype.kind not in "iu" or labels.min() < 0:
        raise DataError(f"predict(X) must be numbers of clusters, 0, 1, ..., got {listed(as_text(np.unique(labels)))}.")
    return labels, None, int(labels.max()) + 1 if mixture is None else len(mixture.weights)


def _sorted_by(what: str, order: IntArray, most: int) -> str:
    clusters = "Clusters" if len(order) <= most else f"The first {most} of {len(order)} clusters,"
    return f"{clusters} sorted by {what}."


def facet_of(model: Any, facet: int | None) -> int | None:
    """Return the chosen facet, the first by default; None if the model has no facets."""
    several, name = _attribute(model, "mixtures_"), type(model).__name__
    if several is None and facet is not None:
        raise DataError(f"facet={facet} needs a model with several facets, and {name} has no mixtures_: leave it out.")
    chosen = 0 if facet is None else facet
    if several is not None and not are_indices([chosen], len(several)):
        raise DataError(f"facet must be one of the {len(several)} facets of {name}, 0, 1, ..., got {facet!r}.")
    return None if several is None else int(chosen)


def mixture_of(model: Any, facet: int | None) -> Mixture | None:
    """Return the mixture of the latents, or of those of a facet; None if there is none."""
    return _attribute(model, "mixture_") if facet is None else model.mixtures_[facet]


def samples_of(model: Any, mixture: Mixture | None, k: int, count: int, facet: int | None, seed: int) -> FloatArray:
    """Sample rows of cluster k, without the noise of the decoder if possible."""
    rng = np.random.default_rng((seed, k))
    if mixture is not None and has(model, "inverse_transform"):
        own = Mixture([1.0], mixture.means[[k]], mixture.covariances[[k]])
        if facet is None:
            return np.asarray(model.inverse_transform(own.sample(count, rng)[0]))
        z = np.empty((count, max(part.stop for part in model.facets_)))
        for j, (part, other) in enumerate(zip(model.facets_, model.mixtures_, strict=True)):
            z[:, part] = (own if j == facet else other).sample(count, rng)[0]
        return np.asarray(model.inverse_transform(z))
    if not has(model, "sample") or "component" not in signature(model.sample).parameters:
        raise DataError(
            f"{type(model).__name__} cannot sample from one cluster: it needs mixture_ and inverse_transform(Z), or "
            "sample(n, component=k, random_state=seed)."
        )
    options = {} if facet is None else {"facet": facet}
    return np.asarray(model.sample(count, component=k, random_state=int(rng.integers(2**31)), **options))


def has(model: Any, method: str) -> bool:
    """Return whether the model has this method."""
    return callable(getattr(model, method, None))


def require(model: Any, what: str, *methods: str) -> None:
    """Refuse a model without these methods."""
    missing = [f"{method}()" for method in methods if not has(model, method)]
    if missing:
        raise DataError(f"{type(model).__name__} has no {' and no '.join(missing)}, which {what} needs.")


def _attribute(model: Any, name: str) -> Any:
    """Return an attribute, or None if there is none; errors of models that are not fitted are passed on."""
    try:
        return getattr(model, name)
    except NotFittedError:
        raise
    except AttributeError:
        return None


def column_names(model: Any) -> list[str] | None:
    """Return the names of the columns, shortened, if the model has them."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [name if len(name) <= 18 else name[:17] + "…" for name in map(str, names)]


def rows_of(model: Any, X: ArrayLike) -> NDArray[Any]:
    """Return X as an array of finite numbers, (N, d) or images, of the model's width."""
    array: NDArray[Any] = np.asarray(X)
    if not 2 <= array.ndim <= 4 or 0 in array.shape:
        raise DataError(
            f"X must have rows: a table (N, d), or images (N, h, w) or (N, h, w, channels), got shape {array.shape}."
        )
    shape, width = array.shape, getattr(model, "n_features_in_", None)
    if width is not None and width not in (shape[1], math.prod(shape[1:])):
        raise DataError(f"X must have the {width} columns {type(model).__name__} was fitted to, got {shape}.")
    return table("X", array.reshape(len(array), -1), min_rows=1).reshape(shape)


def take(X: Any, rows: IntArray) -> Any:
    """Return some rows of a frame or an array."""
    return X.iloc[rows] if hasattr(X, "iloc") else np.asarray(X)[rows]


def image_shape_of(given: Shape | None, model: Any, rows: NDArray[Any] | None, decoded: NDArray[Any]) -> Shape | None:
    """Return the shape of an image, or None if rows are not images."""
    images = [np.shape(array)[1:] for array in (rows, decoded) if array is not None and array.ndim > 2]
    shapes = [given, _attribute(model, "image_shape_"), *images]
    shape = next((tuple(shape) for shape in shapes if shape is not None), None)
    if shape is None:
        return None
    whole = all(isinstance(side, int | np.integer) and side >= 1 for side in shape)
    if not whole or len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (1, 3)):
        raise DataError(f"image_shape must be (h, w), or (h, w, channels) with 1 or 3 channels, got {shape}.")
    return shape


def as_images(name: str, x: NDArray[Any], shape: Shape) -> NDArray[Any]:
    """Return rows as images (N, h, w) or (N, h, w, 3)."""
    width = math.prod(x.shape[1:])
    if width != math.prod(shape):
        raise DataError(f"image_shape {shape} has {math.prod(shape)} values, but a row of {name} has {width}.")
    return x.reshape(len(x), *(shape[:2] if shape[-1] == 1 and len(shape) == 3 else shape))
