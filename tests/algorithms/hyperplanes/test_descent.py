"""The descent behind sparse unmixing: its gradients are those of its values, and starts do not disturb each other."""

import pytest
import torch

from identifiable.algorithms.hyperplanes.descent import LogSize, Pinball, descend, ica_start, orient


def white_rows(sets=2, rows=400, n=3, seed=0):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(sets, rows, n, generator=rng, dtype=torch.float64)
    x = x * (torch.rand(sets, rows, n, generator=rng) < 0.5)
    x = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)
    return torch.cat([x, torch.ones(sets, rows, 1, dtype=torch.float64)], -1)


def starts(x, many=4, seed=1):
    rng = torch.Generator().manual_seed(seed)
    n = x.shape[-1] - 1
    return torch.eye(n, n + 1, dtype=x.dtype) + 0.5 * torch.randn(len(x), many, n, n + 1, generator=rng, dtype=x.dtype)


@pytest.mark.parametrize("contrast", [Pinball(torch.tensor([0.5, 0.1, 0.3, 0.05])), LogSize()])
def test_gradients_are_those_of_the_values(contrast):
    x = white_rows()
    W = starts(x)
    step, direction = 1e-5, torch.randn(W.shape, generator=torch.Generator().manual_seed(2), dtype=W.dtype)
    _, gradient, curvature = contrast(x, W, 0.2)
    ahead, behind = (contrast(x, W + sign * step * direction, 0.2)[0] for sign in (1, -1))
    torch.testing.assert_close((gradient * direction).sum(-1), (ahead - behind) / (2 * step), rtol=1e-6, atol=1e-8)
    assert (curvature > 0).all()


def test_each_start_and_each_data_set_descends_alone():
    x = white_rows()
    W = starts(x)
    tau = torch.tensor([0.5, 0.1, 0.3, 0.05])
    together = descend(x, W, Pinball(tau), (0.3, 0.1), 5)
    for d in range(len(x)):
        for s in range(len(tau)):
            alone = descend(x[d : d + 1], W[d : d + 1, s : s + 1], Pinball(tau[s : s + 1]), (0.3, 0.1), 5)
            torch.testing.assert_close(together[d, s], alone[0, 0], rtol=1e-6, atol=1e-8)


def test_a_start_without_descent_stays_and_others_go_on():
    class Rising(LogSize):
        """Higher for the first start each time it is asked for."""

        calls = 0

        def __call__(self, x, W, epsilon):
            value, gradient, curvature = super().__call__(x, W, epsilon)
            self.calls += 1
            value[:, 0] += self.calls
            return value, gradient, curvature

    x = white_rows()
    W = starts(x)
    found = descend(x, W, Rising(), (0.3, 0.1), 5)
    torch.testing.assert_close(found[:, 0], W[:, 0], rtol=0, atol=0)
    torch.testing.assert_close(found[:, 1:], descend(x, W[:, 1:], LogSize(), (0.3, 0.1), 5), rtol=1e-6, atol=1e-8)


def test_descent_lowers_the_objective_and_leaves_fixed_rows():
    x, tau = white_rows(), torch.tensor([0.5, 0.1, 0.3, 0.05])
    W = starts(x)
    found = descend(x, W, Pinball(tau), (0.1,), 20, fixed=1)

    def objective(W):
        return Pinball(tau)(x, W, 0.1)[0].sum(-1) - torch.linalg.slogdet(W[..., :-1])[1]

    assert (objective(found) < objective(W)).all()
    torch.testing.assert_close(found[:, :, :1], W[:, :, :1], rtol=0, atol=0)
    assert not torch.equal(found[:, :, 1:], W[:, :, 1:])


def test_offsets_sit_on_the_quantile():
    """Half of the rows have the lowest value: it is the τ-quantile of a coordinate, in its better sign."""
    rng = torch.Generator().manual_seed(0)
    z = torch.rand(2000, 3, generator=rng, dtype=torch.float64) * (torch.rand(2000, 3, generator=rng) < 0.5)
    x = torch.cat([z - z.mean(0), torch.ones(2000, 1)], 1)[None]
    turned = orient(x, -torch.eye(3, 4, dtype=x.dtype)[None, None], torch.tensor([0.2]))
    t = (x @ turned[0, 0].T)[0]
    inactive = (t.abs() < 1e-9).double().mean(0)
    assert (inactive > 0.4).all()
    assert (t > -1e-9).all()


@pytest.mark.parametrize("kind", ["tanh", "cube", "random"])
def test_starts_are_rotations(kind):
    x = white_rows()[..., :-1]
    W = ica_start(x, kind, torch.Generator().manual_seed(0))
    torch.testing.assert_close(W @ W.transpose(1, 2), torch.eye(3, dtype=x.dtype).expand(2, 3, 3))
    if kind != "random":
        assert (W.abs().amax(-1) > 0.97).all()  # independent sparse coordinates are found
