"""The standard recovery table: methods and trivial baselines on settings whose truth is known."""

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import track
from rich.table import Table
from sklearn.base import clone

from identifiable.data.sample import Sample
from identifiable.errors import RecoveryWarning
from identifiable.estimators.base import LatentModel
from identifiable.estimators.baselines import baselines
from identifiable.metrics import mcc, r2

TEST_ROWS = 5000
BASELINES = tuple(baselines())


@dataclass(frozen=True)
class Recovery:
    """How well one method recovered one draw, on fresh rows of the same law.

    mcc and r2 compare with the truth; agreement (between restarts) and score (held-out) do without it.
    r2 regresses the estimated latents on the true ones, as the pdGMM paper does.
    """

    setting: str
    method: str
    seed: int
    mcc: float
    r2: float
    agreement: float
    score: float
    seconds: float


@dataclass(frozen=True)
class RecoveryTable:
    """All runs, and the published value of each setting where there is one."""

    runs: tuple[Recovery, ...]
    published: Mapping[str, float]

    def to_frame(self) -> pd.DataFrame:
        """Return a row per setting and method: mean and sd over seeds, the published value, and the verdict.

        `beats_baselines`: the method's mean MCC is above that of every trivial baseline on the same draws.
        """
        runs = pd.DataFrame([asdict(r) for r in self.runs])
        groups = runs.groupby(["setting", "method"], sort=False)
        frame = groups[["mcc", "r2", "agreement", "score", "seconds"]].mean()
        frame.insert(1, "mcc_sd", groups["mcc"].std(ddof=1))
        frame.insert(2, "mcc_worst", groups["mcc"].min())
        frame.insert(4, "r2_sd", groups["r2"].std(ddof=1))
        frame["seeds"] = groups.size()
        frame = frame.reset_index()
        frame["published"] = frame["setting"].map(lambda s: self.published.get(s, np.nan))
        best = frame[frame["method"].isin(BASELINES)].groupby("setting")["mcc"].max()
        beats = frame["mcc"] > frame["setting"].map(best)
        frame["beats_baselines"] = beats.where(~frame["method"].isin(BASELINES)).astype("boolean")
        return frame

    def render(self) -> Table:
        """Return the table for a terminal."""
        frame = self.to_frame()
        seeds = int(frame["seeds"].max())
        table = Table(title=f"Recovery, mean ± sd over {seeds} draw{'s' * (seeds > 1)}", caption=_CAPTION)
        for name in ("setting", "method"):
            table.add_column(name)
        for name in ("agreement", "MCC", "R2", "published", "seconds"):
            table.add_column(name, justify="right")
        previous = None
        for row in frame.to_dict("records"):
            if previous not in (None, row["setting"]):
                table.add_section()
            beats = row["beats_baselines"]
            table.add_row(
                row["setting"] if row["setting"] != previous else "",
                row["method"],
                _number(row["agreement"]),
                _spread(row["mcc"], row["mcc_sd"]),
                _spread(row["r2"], row["r2_sd"]),
                _number(row["published"]),
                f"{row['seconds']:.1f}",
                style="" if pd.isna(beats) else "green" if beats else "red",
            )
            previous = row["setting"]
        return table

    def __str__(self) -> str:
        console = Console(width=120, color_system=None)
        with console.capture() as capture:
            console.print(self.render())
        return capture.get()


_CAPTION = "green: above every trivial baseline; red: not. agreement needs no truth, MCC and R2 do."


def recovery_table(
    settings: Mapping[str, Callable[[int], Sample]],
    methods: Mapping[str, LatentModel],
    *,
    seeds: Sequence[int] = (0, 1, 2),
    published: Mapping[str, float] | None = None,
    verbose: int = 1,
) -> RecoveryTable:
    """Fit every method, and the trivial baselines, on every setting and seed; compare with the truth on fresh rows.

    Parameters
    ----------
    settings : name -> function of the seed that returns a `Sample` with z and a source.
    methods : name -> unfitted estimator; `n_latents` is set to the true number, `random_state` to the seed.
    published : name of a setting -> MCC as published.

    Examples
    --------
    >>> from identifiable.data.simulators import make_pdgmm
    >>> settings = {"n = 3": lambda seed: make_pdgmm(1000, n=3, random_state=seed)}
    >>> table = recovery_table(settings, {}, seeds=[0, 1], published={"n = 3": 0.96}, verbose=0)
    >>> table.to_frame()[["method", "seeds", "published"]]
               method  seeds  published
    0           raw x      2       0.96
    1             PCA      2       0.96
    2         FastICA      2       0.96
    3  SparseUnmixing      2       0.96
    """
    runs = []
    cells = [(name, make, seed) for name, make in settings.items() for seed in seeds]
    for setting, make, seed in _progress(cells, verbose):
        sample = make(seed)
        if sample.z is None or sample.source is None:
            raise ValueError(f"Setting {setting!r} has no known latents; a recovery table needs simulated data.")
        test = sample.source.sample(TEST_ROWS, random_state=seed + 1_000_003)
        n = sample.z.shape[1]
        for method, model in (baselines(n, random_state=seed) | dict(methods)).items():
            runs.append(recover(setting, method, clone(model), sample, test, seed))
    return RecoveryTable(tuple(runs), published or {})


def recover(setting: str, method: str, model: LatentModel, sample: Sample, test: Sample, seed: int) -> Recovery:
    """Fit model on sample in place, and compare its latents of test with the true ones."""
    assert sample.z is not None
    assert test.z is not None
    if method not in BASELINES:
        model.set_params(n_latents=sample.z.shape[1], random_state=seed)
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecoveryWarning)  # the table shows the agreement itself
        model.fit(sample.x, sample.u)
    seconds = time.perf_counter() - started
    latents = np.asarray(model.transform(test.x))
    return Recovery(
        setting=setting,
        method=method,
        seed=seed,
        mcc=mcc(test.z, latents),
        r2=r2(latents, test.z),
        agreement=model.stability_.score,
        score=model.score(test.x),
        seconds=seconds,
    )


def _progress(
    cells: list[tuple[str, Callable[[int], Sample], int]], verbose: int
) -> Iterable[tuple[str, Callable[[int], Sample], int]]:
    console = Console(stderr=True)
    return track(cells, "recovery", console=console, transient=True, disable=not (verbose and console.is_terminal))


def _number(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.3f}"


def _spread(mean: float, sd: float) -> str:
    return f"{mean:.3f}" if np.isnan(sd) else f"{mean:.3f} ± {sd:.3f}"
