"""The user's main job as files: a table in; latents, a model and an account of them out, in one folder.

RUN/latents.csv         the row's number in the table, then a column per latent; empty where a row was not usable
RUN/model.safetensors   the fitted `Identify`; numbers and words, no code
RUN/certificate.json    verdict, reasons, trust in each latent, what was tried, the certificate, how it was run
RUN/history.csv         the training of the model, where it is trained step by step
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
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
from identifiable.data.inspection import TableInspection, inspect_table
from identifiable.data.table import Names, TableReader
from identifiable.errors import DamagedFileError, DataError
from identifiable.persist import load, rename_account, save, versions
from identifiable.report.fit_page import Pictures, fit_page, in_words

MODEL, LATENTS, ACCOUNT, HISTORY = "model.safetensors", "latents.csv", "certificate.json", "history.csv"
PAGE = "report.html"
STEPS = 9  # pictures along a latent
BINS = 40  # of the histogram of a latent
COLOURS = {"stable": "green", "doubtful": "yellow", "unstable": "red"}
NUMBERS = ("seed_agreement", "split_half_agreement", "alternative_agreement", "inactive_share")
MOST_COLUMNS = 3  # that a latent is said to be tied to


@dataclass(frozen=True, eq=False)
class Fit:
    """A finished fit: its folder, its model, and the account of it as it is written."""

    folder: Path
    model: Identify
    account: Mapping[str, Any]


def fit(
    source: object,
    folder: str | Path,
    *,
    u: Names | None = None,
    columns: Names | None = None,
    key: str | None = None,
    n_latents: int | str = "auto",
    model: str = "auto",
    n_restarts: int | None = None,
    seconds: float | None = 600.0,
    random_state: int = 0,
    device: str = "auto",
    verbose: int = 1,
) -> Fit:
    """Inspect a table, find its latents within the time given, and write all of it to a folder.

    Parameters
    ----------
    source, u, columns, key : the table, as for `identifiable.data.inspect_table`.
    folder : where to write; it is made where it does not exist.
    n_latents, model, n_restarts, seconds, random_state, device : as for `Identify`.
    verbose : 1 says what is seen and done.
    """
    console = Console(stderr=True, quiet=verbose == 0)
    seen = inspect_table(source, u=u, columns=columns, key=key)
    for words in seen.words:
        console.print(words, highlight=False, markup=False)
    sample = seen.sample
    frame = pd.DataFrame(sample.x, columns=list(sample.columns or ()))
    found = Identify(
        n_latents,
        model=model,
        n_restarts=n_restarts,
        seconds=seconds,
        common_scale=seen.picture is not None,
        random_state=random_state,
        device=device,
        verbose=verbose,
    ).fit(frame, sample.u)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    z = found.transform(frame)
    account = _account(found, seen, z) | {"graph": _graph(found, frame)}
    save(found, folder / MODEL)
    _write_csv(folder / LATENTS, _table(z, seen.rows, seen.n_rows))
    history = getattr(found.model_, "history_", None)
    if history is not None:
        _write_csv(folder / HISTORY, history.to_frame())
    else:
        (folder / HISTORY).unlink(missing_ok=True)  # of an earlier fit
    files.write_bytes(folder / ACCOUNT, (json.dumps(account, indent=1) + "\n").encode())
    fit_page(account, _name(source), _pictures(found, seen, z)).write(folder / PAGE)
    return Fit(folder, found, account)


def _name(source: object) -> str:
    return Path(source).name if isinstance(source, str | os.PathLike) else "a table"


def _pictures(model: Identify, seen: TableInspection, z: FloatArray) -> list[Pictures]:
    """Return pictures along each latent, where rows are pictures; the other latents are at their medians."""
    if seen.picture is None or seen.background is None:
        return []
    x = seen.sample.x
    middle, found = np.median(z, axis=0), []
    dark, bright = float(min(0.0, x.min())), float(x.max())
    scale = dict(zip(seen.sample.columns or (), x.std(axis=0).tolist(), strict=True))
    for i, trust in enumerate(model.latent_reports_):
        at = np.repeat(middle[None], STEPS, axis=0)
        low, high = np.quantile(z[:, i], [0.05, 0.95])
        at[:, i] = np.linspace(float(low), float(high), STEPS)
        along = (seen.pictures(model.inverse_transform(at)) - dark) / (bright - dark)
        effects = np.zeros(len(seen.background))
        effects[seen.places] = [scale[name] * trust.columns[name] for name in scale]
        found.append(Pictures(along, effects.reshape(seen.picture)))
    return found


def open_fit(folder: str | Path) -> Fit:
    """Read what `fit` wrote; refuse a folder that is not whole."""
    folder = Path(folder)
    if not (folder / MODEL).is_file() or not (folder / ACCOUNT).is_file():
        raise FileNotFoundError(
            f"{str(folder)!r} holds no fit: {MODEL} and {ACCOUNT} were expected in it. Name a folder that "
            "'identifiable fit' wrote."
        )
    model = load(folder / MODEL)
    if not isinstance(model, Identify):
        raise DamagedFileError(f"{str(folder / MODEL)!r} holds a {type(model).__name__}, not what a fit leaves.")
    try:
        account = json.loads((folder / ACCOUNT).read_text(encoding="utf-8"))
    except ValueError as error:
        raise DamagedFileError(f"{str(folder / ACCOUNT)!r} is no JSON ({error}): fit again.") from None
    return Fit(folder, model, rename_account(account))


def transform(fitted: Fit, source: object, *, key: str | None = None) -> pd.DataFrame:
    """Return the latents of another table, whose columns are matched by name; rows with a missing value have none."""
    x = TableReader(source, columns=fitted.model.feature_names_in_, key=key).read_with_gaps()
    usable = np.flatnonzero(np.isfinite(x).all(1))
    frame = pd.DataFrame(x[usable], columns=list(fitted.model.feature_names_in_))
    z = fitted.model.transform(frame) if len(usable) else np.empty((0, fitted.model.n_latents_))
    return _table(np.asarray(z), usable, len(x))


def inverse(fitted: Fit, source: object, *, key: str | None = None) -> pd.DataFrame:
    """Return the rows that latents stand for: a table with the columns of latents.csv, in the units of the data."""
    names = [f"z{i}" for i in range(fitted.model.n_latents_)]
    z = TableReader(source, columns=names, key=key).read_with_gaps()
    usable = np.flatnonzero(np.isfinite(z).all(1))
    x = np.full((len(z), fitted.model.n_features_in_), np.nan)
    x[usable] = fitted.model.inverse_transform(z[usable])
    return pd.DataFrame(x, columns=list(fitted.model.feature_names_in_))


def sample(fitted: Fit, n_samples: int, random_state: int | None = None) -> pd.DataFrame:
    """Draw rows from the model, in the units of the data."""
    return pd.DataFrame(fitted.model.sample(n_samples, random_state), columns=list(fitted.model.feature_names_in_))


def show(fitted: Fit, console: Console | None = None) -> None:
    """Print the verdict, the reasons, the trust in each latent, and what is certified."""
    console = console or Console()
    account = fitted.account
    console.print(f"\n[bold]{account['verdict'].capitalize()}.[/bold]")
    for reason in account["reasons"]:
        console.print(f"  {reason}", highlight=False, markup=False)
    table = Table(title="Each latent", title_justify="left", caption_justify="left")
    table.caption = (
        "again: |correlation| with fits from other seeds; halves: with fits to half of the rows, the lower; rivals: "
        "with models that might have been taken as well; rests: share of rows."
    )
    shown = [name for name in NUMBERS if any(trust[name] is not None for trust in account["latents"])]
    named = account["data"]["picture"] is None
    for name in ("latent", "verdict", *shown, "known", *(["tied to"] if named else [])):
        table.add_column(name, justify="right" if name in shown else "left")
    for i, trust in enumerate(account["latents"]):
        strongest = list(trust["columns"].items())[:MOST_COLUMNS]
        tied = ", ".join(f"{name} {effect:+.2f}" for name, effect in strongest)
        table.add_row(
            f"z{i}",
            trust["verdict"],
            *(_number(trust[name]) for name in shown),
            in_words(trust, i),
            *([tied] if named else []),
            style=COLOURS.get(trust["verdict"], ""),
        )
    console.print(table)
    if account["expected"] is not None:
        console.print(f"Another run of it may be expected to agree at {account['expected']:.2f} (MCC on new rows).")
    certificate = fitted.model.certificate_
    if certificate is not None:
        console.print(str(certificate), highlight=False, markup=False)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _account(model: Identify, seen: TableInspection, z: FloatArray) -> dict[str, Any]:
    certificate = model.certificate_
    tree = {
        "verdict": model.verdict_,
        "reasons": list(model.reasons_),
        "model": type(model.model_).__name__,
        "expected": model.expected_mcc_,
        "latents": [
            asdict(t) | {"histogram": _histogram(each)} for t, each in zip(model.latent_reports_, z.T, strict=True)
        ],
        "tried": [asdict(tried) for tried in model.candidates_],
        "certificate": None if certificate is None else certificate.to_dict(),
        "data": {
            "rows": seen.n_rows,
            "rows used": len(seen.sample),
            "columns used": list(seen.sample.columns or ()),
            "left out": dict(seen.left_out),
            "u": list(seen.u),
            "picture": None if seen.picture is None else list(seen.picture),
            "seen": list(seen.words),
        },
        "parameters": {k: v for k, v in model.get_params().items() if v is None or isinstance(v, int | float | str)},
        "versions": versions(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return _plain(tree)


def _histogram(z: FloatArray) -> dict[str, Any]:
    """Count values in equal bins; a thousandth of the rows at either end may lie beyond."""
    low, high = (float(end) for end in np.quantile(z, [0.001, 0.999]))
    if not low < high:
        low, high = low - 0.5, high + 0.5
    return {"low": low, "high": high, "counts": np.histogram(z, BINS, (low, high))[0].tolist()}


def _graph(model: Identify, frame: pd.DataFrame) -> dict[str, Any]:
    """Return the edges among the stable latents, or why there are none."""
    stable = [i for i, trust in enumerate(model.latent_reports_) if trust.verdict == "stable"]
    if len(stable) < 2:
        return {"why": "Fewer than two latents are stable."}
    names = [str(name) for name in model.model_.get_feature_names_out()]
    try:
        from identifiable.causal import graph_of

        rests = hasattr(model.model_, "active")
        found = graph_of(model.model_, model.units_.into(frame.to_numpy()), active_only=rests)
    except ImportError:
        return {"why": 'It needs causal-learn: pip install "identifiable[causal]".'}
    except DataError as error:
        words = str(error)
        for i in reversed(range(len(names))):  # z10 before z1
            words = words.replace(names[i], f"z{i}")
        return {"why": words}
    z = {name: f"z{i}" for i, name in enumerate(names) if i in stable}
    edges = [
        {"from": z[e.source], "to": z[e.target], "mark": e.mark, "strength": e.strength}
        for e in found.edges()
        if e.source in z and e.target in z
    ]
    return {"level": found.level, "active only": rests, "edges": edges}


def _plain(value: Any) -> Any:
    """Return a tree of JSON: numbers that are not finite become null."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


def _table(z: FloatArray, rows: Any, n_rows: int) -> pd.DataFrame:
    whole = np.full((n_rows, z.shape[1]), np.nan)
    whole[rows] = z
    frame = pd.DataFrame(whole, columns=[f"z{i}" for i in range(z.shape[1])])
    frame.insert(0, "row", np.arange(n_rows))
    return frame


def _write_csv(path: Path, frame: pd.DataFrame) -> None:
    files.write_bytes(path, frame.to_csv(index=False, lineterminator="\n").encode())
