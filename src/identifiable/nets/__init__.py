"""Networks as plain modules, batched over members.

A *member* is one of R restarts. Every parameter and buffer carries the member axis first, and an input has shape
(R, B, width), so that one product serves all restarts at once. `select_member` cuts one of them out.

`dense` holds multilayer perceptrons and what is done with members, `images` networks for images, and `architectures`
the values that say which of them encoder and decoder are.
"""

from identifiable.nets.architectures import ARCHITECTURES, Architecture, ConvNet, Dense, ResNet, resolve
from identifiable.nets.dense import (
    ACTIVATIONS,
    MLP,
    Dropout,
    Linear,
    Standardise,
    as_tensor,
    calibrate,
    in_precision_of,
    join_members,
    select_member,
    select_members,
    set_rng,
)
from identifiable.nets.images import (
    BatchNorm,
    Conv,
    ConvDecoder,
    ConvEncoder,
    ConvTranspose,
    ResDecoder,
    ResEncoder,
)

__all__ = [
    "ACTIVATIONS",
    "ARCHITECTURES",
    "MLP",
    "Architecture",
    "BatchNorm",
    "Conv",
    "ConvDecoder",
    "ConvEncoder",
    "ConvNet",
    "ConvTranspose",
    "Dense",
    "Dropout",
    "Linear",
    "ResDecoder",
    "ResEncoder",
    "ResNet",
    "Standardise",
    "as_tensor",
    "calibrate",
    "in_precision_of",
    "join_members",
    "resolve",
    "select_member",
    "select_members",
    "set_rng",
]
