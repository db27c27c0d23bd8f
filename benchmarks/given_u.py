"""IFlow and IVAE on the settings of the iVAE paper, beside linear methods and autoencoders without u.

    python benchmarks/given_u.py [--settings "main, reused"] [--methods IFlow IVAE] [--seeds 5] [--first-seed 0]
    python benchmarks/given_u.py --speed                       IVAE against a plain loop with batches of 64
    python benchmarks/given_u.py --sachs FOLDER [--pictures P] restarts, number of latents, certificate, on Sachs cells

MCC is that of 5000 new rows; latents given u (IVAE) are in their own column. No fit sees the truth. A line per fit,
then a table. Every fit runs on one thread; --jobs runs several at once, which spoils their seconds.
"""

import argparse
import copy
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from joblib import Parallel, delayed

from identifiable import (
    IVAE,
    VAE,
    BetaTCVAE,
    BetaVAE,
    IFlow,
    IndependentComponents,
    PrincipalComponents,
    RawData,
    SegmentUnmixing,
    SparseUnmixing,
)
from identifiable.data import load_sachs, make_segments
from identifiable.data.latents import GaussianMixture
from identifiable.data.mixings import Mixing, tanh_mixing
from identifiable.data.real import SACHS_CONDITIONS
from identifiable.data.simulator import Simulator
from identifiable.metrics import mcc
from identifiable.report.plots.segments import plot_by_value

NEW_ROWS = 5000
ABOVE_95 = 0.95  # the paper's figure 2a, its best configuration; the other settings are drawn, not printed
SETTINGS = {  # law, rows per segment, published MCC
    "main, reused": ({"n": 5, "reuse": True}, 1000, ABOVE_95),
    "main, fresh": ({"n": 5, "reuse": False}, 1000, ABOVE_95),
    "n=2 d=5": ({"n": 2, "d": 5}, 1000, np.nan),
    "n=3 d=5": ({"n": 3, "d": 5}, 1000, np.nan),
    "n=4 d=5": ({"n": 4, "d": 5}, 1000, np.nan),
    "n=5 d=25": ({"n": 5, "d": 25}, 1000, np.nan),
    "n=10 d=40": ({"n": 10, "d": 40}, 4000, np.nan),
    "bernoulli d=25": ({"n": 5, "d": 25, "bernoulli": True}, 1000, np.nan),
    "3 segments": ({"n": 5, "segments": 3}, 10_000, np.nan),
    "5 conditions": ({"n": 5, "conditions": 5}, 6000, np.nan),
    "1 condition": ({"n": 5, "conditions": 1}, 18_000, np.nan),
    "noise .1": ({"n": 5, "d": 10, "noise": 0.1}, 1000, np.nan),
}
METHODS = {
    "raw x": lambda n, seed, lk: RawData(),
    "PCA": lambda n, seed, lk: PrincipalComponents(n),
    "FastICA": lambda n, seed, lk: IndependentComponents(n, random_state=seed),
    "SparseUnmixing": lambda n, seed, lk: SparseUnmixing(n, random_state=seed, verbose=0),
    "SegmentUnmixing": lambda n, seed, lk: SegmentUnmixing(n, random_state=seed),
    "IFlow": lambda n, seed, lk: IFlow(n, random_state=seed, verbose=0),
    "IVAE": lambda n, seed, lk: IVAE(n, random_state=seed, verbose=0, likelihood=lk),
    "VAE": lambda n, seed, lk: VAE(n, n_restarts=1, random_state=seed, verbose=0, likelihood=lk),
    "BetaVAE": lambda n, seed, lk: BetaVAE(n, n_restarts=1, random_state=seed, verbose=0, likelihood=lk),
    "BetaTCVAE": lambda n, seed, lk: BetaTCVAE(n, n_restarts=1, random_state=seed, verbose=0, likelihood=lk),
}


def draw(setting, seed):
    """Return a sample of a setting."""
    law, rows, _ = SETTINGS[setting]
    if "conditions" not in law:
        return make_segments(rows * law.get("segments", 40), **law, random_state=seed)
    n, conditions = law["n"], law["conditions"]
    scales = np.ones((conditions + 1, n))  # value 0 of u changes nothing, value i latent i - 1 alone
    scales[np.arange(1, conditions + 1), np.arange(conditions)] = 3
    weights, means = np.full(conditions + 1, 1 / (conditions + 1)), np.zeros_like(scales)
    latents = GaussianMixture(weights, means, scales, observed=True, equal_shares=True)
    rng = np.random.default_rng(seed)
    mixing = tanh_mixing(n, n, layers=3, reuse=True, rng=rng)
    turn = np.eye(n)  # latents that no value of u touches are N(0, I) in any basis: theirs is drawn
    turn[conditions:, conditions:] = np.linalg.qr(rng.normal(size=(n - conditions, n - conditions)))[0]
    mixing = Mixing([turn @ mixing.matrices[0].numpy(), *(w.numpy() for w in mixing.matrices[1:])], mixing.activations)
    return Simulator(latents, mixing, seed=seed).sample(rows * (conditions + 1), random_state=seed)


def one(setting, method, seed, device):
    """Fit one method to one draw, and say what it is worth."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    law, _, published = SETTINGS[setting]
    sample = draw(setting, seed)
    new = sample.source.sample(NEW_ROWS, random_state=seed + 1)
    bernoulli = law.get("bernoulli", False)
    row = {"setting": setting, "seed": seed, "method": method, "published": published}
    if bernoulli and method in ("SparseUnmixing", "IFlow"):
        return row | {"mcc": np.nan, "status": "continuous columns only"}
    model = METHODS[method](law["n"], seed, "bernoulli" if bernoulli else "gaussian")
    if device is not None:
        model.set_params(device=device)
    started = time.perf_counter()
    model.fit(sample.x, sample.u)
    row |= {"seconds": time.perf_counter() - started, "mcc": mcc(new.z, model.transform(new.x))}
    row |= {"agreement": model.stability_.score, "status": model.fit_status_}
    if method == "IVAE":
        row["given u"] = mcc(new.z, model.transform(new.x, new.u))
    if method in ("SegmentUnmixing", "IFlow", "IVAE"):
        row["score"] = model.score(new.x, new.u)
    if method in ("IFlow", "IVAE"):
        certificate = model.certificate_
        row |= {"level": str(certificate.level), "at best": str(certificate.if_undecided_hold)}
        row["not held"] = " ".join(c.name for c in certificate.checks if c.verdict != "holds")
    return row


def table(options) -> None:
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    cells = [(s, m, seed) for s in options.settings for m in options.methods for seed in seeds]
    cells.sort(key=lambda c: (c[1] not in ("IVAE", "IFlow"), -SETTINGS[c[0]][1]))  # the long ones first
    jobs = (delayed(one)(*cell, options.device) for cell in cells)
    found = []
    for row in Parallel(options.jobs, return_as="generator_unordered")(jobs):
        found.append(row)
        print("  ".join(f"{k} {v:.4f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
        if options.csv:
            pd.DataFrame(found).to_csv(options.csv, index=False)
    print(summary(pd.DataFrame(found)).to_string())


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """Return mean, sd and worst MCC of every method in every setting."""
    groups = frame.groupby(["setting", "method"], sort=False)
    named = {"mcc": ("mcc", "mean"), "sd": ("mcc", "std"), "worst": ("mcc", "min"), "seconds": ("seconds", "mean")}
    result = groups.agg(**named, published=("published", "first")).round(4)
    if "given u" in frame:
        result["given u"] = groups["given u"].mean().round(4)
    result["stable"] = groups["status"].apply(lambda s: (s == "stable").sum())
    return result.reset_index().sort_values(["setting", "method"], key=_order).set_index(["setting", "method"])


def _order(column: pd.Series) -> pd.Series:
    order = list(SETTINGS) if column.name == "setting" else list(METHODS)
    return column.map(order.index)


def speed(seeds: int, first: int) -> None:
    """Time to the held-out bound of a plain loop: batches of 64, Adam at .001, 20 epochs, from a random start."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for seed in range(first, first + seeds):
        sample = make_segments(40_000, n=5, random_state=seed)
        new = sample.source.sample(NEW_ROWS, random_state=seed + 1)
        started = time.perf_counter()
        plain = plain_loop(sample.x, sample.u, seed)
        slow, bound = time.perf_counter() - started, plain.score(new.x, new.u)
        for steps in (25, 50, 100, 200, 400, 800, 1600, 3200):
            started = time.perf_counter()
            model = IVAE(5, init="linear", max_steps=steps, patience=None, random_state=seed, verbose=0)
            model.fit(sample.x, sample.u)
            fast, reached = time.perf_counter() - started, model.score(new.x, new.u)
            if reached >= bound:
                break
        print(
            f"seed {seed}: plain {slow:.1f} s, bound {bound:.3f}, MCC {mcc(new.z, plain.transform(new.x)):.3f}; IVAE "
            f"{fast:.1f} s ({model.n_restarts} restarts, {steps} steps), bound {reached:.3f}, MCC "
            f"{mcc(new.z, model.transform(new.x)):.3f}; ratio {fast / slow:.3f}",
            flush=True,
        )


def plain_loop(x, u, seed, epochs=20, batch=64, rate=1e-3):
    """Fit the same nets and the same bound as they are usually trained: torch's Adam, shuffled batches of 64."""
    model = IVAE(5, n_restarts=1, init="random", max_steps=1, random_state=seed, verbose=0)
    model.fit(x, u)  # sets columns and nets; one step is nothing
    nets = copy.deepcopy(model.module_).train()
    with torch.no_grad():
        for parameter in nets.parameters():
            parameter.requires_grad_(True)
    rows, given = (
        model._rows(x.astype(np.float32), torch.device("cpu")),
        model._u_tensor(u, len(x), torch.device("cpu")),
    )
    optimiser = torch.optim.Adam(nets.parameters(), lr=rate)
    rng = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for own in torch.randperm(len(rows), generator=rng).split(batch):
            e, g = rows[own][None], given[own][None]
            q = nets.posterior(e, nets.gaussian_prior(g))
            z = q.at(torch.randn(q.mean.shape, generator=rng))
            loss = -(nets.log_likelihood(e, nets.decode(z)) - nets.divergence(q, g)).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    model.module_ = nets.eval()
    return model


def sachs(options) -> None:
    """Fit the Sachs cells with their conditions as u: 5 restarts, 2 to 11 latents, and the latents by condition."""
    chosen = [m for m in ("SegmentUnmixing", "IFlow", "IVAE") if m in options.methods]
    cells = [(method, n) for n in range(11, 1, -1) for method in chosen]
    jobs = (delayed(one_sachs)(*cell, options) for cell in cells)
    for line in Parallel(options.jobs, return_as="generator_unordered")(jobs):
        print(line, flush=True)


def one_sachs(name, n, options) -> str:
    """Fit one method with n latents, and say how it went."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    sample = load_sachs(options.sachs, log=True)
    order = np.random.default_rng(0).permutation(len(sample.x))
    train, held = order[:6000], order[6000:]
    method = {"SegmentUnmixing": SegmentUnmixing, "IFlow": IFlow, "IVAE": IVAE}[name]
    model = method(n, n_restarts=5, random_state=0, verbose=0, device=options.device or "auto")
    started = time.perf_counter()
    model.fit(sample.x[train], sample.u[train])
    line = f"{name} n={n}: held-out score {model.score(sample.x[held], sample.u[held]):.3f}, restarts agree "
    line += f"{model.stability_.score:.3f} ({model.fit_status_}), {time.perf_counter() - started:.0f} s"
    if name != "SegmentUnmixing":
        certificate = model.certificate_
        failed = " ".join(c.name for c in certificate.checks if c.verdict != "holds")
        line += f", level {certificate.level}, at best {certificate.if_undecided_hold}, not held: {failed}"
    if options.pictures is not None:
        Path(options.pictures).mkdir(parents=True, exist_ok=True)
        figure = plot_by_value(model.transform(sample.x), sample.u, labels=SACHS_CONDITIONS)
        figure.savefig(Path(options.pictures) / f"sachs_{name}_{n}.png", dpi=100)
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device")
    parser.add_argument("--csv", help="write a line per fit here")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--sachs", metavar="FOLDER")
    parser.add_argument("--pictures", metavar="FOLDER")
    options = parser.parse_args()
    if options.speed:
        speed(options.seeds, options.first_seed)
    elif options.sachs:
        sachs(options)
    else:
        table(options)


if __name__ == "__main__":
    main()
