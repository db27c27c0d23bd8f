"""How well does `FactorialUnmixing` recover latents and the hidden discrete variables behind their components?

    python benchmarks/factorial.py [--seeds 5] [--first-seed 0]

Three parts: from the true moments of a mixture; from 20,000 rows, beside the trivial baselines; and the hidden discrete
variables behind the components, from the true moments and from rows, for three graphs.
MCC is that of 5000 new rows; no fit uses the ground truth.
"""

import itertools

import numpy as np
import pandas as pd

from common import Results, arguments, certificate_of, choose, fit_and_score, parse, summary, timed
from identifiable import FactorialUnmixing, Mixture, diagonal_basis, structure_of
from identifiable.data import make_gmm
from identifiable.estimators import baselines
from identifiable.metrics import match, mcc

GRAPHS = {
    "2 x 3, one latent shared": {"n": 5, "hidden": (2, 3), "touches": [[0, 1, 2], [2, 3, 4]]},
    "2 x 2 x 2 in a ring": {"n": 6, "hidden": (2, 2, 2), "touches": [[0, 1, 2], [2, 3, 4], [4, 5, 0]]},
    "2 x 2 x 3": {"n": 6, "hidden": (2, 2, 3), "touches": [[0, 1], [2, 3], [3, 4, 5]]},
}


def true_mixture(sample) -> Mixture:
    """Return the true distribution of the latents."""
    values = {name: value.numpy() for name, value in sample.source.latents.state_dict().items()}
    return Mixture(values["weights"], values["means"], values["factors"] ** 2)


def from_moments(seeds) -> pd.DataFrame:
    """Apply a random matrix to a known mixture, and unmix it."""
    results = Results()
    for n, seed in itertools.product((2, 3, 5, 10, 20, 40), seeds):
        rng = np.random.default_rng(seed)
        sample = make_gmm(2000, n=n, d=n, layers=1, random_state=seed)
        A = rng.normal(size=(n, n))
        mixed = true_mixture(sample).pushforward(A, rng.normal(size=n))
        basis, seconds = timed(lambda mixed=mixed: diagonal_basis(mixed))
        results.add({"n": n, "seed": seed, "mcc": mcc(sample.z, sample.z @ (basis.W @ A).T), "seconds": seconds})
    return summary(results.frame(), ["n"])


def from_rows(seeds) -> pd.DataFrame:
    """Fit rows of an affine mixture, with and without the number of components."""
    results = Results()
    for n, seed in itertools.product((5, 10), seeds):
        sample = make_gmm(20_000, n=n, components=10, layers=1, random_state=seed)
        ours = {"FactorialUnmixing": {}, "FactorialUnmixing, J given": {"n_components": 10}}
        models = {name: FactorialUnmixing(n, random_state=seed, **params) for name, params in ours.items()}
        for name, model in (baselines(n, random_state=seed) | models).items():
            row, _ = fit_and_score(model, sample, seed)
            results.add({"n": n, "method": name, "seed": seed} | row | (certificate_of(model) if name in ours else {}))
    return summary(results.frame(), ["n", "method"])


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


def hidden(seeds) -> pd.DataFrame:
    """Find the hidden variables behind the components."""
    results = Results()
    for (name, truth), seed in itertools.product(GRAPHS.items(), seeds):
        J = int(np.prod(truth["hidden"]))
        joint = np.stack(np.unravel_index(np.arange(J), truth["hidden"]), axis=1)
        sample = make_gmm(20_000, layers=1, random_state=seed, **truth)
        model = FactorialUnmixing(random_state=seed).fit(sample.x)
        z, found, own = model.transform(sample.x), model.structure_, model.predict(sample.x)
        row = {"graph": name, "seed": seed, "mcc": mcc(sample.z, z), "J found": len(model.mixture_.weights) == J}
        row["from moments"] = is_correct(structure_of(true_mixture(sample)), joint, truth, np.arange(truth["n"]))
        row["from rows"] = found.verdict
        if found.verdict == "holds":
            labels = [np.bincount(sample.component[own == j]).argmax() for j in range(len(found.states))]
            correct = is_correct(found, joint[labels], truth, np.argsort(match(sample.z, z).permutation))
            row["from rows"] = "correct" if correct else "wrong"
        results.add(row)
    frame = results.frame()
    counts = pd.crosstab(frame["graph"], frame["from rows"])
    return counts.join(frame.groupby("graph")[["from moments", "J found", "mcc"]].mean())


def main() -> None:
    parts = {"moments": from_moments, "rows": from_rows, "hidden": hidden}
    parser = arguments(__doc__)
    choose(parser, "--parts", parts)
    options = parse(parser)
    for name in options.parts:
        print(parts[name](options.seeds).to_string())


if __name__ == "__main__":
    main()
