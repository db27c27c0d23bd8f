"""Do IFlow and IVAE recover latents given u, better than linear methods, where u says little, and on real cells?

    python benchmarks/given_u.py [--settings "3 segments"] [--methods IFlow IVAE] [--seeds 5] [--first-seed 0]
    python benchmarks/given_u.py --sachs FOLDER     restarts, number of latents and certificate, on the Sachs cells

Data of the iVAE paper with few segments, with noise, and with experimental conditions of which each changes one latent.
MCC is that of 5000 new rows; that of latents given u (IVAE) has its own column. No fit uses the ground truth. One line
per fit, then a table. Every fit runs on one thread; --jobs runs several at once, which makes their seconds unreliable.
`identifiable reproduce` runs the settings of the paper: ivae/figure2, ivae/figure4, ivae/talk, ivae/discrete.
"""

import numpy as np

from common import arguments, certificate_of, choose, fit_and_score, parse, run_jobs, summary, timed, use_one_thread
from identifiable import IVAE, IFlow, SegmentUnmixing, baselines
from identifiable.data import load_sachs, make_segments
from identifiable.data.latents import GaussianMixture
from identifiable.data.mixings import Mixing, tanh_mixing
from identifiable.data.simulator import Simulator
from identifiable.metrics import mcc

SETTINGS = {  # parameters of the data, rows per segment
    "main, reused": ({"reuse": True}, 1000),
    "main, fresh": ({"reuse": False}, 1000),
    "3 segments": ({"segments": 3}, 10_000),
    "5 conditions": ({"conditions": 5}, 6000),
    "1 condition": ({"conditions": 1}, 18_000),
    "noise .1": ({"d": 10, "noise": 0.1}, 1000),
}
N = 5
GIVEN_U = {"SegmentUnmixing": SegmentUnmixing, "IFlow": IFlow, "IVAE": IVAE}


def make(setting, seed):
    """Return a sample of a setting."""
    params, rows = SETTINGS[setting]
    if "conditions" not in params:
        return make_segments(rows * params.get("segments", 40), n=N, **params, random_state=seed)
    conditions = params["conditions"]
    scales = np.ones((conditions + 1, N))  # value 0 of u changes nothing, value i only latent i - 1
    scales[np.arange(1, conditions + 1), np.arange(conditions)] = 3
    weights, means = np.full(conditions + 1, 1 / (conditions + 1)), np.zeros_like(scales)
    latents = GaussianMixture(weights, means, scales, observed=True, equal_shares=True)
    rng = np.random.default_rng(seed)
    mixing = tanh_mixing(N, N, layers=3, reuse=True, rng=rng)
    turn = np.eye(N)  # latents that no value of u changes are N(0, I) in any basis: theirs is random
    turn[conditions:, conditions:] = np.linalg.qr(rng.normal(size=(N - conditions, N - conditions)))[0]
    mixing = Mixing([turn @ mixing.matrices[0].numpy(), *(w.numpy() for w in mixing.matrices[1:])], mixing.activations)
    return Simulator(latents, mixing, seed=seed).sample(rows * (conditions + 1), random_state=seed)


def fit_one(setting, method, seed, device):
    """Fit one method to one data set; return its row."""
    use_one_thread()
    row = {"setting": setting, "seed": seed, "method": method}
    if method not in GIVEN_U:
        return row | fit_and_score(baselines(N, random_state=seed)[method], make(setting, seed), seed)[0]
    model = GIVEN_U[method](N, random_state=seed, verbose=0, device=device)
    found, new = fit_and_score(model, make(setting, seed), seed)
    row |= found | {"score": model.score(new.x, new.u)}
    if method == "IVAE":
        row["given u"] = mcc(new.z, model.transform(new.x, new.u))
    return row | (certificate_of(model) if method != "SegmentUnmixing" else {})


def fit_sachs(name, n, options) -> dict:
    """Fit one method with n latents to the Sachs cells, with their conditions as u and 5 restarts."""
    use_one_thread()
    sample = load_sachs(options.sachs, log=True)
    train, held = np.split(np.random.default_rng(0).permutation(len(sample.x)), [6000])
    model = GIVEN_U[name](n, n_restarts=5, random_state=0, verbose=0, device=options.device)
    _, seconds = timed(lambda: model.fit(sample.x[train], sample.u[train]))
    row = {"method": name, "n": n, "held-out score": model.score(sample.x[held], sample.u[held])}
    row |= {"agreement": model.stability_.score, "status": model.fit_status_, "seconds": seconds}
    return row | (certificate_of(model) if name != "SegmentUnmixing" else {})


def main() -> None:
    parser = arguments(__doc__)
    choose(parser, "--settings", SETTINGS)
    choose(parser, "--methods", [*baselines(), *GIVEN_U])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--sachs", metavar="FOLDER")
    options = parse(parser)
    if options.sachs:
        sizes = range(11, 1, -1)
        run_jobs(fit_sachs, [(m, n, options) for n in sizes for m in GIVEN_U if m in options.methods], options)
        return
    jobs = [(s, m, seed, options.device) for m in options.methods for s in options.settings for seed in options.seeds]
    print(summary(run_jobs(fit_one, jobs[::-1], options), ["setting", "method"]).sort_index().to_string())


if __name__ == "__main__":
    main()
