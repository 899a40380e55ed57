"""Rotations of adjacent channels: the paper's own layout, and one multiplication of complex numbers."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from g_ray.encodings.base import Prepared, TokenMap, Tokenwise
from g_ray.encodings.rotation import Rotation
from g_ray.geometry.precision import promote_to_float32


@dataclass(frozen=True)
class AdjacentRotation(TokenMap):
    """Planar rotations of channels 2i and 2i + 1 (paper, eq:rotation_bank), which pass over memory once.

    A `Rotation` for tokens whose channels were put in the order `compute_adjacent_order`.
    """

    turn: Float[Tensor, "*shape pair 2"]  # cos, sin

    @classmethod
    def from_rotation(cls, rotation: Rotation) -> "AdjacentRotation":
        return cls(torch.stack([rotation.cos, rotation.sin], -1).flatten(-3, -2))

    def apply_plain(self, x: Float[Tensor, "*shape dim"]) -> Float[Tensor, "*shape dim"]:
        (first, second), (cos, sin) = x.unflatten(-1, (-1, 2)).unbind(-1), self.turn.unbind(-1)
        return torch.stack([first * cos - second * sin, first * sin + second * cos], -1).flatten(-2)

    def apply_into(self, x: Float[Tensor, "*shape dim"], out: Float[Tensor, "*shape dim"]) -> None:
        numbers, turned = (torch.view_as_complex(part.unflatten(-1, (-1, 2))) for part in (x, out))
        torch.mul(numbers, torch.view_as_complex(self.turn), out=turned)

    def apply_in_place(self, x: Float[Tensor, "*shape dim"]) -> Float[Tensor, "*shape dim"]:
        if torch.is_grad_enabled() or x.dtype != self.turn.dtype:
            return self.apply(x)
        # Fresh memory, which the system hands out page by page, costs more than the multiplication.
        self.apply_into(x, x)
        return x

    def adjoint(self) -> "AdjacentRotation":
        return AdjacentRotation(self.turn * self.turn.new_tensor([1.0, -1.0]))

    def entries(self) -> tuple[Tensor, ...]:
        return (self.turn,)


def compute_adjacent_order(position: Prepared | None) -> Int[Tensor, "dim"] | None:
    """Which channel of the split halves stands at each place once partners are adjacent; None without partners."""
    if not isinstance(position, Tokenwise) or not isinstance(position.query, Rotation):
        return None
    cos = position.query.cos
    channels = torch.arange(position.query.channels, device=cos.device)
    return channels.unflatten(0, (cos.shape[-2], 2, cos.shape[-1])).mT.flatten()


def make_pairs_adjacent(position: Tokenwise) -> Tokenwise:
    """The same encoding for tokens in the order `compute_adjacent_order`."""
    maps = {name: getattr(position, name) for name in ("query", "key", "value", "output")}
    rotations = {name: map_ for name, map_ in maps.items() if isinstance(map_, Rotation)}
    different = {id(rotation): rotation for rotation in rotations.values()}  # q, k and v mostly share theirs
    moved = {number: AdjacentRotation.from_rotation(rotation) for number, rotation in different.items()}
    return replace(position, **{name: moved[id(rotation)] for name, rotation in rotations.items()})


# Tokens as complex numbers: a rotation of channel pairs is then one multiplication, one pass over memory.
#
# Attention scores do not change when the channels of queries and keys are permuted alike, so inside the operator
# pairs stand side by side; only its ends see split halves.


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
