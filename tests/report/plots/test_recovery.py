import numpy as np
import pytest

from identifiable.estimators.sparse_unmixing import Masks
from identifiable.report.plots.recovery import plot_activity, plot_recovery

MASKS = Masks(np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], dtype=bool), np.array([0.5, 0.3, 0.2]))


def test_matched_latents_are_on_the_diagonal():
    z = np.random.default_rng(0).normal(size=(200, 3))
    figure = plot_recovery(z, {"exact": z[:, ::-1], "noise": np.random.default_rng(1).normal(size=(200, 3))})
    exact, noise, bar = figure.axes
    assert exact.get_title() == "exact\nMCC 1.000"
    np.testing.assert_allclose(np.diag(exact.images[0].get_array()), 1)
    assert [tick.get_text() for tick in exact.get_xticklabels()] == ["2", "1", "0"]
    assert noise.images[0].get_array().max() < 0.5
    assert bar.get_ylabel() == "|correlation|"


def test_a_true_latent_without_partner_has_an_empty_column():
    z = np.random.default_rng(0).normal(size=(200, 3))
    axis = plot_recovery(z, {"narrow": z[:, [2, 0]]}).axes[0]
    drawn = np.ma.filled(axis.images[0].get_array(), np.nan)
    np.testing.assert_allclose(np.diag(drawn), [1, np.nan, 1])
    assert np.isnan(drawn[:, 1]).all()
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["1", "–", "0"]


def test_activity_shows_patterns_and_frequencies():
    cells, bars, latents = plot_activity(MASKS).axes
    np.testing.assert_array_equal(cells.collections[0].get_array(), MASKS.patterns)
    np.testing.assert_allclose([bar.get_width() for bar in bars.patches], [50, 30, 20])
    np.testing.assert_allclose([bar.get_height() for bar in latents.patches], [70, 80, 50])
    assert [text.get_text().strip() for text in bars.texts] == ["50.0", "30.0", "20.0"]
    assert cells.get_ylim() == bars.get_ylim() == (3, 0)  # the most frequent on top


@pytest.mark.parametrize(("most", "title"), [(2, "The 2 most frequent of 3 patterns: 80 % of rows"), (3, "3 patterns")])
def test_activity_counts_what_it_leaves_out(most, title):
    figure = plot_activity(MASKS, most=most)
    assert figure.get_suptitle().startswith(title)
    assert len(figure.axes[1].patches) == most
    np.testing.assert_allclose([bar.get_height() for bar in figure.axes[2].patches], [70, 80, 50])  # of all patterns
