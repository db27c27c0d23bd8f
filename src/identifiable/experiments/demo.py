"""The main job in a minute: a table in, latents out, and an account of how far to trust them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from sklearn.base import clone

from identifiable.agreement.stability import THRESHOLDS
from identifiable.data.latents import MaskedSCM
from identifiable.data.sample import Sample
from identifiable.data.simulators import make_pdgmm
from identifiable.errors import join_few
from identifiable.estimators import PDGMM, VAE, SparseUnmixing
from identifiable.estimators.base import LatentModel
from identifiable.estimators.baselines import baselines
from identifiable.metrics import match, mcc
from identifiable.persist import save
from identifiable.report.plots.recovery import plot_activity, plot_recovery
from identifiable.report.recovery import BASELINES, Recovery, recover

LATENTS = 5


@dataclass(frozen=True)
class Size:
    """How much of it: rows, and steps of the two models that are trained."""

    rows: int
    vae_steps: int
    pdgmm_steps: int


FULL = Size(rows=5000, vae_steps=1500, pdgmm_steps=2600)
QUICK = Size(rows=1000, vae_steps=300, pdgmm_steps=200)


@dataclass(frozen=True)
class Demo:
    """What the demo found and where it wrote it."""

    results: pd.DataFrame
    files: tuple[Path, ...]


def run_demo(
    folder: str | Path = "identifiable-demo", *, size: Size = FULL, random_state: int = 0, verbose: int = 1
) -> Demo:
    """Fit PDGMM, a VAE and the baselines on simulated rows; print what they say; write latents, model and pictures.

    What needs no truth is printed first, what needs it afterwards.
    """
    console = Console(quiet=verbose == 0)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    sample = make_pdgmm(size.rows, n=LATENTS, random_state=random_state)
    assert sample.source is not None
    test = sample.source.sample(size.rows, random_state=random_state + 1)
    console.print(
        Panel(
            f"{size.rows} rows, {LATENTS} columns: a nonlinear mixture of {LATENTS} hidden variables, some of which "
            "rest in each row.\nThe methods see the columns alone. Each is started several times: where the starts "
            "disagree, no answer can be trusted.",
            title="identifiable demo",
        )
    )
    vae = VAE(LATENTS, max_steps=size.vae_steps, verbose=0)
    pdgmm = PDGMM(LATENTS, max_steps=size.pdgmm_steps, verbose=0)
    fitted: dict[str, LatentModel] = {}
    runs = []
    for name, model in (baselines(LATENTS, random_state=random_state) | {"VAE": vae, "PDGMM": pdgmm}).items():
        with console.status(f"fitting {name}"):
            fitted[name] = clone(model)
            runs.append(recover("demo", name, fitted[name], sample, test, random_state))
    found, sparse = fitted["PDGMM"], fitted["SparseUnmixing"]
    assert isinstance(found, PDGMM)
    assert isinstance(sparse, SparseUnmixing)
    console.print(_without_truth(runs, fitted))
    console.print(Panel(_findings(found), title="What PDGMM found"))
    console.print(Panel(str(found.certificate_), title="What can be promised for it"))
    console.print()
    console.rule("With the truth in hand")
    console.print(_with_truth(runs))
    console.print(_patterns(found, test))
    console.print(_affine(sparse, size.rows, random_state))
    chosen = max(("VAE", "PDGMM"), key=lambda name: fitted[name].stability_.score)
    files = _write(folder, runs, fitted, chosen, test)
    console.print(f"\nWritten to [bold]{folder}[/bold]:")
    for path, what in files.items():
        console.print(f"  {path.name:<18} {what}")
    return Demo(_frame(runs), tuple(files))


def _without_truth(runs: list[Recovery], fitted: dict[str, LatentModel]) -> Table:
    table = Table(
        title="Without the truth: do restarts agree?",
        caption=f"agreement: mean MCC of restarts on held-out rows, stable from {THRESHOLDS.stable}.\n"
        "score: log-likelihood of fresh rows, or a lower bound of it, in nats.",
    )
    table.add_column("method")
    for name in ("restarts", "agreement", "verdict", "score", "seconds"):
        table.add_column(name, justify="right")
    for run in runs:
        model = fitted[run.method]
        certain = run.method in BASELINES and model.n_restarts == 1
        table.add_row(
            run.method,
            "–" if certain else str(model.n_restarts),
            "–" if certain else f"{run.agreement:.3f}",
            "fixed" if certain else model.fit_status_,
            f"{run.score:.2f}",
            f"{run.seconds:.1f}",
            style={"stable": "green", "unstable": "red"}.get(model.fit_status_) if run.method not in BASELINES else "",
        )
        if run.method == BASELINES[-1]:
            table.add_section()
    return table


def _findings(model: PDGMM) -> str:
    """Say what the fit found, none of it known beforehand."""
    patterns, shares = model.masks_.patterns, model.masks_.frequencies
    most = int(np.searchsorted(np.cumsum(shares), 0.95)) + 1
    blocks = [f"{{{', '.join(map(str, block))}}}" for block in model.blocks_]
    lines = [
        f"patterns of activity   {len(patterns)}, of which {min(most, len(patterns))} cover 95 % of the rows",
        f"active latents a row   {shares @ patterns.sum(1):.2f} of {patterns.shape[1]} on average",
        f"unused latents         {join_few([str(i) for i in model.unused_], most=20) if model.unused_ else 'none'}",
        f"always active together {join_few(blocks, most=20) if blocks else 'none'}",
        "longer fit             "
        + (
            "needed, and kept"
            if model.trained_extended_
            else "not needed: the restarts agree"
            if model.fit_status_ == "stable"
            else "tried, and no better"
        ),
    ]
    return "\n".join(lines)


def _with_truth(runs: list[Recovery]) -> Table:
    table = Table(
        caption="MCC: mean correlation with the true latents on fresh\n"
        "rows; 1 is exact up to order, sign and scale.\n"
        "R2: of the estimates, regressed on the truth.\n"
        "In red: no better than the trivial baselines."
    )
    table.add_column("method")
    for name in ("MCC", "R2", "beats the baselines"):
        table.add_column(name, justify="right")
    best = max(r.mcc for r in runs if r.method in BASELINES)
    for run in runs:
        trivial, beats = run.method in BASELINES, run.mcc > best
        table.add_row(
            run.method,
            f"{run.mcc:.3f}",
            f"{run.r2:.3f}",
            "" if trivial else "yes" if beats else "no",
            style="" if trivial else "green" if beats else "red",
        )
        if run.method == BASELINES[-1]:
            table.add_section()
    return table


def _patterns(model: PDGMM, test: Sample) -> str:
    """Compare the patterns of activity with the true ones."""
    assert test.source is not None
    law = test.source.latents
    assert isinstance(law, MaskedSCM)
    masks, order = law.masks.numpy(), match(np.asarray(test.z), model.transform(test.x)).permutation
    right = (model.active(test.x)[:, order] == masks[test.component]).all(1).mean()
    return (
        f"\nThe truth has {len(masks)} patterns, with {masks.sum(1).mean():.2f} active latents a row on average; PDGMM "
        f"names the right pattern in {100 * right:.0f} % of fresh rows."
    )


def _affine(sparse: SparseUnmixing, rows: int, random_state: int) -> str:
    """Compare with an affine mixture of the same latents, on which no flow is needed."""
    affine = make_pdgmm(rows, n=LATENTS, layers=1, random_state=random_state)
    exact = SparseUnmixing(LATENTS, random_state=random_state, verbose=0).fit(affine.x)
    assert affine.z is not None
    return (
        f"\nSparseUnmixing, made for affine mixtures, sees {sparse.n_found_} of {LATENTS} latents rest here. On an "
        f"affine mixture of the same latents it sees {exact.n_found_} of {LATENTS}, MCC "
        f"{mcc(affine.z, exact.transform(affine.x)):.3f}."
    )


def _frame(runs: list[Recovery]) -> pd.DataFrame:
    return pd.DataFrame([vars(r) for r in runs]).drop(columns="setting")


def _write(
    folder: Path, runs: list[Recovery], fitted: dict[str, LatentModel], chosen: str, test: Sample
) -> dict[Path, str]:
    model, found = fitted[chosen], fitted["PDGMM"]
    assert isinstance(found, PDGMM)
    files = {
        folder / "latents.csv": f"of {len(test)} fresh rows, by {chosen}: its restarts agree most",
        folder / "model.safetensors": "that model; read it back with identifiable.load",
        folder / "history.csv": "its training, step by step",
        folder / "results.csv": "both tables above",
        folder / "recovery.png": "true against estimated latents, a panel per method",
        folder / "activity.png": "which latents are active together, and how often, by PDGMM",
    }
    table, net, history, results, recovery, activity = files
    latents = pd.DataFrame(model.transform(test.x), columns=model.get_feature_names_out())
    latents.to_csv(table, index=False)
    save(model, net)
    model.history_.to_frame().to_csv(history, index=False)
    _frame(runs).to_csv(results, index=False)
    assert test.z is not None
    estimates = {name: np.asarray(m.transform(test.x)) for name, m in fitted.items()}
    plot_recovery(test.z, estimates).savefig(recovery, dpi=150)
    plot_activity(found.masks_).savefig(activity, dpi=150)
    return files
