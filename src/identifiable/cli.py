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
    help="Recover the hidden variables behind your data, and check which of them are reliable.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

FitFolder = Annotated[Path, typer.Argument(help="Folder written by 'identifiable fit'.")]
OutputFolder = Annotated[
    Path | None, typer.Option("--output", "-o", help="Folder to write to.", show_default="runs/NAME")
]
OutputFile = Annotated[Path, typer.Option("--output", "-o", help="File to write.")]
Key = Annotated[str | None, typer.Option(help="Name of the array in an .npz file.")]
Device = Annotated[str, typer.Option(help="Where to compute: auto, cpu, cuda or cuda:N.")]
Seed = Annotated[int, typer.Option(help="Seed of the random numbers.", min=0)]


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"identifiable {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the full traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Accept the options before the command; `main` has read --debug already."""


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write to.")] = Path("identifiable-demo"),
    seed: Seed = 0,
    quick: Annotated[bool, typer.Option("--quick", help="Use fewer rows and steps; takes seconds.")] = False,
) -> None:
    """Analyse simulated data and compare the result with the ground truth. Takes about a minute."""
    from identifiable.experiments.demo import run_demo

    run_demo(output, quick=quick, random_state=seed)


@app.command()
def fit(
    data: Annotated[Path, typer.Argument(help=".csv, .tsv, .parquet, .npy or .npz file, or folder of images.")],
    output: OutputFolder = None,
    latents: Annotated[str, typer.Option(help="Number of latents, or auto.")] = "auto",
    u: Annotated[
        list[str] | None, typer.Option(help="Column that says where a row comes from. Can be repeated.")
    ] = None,
    column: Annotated[list[str] | None, typer.Option(help="Use only this column. Can be repeated.")] = None,
    log: Annotated[
        list[str] | None,
        typer.Option(help="auto, none, or a column whose logarithm is used. Can be repeated.", show_default="auto"),
    ] = None,
    common_scale: Annotated[
        bool, typer.Option("--common-scale", help="Keep the relative scales of the columns, as for pixels.")
    ] = False,
    model: Annotated[str, typer.Option(help="Name of a model, or auto to select one.")] = "auto",
    restarts: Annotated[int | None, typer.Option(help="Number of restarts, for models that have them.", min=1)] = None,
    time: Annotated[str, typer.Option(help="Time budget, such as 90s, 10m or 2h.")] = "10m",
    seed: Seed = 0,
    device: Device = "auto",
    key: Key = None,
) -> None:
    """Find the latents of a table and report how reliable each one is. No ground truth is needed."""
    n_latents, seconds = _number_of_latents(latents), _seconds(time)  # before the slow imports

    from identifiable.auto import folder as fits

    found = fits.fit(
        data,
        output if output is not None else Path("runs") / data.stem,
        u=None if not u else u[0] if len(u) == 1 else u,
        columns=column or None,
        key=key,
        log=log[0] if log in (["auto"], ["none"]) else log or None,
        common_scale=common_scale,
        n_latents=n_latents,
        model=model,
        n_restarts=restarts,
        seconds=seconds,
        random_state=seed,
        device=device,
    )
    fits.show(found.report)
    typer.echo(f"Written to {found.folder}: {', '.join(sorted(p.name for p in found.folder.iterdir()))}.")


@app.command()
def check(run: FitFolder) -> None:
    """Show again how reliable each latent of a fit is, and why."""
    from identifiable.auto import folder as fits

    fits.show(fits.open_fit(run).report)


@app.command()
def transform(
    run: FitFolder,
    data: Annotated[Path, typer.Argument(help="Table with the columns of the fitted one, in any order.")],
    output: OutputFile = Path("latents.csv"),
    key: Key = None,
) -> None:
    """Compute the latents of new rows."""
    from identifiable.auto import folder as fits

    _write_table(fits.transform(fits.open_fit(run), data, key=key), output)


@app.command()
def inverse(
    run: FitFolder,
    data: Annotated[Path, typer.Argument(help="Table of latents, with columns z0, z1, ...")],
    output: OutputFile = Path("rows.csv"),
    key: Key = None,
) -> None:
    """Compute the rows of given latents."""
    from identifiable.auto import folder as fits

    _write_table(fits.inverse(fits.open_fit(run), data, key=key), output)


@app.command()
def sample(
    run: FitFolder,
    rows: Annotated[int, typer.Option("--rows", "-n", help="Number of rows.", min=1)] = 1000,
    output: OutputFile = Path("sample.csv"),
    seed: Seed = 0,
) -> None:
    """Sample new rows from the model of a fit."""
    from identifiable.auto import folder as fits

    _write_table(fits.sample(fits.open_fit(run), rows, seed), output)


@app.command()
def datasets() -> None:
    """List the available data sets: content, shape, source and licence."""
    from rich.table import Table

    from identifiable.data import catalogue

    table = Table(
        caption="Load them in Python: from identifiable.data import load_digits. Real data sets are downloaded once, "
        "or read from a folder you name."
    )
    for name in ("name", "content", "rows", "columns", "loader", "licence", "from"):
        table.add_column(name, justify="right" if name in ("rows", "columns") else "left", overflow="fold")
    for s in catalogue():
        rows, columns = (str(v) if v is not None else "any" for v in (s.rows, s.columns))
        table.add_row(s.name, s.what, rows, columns, s.loader, s.licence, s.origin)
    Console().print(table)


@app.command()
def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="Recipe, such as xu2026/table1. Without it, all are listed.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds; default set by the recipe.", min=1)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Run a smaller version: minutes on two cores.")] = False,
    output: OutputFolder = None,
    setting: Annotated[list[str] | None, typer.Option(help="Run only this setting. Can be repeated.")] = None,
    method: Annotated[list[str] | None, typer.Option(help="Run only this method. Can be repeated.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Number of processes; default one per processor.", min=1)] = None,
    cluster: Annotated[str | None, typer.Option(help="Dask scheduler, tcp://HOST:PORT, or local.")] = None,
    device: Device = "auto",
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Repeat the runs that failed.")] = False,
) -> None:
    """Run a published table or figure and compare it with trivial baselines. Repeat the command to continue."""
    from identifiable.experiments import reproduce as sweeps

    if name is None:
        from identifiable.experiments.papers import RECIPES
        from identifiable.experiments.terminal import recipe_table

        Console().print(recipe_table(RECIPES.values()))
        return
    found = sweeps.reproduce(
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
    sweeps.show(found)
    if found.results.failed or found.results.missing:
        raise typer.Exit(1)


@app.command()
def report(
    folder: Annotated[
        list[Path], typer.Argument(help="Folder of a fit or of 'identifiable reproduce'; several are merged.")
    ],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder to merge several folders into.")] = None,
) -> None:
    """Write the page of a fit or of a reproduced table: report.html, which opens offline."""
    from identifiable.auto import folder as fits
    from identifiable.errors import DataError
    from identifiable.experiments import reproduce as sweeps
    from identifiable.experiments.run_folder import is_run_folder

    if len(folder) == 1 and output is None and (folder[0] / fits.ACCOUNT).is_file():
        typer.echo(f"Wrote {_write_fit_page(folder[0])}.")
        return
    for path in folder:
        if not is_run_folder(path):
            raise DataError(
                f"{str(path)!r} holds no results to report. Name one folder that 'identifiable fit' wrote, or one or "
                "more that 'identifiable reproduce' wrote."
            )
    sweeps.show(sweeps.report(folder, output))


def _write_fit_page(folder: Path) -> Path:
    """Write the page of a fit; one with images that an earlier version wrote is kept, as it cannot be made again."""
    from identifiable.auto import folder as fits
    from identifiable.report.fit_page import fit_page
    from identifiable.report.image_page import Pictures

    fitted, page = fits.open_fit(folder), folder / fits.PAGE
    pictures = Pictures.read(folder / fits.PICTURES) if (folder / fits.PICTURES).is_file() else None
    if pictures is not None or fitted.report.data.picture is None or not page.is_file():
        fit_page(fitted.report, folder.resolve().name, pictures).write(page)
    return page


def _write_table(frame: "pd.DataFrame", path: Path) -> None:
    from identifiable import files

    files.require_folder(path)
    files.write_bytes(path, frame.to_csv(index=False, lineterminator="\n").encode())
    typer.echo(f"Wrote {len(frame)} rows and {frame.shape[1]} columns to {path}.")


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
        raise typer.BadParameter(f"Expected a time such as 90s, 10m or 2h. Got {text!r}.", param_hint="--time")
    return found


def _number_of_latents(text: str) -> int | str:
    if text == "auto":
        return text
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"Expected a number from 1, or auto. Got {text!r}.", param_hint="--latents")
    return int(text)


def main() -> None:
    """Run the command line. Exit code: 0 for success, 1 for an error, 2 for wrong arguments."""
    try:
        app()
    except Exception as error:
        if "--debug" in sys.argv[1:]:
            raise
        console = Console(stderr=True)
        console.print("[bold red]error:[/bold red]", end=" ")
        console.print(str(error) or type(error).__name__, highlight=False, markup=False)
        console.print("(use --debug to see the traceback)", style="dim")
        sys.exit(1)
