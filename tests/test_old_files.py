"""Folders of a fit and of a reproduction that version 0.1 wrote are still read."""

from pathlib import Path

OLD = Path(__file__).parent / "fixtures" / "v0.1"


def test_an_old_fit_folder_opens():
    from identifiable.auto.folder import open_fit
    from identifiable.report.fit_page import fit_page

    fitted = open_fit(OLD / "fit")
    assert (fitted.model.verdict_, fitted.report.verdict) == ("identified", "reproducible")  # not by a theorem
    reports = fitted.model.latent_reports_
    assert [one.seed_agreement for one in fitted.report.latents] == [one.seed_agreement for one in reports]
    assert fitted.report.certificate["if_undecided_hold"] == str(fitted.model.certificate_.if_undecided_hold)
    assert "<title>" in fit_page(fitted.report, "old").html()
    assert fitted.model.transform(fitted.model.sample(5, random_state=0)).shape == (5, 2)


def test_an_old_run_folder_is_reported(tmp_path):
    from shutil import copytree

    from typer.testing import CliRunner

    from identifiable.cli import app

    copytree(OLD / "reproduce", tmp_path / "run")
    result = CliRunner().invoke(app, ["report", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "run" / "report.html").is_file()
