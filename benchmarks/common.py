"""What the benchmarks share: arguments, one printed line per fit, and the summary of all fits."""

import argparse
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pandas as pd
import torch
from joblib import Parallel, delayed

from identifiable.metrics import mcc

NEW_ROWS = 5000


def arguments(doc: str | None, *, seeds: int = 5, first_seed: int = 0) -> argparse.ArgumentParser:
    """Return a parser with the options of all benchmarks; its help is the docstring of the script."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=seeds, help="number of data sets")
    parser.add_argument("--first-seed", type=int, default=first_seed)
    parser.add_argument("--csv", help="write one line per fit to this file")
    parser.add_argument("--jobs", type=int, default=1, help="fits at once, where a benchmark runs them in parallel")
    return parser


def choose(parser: argparse.ArgumentParser, option: str, known: Iterable[Any], default: Iterable[Any] = ()) -> None:
    """Add an option that selects some of the known names; by default all."""
    known = list(known)
    parser.add_argument(option, nargs="+", choices=known, default=list(default) or known)


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Read the options, with `seeds` as a range; set one thread, unless there is a GPU, and hide warnings."""
    options = parser.parse_args()
    options.seeds = range(options.first_seed, options.first_seed + options.seeds)
    use_one_thread()
    return options


def use_one_thread() -> None:
    """Compute on one thread, unless there is a GPU, and hide warnings; in a worker process, too."""
    warnings.simplefilter("ignore")
    if not torch.cuda.is_available():
        torch.set_num_threads(1)


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """Call a function; return its value and the seconds it took."""
    started = time.perf_counter()
    return function(), time.perf_counter() - started


def fit_and_score(model: Any, sample: Any, seed: int) -> tuple[dict[str, Any], Any]:
    """Fit a model to a sample; return MCC on new rows, seconds, agreement and status, and the new rows."""
    _, seconds = timed(lambda: model.fit(sample.x, sample.u))
    new = sample.source.sample(NEW_ROWS, random_state=seed + 1)
    row = {"mcc": mcc(new.z, model.transform(new.x)), "seconds": seconds}
    return row | {"agreement": model.stability_.score, "status": model.fit_status_}, new


def certificate_of(model: Any) -> dict[str, str]:
    """Return the level of a certificate, the best level if open assumptions hold, and the checks that do not hold."""
    certificate = model.certificate_
    failed = " ".join(check.name for check in certificate.checks if check.verdict != "holds")
    return {
        "level": str(certificate.level),
        "if undecided hold": str(certificate.if_undecided_hold),
        "not held": failed,
    }


class Results:
    """Rows of results: each is printed, and all are written to a CSV file, as soon as it is known."""

    def __init__(self, csv: str | None = None) -> None:
        self.rows: list[dict[str, Any]] = []
        self._csv = csv

    def add(self, row: dict[str, Any]) -> None:
        """Print a row and write the file."""
        self.rows.append(row)
        print("  ".join(f"{k} {v:.4f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
        if self._csv:
            self.frame().to_csv(self._csv, index=False)

    def frame(self) -> pd.DataFrame:
        """Return all rows."""
        return pd.DataFrame(self.rows)


def run_jobs(function: Callable[..., dict[str, Any]], jobs: Iterable[tuple[Any, ...]], options: Any) -> pd.DataFrame:
    """Call a function with the arguments of each job, `options.jobs` at once; return a row for each."""
    results = Results(options.csv)
    for row in Parallel(options.jobs, return_as="generator_unordered")(delayed(function)(*job) for job in jobs):
        results.add(row)
    return results.frame()


def summary(frame: pd.DataFrame, by: Sequence[str], column: str = "mcc") -> pd.DataFrame:
    """Return mean, sd and worst of a column over seeds, and the mean of every other number."""
    groups = frame.groupby(list(by), sort=False)
    table = groups[column].agg(mean="mean", sd="std", worst="min")
    for name in frame.select_dtypes("number").columns.difference([*by, column, "seed"], sort=False):
        table[name] = groups[name].mean()
    if "status" in frame:
        table["stable"] = groups["status"].apply(lambda status: (status == "stable").sum())
    return table.round(4)
