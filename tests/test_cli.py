"""The command line as a user meets it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import fresh
import identifiable
from identifiable.cli import _number_of_latents, _seconds, app
from identifiable.errors import DataError

FIT = Path(__file__).parent / "fixtures" / "v0.1" / "fit"
RUNS = FIT.parent / "reproduce"


def call(*arguments, cwd=None):
    code = "import sys; from identifiable.cli import main; sys.argv[0] = 'identifiable'; main()"  # as installed
    return fresh.run(code, *arguments, cwd=cwd, COLUMNS="160", NO_COLOR="1", TERM="dumb")


def invoke(*arguments):
    return CliRunner(env={"COLUMNS": "160"}).invoke(app, [str(argument) for argument in arguments])


def test_help_names_every_command():
    result = call("--help")
    assert result.returncode == 0
    for command in ("demo", "fit", "check", "transform", "inverse", "sample", "datasets", "reproduce", "report"):
        assert command in result.stdout
        assert invoke(command, "--help").exit_code == 0
    assert "Usage: identifiable" in invoke().output
    assert all(name in invoke("datasets").stdout for name in ("pdgmm", "make_segments", "sachs", "CC0", "mnist"))


def test_help_does_not_import_torch():
    code = "import sys, identifiable.cli; assert not {'torch', 'pandas', 'sklearn'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_installed_command_prints_its_version():
    command = [str(Path(sys.executable).parent / "identifiable"), "--version"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    module = subprocess.run([sys.executable, "-m", "identifiable", "--version"], capture_output=True, text=True)
    assert printed == module.stdout == f"identifiable {identifiable.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("nonsense",), "nonsense"),
        (("demo", "--seed", "-1"), "--seed"),
        (("fit", "x.csv", "--latents", "0"), "--latents"),
        (("fit", "x.csv", "--time", "soon"), "--time"),
    ],
)
def test_wrong_arguments_exit_with_2_and_are_named(arguments, named):
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert named in result.stderr


def test_an_error_has_a_traceback_only_on_request(tmp_path):
    (tmp_path / "file").write_text("")
    for debug in ((), ("--debug",)):
        result = call(*debug, "report", "file/folder", cwd=tmp_path)
        assert result.returncode == 1
        assert result.stderr.startswith("error: ") != bool(debug)
        assert ("Traceback" in result.stderr) == bool(debug)


def test_numbers_of_latents_and_times():
    assert [_number_of_latents(text) for text in ("7", "auto")] == [7, "auto"]
    assert [_seconds(text) for text in ("90s", "10m", "1.5h", "20")] == [90, 600, 5400, 20]
    for wrong in ("", "m", "-3s", "nan"):
        with pytest.raises(typer.BadParameter):
            _seconds(wrong)


def test_a_fitted_folder_is_checked_used_and_reported(tmp_path):
    folder = tmp_path / "fitted"
    shutil.copytree(FIT, folder)
    assert "stable" in invoke("check", folder).stdout
    for command, arguments, columns in (
        ("sample", ("-n", 7), None),
        ("transform", (tmp_path / "sample.csv",), ["row", "z0", "z1"]),
        ("inverse", (tmp_path / "transform.csv",), None),
    ):
        written = tmp_path / f"{command}.csv"
        result = invoke(command, folder, *arguments, "-o", written)
        assert result.exit_code == 0, result.output
        header, *rows = written.read_text().splitlines()
        assert len(rows) == 7
        assert columns in (None, header.split(","))
    result = invoke("report", folder)
    assert result.exit_code == 0, result.output
    assert "report.html" in result.stdout
    assert "<title>" in (folder / "report.html").read_text()


def test_a_folder_of_runs_is_reported(tmp_path):
    shutil.copytree(RUNS, tmp_path / "run")
    assert invoke("report", tmp_path / "run").exit_code == 0
    assert (tmp_path / "run" / "report.html").is_file()


def test_a_folder_without_results_is_one_clear_error(tmp_path):
    for folders in ((tmp_path,), (RUNS, tmp_path), (FIT, RUNS, "-o", tmp_path / "into")):
        result = invoke("report", *folders)
        assert isinstance(result.exception, DataError)
        assert "no results" in str(result.exception)
    assert not (tmp_path / "into").exists()
