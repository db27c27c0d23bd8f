"""What every estimator takes from `LatentModel`: checks of parameters, rows and latents, the verdict on restarts."""

from dataclasses import KW_ONLY, dataclass, replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import NotFittedError

from identifiable import DataError, FitFailedError, Level, Mixture, RecoveryWarning, certify
from identifiable.agreement.stability import Stability
from identifiable.estimators.base import LatentModel, resolve_device


@dataclass(eq=False, repr=False)
class Rotation(LatentModel):
    """Principal components, which restarts turn by random amounts up to `angle`."""

    n_latents: int | None = None
    _: KW_ONLY
    n_restarts: int = 3
    random_state: int | np.random.RandomState | None = 0
    angle: float | None = 1e-9
    flag: bool = False

    def fit(self, X, y=None):
        self._check_common_parameters()
        self._require_positive("angle", optional=True)
        self._require_bools("flag")
        self.coordinates_ = self._fit_coordinates(self._check_training_data(X, columns_must_vary=not self.flag))
        rng, z = np.random.default_rng(self._seed()), self.transform(X)
        self.kept_ = self._compare_restarts(np.stack([z @ self._turn(rng) for _ in range(self.n_restarts)]))
        return self

    def _turn(self, rng):
        noise = rng.normal(size=2 * [self.coordinates_.n])
        return np.nan * noise if self.angle is None else np.linalg.qr(np.eye(len(noise)) + self.angle * noise)[0]

    def transform(self, X):
        X = self._check_new_data(X)
        return self.coordinates_.project(X)[0]

    def inverse_transform(self, Z):
        Z = self._check_latents(Z)
        return self.coordinates_.lift(Z)

    def score(self, X, y=None):
        return 0.0

    def sample(self, n_samples=1, random_state=None):
        generator = self._generator(n_samples, random_state)
        return self.inverse_transform(generator.standard_normal((n_samples, self.coordinates_.n)))

    @property
    def _n_features_out(self):
        return self.coordinates_.n


X = np.random.default_rng(0).normal(size=(50, 3))
FRAME = pd.DataFrame(X, columns=list("abc"))


@pytest.mark.parametrize(
    ("parameter", "values"),
    [
        ("n_latents", (0, -1, 1.5, True, "2")),
        ("n_restarts", (0, None)),
        ("verbose", (-1, None)),
        ("random_state", (-1, 2**32, 1.5, "0")),
        ("device", ("tpu", "cuda:99", 3)),
        ("angle", (0.0, -1.0, "x", True)),
        ("flag", (0, None)),
    ],
)
def test_bad_parameters_are_named(parameter, values):
    for value in values:
        with pytest.raises(ValueError, match=parameter) as raised:
            Rotation(**{parameter: value}).fit(X)
        assert repr(value) in str(raised.value)


@pytest.mark.parametrize(
    "good", [{"n_latents": None}, {"random_state": 2**32 - 1}, {"random_state": np.random.RandomState(0)}]
)
def test_good_parameters_pass(good):
    assert Rotation(**good).fit(X).transform(X).shape == (50, 3)


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (X * [1, 1e120, 1], "between.*1\\. "),
        (X * [1, 1, 1e-120], "deviation.* 2\\. "),
        (FRAME.assign(d=1.0), "d \\(1 of 4\\)"),
        (FRAME.assign(d=X[:, 1]), "d = b"),
        (FRAME.assign(d=pd.Categorical(["u", "v"] * 25)), "'d'"),
        (FRAME.assign(d=np.array([1.0, "k"] * 25, dtype=object)), "'d'"),
        (pd.DataFrame(X, columns=list("aba")), "distinct.*a"),
    ],
)
def test_bad_rows_are_refused(bad, word):
    with pytest.raises(ValueError, match=word):
        Rotation().fit(bad)


def test_columns_need_not_vary_where_the_method_allows_it():
    assert Rotation(flag=True).fit(np.c_[X, np.ones(50)]).coordinates_.rank == 3


FORMS = [partial(torch.tensor, requires_grad=True), pd.DataFrame, lambda x: pd.DataFrame(x).astype(object), list]


@pytest.mark.parametrize("form", FORMS)
def test_tables_in_every_form_give_the_same_latents(form):
    np.testing.assert_allclose(Rotation().fit(form(X)).transform(form(X)), Rotation().fit(X).transform(X), atol=1e-12)


def test_float32_data_give_no_warning_of_overflow():
    with np.errstate(all="raise"):
        assert Rotation().fit(X.astype(np.float32)).coordinates_.rank == 3


def test_new_rows_and_latents_are_checked():
    with pytest.raises(NotFittedError):
        Rotation().transform(X)
    model = Rotation(2).fit(FRAME)
    with pytest.raises(DataError, match=r": b\."):
        model.transform(FRAME.assign(b=1e101))
    with pytest.raises(ValueError, match="features"):
        model.transform(X[:, :2])
    for bad in (np.zeros((3, 5)), np.zeros(2), np.full((3, 2), np.nan)):
        with pytest.raises(DataError):
            model.inverse_transform(bad)
    assert model.inverse_transform([[1, 2]]).shape == (1, 3)
    assert model.inverse_transform(np.zeros((0, 2), np.float32)).shape == (0, 3)


def test_more_latents_than_rank():
    with pytest.raises(DataError, match="n_latents=3, rank=2"):
        Rotation(3).fit(np.c_[X[:, :2], X[:, 0] + X[:, 1]])


def test_arguments_of_sample():
    with pytest.raises(NotFittedError):
        Rotation().sample(3)
    model = Rotation(2).fit(X)
    for size in (-1, 0, 2.5, None, np.nan, True):
        with pytest.raises(ValueError, match="n_samples"):
            model.sample(size)
    np.testing.assert_array_equal(model.sample(np.int64(4), random_state=0), model.sample(4, random_state=0))


def test_tags_and_names_of_the_latents():
    model = Rotation(2).fit(X)
    assert model.get_feature_names_out().tolist() == ["rotation0", "rotation1"]
    assert model.__sklearn_tags__().transformer_tags.preserves_dtype == ["float64", "float32"]
    assert not model.__sklearn_tags__().target_tags.required
    model.needs_u = True
    assert model.__sklearn_tags__().target_tags.required


def test_disagreeing_restarts_warn_at_the_line_of_the_caller():
    with pytest.warns(RecoveryWarning, match="agree") as caught:
        model = Rotation(angle=100.0).fit(X)
    assert caught[0].filename == __file__
    assert model.fit_status_ == "unstable"
    assert model.kept_ == model.stability_.chosen


@pytest.mark.filterwarnings("error::identifiable.RecoveryWarning")
def test_agreeing_restarts_do_not_warn():
    model = Rotation().fit(X)
    assert model.fit_status_ == "stable"
    assert model.stability_.pairwise == pytest.approx(np.ones((3, 3)))
    assert Rotation(n_restarts=1).fit(X).fit_status_ == "unchecked"


def test_restarts_that_all_failed_stop_the_fit():
    with pytest.raises(FitFailedError, match="finite"):
        Rotation(angle=None).fit(X)


def test_the_seed_comes_from_random_state():
    def kept(random_state):
        return Rotation(random_state=random_state, angle=0.01).fit(X).stability_.pairwise

    np.testing.assert_array_equal(kept(0), kept(0))
    np.testing.assert_array_equal(kept(0), kept(np.random.RandomState(0)))
    assert not np.array_equal(kept(0), kept(1))


def test_a_checkpoint_depends_on_the_parameters_that_change_the_result():
    assert Rotation(2)._problem() == Rotation(2, verbose=0, device="cpu", random_state=3)._problem()
    assert len({model._problem() for model in (Rotation(2), Rotation(3), Rotation(2, angle=1.0))}) == 3


@pytest.mark.parametrize(
    ("agreement", "level", "if_undecided_hold"), [(1.0, True, True), (0.93, False, True), (0.5, False, False)]
)
def test_a_certificate_needs_restarts_that_agree(agreement, level, if_undecided_hold):
    mixture = Mixture([0.5, 0.5], [[0, 0], [3, 1]], [[1, 4], [2, 1]])
    found = replace(certify(mixture, injective=True), if_undecided_hold=Level.PS)
    model = Rotation()
    model.stability_ = Stability(np.array([[1, agreement], [agreement, 1]]))
    certificate = model._certified(found)
    assert certificate["agreement"] == model.stability_.check
    assert len(certificate.checks) == len(found.checks) + 1
    assert certificate.level == (found.level if level else Level.NONE)
    assert certificate.if_undecided_hold == (Level.PS if if_undecided_hold else Level.NONE)
    assert found.level > Level.NONE


def test_resolve_device():
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    for bad in ("meta", "tpu", f"cuda:{torch.cuda.device_count()}", None):
        with pytest.raises(ValueError, match="device"):
            resolve_device(bad)
