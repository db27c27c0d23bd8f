"""The properties every estimator of the library has. A new estimator adds one row to quick_estimators.ESTIMATORS."""

import functools
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from identifiable import DataError, Identify, RecoveryWarning, estimators, load, save
from identifiable.estimators import LinearICA, PrincipalComponents, RawData, SegmentUnmixing
from identifiable.estimators.base import LatentModel
from quick_estimators import ESTIMATORS, TINY_ESTIMATORS, labels

IDENTIFY = Identify(4, model="SegmentUnmixing", n_restarts=2, seconds=None, random_state=0, verbose=0)
pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")


def each(models):
    return pytest.mark.parametrize("estimator", models, ids=lambda e: type(e).__name__)


every_estimator = each([*ESTIMATORS, IDENTIFY])
SEED_DOES_NOT_MATTER = RawData, PrincipalComponents, LinearICA, SegmentUnmixing  # to one restart


@pytest.fixture(scope="module")
def x():
    rng = np.random.default_rng(1)
    z = rng.normal(size=(200, 2))
    return np.tanh(z @ rng.normal(size=(2, 4))) + 0.1 * rng.normal(size=(200, 4))


@pytest.fixture(scope="module")
def frame(x):
    return pd.DataFrame(x, columns=list("abcd"), index=[f"cell {i}" for i in range(len(x))])


def fitted(estimator, x):
    return clone(estimator).fit(x, labels(x))


@pytest.fixture(scope="module")
def fit_of(x):
    """Return the fit of an estimator to x, and the files to which warnings of its restarts point; fitted once."""

    @functools.cache
    def fit(estimator):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = fitted(estimator, x)
        restarts = [w for w in caught if w.category is RecoveryWarning and "restarts agree" in str(w.message)]
        return model, [warning.filename for warning in restarts]

    return fit


@pytest.fixture(scope="module")
def model_of(fit_of):
    return lambda estimator: fit_of(estimator)[0]


@pytest.fixture(scope="module")
def tiny_model_of(x):
    return functools.cache(lambda estimator: fitted(estimator, x))


@pytest.fixture(scope="module")
def pandas_model_of(frame):
    """Return the fit of an estimator to the frame, pandas in and out; fitted once."""
    return functools.cache(lambda estimator: fitted(clone(estimator).set_output(transform="pandas"), frame))


@parametrize_with_checks(TINY_ESTIMATORS)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_every_public_estimator_has_a_row():
    values = [getattr(estimators, name) for name in estimators.__all__]
    public = {value.__name__ for value in values if isinstance(value, type) and issubclass(value, LatentModel)}
    assert {type(e).__name__ for e in ESTIMATORS} == public


# -- fits ------------------------------------------------------------------------------


@every_estimator
def test_shapes_and_fitted_state(estimator, x, model_of):
    model = model_of(estimator)
    assert {"n_latents", "n_restarts", "random_state", "device", "verbose"} <= set(model.get_params())
    z = model.transform(x)
    assert z.shape == (200, model.n_latents)
    assert model.inverse_transform(z).shape == x.shape
    assert model.sample(7, random_state=0).shape == (7, 4)
    assert np.isfinite(model.score(x))
    assert model.stability_.pairwise.shape == (2, 2)


@each(ESTIMATORS)
def test_a_warning_of_disagreeing_restarts_points_at_the_caller(estimator, fit_of):
    model, warned = fit_of(estimator)
    assert model.fit_status_ in ("stable", "doubtful", "unstable")
    assert warned == [__file__] * (model.fit_status_ == "unstable")


@every_estimator
def test_a_fit_is_reproducible_and_leaves_global_generators_alone(estimator, x, model_of):
    """Also from a tensor that requires a gradient."""
    before = torch.get_rng_state().clone(), np.random.get_state()
    tensor = torch.tensor(x, requires_grad=True)
    again = clone(estimator).fit(tensor, labels(x))
    assert torch.equal(before[0], torch.get_rng_state())
    for old, new in zip(before[1], np.random.get_state(), strict=True):  # keys, and how many of them are used up
        np.testing.assert_array_equal(new, old)
    np.testing.assert_array_equal(again.transform(tensor), model_of(estimator).transform(x))


@each(TINY_ESTIMATORS)
def test_one_restart_is_unchecked(estimator, tiny_model_of):
    model = tiny_model_of(estimator)
    assert model.fit_status_ == "unchecked"
    assert np.isnan(model.stability_.score)


@each([e for e in TINY_ESTIMATORS if not isinstance(e, SEED_DOES_NOT_MATTER)])
def test_another_random_state_gives_other_latents(estimator, x, tiny_model_of):
    other = fitted(clone(estimator).set_params(random_state=5), x)
    assert not np.array_equal(other.transform(x), tiny_model_of(estimator).transform(x))


@every_estimator
def test_precision_follows_the_data(estimator, x, model_of):
    model = model_of(estimator)
    z64, z32 = model.transform(x), model.transform(x.astype(np.float32))
    assert (z64.dtype, z32.dtype) == (np.float64, np.float32)
    np.testing.assert_allclose(z32, z64, atol=1e-4)


@every_estimator
def test_units_of_the_data_do_not_matter(estimator, x, model_of):
    """In other units, latents change only in their own unit, and the density by the Jacobian; here in a pipeline."""
    model, pipe = model_of(estimator), make_pipeline(FunctionTransformer(lambda x: 1000 * x + 5), clone(estimator))
    z, scaled_z = model.transform(x), pipe.fit(x, labels(x)).transform(x)
    np.testing.assert_allclose(scaled_z / scaled_z.std(0), z / z.std(0), atol=2e-3)
    assert pipe.score(x) == pytest.approx(model.score(x) - 4 * np.log(1000), abs=1e-2)


@each([e for e in TINY_ESTIMATORS if hasattr(e, "score_samples") and not hasattr(e, "hidden")])
def test_scores_of_dependent_columns_obey_the_change_of_variables(estimator, x):
    """Columns (a, 100 a, b): the density lives on a plane, whose area changes with the unit of each column."""
    plane, units = x[:, [0, 0, 1]] * [1, 100, 1], np.array([1, 0.05, 7])
    axes = np.linalg.qr((plane - plane.mean(0)).T @ x[:, :2])[0]
    change = 0.5 * np.linalg.slogdet((axes.T * units**2) @ axes)[1]
    one, other = fitted(estimator, plane), fitted(estimator, plane * units)
    assert other.score(plane * units) == pytest.approx(one.score(plane) - change, abs=1e-3)


@every_estimator
def test_pandas_in_pandas_out(estimator, frame, pandas_model_of):
    model = pandas_model_of(estimator)
    z = model.transform(frame)
    assert list(z.index) == list(frame.index)
    assert list(z.columns) == list(model.get_feature_names_out())
    with pytest.raises(ValueError, match="feature names"):
        model.transform(frame[list("dcba")])


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


# -- errors ----------------------------------------------------------------------------


def replaced(x, value):
    return np.where(x == x[3, 2], value, x)


@every_estimator
@pytest.mark.parametrize(
    ("spoil", "error", "word"),
    [
        (lambda x: x[:1], ValueError, "1 sample"),
        (lambda x: x[:, 0], ValueError, "Reshape"),
        (lambda x: x[None], ValueError, "dim 3"),
        (lambda x: replaced(x, np.nan), ValueError, "NaN"),
        (lambda x: replaced(x, np.inf), ValueError, "infinity"),
        (lambda x: x.astype(str) + "m", ValueError, "convert"),
        (lambda x: x + 1j, ValueError, "Complex"),
        (lambda x: replaced(x, -1e101), DataError, "between"),
        (lambda x: x * [1, 1, 1e-150, 1], DataError, "deviation"),
        (lambda x: np.c_[x, np.ones(len(x))], DataError, "constant"),
        (lambda x: np.c_[x, x[:, 1]], DataError, "4 = 1"),
        (lambda x: pd.DataFrame(x, columns=list("abcd")).assign(batch=3.0), DataError, "batch"),
        (lambda x: pd.DataFrame(x, columns=list("abcd")).assign(name="k"), DataError, "'name'"),
        (lambda x: pd.DataFrame(x, columns=list("abcb")), DataError, "distinct"),
    ],
    ids=lambda value: value.replace(" ", "_") if isinstance(value, str) else "",
)
def test_bad_data_get_one_clear_error(estimator, x, spoil, error, word):
    bad = spoil(x)
    with pytest.raises(error, match=word):
        clone(estimator).fit(bad, labels(bad))


@every_estimator
@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("n_latents", 0),
        ("n_latents", 2.5),
        ("n_restarts", "many"),
        ("device", "tpu"),
        ("device", "cuda:99"),
        ("verbose", -1),
        ("random_state", -1),
        ("random_state", 2**32),
    ],
)
def test_bad_parameters_are_named(estimator, x, parameter, value):
    with pytest.raises(ValueError, match=parameter):
        clone(estimator).set_params(**{parameter: value}).fit(x, labels(x))


@every_estimator
def test_bad_arguments_of_fitted_models(estimator, x, model_of):
    model = model_of(estimator)
    with pytest.raises(DataError, match="shape"):
        model.inverse_transform(np.zeros((3, 5)))
    with pytest.raises(DataError, match="between"):
        model.transform(replaced(x, 1e101))
    for size in (-1, 2.5, None, np.nan):
        with pytest.raises(ValueError, match="n_samples"):
            model.sample(size)
    with pytest.raises(NotFittedError):
        clone(estimator).sample(3)
