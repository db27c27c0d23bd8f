"""Do two versions of the library give the same results?

    python benchmarks/record.py FOLDER [--only PDGMM IVAE ...] [--jobs 2]
    python benchmarks/record.py --compare OLD NEW

The first form fits every estimator, with fixed seeds, to three small data sets, and writes one file per fit to FOLDER:
latents, score, certificate, verdict and MCC. Run it once in a worktree of the old commit and once in the new one, on
one machine. The second form prints, per estimator, the largest difference of latents and scores, the difference of the
mean MCC over the three data sets, and every verdict or certificate that changed. Settings are small so that all of it
takes minutes; the ground truth only scores.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed

SEEDS = (0, 1, 2)
ROWS_KEPT = 500  # of the latents of each fit
NETS = {"max_steps": 400, "batch_size": 256, "hidden": (32, 32)}

# name -> (data set, parameters). Linear estimators have no training loop: their results must be equal to 1e-6.
LINEAR: dict[str, tuple[str, dict[str, Any]]] = {
    "RawData": ("sparse-linear", {}),
    "PrincipalComponents": ("sparse-linear", {"n_latents": 3}),
    "IndependentComponents": ("sparse-linear", {}),
    "LinearICA": ("sparse-linear", {}),
    "SparseUnmixing": ("sparse-linear", {"n_restarts": 2}),
    "SegmentUnmixing": ("segments-linear", {"n_restarts": 2}),
    "FactorialUnmixing": ("gmm-linear", {"n_restarts": 2}),
}
TRAINED: dict[str, tuple[str, dict[str, Any]]] = {
    "PDGMM": ("sparse", {"max_steps": 800}),
    "IFlow": ("segments", {"max_steps": 600}),
    "IVAE": ("segments", {"n_latents": 3, **NETS}),
    "GMMFlow": ("gmm", {"full_covariance_steps": 300, "max_steps": 300, "n_components": 12}),
    "VaDE": ("gmm", {"n_latents": 3, "n_components": 12, **NETS}),
    "MFCVAE": ("gmm", {"n_latents": 3, "facets": 2, "n_components": 6, **NETS}),
    "RademacherVAE": ("gmm", {"n_latents": 3, "n_bits": 4, **NETS}),
    "RelaxedVQVAE": ("gmm", {"n_latents": 3, "n_codes": 16, **NETS}),
    "VAE": ("gmm", {"n_latents": 3, **NETS}),
    "BetaVAE": ("gmm", {"n_latents": 3, **NETS}),
    "BetaTCVAE": ("gmm", {"n_latents": 3, **NETS}),
    "TwoStage": ("sparse", {"n_latents": 3, "max_steps": 300, "batch_size": 512, "sparse_steps": 500}),
    "GroupedSparse": ("sparse", {"n_latents": 3, "max_steps": 300, "batch_size": 512}),
}
# `Identify` sees a different kind of table each time; the last has a u.
TABLES = ("sparse-linear", "sparse", "segments-linear")


def make(kind: str, seed: int) -> Any:
    from identifiable.data import make_gmm, make_pdgmm, make_segments

    layers = 1 if kind.endswith("linear") else 2
    if kind.startswith("sparse"):
        return make_pdgmm(2000, n=3, layers=layers, random_state=seed)
    if kind.startswith("segments"):
        return make_segments(2000, n=3, segments=10, layers=layers, random_state=seed)
    return make_gmm(2000, n=3, components=6, layers=layers, random_state=seed)


def fit(name: str, seed: int) -> dict[str, Any]:
    """Fit an estimator to one data set; return latents and a summary."""
    import torch

    import identifiable
    from identifiable.metrics import mcc

    torch.set_num_threads(1)
    started = time.perf_counter()
    if name == "Identify":
        kind, parameters = TABLES[seed], {"seconds": None}
    else:
        kind, parameters = (LINEAR | TRAINED)[name]
    sample = make(kind, seed)
    estimator = getattr(identifiable, name)(**parameters, random_state=seed, verbose=0, device="cpu")
    given: tuple[Any, ...] = (sample.x, sample.u) if kind.startswith("segments") else (sample.x,)
    if name == "GroupedSparse":
        given = (sample.x, sample.component)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(*given)
        score = float(estimator.score(*given)) if name not in ("GroupedSparse",) else float(estimator.score(sample.x))
    z = np.asarray(estimator.transform(sample.x))
    certificate = getattr(estimator, "certificate_", None)
    verdict = getattr(estimator, "verdict_", estimator.fit_status_)
    if name == "Identify":
        latents = getattr(estimator, "latent_reports_", None) or estimator.latent_reports_
        verdict = f"{type(estimator.model_).__name__}: {verdict}, {', '.join(t.verdict for t in latents)}"
    return {
        "latents": z[:ROWS_KEPT],
        "score": score,
        "mcc": float(mcc(sample.z, z)),
        "verdict": verdict,
        "certificate": None if certificate is None else certificate.level.name,
        "seconds": time.perf_counter() - started,
    }


def record(folder: Path, name: str, seed: int) -> None:
    found = fit(name, seed)
    np.save(folder / f"{name}-{seed}.npy", found.pop("latents"))
    (folder / f"{name}-{seed}.json").write_text(json.dumps(found, indent=1))
    print(f"{name} {seed}: MCC {found['mcc']:.3f}, {found['verdict']}, {found['seconds']:.0f} s", flush=True)


def compare(old: Path, new: Path) -> None:
    """Print the differences between two recordings, per estimator."""
    print(
        f"{'estimator':22} {'|latents|':>10} {'|score|':>10} {'mean MCC':>10} {'change':>8}  verdicts and certificates"
    )
    for name in [*LINEAR, *TRAINED, "Identify"]:
        latents, scores, changes, means = [], [], [], []
        for seed in SEEDS:
            files = [folder / f"{name}-{seed}.json" for folder in (old, new)]
            if not all(file.exists() for file in files):
                continue
            one, two = (json.loads(file.read_text()) for file in files)
            a, b = (np.load(file.with_suffix(".npy")) for file in files)
            latents.append(float(np.abs(a - b).max()) if a.shape == b.shape else np.inf)
            scores.append(abs(one["score"] - two["score"]))
            means.append((one["mcc"], two["mcc"]))
            changes += [
                f"{seed}: {one[key]} -> {two[key]}" for key in ("verdict", "certificate") if one[key] != two[key]
            ]
        if not latents:
            print(f"{name:22} not in both folders")
            continue
        before, after = np.mean(means, axis=0)
        print(
            f"{name:22} {max(latents):10.2e} {max(scores):10.2e} {after:10.4f} {after - before:+8.4f}  "
            f"{'; '.join(changes) or 'same'}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("OLD", "NEW"))
    parser.add_argument("--only", nargs="+", default=[*LINEAR, *TRAINED, "Identify"])
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    if options.compare:
        compare(*options.compare)
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    Parallel(n_jobs=options.jobs)(
        delayed(record)(options.folder, name, seed) for name in options.only for seed in SEEDS
    )


if __name__ == "__main__":
    main()
