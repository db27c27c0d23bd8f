"""Mixtures as matrix products: values and hand-written gradients against the definition, component by component."""

import pytest
import torch

from identifiable.priors.quadratic import DIAGONAL, joint, log_mixture, upper_triangle

R, J, N, B = 2, 5, 3, 7


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def problem(kind):
    """Return a shape, matrices (R, J, N, N), and the arguments of `log_mixture`."""
    if kind == "diagonal":
        shape, packed = DIAGONAL, draw(R, J, N, seed=1).exp()
        matrices = torch.diag_embed(packed)
    else:
        roots = draw(R, J, N, N, seed=1)
        shape, matrices = upper_triangle(N, torch.device("cpu")), roots @ roots.mT
        packed = shape.pack(matrices)
    return shape, matrices, [draw(R, N, B), packed, draw(R, J, N, seed=2), draw(R, J, 1, seed=3)]


@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_values_are_those_of_the_definition(kind):
    shape, P, (z, packed, v, c) = problem(kind)
    square = torch.einsum("rib,rjik,rkb->rjb", z, P, z)
    expected = c + v @ z - 0.5 * square
    torch.testing.assert_close(joint(shape, z, packed, v, c), expected)
    torch.testing.assert_close(log_mixture(shape, z, packed, v, c), torch.logsumexp(expected, 1))


@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_gradients_are_those_of_finite_differences(kind):
    shape, _, given = problem(kind)
    for tensor in given:
        tensor.requires_grad_()
    assert torch.autograd.gradcheck(lambda *a: log_mixture(shape, *a), given)
    given[1].requires_grad_(False)  # the matrices are given
    assert torch.autograd.gradcheck(lambda *a: log_mixture(shape, *a), given)


def test_components_that_are_far_away_do_not_count():
    z, P = torch.full((1, 1, 1), 1e3, requires_grad=True), torch.ones(1, 2, 1)
    v, c = torch.tensor([[[0.0], [1e3]]]), torch.tensor([[[0.0], [-0.5e6]]])
    value = log_mixture(DIAGONAL, z, P, v, c)
    value.sum().backward()
    assert (float(value.detach()), float(z.grad)) == (0.0, 0.0)
