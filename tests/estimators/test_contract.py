"""The laws every estimator of the library keeps. A new estimator adds one row to ESTIMATORS."""

import functools
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from identifiable import DataError, Identify, RecoveryWarning, estimators, load, save
from identifiable.estimators import VAE, PrincipalComponents, RawData
from identifiable.estimators.base import LatentModel
from quick_estimators import ESTIMATORS, QUICK, labels

pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
IDENTIFY = Identify(4, model="SegmentUnmixing", n_restarts=2, seconds=None, random_state=0, verbose=0)
every_estimator = pytest.mark.parametrize("estimator", [*ESTIMATORS, IDENTIFY], ids=lambda e: type(e).__name__)


@pytest.fixture(scope="module")
def x():
    rng = np.random.default_rng(1)
    z = rng.normal(size=(300, 2))
    return np.tanh(z @ rng.normal(size=(2, 4))) + 0.1 * rng.normal(size=(300, 4))


def fitted(estimator, x):
    return clone(estimator).fit(x, labels(x))


@pytest.fixture(scope="module")
def model_of(x):
    """Return the fit of an estimator to x: one for all tests that only look at it."""
    return functools.cache(lambda estimator: fitted(estimator, x))


@pytest.fixture(scope="module")
def frame(x):
    return pd.DataFrame(x, columns=list("abcd"), index=[f"cell {i}" for i in range(300)])


@pytest.fixture(scope="module")
def pandas_model_of(frame):
    """Return the fit of an estimator to the frame, pandas in and out: one for all tests that only look at it."""
    return functools.cache(lambda estimator: fitted(clone(estimator).set_output(transform="pandas"), frame))


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_every_public_estimator_has_a_row():
    public = {
        name
        for name in estimators.__all__
        if isinstance(getattr(estimators, name), type) and issubclass(getattr(estimators, name), LatentModel)
    }
    assert {type(e).__name__ for e in ESTIMATORS} == public


@every_estimator
def test_constructor_speaks_the_common_words(estimator):
    assert {"n_latents", "n_restarts", "random_state", "device", "verbose"} <= set(estimator.get_params())
    assert isinstance(estimator, LatentModel)


@every_estimator
def test_shapes_and_fitted_state(estimator, x, model_of):
    model = model_of(estimator)
    z = model.transform(x)
    assert z.shape == (300, model.n_latents)
    assert model.inverse_transform(z).shape == x.shape
    assert model.sample(7, random_state=0).shape == (7, 4)
    assert np.isfinite(model.score(x))
    assert model.stability_.pairwise.shape == (2, 2)
    assert model.fit_status_ in ("stable", "doubtful", "unstable")


@every_estimator
def test_same_random_state_same_bits(estimator, x, model_of):
    np.testing.assert_array_equal(fitted(estimator, x).transform(x), model_of(estimator).transform(x))


@every_estimator
def test_another_random_state_other_latents(estimator, x, model_of):
    if isinstance(estimator, RawData | PrincipalComponents):
        return  # nothing in them is random
    a = model_of(estimator).transform(x)
    assert not np.array_equal(a, clone(estimator).set_params(random_state=5).fit(x, labels(x)).transform(x))


@every_estimator
def test_fit_does_not_touch_the_global_generators(estimator, x):
    import torch

    before = torch.get_rng_state().clone(), np.random.get_state()
    fitted(estimator, x)
    assert torch.equal(before[0], torch.get_rng_state())
    for old, new in zip(before[1], np.random.get_state(), strict=True):  # keys, and how many of them are used up
        np.testing.assert_array_equal(new, old)


@every_estimator
def test_precision_follows_the_data(estimator, x, model_of):
    model = model_of(estimator)
    z64, z32 = model.transform(x), model.transform(x.astype(np.float32))
    assert (z64.dtype, z32.dtype) == (np.float64, np.float32)
    np.testing.assert_allclose(z32, z64, atol=1e-4)


@every_estimator
def test_units_of_the_data_do_not_matter(estimator, x, model_of):
    """Metres or millimetres: the same latents up to their own unit, and the density changes by the Jacobian."""
    model, scaled = model_of(estimator), fitted(estimator, 1000 * x + 5)
    z, scaled_z = model.transform(x), scaled.transform(1000 * x + 5)
    np.testing.assert_allclose(scaled_z / scaled_z.std(0), z / z.std(0), atol=2e-3)
    assert scaled.score(1000 * x + 5) == pytest.approx(model.score(x) - 4 * np.log(1000), abs=1e-2)


@every_estimator
def test_pandas_in_pandas_out(estimator, frame, pandas_model_of):
    model = pandas_model_of(estimator)
    z = model.transform(frame)
    assert list(z.index) == list(frame.index)
    assert list(z.columns) == list(model.get_feature_names_out())
    with pytest.raises(ValueError, match="feature names"):
        model.transform(frame[list("dcba")])


@every_estimator
def test_works_in_a_pipeline(estimator, x):
    pipe = make_pipeline(StandardScaler(), clone(estimator)).fit(x, labels(x))
    assert pipe.transform(x).shape == (300, estimator.n_latents)
    assert np.isfinite(pipe.score(x))


@every_estimator
def test_save_and_load_give_the_same_model(estimator, frame, pandas_model_of, tmp_path):
    model = pandas_model_of(estimator)
    save(model, tmp_path / "m.safetensors")
    again = load(tmp_path / "m.safetensors", device="cpu")
    pd.testing.assert_frame_equal(again.transform(frame), model.transform(frame))
    np.testing.assert_array_equal(again.sample(5, random_state=0), model.sample(5, random_state=0))
    assert again.score(frame) == model.score(frame)
    assert again.get_params() == model.get_params() | {"device": "cpu"}
    assert again.fit_status_ == model.fit_status_
    assert repr(getattr(again, "history_", None)) == repr(getattr(model, "history_", None))
    np.testing.assert_array_equal(again.stability_.pairwise, model.stability_.pairwise)


@every_estimator
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda x: x[:1], "1 sample"),
        (lambda x: x[:, 0], "Reshape your data"),
        (lambda x: x[None], "dim 3"),
        (lambda x: np.where(x == x[3, 2], np.nan, x), "NaN"),
        (lambda x: np.where(x == x[3, 2], np.inf, x), "infinity"),
        (lambda x: np.c_[x, np.ones(len(x))], "constant here: 4"),
        (lambda x: np.c_[x, x[:, 1]], "4 = 1"),
        (lambda x: x.astype(str) + "m", "could not convert"),
        (lambda x: x + 1j, "Complex"),
    ],
)
def test_bad_data_get_one_clear_error(estimator, x, spoil, words):
    with pytest.raises(ValueError, match=words):
        clone(estimator).fit(spoil(x), labels(spoil(x)))


@every_estimator
def test_constant_columns_are_named(estimator, x):
    frame = pd.DataFrame(x, columns=list("abcd")).assign(batch=3.0)
    with pytest.raises(DataError, match=r"constant here: batch \(1 of 5\).*Drop them"):
        clone(estimator).fit(frame, labels(frame))


@every_estimator
@pytest.mark.parametrize(
    ("parameter", "value", "words"),
    [
        ("n_latents", 0, "an integer >= 1"),
        ("n_latents", 2.5, "an integer >= 1"),
        ("n_restarts", "many", "an integer >= 1"),
        ("device", "tpu", "'auto', 'cpu', 'cuda'"),
        ("device", "cuda:99", "CUDA devices are here"),
        ("verbose", -1, "an integer >= 0"),
    ],
)
def test_bad_parameters_get_one_clear_error(estimator, x, parameter, value, words):
    with pytest.raises(ValueError, match=words):
        clone(estimator).set_params(**{parameter: value}).fit(x, labels(x))


@every_estimator
def test_latents_of_another_width_are_refused(estimator, model_of):
    with pytest.raises(DataError, match=r"Expected latents of shape \(N, \d\), got \(3, 5\)"):
        model_of(estimator).inverse_transform(np.zeros((3, 5)))


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)  # Identify compares refits, too
def test_one_restart_is_called_unchecked(estimator, x):
    model = clone(estimator).set_params(n_restarts=1).fit(x, labels(x))
    assert model.fit_status_ == "unchecked"
    assert np.isnan(model.stability_.score)


def test_a_trained_model_keeps_its_history(x):
    history = fitted(VAE(**QUICK), x).history_
    assert history.loss.shape == (20, 2)
    assert history.step[-1] == 20


def test_disagreeing_restarts_warn():
    noise = np.random.default_rng(0).normal(size=(300, 6))
    with pytest.warns(RecoveryWarning, match=r"restarts agree at 0\.\d\d only"):
        VAE(**QUICK | {"n_restarts": 4}).fit(noise)


def test_agreeing_restarts_do_not_warn(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RecoveryWarning)
        model = VAE(n_latents=1, n_restarts=2, random_state=0, max_steps=300, verbose=0).fit(np.tanh(x[:, :1]))
    assert model.fit_status_ == "stable"
