"""Rotations of adjacent channels: the paper's own layout, and one multiplication of complex numbers."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from g_ray.encodings.base import Prepared, Tokenwise
from g_ray.encodings.rotation import Rotation
from g_ray.encodings.token_map import TokenMap


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
