"""A fit as files: a table in; latents, a model and a report out, in one folder.

RUN/latents.csv         number of the row, its id, date or index, then a column per latent; empty in unusable rows
RUN/loadings.csv        the effect of each latent on each column, if the mixing is affine
RUN/model.safetensors   the fitted `Identify`; numbers and words, no code
RUN/certificate.json    verdict, reasons, reliability of each latent, models that were tried, certificate, parameters
RUN/history.csv         the training of the model, if it is trained step by step
RUN/pictures.npz        images for the page, if rows are images
"""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from identifiable import files
from identifiable.arrays import FloatArray
from identifiable.auto.identify import Identify
from identifiable.auto.units import Units
from identifiable.data.inspection import TableInspection, inspect_table
from identifiable.data.table import Names, TableReader
from identifiable.errors import DamagedFileError, DataError, OutOfTimeError
from identifiable.estimators.affine import AffineModel
from identifiable.persist import load, save, versions
from identifiable.report.certificate_text import certificate_in_words
from identifiable.report.fit_page import fit_page, in_words
from identifiable.report.fit_report import DataReport, FitReport, Histogram
from identifiable.report.image_page import Pictures
from identifiable.training import time_limit

MODEL, LATENTS, ACCOUNT, HISTORY = "model.safetensors", "latents.csv", "certificate.json", "history.csv"
LOADINGS = "loadings.csv"
PAGE, PICTURES = "report.html", "pictures.npz"
EXAMPLES = 9  # images shown beside their reconstructions
STEPS = 9  # pictures along a latent
BINS = 40  # of the histogram of a latent
COLOURS = {"stable": "green", "doubtful": "yellow", "unstable": "red"}
HEADINGS = {
    "seed_agreement": "seeds",
    "split_half_agreement": "halves",
    "alternative_agreement": "alternatives",
    "inactive_share": "inactive",
}
MOST_COLUMNS = 3  # named beside a latent


@dataclass(frozen=True, eq=False)
class Fit:
    """A finished fit: its folder, its model, and its report, which certificate.json holds."""

    folder: Path
    model: Identify
    report: FitReport


def fit(
    source: object,
    folder: str | Path,
    *,
    u: Names | None = None,
    columns: Names | None = None,
    key: str | None = None,
    log: str | Sequence[str] | None = None,
    common_scale: bool = False,
    verbose: int = 1,
    **options: Any,
) -> Fit:
    """Inspect a table, find its latents, and write all results to a folder.

    Parameters
    ----------
    source, u, columns, key : the table, see `identifiable.data.inspect_table`.
    folder : where to write; it is created if it does not exist.
    log : "auto", "none" or list of str, default=None. Columns whose logarithm is used; None leaves it to `Identify`.
    common_scale : bool, default=False. Whether columns share one scale, as pixels do; images always do.
    verbose : int, default=1. 1 prints what was found in the table and each step.
    options : parameters of `Identify`; random_state is 0 by default. The graph among the latents is computed in the
        time that the fit leaves.
    """
    console = Console(stderr=True, quiet=verbose == 0)
    seen = inspect_table(source, u=u, columns=columns, key=key)
    for words in seen.words:
        console.print(words, highlight=False, markup=False)
    frame = pd.DataFrame(seen.sample.x, columns=list(seen.sample.columns or ()))
    given: dict[str, Any] = {}
    if log is not None:
        given["log"] = [log] if isinstance(log, str) and log not in ("auto", "none") else log
    given |= {"image_shape": seen.sample.image_shape} | ({"ordered": True} if seen.ordered else {})
    given |= {"common_scale": True} if common_scale or seen.picture is not None else {}
    model = Identify(**{"random_state": 0, **options}, **given, verbose=verbose)
    start, folder = time.monotonic(), Path(folder)
    name = Path(source).name if isinstance(source, str | os.PathLike) else "a table"
    for found in model.answers(frame, seen.sample.u):
        left = np.inf if model.seconds is None else model.seconds - (time.monotonic() - start)
        report = _write(found, folder, seen, frame, name, left)
        console.print(f"{folder / PAGE}: {report.verdict}, {report.model}", highlight=False, markup=False)
    return Fit(folder, model, report)


def _write(
    model: Identify, folder: Path, seen: TableInspection, frame: pd.DataFrame, name: str, seconds: float
) -> FitReport:
    """Write an answer to the folder, each file at once, and return its report."""
    z = model.transform(frame)
    report = _report(model, seen, z, _graph(model, frame, seconds))
    folder.mkdir(parents=True, exist_ok=True)
    save(model, folder / MODEL)
    _write_csv(folder / LATENTS, _table(z, seen.rows, seen.labels, seen.n_rows))
    history = getattr(getattr(model.model_, "encoder_", model.model_), "history_", None)
    _write_csv(folder / HISTORY, None if history is None else history.to_frame())
    _write_csv(folder / LOADINGS, loadings(model))
    files.write_bytes(folder / ACCOUNT, (json.dumps(report.to_dict(), indent=1, default=str) + "\n").encode())
    pictures = _pictures(model, seen, z)
    if pictures is not None:
        pictures.write(folder / PICTURES)
    else:
        (folder / PICTURES).unlink(missing_ok=True)
    fit_page(report, name, pictures).write(folder / PAGE)
    return report


def loadings(model: Identify) -> pd.DataFrame | None:
    r"""Return the effect of each latent on each column, a row per column; None if the model is not affine.

    .. math:: x_j = \text{const} + \sum_i A_{ji} z_i

    in the units of the table. "measured as" says whether x is the column or its logarithm.
    """
    if not isinstance(model.model_, AffineModel) or not isinstance(model.units_, Units):
        return None
    units = model.units_
    mixing = units.scale[:, None] * (units.vectors @ model.model_.mixing_)
    frame = pd.DataFrame(mixing, columns=[f"z{i}" for i in range(mixing.shape[1])])
    frame.insert(0, "column", model.feature_names_in_)
    frame.insert(1, "measured as", np.where(units.logs, "logarithm", "value"))
    return frame


def open_fit(folder: str | Path) -> Fit:
    """Read what `fit` wrote; refuse an incomplete folder."""
    folder = Path(folder)
    if not (folder / MODEL).is_file() or not (folder / ACCOUNT).is_file():
        raise FileNotFoundError(
            f"{str(folder)!r} holds no fit: {MODEL} or {ACCOUNT} is missing. Name a folder that 'identifiable fit' "
            "wrote."
        )
    model = load(folder / MODEL)
    if not isinstance(model, Identify):
        raise DamagedFileError(f"{str(folder / MODEL)!r} holds a {type(model).__name__}, not an Identify.")
    try:
        saved = json.loads((folder / ACCOUNT).read_text(encoding="utf-8"))
    except ValueError as error:
        raise DamagedFileError(f"{str(folder / ACCOUNT)!r} is not valid JSON ({error}). Fit the table again.") from None
    try:
        return Fit(folder, model, FitReport.from_dict(saved))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DamagedFileError(
            f"{str(folder / ACCOUNT)!r} holds no report of a fit ({error}). Fit the table again."
        ) from None


def transform(fitted: Fit, source: object, *, key: str | None = None) -> pd.DataFrame:
    """Return the latents of another table. Columns are matched by name; rows with a missing value have no latents."""
    reader = TableReader(source, columns=fitted.model.feature_names_in_, key=key)
    x = reader.read_with_gaps()
    usable = np.flatnonzero(np.isfinite(x).all(1))
    frame = pd.DataFrame(x[usable], columns=list(fitted.model.feature_names_in_))
    z = fitted.model.transform(frame) if len(usable) else np.empty((0, fitted.model.n_latents_))
    return _table(np.asarray(z), usable, reader.labels(fitted.report.data.labels), len(x))


def inverse(fitted: Fit, source: object, *, key: str | None = None) -> pd.DataFrame:
    """Return the rows of given latents (a table with the columns of latents.csv), in the units of the data."""
    names = [f"z{i}" for i in range(fitted.model.n_latents_)]
    z = TableReader(source, columns=names, key=key).read_with_gaps()
    usable = np.flatnonzero(np.isfinite(z).all(1))
    x = np.full((len(z), fitted.model.n_features_in_), np.nan)
    x[usable] = fitted.model.inverse_transform(z[usable])
    return pd.DataFrame(x, columns=list(fitted.model.feature_names_in_))


def sample(fitted: Fit, n_samples: int, random_state: int | None = None) -> pd.DataFrame:
    """Sample rows from the model, in the units of the data."""
    return pd.DataFrame(fitted.model.sample(n_samples, random_state), columns=list(fitted.model.feature_names_in_))


def show(report: FitReport, console: Console | None = None) -> None:
    """Print the verdict, the reasons, the reliability of each latent, and the certificate."""
    console = console or Console()
    latents = report.latents
    console.print(f"\n[bold]{report.headline}.[/bold]")
    for reason in report.reasons:
        console.print(f"  {reason}", highlight=False, markup=False)
    table = Table(title="Each latent", title_justify="left", caption_justify="left")
    table.caption = (
        "|correlation| with the same latent in fits from other seeds, in fits to halves of the rows (the lower) and in "
        "alternative models; inactive: share of rows."
    )
    shown = [field for field in HEADINGS if not all(np.isnan(getattr(latent, field)) for latent in latents)]
    tied = ["effect on"] if report.data.picture is None else []
    for name in ("latent", "verdict", *(HEADINGS[field] for field in shown), "known", *tied):
        table.add_column(name, justify="right" if name in HEADINGS.values() else "left")
    for i, latent in enumerate(latents):
        values = [getattr(latent, field) for field in shown]
        numbers = ("–" if np.isnan(value) else f"{value:.3f}" for value in values)
        effects = ", ".join(f"{name} {effect:+.2f}" for name, effect in list(latent.columns.items())[:MOST_COLUMNS])
        cells = (f"z{i}", latent.verdict, *numbers, in_words(latent, i), *([effects] if tied else []))
        table.add_row(*cells, style=COLOURS[latent.verdict])
    console.print(table)
    if np.isfinite(report.expected_mcc):
        console.print(f"Expected agreement with an independent run: {report.expected_mcc:.2f} (MCC on new rows).")
    if report.certificate is not None:
        found = certificate_in_words(report.certificate)
        theorem = f", by {found['theorem']}" if found["theorem"] else ""
        lines = [f"Guarantee: {found['guarantee']}{theorem}. {found['words']}".strip(), "Checks:"]
        lines += [f"  {check['name']} {check['verdict']}: {check['words']}" for check in found["checks"]]
        console.print("\n".join(lines), highlight=False, markup=False)


def _report(model: Identify, seen: TableInspection, z: FloatArray, graph: dict[str, Any]) -> FitReport:
    certificate, goodness = model.certificate_, getattr(model.model_, "goodness_", None)
    return FitReport(
        verdict=model.verdict_,
        reasons=model.reasons_,
        model=type(model.model_).__name__,
        expected_mcc=model.expected_mcc_,
        latents=model.latent_reports_,
        histograms=tuple(_histogram(one) for one in z.T),
        candidates=model.candidates_,
        data=DataReport(
            rows=seen.n_rows,
            rows_used=len(seen.sample),
            columns_used=tuple(seen.sample.columns or ()),
            left_out=seen.left_out,
            labels=tuple(seen.labels.columns),
            u=seen.u,
            picture=seen.picture,
            seen=tuple(seen.words),
        ),
        versions=versions(),
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        certificate=None if certificate is None else certificate.to_dict(),
        goodness=None if goodness is None else goodness.to_dict(),
        graph=graph,
        parameters=model.get_params(),
    )


def _histogram(z: FloatArray) -> Histogram:
    """Count values in equal bins; a thousandth of the rows at either end may lie beyond."""
    low, high = (float(end) for end in np.quantile(z, [0.001, 0.999]))
    if not low < high:
        low, high = low - 0.5, high + 0.5
    return Histogram(low, high, tuple(np.histogram(z, BINS, (low, high))[0].tolist()))


def _graph(model: Identify, frame: pd.DataFrame, seconds: float) -> dict[str, Any]:
    """Return the edges among the stable latents, or why there are none."""
    names = [f"z{i}" for i in range(model.n_latents_)]
    stable = {name for name, report in zip(names, model.latent_reports_, strict=True) if report.verdict == "stable"}
    if len(stable) < 2:
        return {"why": "Fewer than two latents are stable."}
    active_only = hasattr(model.model_, "active")
    try:
        from identifiable.causal import graph_of

        with time_limit(seconds):
            found = graph_of(model.model_, model.units_.into(frame.to_numpy()), active_only=active_only, names=names)
    except ImportError:
        return {"why": 'It needs causal-learn: pip install "identifiable[causal]".'}
    except OutOfTimeError:
        return {"why": "The fit left too little time for it. Increase the time budget."}
    except DataError as error:
        return {"why": str(error)}
    edges = [
        {"from": e.source, "to": e.target, "mark": e.mark, "strength": e.strength}
        for e in found.edges()
        if {e.source, e.target} <= stable
    ]
    return {"level": found.level, "active_only": active_only, "edges": edges}


def _pictures(model: Identify, seen: TableInspection, z: FloatArray) -> Pictures | None:
    """Return examples and images along each latent, if rows are images; the other latents are at their medians."""
    if seen.picture is None or seen.background is None:
        return None
    x = seen.sample.x
    dark, bright = float(min(0.0, x.min())), float(x.max())

    def shown(rows: FloatArray) -> FloatArray:
        return (seen.pictures(rows) - dark) / (bright - dark)

    some = np.linspace(0, len(x) - 1, EXAMPLES).round().astype(int)
    ends = np.quantile(z, [0.05, 0.95], axis=0).T
    along = []
    for i, (low, high) in enumerate(ends):
        at = np.repeat(np.median(z, axis=0)[None], STEPS, axis=0)
        at[:, i] = np.linspace(low, high, STEPS)
        along.append(shown(model.inverse_transform(at)))
    effects = np.empty(0)
    if any(report.columns for report in model.latent_reports_):
        scale = dict(zip(seen.sample.columns or (), x.std(axis=0).tolist(), strict=True))
        effects = np.zeros((len(ends), len(seen.background)))
        effects[:, seen.places] = [[scale[n] * report.columns[n] for n in scale] for report in model.latent_reports_]
        effects = effects.reshape(-1, *seen.picture)
    return Pictures(shown(x[some]), shown(model.inverse_transform(z[some])), np.stack(along), ends, effects)


def _table(z: FloatArray, rows: Any, labels: pd.DataFrame, n_rows: int) -> pd.DataFrame:
    """Return the table of latents: the number of each row, its labels, and its latents, empty where there are none."""
    whole = np.full((n_rows, z.shape[1]), np.nan)
    whole[rows] = z
    frame = pd.DataFrame(whole, columns=[f"z{i}" for i in range(z.shape[1])])
    return pd.concat([pd.DataFrame({"row": np.arange(n_rows)}), labels, frame], axis=1)


def _write_csv(path: Path, frame: pd.DataFrame | None) -> None:
    """Write a table; without one, remove that of an earlier fit."""
    if frame is None:
        path.unlink(missing_ok=True)
        return
    files.write_bytes(path, frame.to_csv(index=False, lineterminator="\n").encode())
