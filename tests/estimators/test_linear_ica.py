"""Linear ICA: exact on independent latents, an honest density, and a certificate that is silent where it must be."""

import numpy as np
import pytest

from identifiable import Level, LinearICA, RecoveryWarning, load, save
from identifiable.metrics import mcc

KINDS = {
    "laplace": lambda rng, size: rng.laplace(size=size),
    "uniform": lambda rng, size: rng.uniform(size=size),
    "exponential": lambda rng, size: rng.exponential(size=size),
}


def mixture(z, seed=0, columns=None):
    return z @ np.random.default_rng(seed).normal(size=(z.shape[1], columns or z.shape[1])) + 3.0


@pytest.mark.parametrize("kind", KINDS)
def test_independent_latents_are_found_and_certified(kind):
    z = KINDS[kind](np.random.default_rng(1), (2000, 4))
    x = mixture(z)
    model = LinearICA(random_state=0).fit(x)
    assert mcc(z, model.transform(x)) > 0.998
    assert str(model.certificate_.level) == "PS"
    np.testing.assert_allclose(model.inverse_transform(model.transform(x)), x, atol=1e-9)


def test_the_density_of_new_rows_is_near_the_true_one():
    """Sharp bounds included: z is exponential, and p(x) = exp(-sum z) / |det A|."""
    rng = np.random.default_rng(2)
    z, mixing = rng.exponential(size=(6000, 3)), rng.normal(size=(3, 3))
    model = LinearICA(random_state=0).fit(z[:4000] @ mixing)
    true = -z[4000:].sum(1) - np.linalg.slogdet(mixing)[1]
    assert np.mean(true) - model.score(z[4000:] @ mixing) < 0.03
    drawn = model.sample(20_000, random_state=0)
    np.testing.assert_allclose(np.cov(drawn.T), np.cov((z @ mixing).T), rtol=0.15, atol=0.05)


def test_noise_in_more_columns_than_latents():
    rng = np.random.default_rng(3)
    z = rng.laplace(size=(3000, 3))
    x = mixture(z, columns=6)
    x += 0.05 * x.std(0) * rng.normal(size=x.shape)
    model = LinearICA(3, random_state=0).fit(x[:2000])
    assert mcc(z, model.transform(x)) > 0.99
    assert model.score(x[2000:]) == pytest.approx(model.score(x[:2000]), abs=0.3)
    assert model.residual_.shape == (3, 6)


@pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
@pytest.mark.parametrize("n", [3, 5])
def test_neither_gaussian_nor_elliptical_latents_are_certified(n):
    rng = np.random.default_rng(n)
    gaussian = rng.normal(size=(2000, n))
    for z in (gaussian, gaussian / np.sqrt(rng.chisquare(5, size=(2000, 1)) / 5)):
        assert str(LinearICA(random_state=0).fit(mixture(z)).certificate_.level) in ("none", "AT")


@pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
@pytest.mark.parametrize("seed", range(3))
def test_an_elliptical_pair_is_not_certified_as_two_latents(seed):
    """ICA finds other axes of the pair in every half, which may agree by chance."""
    rng = np.random.default_rng(seed)
    pair = rng.normal(size=(2000, 2)) / np.sqrt(rng.chisquare(5, size=(2000, 1)) / 5)
    assert (
        str(LinearICA(random_state=seed).fit(mixture(np.c_[pair, rng.uniform(size=2000)])).certificate_.level) != "PS"
    )


@pytest.mark.parametrize("seed", range(3))
def test_two_gaussian_latents_form_a_block(seed):
    rng = np.random.default_rng(seed)
    x = mixture(np.c_[rng.exponential(size=(4000, 2)), rng.normal(size=(4000, 2))])
    with pytest.warns(RecoveryWarning, match="may be Gaussian, or"):
        model = LinearICA(random_state=seed).fit(x)
    assert model.certificate_.blocks == ((0,), (1,), (2, 3))
    assert model.blocks_ == ((2, 3),)


@pytest.mark.filterwarnings("ignore:LinearICA cannot separate")
def test_unstable_restarts_warn():
    with pytest.warns(RecoveryWarning, match="restarts agree"):
        LinearICA(random_state=0).fit(np.random.default_rng(0).normal(size=(500, 6)))


@pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
@pytest.mark.parametrize(("rows", "n", "restarts"), [(500, 2, 1), (22, 20, 2), (30, 5, 3)])
def test_one_restart_or_few_rows_have_no_tests(rows, n, restarts):
    model = LinearICA(n_restarts=restarts).fit(mixture(np.random.default_rng(0).laplace(size=(rows, n))))
    assert (model.log_ratios_, str(model.certificate_.level)) == (None, "none")


def test_densities_and_tests_are_saved(tmp_path):
    x = mixture(np.random.default_rng(0).laplace(size=(500, 2)))
    model = LinearICA(random_state=0).fit(x)
    save(model, tmp_path / "ica.safetensors")
    again = load(tmp_path / "ica.safetensors")
    np.testing.assert_array_equal(again.score_samples(x), model.score_samples(x))
    assert str(again.certificate_) == str(model.certificate_)


def test_one_latent_has_no_tests():
    x = np.random.default_rng(0).laplace(size=(500, 1)) @ [[1.0, 2.0, 3.0]]
    model = LinearICA(1, random_state=0).fit(x + 0.1 * np.random.default_rng(1).normal(size=x.shape))
    assert model.certificate_.level == Level.NONE
    assert model.log_ratios_ is None
