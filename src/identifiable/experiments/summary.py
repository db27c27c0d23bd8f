"""The results of a sweep: every method on every setting, compared with published numbers and trivial baselines."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import pandas as pd

from identifiable.experiments.recipe import BASELINES, IMAGE_BASELINES, REFERENCES, Published, Recipe, Record

LOWER = frozenset({"shd", "delta_shd", "shd_recovered", "shd_true", "dist", "leak", "seconds", "mse", "error"})
ROUNDING = 0.005  # published values are printed with two decimals
BETTER, SAME, WORSE = "better", "as published", "worse"
BEATS, BEATS_NOT = "beats the baselines", "does not"

Kind = Literal["method", "published", "reference", "baseline"]
KINDS: tuple[Kind, ...] = ("method", "published", "reference", "baseline")  # in the order of tables


@dataclass(frozen=True)
class Spread:
    """A metric over seeds: mean, sd (nan for one seed), worst, and the number of seeds with a finite value."""

    mean: float = math.nan
    sd: float = math.nan
    worst: float = math.nan
    n: int = 0

    @classmethod
    def of(cls, values: Iterable[float], metric: str) -> Self:
        """Summarise the finite values.

        Examples
        --------
        >>> Spread.of([1.0, 3.0, float("nan")], "mcc")
        Spread(mean=2.0, sd=1.4142135623730951, worst=1.0, n=2)
        """
        found = np.array([v for v in values if math.isfinite(v)])
        if not len(found):
            return cls()
        sd = float(found.std(ddof=1)) if len(found) > 1 else math.nan
        return cls(float(found.mean()), sd, float(found.max() if metric in LOWER else found.min()), len(found))


def summarise(recipe: Recipe, records: Sequence[Record]) -> pd.DataFrame:
    """Return one row per setting and method, in the order of the recipe; published numbers have their own rows.

    Only settings with a record have rows. Columns:

    - setting, method, kind: "method", "baseline" (in `recipe.BASELINES` or `IMAGE_BASELINES`), "reference" (in
      `recipe.REFERENCES`: is given the ground truth) or "published" (named as in the paper);
    - for each metric of the recipe `mcc_mean`, `mcc_sd` (ddof 1, nan for one seed), `mcc_worst` and `mcc_n`, the number
      of seeds with a finite value;
    - failed: number of runs that ended in an error;
    - on the main metric, the recipe's first: `against`, the published number compared with (the one whose
      `compare_with` lists the method, or else the best one of the setting), and `against_published`, "better", "worse"
      or "as published": within one sd of the difference, √(sd² + sd²) with 0 for an unknown sd, or within the rounding
      of printed numbers, 0.005;
    - `against_baselines`: "beats the baselines" if the mean is better than that of every trivial baseline, else "does
      not"; empty for the baselines, and both are empty for references;
    - verdict: both in one phrase.

    Lower is better for the metrics in `LOWER`, higher for all others.
    """
    runs = latest(records)
    rows = [row for setting in settings_of(recipe, runs) for row in _rows(recipe, setting, runs)]
    metrics = [f"{metric}_{what}" for metric in recipe.metrics for what in ("mean", "sd", "worst", "n")]
    last = ["failed", "against", "against_published", "against_baselines", "verdict"]
    return pd.DataFrame(rows, columns=["setting", "method", "kind", *metrics, *last])


def per_run(records: Sequence[Record]) -> pd.DataFrame:
    """Return one row per run: setting and its values, method, seed, metrics, device and versions.

    Values have columns such as `setting.n`; a metric with the name of another column is `metric.seconds`.
    """
    runs = latest(records)
    values = _names(r.run.values for r in runs)
    metrics = _names(r.metrics for r in runs)
    rows = []
    for r in runs:
        row: dict[str, Any] = {"setting": r.run.setting}
        row |= {f"setting.{name}": _plain(r.run.values.get(name)) for name in values}
        row |= {"method": r.run.method, "seed": r.run.seed, "status": r.status}
        row |= {_column(name): r.metrics.get(name, math.nan) for name in metrics}
        row |= {"seconds": r.seconds, "error": r.error, "device": r.device, "commit": r.commit}
        rows.append(row | {"finished": r.finished, "versions": json.dumps(dict(r.versions), sort_keys=True)})
    first = ["setting", *(f"setting.{name}" for name in values), "method", "seed", "status"]
    return pd.DataFrame(rows, columns=[*first, *map(_column, metrics), *_FIXED])


_FIXED = ("seconds", "error", "device", "commit", "finished", "versions")


def latest(records: Sequence[Record]) -> list[Record]:
    """Return the last record of each run, in the order of the first ones: a failed run may have been repeated."""
    return list({r.run.key: r for r in records}.values())


def settings_of(recipe: Recipe, runs: Sequence[Record]) -> list[str]:
    """Return the settings that have a record, in the order of the recipe; unknown ones come last."""
    return _ordered([s.name for s in recipe.settings], (r.run.setting for r in runs))


def methods_of(recipe: Recipe, runs: Sequence[Record]) -> list[str]:
    """Return the methods that have a record, in the order of the recipe; unknown ones come last."""
    return _ordered(list(recipe.methods), (r.run.method for r in runs))


def kind_of(method: str) -> Kind:
    """Return whether a method of a recipe is a trivial baseline, a reference that knows the truth, or neither."""
    if method in REFERENCES:
        return "reference"
    return "baseline" if method in BASELINES or method in IMAGE_BASELINES else "method"


def value_of(record: Record, metric: str) -> float:
    """Return a metric of a record, nan if it was not measured."""
    return float(record.metrics.get(metric, record.seconds if metric == "seconds" else math.nan))


def _rows(recipe: Recipe, setting: str, runs: Sequence[Record]) -> list[dict[str, Any]]:
    main, mine = recipe.metrics[0], [r for r in runs if r.run.setting == setting]
    spreads: dict[str, dict[str, Spread]] = {}
    for method in methods_of(recipe, mine):
        done = [r for r in mine if r.run.method == method and r.status == "done"]
        spreads[method] = {metric: Spread.of((value_of(r, metric) for r in done), metric) for metric in recipe.metrics}
    known = [p for p in recipe.published if p.setting == setting and p.metric in recipe.metrics]
    trivial = [s[main].mean for m, s in spreads.items() if kind_of(m) == "baseline" and math.isfinite(s[main].mean)]
    rows = []
    for method, found in spreads.items():
        kind = kind_of(method)
        printed = None if kind == "reference" else compared_with(method, [p for p in known if p.metric == main])
        against = _against_published(found[main], printed, main)
        beats = "" if kind != "method" else _against_baselines(found[main].mean, trivial, main)
        failed = sum(r.run.method == method and r.status != "done" for r in mine)
        row = _row(setting, method, kind, found) | {"failed": failed}
        row |= {"against": printed.method if printed and against else "", "against_published": against}
        rows.append(row | {"against_baselines": beats, "verdict": _verdict(against, beats)})
    for method in dict.fromkeys(p.method for p in known):
        own = {p.metric: p for p in known if p.method == method}
        found = {k: Spread(own[k].mean, _or_nan(own[k].sd)) if k in own else Spread() for k in recipe.metrics}
        blank = dict.fromkeys(("against", "against_published", "against_baselines", "verdict"), "")
        rows.append(_row(setting, method, "published", found) | {"failed": 0} | blank)
    return rows


def _row(setting: str, method: str, kind: Kind, found: Mapping[str, Spread]) -> dict[str, Any]:
    row: dict[str, Any] = {"setting": setting, "method": method, "kind": kind}
    for metric, spread in found.items():
        row |= {f"{metric}_{what}": getattr(spread, what) for what in ("mean", "sd", "worst", "n")}
    return row


def compared_with(method: str, published: Sequence[Published]) -> Published | None:
    """Return the published number whose `compare_with` lists the method, or else the best one."""
    listed = (p for p in published if method in p.compare_with)
    best = max(published, key=lambda p: goodness(p.mean, p.metric), default=None)
    return next(listed, best)


def as_printed(method: str) -> str:
    """Return the name of a published method without the prefix that says it is published."""
    return method.removeprefix("published: ")


def _against_published(found: Spread, printed: Published | None, metric: str) -> str:
    if printed is None or not math.isfinite(found.mean):
        return ""
    gain = goodness(found.mean, metric) - goodness(printed.mean, metric)
    sd = math.hypot(np.nan_to_num(found.sd), np.nan_to_num(_or_nan(printed.sd)))
    if abs(gain) <= max(sd, ROUNDING) + 1e-9:
        return SAME
    return BETTER if gain > 0 else WORSE


def _against_baselines(mean: float, trivial: Sequence[float], metric: str) -> str:
    if not trivial or not math.isfinite(mean):
        return ""
    return BEATS if goodness(mean, metric) > max(goodness(t, metric) for t in trivial) else BEATS_NOT


def _verdict(published: str, baselines: str) -> str:
    first = {BETTER: "better than published", WORSE: "worse than published"}.get(published, published)
    second = {BEATS_NOT: "does not beat the baselines"}.get(baselines, baselines)
    return ", ".join(part for part in (first, second) if part)


def goodness(value: float, metric: str) -> float:
    """Return the value with the sign for which higher is better."""
    return -value if metric in LOWER else value


def _ordered(known: Sequence[str], found: Iterable[str]) -> list[str]:
    present = dict.fromkeys(found)
    return [name for name in known if name in present] + [name for name in present if name not in set(known)]


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _names(maps: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for one in maps for name in one))


def _column(metric: str) -> str:
    reserved = {"setting", "method", "seed", "status", *_FIXED}
    return f"metric.{metric}" if metric in reserved or metric.startswith("setting.") else metric


def _plain(value: Any) -> Any:
    """Return a value as a scalar: lists and the like as JSON."""
    return value if value is None or isinstance(value, str | int | float | bool) else json.dumps(value)
