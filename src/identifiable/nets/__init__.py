"""Networks as plain modules, batched over members.

A *member* is one of R restarts. Every parameter and buffer has the member axis first, and an input has shape
(R, B, width), so that one product serves all restarts at once. `select_member` extracts one of them.

`dense` holds multilayer perceptrons and operations on members, `images` networks for images, and `architectures`
the values that describe an encoder and a decoder.
"""

from identifiable.nets.architectures import ARCHITECTURES, Architecture, ConvNet, Dense, ResNet, resolve
from identifiable.nets.dense import (
    ACTIVATIONS,
    MLP,
    Dropout,
    Linear,
    Standardise,
    as_tensor,
    in_precision_of,
    join_members,
    members_in_threads,
    select_member,
    select_members,
    set_rng,
)
from identifiable.nets.images import BatchNorm, Conv, ConvTranspose

__all__ = [
    "ACTIVATIONS",
    "ARCHITECTURES",
    "MLP",
    "Architecture",
    "BatchNorm",
    "Conv",
    "ConvNet",
    "ConvTranspose",
    "Dense",
    "Dropout",
    "Linear",
    "ResNet",
    "Standardise",
    "as_tensor",
    "in_precision_of",
    "join_members",
    "members_in_threads",
    "resolve",
    "select_member",
    "select_members",
    "set_rng",
]
