"""The words of a sweep: a `Recipe` is unfolded into `Cell`s, a cell is measured, what came out is a `Record`.

A recipe states settings, methods, seeds, metrics and published values of one table or figure, as plain values. There is
a cell for each setting, method and seed. Cells and records hold nothing but JSON, so they can be sent to any process or
machine, and the key of a cell names the same computation everywhere.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

FULL, QUICK = "full", "quick"
DONE, FAILED = "done", "failed"
FIRST_SEED = 2026  # of the draws and fits of all recipes: none that was looked at while methods were made


@dataclass(frozen=True)
class Method:
    """A public estimator by name, with its parameters; the number of latents and the seed come from the cell.

    `fresh` fits it to the law itself, from which every step draws new rows, instead of a fixed table. `before` is a
    method whose latents it is given instead of x.
    """

    estimator: str
    params: Mapping[str, Any] = field(default_factory=dict)
    fresh: bool = False
    before: "Method | None" = None


BASELINES = {
    "raw x": Method("RawData"),
    "PCA": Method("PrincipalComponents"),
    "FastICA": Method("IndependentComponents"),
    "SparseUnmixing": Method("SparseUnmixing"),
}


@dataclass(frozen=True)
class Setting:
    """A row of a table: its name, and the arguments of the law of its data, `{"law": "pdgmm", "n": 5, ...}`."""

    name: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Published:
    """One published number. `method` is the paper's column, or the name of a method of the recipe."""

    setting: str
    method: str
    metric: str
    mean: float
    sd: float | None = None


@dataclass(frozen=True)
class QuickOverrides:
    """What `--quick` changes: fewer seeds, these settings only, other arguments of the laws and of the methods.

    `params` names methods; one whose entry is None is left out.
    """

    seeds: int = 1
    settings: Sequence[str] | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """One computation: fit one method to one draw of one setting, and measure."""

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
        """A name made of all that decides the result: the same in every process and on every machine.

        Examples
        --------
        >>> Cell("xu2026/table1", "full", "recovery", "n = 5", {"n": 5}, "PCA", BASELINES["PCA"], 0).key[:16]
        'xu2026-table1-n-'
        """
        words = json.dumps(self.to_json(), sort_keys=True)
        readable = "-".join(
            "".join(c if c.isascii() and c.isalnum() else " " for c in f"{self.recipe} {self.setting}").split()
        )
        return f"{readable[:60]}-{self.seed}-{hashlib.sha256(words.encode()).hexdigest()[:16]}"

    def to_json(self) -> dict[str, Any]:
        """Return the cell as a tree of JSON."""
        return asdict(self)

    @classmethod
    def of_json(cls, tree: Mapping[str, Any]) -> "Cell":
        """Return the cell that `to_json` wrote."""
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
    question : what one would like to know.
    experiment : which measurement (`identifiable.experiments.measure`).
    settings, methods, seeds : the cells; the trivial baselines are among the methods.
    seeds_by_method : seeds of the methods that are run on fewer of them.
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

    def cells(self, *, seeds: int | None = None, quick: bool = False) -> tuple[Cell, ...]:
        """Unfold the recipe: the first `seeds` seeds from FIRST_SEED on."""
        smaller = self.smaller if quick else QuickOverrides(self.seeds)
        count = seeds if seeds is not None else smaller.seeds
        wanted = [s for s in self.settings if smaller.settings is None or s.name in smaller.settings]
        found = []
        for setting in wanted:
            for name, method in self.methods.items():
                changed = smaller.params.get(name, {})
                if changed is None:
                    continue
                for seed in range(FIRST_SEED, FIRST_SEED + min(count, self.seeds_by_method.get(name, count))):
                    found.append(
                        Cell(
                            recipe=self.name,
                            size=QUICK if quick else FULL,
                            experiment=self.experiment,
                            setting=setting.name,
                            values={**setting.values, **smaller.values},
                            method=name,
                            how=replace(method, params={**method.params, **changed}),
                            seed=seed,
                        )
                    )
        return tuple(found)


@dataclass(frozen=True)
class Measurement:
    """What an experiment measured: numbers; tables for pictures, as nested lists; what the fit is certified to be."""

    metrics: Mapping[str, float]
    arrays: Mapping[str, Any] = field(default_factory=dict)
    certificate: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Record:
    """A finished cell: one JSON line.

    Attributes
    ----------
    status : "done", or "failed" with `error`, a line that says why.
    metrics, arrays, certificate : of the `Measurement`; empty where the cell failed.
    seconds : wall time of the fit and the measurement.
    device, versions, commit, finished : where, with what and when (UTC, ISO 8601) it ran; commit is None outside git.
    """

    cell: Cell
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
        tree["metrics"] = {k: float(v) if math.isfinite(v) else None for k, v in self.metrics.items()}
        return json.dumps(tree, sort_keys=True, allow_nan=False)

    @classmethod
    def of_line(cls, line: str) -> "Record":
        """Return the record that `to_line` wrote."""
        tree = json.loads(line)
        tree["cell"] = Cell.of_json(tree["cell"])
        tree["metrics"] = {k: math.nan if v is None else v for k, v in tree["metrics"].items()}
        return cls(**{name: tree[name] for name in cls.__dataclass_fields__})
