"""TwoStage: its parts keep their laws, the stages do what the paper says, and no truth enters."""

import numpy as np
import pytest
import torch

from identifiable import DataError
from identifiable.data import make_pdgmm
from identifiable.estimators.sparse_autoencoder import Bottleneck
from identifiable.estimators.two_stage import DeepLinear, TwoStage, half_norm
from identifiable.metrics import mcc
from identifiable.nets import MLP

pytestmark = pytest.mark.filterwarnings("ignore::identifiable.RecoveryWarning")
QUICK = {
    "n_restarts": 2,
    "random_state": 0,
    "device": "cpu",
    "verbose": 0,
    "hidden": (8,),
    "max_steps": 30,
    "batch_size": 64,
    "learning_rate": 1e-2,
    "sparse_hidden": (4, 4),
    "sparse_steps": 20,
    "sparse_rate": 1e-2,
    "dual_rate": 5e-3,
}


@pytest.fixture(scope="module")
def sample():
    return make_pdgmm(600, n=3, rho="1 var", layers=3, random_state=1)


def test_deep_linear_is_its_layers_in_value_and_gradient():
    rng = torch.Generator().manual_seed(0)
    net = DeepLinear(3, (4, 10, 7, 2), rng=rng).double()
    x = torch.randn(3, 20, 4, generator=rng, dtype=torch.float64)
    outcomes = []
    for forward in (net.forward, lambda x: MLP.forward(net, x)):
        y = forward(x)
        outcomes.append([y, *torch.autograd.grad(y.sin().sum(), net.parameters())])
    for ours, theirs in zip(*outcomes, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_half_norm_is_the_gaussian_density_but_for_a_constant():
    z = torch.randn(2, 50, 4, generator=torch.Generator().manual_seed(0))
    density = torch.distributions.MultivariateNormal(torch.zeros(4), torch.eye(4)).log_prob(z).mean(1)
    torch.testing.assert_close(half_norm(z), -density - 2 * np.log(2 * np.pi))


def test_both_stages_recover_an_affine_mixture():
    sample = make_pdgmm(1000, n=3, k=0, rho="1 var", layers=1, random_state=1)
    settings = QUICK | {"hidden": (), "max_steps": 200, "sparse_steps": 400, "batch_size": 500}
    model = TwoStage(3, **settings, norm_weight=0.0).fit(sample.x)
    z = model.transform(sample.x)
    assert mcc(sample.z, model.stage1_transform(sample.x)) < 0.95
    assert mcc(sample.z, z) > 0.99
    assert model.fit_status_ == "stable"
    assert np.abs(z).mean() < 0.1  # on the way to the bound, .01, by shrinking
    error = model.inverse_transform(z) - sample.x
    assert np.square(error).mean() < 0.1 * sample.x.var()


def test_the_norm_term_counts_half_the_latents_at_the_start(sample):
    """Batch normalisation starts at unit variance: E‖y‖² / 2 = n / 2, whatever the data."""
    first = {
        weight: TwoStage(3, **QUICK | {"max_steps": 1, "sparse_steps": 0}, norm_weight=weight)
        .fit(sample.x)
        .history_.loss
        for weight in (0.0, 1.0, 2.0)
    }
    np.testing.assert_allclose(first[1.0] - first[0.0], 1.5, rtol=1e-2)
    np.testing.assert_allclose(first[2.0] - first[0.0], 3.0, rtol=1e-2)


def test_the_norm_term_only_shrinks_the_code(sample):
    settings = QUICK | {"max_steps": 150, "sparse_steps": 0}
    sizes = {
        (weight, free): np.square(
            TwoStage(3, **settings, norm_weight=weight, learn_scale=free, epsilon=1e-5 if free else 1e-12)
            .fit(sample.x)
            .stage1_transform(sample.x)
        ).mean()
        for weight in (0.0, 10.0)
        for free in (True, False)
    }
    assert sizes[10.0, True] < 0.2 * sizes[0.0, True]
    assert sizes[10.0, False] == pytest.approx(1, abs=0.05)
    assert sizes[0.0, False] == pytest.approx(1, abs=0.05)


def test_frozen_statistics_are_those_of_training(sample):
    """With fewer than 100 rows all of them train: then the two modes of batch normalisation agree, ε included."""
    x = sample.x[:90]
    fixed = TwoStage(3, **QUICK, learn_scale=False, epsilon=1e-12).fit(x)
    for z in (fixed.stage1_transform(x), fixed.transform(x)):
        np.testing.assert_allclose(z.mean(0), 0, atol=1e-5)
        np.testing.assert_allclose(z.std(0), 1, rtol=1e-4)
    coarse = TwoStage(3, **QUICK | {"batch_size": 90}, epsilon=1.0).fit(x)
    code = coarse._to_tensor(x, torch.float32, torch.device("cpu"))[None]
    with torch.no_grad():
        trained = coarse.module_.train()(code)[0].numpy()
    coarse.module_.eval()
    np.testing.assert_allclose(coarse.stage1_transform(x), trained, atol=1e-4)


@torch.no_grad()
def test_the_second_stage_multiplied_out_is_the_same_map():
    rng = torch.Generator().manual_seed(0)
    linear = Bottleneck(*(DeepLinear(1, (3, 5, 3), rng=rng) for _ in range(2))).eval()
    for tensor in (linear.scale, linear.shift, linear.normalise.mean, linear.normalise.scale):
        tensor.copy_(torch.rand(tensor.shape, generator=rng) + 0.5)
    model, y = TwoStage(3), torch.randn(1, 20, 3, generator=rng)
    model._set_map(linear)
    linear.float()
    z = linear(y)
    again = linear.decoder(z)[0].numpy()
    np.testing.assert_allclose(y[0].numpy() @ model.components_.T - model.offset_, z[0].numpy(), atol=1e-5)
    np.testing.assert_allclose(z[0].numpy() @ model.mixing_.T + model.origin_, again, atol=1e-5)


def test_without_steps_there_is_no_second_stage(sample):
    model = TwoStage(3, **QUICK | {"sparse_steps": 0}).fit(sample.x)
    np.testing.assert_array_equal(model.transform(sample.x), model.stage1_transform(sample.x))
    assert model.sparse_history_ is None


def test_every_step_is_taken_and_recorded(sample):
    model = TwoStage(3, **QUICK).fit(sample.x)
    assert model.history_.step[-1] == 30
    assert model.sparse_history_.step[-1] == 20
    assert model.history_.learning_rate.tolist() == [1e-2] * 30  # constant
    assert model.sparse_history_.multipliers.shape == (2, 1)


def test_the_truth_does_not_enter(sample):
    a = TwoStage(3, **QUICK).fit(sample.x)
    b = TwoStage(3, **QUICK).fit(sample.x, sample.z)
    np.testing.assert_array_equal(a.transform(sample.x), b.transform(sample.x))


def test_a_simulator_gives_fresh_rows(sample):
    a, b = (TwoStage(3, **QUICK).fit(sample.source) for _ in range(2))
    np.testing.assert_array_equal(a.transform(sample.x), b.transform(sample.x))
    assert not np.array_equal(a.transform(sample.x), TwoStage(3, **QUICK).fit(sample.x).transform(sample.x))
    # a fit on the pilot's rows has the same start and the same units, and differs by its batches alone
    pilot = sample.source.sample(20_000, a._seed()).x
    c = TwoStage(3, **QUICK).fit(pilot)
    np.testing.assert_allclose(c.mean_, a.mean_, atol=1e-12)
    assert not np.array_equal(a.transform(sample.x), c.transform(sample.x))


@pytest.mark.parametrize("restarts", [1, 2])
def test_many_data_sets_at_once_are_as_one_after_the_other(restarts):
    """Of unequal size too: a set with fewer rows than a batch has batches of its own shape."""
    sets = [make_pdgmm(rows, n=3, rho="1 var", layers=3, random_state=i) for i, rows in enumerate((600, 60, 500))]
    given = [sets[0].x, sets[1].x, sets[2].source]
    model = TwoStage(3, **QUICK | {"n_restarts": restarts})
    for s, x, one in zip(sets, given, model.fit_many(given), strict=True):
        alone = TwoStage(3, **QUICK | {"n_restarts": restarts}).fit(x)
        np.testing.assert_allclose(one.sparse_history_.loss, alone.sparse_history_.loss, rtol=1e-4)
        assert one.sparse_history_.multipliers.shape == (restarts, 1)
        if restarts == 1:  # of two, which agree equally with each other, either may be kept
            np.testing.assert_allclose(one.transform(s.x), alone.transform(s.x), atol=1e-4)


def test_relative_sizes_of_columns_are_kept(sample):
    """One scale for all columns: a rescaled column is another problem, rescaled data are the same."""
    x = sample.x
    z = TwoStage(3, **QUICK).fit(x).transform(x)
    np.testing.assert_allclose(TwoStage(3, **QUICK).fit(4 * x).transform(4 * x), z, atol=1e-3)
    tall = x * [5, 1, 1]
    assert np.abs(TwoStage(3, **QUICK).fit(tall).transform(tall) - z).max() > 0.01


@pytest.mark.parametrize(
    ("parameter", "value", "words"),
    [
        ("hidden", (8, 0), "sequence of positive layer widths"),
        ("sparse_hidden", 8, "sequence of positive layer widths"),
        ("norm_weight", -1, "a number >= 0"),
        ("sparsity", 0.0, "a number > 0"),
        ("epsilon", 0, "a number > 0"),
        ("slope", -0.1, "a number > 0"),
        ("learn_scale", 1, "True or False"),
        ("max_steps", 0, "an integer >= 1"),
        ("batch_size", 1, "an integer >= 2"),
        ("sparse_steps", -1, "an integer >= 0"),
        ("sparse_rate", "fast", "a number > 0"),
        ("dual_rate", 0, "a number > 0"),
    ],
)
def test_bad_parameters_get_one_clear_error(sample, parameter, value, words):
    with pytest.raises(ValueError, match=f"'{parameter}' parameter of TwoStage must be .*{words}"):
        TwoStage(3, **QUICK | {parameter: value}).fit(sample.x)


def test_constant_columns_of_a_simulator_are_refused():
    still = make_pdgmm(50, n=3, rho="1 var", layers=1, random_state=0)
    still.source.latents.masks[:, 0] = False  # one latent never moves, and the mixing is the identity
    still.source.mixing.matrix_0.copy_(torch.eye(3))
    with pytest.raises(DataError, match="constant here: 0"):
        TwoStage(3, **QUICK).fit(still.source)
