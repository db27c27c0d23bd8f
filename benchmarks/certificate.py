"""How often does the certificate call latents identified that are not, and how often does it see that they are?

    python benchmarks/certificate.py [--kind "1 var" ...] [--rows 200 1000] [--sets 200] [--jobs 1] [--first-seed 0]

True latents, exactly 0 where inactive, are given to `certify_latents`. In the kinds with exchangeable latents, a
decoder that bends where these become inactive can exchange them: they have equal weights and distributions by
construction. So a level PS is wrong there, and so is every such latent that counts as straight. In the other kinds
all latents are identified, except in draws of `n = 5` in which two latents are never active together; without edges
(k = 0) these two can be exchanged. Prints per kind and number of rows: data sets, those with level PS, those in which
an exchangeable latent is called straight, the share of the other latents that are shown to be straight, and the
seconds of one certificate.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from common import arguments, choose, parse, run_jobs, timed
from identifiable import Level, certify_latents
from identifiable.data import make_pdgmm

ROWS = (200, 1000, 5000, 20_000)


@dataclass(frozen=True)
class Kind:
    """Patterns that are equally frequent, the correlation and mean of active latents, and the exchangeable ones."""

    patterns: tuple[tuple[int, ...], ...]
    correlation: float = 0.0
    mean: float = 0.0
    exchangeable: tuple[int, ...] = ()

    def sample(self, rows: int, seed: int) -> np.ndarray:
        """Return latents (rows, n)."""
        rng = np.random.default_rng(seed)
        n = 1 + max(max(pattern) for pattern in self.patterns)
        masks = np.array([np.isin(np.arange(n), pattern) for pattern in self.patterns])
        covariance = np.full((n, n), self.correlation) + (1 - self.correlation) * np.eye(n)
        z = rng.normal(size=(rows, n)) @ np.linalg.cholesky(covariance).T + self.mean
        return z * masks[rng.integers(len(masks), size=rows)]


LINES = tuple((i,) for i in range(5))
SQUARE = ((0, 1), (0, 2), (1, 3), (2, 3))
PAIRS = tuple(combinations(range(5), 2))
KINDS = {
    "1 var": Kind(LINES, exchangeable=(0, 1, 2, 3, 4)),
    "1 var, delta 1": Kind(LINES, mean=1.0, exchangeable=(0, 1, 2, 3, 4)),
    "square": Kind(SQUARE, exchangeable=(0, 1, 2, 3)),
    "square, correlated": Kind(SQUARE, 0.5, exchangeable=(0, 1, 2, 3)),
    "square, correlated, delta 1": Kind(SQUARE, 0.5, 1.0, exchangeable=(0, 1, 2, 3)),
    "pairs of 5 without 0, 1": Kind(PAIRS[1:], exchangeable=(0, 1)),
    "pairs of 5": Kind(PAIRS),
}
SIMULATED = {
    "n = 5, k = 0": {"n": 5, "k": 0},
    "n = 5": {"n": 5},
    "n = 5, delta 1": {"n": 5, "delta": 1.0},
    "n = 10": {"n": 10},
    "n = 10, rho 75": {"n": 10, "rho": 75},
    "n = 20": {"n": 20},
}


def latents(kind: str, rows: int, seed: int) -> np.ndarray:
    """Return true latents, 0 where inactive."""
    if kind in KINDS:
        return KINDS[kind].sample(rows, seed)
    sample = make_pdgmm(rows, random_state=seed, **SIMULATED[kind])
    source = sample.source.latents
    return np.where(source.masks.numpy()[sample.component], sample.z - source.rest.numpy(), 0.0)


def judge(kind: str, rows: int, seed: int) -> dict:
    """Certify one data set."""
    z = latents(kind, rows, seed)
    certificate, seconds = timed(lambda: certify_latents(z, injective=True))
    n, ps = z.shape[1], certificate.level == Level.PS
    straight = set(range(n) if ps else certificate.straight)
    wrong = straight & set(KINDS[kind].exchangeable if kind in KINDS else ())
    identified = n - (len(KINDS[kind].exchangeable) if kind in KINDS else 0)
    row = {"kind": kind, "rows": rows, "seed": seed, "PS": ps, "wrong": bool(wrong)}
    return row | {"shown": len(straight - wrong) / identified if identified else np.nan, "seconds": seconds}


def main() -> None:
    parser = arguments(__doc__, seeds=200)
    choose(parser, "--kind", [*KINDS, *SIMULATED])
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--sets", type=int, dest="seeds", default=200, help="data sets per kind and number of rows")
    options = parse(parser)
    jobs = [(kind, rows, seed) for kind in options.kind for rows in options.rows for seed in options.seeds]
    groups = run_jobs(judge, jobs, options).groupby(["kind", "rows"], sort=False)
    table = groups.agg(sets=("seed", "size"), PS=("PS", "sum"), wrong=("wrong", "sum"))
    print(table.join(groups[["shown", "seconds"]].mean().round(3)).to_string())


if __name__ == "__main__":
    main()
