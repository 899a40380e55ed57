"""Arithmetic of channel pairs: the one formula of a planar rotation, and its fast forms.

A pair (a, b) turned by φ becomes (a cos φ − b sin φ, a sin φ + b cos φ): the product of the complex numbers a + ib and
e^{iφ}. Which channels make a pair is the caller's affair (see the picture in `rotation`). Nothing outside of this
package and of `g_ray.nn` should need this file: `Rotation` is its interface.
"""

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from g_ray.geometry.precision import promote_to_float32

TOKENS_AT_ONCE = 256
"""On a CPU, so that one stretch of tokens stays in the cache over the four passes of `rotate_pairs_into`."""


def rotate_pairs(
    first: Float[Tensor, "*shape"],
    second: Float[Tensor, "*shape"],
    cos: Float[Tensor, "*other"],
    sin: Float[Tensor, "*other"],
) -> tuple[Float[Tensor, "*both"], Float[Tensor, "*both"]]:
    """Rotate pairs (first, second) in plain differentiable operations."""
    return first * cos - second * sin, first * sin + second * cos


def rotate_pairs_into(
    pairs: tuple[Float[Tensor, "*shape block pair"], Float[Tensor, "*shape block pair"]],
    cos: Float[Tensor, "*other block pair"],
    sin: Float[Tensor, "*other block pair"],
    out: tuple[Float[Tensor, "*shape block pair"], Float[Tensor, "*shape block pair"]],
) -> None:
    """Write what `rotate_pairs` computes into buffers, with no temporary of the size of the tokens."""
    # A GPU would pay for every stretch with four launches, and has no use for them.
    at_once = TOKENS_AT_ONCE if cos.device.type == "cpu" else max(1, pairs[0].shape[-3])
    stretches = [part.split(at_once, -3) for part in (*pairs, *out)]
    cosines, sines = (part.expand(pairs[0].shape).split(at_once, -3) for part in (cos, sin))
    for first, second, top, bottom, c, s in zip(*stretches, cosines, sines, strict=True):
        torch.mul(first, c, out=top)
        top.addcmul_(second, s, value=-1)
        torch.mul(second, c, out=bottom)
        bottom.addcmul_(first, s)


def rotate_adjacent_into(
    x: Float[Tensor, "*shape dim"], turn: Float[Tensor, "*other pair 2"], out: Float[Tensor, "*shape dim"]
) -> None:
    """Rotate channels 2i and 2i + 1 as complex numbers: one multiplication, one pass over memory.

    `turn` holds (cos, sin). `out` may be `x` itself.
    """
    torch.mul(_view_as_complex(x), torch.view_as_complex(turn), out=torch.view_as_complex(_split_pairs(out)))


def _view_as_complex(x: Float[Tensor, "*shape dim"]) -> Complex[Tensor, "*shape pair"]:
    # A gradient may arrive expanded or sliced at an odd place, which complex numbers cannot view.
    strides_fit = x.stride(-1) == 1 and all(
        stride % 2 == 0 for stride in (*x.stride()[:-1], x.storage_offset())
    )
    return torch.view_as_complex(_split_pairs(x if strides_fit else x.contiguous()))


def _split_pairs(x: Float[Tensor, "*shape dim"]) -> Float[Tensor, "*shape pair 2"]:
    return x.unflatten(-1, (-1, 2))


# Tokens as complex numbers, for operators that rotate the same tokens many times (`nn.per_camera`).
#
# Attention scores do not change when the channels of queries and keys are permuted alike, so inside such an operator
# pairs stand side by side; only its ends see split halves.


def complex_from_halves(x: Float[Tensor, "*shape dim"]) -> Complex[Tensor, "*shape pair"]:
    """Make one number of channel i and channel i + D/2, in float32 or better."""
    return torch.complex(*promote_to_float32(x).chunk(2, -1))


def halves_from_complex(
    pairs: Complex[Tensor, "*shape pair"], dtype: torch.dtype
) -> Float[Tensor, "*shape dim"]:
    """Undo `complex_from_halves`."""
    return torch.cat([pairs.real, pairs.imag], -1).to(dtype)


def complex_from_adjacent(x: Float[Tensor, "*shape dim"]) -> Complex[Tensor, "*shape pair"]:
    """Make one number of channels 2i and 2i + 1, in float32 or better."""
    return torch.view_as_complex(_split_pairs(promote_to_float32(x)).contiguous())


def adjacent_from_complex(
    pairs: Complex[Tensor, "*shape pair"], dtype: torch.dtype
) -> Float[Tensor, "*shape dim"]:
    """Undo `complex_from_adjacent`."""
    return torch.view_as_real(pairs).flatten(-2).to(dtype)
