"""What pictures ask of a model, whatever its class: its clusters, draws from them, rows and images of its width."""

import math
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import NotFittedError

from identifiable.arrays import FloatArray, IntArray
from identifiable.distributions.mixture import Mixture
from identifiable.errors import DataError, join_few
from identifiable.report.plots.figures import written

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Clusters:
    """Clusters to draw, the first one first: their numbers, what is written beside each, and below all."""

    order: IntArray
    names: list[str]
    caption: str
    labels: IntArray | None = None  # (N,) the cluster of each row


def clusters_of(model: Any, X: ArrayLike | None, law: Mixture | None, facet: int | None, most: int) -> Clusters:
    """Sort the clusters by confidence, by the rows in them if the model tells no probabilities, or by weight."""
    whose = "" if facet is None else f"Facet {facet}. "
    if X is None:
        if law is None:
            raise DataError(
                f"{type(model).__name__} has no mixture_ that tells its clusters: pass X, and they are known."
            )
        order = np.argsort(-law.weights, kind="stable")
        names = [f"cluster {k}, {100 * law.weights[k]:.1f} %" for k in order[:most]]
        return Clusters(order[:most], names, f"{whose}%: weight in the mixture. {_sorted_by('weight', order, most)}")
    options = {} if facet is None else {"facet": facet}
    if has(model, "predict_proba"):
        p = np.asarray(model.predict_proba(X, **options))
        labels, confidence, total = p.argmax(1), p.max(1), p.shape[1]
    elif has(model, "predict"):
        labels, confidence = np.asarray(model.predict(X, **options)), None
        if labels.dtype.kind not in "iu" or labels.min() < 0:
            raise DataError(
                f"predict(X) must be numbers of clusters, 0, 1, ..., got {join_few(written(np.unique(labels)))}."
            )
        total = int(labels.max()) + 1 if law is None else len(law.weights)
    else:
        name = type(model).__name__
        raise DataError(f"{name} has no predict_proba() and no predict(), one of which has to tell the clusters of X.")
    counts = np.bincount(labels, minlength=total)
    present = np.flatnonzero(counts)
    names = [f"cluster {k}, {100 * count / len(labels):.1f} %" for k, count in enumerate(counts)]
    if confidence is None:
        order, meaning, by = present[np.argsort(-counts[present], kind="stable")], "", "share"
    else:
        means = np.bincount(labels, confidence, total) / np.maximum(counts, 1)
        order, meaning, by = present[np.argsort(-means[present], kind="stable")], "; p: their mean p(k | x)", "p"
        names = [f"{name}, p {mean:.2f}" for name, mean in zip(names, means, strict=True)]
    caption = f"{whose}%: share of rows{meaning}. {_sorted_by(by, order, most)}"
    if len(present) < total:
        caption += f" {total - len(present)} of {total} clusters have no row and are left out."
    return Clusters(order[:most], [names[k] for k in order[:most]], caption, labels)


def _sorted_by(what: str, order: IntArray, most: int) -> str:
    clusters = "Clusters" if len(order) <= most else f"The first {most} of {len(order)} clusters,"
    return f"{clusters} sorted by {what}."


def facet_of(model: Any, facet: int | None) -> int | None:
    """Return the facet asked for, the first by default; None if the model has no facets."""
    several, name = _attribute(model, "mixtures_"), type(model).__name__
    if several is None and facet is not None:
        raise DataError(f"facet={facet} needs a model with several facets, and {name} has no mixtures_: leave it out.")
    chosen = 0 if facet is None else facet
    if several is not None and not (isinstance(chosen, int | np.integer) and 0 <= chosen < len(several)):
        raise DataError(f"facet must be one of the {len(several)} facets of {name}, 0, 1, ..., got {facet!r}.")
    return None if several is None else int(chosen)


def law_of(model: Any, facet: int | None) -> Mixture | None:
    """Return the mixture behind the clusters, that of one facet where there are several; None if there is none."""
    return _attribute(model, "mixture_") if facet is None else model.mixtures_[facet]


def draws_of(model: Any, law: Mixture | None, k: int, count: int, facet: int | None, seed: int) -> FloatArray:
    """Draw rows of cluster k, without the decoder's noise if that can be."""
    rng = np.random.default_rng((seed, k))
    if law is not None and has(model, "inverse_transform"):
        if facet is None:
            z = _normal(law, np.full(count, k), rng)
        else:
            z = np.empty((count, max(part.stop for part in model.facets_)))
            for j, (part, own) in enumerate(zip(model.facets_, model.mixtures_, strict=True)):
                others = rng.choice(len(own.weights), size=count, p=own.weights)
                z[:, part] = _normal(own, np.full(count, k) if j == facet else others, rng)
        return np.asarray(model.inverse_transform(z))
    if not has(model, "sample") or "component" not in signature(model.sample).parameters:
        raise DataError(
            f"{type(model).__name__} cannot draw from one cluster: it needs mixture_ and inverse_transform(Z), or "
            "sample(n, component=k, random_state=seed)."
        )
    options = {} if facet is None else {"facet": facet}
    return np.asarray(model.sample(count, component=k, random_state=int(rng.integers(2**31)), **options))


def _normal(law: Mixture, component: IntArray, rng: np.random.Generator) -> FloatArray:
    return np.stack(
        [rng.multivariate_normal(law.means[k], law.covariances[k], check_valid="ignore") for k in component]
    )


def has(model: Any, method: str) -> bool:
    """Return whether the model has this method."""
    return callable(getattr(model, method, None))


def require(model: Any, what: str, *methods: str) -> None:
    """Refuse a model that lacks a method, and say which."""
    missing = [f"{method}()" for method in methods if not has(model, method)]
    if missing:
        raise DataError(f"{type(model).__name__} has no {' and no '.join(missing)}, which {what} needs.")


def _attribute(model: Any, name: str) -> Any:
    """Return an attribute, or None if there is none; that a model is not fitted is said by the model."""
    try:
        return getattr(model, name)
    except NotFittedError:
        raise
    except AttributeError:
        return None


def column_names(model: Any) -> list[str] | None:
    """Return the names of the columns, long ones cut, if the model knows them."""
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [name if len(name) <= 18 else name[:17] + "…" for name in map(str, names)]


def rows_of(model: Any, X: ArrayLike) -> NDArray[Any]:
    """Return X as an array of finite numbers, (N, d) or images, of the model's width."""
    array = np.asarray(X)
    if array.dtype.kind not in "fiub":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"X must be numbers: {error}. Encode or drop other columns.") from None
    if not 2 <= array.ndim <= 4 or 0 in array.shape:
        raise DataError(
            f"X must have rows: a table (N, d), or images (N, h, w) or (N, h, w, channels), got shape {array.shape}."
        )
    bad = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))
    if len(bad):
        raise DataError(f"X must be finite, got NaN or infinity in row {bad[0]} ({len(bad)} such rows): drop them.")
    width = getattr(model, "n_features_in_", None)
    if width is not None and width not in (array.shape[1], math.prod(array.shape[1:])):
        raise DataError(f"X must have the {width} columns {type(model).__name__} was fitted to, got {array.shape}.")
    return array


def take(X: Any, rows: IntArray) -> Any:
    """Return some rows of a frame or of anything like an array."""
    return X.iloc[rows] if hasattr(X, "iloc") else np.asarray(X)[rows]


def image_shape_of(given: Shape | None, model: Any, rows: NDArray[Any] | None, decoded: NDArray[Any]) -> Shape | None:
    """Return the shape of an image, or None if rows are those of a table."""
    of_model = _attribute(model, "image_shape_")
    if given is not None or of_model is not None:
        shape = tuple(of_model if given is None else given)
    else:
        shape = next((tuple(a.shape[1:]) for a in (rows, decoded) if a is not None and a.ndim > 2), ())
    if not shape and given is None:
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
