"""The trivial baselines, and plots of recovery."""

import numpy as np

from identifiable.data import make_pdgmm
from identifiable.estimators import IndependentComponents, PrincipalComponents, baselines
from identifiable.estimators.sparse_unmixing import Masks
from identifiable.metrics import mcc
from identifiable.report.plots.recovery import plot_activity, plot_recovery


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


def test_picture_of_a_recovery():
    z = np.random.default_rng(0).normal(size=(200, 3))
    figure = plot_recovery(z, {"exact": z[:, ::-1], "noise": np.random.default_rng(1).normal(size=(200, 3))})
    exact, noise, bar = figure.axes
    assert exact.get_title() == "exact\nMCC 1.000"
    np.testing.assert_allclose(np.diag(exact.images[0].get_array()), 1)
    assert noise.images[0].get_array().max() < 0.5
    assert bar.get_ylabel() == "|correlation|"


def test_picture_of_activity_shows_patterns_and_frequencies():
    masks = Masks(np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], dtype=bool), np.array([0.5, 0.3, 0.2]))
    cells, bars, latents = plot_activity(masks).axes
    np.testing.assert_array_equal(cells.collections[0].get_array(), masks.patterns)
    np.testing.assert_allclose([bar.get_width() for bar in bars.patches], [50, 30, 20])
    np.testing.assert_allclose([bar.get_height() for bar in latents.patches], [70, 80, 50])
    assert [text.get_text().strip() for text in bars.texts] == ["50.0", "30.0", "20.0"]
    assert cells.get_ylim() == bars.get_ylim() == (3, 0)  # the most frequent on top


def test_picture_of_activity_says_what_it_leaves_out():
    masks = Masks(np.eye(3, dtype=bool), np.array([0.5, 0.3, 0.2]))
    figure = plot_activity(masks, most=2)
    assert figure.get_suptitle() == "The 2 most frequent of 3 patterns: 80 % of rows"
    assert len(figure.axes[1].patches) == 2
    np.testing.assert_allclose([bar.get_height() for bar in figure.axes[2].patches], [50, 30, 20])
