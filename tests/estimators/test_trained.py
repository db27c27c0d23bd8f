"""The shell of trained estimators: the call chain, held-out rows, and what restarts give."""

import traceback

import numpy as np
import pytest
import torch
from sklearn.base import clone

from identifiable import IVAE, VAE, DataError, IFlow, VaDE, load, save
from identifiable.estimators.trained import Split, TrainedModel, rows_of
from quick_estimators import ESTIMATORS, labels

pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
TRAINED = [one for one in ESTIMATORS if isinstance(one, TrainedModel)]
every_trained = pytest.mark.parametrize("estimator", TRAINED, ids=lambda e: type(e).__name__)


@pytest.fixture(scope="module")
def x():
    rng = np.random.default_rng(1)
    z = rng.normal(size=(300, 2))
    return np.tanh(z @ rng.normal(size=(2, 4))) + 0.1 * rng.normal(size=(300, 4))


FROM_A_FLOW = [
    VaDE(2, 3, init="flow", pretrain_steps=4, max_steps=5, random_state=0, verbose=0),
    IVAE(2, init="flow", max_steps=5, random_state=0, verbose=0),
    IFlow(2, max_steps=5, depth=3, random_state=0, verbose=0),
]


@pytest.mark.parametrize("estimator", [*TRAINED, *FROM_A_FLOW], ids=lambda e: type(e).__name__)
def test_at_most_three_calls_from_fit_to_backward(estimator, x, monkeypatch):
    backward, stacks = torch.Tensor.backward, set()

    def recorded(*args, **kwargs):
        frames = [frame for frame in traceback.extract_stack() if "identifiable" in frame.filename]
        stacks.add(tuple(frame.name for frame in frames if frame.filename != __file__))
        return backward(*args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "backward", recorded)
    clone(estimator).fit(x, labels(x))
    assert stacks
    for stack in stacks:
        between = stack[::-1].index("fit")
        assert between <= 3, " -> ".join(stack)


@every_trained
def test_the_kept_restart_is_the_model(estimator, x, tmp_path):
    model = clone(estimator).fit(x, labels(x))
    latents = model.latents_of_restarts(x)
    assert latents.shape == (2, 300, 2)
    np.testing.assert_allclose(latents[model.kept_], model.transform(x), atol=1e-12)
    assert model.restart_scores_.shape == (2,)
    if model.keep == "score":
        assert model.kept_ == model.restart_scores_.argmax()
    save(model, tmp_path / "m.safetensors")
    with pytest.raises(DataError, match="not saved"):
        load(tmp_path / "m.safetensors").latents_of_restarts(x)


@every_trained
def test_held_out_rows_do_not_enter_the_scales(estimator, x):
    """A column is scaled by its training rows: an outlier among the held-out rows changes no latent."""
    quick = clone(estimator).set_params(n_restarts=1)
    split = quick._split(x, labels(x))
    rows = {}
    for size in (1.0, 50.0):
        changed = x.copy()
        changed[split.held[0]] *= size
        model = clone(quick)
        data = model._split(changed, labels(x))
        model._set_inputs(data)
        rows[size] = model._inputs(data.X_train)
    np.testing.assert_array_equal(rows[1.0], rows[50.0])


def test_a_column_that_varies_only_in_held_out_rows_does_not_break_a_fit(x):
    vae = VAE(n_restarts=1, max_steps=5, random_state=0, verbose=0)
    constant = np.zeros((300, 1))
    constant[vae._split(x, None).held] = np.random.default_rng(0).normal(size=(30, 1))
    wide = np.c_[x, constant]
    assert np.isfinite(vae.fit(wide).transform(wide)).all()
    labels = (np.c_[x[:, :2] > 0, constant != 0]).astype(float)
    labels[0, 2] = 0
    categories = clone(vae).set_params(likelihood="categorical").fit(labels)
    assert np.isfinite(categories.score(labels))


def test_rows_of_u_in_every_form():
    rows = np.array([2, 0])
    assert rows_of([("a", 1), ("b", 2), ("c", 3)], rows) == [("c", 3), ("a", 1)]
    np.testing.assert_array_equal(rows_of(np.array([5, 6, 7]), rows), [7, 5])
    data = Split(np.eye(3), np.array([5, 6, 7]), rows, np.array([1]), 0, torch.device("cpu"))
    np.testing.assert_array_equal(data.u_held, [6])
    np.testing.assert_array_equal(data.X_held, [[0, 1, 0]])


def test_laplace_scales_start_at_the_standard_deviation_over_root_two(x):
    """IVAE from a flow starts a Laplace table at b = sd / √2."""
    u = np.repeat([0, 1, 2], 100)
    model = IVAE(2, family="laplace", init="flow", max_steps=1, n_restarts=1, learning_rate=1e-12, random_state=0)
    prior = model.set_params(verbose=0).fit(x, u).module_.prior
    z = model.latents_of_restarts(x)[0]
    sd = np.stack([z[u == g].std(0) for g in range(3)])
    ratio = prior.log_scales.exp()[0].detach().numpy() / sd
    assert 0.5 < np.median(ratio) < 0.9
