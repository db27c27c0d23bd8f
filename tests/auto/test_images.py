"""Keypoints of images: selected if they explain images and are found again, and never called identified."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from typer.testing import CliRunner

from fake_keypoints import SIDE, KnownEncoder, dots
from identifiable import DataError, FitFailedError, Identify, Level, OutOfTimeError
from identifiable.auto import folder as fits
from identifiable.auto import images
from identifiable.auto.confirm import Confirmation
from identifiable.auto.images import (
    COMPONENT_RATIO,
    MOST_UNEXPLAINED,
    Reconstruction,
    explained_by_keypoints,
    search_images,
)
from identifiable.auto.task import SearchOptions
from identifiable.auto.verdict import LATE
from identifiable.cli import app
from identifiable.data import read_table
from identifiable.training import time_limit

OPTIONS = SearchOptions(None, "auto", None, "cpu", 0, 0)
SHAPE = (SIDE, SIDE)


@pytest.fixture
def known(monkeypatch):
    """Let all fits use the known encoder; a test may change its class attributes."""
    made = type("Made", (KnownEncoder,), {})

    def encoder(self, **options):
        return made(self.n_latents, image_shape=self.image_shape, random_state=self.random_state)

    monkeypatch.setattr(images.ImageModel, "encoder", encoder)
    return made


@pytest.fixture(scope="module")
def sample():
    z, x = dots(300, 0)
    return z, x.reshape(len(x), -1)


def test_a_moving_dot_needs_many_principal_components(sample):
    _, x = sample
    found = explained_by_keypoints(KnownEncoder(2), x[:200], x[200:])
    assert found.n == 2
    assert found.unexplained < 0.05
    assert found.components > 20
    assert found.good


def test_principal_components_need_as_many_as_themselves():
    """A code of n principal components is no better than n principal components."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 8)) * 0.8 ** np.arange(8) @ rng.normal(size=(8, 50))
    mean, axes = x[:300].mean(0), np.linalg.svd(x[:300] - x[:300].mean(0), full_matrices=False)[2][:4].T

    class Linear:
        def transform(self, X):
            return (X - mean) @ axes

        def inverse_transform(self, Z):
            return Z @ axes.T + mean

    found = explained_by_keypoints(Linear(), x[:300], x[300:])
    assert (found.n, found.components) in {(4, 4), (4, 5)}  # equal up to rounding
    assert not found.good
    left = 1 - np.square((x[300:] - mean) @ axes).sum() / np.square(x[300:] - mean).sum()
    assert found.unexplained == pytest.approx(left)


def test_the_rule_has_two_thresholds():
    good = Reconstruction(4, 0.1, 100, 200)
    assert good.good
    assert not replace(good, components=int(4 * COMPONENT_RATIO) - 1).good
    assert not replace(good, unexplained=MOST_UNEXPLAINED + 0.01).good


def test_keypoints_are_selected_and_reproducible_not_identified(known, sample):
    z, x = sample
    model = Identify(image_shape=SHAPE, random_state=0, n_jobs=1, verbose=0).fit(x)
    assert (type(model.model_).__name__, model.verdict_, model.n_latents_) == ("ImageUnmixing", "reproducible", 2)
    assert [report.verdict for report in model.latent_reports_] == ["stable", "stable"]
    assert [report.meaning for report in model.latent_reports_] == ["x of thing 1", "y of thing 1"]
    assert [report.inactive_share for report in model.latent_reports_] == [0, 0]
    found = np.corrcoef(z.T, model.transform(x).T)[:2, 2:]
    assert np.diag(found).min() > 0.99
    np.testing.assert_allclose(model.inverse_transform(model.transform(x)), x, atol=0.25)
    assert model.certificate_.level == model.certificate_.if_undecided_hold == Level.NONE
    assert "architecture" in str(model.certificate_)
    assert "principal components" in model.reasons_[0]


def test_keypoints_that_depend_on_the_seed_are_not_selected(known, sample):
    known.turn = 0.5
    found, candidate = search_images(sample[1], SHAPE, OPTIONS)
    assert found is None
    assert candidate.note == images.NOT_REPRODUCIBLE
    asked, _ = search_images(sample[1], SHAPE, replace(OPTIONS, model="ImageUnmixing"))
    assert asked.verdict.fit == "not reproducible"
    assert {latent.verdict for latent in asked.verdict.latents} == {"unstable"}


def test_bad_reconstructions_leave_pixels_to_other_models(known, sample):
    known.error = 0.5
    model = next(Identify(2, image_shape=SHAPE, random_state=0, n_jobs=1, verbose=0).answers(sample[1][:120]))
    assert type(model.model_).__name__ != "ImageUnmixing"
    assert model.candidates_[-1].name == "ImageUnmixing"
    assert "principal component" in model.candidates_[-1].note
    assert "not selected" in model.reasons_[0]


def test_what_was_not_tried_is_noted(known, sample):
    assert "odd" in search_images(sample[1], SHAPE, replace(OPTIONS, n=3))[1].note
    with time_limit(0):
        assert search_images(sample[1], SHAPE, OPTIONS)[1].note == LATE
        with pytest.raises(OutOfTimeError):
            search_images(sample[1], SHAPE, replace(OPTIONS, model="ImageUnmixing"))
    with pytest.raises(FitFailedError, match="odd"):
        search_images(sample[1], SHAPE, replace(OPTIONS, n=3, model="ImageUnmixing"))


def test_unconfirmed_keypoints_are_not_called_stable(known, sample, monkeypatch):
    nothing = np.full(2, np.nan)
    monkeypatch.setattr(images, "confirm", lambda task, trial: Confirmation(trial.fitted, nothing, nothing, "late"))
    found, candidate = search_images(sample[1], SHAPE, OPTIONS)
    assert (found.verdict.fit, candidate.note) == ("not enough time", "")
    assert {latent.verdict for latent in found.verdict.latents} == {"doubtful"}
    assert "late" in found.reasons


def test_a_shape_that_does_not_fit_is_refused(sample):
    with pytest.raises(DataError, match="144 columns"):
        Identify(image_shape=(SIDE, SIDE, 3), verbose=0).fit(sample[1])


def test_u_keeps_keypoints_out(known, sample):
    x, u = sample[1][:120], np.arange(120) % 3
    model = next(Identify(2, image_shape=SHAPE, random_state=0, n_jobs=1, verbose=0).answers(x, u))
    assert "ImageUnmixing" not in [candidate.name for candidate in model.candidates_]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Return a folder of images, and a fit to them with a keypoint encoder that is hardly trained."""
    source = tmp_path_factory.mktemp("data") / "dots"
    source.mkdir()
    for i, image in enumerate(dots(120, 2)[1]):
        Image.fromarray(np.round(255 * image).astype(np.uint8)).save(source / f"{i:03}.png")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(images, "STEPS", 4)
        options = {"model": "ImageUnmixing", "n_latents": 2, "n_jobs": 1, "seconds": None, "verbose": 0}
        return source, fits.fit(source, source.parent / "run", **options)


def test_a_trained_fit_is_saved_and_loaded(done):
    """The encoder and the unmixing are estimators within an estimator within an estimator."""
    source, made = done
    loaded, table = fits.open_fit(made.folder).model, read_table(source)
    x = pd.DataFrame(table.x, columns=table.columns)
    assert type(made.model.model_).__name__ == "ImageUnmixing"
    z = made.model.transform(x)
    np.testing.assert_array_equal(loaded.transform(x), z)
    np.testing.assert_array_equal(loaded.inverse_transform(z), made.model.inverse_transform(z))
    assert loaded.units_ == made.model.units_
    assert [report.meaning for report in loaded.latent_reports_] == ["x of thing 1", "y of thing 1"]


def test_a_folder_of_images_through_all_commands(done, tmp_path):
    source, made = done
    page = made.folder / fits.PAGE
    assert made.report.data.picture == (SIDE, SIDE)
    assert "Thing 1" in page.read_text()
    assert page.read_text().count("data:image/png;base64,") == 4  # examples, reconstructions, x and y
    page.unlink()
    runner = CliRunner()
    assert runner.invoke(app, ["report", str(made.folder)]).exit_code == 0
    assert page.read_text().count("data:image/png;base64,") == 4
    assert "x of thing 1" in runner.invoke(app, ["check", str(made.folder)]).output
    latents, rows = tmp_path / "z.csv", tmp_path / "x.csv"
    assert runner.invoke(app, ["transform", str(made.folder), str(source), "-o", str(latents)]).exit_code == 0
    pd.testing.assert_frame_equal(pd.read_csv(latents), pd.read_csv(made.folder / fits.LATENTS))
    assert runner.invoke(app, ["inverse", str(made.folder), str(latents), "-o", str(rows)]).exit_code == 0
    assert pd.read_csv(rows).shape == (120, SIDE * SIDE)
    refused = runner.invoke(app, ["sample", str(made.folder)])
    assert refused.exit_code != 0
    assert "no samples" in str(refused.exception)
