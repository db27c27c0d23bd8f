"""Does `Identify` say what is true of a table? Tables that are no simulation of a paper, each with what is expected.

    python benchmarks/tables.py [--kinds survey wine ...] [--seeds 3] [--seconds 60] [--jobs 1]

Seed 0 of a kind has the sizes at which version 0.1 was wrong; other seeds have other sizes, sources and mixings. What
is expected was written down before the rules that are to meet it: the verdicts that are right, whether the mixing is
affine, the number of latents, how many of them may be called stable, and the mean correlation with the sources (MCC).
MCC is compared with the better of scikit-learn's FastICA and, where it is installed, Picard, given the number of
latents.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.decomposition import FastICA

from common import arguments, choose, parse, run_jobs, timed, use_one_thread
from identifiable import DataError, Identify
from identifiable.data import make_pdgmm
from identifiable.metrics import mcc

Rng = np.random.Generator
RIGHT = "identified"
MAYBE = "identified", "reproducible"
NONE = "Gaussian", "not reproducible", "too few rows"
LINEAR = "SparseUnmixing", "LinearICA", "FactorialUnmixing", "SegmentUnmixing"


@dataclass(frozen=True)
class Expected:
    """What is right to say of a table; None: anything."""

    verdicts: tuple[str, ...] | None = None
    linear: bool | None = None
    n: int | None = None
    stable: tuple[int, int] = (0, 1000)  # the fewest and the most latents that may be called stable
    mcc: float = 0.0
    behind: float | None = None  # how far the MCC may be behind that of FastICA and Picard
    not_a_latent: int | None = None  # a column that is not mixed


@dataclass(frozen=True, eq=False)
class Case:
    """A table x (N, d), its sources if they are known, u, and what is expected of `Identify`."""

    x: np.ndarray
    expected: Expected
    z: np.ndarray | None = None
    u: np.ndarray | None = None
    options: tuple[tuple[str, Any], ...] = ()


def noise(rng: Rng, x: np.ndarray, share: float) -> np.ndarray:
    """Add Gaussian noise of a share of the mean standard deviation of the columns."""
    return x + share * x.std(0).mean() * rng.normal(size=x.shape)


def sources(kind: str, rng: Rng, shape: tuple[int, int]) -> np.ndarray:
    """Draw independent sources of unit variance (N, n)."""
    distributions = {
        "laplace": lambda size: rng.laplace(size=size) / 2**0.5,
        "uniform": lambda size: rng.uniform(-(3**0.5), 3**0.5, size),
        "exponential": lambda size: rng.exponential(size=size) - 1,
    }
    names = list(distributions) if kind == "mixed" else [kind]
    return np.stack([distributions[names[i % len(names)]](shape[0]) for i in range(shape[1])], 1)


def linear_sources(kind: str, rows: int, n: int, *, wide: bool) -> Callable[[Rng, int], Case]:
    """Return cases of independent sources; wide: twice as many columns, with 5 % noise."""

    def make(rng: Rng, seed: int) -> Case:
        z = sources(kind, rng, (rows, n))
        x = z @ rng.normal(size=(n, n * (1 + wide)))
        few = rows < 2000
        verdicts = (*MAYBE, "partly reproducible", "too few rows") if few else None
        expected = Expected(verdicts, linear=True, behind=0.02 if few else 0.005)
        return Case(noise(rng, x, 0.05) if wide else x, expected, z)

    return make


def non_negative(rng: Rng, seed: int) -> Case:
    rows, n, d = ((4000, 4, 10), (2500, 3, 8), (6000, 5, 12))[seed % 3]
    z = rng.exponential(size=(rows, n))
    expected = Expected(MAYBE, linear=True, n=n, mcc=0.98)
    return Case(noise(rng, z @ rng.uniform(0, 1, (n, d)), 0.01), expected, z)


def uniform(rng: Rng, seed: int) -> Case:
    rows, n = ((5000, 5), (2000, 3), (8000, 8))[seed % 3]
    z = sources("uniform", rng, (rows, n))
    return Case(z @ rng.normal(size=(n, n)), Expected((RIGHT,), True, n, (n, n), behind=0.005), z)


def few_rows(rng: Rng, seed: int) -> Case:
    rows, n = ((400, 3), (300, 2), (600, 4))[seed % 3]
    z = sources("laplace", rng, (rows, n))
    verdicts = (RIGHT, "reproducible", "too few rows", "partly reproducible")
    return Case(z @ rng.normal(size=(n, n)), Expected(verdicts, True, n, behind=0.02), z)


def survey(rng: Rng, seed: int) -> Case:
    rows, d, levels, factors = ((1500, 8, 5, 2), (900, 6, 7, 1), (4000, 12, 4, 3))[seed % 3]
    y = rng.normal(size=(rows, factors)) @ rng.normal(size=(factors, d)) + 0.8 * rng.normal(size=(rows, d))
    return Case(np.clip(np.round(levels / 2 + 0.5 + y), 1, levels), Expected(NONE, stable=(0, 0)))


def rounded(rng: Rng, seed: int) -> Case:
    rows, d, step = ((3000, 6, 1.5), (2000, 4, 1.0), (6000, 8, 3.0))[seed % 3]
    x = rng.normal(size=(rows, d)) @ rng.normal(size=(d, d))
    return Case(np.round(step * x / x.std(0)), Expected(NONE, stable=(0, 0)))


def detection_limit(rng: Rng, seed: int) -> Case:
    rows, d, share = ((3000, 5, 0.3), (2000, 4, 0.15), (6000, 7, 0.5))[seed % 3]
    x = rng.normal(size=(rows, d)) @ rng.normal(size=(d, d))
    return Case(np.maximum(x, np.quantile(x, share, axis=0)), Expected(NONE, stable=(0, 0)))


def one_outlier(rng: Rng, seed: int) -> Case:
    rows, d, size = ((2000, 5, 40), (1000, 4, 15), (5000, 8, 200))[seed % 3]
    x = rng.normal(size=(rows, d)) @ rng.normal(size=(d, d))
    x[7] *= size
    return Case(x, Expected(NONE, stable=(0, 0)))


def one_column(rng: Rng, seed: int) -> Case:
    return Case(rng.laplace(size=(1000 + 500 * (seed % 3), 1)), Expected(("refused",)))


def more_columns_than_rows(rng: Rng, seed: int) -> Case:
    rows, d, n = ((200, 500, 5), (150, 300, 3), (300, 1000, 4))[seed % 3]
    z = sources("laplace", rng, (rows, n))
    x = z @ rng.normal(size=(n, d)) + 0.5 / 2**0.5 * rng.normal(size=(rows, d))
    return Case(x, Expected(None, True, n, mcc=0.95 if seed == 0 else 0.0, behind=0.02), z)


def wine(rng: Rng, seed: int) -> Case:
    x = load_wine().data
    return Case(x[rng.permutation(len(x))[: 178 - 20 * (seed % 3)]], Expected(("too few rows",), stable=(0, 0)))


def two_values_of_u(rng: Rng, seed: int) -> Case:
    data = load_breast_cancer()
    some = rng.permutation(len(data.data))[: 569 - 100 * (seed % 3)]
    return Case(data.data[some], Expected(("reproducible", "partly reproducible", *NONE)), u=data.target[some])


def sparse_with_noise(rng: Rng, seed: int) -> Case:
    rows, n, active = ((6000, 6, 0.5), (4000, 4, 0.4), (8000, 8, 0.3))[seed % 3]
    z = rng.normal(size=(rows, n)) * (rng.random((rows, n)) < active)
    x = noise(rng, z @ rng.normal(size=(n, n)), 0.05)
    best = float(
        np.mean([np.corrcoef(x @ np.linalg.lstsq(x, z, rcond=None)[0][:, i], z[:, i])[0, 1] for i in range(n)])
    )
    return Case(x, Expected(MAYBE, True, n, mcc=best - 0.005), z)


def published(k: int) -> Callable[[Rng, int], Case]:
    """Return cases of the affine mixtures of the pdGMM experiments, with 5 % noise."""

    def make(rng: Rng, seed: int) -> Case:
        sample = make_pdgmm(10_000, n=(5, 10)[seed % 2], k=k, layers=1, random_state=seed)
        x = noise(rng, sample.x, 0.05)
        best = mcc(sample.z, x @ np.linalg.lstsq(x - x.mean(0), sample.z - sample.z.mean(0), rcond=None)[0])
        return Case(x, Expected(None, True, sample.z.shape[1], mcc=best - 0.005 if k <= 1 else 0.0), sample.z)

    return make


def independent_columns(rng: Rng, seed: int) -> Case:
    rows, n = ((4000, 6), (2000, 4), (6000, 10))[seed % 3]
    x = sources(("laplace", "uniform", "mixed")[seed % 3], rng, (rows, n)) * rng.uniform(1, 9, n)
    return Case(x, Expected(("not a mixture",), True))


def gaussian(rng: Rng, seed: int) -> Case:
    rows, d = ((3000, 5), (1000, 8), (8000, 3))[seed % 3]
    return Case(rng.normal(size=(rows, d)) @ rng.normal(size=(d, d)), Expected(NONE, stable=(0, 0)))


def permuted_u(rng: Rng, seed: int) -> Case:
    rows, d = ((3000, 4), (2000, 5), (6000, 3))[seed % 3]
    x, u = rng.normal(size=(rows, d)) @ rng.normal(size=(d, d)), rng.integers(0, 3 + 5 * (seed % 3), rows)
    return Case(x, Expected(NONE, stable=(0, 0)), u=u)


def recording(rng: Rng, seed: int) -> Case:
    """Oscillations in bursts, blinks and a drift, seen by sensors with noise; the first column is time."""
    rows, n, d = ((6000, 8, 32), (5000, 6, 24), (8000, 7, 20))[seed % 3]
    t, z = np.arange(rows) / 100, np.empty((rows, n))

    def bursts(width: int) -> np.ndarray:
        return np.convolve(rng.random(rows) < 0.003, np.hanning(width), "same").clip(0, 1)

    for i, hertz in enumerate((4, 6, 9, 11, 18, 25)[: n - 2]):
        z[:, i] = (bursts(150) + 0.15) * np.sin(2 * np.pi * hertz * t + np.cumsum(0.05 * rng.normal(size=rows)))
    z[:, -2] = bursts(40)
    z[:, -1] = np.cumsum(rng.laplace(size=rows) * (rng.random(rows) < 0.02)) / 3
    z = (z - z.mean(0)) / z.std(0)
    places, sensors = rng.uniform(-1, 1, (n, 2)), rng.uniform(-1, 1, (d, 2))
    lead = np.exp(-((places[:, None] - sensors) ** 2).sum(2) / 0.3) * rng.choice([-1, 1], (n, 1))
    x = 20 * z @ lead + 1.5 * rng.normal(size=(rows, d))
    return Case(np.c_[t, x], Expected(None, True, n, behind=0.01, not_a_latent=0), z)


def spectra(rng: Rng, seed: int) -> Case:
    """Substances that are sometimes absent, each with a peak."""
    rows, d, n = ((150, 40, 4), (250, 60, 3), (400, 50, 5))[seed % 3]
    z = rng.gamma(1.2, 1.0, (rows, n)) * (rng.random((rows, n)) < 0.7)
    centres, widths = np.linspace(0.15, 0.85, n), rng.uniform(0.05, 0.12, n)
    x = z @ np.exp(-0.5 * ((np.linspace(0, 1, d) - centres[:, None]) / widths[:, None]) ** 2)
    x += 0.01 * rng.normal(size=x.shape)
    return Case(x - x.min() + 0.01, Expected(None, True, n, mcc=0.98), z)


def sparse_features(rng: Rng, seed: int) -> Case:
    n, d, rows = ((64, 256, 20_000), (32, 64, 10_000), (128, 256, 20_000))[seed % 3]
    z = rng.exponential(1.0, (rows, n)) * (rng.random((rows, n)) < rng.uniform(0.03, 0.1, n))
    directions = rng.normal(size=(n, d))
    x = noise(rng, z @ (directions / np.linalg.norm(directions, axis=1, keepdims=True)), 0.05)
    return Case(x, Expected(MAYBE, True, n, mcc=0.98), z)


KINDS: dict[str, Callable[[Rng, int], Case]] = {
    function.__name__: function
    for function in (
        non_negative,
        uniform,
        few_rows,
        survey,
        rounded,
        detection_limit,
        one_outlier,
        one_column,
        more_columns_than_rows,
        wine,
        two_values_of_u,
        sparse_with_noise,
        independent_columns,
        gaussian,
        permuted_u,
        recording,
        spectra,
        sparse_features,
    )
}
KINDS |= {f"published_k{k}": published(k) for k in (0, 1, 3)}
GRID = {
    f"{kind} {rows} {n}{' wide' * wide}": linear_sources(kind, rows, n, wide=wide)
    for kind in ("laplace", "uniform", "exponential", "mixed")
    for rows in (400, 2000, 10_000)
    for n in (3, 5, 10)
    for wide in (False, True)
}


def reference(case: Case, n: int, x: np.ndarray) -> float:
    """Return the MCC of the better of FastICA and Picard with n components."""
    assert case.z is not None
    found = [FastICA(n, whiten="unit-variance", max_iter=1000, random_state=0).fit_transform(x)]
    try:
        from picard import picard

        found.append(picard(x.T, n_components=n, ortho=False, extended=True, random_state=0)[2].T)
    except ImportError:
        pass
    return max(mcc(case.z, z) for z in found)


def violations(case: Case, found: dict[str, Any]) -> list[str]:
    """Return what is not as expected, each in a few words."""
    expected, wrong = case.expected, []
    if expected.verdicts is not None and found["verdict"] not in expected.verdicts:
        wrong.append(f"verdict {found['verdict']}")
    if found["verdict"] == "refused":
        return wrong
    if expected.linear is not None and (found["model"] in LINEAR) != expected.linear:
        wrong.append(f"model {found['model']}")
    if expected.n is not None and found["n"] != expected.n:
        wrong.append(f"{found['n']} latents")
    if not expected.stable[0] <= found["stable"] <= expected.stable[1]:
        wrong.append(f"{found['stable']} stable")
    if found["mcc"] < expected.mcc:
        wrong.append(f"MCC {found['mcc']:.3f} < {expected.mcc:.3f}")
    if expected.behind is not None and found["mcc"] < found["reference"] - expected.behind:
        wrong.append(f"MCC {found['mcc']:.3f}, reference {found['reference']:.3f}")
    if found["false stable"]:
        wrong.append(f"{found['false stable']} stable latents are no source")
    return wrong


def fit(kind: str, seed: int, seconds: float) -> dict[str, Any]:
    """Fit a table, and compare what is found with what is expected."""
    use_one_thread()
    case = (KINDS | GRID)[kind](np.random.default_rng([seed, *kind.encode()]), seed)
    model = Identify(seconds=seconds, random_state=seed, verbose=0, n_jobs=1, **dict(case.options))
    row: dict[str, Any] = {"kind": kind, "seed": seed, "mcc": np.nan, "reference": np.nan, "false stable": 0}
    try:
        _, row["seconds"] = timed(lambda: model.fit(case.x, case.u))
    except DataError as error:
        row |= {"verdict": "refused", "model": "", "n": 0, "stable": 0, "error": str(error)}
        return row | {"wrong": "; ".join(violations(case, row))}
    except Exception as error:  # counted as wrong, and the others go on
        row |= {"verdict": "crashed", "model": "", "n": 0, "stable": 0, "wrong": f"{type(error).__name__}: {error}"}
        return row
    stable = np.array([one.verdict == "stable" for one in model.latent_reports_])
    row |= {
        "verdict": model.verdict_,
        "model": type(model.model_).__name__,
        "n": model.n_latents_,
        "stable": stable.sum(),
    }
    if case.z is not None:
        z = model.transform(case.x)
        row["mcc"] = mcc(case.z, z)
        correlations = np.abs(np.corrcoef(case.z.T, z.T)[: case.z.shape[1], case.z.shape[1] :])
        row["false stable"] = int((correlations.max(0)[stable] < 0.9).sum())
        if case.expected.behind is not None:
            x = np.delete(case.x, case.expected.not_a_latent, 1) if case.expected.not_a_latent is not None else case.x
            row["reference"] = reference(case, case.z.shape[1], x)
    return row | {"wrong": "; ".join(violations(case, row))}


def rows_needed(kind: str, n: int, seed: int) -> dict[str, Any]:
    """Compare the number of rows that `Identify` says would do with fits to half and to twice as many.

    Rows start at eight per latent and double until a number is given.
    """
    use_one_thread()
    rng = np.random.default_rng([seed, n, *kind.encode()])
    matrix, rows = rng.normal(size=(n, n)), max(100, 8 * n)

    def fit(rows: int) -> Identify:
        z = sources(kind, rng, (rows, n))
        return Identify(n, model="LinearICA", random_state=seed, verbose=0, n_jobs=1).fit(z @ matrix)

    while (said := re.search(r"About (\d+) rows", " ".join((model := fit(rows)).reasons_))) is None:
        if model.verdict_ in ("identified", "reproducible"):
            return {"kind": kind, "n": n, "seed": seed, "rows": rows, "said": 0, "half": True, "twice": True}
        rows *= 2
    enough = int(said.group(1))

    def every(rows: int) -> bool:
        return all(latent.verdict == "stable" for latent in fit(max(rows, 100)).latent_reports_)

    return {
        "kind": kind,
        "n": n,
        "seed": seed,
        "rows": rows,
        "said": enough,
        "half": every(enough // 2),
        "twice": every(2 * enough),
    }


def main() -> None:
    parser = arguments(__doc__, seeds=3)
    choose(parser, "--kinds", [*KINDS, *GRID], list(KINDS))
    parser.add_argument("--grid", action="store_true", help="all independent sources, in place of --kinds")
    parser.add_argument("--rows-needed", action="store_true", help="how many rows would do, in place of --kinds")
    parser.add_argument("--seconds", type=float, default=60.0, help="time budget of a table")
    options = parse(parser)
    if options.rows_needed:
        jobs = [
            (kind, n, seed) for kind in ("laplace", "uniform", "mixed") for n in (3, 5, 10) for seed in options.seeds
        ]
        frame = run_jobs(rows_needed, jobs, options).query("said > 0")
        enough = f"half as many are too few in {(~frame['half']).sum()}, twice as many do in {frame['twice'].sum()}"
        print(f"{enough}, both in {(~frame['half'] & frame['twice']).sum()} of {len(frame)} tables")
        return
    kinds = GRID if options.grid else options.kinds
    frame = run_jobs(fit, [(kind, seed, options.seconds) for kind in kinds for seed in options.seeds], options)
    frame = frame.assign(source=frame["kind"].str.split().str[:2].str.join(" "), right=frame["wrong"] == "")
    groups = frame.groupby("source", sort=False)
    numbers = groups[["right", "mcc", "reference", "seconds"]].mean().round(4)
    print(
        numbers.assign(
            tables=groups.size(), identified=groups["verdict"].agg(lambda v: (v == RIGHT).mean())
        ).to_string()
    )
    wrong = frame.loc[~frame["right"], ["kind", "seed", "verdict", "model", "wrong"]]
    print(f"\nas expected: {int(frame['right'].sum())} of {len(frame)}")
    print(wrong.to_string(index=False) if len(wrong) else "")


if __name__ == "__main__":
    main()
