"""The library in one minute: find the latents of simulated rows, and compare them with the ground truth."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from identifiable.agreement.stability import THRESHOLDS
from identifiable.data.sample import Sample
from identifiable.data.simulators import make_pdgmm
from identifiable.errors import RecoveryWarning, join_few
from identifiable.estimators import PDGMM, SparseUnmixing
from identifiable.estimators.base import LatentModel
from identifiable.experiments.measure import fit, make_data, recovered, sparse_latents
from identifiable.experiments.recipe import BASELINES, DONE, Method, QuickOverrides, Recipe, Record, Setting
from identifiable.experiments.summary import per_run
from identifiable.metrics import match, mcc
from identifiable.persist import save
from identifiable.report.experiment_tables import terminal_table
from identifiable.report.plots.recovery import plot_activity, plot_recovery

LATENTS = 5
TRAINED = ("VAE", "PDGMM")
RECIPE = Recipe(
    name="demo",
    title="recovery of the true latents",
    source="",
    question="Which of the methods recover the latents of simulated rows?",
    experiment="recovery",
    settings=(Setting("new rows", {"law": "pdgmm", "n": LATENTS, "rows": 5000, "new_rows": 5000}),),
    methods=BASELINES | {"VAE": Method("VAE", {"max_steps": 1500}), "PDGMM": Method("PDGMM", {"max_steps": 2600})},
    metrics=("mcc", "r2"),
    seeds=1,
    smaller=QuickOverrides(
        values={"rows": 1000, "new_rows": 1000}, params={"VAE": {"max_steps": 300}, "PDGMM": {"max_steps": 200}}
    ),
)


@dataclass(frozen=True)
class Demo:
    """The results of the demo, one row per method, and the files written."""

    results: pd.DataFrame
    files: tuple[Path, ...]


def run_demo(
    folder: str | Path = "identifiable-demo", *, quick: bool = False, random_state: int = 0, verbose: int = 1
) -> Demo:
    """Fit PDGMM, a VAE and the baselines to simulated rows; print the results; write latents, model and plots.

    Everything that needs no ground truth is printed first, the comparison with it afterwards.
    """
    console = Console(quiet=verbose == 0)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    runs = [replace(run, seed=random_state) for run in RECIPE.runs(quick=quick)]
    sample, new = make_data(runs[0])
    console.print(
        Panel(
            f"{len(sample)} rows, {LATENTS} columns: a nonlinear mixture of {LATENTS} hidden variables, some of which "
            "are inactive in each row.\nThe methods are given the columns only. Each is started several times: if the "
            "restarts disagree, the result is not reliable.",
            title="identifiable demo",
        )
    )
    models: dict[str, Any] = {}
    records = []
    for run in runs:
        quiet = warnings.catch_warnings(action="ignore", category=RecoveryWarning)  # the table contains the agreement
        with console.status(f"fitting {run.method}"), quiet:
            fitted = fit(run, sample, "auto")
        models[run.method] = fitted.model
        records.append(Record(run, DONE, fitted.seconds, recovered(run, fitted, new).metrics))
    pdgmm, sparse = models["PDGMM"], models["SparseUnmixing"]
    console.print(_reliability(records, models))
    console.print(Panel(_findings(pdgmm), title="PDGMM: what it found"))
    console.print(Panel(str(pdgmm.certificate_), title="PDGMM: guarantees"))
    console.print()
    console.rule("Comparison with the ground truth")
    caption = (
        "MCC: mean correlation with the true latents on new rows; 1 is exact up to order, sign and scale.\n"
        "R²: of the estimates, regressed on the true latents."
    )
    console.print(terminal_table(RECIPE, records, caption))
    console.print(_pattern_accuracy(pdgmm, new))
    console.print(_affine_mixture(sparse, len(sample), random_state))
    selected = max(TRAINED, key=lambda name: models[name].stability_.score)
    results = per_run(records)
    files = _write(folder, results, models, selected, new)
    console.print(f"\nWritten to [bold]{folder}[/bold]:")
    for path, content in files.items():
        console.print(f"  {path.name:<18} {content}")
    return Demo(results, tuple(files))


def _reliability(records: list[Record], models: Mapping[str, LatentModel]) -> Table:
    table = Table(
        title="Without the ground truth: do restarts agree?",
        caption=f"agreement: mean MCC of restarts on held-out rows, stable from {THRESHOLDS.stable}.\n"
        "score: log-likelihood of new rows, or a lower bound of it, in nats per row.",
    )
    table.add_column("method")
    for name in ("restarts", "agreement", "verdict", "score", "seconds"):
        table.add_column(name, justify="right")
    for record in records:
        name, model = record.run.method, models[record.run.method]
        restarts = ("–", "–", "fixed")
        if name in TRAINED or model.n_restarts > 1:
            restarts = (str(model.n_restarts), f"{model.stability_.score:.3f}", model.fit_status_)
        style = {"stable": "green", "unstable": "red"}.get(model.fit_status_, "") if name in TRAINED else ""
        table.add_row(name, *restarts, f"{record.metrics['score']:.2f}", f"{record.seconds:.1f}", style=style)
    return table


def _findings(model: PDGMM) -> str:
    """Describe what the fit found without the ground truth."""
    patterns, shares = model.masks_.patterns, model.masks_.frequencies
    frequent = min(int(np.searchsorted(np.cumsum(shares), 0.95)) + 1, len(patterns))
    blocks = [f"{{{', '.join(map(str, block))}}}" for block in model.blocks_]
    longer = "not needed: the restarts agree" if model.fit_status_ == "stable" else "tried, but not better"
    lines = {
        "patterns of activity": f"{len(patterns)}, of which {frequent} cover 95 % of the rows",
        "active latents per row": f"{shares @ patterns.sum(1):.2f} of {patterns.shape[1]} on average",
        "unused latents": join_few([str(i) for i in model.unused_], most=20) or "none",
        "always active together": join_few(blocks, most=20) or "none",
        "longer fit": "needed, and kept" if model.trained_extended_ else longer,
    }
    return "\n".join(f"{name:<23}{finding}" for name, finding in lines.items())


def _pattern_accuracy(model: PDGMM, new: Sample) -> str:
    """Compare the patterns of activity with the true ones."""
    latents = sparse_latents(new)
    masks, order = latents.masks.numpy(), match(np.asarray(new.z), model.transform(new.x)).permutation
    correct = (model.active(new.x)[:, order] == masks[new.component]).all(1).mean()
    return (
        f"\nThere are {len(masks)} true patterns, with {masks.sum(1).mean():.2f} active latents per row on average. "
        f"PDGMM finds the correct pattern in {100 * correct:.0f} % of new rows."
    )


def _affine_mixture(sparse: SparseUnmixing, rows: int, random_state: int) -> str:
    """Compare with an affine mixture of the same latents, for which a linear method is sufficient."""
    affine = make_pdgmm(rows, n=LATENTS, layers=1, random_state=random_state)
    exact = SparseUnmixing(LATENTS, random_state=random_state, verbose=0).fit(affine.x)
    assert affine.z is not None
    return (
        f"\nSparseUnmixing, made for affine mixtures, verified {sparse.n_found_} of {LATENTS} latents here. On an "
        f"affine mixture of the same latents it verifies {exact.n_found_} of {LATENTS}, with MCC "
        f"{mcc(affine.z, exact.transform(affine.x)):.3f}."
    )


def _write(
    folder: Path, results: pd.DataFrame, models: Mapping[str, Any], selected: str, new: Sample
) -> dict[Path, str]:
    """Write the files; return the content of each."""
    model, pdgmm = models[selected], models["PDGMM"]
    files = {
        folder / "latents.csv": f"latents of {len(new)} new rows by {selected}, whose restarts agree best",
        folder / "model.safetensors": "that model; read it with identifiable.load",
        folder / "history.csv": "its training, step by step",
        folder / "results.csv": "the numbers of both tables",
        folder / "recovery.png": "true against estimated latents, one panel per method",
        folder / "activity.png": "which latents are active together, and how often, by PDGMM",
    }
    table, net, history, numbers, recovery, activity = files
    pd.DataFrame(model.transform(new.x), columns=model.get_feature_names_out()).to_csv(table, index=False)
    save(model, net)
    model.history_.to_frame().to_csv(history, index=False)
    results.to_csv(numbers, index=False)
    assert new.z is not None
    estimates = {name: np.asarray(m.transform(new.x)) for name, m in models.items()}
    plot_recovery(new.z, estimates).savefig(recovery, dpi=150)
    plot_activity(pdgmm.masks_).savefig(activity, dpi=150)
    return files
