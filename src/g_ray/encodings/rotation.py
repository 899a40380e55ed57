"""Rotation: the group SO(2)ⁿ, acting on pairs of channels, in the two orders that channels can have.

A head of D channels holds one block per axis, and a block of 2n channels one pair per frequency ω₁ … ωₙ. With two axes
and n = 2, a and b being the two channels of a pair:

    channel                  0     1     2     3     4     5     6     7
                          ┌───────── x block ────────┬───────── y block ────────┐
    split halves          │ a ω₁  a ω₂  b ω₁  b ω₂   │ a ω₁  a ω₂  b ω₁  b ω₂   │   `Rotation`; weights on disk
    adjacent pairs        │ a ω₁  b ω₁  a ω₂  b ω₂   │ a ω₁  b ω₁  a ω₂  b ω₂   │   `AdjacentRotation`; inference
                          └──────────────────────────┴──────────────────────────┘

Split halves pair channel i with channel i + n of the same block, as VGGT and RayRoPE do, so that their weights load as
they are; the paper writes adjacent pairs, 2i with 2i + 1. One is a permutation of the other (`compute_adjacent_order`).
With `y_first` the blocks change places. Several samples per token give more blocks: x and y of the first sample, then
x and y of the second.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor

from g_ray.encodings._pairs import rotate_adjacent_into, rotate_pairs, rotate_pairs_into
from g_ray.encodings.encoding_base import Identity, Prepared, TokenMap, Tokenwise


@dataclass(frozen=True)
class Rotation(TokenMap):
    """Planar rotations of channel pairs (paper, eq:rotation_bank), in split halves.

    With |cos + i sin| < 1 the same class holds an expected rotation: then `adjoint` is no longer the inverse.
    """

    cos: Float[Tensor, "*shape block pair"]
    sin: Float[Tensor, "*shape block pair"]

    @classmethod
    def from_phases(cls, phases: Float[Tensor, "*shape block pair"]) -> "Rotation":
        """Make the rotation by φ radians in each plane."""
        return cls(phases.cos(), phases.sin())

    @classmethod
    def identity(cls, *shape: int, like: Tensor | None = None) -> "Rotation":
        """Make the rotation by nothing; `shape` ends with block, pair."""
        zeros = torch.zeros(shape) if like is None else like.new_zeros(shape)
        return cls(torch.ones_like(zeros), zeros)

    @property
    def blocks(self) -> int:
        return self.cos.shape[-2]

    @property
    def channels(self) -> int:
        return 2 * self.cos.shape[-1] * self.cos.shape[-2]

    def inverse(self) -> "Rotation":
        """Invert a true rotation: by −φ."""
        return Rotation(self.cos, -self.sin)

    def adjoint(self) -> "Rotation":
        return self.inverse()

    def compose(self, other: "Rotation") -> "Rotation":
        """Add the phases of both."""
        return Rotation(*rotate_pairs(self.cos, self.sin, other.cos, other.sin))

    def __matmul__(self, other: "Rotation") -> "Rotation":
        return self.compose(other)

    def entries(self) -> tuple[Tensor, ...]:
        return (self.cos, self.sin)

    def apply_plain(self, x: Float[Tensor, "*shape dim"]) -> Float[Tensor, "*shape dim"]:
        return torch.stack(rotate_pairs(*self._split_halves(x), self.cos, self.sin), -2).flatten(-3)

    def apply_into(self, x: Float[Tensor, "*shape dim"], out: Float[Tensor, "*shape dim"]) -> None:
        rotate_pairs_into(self._split_halves(x), self.cos, self.sin, self._split_halves(out))

    def to_adjacent(self) -> "AdjacentRotation":
        """Make the same rotation for channels in the order `compute_adjacent_order`."""
        return AdjacentRotation(torch.stack([self.cos, self.sin], -1).flatten(-3, -2))

    def to_complex(self) -> Complex[Tensor, "*shape pairs"]:
        """Return cos φ + i sin φ of all pairs, block after block."""
        return torch.complex(self.cos, self.sin).flatten(-2)

    def _split_halves(self, x: Float[Tensor, "*shape dim"]) -> tuple[Tensor, Tensor]:
        blocks = x.unflatten(-1, (self.cos.shape[-2], 2, self.cos.shape[-1]))
        return blocks[..., 0, :], blocks[..., 1, :]


@dataclass(frozen=True)
class AdjacentRotation(TokenMap):
    """The same rotations in adjacent pairs: seven to fifteen times faster without gradients, see `_pairs`."""

    turn: Float[Tensor, "*shape pair 2"]  # cos, sin

    def apply_plain(self, x: Float[Tensor, "*shape dim"]) -> Float[Tensor, "*shape dim"]:
        pairs = x.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack(rotate_pairs(*pairs, *self.turn.unbind(-1)), -1).flatten(-2)

    def apply_into(self, x: Float[Tensor, "*shape dim"], out: Float[Tensor, "*shape dim"]) -> None:
        rotate_adjacent_into(x, self.turn, out)

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


def compute_adjacent_order(
    channels: int, blocks: int, device: torch.device | str | None = None
) -> Int[Tensor, "{channels}"]:
    """Compute the number, in split halves, of the channel that stands at each place in adjacent pairs."""
    return torch.arange(channels, device=device).unflatten(0, (blocks, 2, -1)).mT.flatten()


def has_adjacent_form(position: Prepared | None, blocks: int) -> bool:
    """Whether an encoding does nothing to tokens but rotate pairs in that many blocks (or leave them alone)."""
    if position is None:
        return True
    return isinstance(position, Tokenwise) and all(
        isinstance(map_, Identity) or (isinstance(map_, Rotation) and map_.blocks == blocks)
        for map_ in position.maps.values()
    )


def make_pairs_adjacent(position: Tokenwise) -> Tokenwise:
    """Make the same encoding for tokens in the order `compute_adjacent_order`; see `has_adjacent_form`."""
    rotations = {name: map_ for name, map_ in position.maps.items() if isinstance(map_, Rotation)}
    distinct = {id(rotation): rotation for rotation in rotations.values()}  # q, k and v mostly share theirs
    adjacent = {number: rotation.to_adjacent() for number, rotation in distinct.items()}
    return replace(position, **{name: adjacent[id(rotation)] for name, rotation in rotations.items()})
