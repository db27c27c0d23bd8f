"""What is decided of a table before its latents are looked for."""

import numpy as np
import pytest

from identifiable import DataError
from identifiable.auto.preparation import prepare


@pytest.fixture(scope="module")
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="module")
def positive(rng):
    return rng.exponential(size=(1500, 3)) @ rng.uniform(0.1, 1, (3, 3))


NAMES = ["a", "b", "c"]


def test_logarithms_are_used_only_if_they_describe_the_rows_better(positive):
    assert not prepare(positive, NAMES).units.logs.any()
    found = prepare(np.exp(positive), NAMES)
    assert found.units.logs.all()
    assert any("logarithms" in reason for reason in found.reasons)
    assert not prepare(np.exp(positive), NAMES, log="none").units.logs.any()
    assert prepare(positive, NAMES, log=["b"]).units.logs.tolist() == [False, True, False]


def test_a_column_that_rises_is_a_time(rng):
    x = np.c_[np.arange(500) / 100, rng.normal(size=(500, 2))]
    found = prepare(x, NAMES)
    assert found.ordered
    assert (found.units.vectors[0] == 0).all()
    np.testing.assert_allclose(found.units.back(found.rows(x))[:, 1:], x[:, 1:])
    assert not prepare(x, NAMES, ordered=False).ordered
    assert prepare(x[:, 1:], NAMES[1:], ordered=True).ordered


def test_what_cannot_be_a_mixture_is_refused(rng):
    for x in (rng.normal(size=(200, 1)), np.c_[np.arange(200.0), rng.normal(size=200)]):
        with pytest.raises(DataError, match="One column"):
            prepare(x, NAMES[: x.shape[1]])
    with pytest.raises(DataError, match="usable columns"):
        prepare(rng.normal(size=(200, 3)), NAMES, log=["d"])
    with pytest.raises(DataError, match="positive"):
        prepare(rng.normal(size=(200, 3)), NAMES, log=["a"])


def test_a_surrogate_has_the_values_of_coarse_columns_and_a_gaussian_behind_them(rng):
    x = rng.laplace(size=(2000, 3)) @ rng.normal(size=(3, 3))
    assert prepare(x, NAMES).surrogate(x) is None
    censored = np.maximum(x, np.quantile(x, 0.3, axis=0) * [1, 1, 9])
    found = prepare(censored, NAMES)
    assert found.coarse.tolist() == [True, True, False]
    like = found.units.back(found.surrogate(censored))
    np.testing.assert_allclose(np.sort(like[:, 0]), np.sort(censored[:, 0]))
    np.testing.assert_allclose(np.corrcoef(like.T), np.corrcoef(censored.T), atol=0.07)
    assert abs(np.mean((like[:, 2] / like[:, 2].std()) ** 4) - 3) < 0.3
