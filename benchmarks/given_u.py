"""Do IFlow and IVAE recover latents given u, better than linear methods and than autoencoders without u?

    python benchmarks/given_u.py [--settings "main, reused"] [--methods IFlow IVAE] [--seeds 5] [--first-seed 0]
    python benchmarks/given_u.py --speed                       IVAE against the usual training, batches of 64
    python benchmarks/given_u.py --sachs FOLDER [--pictures P] restarts, number of latents, certificate, on Sachs cells

The settings of the iVAE paper. MCC is that of 5000 new rows; that of latents given u (IVAE) has its own column. No fit
uses the ground truth. One line per fit, then a table. Every fit runs on one thread; --jobs runs several at once, which
makes their seconds unreliable. `identifiable reproduce ivae/figure2` runs the published figure.
"""

from pathlib import Path

import numpy as np

from common import arguments, certificate_of, choose, fit_and_score, parse, run_jobs, summary, timed, use_one_thread
from identifiable import IVAE, VAE, BetaTCVAE, BetaVAE, IFlow, SegmentUnmixing, baselines
from identifiable.data import load_sachs, make_segments
from identifiable.data.latents import GaussianMixture
from identifiable.data.mixings import Mixing, tanh_mixing
from identifiable.data.real import SACHS_CONDITIONS
from identifiable.data.simulator import Simulator
from identifiable.metrics import mcc
from identifiable.report.plots.segments import plot_by_value

ABOVE_95 = 0.95  # the paper's figure 2a, its best configuration; the others are shown as curves, not printed
SETTINGS = {  # parameters of the data, rows per segment, published MCC
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
GIVEN_U = {"SegmentUnmixing": SegmentUnmixing, "IFlow": IFlow, "IVAE": IVAE}
AUTOENCODERS = {"VAE": VAE, "BetaVAE": BetaVAE, "BetaTCVAE": BetaTCVAE}
METHODS = [*baselines(), *GIVEN_U, *AUTOENCODERS]
CONTINUOUS = ("SparseUnmixing", "IFlow")


def build(method, n, seed, likelihood):
    """Return an unfitted method."""
    if method not in GIVEN_U | AUTOENCODERS:
        return baselines(n, random_state=seed)[method]
    model = (GIVEN_U | AUTOENCODERS)[method](n, random_state=seed, verbose=0)
    if method in AUTOENCODERS:
        model.set_params(n_restarts=1)
    return model.set_params(likelihood=likelihood) if "likelihood" in model.get_params() else model


def make(setting, seed):
    """Return a sample of a setting."""
    params, rows, _ = SETTINGS[setting]
    if "conditions" not in params:
        return make_segments(rows * params.get("segments", 40), **params, random_state=seed)
    n, conditions = params["n"], params["conditions"]
    scales = np.ones((conditions + 1, n))  # value 0 of u changes nothing, value i only latent i - 1
    scales[np.arange(1, conditions + 1), np.arange(conditions)] = 3
    weights, means = np.full(conditions + 1, 1 / (conditions + 1)), np.zeros_like(scales)
    latents = GaussianMixture(weights, means, scales, observed=True, equal_shares=True)
    rng = np.random.default_rng(seed)
    mixing = tanh_mixing(n, n, layers=3, reuse=True, rng=rng)
    turn = np.eye(n)  # latents that no value of u changes are N(0, I) in any basis: theirs is random
    turn[conditions:, conditions:] = np.linalg.qr(rng.normal(size=(n - conditions, n - conditions)))[0]
    mixing = Mixing([turn @ mixing.matrices[0].numpy(), *(w.numpy() for w in mixing.matrices[1:])], mixing.activations)
    return Simulator(latents, mixing, seed=seed).sample(rows * (conditions + 1), random_state=seed)


def fit_one(setting, method, seed, device):
    """Fit one method to one data set; return its row."""
    use_one_thread()
    params, _, published = SETTINGS[setting]
    bernoulli = params.get("bernoulli", False)
    row = {"setting": setting, "seed": seed, "method": method, "published": published}
    if bernoulli and method in CONTINUOUS:
        return row | {"mcc": np.nan, "status": "continuous columns only"}
    model = build(method, params["n"], seed, "bernoulli" if bernoulli else "gaussian")
    if device is not None:
        model.set_params(device=device)
    found, new = fit_and_score(model, make(setting, seed), seed)
    row |= found
    if method == "IVAE":
        row["given u"] = mcc(new.z, model.transform(new.x, new.u))
    if method in GIVEN_U:
        row["score"] = model.score(new.x, new.u)
    return row | (certificate_of(model) if method in ("IFlow", "IVAE") else {})


def speed(seeds) -> None:
    """Time IVAE to the held-out bound of the usual training: batches of 64, 20 epochs, rate .001, a random start."""
    for seed in seeds:
        sample = make_segments(40_000, n=5, random_state=seed)
        usual = {"n_restarts": 1, "init": "random", "batch_size": 64, "learning_rate": 1e-3}
        plain = IVAE(5, **usual, max_steps=20 * 40_000 // 64, patience=None, random_state=seed, verbose=0)
        slow, new = fit_and_score(plain, sample, seed)
        bound = plain.score(new.x, new.u)
        for steps in (25, 50, 100, 200, 400, 800, 1600, 3200):
            model = IVAE(5, init="linear", max_steps=steps, patience=None, random_state=seed, verbose=0)
            fast, new = fit_and_score(model, sample, seed)
            if (reached := model.score(new.x, new.u)) >= bound:
                break
        print(
            f"seed {seed}: usual {slow['seconds']:.1f} s, bound {bound:.3f}, MCC {slow['mcc']:.3f}; IVAE "
            f"{fast['seconds']:.1f} s ({model.n_restarts} restarts, {steps} steps), bound {reached:.3f}, MCC "
            f"{fast['mcc']:.3f}; ratio {fast['seconds'] / slow['seconds']:.3f}",
            flush=True,
        )


def fit_sachs(name, n, options) -> dict:
    """Fit one method with n latents to the Sachs cells, with their conditions as u and 5 restarts."""
    use_one_thread()
    sample = load_sachs(options.sachs, log=True)
    train, held = np.split(np.random.default_rng(0).permutation(len(sample.x)), [6000])
    model = GIVEN_U[name](n, n_restarts=5, random_state=0, verbose=0, device=options.device or "auto")
    _, seconds = timed(lambda: model.fit(sample.x[train], sample.u[train]))
    row = {"method": name, "n": n, "held-out score": model.score(sample.x[held], sample.u[held])}
    row |= {"agreement": model.stability_.score, "status": model.fit_status_, "seconds": seconds}
    if options.pictures is not None:
        Path(options.pictures).mkdir(parents=True, exist_ok=True)
        figure = plot_by_value(model.transform(sample.x), sample.u, labels=SACHS_CONDITIONS)
        figure.savefig(Path(options.pictures) / f"sachs_{name}_{n}.png", dpi=100)
    return row | (certificate_of(model) if name != "SegmentUnmixing" else {})


def main() -> None:
    parser = arguments(__doc__)
    choose(parser, "--settings", SETTINGS)
    choose(parser, "--methods", METHODS)
    parser.add_argument("--device")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--sachs", metavar="FOLDER")
    parser.add_argument("--pictures", metavar="FOLDER")
    options = parse(parser)
    if options.speed:
        speed(options.seeds)
    elif options.sachs:
        run_jobs(
            fit_sachs, [(m, n, options) for n in range(11, 1, -1) for m in GIVEN_U if m in options.methods], options
        )
    else:
        jobs = [
            (s, m, seed, options.device) for s in options.settings for m in options.methods for seed in options.seeds
        ]
        jobs.sort(key=lambda job: (job[1] not in ("IVAE", "IFlow"), -SETTINGS[job[0]][1]))  # the long ones first
        print(summary(run_jobs(fit_one, jobs, options), ["setting", "method"]).sort_index().to_string())


if __name__ == "__main__":
    main()
