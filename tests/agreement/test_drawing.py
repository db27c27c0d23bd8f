"""The figures of `Stability` and `Choice` show every number."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from fake_estimators import Failing, Fixed
from identifiable import Stability, choose, stability


@pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
def test_choice_has_a_bar_per_candidate_and_two_thresholds():
    noise = np.random.default_rng(0).normal(size=(400, 5))
    choice = choose({"bad": Failing(), "a": Fixed(agreement=0.95), "b": Fixed(agreement=0.91)}, noise)
    axes = choice.plot()
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([0.95, 0.91, 0])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b", "bad"]
    assert [line.get_xdata()[0] for line in axes.lines] == [0.90, 0.96]
    given = Figure().subplots()
    assert choice.plot(given) is given


@pytest.mark.parametrize(("runs", "decimals"), [(2, 3), (5, 3), (7, 2)])
def test_stability_shows_a_number_per_pair_and_frames_the_chosen_run(runs, decimals):
    found = stability(np.random.default_rng(0).normal(size=(runs, 100, 2)), random_state=0)
    found = Stability(found.pairwise, found.weak, 1 - found.weak)
    figure = found.plot()
    figure.draw_without_rendering()
    assert figure.get_suptitle().replace("\n", " ") == found.reading
    for axes, matrix in zip(figure.axes, (found.pairwise, found.weak, found.distances), strict=True):
        expected = [f"{matrix[r, s]:.{decimals}f}" for r in range(runs) for s in range(runs) if r != s]
        assert [text.get_text() for text in axes.texts] == expected
        assert axes.patches[0].get_y() == found.chosen - 0.5
        assert [label.get_text() for label in axes.get_yticklabels()] == [str(r) for r in range(runs)]


def test_single_and_many_runs_show_no_numbers():
    z = np.random.default_rng(0).normal(size=(20, 100, 2))
    for found in (Stability.of(z[:1]), Stability.of(z)):
        figure = found.plot()
        assert not figure.axes[0].texts
        assert max(figure.get_size_inches()) < 20
