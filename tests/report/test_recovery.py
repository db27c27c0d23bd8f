"""The recovery table: baselines always, truth only after the fit, mean and sd over seeds, an honest verdict."""

import numpy as np
import pytest

from identifiable.data import make_pdgmm, make_pinwheel, make_segments
from identifiable.estimators import IndependentComponents, PrincipalComponents, baselines
from identifiable.metrics import mcc
from identifiable.report.recovery import recovery_table

pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")

SETTINGS = {
    "n = 3": lambda seed: make_pdgmm(2000, n=3, layers=1, random_state=seed),
    "segments": lambda seed: make_segments(2000, n=2, random_state=seed),
}


class Oracle(PrincipalComponents):
    """Knows the truth of the setting: beats every baseline."""

    def transform(self, X):
        import torch

        return self.source.mixing.inverse(torch.as_tensor(np.asarray(X))).numpy()


@pytest.fixture(scope="module")
def table():
    return recovery_table(
        SETTINGS, {"another PCA": PrincipalComponents()}, seeds=[0, 1, 2], published={"n = 3": 0.9}, verbose=0
    )


def test_rows_are_settings_times_methods_with_the_baselines(table):
    frame = table.to_frame()
    assert frame.groupby("setting", sort=False).method.apply(list).to_dict() == {
        name: ["raw x", "PCA", "FastICA", "SparseUnmixing", "another PCA"] for name in SETTINGS
    }
    assert (frame.seeds == 3).all()
    assert len(table.runs) == 2 * 5 * 3


def test_mean_sd_and_worst_are_over_the_seeds(table):
    values = [r.mcc for r in table.runs if (r.setting, r.method) == ("n = 3", "FastICA")]
    row = table.to_frame().set_index(["setting", "method"]).loc[("n = 3", "FastICA")]
    assert row.mcc == pytest.approx(np.mean(values))
    assert row.mcc_sd == pytest.approx(np.std(values, ddof=1))
    assert row.mcc_worst == pytest.approx(min(values))


def test_a_method_that_does_not_beat_the_baselines_is_reported_so(table):
    frame = table.to_frame().set_index(["setting", "method"])
    assert not frame.beats_baselines["n = 3", "another PCA"]
    assert frame.beats_baselines.isna()["n = 3", "PCA"]  # a baseline is not compared with itself


def test_a_method_that_knows_the_truth_beats_them():
    def make(seed):
        sample = make_pdgmm(2000, n=4, random_state=seed)
        Oracle.source = sample.source
        return sample

    frame = recovery_table({"n = 4": make}, {"oracle": Oracle()}, seeds=[0, 1], verbose=0).to_frame()
    row = frame.set_index("method").loc["oracle"]
    assert row.beats_baselines
    assert row.mcc == pytest.approx(1)
    assert row.r2 == pytest.approx(1)


def test_published_values_stand_beside(table):
    published = table.to_frame().groupby("setting").published.first()
    assert published["n = 3"] == 0.9
    assert np.isnan(published["segments"])


def test_evaluation_rows_are_fresh():
    """No row that a method was fitted on is used to judge it."""
    seen, judged = [], []

    class Spy(PrincipalComponents):
        def fit(self, X, y=None):
            seen.append(X)
            return super().fit(X)

        def transform(self, X):
            judged.append(X)
            return super().transform(X)

    recovery_table(
        {"many": lambda seed: make_pdgmm(5000, n=3, random_state=seed)}, {"spy": Spy()}, seeds=[0], verbose=0
    )
    assert not set(seen[0][:, 0]) & set(judged[0][:, 0])


def test_it_prints(table):
    text = str(table)
    assert "mean ± sd over 3 draws" in text
    assert text.count("FastICA") == 2
    assert "0.900" in text


def test_data_without_latents_are_refused():
    with pytest.raises(ValueError, match="'flat' has no known latents"):
        recovery_table({"flat": lambda seed: make_pinwheel(100)}, {}, seeds=[0], verbose=0)


def test_baselines_are_what_they_say():
    sample = make_pdgmm(5000, n=4, random_state=0)
    fitted = {name: model.fit(sample.x) for name, model in baselines(4).items()}
    assert list(fitted) == ["raw x", "PCA", "FastICA", "SparseUnmixing"]
    np.testing.assert_allclose(fitted["raw x"].transform(sample.x), sample.x - sample.x.mean(0))
    for model in fitted.values():
        np.testing.assert_allclose(model.inverse_transform(model.transform(sample.x)), sample.x, atol=1e-8)


def test_gaussian_score_of_the_baselines_is_the_likelihood():
    from scipy.stats import multivariate_normal

    x = np.random.default_rng(0).normal(size=(500, 3)) @ np.random.default_rng(1).normal(size=(3, 3))
    model = PrincipalComponents().fit(x)
    exact = multivariate_normal(x.mean(0), np.cov(x.T, ddof=0)).logpdf(x)
    np.testing.assert_allclose(model.score_samples(x), exact)
    drawn = model.sample(100_000, random_state=0)
    np.testing.assert_allclose(np.cov(drawn.T), np.cov(x.T, ddof=0), atol=0.1)


def test_fastica_recovers_independent_sources_and_its_restarts_agree():
    rng = np.random.default_rng(0)
    z = rng.laplace(size=(5000, 3))
    x = z @ rng.normal(size=(3, 3))
    model = IndependentComponents(random_state=0).fit(x)
    assert mcc(z, model.transform(x)) > 0.99
    assert model.fit_status_ == "stable"
