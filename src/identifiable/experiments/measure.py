"""Measure one run: sample the data, fit the method, and compute the metrics of the experiment.

`measure(run)` is all a worker needs. The ground truth is used after the fit only, to compute metrics.

| experiment | question | metrics |
|---|---|---|
| recovery | how close are the latents to the true ones, on new rows? | mcc, r2; mcc_sparse where the basis is rotated |
| independent | the same, on rows whose latents are independent | mcc_independent, mcc |
| blocks | are groups of latents separated? | block_r2, latent_r2, leak, blocks_right; for images also of the code |
| graph | which graph does PC find among the latents? | delta_shd, shd_recovered, shd_true |
| agreement | do fits agree with each other, where no ground truth is known? | weak, strong, dist |
| minimisers | is the truth the only minimiser of the exact likelihood? | unique, gap |
"""

import copy
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from inspect import signature
from itertools import combinations
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state

import identifiable
from identifiable import data
from identifiable.arrays import FloatArray
from identifiable.data.latents import MaskedSCM
from identifiable.data.sample import Sample
from identifiable.data.simulator import Simulator
from identifiable.errors import RecoveryWarning
from identifiable.estimators.base import LatentModel
from identifiable.estimators.baselines import IndependentComponents
from identifiable.estimators.image_unmixing import ImageUnmixing
from identifiable.estimators.relaxed_vqvae import RelaxedVQVAE, position_mcc
from identifiable.estimators.sparse_unmixing import SparseUnmixing
from identifiable.estimators.two_stage import TwoStage
from identifiable.experiments import pictures, references
from identifiable.experiments.recipe import BASELINES, FIRST_SEED, NET, Measurement, Method, Run
from identifiable.metrics import block_r2, correlation_matrix, dist_aff_l2, match, mcc, r2, strong_mcc, weak_mcc

GRAPH_ROWS = 5000  # all latents active
NEW_DATA = 1_000_003  # added to the seed of a run for its new rows
GIVEN = {"GroupedSparse": "component", "LabelledKeypoints": "z"}  # the field of the data that is y; u for all others
MOST_PIXELS = 1024  # given to a linear method
DECIMALS = 3  # of the arrays in a record
SIMULATORS: Mapping[str, Callable[..., Sample]] = {
    source.name: getattr(data, source.loader) for source in data.catalogue() if source.loader.startswith("make_")
}
IMAGES: Mapping[str, Callable[..., Sample]] = {"mnist": data.load_mnist, "cifar10": data.load_cifar10}
FAST_ON_CPU = ("RawData", "PrincipalComponents", "IndependentComponents", "SparseUnmixing", "PDGMM")


@dataclass(frozen=True)
class DataRequest:
    """The data of a setting, read from its `values`.

    Attributes
    ----------
    law : name of a simulator or of a set of images.
    rows, segment_rows : number of rows to fit, in all or per segment; by default all images.
    new_rows : number of rows to measure on.
    draw : number of the data set, where a setting has several per seed.
    latents : number of latents to estimate; by default that of the ground truth.
    runs : number of fits to compare.
    directions : number of canonical directions in weak MCC; by default all.
    net : name of a net, for methods whose parameter `net` contains `NET`.
    simulator : all other values, which are parameters of the simulator.
    """

    law: str
    rows: int | None = None
    segment_rows: int = 0
    new_rows: int = 5000
    draw: int | None = None
    latents: int | None = None
    runs: int = 0
    directions: int | None = None
    net: str = ""
    simulator: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run) -> "DataRequest":
        """Read the values of a run."""
        own = {f.name for f in fields(cls)} - {"simulator"}
        simulator = {k: v for k, v in run.values.items() if k not in own}
        return cls(**{k: v for k, v in run.values.items() if k in own}, simulator=simulator)


@dataclass(frozen=True)
class Fit:
    """A fitted method: the estimators fitted before it, each of which transforms x for the next, and its own."""

    before: tuple[LatentModel, ...]
    model: LatentModel
    seconds: float

    def prepare(self, x: FloatArray) -> FloatArray:
        """Return what the method's own estimator is given instead of x."""
        for one in self.before:
            x = np.asarray(one.transform(x), dtype=np.float64)
        return x

    def latents(self, sample: Sample) -> FloatArray:
        """Return the latents of a sample, (N, n)."""
        return np.asarray(self.model.transform(self.prepare(sample.x)), dtype=np.float64)

    def decode(self, z: FloatArray) -> FloatArray:
        """Return the observations of latents z (N, n)."""
        for one in (self.model, *self.before[::-1]):
            z = np.asarray(one.inverse_transform(z), dtype=np.float64)
        return z

    @property
    def decodes(self) -> bool:
        """Whether every estimator has a decoder."""
        return all(callable(getattr(one, "inverse_transform", None)) for one in (*self.before, self.model))

    def metrics(self) -> dict[str, float]:
        """Return the seconds of the fit and, if its restarts can be compared, their agreement."""
        score = self.model.stability_.score
        return {"seconds": self.seconds} | ({"agreement": score} if np.isfinite(score) else {})


def measure(run: Run, device: str = "auto") -> Measurement:
    """Measure one run.

    Examples
    --------
    >>> values = {"law": "pdgmm", "n": 3, "rows": 500}
    >>> run = Run("a", "full", "recovery", "n = 3", values, "PCA", BASELINES["PCA"], 0)
    >>> sorted(measure(run, "cpu").metrics)
    ['mcc', 'r2', 'score', 'seconds']
    """
    with warnings.catch_warnings(action="ignore", category=RecoveryWarning):  # the record contains their agreement
        return EXPERIMENTS[run.experiment](run, device)


def best_device(run: Run, device: str) -> str:
    """Return where a run is computed: "auto" uses the GPU for wide nets only."""
    return "cpu" if device == "auto" and run.how.estimator in FAST_ON_CPU else device


def recovery(run: Run, device: str) -> Measurement:
    """Compare the latents of new rows with the true ones."""
    sample, new = make_data(run)
    return recovered(run, fit(run, sample, device), new)


def recovered(run: Run, fitted: Fit, new: Sample) -> Measurement:
    """Compare a fit's latents of new rows with the true ones."""
    assert new.z is not None
    model, found, x = fitted.model, fitted.latents(new), fitted.prepare(new.x)
    metrics = fitted.metrics() | {"mcc": mcc(new.z, found), "r2": r2(found, new.z)}  # R² as in the pdGMM paper
    if np.isfinite(score := model.score(x)):
        metrics["score"] = score
    if run.values.get("theta"):
        metrics["mcc_sparse"] = mcc(new.z @ sparse_latents(new).rotation.numpy().T, found)
    if isinstance(model, TwoStage):
        code = model.stage1_transform(x)
        metrics |= {"stage1_r2": r2(code, new.z), "stage1_mcc": mcc(new.z, code)}
    arrays = {"correlation": _correlation(new.z, found)}
    if hasattr(model, "latents_of_restarts") and len(scores := getattr(model, "restart_scores_", ())) > 1:
        arrays["restarts"] = _rounded([mcc(new.z, z) for z in model.latents_of_restarts(x)])
        arrays["scores"] = _rounded(scores)
    return Measurement(metrics, arrays, _certificate(model))


def independent(run: Run, device: str) -> Measurement:
    """Measure the fit also on rows with independent latents: the same masks and mixing, without the edges."""
    sample, new = make_data(run)
    fitted = fit(run, sample, device)
    latents = copy.deepcopy(sparse_latents(new))
    latents.adjacency.zero_()
    latents.transfer.copy_(torch.eye(len(latents.transfer)))
    assert isinstance(new.source, Simulator)
    rows = replace(new.source, latents=latents).sample(len(new), random_state=run.seed + 1)
    assert rows.z is not None
    assert new.z is not None
    found = fitted.latents(rows)
    metrics = {"mcc_independent": mcc(rows.z, found), "mcc": mcc(new.z, fitted.latents(new))}
    return Measurement(fitted.metrics() | metrics, {"correlation": _correlation(rows.z, found)})


def blocks(run: Run, device: str) -> Measurement:
    """Regress every estimated latent on every block of true ones: R² on its own block, and the largest on another."""
    sample, new = make_data(run)
    fitted = fit(run, sample, device)
    assert new.z is not None
    pair = 1 if run.values.get("separately") else 2
    sizes = run.values.get("blocks") or [pair] * (new.z.shape[1] // pair)
    ends = np.cumsum(sizes)
    groups = [list(range(end - size, end)) for size, end in zip(sizes, ends, strict=True)]
    z_hat = fitted.latents(new)
    found = block_r2(new.z, z_hat, groups)
    assigned = found.assignment >= 0
    others = found.table[assigned].copy()
    own = np.arange(assigned.sum()), found.assignment[assigned]
    metrics = {"block_r2": found.mean, "latent_r2": float(others[own].mean()), "worst_block": float(found.scores.min())}
    others[own] = 0
    metrics["leak"] = float(others.max(1).mean())
    if run.values["law"] == "balls" and pair == 2:
        metrics |= {f"ball_{i}": score for i, score in enumerate(found.scores.tolist(), 1)}
    if hasattr(fitted.model, "blocks_"):
        joined = [sorted(found.assignment[list(block)].tolist()) for block in fitted.model.blocks_]
        several = [[b] * len(group) for b, group in enumerate(groups) if len(group) > 1]
        metrics["blocks_right"] = float(sorted(joined) == several)
    if isinstance(fitted.model, ImageUnmixing):
        metrics |= _of_code(fitted.model, sample, new, groups, run.seed)
    arrays: dict[str, Any] = {"blocks": _rounded(found.table[np.argsort(found.assignment, kind="stable")])}
    if new.image_shape is not None and fitted.decodes and run.seed == FIRST_SEED:
        arrays |= pictures.of_fit(fitted.decode, z_hat, new)
    return Measurement(fitted.metrics() | metrics, arrays)


def _of_code(model: ImageUnmixing, sample: Sample, new: Sample, groups: list[list[int]], seed: int) -> dict[str, float]:
    """Return the R² of the code itself, and, after a random linear mixing of it, of `SparseUnmixing` and FastICA."""
    assert new.z is not None
    code, new_code = (np.asarray(model.encoder_.transform(s.x), dtype=np.float64) for s in (sample, new))
    n = code.shape[1]
    mixing = np.random.default_rng(seed).normal(size=(n, n)) / code.std(0)[:, None]
    scores = {"code_r2": block_r2(new.z, new_code, groups).mean}
    for name, method in (("mixed_sparse", SparseUnmixing), ("mixed_ica", IndependentComponents)):
        found = method(n, random_state=seed, verbose=0).fit(code @ mixing).transform(new_code @ mixing)
        scores[name] = block_r2(new.z, np.asarray(found), groups).mean
    return scores


def graph(run: Run, device: str) -> Measurement:
    """Run PC on true and on recovered latents of the same rows, all active, and compare with the true CPDAG."""
    from identifiable.causal import recovered_shd

    sample, _ = make_data(run)
    fitted = fit(run, sample, device)
    latents = sparse_latents(sample)
    assert sample.source is not None
    rows = sample.source.unmasked().sample(GRAPH_ROWS, random_state=run.seed + NEW_DATA)
    assert rows.z is not None
    z, estimated = rows.z @ latents.rotation.numpy().T, fitted.latents(rows)
    found = recovered_shd(z, estimated, (latents.adjacency != 0).numpy())
    metrics = {name: float(getattr(found, name)) for name in ("delta_shd", "shd_recovered", "shd_true")}
    return Measurement(fitted.metrics() | metrics | {"mcc": mcc(z, estimated)})


def agreement(run: Run, device: str) -> Measurement:
    """Compare all pairs of fits on new rows: weak and strong MCC, and the distance of their mixtures."""
    sample, new = make_data(run)
    request, started = DataRequest.of(run), time.perf_counter()
    mixtures: list[Any] = []
    model: Any = None
    if run.method in BASELINES:
        each = np.stack(
            [fit(replace(run, seed=run.seed + i), sample, device).latents(new) for i in range(request.runs)]
        )
    else:
        model = fit(run, sample, device, restarts=request.runs).model
        each = model.latents_of_restarts(*((new.x, new.u) if model.needs_u else (new.x,)))
        if request.law not in IMAGES and hasattr(model, "mixtures_of_restarts"):
            mixtures = model.mixtures_of_restarts()
    metrics = {"seconds": time.perf_counter() - started}
    pairs = list(combinations(range(len(each)), 2))

    def mean(compare: Callable[[Any, Any], Any], of: Any) -> float:
        return float(np.mean([compare(of[a], of[b]) for a, b in pairs]))

    if isinstance(model, RelaxedVQVAE):
        places = int(np.prod(model.grid_))
        metrics["weak"] = mean(lambda a, b: position_mcc(a, b, places, weak_mcc), each)
        metrics["strong"] = mean(lambda a, b: position_mcc(a, b, places, strong_mcc), each)
        return Measurement(metrics)
    metrics["weak"] = mean(lambda a, b: weak_mcc(a, b, n_components=request.directions), each)
    metrics["strong"] = mean(strong_mcc, each)
    if request.directions is not None:
        metrics["weak_all"] = mean(weak_mcc, each)
    if mixtures:
        metrics["dist"] = mean(dist_aff_l2, mixtures)
    return Measurement(metrics, {}, None if model is None else _certificate(model))


def minimisers(run: Run, device: str) -> Measurement:
    """Search a grid of models for minimisers of the exact likelihood that are not equivalent to the truth."""
    from identifiable.theory.exact_likelihood import Grid, draws, search

    started = time.perf_counter()
    given: dict[str, Any] = run.values["grid"]
    grid = Grid(**given | {k: tuple(map(Fraction, v)) for k, v in given.items() if isinstance(v, (list, tuple))})
    found = search(grid, draws(grid, run.values["models"], run.seed))
    weak = [r for r in found if r.truth.f.injectivity != "none"]
    gaps = [r.other_prior for r in weak]
    metrics = {"unique": sum(not r.minimisers for r in weak) / len(weak), "gap": float(np.median(gaps))}
    return Measurement(metrics | {"seconds": time.perf_counter() - started}, {"gaps": gaps})


def make_data(run: Run) -> tuple[Sample, Sample]:
    """Return the rows to fit, and new ones of the same distribution; for images, their test set."""
    request = DataRequest.of(run)
    if request.law in IMAGES:
        rng = check_random_state(0)
        train, test = (IMAGES[request.law](split=split) for split in ("train", "test"))
        train, test = _subset(train, request.rows, rng), _subset(test, request.new_rows, rng)
        return _as_tables(run.how, train, test)
    rows = request.rows or request.segment_rows * request.simulator["segments"]
    seed = run.seed if request.draw is None else 10 * run.seed + request.draw
    sample = SIMULATORS[request.law](rows, **request.simulator, random_state=seed)
    assert sample.source is not None
    new = sample.source.sample(request.new_rows, random_state=run.seed + NEW_DATA)
    return (sample, new) if sample.image_shape is None else _as_tables(run.how, sample, new)


def fit(run: Run, sample: Sample, device: str, restarts: int | None = None) -> Fit:
    """Fit the method of a run, and the methods before it; `restarts` replaces the method's number of restarts."""
    started = time.perf_counter()
    models: list[LatentModel] = []
    rows = sample
    for how in _steps(run.how):
        model = build(run, how, sample, device, restarts if how is run.how else None)
        source: Any = rows.source if how.fresh else rows.x
        model.fit(source, getattr(rows, GIVEN.get(how.estimator, "u")))
        models.append(model)
        if how is not run.how:
            rows = Sample(np.asarray(model.transform(rows.x), dtype=np.float64), u=rows.u, component=rows.component)
    return Fit(tuple(models[:-1]), models[-1], time.perf_counter() - started)


def _steps(how: Method) -> list[Method]:
    return [*([] if how.before is None else _steps(how.before)), how]


def build(run: Run, how: Method, sample: Sample, device: str, restarts: int | None = None) -> Any:
    """Return the estimator of a run, not fitted; `restarts` replaces its number of restarts."""
    estimator: Callable[..., LatentModel] = estimator_of(how)
    request = DataRequest.of(run)
    params = dict(how.params)
    if isinstance(net := params.get("net"), str):
        params["net"] = net.replace(NET, request.net)
    true_number = sample.z.shape[1] if sample.z is not None else None
    given = {"n_latents": request.latents or true_number, **params, "random_state": run.seed, "verbose": 0}
    model = estimator(**{k: v for k, v in given.items() if k in params or k in signature(estimator).parameters})
    if "device" in model.get_params():
        model.set_params(device=device)
    if "image_shape" in model.get_params():
        model.set_params(image_shape=sample.image_shape)
    if restarts is not None:
        model.set_params(n_restarts=restarts)
    if how.estimator == "RawData":
        model.set_params(n_latents=None)
    return model


def estimator_of(how: Method) -> Any:
    """Return the public estimator of a method, or the reference, which exists in experiments only."""
    return getattr(references, how.estimator, None) or getattr(identifiable, how.estimator)


def sparse_latents(sample: Sample) -> MaskedSCM:
    """Return the distribution of latents that are inactive in some rows, from which a sample was drawn."""
    assert isinstance(sample.source, Simulator)
    assert isinstance(sample.source.latents, MaskedSCM)
    return sample.source.latents


def _subset(sample: Sample, rows: int | None, rng: np.random.RandomState) -> Sample:
    if rows is None or rows >= len(sample):
        return sample
    return sample[np.sort(rng.choice(len(sample), rows, replace=False))]


def _as_tables(how: Method, sample: Sample, new: Sample) -> tuple[Sample, Sample]:
    """Turn images into tables: downsampled if they have many pixels, without constant or duplicate columns.

    Methods of images, and those with a net, are given the images unchanged.
    """
    if any("net" in step.params or "image_shape" in signature(estimator_of(step)).parameters for step in _steps(how)):
        return sample, new
    x, x_new = _downsampled(sample), _downsampled(new)
    first = np.sort(np.unique(x, axis=1, return_index=True)[1])
    kept = first[np.ptp(x[:, first], axis=0) > 0]
    return replace(sample, x=x[:, kept], image_shape=None), replace(new, x=x_new[:, kept], image_shape=None)


def _downsampled(sample: Sample) -> FloatArray:
    """Average squares of 2 x 2 pixels until a row has at most MOST_PIXELS numbers."""
    assert sample.image_shape is not None
    height, width, *_ = sample.image_shape
    x = sample.x.reshape(len(sample), height, width, -1)
    while x[0].size > MOST_PIXELS and x.shape[1] % 2 == x.shape[2] % 2 == 0:
        x = x.reshape(len(x), x.shape[1] // 2, 2, x.shape[2] // 2, 2, -1).mean((2, 4))
    return x.reshape(len(x), -1)


def _certificate(model: LatentModel) -> dict[str, Any] | None:
    certificate = getattr(model, "certificate_", None)
    if certificate is None:
        return None
    found: dict[str, Any] = certificate.to_dict()
    return {k: found[k] for k in ("level", "if_undecided_hold", "theorem", "checks", "blocks", "meaning")}


def _correlation(z: FloatArray, found: FloatArray) -> list[Any]:
    """Return |correlation| of true latents with matched estimated ones, then with the unmatched ones."""
    matched = [i for i in match(z, found).permutation.tolist() if i >= 0]
    order = [*matched, *sorted(set(range(found.shape[1])) - set(matched))]
    return _rounded(np.abs(correlation_matrix(z, found))[:, order])


def _rounded(values: Any) -> list[Any]:
    return np.round(np.asarray(values, dtype=np.float64), DECIMALS).tolist()


EXPERIMENTS: Mapping[str, Callable[[Run, str], Measurement]] = {
    experiment.__name__: experiment for experiment in (recovery, independent, blocks, graph, agreement, minimisers)
}
