"""The report of a fit as one value, from which `certificate.json`, the terminal and the page are written."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Self

import numpy as np

from identifiable.auto.verdict import HEADLINES, Candidate, LatentReport, headline
from identifiable.persist import rename_account
from identifiable.theory.certificate import Level

KEYS = {"expected": "expected_mcc", "tried": "candidates"}  # keys of the file -> fields, where they differ


@dataclass(frozen=True)
class Histogram:
    """Counts of the values of a latent in equal bins between two ends."""

    low: float
    high: float
    counts: tuple[int, ...]


@dataclass(frozen=True)
class DataReport:
    """The table that was fitted, as `TableInspection` describes it.

    Attributes
    ----------
    rows, rows_used : number of rows of the table, and of those without missing values.
    columns_used, u, labels : names of the columns that were fitted, of those of u, and of those that name each row.
    left_out : reason for each excluded column.
    picture : shape of an image where rows are images, or None.
    seen : results of the inspection, a sentence each.
    """

    rows: int
    rows_used: int
    columns_used: tuple[str, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    u: tuple[str, ...] = ()
    picture: tuple[int, ...] | None = None
    seen: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class FitReport:
    """What a fit found, and how reliable and how well guaranteed it is.

    A report that claims more than its latents and its certificate support is refused with a `ValueError`.

    Attributes
    ----------
    verdict, reasons : the verdict on the table (one of `HEADLINES`), and why, a sentence each.
    model : name of the selected model.
    expected_mcc : expected agreement with an independent run; NaN if unknown.
    latents, histograms : reliability and distribution of each latent.
    candidates : the models that were tried, the selected one first.
    data : the table.
    versions, finished : of the software, by name; time at which the fit ended, ISO 8601.
    certificate, goodness : `Certificate.to_dict()` and `Goodness.to_dict()` of the model; None without them.
    graph : "edges" among the stable latents, or "why" there are none.
    parameters : of `Identify`.
    """

    verdict: str
    reasons: tuple[str, ...]
    model: str
    expected_mcc: float
    latents: tuple[LatentReport, ...]
    histograms: tuple[Histogram, ...]
    candidates: tuple[Candidate, ...]
    data: DataReport
    versions: Mapping[str, str]
    finished: str
    certificate: Mapping[str, Any] | None = None
    goodness: Mapping[str, Any] | None = None
    graph: Mapping[str, Any] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        level, every = str((self.certificate or {}).get("level", "none")), self.stable == len(self.latents)
        supported = {"identified": every and level == str(Level.PS), "reproducible": every}.get(self.verdict, True)
        guaranteed = [f"z{i}" for i, latent in enumerate(self.latents) if latent.guaranteed]
        none = level in map(str, (Level.NONE, Level.ATWC, Level.AT))  # levels that guarantee no latent alone
        if self.verdict not in HEADLINES or not supported or (none and guaranteed):
            raise ValueError(
                f"The report of a fit claims more than it shows: verdict {self.verdict!r} and guaranteed latents "
                f"{guaranteed}, but {self.stable} of {len(self.latents)} stable latents and a certificate of level "
                f"{level!r}. Verdicts are {', '.join(HEADLINES)}."
            )

    @property
    def stable(self) -> int:
        """Number of stable latents."""
        return sum(latent.verdict == "stable" for latent in self.latents)

    @property
    def headline(self) -> str:
        """The verdict in one sentence."""
        return headline(self.verdict, self.stable, len(self.latents))

    def to_dict(self) -> dict[str, Any]:
        """Return the contents of `certificate.json`; numbers that are not finite become None."""
        pairs = zip(self.latents, self.histograms, strict=True)
        values = vars(self) | {key: getattr(self, name) for key, name in KEYS.items()}
        values |= {"latents": [vars(one) | {"histogram": histogram} for one, histogram in pairs]}
        own = {*KEYS.values(), "histograms"}
        plain: dict[str, Any] = _plain({key: value for key, value in values.items() if key not in own})
        return plain

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Read the contents of `certificate.json`, also of version 0.1."""
        saved = rename_account(dict(saved))
        own = {key: saved[name] for name, key in KEYS.items() if name in saved}
        own["latents"] = tuple(_read(LatentReport, one) for one in saved["latents"])
        own["histograms"] = tuple(_read(Histogram, one["histogram"]) for one in saved["latents"])
        own["candidates"] = tuple(_read(Candidate, one) for one in saved["tried"])
        own["data"] = _read(DataReport, saved["data"])
        found: Self = _read(cls, saved | own)
        return found


def _read(kind: Any, saved: Mapping[str, Any]) -> Any:
    """Return a dataclass from what `_plain` made of it: null becomes NaN in numbers, lists become tuples."""
    values = {}
    for one in fields(kind):
        if one.name in saved:
            value = saved[one.name]
            number = value is None and one.type is float
            values[one.name] = math.nan if number else tuple(value) if isinstance(value, list) else value
    return kind(**values)


def _plain(value: Any) -> Any:
    """Return a tree of JSON: numbers that are not finite become null."""
    if is_dataclass(value) and not isinstance(value, type):
        value = vars(value)
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value
