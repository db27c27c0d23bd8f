"""How do time and memory of a fit grow with rows and with latents, and what breaks first?

    python benchmarks/growth.py [--only PDGMM ...] [--jobs 16] [--limit 300] [--csv FILE] [--plot FILE.png]
    python benchmarks/growth.py --read FILE.csv [--plot FILE.png]

Every estimator is fitted with its defaults, on one thread and in a fresh process: to 10^3 to 10^6 rows of 5 columns,
and to 10^4 rows of 5 to 100 columns with as many latents. A fit that takes longer than the limit counts as a failure.
One line per fit: seconds, peak memory above that of the library and the table, and MCC on new rows. Then a table: the
exponent of the growth between the last two sizes, and the largest size that ended. --read draws and prints a file.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from common import arguments, choose, run_jobs

ROWS, LATENTS = (1000, 10_000, 100_000, 1_000_000), (5, 10, 20, 50, 100)
MIXTURE, WITH_U = ("make_gmm", {}), ("make_segments", {"segments": 20})
SIMULATORS: dict[str, tuple[str, dict[str, Any]]] = {
    "SparseUnmixing": ("make_pdgmm", {"layers": 1}),
    "FactorialUnmixing": ("make_gmm", {"layers": 1}),
    "SegmentUnmixing": ("make_segments", {"segments": 20, "layers": 1}),
    "PDGMM": ("make_pdgmm", {}),
    "GMMFlow": MIXTURE,
    "IFlow": WITH_U,
    "IVAE": WITH_U,
    "VaDE": MIXTURE,
}
FIT = """
import json, resource, sys, time, warnings
warnings.simplefilter("ignore")
import torch
torch.set_num_threads(1)
import identifiable, identifiable.data
from identifiable.metrics import mcc
name, simulator, options = json.loads(sys.argv[1])
sample = getattr(identifiable.data, simulator)(**options, random_state=0)
model = getattr(identifiable, name)(options["n"], random_state=0, device="cpu", verbose=0)
given = (sample.x, sample.u) if getattr(model, "needs_u", False) else (sample.x,)
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before, started = peak(), time.perf_counter()
model.fit(*given)
seconds, memory = time.perf_counter() - started, peak() - before
new = sample.source.sample(2000, random_state=1)
print(json.dumps({"seconds": seconds, "MiB": memory, "mcc": mcc(new.z, model.transform(new.x))}))
"""


def measured(name: str, rows: int, n: int, limit: float) -> dict[str, Any]:
    """Fit an estimator in a fresh process; return seconds, MiB and MCC, or why there are none."""
    simulator, options = SIMULATORS[name]
    task = json.dumps([name, simulator, options | {"n_samples": rows, "n": n}])
    env = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    row: dict[str, Any] = {"estimator": name, "rows": rows, "n": n, "seconds": np.nan, "MiB": np.nan, "mcc": np.nan}
    try:
        done = subprocess.run(
            [sys.executable, "-c", FIT, task], env=env, capture_output=True, text=True, timeout=limit, check=True
        )
    except subprocess.TimeoutExpired:
        return row | {"failure": f"more than {limit:g} s"}
    except subprocess.CalledProcessError as error:
        return row | {"failure": (error.stderr.splitlines() or ["killed"])[-1][:100]}
    return row | json.loads(done.stdout.splitlines()[-1]) | {"failure": ""}


def exponents(frame: pd.DataFrame, along: str) -> pd.DataFrame:
    """Return, per estimator, the exponents of seconds and memory between the last two sizes that ended."""
    fixed = {"rows": ("n", LATENTS[0]), "n": ("rows", ROWS[1])}[along]
    found = []
    for name, own in frame[frame[fixed[0]] == fixed[1]].groupby("estimator", sort=False):
        ended = own.dropna(subset="seconds").sort_values(along)
        row: dict[str, Any] = {"estimator": name, "largest": ended[along].max()}
        if len(ended) > 1:
            one, two = ended.iloc[-2], ended.iloc[-1]
            for column in ("seconds", "MiB"):
                row[column] = two[column]
                ratio = np.log(max(two[column], 1e-3) / max(one[column], 1e-3))
                row[f"exponent of {column}"] = ratio / np.log(two[along] / one[along])
        row["MCC"] = ended["mcc"].iloc[-1] if len(ended) else np.nan
        row["then"] = next(iter(own.loc[own["seconds"].isna(), "failure"]), "")
        found.append(row)
    return pd.DataFrame(found).round(2)


def draw(frame: pd.DataFrame, path: Path) -> None:
    """Draw seconds and memory against rows and latents."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(11, 7.5), sharey="row", layout="constrained")
    for column, (along, label) in enumerate((("rows", "rows (5 latents)"), ("n", "latents (10,000 rows)"))):
        fixed = {"rows": ("n", LATENTS[0]), "n": ("rows", ROWS[1])}[along]
        for number, name in enumerate(SIMULATORS):
            own = frame[(frame[fixed[0]] == fixed[1]) & (frame["estimator"] == name)]
            ended = own.dropna(subset="seconds").sort_values(along)
            for axis, unit in zip(axes[:, column], ("seconds", "MiB"), strict=True):
                axis.plot(ended[along], ended[unit].clip(lower=1e-2), marker="o", label=name, color=f"C{number}")
        for axis, unit in zip(axes[:, column], ("seconds", "MiB above the start"), strict=True):
            axis.set(xscale="log", yscale="log", xlabel=label, ylabel=unit if column == 0 else "")
            axis.grid(alpha=0.3)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = arguments(__doc__)
    choose(parser, "--only", SIMULATORS)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds per fit")
    parser.add_argument("--read", type=Path, help="a CSV file of an earlier run")
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    if options.read:
        frame = pd.read_csv(options.read)
    else:
        sizes = [(ROWS[1], n) for n in reversed(LATENTS)] + [(rows, LATENTS[0]) for rows in ROWS if rows != ROWS[1]]
        jobs = [(name, rows, n, options.limit) for rows, n in sizes for name in options.only]
        frame = run_jobs(measured, jobs, options)
    for along in ("rows", "n"):
        print(f"\nGrowth with {along}\n{exponents(frame, along).to_string(index=False)}")
    if options.plot:
        draw(frame, options.plot)


if __name__ == "__main__":
    main()
