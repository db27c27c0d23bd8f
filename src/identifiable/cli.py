"""The command line: `identifiable COMMAND`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from identifiable import __version__

if TYPE_CHECKING:
    import pandas as pd

app = typer.Typer(
    name="identifiable",
    help="Latent variables you can trust: recover hidden factors from data, and learn how far they are identified.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"identifiable {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the full traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that come before the command; `main` has read --debug already."""


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write to.")] = Path("identifiable-demo"),
    seed: Annotated[int, typer.Option(help="Another number, another data set.", min=0)] = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rows and steps: seconds, to see that it runs.")] = False,
) -> None:
    """Run the main job on simulated data: fit, compare restarts, compare with the truth. Takes about a minute."""
    from identifiable.experiments.demo import FULL, QUICK, run_demo

    run_demo(output, size=QUICK if quick else FULL, random_state=seed)


_Run = Annotated[Path, typer.Argument(help="Folder that 'identifiable fit' wrote.")]
_Key = Annotated[str | None, typer.Option(help="Which array of an .npz.")]


@app.command()
def fit(
    data: Annotated[Path, typer.Argument(help=".csv, .tsv, .parquet, .npy, .npz, or a folder of images.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder to write to; else runs/NAME.")] = None,
    latents: Annotated[str, typer.Option(help="How many, or auto.")] = "auto",
    u: Annotated[
        list[str] | None, typer.Option(help="Column that says where a row comes from; may be repeated.")
    ] = None,
    column: Annotated[list[str] | None, typer.Option(help="Only this column; may be repeated.")] = None,
    model: Annotated[str, typer.Option(help="A model by name, or auto.")] = "auto",
    restarts: Annotated[int | None, typer.Option(help="Of models that have restarts.", min=1)] = None,
    time: Annotated[str, typer.Option(help="That it may take: 90s, 10m, 2h.")] = "10m",
    seed: Annotated[int, typer.Option(help="Another number, other starts.", min=0)] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    key: _Key = None,
) -> None:
    """Find the best identified latents of a table, and say how far to trust each. No truth is asked for."""
    from identifiable.auto import folder as work

    found = work.fit(
        data,
        output if output is not None else Path("runs") / data.stem,
        u=None if not u else u[0] if len(u) == 1 else u,
        columns=column or None,
        key=key,
        n_latents=latents if latents == "auto" else _whole_number(latents),
        model=model,
        n_restarts=restarts,
        seconds=_seconds(time),
        random_state=seed,
        device=device,
    )
    work.show(found)
    typer.echo(f"Written to {found.folder}: {', '.join(sorted(p.name for p in found.folder.iterdir()))}.")


@app.command()
def check(run: _Run) -> None:
    """Say again how far each latent of a fit is to be trusted, and why."""
    from identifiable.auto import folder as work

    work.show(work.open_fit(run))


@app.command()
def transform(
    run: _Run,
    data: Annotated[Path, typer.Argument(help="Table with the columns the fit was made of, in any order.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")] = Path("latents.csv"),
    key: _Key = None,
) -> None:
    """Write the latents of new rows."""
    from identifiable.auto import folder as work

    _written(work.transform(work.open_fit(run), data, key=key), output)


@app.command()
def inverse(
    run: _Run,
    data: Annotated[Path, typer.Argument(help="Table of latents, with the columns z0, z1, ...")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")] = Path("rows.csv"),
    key: _Key = None,
) -> None:
    """Write the rows that latents stand for."""
    from identifiable.auto import folder as work

    _written(work.inverse(work.open_fit(run), data, key=key), output)


@app.command()
def sample(
    run: _Run,
    rows: Annotated[int, typer.Option("--rows", "-n", help="How many.", min=1)] = 1000,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")] = Path("sample.csv"),
    seed: Annotated[int, typer.Option(help="Another number, other rows.", min=0)] = 0,
) -> None:
    """Draw rows from the model of a fit."""
    from identifiable.auto import folder as work

    _written(work.sample(work.open_fit(run), rows, seed), output)


def _written(frame: "pd.DataFrame", path: Path) -> None:
    from identifiable import files

    files.require_folder(path)
    files.write_bytes(path, frame.to_csv(index=False, lineterminator="\n").encode())
    typer.echo(f"{len(frame)} rows, {frame.shape[1]} columns written to {path}.")


def _seconds(text: str) -> float:
    """Turn 90s, 10m, 2h or a number of seconds into seconds.

    Examples
    --------
    >>> _seconds("90s"), _seconds("10m"), _seconds("1.5h"), _seconds("20")
    (90.0, 600.0, 5400.0, 20.0)
    """
    unit = {"s": 1, "m": 60, "h": 3600}.get(text[-1:], 0)
    try:
        found = float(text[:-1] if unit else text) * (unit or 1)
    except ValueError:
        found = 0.0
    if not found > 0:
        raise typer.BadParameter(f"A time such as 90s, 10m or 2h was expected, got {text!r}.", param_hint="--time")
    return found


def _whole_number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"A number from 1 on, or auto, was expected, got {text!r}.", param_hint="--latents")
    return int(text)


@app.command()
def datasets() -> None:
    """List all sources of data: what each is, its shape, where it comes from, its licence."""
    from rich.table import Table

    from identifiable.data import catalogue

    table = Table(
        caption="Load them in Python: from identifiable.data import load_digits. Real sets are downloaded once, "
        "or read from a folder you name."
    )
    for name in ("name", "what", "rows", "columns", "loader", "licence", "from"):
        table.add_column(name, justify="right" if name in ("rows", "columns") else "left", overflow="fold")
    for s in catalogue():
        rows, columns = (str(v) if v is not None else "any" for v in (s.rows, s.columns))
        table.add_row(s.name, s.what, rows, columns, s.loader, s.licence, s.origin)
    Console().print(table)


@app.command()
def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="A recipe, such as xu2026/table1; without it, all are listed.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds.", min=1)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A smaller version: minutes on two cores.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Run folder; without it, runs/NAME.")] = None,
    setting: Annotated[list[str] | None, typer.Option(help="Only this setting; may be repeated.")] = None,
    method: Annotated[list[str] | None, typer.Option(help="Only this method; may be repeated.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes at once; one per processor if unset.", min=1)] = None,
    cluster: Annotated[str | None, typer.Option(help="Dask scheduler, tcp://HOST:PORT, or local.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run failed cells again.")] = False,
) -> None:
    """Run a published table or figure beside the trivial baselines; the same command again does what is missing."""
    from identifiable.experiments import reproduce as work

    if name is None:
        Console().print(work.listing())
        return
    found = work.reproduce(
        name,
        output,
        seeds=seeds,
        quick=quick,
        settings=setting or (),
        methods=method or (),
        jobs=jobs,
        cluster=cluster,
        device=device,
        retry_failed=retry_failed,
    )
    work.show(found)
    if found.results.failed or found.results.missing:
        raise typer.Exit(1)


@app.command()
def report(
    run: Annotated[list[Path], typer.Argument(help="Run folder; several are merged into the one of -o.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder to merge them into.")] = None,
) -> None:
    """Write the page of a run: report.html opens offline; results.csv has a line per cell."""
    from identifiable.experiments import reproduce as work

    work.show(work.report(run, output))


def main() -> None:
    """Run the command line: exit code 0 when all went well, 1 for an error, 2 for a wrong call."""
    try:
        app()
    except Exception as error:
        if "--debug" in sys.argv[1:]:
            raise
        console = Console(stderr=True)
        console.print("[bold red]error:[/bold red]", end=" ")
        console.print(str(error) or type(error).__name__, highlight=False, markup=False)
        console.print("(--debug shows where it came from)", style="dim")
        sys.exit(1)
