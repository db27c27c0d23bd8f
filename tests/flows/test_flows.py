"""Flows by their laws: inverse, Jacobian, start, independence of members, limits. In float64 unless said."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from identifiable.flows.flows import AutoregressiveFlow, SmoothLeakyFlow, SoftplusFlow, _BentLayers, _Layers
from identifiable.nets import select_member
from identifiable.training import Anneal, Plan, minimise


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make(members=3, n=4, depth=5, *, kind=SmoothLeakyFlow, beta=5.0, spread=0.7, seed=0, **options):
    """A flow far from its start: slopes exp(spread N), of both sides of 1, and bends at ±exp(spread N)."""
    rng = torch.Generator().manual_seed(seed)
    start = torch.eye(n, dtype=torch.float64) + 0.3 * draw(members, n, n, seed=seed + 1)
    flow = kind(members, n, depth, start=start, rng=rng, **options)
    if kind is SmoothLeakyFlow:
        flow.beta.fill_(beta)
    with torch.no_grad():
        flow.weight += 0.05 * draw(*flow.weight.shape, seed=seed + 2)
        for i, shape in enumerate(shapes(flow)):
            shape += spread * draw(*shape.shape, seed=seed + 3 + i)
    return flow


def shapes(flow):
    """The parameters of the functions between the affine maps."""
    return [flow.log_slope] if isinstance(flow, SmoothLeakyFlow) else [flow.log_slopes, flow.log_bend]


def single(kind, *log_shapes, beta=1.0):
    """The function of one unit alone, between two maps that do nothing."""
    flow = kind(1, 1, 2, start=torch.eye(1, dtype=torch.float64))
    if kind is SmoothLeakyFlow:
        flow.beta.fill_(beta)
    with torch.no_grad():
        flow.weight.fill_(1.0)
        flow.bias.zero_()
        for shape, value in zip(shapes(flow), log_shapes, strict=True):
            shape.copy_(torch.tensor(value, dtype=torch.float64).reshape(-1, 1, 1).expand_as(shape))
    return flow


def reference(flow, x):
    """The formulas of the docstrings, word by word, left to automatic differentiation."""
    h, log_det = x, torch.zeros_like(x[..., 0])
    for layer in range(flow.weight.shape[1]):
        if layer > 0:
            h, slope = (leaky if isinstance(flow, SmoothLeakyFlow) else bent)(flow, layer - 1, h)
            log_det = log_det + slope.log().sum(-1)
        biases = flow.biases if isinstance(flow, SmoothLeakyFlow) else flow.bias
        h = h @ flow.weight[:, layer] + biases[:, layer, None]
        log_det = log_det + torch.linalg.slogdet(flow.weight[:, layer])[1][:, None]
    return h, log_det


def leaky(flow, layer, h):
    a, beta = flow.log_slope[:, layer, None].exp(), flow.beta
    value = a * h + (1 - a) * (torch.logaddexp(beta * h, torch.zeros_like(h)) - math.log(2)) / beta
    return value, a + (1 - a) * torch.sigmoid(beta * h)


def bent(flow, layer, h):
    (s, r), e = flow.log_slopes[:, :, layer, None].exp().unbind(1), flow.log_bend[:, layer, None].exp()
    right, left = 2 * (h - e), -2 * (h + e)
    zero = torch.zeros_like(h)
    value = h + ((r - 1) * torch.logaddexp(right, zero) - (s - 1) * torch.logaddexp(left, zero)) / 2
    return value, 1 + (r - 1) * torch.sigmoid(right) + (s - 1) * torch.sigmoid(left)


every_flow = pytest.mark.parametrize("kind", [SmoothLeakyFlow, SoftplusFlow])


@every_flow
@settings(deadline=None, max_examples=25)
@given(beta=st.floats(1, 200), spread=st.floats(0, 1), depth=st.integers(1, 8), seed=st.integers(0, 2**16))
def test_the_inverse_undoes_the_flow_and_the_flow_the_inverse(kind, beta, spread, depth, seed):
    flow = make(2, 3, depth, kind=kind, beta=beta, spread=spread, seed=seed)
    with torch.no_grad():
        flow.weight.copy_(torch.linalg.qr(flow.weight)[0])  # well conditioned: what is tested is not the data's luck
    x = 3 * draw(2, 50, 3, seed=seed)
    torch.testing.assert_close(flow.inverse(flow(x)[0]), x, rtol=0, atol=1e-9)
    torch.testing.assert_close(flow(flow.inverse(x))[0].detach(), x, rtol=0, atol=1e-9)


@pytest.mark.parametrize("log_slope", [-9.0, -3.0, 0.0, 3.0, 9.0])
def test_one_activation_is_inverted_to_rounding_at_any_slope(log_slope):
    flow = single(SmoothLeakyFlow, log_slope)
    x = torch.cat([torch.linspace(-1e3, 1e3, 999), torch.linspace(-5, 5, 999)]).double()[:, None]
    for beta in (1.0, 20.0, 200.0):
        flow.beta.fill_(beta)
        t, log_det = flow(x)
        # x is as exact as the rounding of t allows: magnified by 1 / slope, and by 36 where softplus nearly vanishes.
        rounding = 64 * torch.finfo(torch.float64).eps * (x.abs() + t.abs() + 1)
        assert ((flow.inverse(t) - x).abs() <= rounding / log_det.exp().clamp(max=1)[..., None]).all()


@pytest.mark.parametrize("log_slopes", [(0.0, 0.0), (3.0, -3.0), (-8.0, 8.0), (-8.0, -8.0), (8.0, 8.0)])
@pytest.mark.parametrize("log_bend", [-4.0, 0.0, 4.0])
def test_two_bends_are_inverted_to_rounding_at_any_slopes_all_rows_at_once(log_slopes, log_bend):
    flow = single(SoftplusFlow, log_slopes, log_bend)
    x = torch.cat([torch.linspace(-1e6, 1e6, 999), torch.linspace(-100, 100, 999), torch.linspace(-3, 3, 999)])
    x = x.double()[:, None]
    t, log_det = flow(x)
    # As above; what nearly vanishes is multiplied by up to e^8.
    rounding = 64 * torch.finfo(torch.float64).eps * (x.abs() + t.abs() + 1 + math.exp(max(*log_slopes, log_bend)))
    error = (flow.inverse(t) - x).abs()
    assert (error <= rounding / log_det.exp().clamp(max=1)[..., None]).all()


@every_flow
@pytest.mark.parametrize("beta", [1.0, 20.0, 200.0])
def test_the_log_determinant_is_that_of_the_jacobian(kind, beta):
    flow = make(3, 4, 5, kind=kind, beta=beta, spread=min(1.0, 5 / beta))
    x = draw(3, 20, 4, seed=7).requires_grad_()
    t, log_det = flow(x)
    rows = [torch.autograd.grad(t[..., i].sum(), x, retain_graph=True)[0] for i in range(4)]
    jacobian = torch.stack(rows, dim=-1)
    torch.testing.assert_close(log_det, torch.linalg.slogdet(jacobian)[1], rtol=0, atol=1e-9)


@every_flow
@pytest.mark.parametrize("depth", [1, 2, 6])
def test_values_and_gradients_are_those_of_the_formula_with_one_sharpness_per_member(kind, depth):
    flow = make(3, 4, depth, kind=kind)
    if kind is SmoothLeakyFlow:
        flow.beta.copy_(torch.tensor([1.0, 12.0, 150.0])[:, None, None])
    x = draw(3, 30, 4, seed=5).requires_grad_()
    inputs = [x, *flow.parameters()]
    results = []
    for t, log_det in (flow(x), reference(flow, x)):
        loss = (t.pow(3) + t * draw(3, 30, 4, seed=6)).sum() + (log_det * draw(3, 30, seed=8)).sum()
        results.append([t, log_det, *torch.autograd.grad(loss, inputs, allow_unused=True)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, torch.zeros_like(ours) if theirs is None else theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("depth", [1, 3])
def test_the_gradient_written_by_hand_is_that_of_the_function(depth):
    A = torch.eye(3, dtype=torch.float64) + 0.3 * draw(2, depth, 3, 3)
    a = draw(2, depth - 1, 3, seed=3).exp()
    inputs = [v.requires_grad_() for v in (draw(2, 3, 4, seed=1), A, draw(2, depth, 3, seed=2), a)]
    assert torch.autograd.gradcheck(lambda *v: _Layers.apply(*v, True), inputs)


@pytest.mark.parametrize("depth", [1, 3])
def test_the_gradient_of_two_bends_written_by_hand_is_that_of_the_function(depth):
    A = torch.eye(3, dtype=torch.float64) + 0.3 * draw(2, depth, 3, 3)
    s, r = (draw(2, depth - 1, 3, seed=seed).expm1() for seed in (3, 4))
    e = draw(2, depth - 1, 3, seed=5).exp()
    inputs = [v.requires_grad_() for v in (2 * draw(2, 3, 4, seed=1), A, draw(2, depth, 3, seed=2), s, r, e)]
    assert torch.autograd.gradcheck(lambda *v: _BentLayers.apply(*v, True), inputs)


@every_flow
@pytest.mark.parametrize("per_member", [False, True])
def test_with_slopes_of_one_the_start_is_the_linear_map_it_was_given(kind, per_member):
    W = draw(3, 4, 4) if per_member else draw(4, 4)
    flow = kind(3, 4, 7, start=W, rng=torch.Generator().manual_seed(0))
    assert flow.weight.dtype == torch.float64
    with torch.no_grad():
        flow.bias.zero_()
        shapes(flow)[0].zero_()
    x = draw(3, 50, 4, seed=1)
    t, log_det = flow(x)
    torch.testing.assert_close(t, x @ W, rtol=0, atol=1e-12)
    torch.testing.assert_close(log_det, torch.linalg.slogdet(W)[1].expand(50, 3).T, rtol=0, atol=1e-12)


@every_flow
def test_the_start_is_near_the_linear_map_and_differs_between_members_and_a_seed_repeats_it(kind):
    W, x = draw(4, 4), draw(500, 4, seed=1)
    flows = [kind(3, 4, 16, start=W, rng=torch.Generator().manual_seed(s)) for s in (0, 0, 1)]
    t, again, other = (flow(x)[0] for flow in flows)
    error = (t - x @ W).square().mean((1, 2)) / (x @ W).square().mean()
    assert (error < 0.15).all()
    assert torch.equal(t, again)
    assert not torch.allclose(t, other)
    rotations = flows[0].weight[:, 1:]
    assert not torch.allclose(rotations[0], rotations[1])
    torch.testing.assert_close(rotations @ rotations.mT, torch.eye(4).double().expand_as(rotations))


@every_flow
def test_a_member_alone_is_the_member_in_the_batch(kind):
    flow = make(3, kind=kind)
    if kind is SmoothLeakyFlow:
        flow.beta.copy_(torch.tensor([1.0, 12.0, 150.0])[:, None, None])
    x = draw(3, 40, 4)
    t, log_det = flow(x)
    for r in range(3):
        alone = select_member(flow, r)
        t_alone, log_det_alone = alone(x[r : r + 1])
        torch.testing.assert_close(t_alone[0], t[r], rtol=0, atol=1e-12)
        torch.testing.assert_close(log_det_alone[0], log_det[r], rtol=0, atol=1e-12)
        torch.testing.assert_close(alone.inverse(t[r])[0], x[r], rtol=0, atol=1e-9)


@every_flow
def test_a_member_feels_nothing_of_the_others(kind):
    flow, x = make(3, kind=kind), draw(3, 40, 4)
    before = flow(x)
    sum(part[0].square().sum() for part in flow(x)).backward()
    for p in flow.parameters():
        assert p.grad[0].abs().sum() > 0
        assert p.grad[1:].abs().sum() == 0
    with torch.no_grad():
        for p in (*flow.parameters(), *flow.buffers()):
            p[0] += 0.1
    for new, old in zip(flow(x), before, strict=True):
        torch.testing.assert_close(new[1:], old[1:], rtol=0, atol=0)
        assert not torch.allclose(new[0], old[0])


@every_flow
def test_rows_shared_by_all_members_are_the_same_rows_given_to_each_with_or_without_gradients(kind):
    flow, x = make(3, kind=kind), draw(40, 4)
    shared, each = flow(x), flow(x.expand(3, 40, 4))
    with torch.no_grad():
        silent = flow(x)
    for a, b, c in zip(shared, each, silent, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)
        torch.testing.assert_close(a, c, rtol=0, atol=0)
    torch.testing.assert_close(flow.inverse(x), flow.inverse(x.expand(3, 40, 4)), rtol=0, atol=0)


@pytest.mark.parametrize("beta", [1.0, 10.0, 200.0])
@pytest.mark.parametrize("slope", [0.2, 3.0])
def test_the_sharp_limit_is_the_leaky_relu(beta, slope):
    """|φ(h) - leaky(h)| <= |1 - a| log 2 / β, and the bound is met far from 0, where also the slopes are a and 1."""
    flow = single(SmoothLeakyFlow, math.log(slope), beta=beta)
    h = torch.linspace(-60, 60, 1001, dtype=torch.float64)[:, None]
    with torch.no_grad():
        t, log_det = flow(h)
        origin = flow(torch.zeros(1, 1, dtype=torch.float64))[0]
    error = (t[0] - F.leaky_relu(h, slope)).abs()
    bound = abs(1 - slope) * math.log(2) / beta
    assert error.max() <= bound * (1 + 1e-9)
    assert error[0].item() == pytest.approx(bound)
    assert origin.item() == pytest.approx(0.0, abs=1e-15)
    assert log_det[0, 0].item() == pytest.approx(math.log(slope))
    assert log_det[0, -1].item() == pytest.approx(0.0, abs=1e-12)


def test_the_tails_are_exact():
    """softplus(h) = h + log(1 + e^-h) to rounding, also where a threshold would have cut the last term off."""
    flow = single(SmoothLeakyFlow, math.log(0.5))
    for h in (-21.0, 21.0):
        softplus = max(h, 0.0) + math.log1p(math.exp(-abs(h)))
        t = flow(torch.full((1, 1), h, dtype=torch.float64))[0].item()
        assert t == pytest.approx(0.5 * h + 0.5 * (softplus - math.log(2)), rel=0, abs=2e-14)


@pytest.mark.parametrize("slopes", [(0.2, 4.0), (3.0, 2.0), (1.0, 0.1)])
def test_far_out_two_bends_are_three_lines(slopes):
    """Slope s, then 1 and no shift, then r, and the lines meet at the bends -e and e."""
    e, (s, r) = 20.0, slopes
    h = torch.tensor([-50.0, -40.0, -1.0, 0.0, 1.0, 40.0, 50.0], dtype=torch.float64)
    t, log_det = single(SoftplusFlow, (math.log(s), math.log(r)), math.log(e))(h[:, None])
    lines = h + (r - 1) * (h - e).clamp(min=0) - (s - 1) * (-h - e).clamp(min=0)
    torch.testing.assert_close(t[0, :, 0].detach(), lines, rtol=0, atol=1e-12)
    slope = torch.tensor([s, s, 1, 1, 1, r, r], dtype=torch.float64)
    torch.testing.assert_close(log_det[0].detach().exp(), slope, rtol=0, atol=1e-12)


def test_two_bends_undo_what_saturates_on_both_sides_and_one_does_not():
    """The least squares of one unit, h -> w φ(v h + b) + c, against the inverse of h -> tanh(h) + .1 h."""
    z = torch.linspace(-4, 4, 401, dtype=torch.float64)[:, None]
    x = torch.tanh(z) + 0.1 * z
    left = {}
    for kind in (SmoothLeakyFlow, SoftplusFlow):
        flow = kind(1, 1, 2, start=torch.eye(1, dtype=torch.float64), rng=torch.Generator().manual_seed(0))
        optimiser = torch.optim.LBFGS(flow.parameters(), max_iter=300, line_search_fn="strong_wolfe")

        def closure(flow=flow, optimiser=optimiser):
            optimiser.zero_grad()
            loss = (flow(x)[0] - z).square().mean()
            loss.backward()
            return loss

        optimiser.step(closure)
        left[kind] = closure().item() / z.square().mean().item()
    assert left[SoftplusFlow] < 0.01
    assert left[SoftplusFlow] < left[SmoothLeakyFlow] / 5


@every_flow
@pytest.mark.parametrize("log_slope", [-20.0, -1.0, 1.0])
def test_float32_stays_finite_however_far_out(kind, log_slope):
    flow = kind(2, 3, 4, rng=torch.Generator().manual_seed(0))
    assert flow.weight.dtype == torch.float32
    with torch.no_grad():
        shapes(flow)[0].fill_(log_slope)
        for buffer in flow.buffers():
            buffer.fill_(200.0)
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(1)) * torch.logspace(-6, 5, 200)[:, None]
    x.requires_grad_()
    t, log_det = flow(x)
    (t.sum() + log_det.sum()).backward()
    assert all(v.isfinite().all() for v in (t, log_det, x.grad, *(p.grad for p in flow.parameters())))
    lowest, highest = sorted((0.0, 9 * log_slope))
    assert (lowest - 1e-3 <= log_det).all()
    assert (log_det <= highest + 1e-3).all()


def test_without_inner_biases_the_sharp_flow_is_homogeneous():
    """f(c + λ v) - f(c) = λ (f(c + v) - f(c)), λ > 0, around the point c that the first layer sends to zero."""
    flow = make(inner_bias=False, beta=1e9)
    c = -torch.linalg.solve(flow.weight[:, 0].mT, flow.bias[:, 0, :, None]).mT.detach()
    v = draw(3, 20, 4, seed=5)
    at_c = flow(c)[0]
    torch.testing.assert_close(flow(c + 3 * v)[0] - at_c, 3 * (flow(c + v)[0] - at_c), rtol=0, atol=1e-7)
    assert flow.bias.shape == (3, 2, 4)
    assert make(depth=2, inner_bias=False).bias.shape == (3, 2, 4)


@pytest.mark.parametrize("inner_bias", [False, True])
def test_the_inverse_and_the_formula_hold_without_inner_biases_too(inner_bias):
    flow = make(inner_bias=inner_bias)
    x = draw(3, 20, 4, seed=6)
    t, log_det = flow(x)
    expected = reference(flow, x)
    torch.testing.assert_close((t, log_det), expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(flow.inverse(t.detach()), x, rtol=0, atol=1e-9)


@every_flow
def test_an_affine_map_is_taken_into_the_last_layer(kind):
    flow = make(kind=kind)
    x, W, b = draw(3, 20, 4, seed=6), draw(3, 4, 4, seed=7), draw(3, 4, seed=8)
    t, log_det = flow(x)
    expected = (t @ W + b[:, None]).detach(), (log_det + torch.linalg.slogdet(W)[1][:, None]).detach()
    flow.then(W, b)
    t, log_det = flow(x)
    torch.testing.assert_close((t.detach(), log_det.detach()), expected, rtol=0, atol=1e-10)


@every_flow
def test_maximum_likelihood_finds_the_density_of_another_flow(kind):
    """x = f⁻¹(z), z ~ N(0, I): no density has a lower mean nll than the truth's, and training comes close to it."""
    truth = make(1, 2, 3, kind=kind, beta=3.0, spread=1.0, seed=4).float()
    z = draw(4000, 2, seed=9).float()
    x = truth.inverse(z)[0]
    flow = kind(2, 2, 6, rng=torch.Generator().manual_seed(0))

    def nll(flow, x):
        t, log_det = flow(x)
        return (0.5 * t.square().sum(-1) - log_det).mean(1)

    def loss(batch, step):
        for beta in flow.buffers():
            beta.copy_((3 / step.annealed["e"]).clamp(max=200))
        return nll(flow, batch[0])

    plan = Plan(steps=250, batch_size=512, learning_rate=1e-2, clip=5.0, anneal={"e": Anneal(1.0, 0.1)})
    minimise(flow, loss, [x], plan)
    assert all(beta.flatten().tolist() == pytest.approx([30.0, 30.0]) for beta in flow.buffers())
    with torch.no_grad():
        linear = 1 + torch.linalg.slogdet(torch.cov(x.T))[1] / 2  # the best Gaussian's nll, without log 2π
        best, ours = nll(truth, x), nll(flow, x)
    assert linear > best + 0.1
    assert (ours < best + 0.03).all()


@every_flow
@pytest.mark.parametrize("sizes", [(0, 2, 2), (1, 0, 2), (1, 2, 0)])
def test_bad_sizes(kind, sizes):
    with pytest.raises(ValueError, match="at least 1"):
        kind(*sizes)


@every_flow
@pytest.mark.parametrize("shape", [(3, 3), (2, 2, 2), (2,)])
def test_a_start_of_the_wrong_shape(kind, shape):
    with pytest.raises(ValueError, match=r"\(members, n, n\)"):
        kind(3, 2, 4, start=torch.ones(shape))


# -- autoregressive layers ----------------------------------------------------------


@pytest.fixture(scope="module")
def autoregressive():
    rng = torch.Generator().manual_seed(0)
    start = torch.eye(3) + 0.3 * torch.randn(2, 3, 3, generator=rng)
    return AutoregressiveFlow(2, 3, 4, start=start, hidden=(16,), rng=rng).double()


def test_autoregressive_inverse_and_jacobian(autoregressive):
    x = draw(2, 6, 3)
    t, log_det = autoregressive(x)
    torch.testing.assert_close(autoregressive.inverse(t), x, rtol=1e-8, atol=1e-8)
    for r in range(2):
        for b in range(6):
            jacobian = torch.autograd.functional.jacobian(
                lambda v, r=r: autoregressive(v.expand(2, 1, 3))[0][r, 0], x[r, b]
            )
            torch.testing.assert_close(torch.linalg.slogdet(jacobian).logabsdet, log_det[r, b].detach())


def test_autoregressive_members_are_independent(autoregressive):
    x = draw(2, 6, 3)
    t, log_det = autoregressive(x)
    for r in range(2):
        alone = select_member(autoregressive, r)
        torch.testing.assert_close(alone(x[r : r + 1])[0][0], t[r])
        torch.testing.assert_close(alone(x[r : r + 1])[1][0], log_det[r])
    one, other = autoregressive(x[0])[0]
    assert not torch.allclose(one, other)


def test_autoregressive_layers_see_earlier_coordinates_only():
    """One layer: coordinate i of t depends on coordinates up to i of x, and on no later one."""
    flow = AutoregressiveFlow(1, 3, 1, hidden=(16,), rng=torch.Generator().manual_seed(0)).double()
    jacobian = torch.autograd.functional.jacobian(lambda v: flow(v.expand(1, 1, 3))[0][0, 0], draw(3))
    torch.testing.assert_close(jacobian, torch.tril(jacobian))
    assert jacobian.tril(-1).abs().max() > 1e-6


def test_an_affine_map_follows_an_autoregressive_flow():
    flow, x = AutoregressiveFlow(2, 3, 2, hidden=(8,), rng=torch.Generator().manual_seed(1)).double(), draw(2, 6, 3)
    W, b = torch.eye(3, dtype=torch.float64) + 0.2 * draw(2, 3, 3, seed=5), draw(2, 3, seed=6)
    before, log_det = flow(x)
    flow.then(W, b)
    after, changed = flow(x)
    torch.testing.assert_close(after, before @ W + b[:, None])
    torch.testing.assert_close(changed, log_det + torch.linalg.slogdet(W).logabsdet[:, None])
