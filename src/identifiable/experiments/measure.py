"""What a cell of a sweep measures: data are drawn, a method is fitted, and one number or more comes out.

`measure(cell)` is all a worker needs. The truth is used to measure, after the fit, and for nothing else.

| experiment | question | metrics |
|---|---|---|
| recovery | how near are the latents to the true ones, on new rows? | mcc, r2; mcc_sparse where the basis is rotated |
| independent | the same, on rows whose latents do not depend on each other | mcc_independent, mcc |
| blocks | are groups of latents told apart? | block_r2, leak |
| graph | which graph does PC find among the latents? | delta_shd, shd_recovered, shd_true |
| agreement | do fits agree with each other, where no truth is known? | weak, strong, dist |
| minimisers | is the truth the only minimiser of the exact likelihood? | unique, gap |
"""

import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

import identifiable
from identifiable import data
from identifiable.data.latents import MaskedSCM
from identifiable.data.sample import Sample
from identifiable.data.simulator import Simulator
from identifiable.errors import RecoveryWarning
from identifiable.estimators.base import LatentModel
from identifiable.estimators.relaxed_vqvae import RelaxedVQVAE, position_mcc
from identifiable.estimators.two_stage import TwoStage
from identifiable.experiments.recipe import BASELINES, Cell, Measurement, Method
from identifiable.metrics import block_r2, correlation_matrix, dist_aff_l2, match, mcc, r2, strong_mcc, weak_mcc

Array = NDArray[np.floating[Any]]

NEW_ROWS = 5000
GRAPH_ROWS = 5000  # in which no latent rests
MOST_PIXELS = 1024  # that a linear method is given
ROUNDED = 3  # decimals of the tables that are drawn
LAWS: Mapping[str, Callable[..., Sample]] = {
    "pdgmm": data.make_pdgmm,
    "segments": data.make_segments,
    "tcl": data.make_tcl,
    "gmm": data.make_gmm,
    "pinwheel": data.make_pinwheel,
    "parallelograms": data.make_parallelograms,
    "balls": data.make_balls,
}
IMAGES: Mapping[str, Callable[..., Sample]] = {"mnist": data.load_mnist, "cifar10": data.load_cifar10}
TOGETHER = ("TwoStage",)  # estimators whose `fit_many` gains on a GPU, and gives what `fit` gives
SMALL = ("RawData", "PrincipalComponents", "IndependentComponents", "SparseUnmixing", "PDGMM")  # fast without a GPU
ASKED = ("law", "draw", "rows", "new_rows", "latents", "runs", "directions", "segment_rows", "net")  # not the law's


def measure(cell: Cell, device: str = "auto") -> Measurement:
    """Run one cell.

    Examples
    --------
    >>> values = {"law": "pdgmm", "n": 3, "rows": 500}
    >>> cell = Cell("a", "full", "recovery", "n = 3", values, "PCA", BASELINES["PCA"], 0)
    >>> sorted(measure(cell, "cpu").metrics)
    ['mcc', 'r2', 'score', 'seconds']
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecoveryWarning)  # the record holds the agreement itself
        return EXPERIMENTS[cell.experiment](cell, device)


def group(cell: Cell) -> str | None:
    """Return a word that cells share which `measure_together` may take at once on a GPU; None where it gains nothing.

    The seed is among what they share: one estimator is fitted to all of their data sets.
    """
    if cell.experiment != "recovery" or cell.how.estimator not in TOGETHER:
        return None
    return json.dumps([cell.method, asdict(cell.how), cell.seed, cell.values.get("latents"), cell.values.get("n")])


def measure_together(cells: Sequence[Cell], device: str = "auto") -> list[Measurement]:
    """Run cells of one group: the fits at once (`fit_many`), then one measurement after the other."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecoveryWarning)
        started = time.perf_counter()
        how, drawn = cells[0].how, [draw(cell) for cell in cells]
        model: Any = _built(cells[0], how, drawn[0][0], device, cells[0].seed, None)
        models = model.fit_many([sample.source if how.fresh else sample.x for sample, _ in drawn])
        seconds = (time.perf_counter() - started) / len(cells)
        return [
            _recovered(cell, [one], new, _of_fit(one, seconds))
            for cell, one, (_, new) in zip(cells, models, drawn, strict=True)
        ]


def best_device(cell: Cell, device: str) -> str:
    """Return where a cell of a sweep is computed: "auto" leaves the GPU to wide nets."""
    return "cpu" if device == "auto" and cell.how.estimator in SMALL else device


def recovery(cell: Cell, device: str) -> Measurement:
    """Compare the latents of new rows with the true ones."""
    sample, new = draw(cell)
    model, metrics = fitted(cell, sample, device)
    return _recovered(cell, model, new, metrics)


def _recovered(cell: Cell, model: list[LatentModel], new: Sample, metrics: dict[str, float]) -> Measurement:
    assert new.z is not None
    found = latents(model, new)
    metrics |= {"mcc": mcc(new.z, found), "r2": r2(found, new.z)}  # R² as in the pdGMM paper
    if np.isfinite(score := _score(model, new)):
        metrics["score"] = score
    rotation = getattr(getattr(new.source, "latents", None), "rotation", None)
    if cell.values.get("theta") and rotation is not None:
        metrics["mcc_sparse"] = mcc(new.z @ rotation.numpy().T, found)
    if isinstance(model[-1], TwoStage):
        code = model[-1].stage1_transform(_before(model, new))
        metrics |= {"stage1_r2": r2(code, new.z), "stage1_mcc": mcc(new.z, code)}
    arrays = {"correlation": _correlation(new.z, found)}
    if hasattr(model[-1], "latents_of_restarts") and len(scores := getattr(model[-1], "restart_scores_", ())) > 1:
        each = model[-1].latents_of_restarts(_before(model, new))
        arrays |= {"restarts": _rounded([mcc(new.z, z) for z in each]), "scores": _rounded(scores)}
    return Measurement(metrics, arrays, _certificate(model[-1]))


def independent(cell: Cell, device: str) -> Measurement:
    """Measure the same fit on rows whose latents are independent: the law's masks and mixing, without its edges."""
    sample, new = draw(cell)
    model, metrics = fitted(cell, sample, device)
    source = new.source
    assert isinstance(source, Simulator)
    assert isinstance(source.latents, MaskedSCM)
    assert new.z is not None
    law = source.latents
    parts = {k: getattr(law, k).numpy() for k in ("masks", "rest", "rotation", "second", "second_rotation")}
    apart = MaskedSCM(np.zeros(law.adjacency.shape), noise_law=law.noise_law, **parts)
    rows = Simulator(apart, source.mixing, seed=source.seed).sample(len(new), random_state=cell.seed + 1)
    assert rows.z is not None
    found = latents(model, rows)
    metrics |= {"mcc_independent": mcc(rows.z, found), "mcc": mcc(new.z, latents(model, new))}
    return Measurement(metrics, {"correlation": _correlation(rows.z, found)})


def blocks(cell: Cell, device: str) -> Measurement:
    """Regress every estimated latent on every block of true ones: its own R², and the largest of another block."""
    sample, new = draw(cell)
    model, metrics = fitted(cell, sample, device)
    assert new.z is not None
    sizes = cell.values.get("blocks") or [2] * (new.z.shape[1] // 2)
    ends = np.cumsum(sizes)
    groups = [list(range(end - size, end)) for size, end in zip(sizes, ends, strict=True)]
    found = block_r2(new.z, latents(model, new), groups)
    given = found.assignment >= 0
    others = found.table[given].copy()
    others[np.arange(given.sum()), found.assignment[given]] = 0
    metrics |= {"block_r2": found.mean, "worst_block": float(found.scores.min()), "leak": float(others.max(1).mean())}
    return Measurement(metrics, {"blocks": _rounded(found.table[np.argsort(found.assignment, kind="stable")])})


def graph(cell: Cell, device: str) -> Measurement:
    """Run PC on true and on recovered latents of the same rows, none at rest, and compare with the true CPDAG."""
    from identifiable.causal import recovered_shd

    sample, _ = draw(cell)
    model, metrics = fitted(cell, sample, device)
    source = sample.source
    assert source is not None
    law = source.latents
    assert isinstance(law, MaskedSCM)
    rows = source.unmasked().sample(GRAPH_ROWS, random_state=cell.seed + 1_000_003)
    assert rows.z is not None
    z = rows.z @ law.rotation.numpy().T
    found = recovered_shd(z, latents(model, rows), (law.adjacency != 0).numpy())
    metrics |= {name: float(getattr(found, name)) for name in ("delta_shd", "shd_recovered", "shd_true")}
    return Measurement(metrics | {"mcc": mcc(z, latents(model, rows))})


def agreement(cell: Cell, device: str) -> Measurement:
    """Compare all pairs of fits on new rows: weak and strong MCC, and the distance of their mixtures."""
    sample, new = draw(cell)
    runs = int(cell.values["runs"])
    started = time.perf_counter()
    mixtures: list[Any] = []
    if cell.method in BASELINES:
        seeds = [cell.seed + r for r in range(runs)]
        each = np.stack([latents(fitted(cell, sample, device, seed)[0], new) for seed in seeds])
        last: LatentModel | None = None
    else:
        model, _ = fitted(cell, sample, device, restarts=runs)
        last = model[-1]
        given = (new.x, new.u) if _needs_u(cell.how) else (new.x,)
        each = last.latents_of_restarts(*given)
        if cell.values["law"] not in IMAGES and hasattr(last, "mixtures_of_restarts"):
            mixtures = last.mixtures_of_restarts()
    seconds = time.perf_counter() - started
    pairs = list(combinations(range(len(each)), 2))
    metrics = {"seconds": seconds}
    if isinstance(last, RelaxedVQVAE):
        places = int(np.prod(last.grid_))
        for name, one in (("weak", weak_mcc), ("strong", strong_mcc)):
            metrics[name] = float(np.mean([position_mcc(each[a], each[b], places, one) for a, b in pairs]))
        return Measurement(metrics)
    few = cell.values.get("directions")
    metrics["weak"] = float(np.mean([weak_mcc(each[a], each[b], n_components=few) for a, b in pairs]))
    metrics["strong"] = float(np.mean([strong_mcc(each[a], each[b]) for a, b in pairs]))
    if few is not None:
        metrics["weak_all"] = float(np.mean([weak_mcc(each[a], each[b]) for a, b in pairs]))
    if mixtures:
        metrics["dist"] = float(np.mean([dist_aff_l2(mixtures[a], mixtures[b]) for a, b in pairs]))
    return Measurement(metrics, {}, None if last is None else _certificate(last))


def minimisers(cell: Cell, device: str) -> Measurement:
    """Search a grid of models for minimisers of the exact likelihood that are not equivalent to the truth."""
    from identifiable.theory.exact_likelihood import Grid, draws, search

    started = time.perf_counter()
    grid = Grid(**{k: _exact(v) for k, v in cell.values["grid"].items()})
    found = search(grid, draws(grid, cell.values["models"], cell.seed))
    weak = [r for r in found if r.truth.f.injectivity != "none"]
    gaps = [r.other_prior for r in weak]
    metrics = {"unique": sum(not r.minimisers for r in weak) / len(weak), "gap": float(np.median(gaps))}
    return Measurement(metrics | {"seconds": time.perf_counter() - started}, {"gaps": gaps})


# -- parts -----------------------------------------------------------------------------


def draw(cell: Cell) -> tuple[Sample, Sample]:
    """Return the rows to fit, and new ones of the same law; for images, their test set."""
    values = cell.values
    name = values["law"]
    if name in IMAGES:
        picked = check_random_state(0)
        train, test = (IMAGES[name](split=split) for split in ("train", "test"))
        train, test = _some(train, values.get("rows"), picked), _some(test, values.get("new_rows", NEW_ROWS), picked)
        return _distinct(cell.how, train, test)
    own = {k: v for k, v in values.items() if k not in ASKED}
    rows = values.get("rows") or values["segment_rows"] * values["segments"]
    sample = LAWS[name](rows, **own, random_state=10 * cell.seed + values["draw"] if "draw" in values else cell.seed)
    assert sample.source is not None
    new = sample.source.sample(values.get("new_rows", NEW_ROWS), random_state=cell.seed + 1_000_003)
    return (sample, new) if sample.image_shape is None else _distinct(cell.how, sample, new)


def fitted(
    cell: Cell, sample: Sample, device: str, seed: int | None = None, restarts: int | None = None
) -> tuple[list[LatentModel], dict[str, float]]:
    """Fit the cell's method, and what comes before it; return both, and seconds and agreement of the fit."""
    started = time.perf_counter()
    steps, rows = [], sample
    for how in _steps(cell.how):
        model = _built(cell, how, sample, device, cell.seed if seed is None else seed, restarts)
        labels = rows.component if how.estimator == "GroupedSparse" else rows.u
        source: Any = rows.source if how.fresh else rows.x
        model.fit(source, labels)
        steps.append(model)
        if how is not cell.how:
            rows = Sample(np.asarray(model.transform(rows.x), dtype=np.float64), u=rows.u, component=rows.component)
    return steps, _of_fit(steps[-1], time.perf_counter() - started)


def _of_fit(model: LatentModel, seconds: float) -> dict[str, float]:
    score = model.stability_.score
    return {"seconds": seconds} | ({"agreement": score} if np.isfinite(score) else {})


def latents(model: list[LatentModel], sample: Sample) -> Array:
    """Return the latents of a sample, (N, n)."""
    return np.asarray(model[-1].transform(_before(model, sample)), dtype=np.float64)


def _steps(how: Method) -> list[Method]:
    return [*([] if how.before is None else _steps(how.before)), how]


def _built(cell: Cell, how: Method, sample: Sample, device: str, seed: int, restarts: int | None) -> LatentModel:
    made: type[LatentModel] = getattr(identifiable, how.estimator)
    asked = cell.values.get("latents") or (sample.z.shape[1] if sample.z is not None else None)
    named = {k: v.format(**cell.values) if isinstance(v, str) else v for k, v in how.params.items()}  # "{net}-relu"
    model = made(**{"n_latents": asked, **named, "random_state": seed, "verbose": 0})
    if "device" in model.get_params():
        model.set_params(device=device)
    if restarts is not None and how is cell.how:
        model.set_params(n_restarts=restarts)
    if how.estimator == "RawData":
        model.set_params(n_latents=None)
    return model


def _before(model: list[LatentModel], sample: Sample) -> Array:
    x = sample.x
    for one in model[:-1]:
        x = np.asarray(one.transform(x), dtype=np.float64)
    return x


def _needs_u(how: Method) -> bool:
    return how.estimator in ("IVAE", "IFlow", "SegmentUnmixing")


def _some(sample: Sample, rows: int | None, rng: np.random.RandomState) -> Sample:
    if rows is None or rows >= len(sample):
        return sample
    return sample[np.sort(rng.choice(len(sample), rows, replace=False))]


def _distinct(how: Method, sample: Sample, new: Sample) -> tuple[Sample, Sample]:
    """Make pictures into tables: coarser where they have many pixels, without pixels that are constant or copies.

    Nets see pictures as they are.
    """
    if any("net" in step.params for step in _steps(how)):
        return sample, new
    x, x_new = _coarse(sample), _coarse(new)
    first = np.sort(np.unique(x, axis=1, return_index=True)[1])
    kept = first[np.ptp(x[:, first], axis=0) > 0]
    return replace(sample, x=x[:, kept], image_shape=None), replace(new, x=x_new[:, kept], image_shape=None)


def _coarse(sample: Sample) -> Array:
    """Average squares of pixels until there are at most MOST_PIXELS numbers in a row."""
    assert sample.image_shape is not None
    height, width, *_ = sample.image_shape
    x = sample.x.reshape(len(sample), height, width, -1)
    while x[0].size > MOST_PIXELS and x.shape[1] % 2 == x.shape[2] % 2 == 0:
        x = x.reshape(len(x), x.shape[1] // 2, 2, x.shape[2] // 2, 2, -1).mean((2, 4))
    return x.reshape(len(x), -1)


def _score(model: list[LatentModel], new: Sample) -> float:
    try:
        return float(model[-1].score(_before(model, new)))
    except (NotImplementedError, TypeError):
        return float("nan")


def _certificate(model: LatentModel) -> dict[str, Any] | None:
    certificate = getattr(model, "certificate_", None)
    if certificate is None:
        return None
    found: dict[str, Any] = certificate.to_dict()
    return {k: found[k] for k in ("level", "if_undecided_hold", "theorem", "checks", "blocks", "meaning") if k in found}


def _correlation(z: Array, found: Array) -> list[Any]:
    """Return |correlation| of true with matched estimated latents, then with those left over."""
    matched = [i for i in match(z, found).permutation.tolist() if i >= 0]
    order = [*matched, *sorted(set(range(found.shape[1])) - set(matched))]
    return _rounded(np.abs(correlation_matrix(z, found))[:, order])


def _exact(value: Any) -> Any:
    return tuple(map(Fraction, value)) if isinstance(value, (list, tuple)) else value


def _rounded(values: Any) -> list[Any]:
    return np.round(np.asarray(values, dtype=np.float64), ROUNDED).tolist()


EXPERIMENTS: Mapping[str, Callable[[Cell, str], Measurement]] = {
    "recovery": recovery,
    "independent": independent,
    "blocks": blocks,
    "graph": graph,
    "agreement": agreement,
    "minimisers": minimisers,
}
