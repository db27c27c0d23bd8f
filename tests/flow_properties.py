"""Properties that every flow has, as classes of tests that the test modules inherit. In float64 unless stated."""

import pytest
import torch

from identifiable.nets import select_member
from identifiable.training import Anneal, Plan, minimise


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class FlowProperties:
    """A subclass defines `make(members, n, depth, seed=)`, a flow far from its start, and `kind`, its class."""

    @pytest.mark.parametrize("depth", [1, 2, 6])
    @pytest.mark.parametrize("seed", range(3))
    def test_inverse_recovers_x_and_forward_recovers_t(self, depth, seed):
        flow, x = self.make(2, 3, depth, seed=seed), draw(2, 30, 3, seed=seed)
        with torch.no_grad():
            flow.weight.copy_(torch.linalg.qr(flow.weight)[0])  # well conditioned for every seed
            torch.testing.assert_close(flow.inverse(flow(x)[0]), x, rtol=0, atol=1e-8)
            torch.testing.assert_close(flow(flow.inverse(x))[0], x, rtol=0, atol=1e-8)

    def test_log_determinant_is_that_of_the_jacobian(self):
        flow, x = self.make(3, 4, 3), draw(3, 10, 4, seed=7).requires_grad_()
        t, log_det = flow(x)
        rows = [torch.autograd.grad(t[..., i].sum(), x, retain_graph=True)[0] for i in range(4)]
        jacobian = torch.stack(rows, dim=-1)
        torch.testing.assert_close(log_det, torch.linalg.slogdet(jacobian)[1], rtol=0, atol=1e-9)

    def test_members_do_not_depend_on_each_other(self):
        flow, x = self.make(3, 4, 3), draw(3, 20, 4)
        before = flow(x)
        for r in range(3):
            alone = select_member(flow, r)
            torch.testing.assert_close(alone(x[r : r + 1])[0][0], before[0][r], rtol=0, atol=1e-12)
            torch.testing.assert_close(alone(x[r : r + 1])[1][0], before[1][r], rtol=0, atol=1e-12)
            torch.testing.assert_close(alone.inverse(before[0][r])[0], x[r], rtol=0, atol=1e-8)
        sum(part[0].square().sum() for part in before).backward()
        for p in flow.parameters():
            assert p.grad[0].abs().sum() > 0
            assert p.grad[1:].abs().sum() == 0

    def test_rows_shared_by_all_members_equal_rows_given_to_each(self):
        flow, x = self.make(3, 4, 3), draw(20, 4)
        shared, each = flow(x), flow(x.expand(3, 20, 4))
        with torch.no_grad():
            without_gradients = flow(x)
        for a, b, c in zip(shared, each, without_gradients, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0)
            torch.testing.assert_close(a, c, rtol=0, atol=0)
        torch.testing.assert_close(flow.inverse(x), flow.inverse(x.expand(3, 20, 4)), rtol=0, atol=0)

    def test_then_follows_the_flow_by_an_affine_map(self):
        flow = self.make(3, 4, 2)
        x, W, b = draw(3, 20, 4, seed=6), draw(3, 4, 4, seed=7), draw(3, 4, seed=8)
        t, log_det = flow(x)
        expected = (t @ W + b[:, None]).detach(), (log_det + torch.linalg.slogdet(W)[1][:, None]).detach()
        flow.then(W, b)
        t, log_det = flow(x)
        torch.testing.assert_close((t.detach(), log_det.detach()), expected, rtol=0, atol=1e-10)

    def test_a_seed_determines_the_start(self):
        x = draw(50, 4, seed=1).float()
        flows = [self.kind(3, 4, 3, rng=torch.Generator().manual_seed(s)) for s in (0, 0, 1)]
        before = torch.get_rng_state()
        first, again, other = (flow(x)[0] for flow in flows)
        assert torch.equal(first, again)
        assert not torch.allclose(first, other)
        assert not torch.allclose(first[0], first[1])
        assert torch.equal(before, torch.get_rng_state())

    @pytest.mark.parametrize("sizes", [(0, 2, 2), (1, 0, 2), (1, 2, 0)])
    def test_sizes_below_one_are_refused(self, sizes):
        with pytest.raises(ValueError, match="at least 1"):
            self.kind(*sizes)

    @pytest.mark.parametrize("shape", [(3, 3), (2, 2, 2), (2,)])
    def test_a_start_of_the_wrong_shape_is_refused(self, shape):
        with pytest.raises(ValueError, match="start"):
            self.kind(3, 2, 4, start=torch.ones(shape))


class LayeredFlowProperties(FlowProperties):
    """A subclass also defines `activation(flow, layer, h)` by the formulas of its docstring, and `SLOPES`.

    `SLOPES` is the name of the parameter with the logarithms of the slopes.
    """

    @pytest.mark.parametrize("depth", [1, 2, 5])
    def test_values_and_gradients_are_those_of_the_formula(self, depth):
        flow, x = self.make(3, 4, depth), draw(3, 30, 4, seed=5).requires_grad_()
        results = []
        for t, log_det in (flow(x), self.reference(flow, x)):
            loss = (t.pow(3) + t * draw(3, 30, 4, seed=6)).sum() + (log_det * draw(3, 30, seed=8)).sum()
            results.append([t, log_det, *torch.autograd.grad(loss, [x, *flow.parameters()], allow_unused=True)])
        for ours, expected in zip(*results, strict=True):
            expected = torch.zeros_like(ours) if expected is None else expected
            torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)

    def reference(self, flow, x):
        h, log_det = x, torch.zeros_like(x[..., 0])
        for layer in range(flow.weight.shape[1]):
            if layer > 0:
                h, slope = self.activation(flow, layer - 1, h)
                log_det = log_det + slope.log().sum(-1)
            h = h @ flow.weight[:, layer] + flow.biases[:, layer, None]
            log_det = log_det + torch.linalg.slogdet(flow.weight[:, layer])[1][:, None]
        return h, log_det

    @pytest.mark.parametrize("per_member", [False, True])
    def test_the_start_is_the_linear_map_where_all_slopes_are_one(self, per_member):
        W, x = draw(3, 4, 4) if per_member else draw(4, 4), draw(50, 4, seed=1)
        flow = self.kind(3, 4, 7, start=W, rng=torch.Generator().manual_seed(0))
        t = flow(x)[0]
        assert ((t - x @ W).square().mean((1, 2)) < 0.15 * (x @ W).square().mean()).all()
        with torch.no_grad():
            flow.bias.zero_()
            getattr(flow, self.SLOPES).zero_()
        t, log_det = flow(x)
        torch.testing.assert_close(t, (x @ W).expand_as(t), rtol=0, atol=1e-12)
        torch.testing.assert_close(log_det, torch.linalg.slogdet(W)[1].expand(50, 3).T, rtol=0, atol=1e-12)
        rotations = flow.weight[:, 1:]
        torch.testing.assert_close(rotations @ rotations.mT, torch.eye(4).double().expand_as(rotations))

    @pytest.mark.parametrize("log_slope", [-20.0, -1.0, 1.0])
    def test_float32_is_finite_for_large_and_small_x(self, log_slope):
        flow = self.kind(2, 3, 4, rng=torch.Generator().manual_seed(0))
        with torch.no_grad():
            getattr(flow, self.SLOPES).fill_(log_slope)
            for buffer in flow.buffers():
                buffer.fill_(200.0)
        x = (draw(200, 3, seed=1) * torch.logspace(-6, 5, 200)[:, None]).float().requires_grad_()
        t, log_det = flow(x)
        (t.sum() + log_det.sum()).backward()
        assert all(v.isfinite().all() for v in (t, log_det, x.grad, *(p.grad for p in flow.parameters())))
        lowest, highest = sorted((0.0, 9 * log_slope))
        assert (lowest - 1e-3 <= log_det).all()
        assert (log_det <= highest + 1e-3).all()

    def test_maximum_likelihood_finds_the_density_of_another_flow(self):
        """x = f⁻¹(z), z ~ N(0, I): no density has a lower mean nll than that of f, and training comes close to it."""
        truth = self.make(1, 2, 3, seed=4).float()
        getattr(truth, self.SLOPES).data.mul_(1.4)  # far from linear
        x = truth.inverse(draw(3000, 2, seed=9).float())[0]
        flow = self.kind(2, 2, 6, rng=torch.Generator().manual_seed(0))

        def nll(flow, x):
            t, log_det = flow(x)
            return (0.5 * t.square().sum(-1) - log_det).mean(1)

        def loss(batch, step):
            for beta in flow.buffers():
                beta.copy_((3 / step.annealed["e"]).clamp(max=200))
            return nll(flow, batch[0])

        plan = Plan(steps=200, batch_size=512, learning_rate=1e-2, clip=5.0, anneal={"e": Anneal(1.0, 0.1)})
        minimise(flow, loss, [x], plan)
        with torch.no_grad():
            gaussian = 1 + torch.linalg.slogdet(torch.cov(x.T))[1] / 2  # the best Gaussian's nll, without log 2π
            best, ours = nll(truth, x), nll(flow, x)
        assert gaussian > best + 0.05
        assert (ours - best < (gaussian - best) / 5).all()


def far_from_start(kind, members, n, depth, seed, sd, **options):
    """Build a flow whose coefficients have logarithms of standard deviation `sd`."""
    start = torch.eye(n, dtype=torch.float64) + 0.3 * draw(members, n, n, seed=seed + 1)
    flow = kind(members, n, depth, start=start, rng=torch.Generator().manual_seed(seed), **options)
    with torch.no_grad():
        for i, (name, p) in enumerate(flow.named_parameters()):
            if name != "bias":
                p += (0.05 if name == "weight" else sd) * draw(*p.shape, seed=seed + 2 + i)
    return flow


def single_unit(kind, beta=None, **logs):
    """Return the function of one unit alone, between two identity maps, with these parameters."""
    flow = kind(1, 1, 2, start=torch.eye(1, dtype=torch.float64))
    with torch.no_grad():
        if beta is not None:
            flow.beta.fill_(beta)
        flow.weight.fill_(1.0)
        flow.bias.zero_()
        for name, value in logs.items():
            p = getattr(flow, name)
            p.copy_(torch.tensor(value, dtype=torch.float64).reshape(-1, 1, 1).expand_as(p))
    return flow
