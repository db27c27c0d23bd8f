"""The command line: `identifiable COMMAND`."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from identifiable import __version__

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
    from identifiable.demo import FULL, QUICK, run_demo

    run_demo(output, size=QUICK if quick else FULL, random_state=seed)


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
    from identifiable import reproduce as work

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
    from identifiable import reproduce as work

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
