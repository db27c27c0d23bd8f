r"""Keypoints: the positions of things in an image, and the image painted from them.

Encoder: filters turn the image into K heat maps, and a keypoint is the mean position under its heat map,

    p_k = Σ_pixels softmax(h_k) · pixel,        in units of the height and the width of the image.

Decoder: K sprites with transparency α_k, a colour c_k and a depth d_k are shifted to the keypoints and painted over a
background g, by their shares of a pixel,

    x̂ = (Σ_k e^{d_k} a_k c_k + b g) / (Σ_k e^{d_k} a_k + b),        a_k = α_k shifted to p_k,   b = Π_k (1 - a_k).

The decoder can only move sprites, so that the code is the position of what moves.
"""

import torch
from torch import Tensor, nn

from identifiable.nets.images import Conv, Shape, to_maps

CHANNELS = 16  # of the filters
PATCH = 13  # pixels per side of a sprite
PEAK = 10.0  # multiplies the heat maps, so that they are narrow from the start
# Adam moves every number by about the same amount, however large it has to become: the rates of sprites and of colours
# are those of the filters, times these.
SPRITE_UNIT, COLOUR_UNIT = 50 / 3, 10 / 3
OPAQUE = 0.999
HEAT = 8.0  # of what a new slot is to find, above the mean of all pixels
RIDGE = 1e-2  # of the mean variance of the features


class Keypoints(nn.Module):
    """R keypoint autoencoders for images of one shape (h, w, c), with the member axis first.

    Parameters
    ----------
    ground : (R, h, w, c) or (h, w, c), the background at the start; it is learnt.
    slots : K, the number of keypoints of each member.
    members : R.
    rng : source of the start.

    Examples
    --------
    >>> net = Keypoints(torch.ones(8, 8, 3), slots=4, members=2, rng=torch.Generator().manual_seed(0))
    >>> x = torch.rand(2, 5, 192)
    >>> net.encode(x).shape, net.decode(net.encode(x)).shape
    (torch.Size([2, 5, 8]), torch.Size([2, 5, 192]))
    """

    down: Tensor
    across: Tensor
    offsets: Tensor

    def __init__(self, ground: Tensor, slots: int, members: int, *, rng: torch.Generator | None = None) -> None:
        super().__init__()
        ground = ground.expand(members, *ground.shape[-3:])
        height, width, channels = ground.shape[1:]
        self.shape: Shape = height, width, channels

        def conv(inputs: int, size: int, dilation: int = 1) -> tuple[nn.Module, nn.Module]:
            padding = dilation * (size // 2)
            layer = Conv(members, inputs, CHANNELS, size, padding=padding, dilation=dilation, rng=rng)
            return layer, nn.ReLU()

        self.colours = nn.Sequential(*conv(channels, 1))  # what a pixel is
        self.shapes = nn.Sequential(
            *conv(channels, 1), *conv(CHANNELS, 3), *conv(CHANNELS, 3, 2), *conv(CHANNELS, 3, 4)
        )
        self.head = Conv(members, 2 * CHANNELS, slots, 1, rng=rng)
        offsets = torch.arange(PATCH) - PATCH // 2.0
        bump = 4 * torch.exp(-(offsets[:, None].square() + offsets.square()) / 8) - 3
        self.alpha = nn.Parameter((bump / SPRITE_UNIT).repeat(members, slots, 1, 1))  # logits
        self.paint = nn.Parameter(torch.rand((members, slots, channels), generator=rng) / COLOUR_UNIT)
        self.depth = nn.Parameter(0.5 * torch.randn((members, slots), generator=rng) / COLOUR_UNIT)
        self.ground = nn.Parameter(ground.clone() / COLOUR_UNIT)
        self.register_buffer("down", ((torch.arange(height) + 0.5) / height).expand(members, -1).clone())
        self.register_buffer("across", ((torch.arange(width) + 0.5) / width).expand(members, -1).clone())
        self.register_buffer("offsets", offsets.expand(members, -1).clone())

    @property
    def slots(self) -> int:
        """K."""
        return self.alpha.shape[1]

    def encode(self, x: Tensor) -> Tensor:
        """Map images (R, B, h w c) to keypoints (R, B, 2 K): x, y of the first, x, y of the second, and so on."""
        heat = self.head(self._features(x).flatten(1, 2))
        p = (PEAK * to_members(heat, len(x))).flatten(3).softmax(3).unflatten(3, self.shape[:2])  # (B, R, K, h, w)
        x_mean = (p.sum(3) * self.across[:, None]).sum(3)
        y_mean = (p.sum(4) * self.down[:, None]).sum(3)
        return torch.stack([x_mean, y_mean], 3).flatten(2).transpose(0, 1)

    def decode(self, p: Tensor, blur: Tensor | float = 1.0, visible: Tensor | None = None) -> Tensor:
        """Map keypoints (R, B, 2 K) to images (R, B, h w c).

        Sprites are shifted by interpolation of `blur` pixels; those where `visible` (R, K) is zero are left out.
        """
        return self.paint_over(self.covers(p, blur), visible)

    def covers(self, p: Tensor, blur: Tensor | float = 1.0) -> Tensor:
        """Return how much each sprite at keypoints (R, B, 2 K) covers of each pixel, a (R, B, K, h w)."""
        height, width, _ = self.shape
        x, y = p.unflatten(2, (-1, 2)).unbind(3)
        to_columns = self._shift(x, self.across, width, blur)  # (R, B, K, w, P)
        to_rows_ = self._shift(y, self.down, height, blur)
        alpha = (SPRITE_UNIT * self.alpha).sigmoid()[:, None]
        return (to_rows_ @ alpha @ to_columns.mT).flatten(3)

    def paint_over(self, a: Tensor, visible: Tensor | None = None) -> Tensor:
        """Return images (R, B, h w c) in which sprites cover the background by a (R, B, K, h w)."""
        if visible is not None:
            a = a * visible[:, None, :, None]
        front = a * (COLOUR_UNIT * self.depth).exp()[:, None, :, None]
        behind = torch.log1p(-a.clamp(max=OPAQUE)).sum(2).exp()
        total = front.sum(2) + behind
        colours = torch.einsum("rbkp,rkc->rbpc", front, COLOUR_UNIT * self.paint)
        ground = (COLOUR_UNIT * self.ground).flatten(1, 2)[:, None]
        return ((colours + behind[..., None] * ground) / total[..., None]).flatten(2)

    def errors(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        """Return the mean squared error (R, B) of each image (R, B, h w c)."""
        return (self.decode(self.encode(x), visible=visible) - x).square().mean(2)

    def _shift(self, p: Tensor, grid: Tensor, size: int, blur: Tensor | float) -> Tensor:
        """Return the weights (R, B, K, size, P) with which pixels of a sprite are moved to pixels of the image."""
        distance = ((grid[:, None, None] - p[..., None]) * size)[..., None] - self.offsets[:, None, None, None]
        return (1 - distance.abs() / blur).clamp(min=0) / blur

    def _features(self, x: Tensor) -> Tensor:
        """Return what the filters show of each pixel of images (R, B, h w c), (B, R, features, h, w)."""
        background = (COLOUR_UNIT * self.ground.detach()).flatten(1)[:, None]
        maps = to_maps(x - background, self.shape)
        return torch.cat([to_members(part(maps), len(x)) for part in (self.shapes, self.colours)], 2)

    @torch.no_grad()
    def begin_again(
        self, slots: Tensor, x: Tensor, where: Tensor, paint: Tensor, rng: torch.Generator | None = None
    ) -> None:
        """Give the slots with True in (R, K) new sprites, of the colours `paint` (R, K, c), and new heat maps.

        A heat map is Fisher's linear discriminant of the features: it separates the pixels of images x (R, B, h w c)
        with the weights `where` (R, K, B h w) from all pixels.
        """
        new = Keypoints(self.ground, self.slots, len(self.ground), rng=rng).to(paint.device)
        new.paint.copy_(paint / COLOUR_UNIT)
        features = self._features(x).permute(1, 0, 3, 4, 2).flatten(1, 3)  # (R, B h w, features)
        mean = features.mean(1, keepdim=True)
        centred = features - mean
        covariance = centred.mT @ centred / features.shape[1]
        ridge = RIDGE * covariance.diagonal(dim1=1, dim2=2).mean(1)[:, None, None] + 1e-12
        contrast = (where / where.sum(2, keepdim=True).clamp(min=1e-20)) @ centred  # (R, K, features)
        weights = torch.linalg.solve(covariance + ridge * torch.eye(2 * CHANNELS, device=x.device), contrast.mT).mT
        weights = weights * HEAT / PEAK / (weights * contrast).sum(2, keepdim=True).clamp(min=1e-12)
        new.head.weight.copy_(weights.reshape(new.head.weight.shape))
        for own, start in zip(
            (self.alpha, self.paint, self.depth, self.head.weight, self.head.bias),
            (new.alpha, new.paint, new.depth, new.head.weight, new.head.bias),
            strict=True,
        ):
            own.copy_(torch.where(slots.reshape(*slots.shape, *[1] * (own.dim() - 2)), start, own))

    @torch.no_grad()
    def only(self, slots: Tensor) -> "Keypoints":
        """Return the nets with only these slots (R, K') of each member."""
        members, count = slots.shape
        kept = Keypoints(self.ground, count, members).to(self.ground.device)
        state = self.state_dict()
        rows = torch.arange(members, device=slots.device)[:, None]
        for name in ("alpha", "paint", "depth", "head.weight", "head.bias"):
            state[name] = state[name][rows, slots]
        kept.load_state_dict(state)
        return kept


def to_members(maps: Tensor, members: int) -> Tensor:
    """Split maps (B, R c, h, w) into (B, R, c, h, w)."""
    return maps.unflatten(1, (members, -1))
