"""Do restarts agree on images, ten at once on one GPU?

    python benchmarks/images.py --mnist FOLDER --cifar10 FOLDER [--parts table3 ...] [--out FOLDER]

- table3: MNIST, 5 latents, 25 components, Arch 1 of Kivva et al. (2022, table 3), 10 runs: MFCVAE, and IVAE given the
  digit.
- mnist50: MNIST, 50 latents, 40 components, MLP and ConvNet of Willetts & Paige (2021, figures 4 and 5), 5 runs.
- cifar: the first 10,000 images of CIFAR-10, 50 latents: VaDE, RademacherVAE (figure C.2), a ResNet; RelaxedVQVAE and
  its plain autoencoder (figure B.1), whose latents are compared position by position.
- time: ten restarts in one batch against three single fits.
- baselines: linear methods on MNIST.

Weak and strong MCC between all pairs of runs on the test images, the weak one aligned on a half of them and measured on
the other, over all canonical directions and over 20 of them, as the authors' code has it. No truth is known here: that
runs agree is necessary for recovery, not sufficient. A line per fit, then a table. `--out` also keeps the models.
"""

import argparse
import re
import time
import warnings
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from identifiable import (
    IVAE,
    MFCVAE,
    IndependentComponents,
    PrincipalComponents,
    RademacherVAE,
    RelaxedVQVAE,
    SparseUnmixing,
    VaDE,
    save,
)
from identifiable.data import load_cifar10, load_mnist
from identifiable.estimators.relaxed_vqvae import position_mcc
from identifiable.metrics import strong_mcc, weak_mcc
from identifiable.nets import Dense

PUBLISHED = {  # strong, weak
    "MFCVAE, leaky ReLU": "0.69 (0.06), 0.94 (0.02)",
    "MFCVAE, ReLU": "0.70 (0.07), 0.91 (0.05)",
    "IVAE (u)": "0.65 (0.07), 0.88 (0.07)",
    "VaDE, MLP": "weak often > 0.9 (figure 4)",
    "VaDE, ConvNet": "weak often > 0.9 (figure 5)",
}
BITS = {"likelihood": "bernoulli", "patience": None, "verbose": 0}
PIXELS = {"likelihood": "logistic", "patience": None, "verbose": 0}
RELU = Dense((500, 1000), (500, 500), activation="relu")
SIMPLE = {"init": "random", "first_beta": 0.1, "posterior": "diagonal", "max_steps": 16_000}


def agreement(latents, directions=(None,)) -> dict[str, float]:
    """Return mean and sd over all pairs of runs."""
    pairs = list(combinations(range(len(latents)), 2))
    found = {"strong": [strong_mcc(latents[a], latents[b]) for a, b in pairs]}
    for k in directions:
        name = "weak" if k is None else f"weak {k}"
        found[name] = [weak_mcc(latents[a], latents[b], n_components=k) for a, b in pairs]
    return {f"{k}{s}": float(f(v)) for k, v in found.items() for s, f in (("", np.mean), (" sd", np.std))}


class Bench:
    """Fit, compare, tell, keep."""

    def __init__(self, options) -> None:
        self.options, self.rows = options, []

    def fit(self, part, name, model, x, new, u=None, u_new=None, directions=(None,)):
        """Fit a model of several restarts, and compare these on new images."""
        started = time.perf_counter()
        model.set_params(random_state=self.options.seed).fit(x, u)
        seconds = time.perf_counter() - started
        latents = model.latents_of_restarts(new) if u is None else model.latents_of_restarts(new, u_new)
        row = {"part": part, "method": name, "runs": len(latents), "seconds": seconds}
        if hasattr(model, "restart_scores_"):
            row |= {"bound": float(model.restart_scores_.mean()), "bound sd": float(model.restart_scores_.std())}
        if isinstance(model, RelaxedVQVAE):
            pairs = list(combinations(range(len(latents)), 2))
            places = int(np.prod(model.grid_))
            for measure, kind in ((strong_mcc, "strong"), (weak_mcc, "weak")):
                each = np.stack([position_mcc(latents[a], latents[b], places, measure) for a, b in pairs])
                row |= {kind: float(each.mean()), f"{kind} sd": float(each.std())}
        elif len(latents) > 1:
            row |= agreement(latents, directions)
        self.tell(row)
        if self.options.out:
            save(model, Path(self.options.out) / (re.sub(r"\W+", "_", f"{part} {name}") + ".safetensors"))
        return model

    def tell(self, row) -> None:
        """Print a line, and write all of them."""
        self.rows.append(row)
        print("  ".join(f"{k} {v:.3f}" if isinstance(v, float) else str(v) for k, v in row.items()), flush=True)
        if self.options.out:
            pd.DataFrame(self.rows).to_csv(Path(self.options.out) / "images.csv", index=False)


def table3(bench, train, test) -> None:
    """MFCVAE and IVAE, Arch 1."""
    x, new = train.x, test.x
    for name, net in (("MFCVAE, leaky ReLU", "arch1"), ("MFCVAE, ReLU", RELU)):
        bench.fit("table3", name, MFCVAE(5, 25, 1, net=net, n_restarts=10, **SIMPLE, **BITS), x, new)
    linear = {"init": "linear", "posterior": "diagonal", "pretrain_steps": 1000, "max_steps": 8000}
    model = MFCVAE(5, 25, 1, net="arch1", n_restarts=10, **linear, **BITS)
    bench.fit("table3", "MFCVAE, linear start", model, x, new)
    known = {"family": "gaussian", "posterior": "diagonal", "max_steps": 8000, "batch_size": 256, "learning_rate": 1e-3}
    model = IVAE(5, net="arch1", n_restarts=10, **known, **BITS)
    bench.fit("table3", "IVAE (u)", model, x, new, train.u, test.u)
    two = {"init": "autoencoder", "pretrain_steps": 2000, "max_steps": 8000, "progressive": True}
    model = MFCVAE(10, 25, 2, net="arch1", n_restarts=2, **two, **BITS)
    bench.fit("table3", "MFCVAE, two facets", model, x, new)


def mnist50(bench, train, test) -> None:
    """VaDE with 50 latents."""
    x, new = train.x.reshape(-1, 28, 28), test.x.reshape(-1, 28, 28)
    long = {"pretrain_steps": 10_000, "max_steps": 8000, "first_beta": 0.05}
    short = {"pretrain_steps": 1000, "max_steps": 3000}
    for name, net, steps in (("VaDE, MLP", "mlp", long), ("VaDE, ConvNet", "convnet", short)):
        model = VaDE(50, 40, net=net, init="autoencoder", n_restarts=5, **steps, **BITS)
        bench.fit("mnist50", name, model, x, new, directions=(None, 20))


def cifar(bench, train, test) -> None:
    """Compare what clusters, hashes and quantises CIFAR-10."""
    x, new = train.x.reshape(-1, 32, 32, 3), test.x.reshape(-1, 32, 32, 3)
    common = PIXELS | {"n_restarts": 5, "max_steps": 3000}
    sets = {
        "VaDE, MLP": VaDE(50, 128, net="mlp", init="autoencoder", first_beta=0.05, **common),
        "VaDE, MLP, random start": VaDE(50, 128, net="mlp", init="random", **common),
        "RademacherVAE, MLP": RademacherVAE(50, 7, net="mlp", **common),
        "VaDE, ResNet": VaDE(
            50, 100, net="resnet", init="random", **PIXELS, n_restarts=2, max_steps=600, learning_rate=5e-4
        ),
    }
    for name, model in sets.items():
        bench.fit("cifar", name, model, x, new, directions=(None, 20))
    for name, quantised in (("RelaxedVQVAE", True), ("its autoencoder", False)):
        model = RelaxedVQVAE(64, 128, net="conv", quantised=quantised, **PIXELS, n_restarts=3, max_steps=1200)
        bench.fit("cifar", name, model, x, new[:2000])


def baselines(bench, train, test) -> None:
    """Compare runs of what is linear, and never saw a mixture; nothing in PCA, and in x itself, is random."""
    varied = np.ptp(train.x[:10_000], axis=0) > 0
    x, new = train.x[:10_000, varied], test.x[:, varied]
    linear = {"PCA": PrincipalComponents, "FastICA": IndependentComponents, "SparseUnmixing": SparseUnmixing}
    seeds = range(bench.options.seed, bench.options.seed + 3)
    for n, directions in ((5, (None,)), (50, (None, 20))):
        for name, method in linear.items():
            runs = [method(n, random_state=seed).fit(x).transform(new) for seed in seeds]
            bench.tell({"part": "baselines", "method": f"{name}, {n} latents", "runs": 3} | agreement(runs, directions))


def clock(bench, train, test) -> None:
    """Ten restarts against three single fits, side by side, three turns; the first one also wakes the machine."""
    settings = SIMPLE | {"max_steps": 2000}
    for turn in range(3):
        seconds = []
        for runs in (10, 1, 1, 1):
            started = time.perf_counter()
            MFCVAE(5, 25, 1, net="arch1", n_restarts=runs, random_state=turn, **settings, **BITS).fit(train.x)
            seconds.append(time.perf_counter() - started)
        name = f"turn {turn}: 10 at once" + ("" if turn else ", cold")
        bench.tell({"part": "time", "method": name, "seconds": seconds[0], "three singles": sum(seconds[1:])})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mnist", help="folder of the MNIST files")
    parser.add_argument("--cifar10", help="folder of the CIFAR-10 files")
    parser.add_argument("--parts", nargs="+", default=["time", "table3", "mnist50", "cifar", "baselines"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", help="folder for results and models")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    bench, started = Bench(options), time.perf_counter()
    load = {"cifar": lambda split: load_cifar10(options.cifar10, split)}
    for part in options.parts:
        train, test = (load.get(part, lambda split: load_mnist(options.mnist, split))(s) for s in ("train", "test"))
        {"table3": table3, "mnist50": mnist50, "cifar": cifar, "time": clock, "baselines": baselines}[part](
            bench, train, test
        )
    frame = pd.DataFrame(bench.rows)
    print(frame.round(3).to_string(index=False))
    print("published (strong, weak):", PUBLISHED)
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    print(f"{time.perf_counter() - started:.0f} s on {where}, seed {options.seed}, torch {torch.__version__}")


if __name__ == "__main__":
    main()
