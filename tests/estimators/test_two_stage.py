"""TwoStage: its parts, the purpose of both stages, and no use of the ground truth."""

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
QUICK = {"n_restarts": 2, "random_state": 0, "verbose": 0, "hidden": (8,), "max_steps": 20, "batch_size": 64}
QUICK |= {"learning_rate": 1e-2, "sparse_hidden": (4, 4), "sparse_steps": 20, "sparse_rate": 1e-2, "dual_rate": 5e-3}


@pytest.fixture(scope="module")
def sample():
    return make_pdgmm(400, n=3, rho="1 var", layers=3, random_state=1)


def test_deep_linear_equals_its_layers_in_value_and_gradient():
    rng = torch.Generator().manual_seed(0)
    net = DeepLinear(3, (4, 10, 7, 2), rng=rng).double()
    x = torch.randn(3, 20, 4, generator=rng, dtype=torch.float64)
    outcomes = []
    for forward in (net.forward, lambda x: MLP.forward(net, x)):
        y = forward(x)
        outcomes.append([y, *torch.autograd.grad(y.sin().sum(), net.parameters())])
    for ours, theirs in zip(*outcomes, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_half_norm_is_a_gaussian_density_up_to_a_constant():
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
    assert np.abs(z).mean() < 0.1  # shrinks towards the bound, .01
    error = model.inverse_transform(z) - sample.x
    assert np.square(error).mean() < 0.1 * sample.x.var()


def test_the_norm_term_starts_at_half_the_latents(sample):
    """Batch normalisation starts at unit variance: E‖y‖² / 2 = n / 2, whatever the data."""
    settings = QUICK | {"max_steps": 1, "sparse_steps": 0}
    first = [TwoStage(3, **settings, norm_weight=w).fit(sample.x).history_.loss for w in (0.0, 1.0, 2.0)]
    np.testing.assert_allclose((first[1] - first[0], first[2] - first[0]), [[[1.5, 1.5]], [[3, 3]]], rtol=1e-2)


def test_the_norm_term_only_shrinks_the_code(sample):
    settings, sizes = QUICK | {"max_steps": 120, "sparse_steps": 0}, {}
    for weight, free in ((0.0, True), (10.0, True), (0.0, False), (10.0, False)):
        model = TwoStage(3, **settings, norm_weight=weight, learn_scale=free, epsilon=1e-5 if free else 1e-12)
        sizes[weight, free] = np.square(model.fit(sample.x).stage1_transform(sample.x)).mean()
    assert sizes[10.0, True] < 0.3 * sizes[0.0, True]
    assert sizes[10.0, False] == pytest.approx(1, abs=0.05)
    assert sizes[0.0, False] == pytest.approx(1, abs=0.05)


def test_both_codes_are_standardised_over_the_training_rows(sample):
    """With fewer than 100 rows all of them train."""
    x = sample.x[:90]
    model = TwoStage(3, **QUICK, learn_scale=False, epsilon=1e-12).fit(x)
    for z in (model.stage1_transform(x), model.transform(x)):
        np.testing.assert_allclose(z.mean(0), 0, atol=1e-5)
        np.testing.assert_allclose(z.std(0), 1, rtol=1e-4)
    np.testing.assert_allclose(model.latents_of_restarts(x)[model.kept_], model.transform(x), atol=1e-5)


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
    decoded = linear.decoder(z)[0].numpy()
    np.testing.assert_allclose(y[0].numpy() @ model.components_.T - model.offset_, z[0].numpy(), atol=1e-5)
    np.testing.assert_allclose(z[0].numpy() @ model.mixing_.T + model.origin_, decoded, atol=1e-5)


def test_without_steps_there_is_no_second_stage(sample):
    model = TwoStage(3, **QUICK | {"sparse_steps": 0}).fit(sample.x)
    np.testing.assert_array_equal(model.transform(sample.x), model.stage1_transform(sample.x))
    assert model.sparse_history_ is None


def test_every_step_runs_and_the_ground_truth_does_not_enter(sample):
    model = TwoStage(3, **QUICK).fit(sample.x)
    assert model.history_.step[-1] == 20
    assert model.sparse_history_.step[-1] == 20
    assert model.history_.learning_rate.tolist() == [1e-2] * 20  # constant
    assert model.sparse_history_.multipliers.shape == (2, 1)
    other = TwoStage(3, **QUICK).fit(sample.x, sample.z)
    np.testing.assert_array_equal(model.transform(sample.x), other.transform(sample.x))


def test_a_simulator_gives_fresh_rows(sample):
    a, b = (TwoStage(3, **QUICK).fit(sample.source) for _ in range(2))
    np.testing.assert_array_equal(a.transform(sample.x), b.transform(sample.x))
    pilot = sample.source.sample(20_000, a._seed()).x  # the same units and initialisation, other batches
    fixed = TwoStage(3, **QUICK).fit(pilot)
    np.testing.assert_allclose(fixed.mean_, a.mean_, atol=1e-12)
    assert not np.array_equal(a.transform(sample.x), fixed.transform(sample.x))


@pytest.mark.parametrize("restarts", [1, 2])
def test_fit_many_equals_separate_fits(restarts):
    """Also with unequal sizes: a data set with fewer rows than a batch has batches of its size."""
    sets = [make_pdgmm(rows, n=3, rho="1 var", layers=3, random_state=i) for i, rows in enumerate((300, 60, 250))]
    given = [sets[0].x, sets[1].x, sets[2].source]
    model = TwoStage(3, **QUICK | {"n_restarts": restarts})
    for s, x, one in zip(sets, given, model.fit_many(given), strict=True):
        alone = TwoStage(3, **QUICK | {"n_restarts": restarts}).fit(x)
        np.testing.assert_allclose(one.sparse_history_.loss, alone.sparse_history_.loss, rtol=1e-4)
        assert one.sparse_history_.multipliers.shape == (restarts, 1)
        if restarts == 1:  # two restarts agree equally with each other: either may be kept
            np.testing.assert_allclose(one.transform(s.x), alone.transform(s.x), atol=1e-4)


@pytest.mark.parametrize(
    ("name", "value"), [("sparse_hidden", 8), ("norm_weight", -1), ("sparse_steps", -1), ("sparse_rate", "fast")]
)
def test_wrong_parameters_are_refused(sample, name, value):
    with pytest.raises(ValueError, match=f"'{name}' parameter of TwoStage"):
        TwoStage(3, **QUICK | {name: value}).fit(sample.x)


def test_constant_columns_of_a_simulator_are_refused():
    still = make_pdgmm(50, n=3, rho="1 var", layers=1, random_state=0)
    still.source.latents.masks[:, 0] = False  # one latent is always inactive, and the mixing is the identity
    still.source.mixing.matrix_0.copy_(torch.eye(3))
    with pytest.raises(DataError, match="constant"):
        TwoStage(3, **QUICK).fit(still.source)
