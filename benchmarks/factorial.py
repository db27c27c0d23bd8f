"""How well does `FactorialUnmixing` recover latents and the hidden discrete variables behind their components?

    python benchmarks/factorial.py [--seeds 5] [--first-seed 0]

Three parts: from the true moments of a mixture; from 20,000 rows, beside the trivial baselines; and the hidden discrete
variables behind the components, from the true moments and from rows, for three graphs and for three that break (P3).
MCC is that of 5000 new rows; no fit uses the ground truth.
"""

import numpy as np

from common import arguments, certificate_of, choose, fit_and_score, parse, timed
from identifiable import FactorialUnmixing, Mixture, diagonal_basis, structure_of
from identifiable.data import make_gmm
from identifiable.estimators import baselines
from identifiable.metrics import match, mcc

GRAPHS = {
    "2 x 3, one latent shared": {"n": 5, "hidden": (2, 3), "touches": [[0, 1, 2], [2, 3, 4]]},
    "2 x 2 x 2 in a ring": {"n": 6, "hidden": (2, 2, 2), "touches": [[0, 1, 2], [2, 3, 4], [4, 5, 0]]},
    "2 x 2 x 3": {"n": 6, "hidden": (2, 2, 3), "touches": [[0, 1], [2, 3], [3, 4, 5]]},
}
BROKEN = {
    "nested: U_1 moves {0, 1}, U_2 {0, 1, 2}": {"n": 3, "hidden": (2, 2), "touches": [[0, 1], [0, 1, 2]]},
    "a state has no component": {"n": 4, "hidden": (2, 3), "touches": [[0, 1], [2, 3]], "drop": 2},
    "a latent has one distribution in two states": {
        "n": 4,
        "hidden": (2, 3),
        "touches": [[0, 1], [1, 2, 3]],
        "equal": True,
    },
}


def true_mixture(sample) -> Mixture:
    """Return the true distribution of the latents."""
    values = {name: value.numpy() for name, value in sample.source.latents.state_dict().items()}
    return Mixture(values["weights"], values["means"], values["factors"] ** 2)


def from_moments(seeds) -> None:
    """Apply a random matrix to a known mixture, and unmix it."""
    print("From true moments: 10 components, a random matrix; MCC mean and worst, seconds per mixture")
    for n in (2, 3, 5, 10, 20, 40):
        found, total = [], 0.0
        for seed in seeds:
            rng = np.random.default_rng(seed)
            sample = make_gmm(2000, n=n, d=n, layers=1, random_state=seed)
            A = rng.normal(size=(n, n))
            mixed = true_mixture(sample).pushforward(A, rng.normal(size=n))
            basis, seconds = timed(lambda mixed=mixed: diagonal_basis(mixed))
            found.append(mcc(sample.z, sample.z @ (basis.W @ A).T))
            total += seconds
        print(f"  n = {n:2d}: {np.mean(found):.6f}  {min(found):.6f}  {total / len(found):.2f}")


def from_rows(seeds) -> None:
    """Fit rows of an affine mixture, with and without the number of components."""
    print("From 20,000 rows: 10 components, an affine mixing; MCC mean ± sd (worst), seconds")
    for n in (5, 10):
        results: dict[str, list] = {}
        for seed in seeds:
            sample = make_gmm(20_000, n=n, components=10, layers=1, random_state=seed)
            methods = baselines(n, random_state=seed) | {
                "FactorialUnmixing": FactorialUnmixing(n, random_state=seed),
                "FactorialUnmixing, J given": FactorialUnmixing(n, n_components=10, random_state=seed),
            }
            for name, model in methods.items():
                row, _ = fit_and_score(model, sample, seed)
                level = certificate_of(model)["level"] if isinstance(model, FactorialUnmixing) else ""
                results.setdefault(name, []).append((row["mcc"], row["seconds"], level))
        for name, runs in results.items():
            values = np.array([run[:2] for run in runs])
            levels = " ".join(run[2] for run in runs)
            print(
                f"  n = {n:2d} {name:28s} {values[:, 0].mean():.4f} ± {values[:, 0].std(ddof=1):.4f} "
                f"({values[:, 0].min():.4f})  {values[:, 1].mean():.1f} s  {levels}",
                flush=True,
            )


def is_correct(structure, states, truth, order) -> bool:
    """Return whether sizes, neighbours and states are correct, up to the order of variables and of their values."""
    touches = sorted(tuple(sorted(t)) for t in truth["touches"])
    found = [tuple(sorted(int(order[t]) for t in moved)) for moved in structure.neighbours]
    if structure.verdict != "holds" or sorted(found) != touches:
        return False
    for moved, size, own in zip(found, structure.sizes, structure.states.T, strict=True):
        i = [tuple(sorted(t)) for t in truth["touches"]].index(moved)
        if size != truth["hidden"][i] or len(set(zip(own, states[:, i], strict=True))) != size:
            return False
    return True


def hidden(seeds) -> None:
    """Find the hidden variables behind the components."""
    print("Hidden variables: correct / wrong / inconclusive; correct number of components; MCC of the latents")
    for name, truth in GRAPHS.items():
        exact, counts, sizes, latents = 0, {"correct": 0, "wrong": 0, "inconclusive": 0}, 0, []
        J = int(np.prod(truth["hidden"]))
        joint = np.stack(np.unravel_index(np.arange(J), truth["hidden"]), axis=1)
        for seed in seeds:
            sample = make_gmm(20_000, layers=1, random_state=seed, **truth)
            exact += is_correct(structure_of(true_mixture(sample)), joint, truth, np.arange(truth["n"]))
            model = FactorialUnmixing(random_state=seed).fit(sample.x)
            z, found = model.transform(sample.x), model.structure_
            latents.append(mcc(sample.z, z))
            sizes += len(model.mixture_.weights) == J
            order = np.argsort(match(sample.z, z).permutation)
            if found.verdict != "holds":
                counts["inconclusive"] += 1
            else:
                own = model.predict(sample.x)
                labels = [np.bincount(sample.component[own == j]).argmax() for j in range(len(found.states))]
                counts["correct" if is_correct(found, joint[labels], truth, order) else "wrong"] += 1
        rows = " / ".join(map(str, counts.values()))
        print(
            f"  {name:26s} true moments {exact} of {len(seeds)}; 20,000 rows {rows}; components {sizes}; "
            f"MCC {np.mean(latents):.4f}",
            flush=True,
        )
    for name, truth in BROKEN.items():
        mixture = true_mixture(
            make_gmm(100, layers=1, random_state=0, **{k: truth[k] for k in ("n", "hidden", "touches")})
        )
        means, variances = mixture.means.copy(), np.diagonal(mixture.covariances, axis1=1, axis2=2).copy()
        kept = np.arange(len(mixture.weights)) != truth.get("drop", -1)
        if truth.get("equal"):  # latent 3 does not distinguish states 0 and 1 of U_2
            second = np.unravel_index(np.arange(len(means)), truth["hidden"])[1]
            means[second == 1, 3], variances[second == 1, 3] = means[second == 0, 3], variances[second == 0, 3]
        weights = mixture.weights[kept] / mixture.weights[kept].sum()
        print(f"  {name}: {structure_of(Mixture(weights, means[kept], variances[kept]))}")


def main() -> None:
    parts = {"moments": from_moments, "rows": from_rows, "hidden": hidden}
    parser = arguments(__doc__)
    choose(parser, "--parts", parts)
    options = parse(parser)
    for name in options.parts:
        parts[name](options.seeds)


if __name__ == "__main__":
    main()
