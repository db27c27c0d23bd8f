"""A fit in a folder: what is written is complete; new data are matched by name or refused."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from identifiable import DamagedFileError, DataError, Identify, estimators
from identifiable.auto.families import NAMES
from identifiable.auto.folder import fit, inverse, open_fit, sample, transform
from identifiable.cli import app
from identifiable.data import make_pdgmm
from identifiable.metrics import mcc
from identifiable.training import time_limit

RUNNER = CliRunner()
AFFINE = (estimators.SparseUnmixing, estimators.FactorialUnmixing, estimators.SegmentUnmixing)


@pytest.fixture(scope="module")
def truth():
    return make_pdgmm(1200, n=3, layers=1, random_state=0)


@pytest.fixture(scope="module")
def messy(truth, tmp_path_factory):
    """A table with a text column, dates, 5 % missing values and a duplicated column."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(truth.x * [1, 10, 1000], columns=["weight", "height", "speed"])
    frame.insert(0, "name", [f"cell {i}" for i in range(len(frame))])
    frame["day"] = pd.date_range("2024-01-01", periods=len(frame)).astype(str)
    frame["weight again"] = frame["weight"]
    frame["site"] = rng.choice(["north", "south"], len(frame))
    frame.loc[rng.random(len(frame)) < 0.05, "height"] = np.nan
    path = tmp_path_factory.mktemp("data") / "messy.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def done(messy, tmp_path_factory):
    return fit(messy, tmp_path_factory.mktemp("run") / "messy", verbose=0)


def test_latents_of_usable_rows_are_written_with_the_row_number(messy, truth, done):
    table, latents = pd.read_csv(messy), pd.read_csv(done.folder / "latents.csv")
    assert latents["row"].tolist() == list(range(len(table)))
    usable = table["height"].notna().to_numpy()
    assert latents.loc[usable].notna().all(axis=None)
    assert latents.loc[~usable, ["z0", "z1", "z2"]].isna().all(axis=None)
    assert mcc(truth.z[usable], latents.loc[usable, ["z0", "z1", "z2"]].to_numpy()) > 0.999


def test_certificate_json_has_the_result_and_unused_columns(done):
    account = json.loads((done.folder / "certificate.json").read_text())
    assert account["verdict"] == "identified"
    assert account["model"] == "SparseUnmixing"
    assert [latent["verdict"] for latent in account["latents"]] == ["stable"] * 3
    assert set(account["data"]["left_out"]) == {"name", "day", "weight again", "site"}
    assert account["data"]["columns_used"] == ["weight", "height", "speed"]
    assert str(done.folder.parent) not in json.dumps(account)  # no trace of the machine


def test_open_fit_reads_everything_back(done, messy):
    again = open_fit(done.folder)
    pd.testing.assert_frame_equal(transform(again, messy), pd.read_csv(done.folder / "latents.csv"))
    assert again.report.to_dict() == done.report.to_dict()


def test_inverse_recovers_the_table(done, messy):
    latents = transform(done, messy)
    back, table = inverse(done, latents), pd.read_csv(messy)
    usable = table["height"].notna()
    pd.testing.assert_frame_equal(back[usable], table.loc[usable, ["weight", "height", "speed"]], rtol=1e-6)
    assert sample(done, 5, 0).columns.tolist() == ["weight", "height", "speed"]


def test_loadings_are_the_effects_of_latents_in_units_of_the_table(done, messy):
    table = pd.read_csv(done.folder / "loadings.csv")
    assert table["column"].tolist() == ["weight", "height", "speed"]
    assert table["measured as"].tolist() == ["value"] * 3
    names = ["z0", "z1", "z2"]
    z = pd.DataFrame(np.vstack([np.zeros(3), np.eye(3)]), columns=names)
    moved = inverse(done, z).to_numpy()
    np.testing.assert_allclose(table[names].to_numpy(), (moved[1:] - moved[0]).T)


@pytest.mark.parametrize("model", [name for name in NAMES if getattr(estimators, name) in AFFINE])
def test_loadings_of_every_linear_model_on_fewer_latents_and_logarithms(truth, tmp_path, model):
    rng = np.random.default_rng(0)
    y, u = truth.x[:400], rng.integers(0, 4, 400)
    x = np.column_stack([y * (1 + u[:, None]), y @ [1, 2, 3] + 0.1 * rng.normal(size=400)])
    x[:, 0] = np.exp(3 * x[:, 0] / x[:, 0].std())
    frame = pd.DataFrame(x, columns=list("abcd")).assign(u=u.astype(str))
    made = fit(
        frame,
        tmp_path,
        u="u" if model == "SegmentUnmixing" else None,
        columns=list("abcd"),
        model=model,
        n_latents=2,
        n_restarts=1,
        verbose=0,
    )
    table = pd.read_csv(tmp_path / "loadings.csv").set_index("column")
    logs = (table["measured as"] == "logarithm").to_numpy()
    assert logs.tolist() == made.model.units_.logs.tolist()
    rows = inverse(made, pd.DataFrame([[0, 0], [1, 0], [0, 1]], columns=["z0", "z1"])).to_numpy(copy=True)
    rows[:, logs] = np.log(rows[:, logs])
    np.testing.assert_allclose(table[["z0", "z1"]].to_numpy(), (rows[1:] - rows[0]).T, rtol=1e-6, atol=1e-9)


def test_scales_and_logarithms_reach_the_model(messy, tmp_path, monkeypatch):
    given = []

    def stop(**options):
        given.append(options)
        raise DataError("seen")

    monkeypatch.setattr("identifiable.auto.folder.Identify", stop)
    for more in ([], ["--log", "none", "--common-scale"], ["--log", "auto"]):
        RUNNER.invoke(app, ["fit", str(messy), "-o", str(tmp_path), *more])
    assert [options.get("log") for options in given] == [None, "none", "auto"]
    assert [options.get("common_scale") for options in given] == [None, True, None]
    monkeypatch.undo()
    for names, words in ((["mass"], "No logarithm of 'mass'"), (["weight"], "Only positive columns")):
        with pytest.raises(DataError, match=words):
            fit(messy, tmp_path, log=names, verbose=0)


def test_new_columns_are_matched_by_name(done, messy):
    table = pd.read_csv(messy, nrows=50)
    turned = table[["speed", "site", "height", "weight"]].assign(other=1.0)
    latents = transform(done, table)
    assert list(latents) == ["row", "name", "day", "z0", "z1", "z2"]
    pd.testing.assert_frame_equal(transform(done, turned), latents.drop(columns=["name", "day"]))
    pd.testing.assert_frame_equal(latents[["name", "day"]], table[["name", "day"]])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.rename(columns={"speed": "spede"}), "no column 'speed'. Did you mean 'spede'"),
        (lambda t: t.assign(speed="fast"), "'speed': a category of 1 different value"),
        (lambda t: t[["weight", "height", "speed"]].to_numpy(), "no column 'weight'"),
    ],
)
def test_other_columns_are_refused(done, messy, change, words):
    with pytest.raises(DataError) as error:
        transform(done, change(pd.read_csv(messy)))
    assert words in str(error.value)


def test_graph_names_latents_and_gets_the_time_that_is_left(done, messy, tmp_path, monkeypatch):
    pytest.importorskip("causallearn")
    assert "z0 and z1" in done.report.graph["why"]  # never active together
    given, options = [], {"model": "FactorialUnmixing", "n_restarts": 1, "seconds": 60.0, "verbose": 0}
    monkeypatch.setattr("identifiable.auto.folder.time_limit", lambda s: given.append(s) or time_limit(0))
    assert "time" in fit(messy, tmp_path, **options).report.graph["why"]
    assert 0 < given[0] < 60


def test_every_answer_is_a_complete_folder(messy, tmp_path, monkeypatch):
    seen, answers = [], Identify.answers

    def twice(self, *given):
        for found in answers(self, *given):
            yield found
            seen.append((open_fit(tmp_path).report.verdict, {p.name for p in tmp_path.iterdir()}))
            yield found

    monkeypatch.setattr(Identify, "answers", twice)
    fit(messy, tmp_path, model="FactorialUnmixing", n_restarts=1, verbose=0)
    assert seen == [
        ("reproducible", {"certificate.json", "latents.csv", "loadings.csv", "model.safetensors", "report.html"})
    ]


def test_incomplete_folder_is_refused(done, tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no fit"):
        open_fit(tmp_path)
    for name in ("model.safetensors", "certificate.json"):
        (tmp_path / name).write_bytes((done.folder / name).read_bytes())
    (tmp_path / "certificate.json").write_text("{")
    with pytest.raises(DamagedFileError, match="not valid JSON"):
        open_fit(tmp_path)
    (tmp_path / "certificate.json").write_text('{"verdict": "identified"}')
    with pytest.raises(DamagedFileError, match="no report"):
        open_fit(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(DamagedFileError):
        open_fit(tmp_path)


def test_command_fits_a_table(messy, tmp_path):
    out = tmp_path / "run"
    out.mkdir()
    (out / "history.csv").write_text("of an earlier fit")
    made = RUNNER.invoke(app, ["fit", str(messy), "-o", str(out), "--model", "SparseUnmixing", "--time", "1m"])
    assert made.exit_code == 0, made.output
    assert "All 3 latents are reproducible and identified." in made.output
    assert {p.stem for p in out.iterdir()} == {"certificate", "latents", "loadings", "model", "report"}
    assert "reproducible and identified" in RUNNER.invoke(app, ["check", str(out)]).output


def test_rows_that_are_pictures(tmp_path):
    rng = np.random.default_rng(0)
    side = rng.choice([0, 1], size=(200, 2))
    z = 3.0 * side + np.where(side, 0.2, 0.8) * rng.normal(size=(200, 2))
    pictures = (z @ rng.normal(size=(2, 48))).reshape(200, 4, 4, 3)
    np.save(tmp_path / "p.npy", pictures + 0.01 * rng.normal(size=pictures.shape))
    made = fit(tmp_path / "p.npy", tmp_path / "run", model="FactorialUnmixing", n_restarts=1, verbose=0)
    assert made.report.data.picture == (4, 4, 3)
    assert made.model.n_latents_ == 2
    assert np.ptp(made.model.units_.scale) == 0  # one scale for all pixels
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 4 + 2  # of each latent two, and examples with reconstructions
    assert "effect on" not in RUNNER.invoke(app, ["check", str(tmp_path / "run")]).output
