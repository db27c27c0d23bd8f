"""Identify: the right family where one is right, nothing where nothing is, and every number in the user's units."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from identifiable import DataError, Identify, OutOfTimeError, load, save
from identifiable.auto.identify import Units
from identifiable.auto.search import FAMILIES, Candidate, Search, SearchOptions, pick
from identifiable.data import load_digits, make_gmm, make_pdgmm, make_segments
from identifiable.metrics import mcc
from identifiable.training import Plan, minimise, time_limit

QUIET = {"random_state": 0, "verbose": 0}


@pytest.fixture(scope="module")
def sparse():
    return make_pdgmm(1000, n=3, layers=1, random_state=0)


@pytest.fixture(scope="module")
def found(sparse):
    frame = pd.DataFrame(sparse.x * [1e3, 1, 1e-3], columns=["mass", "length", "charge"])
    return Identify(**QUIET).fit(frame), frame


def test_an_affine_mixture_of_latents_that_rest_is_seen_at_once(sparse, found):
    model, frame = found
    assert type(model.model_).__name__ == "SparseUnmixing"
    assert model.verdict_ == "identified"
    assert model.n_latents_ == 3
    assert {t.verdict for t in model.latent_reports_} == {"stable"}
    assert mcc(sparse.z, model.transform(frame)) > 0.999
    assert not any(t.name in ("PDGMM", "GMMFlow") for t in model.candidates_)
    assert any("3 of 3 latents rest exactly on flats" in reason for reason in model.reasons_)


def test_a_column_of_noise_beside_it_changes_nothing(sparse):
    """A latent that never rests is not found; those that do are."""
    x = np.c_[sparse.x, np.random.default_rng(0).normal(size=1000)]
    model = Identify(**QUIET).fit(x)
    assert type(model.model_).__name__ == "SparseUnmixing"
    found = np.abs(np.corrcoef(sparse.z.T, model.transform(x).T)[:3, 3:]).max(1)
    assert found.min() > 0.999
    assert sorted(t.verdict for t in model.latent_reports_).count("stable") >= 3
    assert any("3 of 4 latents rest exactly on flats" in reason for reason in model.reasons_)


def test_units_are_those_of_the_table(found):
    model, frame = found
    z = model.transform(frame)
    np.testing.assert_allclose(model.inverse_transform(z), frame, rtol=1e-6, atol=1e-9)
    drawn = model.sample(500, random_state=0)
    assert (abs(np.log(drawn.std(0) / frame.to_numpy().std(0))) < 1).all()


def test_what_a_latent_is_tied_to_is_its_effect(found):
    model, frame = found
    z = model.transform(frame)
    low, high = np.quantile(z, [0.1, 0.9], axis=0)
    for i, trust in enumerate(model.latent_reports_):
        assert list(trust.columns) == sorted(trust.columns, key=lambda name: -abs(trust.columns[name]))
        step = np.median(z, axis=0)[None].repeat(2, 0)
        step[:, i] = low[i], high[i]
        effect = np.diff(model.inverse_transform(step), axis=0)[0] / frame.to_numpy().std(0)
        np.testing.assert_allclose([trust.columns[n] for n in frame.columns], effect, rtol=1e-6)


def test_in_a_pipeline_with_names_and_pandas_out(sparse):
    frame = pd.DataFrame(sparse.x, columns=list("abc"))
    steps = make_pipeline(FunctionTransformer(lambda x: 2 * x), Identify(model="SparseUnmixing", **QUIET))
    z = steps.set_output(transform="pandas").fit_transform(frame)
    assert list(z.columns) == ["identify0", "identify1", "identify2"]
    assert mcc(sparse.z, z.to_numpy()) > 0.999


def test_saved_and_loaded_it_is_the_same(found, tmp_path):
    model, frame = found
    save(model, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.transform(frame), model.transform(frame))
    assert repr(again.latent_reports_) == repr(model.latent_reports_)  # NaN is no number to compare
    assert (again.reasons_, again.verdict_, again.expected_mcc_) == (
        model.reasons_,
        model.verdict_,
        model.expected_mcc_,
    )
    assert [t.name for t in again.candidates_] == [t.name for t in model.candidates_]
    assert again.certificate_.level == model.certificate_.level


def test_gaussian_noise_has_nothing_to_identify():
    """Whatever is tried and however little time there is: no model beats a Gaussian, and no latent is called stable."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(800, 3)) @ rng.normal(size=(3, 3))
    model = Identify(seconds=8, **QUIET).fit(x)
    assert model.verdict_ == "nothing identifiable"
    assert {t.verdict for t in model.latent_reports_} == {"unstable"}
    assert model.fit_status_ == "unstable"
    assert any("a Gaussian has no axes" in reason for reason in model.reasons_)


def test_clusters_are_taken_for_clusters():
    s = make_gmm(2000, n=3, components=4, layers=1, random_state=0)
    model = Identify(seconds=8, **QUIET).fit(s.x)
    assert type(model.model_).__name__ == "FactorialUnmixing"
    assert mcc(s.z, model.transform(s.x)) > 0.98


def test_u_is_used_where_it_tells_something():
    s = make_segments(1500, n=2, segments=10, layers=1, random_state=0)
    model = Identify(model="SegmentUnmixing", **QUIET).fit(s.x, s.u)
    assert mcc(s.z, model.transform(s.x)) > 0.95
    assert np.isfinite(model.score(s.x, s.u))
    with pytest.raises(DataError, match="needs the auxiliary variable u"):
        Identify(model="SegmentUnmixing", **QUIET).fit(s.x)
    with pytest.raises(DataError, match="one row per row of X: X has 1500, u has 10"):
        Identify(**QUIET).fit(s.x, s.u[:10])


def test_dependent_columns_and_a_fall_of_the_spectrum_give_the_number(sparse):
    rng = np.random.default_rng(1)
    x = np.c_[sparse.x, sparse.x @ [1.0, 2.0, 3.0]]
    assert Identify(model="SparseUnmixing", **QUIET).fit(x).n_latents_ == 3
    wide = sparse.x @ rng.normal(size=(3, 8)) + 0.01 * rng.normal(size=(1000, 8))
    model = Identify(model="SparseUnmixing", **QUIET).fit(wide)
    assert model.n_latents_ == 3
    assert "fall by a factor of" in model.reasons_[0]
    with pytest.raises(DataError, match="vary in 3 directions only"):
        Identify(4, **QUIET).fit(x)


def test_logarithms_are_taken_and_undone():
    rng = np.random.default_rng(0)
    x = np.exp(rng.normal(size=(400, 2)) * [1.5, 0.1])
    units = Units.of(x, np.array([True, False]))
    y = units.into(x)
    np.testing.assert_allclose(y.std(0), 1)
    np.testing.assert_allclose(units.back(y), x)
    model = Identify(model="FactorialUnmixing", **QUIET).fit(pd.DataFrame(x, columns=["dose", "size"]))
    assert model.units_.logs.tolist() == [True, False]
    with pytest.raises(DataError, match="must be positive here: 'dose'"):
        model.transform(pd.DataFrame([[0.0, 1.0]], columns=["dose", "size"]))


def tried(name, gain, agreement=0.99, *, linear=False):
    return Candidate(name, "", linear, False, gain, 0.01, agreement)


@pytest.mark.parametrize(
    ("pool", "chosen"),
    [
        ([tried("PDGMM", 8.36, 0.989), tried("GMMFlow", 8.68, 0.979)], "PDGMM"),  # close: the simpler
        ([tried("PDGMM", 9.1, 0.992), tried("GMMFlow", 10.1, 0.983)], "PDGMM"),  # densities without a bound
        ([tried("PDGMM", 9.1, 0.95), tried("GMMFlow", 10.1, 0.983)], "GMMFlow"),
        ([tried("PDGMM", 5.0, 0.99), tried("GMMFlow", 10.1, 0.983)], "GMMFlow"),
        ([tried("PDGMM", 1.9, 0.75), tried("GMMFlow", 2.2, 0.97)], "GMMFlow"),
        ([tried("FactorialUnmixing", 2.195, linear=True), tried("GMMFlow", 2.2)], "FactorialUnmixing"),
        ([tried("FactorialUnmixing", 2.15, linear=True), tried("GMMFlow", 2.2)], "GMMFlow"),  # .05 is much, row by row
        ([tried("FactorialUnmixing", 1.2, linear=True), tried("GMMFlow", 2.2)], "GMMFlow"),
        ([tried("FactorialUnmixing", 1.2, linear=True), tried("GMMFlow", 2.2, 0.85)], "GMMFlow"),
        ([tried("FactorialUnmixing", 1.2, linear=True), tried("GMMFlow", 2.2, 0.75)], "FactorialUnmixing"),
        ([tried("PDGMM", 1.2, 0.5), tried("GMMFlow", 2.2, 0.5)], "GMMFlow"),
        # a nonlinear model has to be better than the linear ones, however close to the best
        ([tried("FactorialUnmixing", 2.1, linear=True), tried("PDGMM", 2.0), tried("GMMFlow", 2.2)], "GMMFlow"),
    ],
)
def test_what_decides(pool, chosen):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=500)  # what makes a row likely or not is much the same for all models
    rows -= rows.mean()
    own = {t.name: rng.normal(size=500) for t in pool}
    gains = {t.name: t.gain + rows + 0.1 * (own[t.name] - own[t.name].mean()) for t in pool}
    assert pick(pool, gains).chosen.name == chosen


def test_what_no_row_tells_from_a_gaussian_is_not_taken():
    assert pick([tried("PDGMM", 0.02), tried("GMMFlow", -1.0)], {}) is None


def test_the_time_is_kept():
    net = torch.nn.Module()
    net.w = torch.nn.Parameter(torch.ones(1, 1))

    def loss(batch, step):
        return (net.w - batch[0].mean(1)).square().sum(1)

    x = torch.ones(8, 1)
    with time_limit(0.2), pytest.raises(OutOfTimeError):
        minimise(net, loss, [x], Plan(steps=10**7))
    minimise(net, loss, [x], Plan(steps=3))  # and holds no longer


@pytest.mark.parametrize(
    ("parameter", "value", "words"),
    [
        ("n_latents", 0, "'auto' or an integer >= 1"),
        ("n_latents", "many", "'auto' or an integer >= 1"),
        ("model", "Magic", "'auto' or one of SparseUnmixing"),
        ("n_restarts", 0, "None or an integer >= 1"),
        ("seconds", 0, "a number > 0"),
    ],
)
def test_bad_parameters_get_one_clear_error(sparse, parameter, value, words):
    with pytest.raises(ValueError, match=f"'{parameter}' parameter of Identify must be {words}"):
        Identify(**QUIET | {parameter: value}).fit(sparse.x)


def test_without_a_time_limit_a_fit_is_deterministic():
    x = make_pdgmm(600, n=2, layers=1, random_state=0).x
    one, two = (Identify(seconds=None, model="FactorialUnmixing", **QUIET).fit(x) for _ in range(2))
    np.testing.assert_array_equal(one.transform(x), two.transform(x))
    assert repr(one.latent_reports_) == repr(two.latent_reports_)  # NaN where there is no rival


def test_too_few_rows_are_refused(sparse):
    with pytest.raises(DataError, match="At least 100 rows are needed"):
        Identify(**QUIET).fit(sparse.x[:50])


@pytest.fixture(scope="module")
def wide():
    """Two latents of two clusters each, and fourteen Gaussian directions that fall slowly: no gap in the spectrum."""
    rng = np.random.default_rng(0)
    side = rng.choice([0, 1], size=(1200, 2))
    z = 3.0 * side + np.where(side, 0.2, 0.8) * rng.normal(size=(1200, 2))
    parts = np.c_[z / z.std(0), rng.normal(size=(1200, 14))] * np.r_[1.0, 0.9, 0.7 * 0.85 ** np.arange(14)]
    return z, parts @ np.linalg.qr(rng.normal(size=(16, 16)))[0]


def test_where_stability_breaks_is_the_number_of_latents(wide):
    z, x = wide
    model = Identify(model="FactorialUnmixing", common_scale=True, n_restarts=2, **QUIET).fit(x)
    assert model.n_latents_ in (2, 3)  # one Gaussian direction beside the two can be told from them
    assert "fall nowhere by much" in model.reasons_[0]
    found = np.abs(np.corrcoef(z.T, model.transform(x).T)[:2, 2:])
    assert found.max(1).min() > 0.98
    assert model.inverse_transform(model.transform(x)).shape == x.shape


@pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
def test_the_number_of_latents_is_a_matter_of_the_table_not_of_the_seed(wide, monkeypatch):
    monkeypatch.setattr("identifiable.auto.search.NUMBERS", (2, 4))
    asked = SearchOptions(None, "auto", 2, "cpu", 0)
    searches = [Search(asked, wide[1], None, seed, seconds=600) for seed in (1, 2)]
    numbers = [search._agreements([FAMILIES[1]]) for search in searches]
    assert numbers[0] == numbers[1]
    assert numbers[0][2] > 0.98
    assert list(searches[0].train) != list(searches[1].train)


def test_a_projection_that_other_rows_turn_is_not_stable():
    """Sixteen alike directions: which are the first two is chance, though within any two of them axes are clear."""
    rng = np.random.default_rng(0)
    side = rng.choice([0, 1], size=(1000, 16))
    z = 3.0 * side + np.where(side, 0.2, 0.8) * rng.normal(size=(1000, 16))
    model = Identify(2, model="FactorialUnmixing", common_scale=True, **QUIET).fit(z / z.std(0))
    assert max(t.split_half_agreement for t in model.latent_reports_) < 0.9
    assert [t.verdict for t in model.latent_reports_] == ["unstable"] * 2


def test_what_is_foretold_is_what_another_run_shows():
    x = load_digits().x
    x = x[:, x.std(0) > 0]
    new, rows = np.split(np.random.default_rng(0).permutation(len(x)), [len(x) // 5])
    options = {"model": "FactorialUnmixing", "common_scale": True, "n_restarts": 2, "verbose": 0}
    one, other = (Identify(2, **options, random_state=seed).fit(x[rows]) for seed in (3, 4))
    found = mcc(one.transform(x[new]), other.transform(x[new]))
    assert max(abs(one.expected_mcc_ - found), abs(other.expected_mcc_ - found)) < 0.05


def test_a_projection_is_not_unbent(wide):
    """Of the first directions of many only linear models are tried, and models of all columns."""
    model = Identify(2, common_scale=True, seconds=5, **QUIET).fit(wide[1])
    assert {t.name for t in model.candidates_} == {"SparseUnmixing", "FactorialUnmixing", "VaDE"}
    assert any("a projection, which may fold" in reason for reason in model.reasons_)
    assert model.units_.vectors.shape == (16, 2)


def test_a_model_of_all_columns(wide, monkeypatch):
    vade = replace(FAMILIES[-1], steps=lambda n: {"pretrain_steps": 100, "max_steps": 100})
    monkeypatch.setattr("identifiable.auto.search.FAMILIES", (vade,))
    model = Identify(2, model="VaDE", common_scale=True, n_restarts=1, **QUIET).fit(wide[1])
    assert model.transform(wide[1]).shape == (1200, 2)
    assert 2 < model.units_.vectors.shape[1] <= 16
    assert np.isfinite(model.candidates_[0].gain)


def test_columns_that_few_rows_use_do_not_stop_a_fit(wide):
    """They may be constant in a half of the rows; coordinates along principal directions are not."""
    rare = np.zeros((1200, 1))
    rare[:2] = 1.0
    model = Identify(2, model="FactorialUnmixing", common_scale=True, **QUIET).fit(np.c_[wide[1], rare])
    assert np.isfinite([t.split_half_agreement for t in model.latent_reports_]).all()


def test_columns_that_are_alike_keep_one_scale():
    x = np.random.default_rng(0).normal(size=(500, 3)) * [1, 2, 3]
    none = np.zeros(3, dtype=bool)
    np.testing.assert_allclose(Units.of(x, none).into(x).std(0), 1)
    alike = Units.of(x, none, common_scale=True)
    np.testing.assert_allclose(alike.into(x).std(0) / x.std(0), 1 / alike.scale[0])
    np.testing.assert_allclose(alike.back(alike.into(x)), x)


def searched(pool, rows=400):
    search = object.__new__(Search)
    search.tried, search.seed, search.nothing, search.held, search.n = pool, 0, False, np.arange(rows), 3
    rng = np.random.default_rng(1)
    search.gains = {t.name: t.gain + 0.2 * rng.normal(size=rows) for t in pool}
    search.fits, search.at_rest = {}, 0
    return search


def test_models_that_might_have_been_taken_are_rivals():
    close = searched([tried("IFlow", 2.2), tried("GMMFlow", 2.32)])
    chances = close._chances("IFlow")
    assert sum(chances.values()) == pytest.approx(1)
    assert 0.1 < chances["GMMFlow"] < 0.9
    far = searched([tried("IFlow", 2.2), tried("GMMFlow", 1.0)])
    assert far._chances("IFlow") == {"IFlow": 1.0}


def test_too_few_values_of_u_are_named():
    s = make_segments(1000, n=3, segments=4, layers=1, random_state=0)
    model = Identify(model="SegmentUnmixing", **QUIET).fit(s.x, s.u)
    words = next(reason for reason in model.reasons_ if "different values" in reason)
    assert "u has 4 different values" in words
    assert "needs 7; 4 are enough for 1 latents" in words
