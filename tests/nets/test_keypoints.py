"""Keypoint nets: positions of sprites, and the image painted from them."""

import pytest
import torch

from identifiable.nets.keypoints import COLOUR_UNIT, PATCH, SPRITE_UNIT, Keypoints


@pytest.fixture
def net():
    """Two members with two opaque square sprites, red over blue, on a white 24 x 32 image."""
    net = Keypoints(torch.ones(24, 32, 3), slots=2, members=2, rng=torch.Generator().manual_seed(0))
    with torch.no_grad():
        net.alpha.fill_(-20 / SPRITE_UNIT)
        net.alpha[..., PATCH // 2 - 1 : PATCH // 2 + 2, PATCH // 2 - 1 : PATCH // 2 + 2] = 20 / SPRITE_UNIT
        net.paint.copy_(torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]) / COLOUR_UNIT)
        net.depth.copy_(torch.tensor([9.0, 0.0]) / COLOUR_UNIT)
    return net


@torch.no_grad()
def test_a_sprite_is_painted_at_its_keypoint(net):
    at = torch.tensor([10.5 / 32, 6.5 / 24, 25.5 / 32, 17.5 / 24]).expand(2, 1, 4)
    image = net.decode(at).reshape(2, 24, 32, 3)
    torch.testing.assert_close(image[:, 6, 10], torch.tensor([1.0, 0.0, 0.0]).expand(2, 3), atol=1e-2, rtol=0)
    torch.testing.assert_close(image[:, 17, 25], torch.tensor([0.0, 0.0, 1.0]).expand(2, 3), atol=1e-2, rtol=0)
    torch.testing.assert_close(image[:, 20, 3], torch.ones(2, 3), atol=1e-2, rtol=0)


@torch.no_grad()
def test_a_sprite_moves_by_fractions_of_a_pixel(net):
    net.depth.zero_()  # a pixel that is covered in part is painted in part
    centres = []
    for x in (10.5, 10.75, 11.0):
        image = net.decode(torch.tensor([x / 32, 0.5, 3.0, 3.0]).expand(2, 1, 4)).reshape(2, 24, 32, 3)
        ink = (1 - image[0]).sum((0, 2))
        centres.append(float((ink * (torch.arange(32) + 0.5)).sum() / ink.sum()))
    assert centres == pytest.approx([10.5, 10.75, 11.0], abs=0.02)


@torch.no_grad()
def test_the_nearer_sprite_hides_the_other_and_an_invisible_one_hides_nothing(net):
    together = torch.tensor([0.5, 0.5, 0.5, 0.5]).expand(2, 1, 4)
    middle = lambda image: image.reshape(2, 24, 32, 3)[:, 12, 16]  # noqa: E731
    assert (middle(net.decode(together))[:, 0] > 0.9).all()
    visible = torch.tensor([[0.0, 1.0], [1.0, 1.0]])
    seen = middle(net.decode(together, visible=visible))
    assert seen[0, 2] > 0.9  # the red one of the first member is left out
    assert seen[1, 0] > 0.9


@torch.no_grad()
def test_keypoints_move_with_the_image():
    """Filters see a shifted image as a shifted image, away from its border."""
    net = Keypoints(torch.zeros(32, 32, 1), slots=3, members=2, rng=torch.Generator().manual_seed(1))
    image = torch.zeros(2, 1, 32, 32, 1)
    image[:, :, 14:18, 12:16] = 20.0
    one, other = net.encode(image.flatten(2)), net.encode(image.roll((2, 3), (2, 3)).flatten(2))
    shift = (other - one).reshape(2, 3, 2)
    heat = 32 * shift / torch.tensor([3.0, 2.0])
    assert (heat.abs() <= 1.05).all()
    assert (heat.max() > 0.5) & heat.isfinite().all()


@torch.no_grad()
def test_only_keeps_what_is_asked_for_of_each_member(net):
    p = torch.rand(2, 5, 4, generator=torch.Generator().manual_seed(0))
    x = net.decode(p)
    swapped = net.only(torch.tensor([[1, 0], [0, 1]]))
    torch.testing.assert_close(swapped.encode(x)[0], net.encode(x)[0][:, [2, 3, 0, 1]])
    torch.testing.assert_close(swapped.encode(x)[1], net.encode(x)[1])
    assert net.only(torch.tensor([[1], [0]])).encode(x).shape == (2, 5, 2)


@torch.no_grad()
def test_slots_that_begin_again_find_what_is_marked_and_leave_the_others_as_they_are(net):
    before = {name: value.clone() for name, value in net.state_dict().items()}
    x = torch.ones(2, 30, 24, 32, 3)
    corners = torch.randint(4, 16, (30, 2), generator=torch.Generator().manual_seed(6))
    for i, (row, column) in enumerate(corners.tolist()):
        x[:, i, row : row + 4, column : column + 4] = torch.tensor([0.9, 0.1, 0.2])
    where = (x[..., 1] < 0.5).float().reshape(2, 1, -1).expand(-1, 2, -1)
    paint = torch.full((2, 2, 3), 0.25)
    chosen = torch.tensor([[True, False], [False, False]])
    net.begin_again(chosen, x.flatten(2), where, paint, torch.Generator().manual_seed(5))
    torch.testing.assert_close(COLOUR_UNIT * net.paint[0, 0], paint[0, 0])
    after = net.state_dict()
    for name in ("alpha", "paint", "depth", "head.weight", "head.bias"):
        assert not torch.equal(after[name][0, 0], before[name][0, 0])
        assert torch.equal(after[name][0, 1], before[name][0, 1])
        assert torch.equal(after[name][1], before[name][1])
    found = net.encode(x.flatten(2))[0, :, :2] * torch.tensor([32, 24])
    assert (found - (corners.flip(1) + 2)).abs().max() < 2
