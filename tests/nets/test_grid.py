"""Convolutions between images and grids of latents: shapes, equivariance and independent members."""

import numpy as np
import pytest
import torch

from identifiable.nets import select_member
from identifiable.nets.grid import GridDecoder, GridEncoder, GridNet, Residual


@pytest.mark.parametrize(("shape", "grid"), [((32, 32, 3), (8, 8)), ((28, 28, 1), (7, 7)), ((10, 5, 1), (3, 2))])
def test_a_grid_is_a_quarter_of_height_and_width(shape, grid):
    d, latents = np.prod(shape), 5 * np.prod(grid)
    net = GridNet(width=4).for_columns(d, shape)
    assert net.grid == grid
    z = net.encoder(2, d, latents)(torch.zeros(2, 3, d))
    assert z.shape == (2, 3, latents)
    assert net.decoder(2, latents, d)(z).shape == (2, 3, d)


@torch.no_grad()
def test_an_image_shifted_by_a_position_shifts_the_grid():
    rng = torch.Generator().manual_seed(0)
    encoder = GridEncoder(1, (64, 64, 1), 3, width=4, rng=rng).eval()
    decoder = GridDecoder(1, 3, (64, 64, 1), width=4, rng=rng).eval()
    image = torch.rand(1, 1, 64, 64, generator=rng)
    shifted = image.roll((4, 8), (2, 3))
    here, there = (encoder(t.reshape(1, 1, -1)).reshape(16, 16, 3) for t in (image, shifted))
    inner = slice(5, 11)
    torch.testing.assert_close(there.roll((-1, -2), (0, 1))[inner, inner], here[inner, inner])
    here, there = (decoder(t.reshape(1, 1, -1)).reshape(64, 64) for t in (here, here.roll((1, 2), (0, 1))))
    inner = slice(20, 36)
    torch.testing.assert_close(there.roll((-4, -8), (0, 1))[inner, inner], here[inner, inner])


@torch.no_grad()
def test_members_are_independent():
    rng = torch.Generator().manual_seed(0)
    net = GridNet(width=4).for_columns(48, (4, 4, 3))
    x, z = torch.rand(2, 5, 48, generator=rng), torch.rand(2, 5, 3, generator=rng)
    for module, rows in ((net.encoder(2, 48, 3, rng=rng), x), (net.decoder(2, 3, 48, rng=rng), z)):
        for r in range(2):
            torch.testing.assert_close(select_member(module, r)(rows[[r]]), module(rows)[[r]])


@torch.no_grad()
def test_a_residual_block_adds_to_its_input():
    block, x = Residual(2, 3, rng=torch.Generator().manual_seed(0)).eval(), torch.rand(1, 6, 4, 4)
    torch.testing.assert_close(block(x), x + block.branch(x))
    assert not torch.allclose(block(x), x)
    for parameter in block.parameters():
        parameter.zero_()
    torch.testing.assert_close(block(x), x)
