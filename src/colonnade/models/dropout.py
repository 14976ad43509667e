"""Dropout whose mask depends on a key and a draw number, never on a global generator.

`nn.Dropout` raises under vmap, or gives every party the same mask, or depends on the order
in which parties are visited. Here the mask is an integer hash of (key, draw, element), so
it is the same looped, stacked, on any device and after a resume.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from colonnade.errors import ModelError
from colonnade.models.copies import copied

# Multipliers of a 64-bit mixer (splitmix64's, made to fit signed integers).
_GOLDEN, _MIX_1, _MIX_2, _STRIDE = 0x1E3779B97F4A7C15, 0x3F58476D1CE4E5B9, 0x14D049BB133111EB, 0x632BE59BD9B4E019
_REFUSED = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout, nn.RReLU)


def keyed_uniform(like: Tensor, key: Tensor, draw: Tensor | int) -> Tensor:
    """Uniform numbers in [0, 1) shaped as `like`; `key` and `draw` are integer scalars or (P, 1, ...)."""
    if isinstance(draw, int):
        draw = torch.tensor(draw, device=like.device)  # integers of a tensor wrap around, Python's grow
    if torch.compiler.is_compiling():
        numbers: Tensor = torch.ops.colonnade.keyed_uniform(like, key, draw)
        return numbers
    return _hashed(like, key, draw)


def _hashed(like: Tensor, key: Tensor, draw: Tensor) -> Tensor:
    count = like.numel() if key.dim() == 0 else like[0].numel()
    shape = like.shape if key.dim() == 0 else like.shape[1:]
    x = torch.arange(count, device=like.device, dtype=torch.int64).view(shape).mul_(_GOLDEN)
    x = x + (key + draw * _STRIDE)
    for multiplier in (_MIX_1, _MIX_2):  # x = (x ^ (x >>> 31)) * multiplier, in place: memory takes most of the time
        x.bitwise_xor_((x >> 31).bitwise_and_(0x1FFFFFFFF)).mul_(multiplier)
    exact = torch.promote_types(like.dtype, torch.float32)  # the 24 bits fit, and a mask is the same in every precision
    return x.bitwise_right_shift_(33).bitwise_and_(0xFFFFFF).to(exact).div_(2**24)


# torch's compiler reckons with integers that grow: it must call the hash, not read it.
_compiled_call = torch.library.custom_op(
    "colonnade::keyed_uniform", _hashed, mutates_args=(), schema="(Tensor like, Tensor key, Tensor draw) -> Tensor"
)


@_compiled_call.register_fake
def _shape_of_hashed(like: Tensor, key: Tensor, draw: Tensor) -> Tensor:
    return torch.empty(like.shape, dtype=torch.promote_types(like.dtype, torch.float32), device=like.device)


def keyed_mask(like: Tensor, p: float, key: Tensor, draw: Tensor | int) -> Tensor:
    """Zero with probability p, else 1/(1 - p)."""
    return (keyed_uniform(like, key, draw) >= p).to(like.dtype).div_(1 - p)


class KeyedDropout(nn.Module):
    """Dropout with its own key; the draw counter is a buffer, so it is saved with the model."""

    key: Tensor
    draws: Tensor

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.register_buffer("key", torch.zeros((), dtype=torch.int64))
        self.register_buffer("draws", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        """Drop in training mode, pass otherwise."""
        if not self.training or self.p == 0:
            return x
        mask = keyed_mask(x, self.p, self.key, self.draws)
        self.draws.add_(1)
        return x * mask

    def extra_repr(self) -> str:
        """Shown in the architecture key."""
        return f"p={self.p}"


def _draws_by_itself(layer: nn.Module) -> bool:
    inside = isinstance(layer, (nn.RNNBase, nn.MultiheadAttention)) and layer.dropout > 0
    return inside or isinstance(layer, _REFUSED)


def with_keyed_dropout(module: nn.Module, key: int) -> nn.Module:
    """A copy of `module` whose `nn.Dropout` layers are keyed; other kinds are refused by name."""
    module = copied(module)
    for number, (name, layer) in enumerate(list(module.named_modules())):
        if _draws_by_itself(layer):
            raise ModelError(
                f"layer {name!r} is {type(layer).__name__}, which draws from a global generator; "
                "use nn.Dropout or colonnade.models.dropout.KeyedDropout"
            )
        if isinstance(layer, nn.Dropout):
            parent, _, leaf = name.rpartition(".")
            keyed = KeyedDropout(layer.p)
            keyed.key.fill_((key + number * _STRIDE) % 2**62)
            if not name:
                return keyed
            setattr(module.get_submodule(parent), leaf, keyed)
        elif isinstance(layer, KeyedDropout):
            layer.key.fill_((key + number * _STRIDE) % 2**62)
    return module
