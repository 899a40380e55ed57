"""Tokens as complex numbers: a rotation of channel pairs is then one multiplication, one pass over memory.

Attention scores do not change when the channels of queries and keys are permuted alike, so inside the operator
pairs stand side by side; only its ends see split halves.
"""

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from g_ray.encodings.rotation import Rotation
from g_ray.geometry.precision import promote_to_float32


def complex_from_halves(x: Float[Tensor, "*shape dim"]) -> Complex[Tensor, "*shape pair"]:
    """Channel i and channel i + D/2 become one number, in float32 or better."""
    return torch.complex(*promote_to_float32(x).chunk(2, -1))


def halves_from_complex(
    pairs: Complex[Tensor, "*shape pair"], dtype: torch.dtype
) -> Float[Tensor, "*shape dim"]:
    return torch.cat([pairs.real, pairs.imag], -1).to(dtype)


def complex_from_adjacent(x: Float[Tensor, "*shape dim"]) -> Complex[Tensor, "*shape pair"]:
    """Channels 2i and 2i + 1 become one number."""
    return torch.view_as_complex(promote_to_float32(x).unflatten(-1, (-1, 2)).contiguous())


def adjacent_from_complex(
    pairs: Complex[Tensor, "*shape pair"], dtype: torch.dtype
) -> Float[Tensor, "*shape dim"]:
    return torch.view_as_real(pairs).flatten(-2).to(dtype)


def complex_from_rotation(rotation: Rotation) -> Complex[Tensor, "batch 1 token pair"]:
    """The rotation of a single block as complex numbers."""
    return torch.complex(rotation.cos, rotation.sin).flatten(-2)
