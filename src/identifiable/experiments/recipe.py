"""Recipes and records: a `Recipe` lists `Run`s, each run is measured, and its result is a `Record`.

A recipe states settings, methods, seeds, metrics and published values of one table or figure, as plain values. There is
one run for each setting, method and seed. Runs and records contain only JSON values, so they can be sent to any process
or machine, and the key of a run identifies the same computation everywhere.
"""

import csv
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

FULL, QUICK = "full", "quick"
DONE, FAILED = "done", "failed"
FIRST_SEED = 2026  # of the data sets and fits of all recipes; no method was developed on this or later seeds
NET = "{net}"  # in the parameter `net` of a method: replaced by the value `net` of the setting


@dataclass(frozen=True)
class Method:
    """An estimator and its parameters. The run supplies the number of latents and the seed.

    Attributes
    ----------
    estimator : name of a public estimator.
    params : its constructor parameters. `NET` in the parameter `net` is replaced by the value `net` of the setting.
    fresh : fit the estimator to the simulator, which samples new rows at every step, instead of to a fixed table.
    before : a method that is fitted first. Its latents replace x.
    """

    estimator: str
    params: Mapping[str, Any] = field(default_factory=dict)
    fresh: bool = False
    before: "Method | None" = None


BASELINES = {
    "raw x": Method("RawData"),
    "PCA": Method("PrincipalComponents"),
    "FastICA": Method("IndependentComponents"),  # the old name of `FastICABaseline`, which finished runs have
    "SparseUnmixing": Method("SparseUnmixing"),
}
MOMENTS = Method("PrincipalComponents", before=Method("ColourMoments"))
IMAGE_BASELINES = {k: v for k, v in BASELINES.items() if k != "raw x"} | {
    "colour moments": Method("SparseUnmixing", before=MOMENTS)
}
REFERENCES = {"positions known": Method("LabelledKeypoints")}  # are given the ground truth: no methods


@dataclass(frozen=True)
class Setting:
    """One row of a table: its name, and the data, `{"law": "pdgmm", "n": 5, ...}` (see `measure.DataRequest`)."""

    name: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Published:
    """One published number.

    Attributes
    ----------
    setting, metric : the place in the recipe's table.
    method : name of its row in the summary, such as "published: VaDE".
    mean, sd : as printed; sd is None where the paper gives none.
    compare_with : methods of the recipe that are compared with this number. A method that no number of its setting
        lists is compared with the best of them.
    """

    setting: str
    method: str
    metric: str
    mean: float
    sd: float | None = None
    compare_with: tuple[str, ...] = ()


def read_published(file: Path) -> dict[str, tuple[Published, ...]]:
    """Read the published numbers of each recipe from a CSV file.

    Its columns are recipe, setting, method, metric, mean, sd (may be empty) and compare_with: names, separated by ";".
    """
    found: dict[str, tuple[Published, ...]] = {}
    with file.open(encoding="utf-8", newline="") as f:
        for row in csv.DictReader(f):
            sd = float(row["sd"]) if row["sd"] else None
            compare_with = tuple(filter(None, row["compare_with"].split(";")))
            number = Published(row["setting"], row["method"], row["metric"], float(row["mean"]), sd, compare_with)
            found[row["recipe"]] = (*found.get(row["recipe"], ()), number)
    return found


@dataclass(frozen=True)
class QuickOverrides:
    """What `--quick` changes: fewer seeds, only these settings, other values of the settings and other parameters.

    `params` maps names of methods to parameters; a method whose entry is None is left out.
    """

    seeds: int = 1
    settings: Sequence[str] | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """One computation: fit one method to one data set (setting and seed), and measure it.

    The key depends on the names and values of all fields, so neither may change: records are found by their keys.
    """

    recipe: str
    size: str
    experiment: str
    setting: str
    values: Mapping[str, Any]
    method: str
    how: Method
    seed: int

    @property
    def key(self) -> str:
        """A name derived from all fields; it is the same in every process and on every machine.

        Examples
        --------
        >>> Run("xu2026/table1", "full", "recovery", "n = 5", {"n": 5}, "PCA", BASELINES["PCA"], 0).key[:16]
        'xu2026-table1-n-'
        """
        everything = json.dumps(asdict(self), sort_keys=True)
        readable = "-".join(
            "".join(c if c.isascii() and c.isalnum() else " " for c in f"{self.recipe} {self.setting}").split()
        )
        return f"{readable[:60]}-{self.seed}-{hashlib.sha256(everything.encode()).hexdigest()[:16]}"

    @classmethod
    def of_json(cls, tree: Mapping[str, Any]) -> "Run":
        """Return the run of a JSON tree, which `asdict` makes."""
        return cls(**{**{name: tree[name] for name in cls.__dataclass_fields__}, "how": _method(tree["how"])})


def _method(tree: Mapping[str, Any]) -> Method:
    before = tree["before"]
    return Method(tree["estimator"], tree["params"], tree["fresh"], None if before is None else _method(before))


@dataclass(frozen=True)
class Recipe:
    """One table or figure.

    Attributes
    ----------
    name, title : "xu2026/table1", and one line.
    source : the paper and the place in it.
    question : the question the table answers.
    experiment : which measurement (`identifiable.experiments.measure`).
    settings, methods, seeds : a run for each combination; the trivial baselines are among the methods.
    seeds_by_method : number of seeds of the methods that run on fewer of them.
    metrics : the columns, the main one first.
    published : the paper's numbers.
    axes : names in `values` that the settings vary, for the plots.
    notes : what a reader must know to compare with the paper.
    smaller : what `--quick` changes.
    """

    name: str
    title: str
    source: str
    question: str
    experiment: str
    settings: tuple[Setting, ...]
    methods: Mapping[str, Method]
    metrics: tuple[str, ...]
    seeds: int
    published: tuple[Published, ...] = ()
    seeds_by_method: Mapping[str, int] = field(default_factory=dict)
    axes: tuple[str, ...] = ()
    notes: str = ""
    smaller: QuickOverrides = field(default_factory=QuickOverrides)

    def runs(self, *, seeds: int | None = None, quick: bool = False) -> tuple[Run, ...]:
        """List the runs of the first `seeds` seeds, from FIRST_SEED on."""
        changes = self.smaller if quick else QuickOverrides(self.seeds)
        count = seeds if seeds is not None else changes.seeds
        return tuple(
            Run(
                recipe=self.name,
                size=QUICK if quick else FULL,
                experiment=self.experiment,
                setting=setting.name,
                values={**setting.values, **changes.values},
                method=name,
                how=replace(method, params={**method.params, **changed}),
                seed=seed,
            )
            for setting in self.settings
            if changes.settings is None or setting.name in changes.settings
            for name, method in self.methods.items()
            if (changed := changes.params.get(name, {})) is not None
            for seed in range(FIRST_SEED, FIRST_SEED + min(count, self.seeds_by_method.get(name, count)))
        )


@dataclass(frozen=True)
class Measurement:
    """What an experiment measured: numbers, arrays for the figures as nested lists, and the fit's certificate."""

    metrics: Mapping[str, float]
    arrays: Mapping[str, Any] = field(default_factory=dict)
    certificate: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Record:
    """A finished run: one JSON line.

    Attributes
    ----------
    run : what was computed; its key in the file is "cell".
    status : "done", or "failed" with `error`, a line that says why.
    metrics, arrays, certificate : of the `Measurement`; empty if the run failed.
    seconds : wall time of the fit and the measurement.
    device, versions, commit, finished : where, with what and when (UTC, ISO 8601) it ran; commit is None outside git.
    """

    run: Run
    status: str
    seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    arrays: Mapping[str, Any] = field(default_factory=dict)
    certificate: Mapping[str, Any] | None = None
    error: str | None = None
    device: str = "cpu"
    versions: Mapping[str, str] = field(default_factory=dict)
    commit: str | None = None
    finished: str = ""

    def to_line(self) -> str:
        """Return the record as one line of JSON; numbers that are not finite become null."""
        tree = asdict(self)
        tree["cell"] = tree.pop("run")
        tree["metrics"] = {k: float(v) if math.isfinite(v) else None for k, v in self.metrics.items()}
        return json.dumps(tree, sort_keys=True, allow_nan=False)

    @classmethod
    def of_line(cls, line: str) -> "Record":
        """Return the record that `to_line` wrote."""
        tree = json.loads(line)
        tree["run"] = Run.of_json(tree["cell"])
        tree["metrics"] = {k: math.nan if v is None else v for k, v in tree["metrics"].items()}
        return cls(**{name: tree[name] for name in cls.__dataclass_fields__})
