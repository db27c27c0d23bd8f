"""Is this version faster than another one, and as accurate?

    python benchmarks/speed.py OTHER [--only PDGMM GMMFlow ...] [--sets gmm tcl ...] [--seeds 3] [--jobs 8] [--csv FILE]

OTHER is the folder of another version, such as a worktree of an earlier commit. Every estimator is fitted with its
defaults to its data sets, by both versions in turn and each in a fresh process, so that a change of the machine meets
both. One line per fit, then a table: seconds and MCC on new rows of both versions, the ratio of the seconds, and the
difference of the MCC, as means over the seeds. Nothing else may run on the machine. With --jobs, each job has two
cores (Linux). `Identify` has no time budget here (`seconds=None`), so that both versions try the same candidates.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import Manager
from pathlib import Path
from queue import Queue
from typing import Any

import pandas as pd

from common import Results, arguments, choose

# data set -> (simulator, its parameters)
SETS: dict[str, tuple[str, dict[str, Any]]] = {
    "gmm": ("make_gmm", {"n_samples": 20_000, "n": 5}),
    "gmm, 4000 rows": ("make_gmm", {"n_samples": 4000, "n": 5}),
    "gmm, n=8": ("make_gmm", {"n_samples": 20_000, "n": 8}),
    "linear gmm": ("make_gmm", {"n_samples": 20_000, "n": 5, "layers": 1}),
    "tcl": ("make_tcl", {"n_samples": 20_000}),
    "segments": ("make_segments", {"n_samples": 20_000, "segments": 20}),
    "segments, 4000 rows": ("make_segments", {"n_samples": 4000, "segments": 20}),
    "linear segments": ("make_segments", {"n_samples": 20_000, "segments": 20, "layers": 1}),
    "segments, d=10": ("make_segments", {"n_samples": 20_000, "segments": 20, "n": 4, "d": 10}),
    "pdgmm": ("make_pdgmm", {"n": 10}),
    "pdgmm, n=5": ("make_pdgmm", {"n": 5}),
    "pdgmm, k=3": ("make_pdgmm", {"n": 10, "k": 3}),
    "pdgmm, 1 var": ("make_pdgmm", {"n": 10, "rho": "1 var"}),
    "pdgmm, 20 layers": ("make_pdgmm", {"n": 10, "layers": 20}),
    "pdgmm, n=20": ("make_pdgmm", {"n": 20}),
    "pdgmm, 5000 rows": ("make_pdgmm", {"n_samples": 5000, "n": 10}),
    "linear pdgmm": ("make_pdgmm", {"n": 10, "layers": 1}),
}
MIXTURES = ("gmm", "gmm, 4000 rows", "gmm, n=8", "tcl", "linear gmm")
WITH_U = ("segments", "segments, 4000 rows", "tcl", "linear segments", "segments, d=10")
SPARSE = ("pdgmm", "pdgmm, n=5", "pdgmm, k=3", "pdgmm, 1 var", "pdgmm, 20 layers", "pdgmm, n=20")
# estimator -> (its parameters, its data sets, the one of the headline first)
ESTIMATORS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "PDGMM": ({}, SPARSE),
    "GMMFlow": ({}, MIXTURES),
    "VaDE": ({"n_latents": 5}, ("gmm", "gmm, 4000 rows", "tcl", "linear gmm", "segments")),
    "IFlow": ({}, WITH_U),
    "IVAE": ({"n_latents": 5}, WITH_U[:4]),
    "FactorialUnmixing": ({}, MIXTURES),
    "SegmentUnmixing": ({}, WITH_U[:4]),
    "SparseUnmixing": ({}, ("linear pdgmm", "pdgmm")),
    "Identify": ({"seconds": None}, ("pdgmm, 5000 rows",)),
}
FIT = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import identifiable, identifiable.data
from identifiable.metrics import mcc
name, parameters, simulator, options, seed = json.loads(sys.argv[1])
sample = getattr(identifiable.data, simulator)(**options, random_state=seed)
model = getattr(identifiable, name)(**parameters, random_state=seed, device="cpu", verbose=0)
given = (sample.x, sample.u) if getattr(model, "needs_u", False) else (sample.x,)
started = time.perf_counter()
model.fit(*given)
seconds = time.perf_counter() - started
new = sample.source.sample(5000, random_state=seed + 10_007)
print(json.dumps({"seconds": seconds, "mcc": mcc(new.z, model.transform(new.x)), "status": model.fit_status_}))
"""


def fitted(folder: Path, name: str, data: str, seed: int) -> dict[str, Any]:
    """Fit an estimator of the version in this folder in a fresh process; return seconds, MCC and status."""
    parameters, _ = ESTIMATORS[name]
    simulator, options = SETS[data]
    if name in ("VaDE", "IVAE"):
        parameters = parameters | {"n_latents": options.get("n", 5)}
    task = json.dumps([name, parameters, simulator, options, seed])
    env = os.environ | {"PYTHONPATH": str(folder / "src")}
    done = subprocess.run([sys.executable, "-c", FIT, task], env=env, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def both(other: Path, name: str, data: str, seed: int) -> list[dict[str, Any]]:
    """Fit an estimator of both versions to one data set, one after the other."""
    versions = {"other": other, "this": Path(__file__).parent.parent}
    task = {"estimator": name, "data": data, "seed": seed}
    return [task | {"version": key} | fitted(folder.resolve(), name, data, seed) for key, folder in versions.items()]


def keep_two_cores(slots: "Queue[int]") -> None:
    """Let this process and those it starts use two cores that no other job uses."""
    slot = slots.get()
    os.sched_setaffinity(0, {2 * slot, 2 * slot + 1})


def in_jobs(other: Path, tasks: list[tuple[str, str, int]], jobs: int) -> Iterator[list[dict[str, Any]]]:
    """Fit both versions to every data set, `jobs` data sets at once."""
    if jobs == 1:
        yield from (both(other, *task) for task in tasks)
        return
    with Manager() as manager:
        slots = manager.Queue()
        for slot in range(jobs):
            slots.put(slot)
        with ProcessPoolExecutor(jobs, initializer=keep_two_cores, initargs=(slots,)) as pool:
            for done in as_completed([pool.submit(both, other, *task) for task in tasks]):
                yield done.result()


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return means over the seeds: seconds and MCC of both versions, their ratio and their difference."""
    means = frame.pivot_table(["seconds", "mcc"], ["estimator", "data"], "version", sort=False)
    out = pd.DataFrame({f"{column}, {v}": means[column, v] for column in ("seconds", "mcc") for v in ("other", "this")})
    out["times faster"] = out["seconds, other"] / out["seconds, this"]
    out["MCC gained"] = out["mcc, this"] - out["mcc, other"]
    return out.round({"seconds, other": 1, "seconds, this": 1, "times faster": 2}).round(4)


def main() -> None:
    parser = arguments(__doc__, seeds=3, first_seed=100)
    parser.add_argument("other", type=Path)
    choose(parser, "--only", ESTIMATORS)
    choose(parser, "--sets", SETS)
    options = parser.parse_args()
    results, seeds = Results(options.csv), range(options.first_seed, options.first_seed + options.seeds)
    chosen = [(name, data) for name in options.only for data in ESTIMATORS[name][1] if data in options.sets]
    for rows in in_jobs(options.other, [(*one, seed) for seed in seeds for one in chosen], options.jobs):
        for row in rows:
            results.add(row)
    print(table(results.frame()).to_string())


if __name__ == "__main__":
    main()
