"""The main job in a minute: a table in, latents out, and an account of how far to trust them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from sklearn.base import clone

from identifiable.data.sample import Sample
from identifiable.data.simulate import make_pdgmm
from identifiable.estimators import VAE, BetaTCVAE, BetaVAE, SparseUnmixing
from identifiable.estimators.base import LatentModel
from identifiable.estimators.baselines import baselines
from identifiable.metrics import mcc
from identifiable.persist import save
from identifiable.report.plots import plot_recovery
from identifiable.report.recovery import BASELINES, Recovery, recover

ROWS, LATENTS = 5000, 5


@dataclass(frozen=True)
class Demo:
    """What the demo found and where it wrote it."""

    results: pd.DataFrame
    files: tuple[Path, ...]


def run_demo(folder: str | Path = "identifiable-demo", *, random_state: int = 0, verbose: int = 1) -> Demo:
    """Fit the library's methods on simulated rows, print one table, write latents, model and picture to folder."""
    console = Console(quiet=verbose == 0)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    sample = make_pdgmm(ROWS, n=LATENTS, random_state=random_state)
    assert sample.source is not None
    test = sample.source.sample(ROWS, random_state=random_state + 1)
    console.print(
        Panel(
            f"{ROWS} rows, {LATENTS} columns: a nonlinear mixture of {LATENTS} hidden variables, of which only half "
            "are active in each row.\nThe methods see the columns alone. Each is started several times: where the "
            "starts disagree, no answer can be trusted.",
            title="identifiable demo",
        )
    )
    methods = baselines(LATENTS, random_state=random_state) | _models(random_state)
    fitted: dict[str, LatentModel] = {}
    runs = []
    for name, model in methods.items():
        with console.status(f"fitting {name}"):
            fitted[name] = clone(model)
            runs.append(recover("demo", name, fitted[name], sample, test, random_state))
    console.print(_table(runs, fitted))
    sparse = fitted["SparseUnmixing"]
    assert isinstance(sparse, SparseUnmixing)
    console.print(Panel(str(sparse.certificate_), title="What SparseUnmixing can promise here"))
    affine = make_pdgmm(ROWS, n=LATENTS, layers=1, random_state=random_state)
    exact = SparseUnmixing(LATENTS, random_state=random_state, verbose=verbose).fit(affine.x)
    assert affine.z is not None
    found = f"{exact.n_found_} of {LATENTS} latents seen to rest, MCC {mcc(affine.z, exact.transform(affine.x)):.3f}."
    console.print(Panel(f"{found}\n{exact.certificate_}", title="And on an affine mixture of the same latents"))
    chosen = max(_models(random_state), key=lambda name: fitted[name].stability_.score)
    files = _write(folder, runs, fitted, chosen, test)
    console.print(f"\nWritten to [bold]{folder}[/bold]:")
    for path, what in files.items():
        console.print(f"  {path.name:<18} {what}")
    return Demo(pd.DataFrame([vars(r) for r in runs]).drop(columns="setting"), tuple(files))


def _models(random_state: int) -> dict[str, LatentModel]:
    return {
        "VAE": VAE(LATENTS, random_state=random_state, max_steps=1500),
        "β-VAE": BetaVAE(LATENTS, random_state=random_state, max_steps=1500),
        "β-TC-VAE": BetaTCVAE(LATENTS, random_state=random_state, max_steps=1500, batch_size=128),
    }


def _table(runs: list[Recovery], fitted: dict[str, LatentModel]) -> Table:
    table = Table(
        title="Without the truth: do restarts agree?   With it: was it found?",
        caption="agreement: mean MCC between restarts on held-out rows, stable from 0.94.\n"
        "score: log-likelihood of fresh rows, or a lower bound of it, in nats. "
        "MCC: mean correlation with the true latents on fresh rows, 1 is exact. "
        "A method in red does not beat the trivial baselines above it.",
    )
    table.add_column("method")
    for name in ("restarts", "agreement", "verdict", "score", "MCC", "seconds"):
        table.add_column(name, justify="right")
    best = max(r.mcc for r in runs if r.method in BASELINES)
    for run in runs:
        model = fitted[run.method]
        certain = run.method in BASELINES and model.n_restarts == 1
        style = "" if run.method in BASELINES else "green" if run.mcc > best else "red"
        table.add_row(
            run.method,
            "–" if certain else str(model.n_restarts),
            "–" if certain else f"{run.agreement:.3f}",
            "fixed" if certain else model.fit_status_,
            f"{run.score:.2f}",
            f"{run.mcc:.3f}",
            f"{run.seconds:.1f}",
            style=style,
        )
        if run.method == BASELINES[-1]:
            table.add_section()
    return table


def _write(
    folder: Path, runs: list[Recovery], fitted: dict[str, LatentModel], chosen: str, test: Sample
) -> dict[Path, str]:
    model = fitted[chosen]
    latents = pd.DataFrame(model.transform(test.x), columns=model.get_feature_names_out())
    files = {
        folder / "latents.csv": f"of {len(test)} fresh rows, by {chosen}: its restarts agree most",
        folder / "model.safetensors": "that model; read it back with identifiable.load",
        folder / "history.csv": "its training, step by step",
        folder / "results.csv": "the table above",
        folder / "recovery.png": "true against estimated latents, a panel per method",
    }
    table, net, history, results, picture = files
    latents.to_csv(table, index=False)
    save(model, net)
    model.history_.to_frame().to_csv(history, index=False)
    pd.DataFrame([vars(r) for r in runs]).drop(columns="setting").to_csv(results, index=False)
    assert test.z is not None
    plot_recovery(test.z, {name: np.asarray(m.transform(test.x)) for name, m in fitted.items()}).savefig(picture)
    return files
