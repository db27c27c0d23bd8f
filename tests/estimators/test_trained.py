"""The shell of trained estimators: the call chain, held-out rows, and what restarts give."""

import traceback

import numpy as np
import pytest
import torch
from sklearn.base import clone

from identifiable import IVAE, VAE, DataError, GMMFlow, IFlow, VaDE, load, save
from identifiable.estimators.trained import LatentModule, Split, TrainedModel, rows_of
from quick_estimators import TINY_ESTIMATORS, labels

pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
TRAINED = [one for one in TINY_ESTIMATORS if isinstance(one, TrainedModel)]
BRIEF = {"random_state": 0, "verbose": 0, "max_steps": 2}
FLOW = BRIEF | {"depth": 2, "n_restarts": 2, "n_components": 2, "full_covariance_steps": 2}
FROM_A_FLOW = [
    VaDE(2, 3, init="flow", pretrain_steps=1, n_restarts=1, **BRIEF),
    IVAE(2, init="flow", n_restarts=1, **BRIEF),
]


@pytest.fixture(scope="module")
def x():
    rng = np.random.default_rng(1)
    z = rng.normal(size=(200, 2))
    return np.tanh(z @ rng.normal(size=(2, 4))) + 0.1 * rng.normal(size=(200, 4))


@pytest.fixture
def calls(monkeypatch):
    """Record the call chain of every backward pass, and its threads."""
    backward, found = torch.Tensor.backward, []

    def recorded(*args, **kwargs):
        frames = [frame for frame in traceback.extract_stack() if "identifiable" in frame.filename]
        found.append(([f.name for f in frames if f.filename != __file__][::-1], torch.get_num_threads()))
        return backward(*args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "backward", recorded)
    return found


def each(models):
    return pytest.mark.parametrize("estimator", models, ids=lambda e: type(e).__name__)


@each([*TRAINED, *FROM_A_FLOW])
def test_at_most_three_calls_from_fit_to_backward(estimator, x, calls):
    clone(estimator).fit(x, labels(x))
    assert calls
    for stack, _ in calls:
        assert stack.index("fit") <= 3, stack


@pytest.mark.parametrize(("columns", "threads"), [(2, 1), (12, 2)])
def test_only_small_flows_train_on_one_thread(columns, threads, calls):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        GMMFlow(**FLOW).fit(np.random.default_rng(0).normal(size=(200, columns)))
        assert {found for _, found in calls} == {threads}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@each(TRAINED)
def test_the_kept_restart_is_the_model(estimator, x, tmp_path):
    model = clone(estimator).set_params(n_restarts=2).fit(x, labels(x))
    latents = model.latents_of_restarts(x)
    assert latents.shape == (2, 200, 2)
    np.testing.assert_allclose(latents[model.kept_], model.transform(x), atol=1e-12)
    assert model.restart_scores_.shape == (2,)
    if model.keep == "score":
        assert model.kept_ == model.restart_scores_.argmax()
    save(model, tmp_path / "m.safetensors")
    with pytest.raises(DataError, match="not saved"):
        load(tmp_path / "m.safetensors").latents_of_restarts(x)


@each(TRAINED)
def test_held_out_rows_do_not_enter_the_scales(estimator, x):
    """A column is scaled by its training rows: an outlier among the held-out rows changes no latent."""
    rows = []
    for size in (1.0, 50.0):
        model, changed = clone(estimator), x.copy()
        changed[model._split(x, labels(x)).held[0]] *= size
        data = model._split(changed, labels(x))
        model._set_inputs(data)
        rows.append(model._inputs(data.X_train))
    np.testing.assert_array_equal(rows[0], rows[1])


def test_rows_pass_through_the_kept_module_in_blocks(x):
    """In the precision of the rows, however many; the scores of restarts are those of held-out rows."""
    x = x[:, :2]
    model, many = GMMFlow(**FLOW).fit(x), np.tile(x, (25, 1))
    z = model.transform(many)
    np.testing.assert_array_equal(z, np.tile(z[:200], (25, 1)))
    np.testing.assert_allclose(model.inverse_transform(z), many, atol=1e-9)
    assert model.inverse_transform(z.astype(np.float32)).dtype == np.float32
    assert model.score(many) == pytest.approx(model.score_samples(x).mean())
    c, held = model.coordinates_, model._split(x, None).held
    expected = model.score(x[held]) + np.log(c.sd).sum() + c.log_volume
    assert model.restart_scores_[model.kept_] == pytest.approx(expected)


def test_u_enters_scores_and_not_latents(x):
    u = labels(x)
    model = IFlow(2, depth=2, n_restarts=1, **BRIEF).fit(x, u)
    assert model.score(x, u) == pytest.approx(model.score_samples(x, u).mean())
    assert model.score(x, u) != model.score(x)


def test_a_checkpoint_is_removed_after_the_fit(x, tmp_path):
    path = tmp_path / "fit.checkpoint"
    VAE(n_restarts=1, checkpoint=path, **BRIEF).fit(x)
    assert not path.exists()


def test_rows_of_u_in_every_form():
    rows = np.array([2, 0])
    assert rows_of([("a", 1), ("b", 2), ("c", 3)], rows) == [("c", 3), ("a", 1)]
    np.testing.assert_array_equal(rows_of(np.array([5, 6, 7]), rows), [7, 5])
    data = Split(np.eye(3), np.array([5, 6, 7]), rows, np.array([1]), 0, torch.device("cpu"))
    np.testing.assert_array_equal(data.u_train, [7, 5])
    np.testing.assert_array_equal(data.u_held, [6])
    np.testing.assert_array_equal(data.X_train, [[0, 0, 1], [1, 0, 0]])
    np.testing.assert_array_equal(data.X_held, [[0, 1, 0]])
    assert data.rng().initial_seed() == 0
    assert Split(np.eye(3), None, rows, rows, 0, torch.device("cpu")).u_held is None


def test_a_module_states_its_maps():
    for name in ("latents", "observations", "log_prob"):
        with pytest.raises(NotImplementedError):
            getattr(LatentModule(), name)(torch.zeros(1, 2, 3))
