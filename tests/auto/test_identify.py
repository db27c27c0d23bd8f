"""Identify: the right family if one is right, nothing if none is, and every number in the units of the table."""

import numpy as np
import pandas as pd
import pytest

from identifiable import DataError, Identify, load, save
from identifiable.data import load_digits, make_gmm, make_pdgmm, make_segments
from identifiable.metrics import mcc

QUIET = {"random_state": 0, "verbose": 0}
FACTORIAL = {"model": "FactorialUnmixing", "n_restarts": 2, "seconds": None, **QUIET}


@pytest.fixture(scope="module")
def sparse():
    return make_pdgmm(1000, n=3, layers=1, random_state=0)


@pytest.fixture(scope="module")
def found(sparse):
    frame = pd.DataFrame(sparse.x * [1e3, 1, 1e-3], columns=["mass", "length", "charge"])
    return Identify(**QUIET).fit(frame), frame


def test_affine_mixture_of_intermittently_active_latents_is_identified(sparse, found):
    model, frame = found
    assert type(model.model_).__name__ == "SparseUnmixing"
    assert (model.verdict_, model.fit_status_, model.n_latents_) == ("identified", "stable", 3)
    assert {t.verdict for t in model.latent_reports_} == {"stable"}
    assert {t.inactive_share > 0.2 for t in model.latent_reports_} == {True}
    assert mcc(sparse.z, model.transform(frame)) > 0.999
    assert not any(t.name in ("PDGMM", "GMMFlow") for t in model.candidates_)


def test_inverse_and_samples_are_in_the_units_of_the_table(found):
    model, frame = found
    np.testing.assert_allclose(model.inverse_transform(model.transform(frame)), frame, rtol=1e-6, atol=1e-9)
    drawn = model.sample(500, random_state=0)
    assert (abs(np.log(drawn.std(0) / frame.to_numpy().std(0))) < 1).all()


@pytest.mark.parametrize("columns", [2, 3])
def test_density_in_the_units_of_the_table_integrates_to_one(columns):
    """With a skewed column, whose logarithm is used, and with a third column that follows from the others."""
    z = make_gmm(300, n=2, components=3, layers=1, random_state=0).z
    x = np.c_[np.exp(1.5 * z[:, 0]), 100 * z[:, 1]]
    lift = np.eye(2, columns)
    lift[1, 2:] = 3.0  # the third column is three times the second
    model = Identify(log=["x0"], **FACTORIAL).fit(x @ lift)
    assert model.units_.logs.tolist() == [True, False, False][:columns]
    t, s = np.linspace(-12, 12, 160), np.linspace(-1000, 1000, 160)
    grid = np.stack(np.meshgrid(t, s, indexing="ij"), -1).reshape(-1, 2)
    points = np.c_[np.exp(grid[:, 0]), grid[:, 1]]
    volume = points[:, 0] * np.linalg.norm(lift[1])
    density = np.exp(model.score_samples(points @ lift)) * volume
    assert density.sum() * (t[1] - t[0]) * (s[1] - s[0]) == pytest.approx(1, abs=1e-3)


def test_columns_of_a_report_are_effects_of_the_latent(found):
    model, frame = found
    z = model.transform(frame)
    low, high = np.quantile(z, [0.1, 0.9], axis=0)
    for i, report in enumerate(model.latent_reports_):
        assert list(report.columns) == sorted(report.columns, key=lambda name: -abs(report.columns[name]))
        step = np.median(z, axis=0)[None].repeat(2, 0)
        step[:, i] = low[i], high[i]
        effect = np.diff(model.inverse_transform(step), axis=0)[0] / frame.to_numpy().std(0)
        np.testing.assert_allclose([report.columns[n] for n in frame.columns], effect, rtol=1e-6)


def test_save_and_load_keep_everything(found, tmp_path):
    model, frame = found
    save(model, tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(loaded.transform(frame), model.transform(frame))
    for name in ("latent_reports_", "candidates_", "reasons_", "verdict_", "expected_mcc_"):
        assert repr(getattr(loaded, name)) == repr(getattr(model, name))  # NaN is not equal to itself
    assert loaded.certificate_.level == model.certificate_.level


def test_gaussian_noise_has_nothing_to_identify():
    """Whatever is tried in little time, no model beats a Gaussian, and no latent is called stable."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3)) @ rng.normal(size=(3, 3))
    model = Identify(seconds=8, n_restarts=2, **QUIET).fit(x)
    assert model.verdict_ == "Gaussian"
    assert {t.verdict for t in model.latent_reports_} == {model.fit_status_} == {"unstable"}


def test_u_is_used():
    s = make_segments(1500, n=2, segments=4, layers=1, random_state=0)
    model = Identify(model="SegmentUnmixing", **QUIET).fit(s.x, s.u)
    assert mcc(s.z, model.transform(s.x)) > 0.95
    assert np.isfinite(model.score(s.x, s.u))
    assert any("5 are needed" in reason for reason in model.reasons_)  # u has four values
    with pytest.raises(DataError, match="needs the auxiliary variable u"):
        Identify(model="SegmentUnmixing", **QUIET).fit(s.x)
    with pytest.raises(DataError, match="X has 1500, u has 10"):
        Identify(**QUIET).fit(s.x, s.u[:10])


def test_dependent_columns_and_skewed_columns(sparse):
    dependent = np.c_[sparse.x, sparse.x @ [1.0, 2.0, 3.0]]
    assert Identify(model="SparseUnmixing", **QUIET).fit(dependent).n_latents_ == 3
    with pytest.raises(DataError, match="3 directions"):
        Identify(4, **QUIET).fit(dependent)
    x = np.exp(np.random.default_rng(0).normal(size=(400, 2)) * [1.5, 0.1])
    model = Identify(log=["dose"], **FACTORIAL).fit(pd.DataFrame(x, columns=["dose", "size"]))
    assert model.units_.logs.tolist() == [True, False]
    with pytest.raises(DataError, match="'dose'"):
        model.transform(pd.DataFrame([[0.0, 1.0]], columns=["dose", "size"]))


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        *(("n_latents", 0), ("n_latents", "many"), ("model", "Magic"), ("n_restarts", 0), ("seconds", 0)),
        *(("n_jobs", 0), ("image_shape", 3), ("image_shape", (3, 0)), ("log", "x0"), ("ordered", "no")),
    ],
)
def test_invalid_parameters_are_named(sparse, parameter, value):
    with pytest.raises(ValueError, match=f"'{parameter}' parameter of Identify"):
        Identify(**QUIET | {parameter: value}).fit(sparse.x)


def test_a_time_column_is_not_used_and_halves_are_contiguous():
    rng = np.random.default_rng(0)
    x = np.c_[np.arange(1000) / 100, rng.laplace(size=(1000, 2)) @ rng.normal(size=(2, 2))]
    model = Identify(**QUIET).fit(x)
    assert (model.n_latents_, model.verdict_) == (2, "identified")
    assert any("'x0'" in reason for reason in model.reasons_)
    assert any("contiguous" in reason for reason in model.reasons_)
    np.testing.assert_allclose(model.inverse_transform(model.transform(x))[:, 1:], x[:, 1:], atol=1e-9)


def test_independent_columns_are_no_mixture():
    x = np.random.default_rng(0).laplace(size=(2000, 3))
    model = Identify(**QUIET).fit(x)
    assert model.verdict_ == "not a mixture"
    assert len({latent.column for latent in model.latent_reports_} & {"x0", "x1", "x2"}) >= 2


def test_projection_that_depends_on_the_rows_is_not_stable():
    """Of sixteen equal directions the first two are chance, though the axes within any two of them are clear."""
    rng = np.random.default_rng(0)
    side = rng.choice([0, 1], size=(600, 16))
    z = 3.0 * side + np.where(side, 0.2, 0.8) * rng.normal(size=(600, 16))
    model = Identify(2, common_scale=True, **FACTORIAL).fit(z / z.std(0))
    assert max(t.split_half_agreement for t in model.latent_reports_) < 0.9
    assert [t.verdict for t in model.latent_reports_] == ["unstable"] * 2


def test_expected_mcc_is_that_of_another_run():
    x = load_digits().x[:400]
    new, rows = np.split(np.random.default_rng(0).permutation(400), [80])
    x = x[:, x[rows].std(0) > 0]
    options = FACTORIAL | {"common_scale": True, "n_restarts": 1}
    one, other = (Identify(2, **options | {"random_state": seed}).fit(x[rows]) for seed in (3, 4))
    agreement = mcc(one.transform(x[new]), other.transform(x[new]))
    assert max(abs(one.expected_mcc_ - agreement), abs(other.expected_mcc_ - agreement)) < 0.05


def test_columns_that_few_rows_use_do_not_stop_a_fit():
    """They may be constant in a half of the rows; coordinates along principal directions are not."""
    x = np.c_[np.random.default_rng(0).normal(size=(300, 3)) * [3, 2, 1], np.zeros(300)]
    x[:2, 3] = 1.0
    model = Identify(2, common_scale=True, **FACTORIAL).fit(x)
    assert np.isfinite([t.split_half_agreement for t in model.latent_reports_]).all()
    assert model.units_.vectors.shape == (4, 2)
