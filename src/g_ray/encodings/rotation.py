"""Rotation: the group SO(2)ⁿ, acting on pairs of channels."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.encodings.base import TokenMap

TOKENS_AT_ONCE = 256
"""So that one stretch of tokens stays in the cache over the four passes of `apply_into`."""


@dataclass(frozen=True)
class Rotation(TokenMap):
    """Planar rotations of channel pairs (paper, eq:rotation_bank).

    Channels are laid out in axis blocks; inside a block of 2n channels, channel i is paired with channel i + n
    (split halves, as VGGT and RayRoPE do; the paper's adjacent pairs are a permutation of it).
    With |cos + i sin| < 1 the same class holds an expected rotation: then `adjoint` is no longer the inverse.
    """

    cos: Float[Tensor, "*shape block pair"]
    sin: Float[Tensor, "*shape block pair"]

    @classmethod
    def from_phases(cls, phases: Float[Tensor, "*shape block pair"]) -> "Rotation":
        """By φ radians in each plane."""
        return cls(phases.cos(), phases.sin())

    @classmethod
    def identity(cls, *shape: int, like: Tensor | None = None) -> "Rotation":
        """By nothing; `shape` ends with block, pair."""
        zeros = torch.zeros(shape) if like is None else like.new_zeros(shape)
        return cls(torch.ones_like(zeros), zeros)

    @property
    def channels(self) -> int:
        return 2 * self.cos.shape[-1] * self.cos.shape[-2]

    def inverse(self) -> "Rotation":
        """Of a true rotation: by −φ."""
        return Rotation(self.cos, -self.sin)

    def adjoint(self) -> "Rotation":
        return self.inverse()

    def compose(self, other: "Rotation") -> "Rotation":
        """By the sum of the phases."""
        return Rotation(
            self.cos * other.cos - self.sin * other.sin,
            self.sin * other.cos + self.cos * other.sin,
        )

    def __matmul__(self, other: "Rotation") -> "Rotation":
        return self.compose(other)

    def entries(self) -> tuple[Tensor, ...]:
        return (self.cos, self.sin)

    def apply_plain(self, x: Float[Tensor, "*shape dim"]) -> Float[Tensor, "*shape dim"]:
        first, second = self._split_halves(x)
        turned = torch.stack([first * self.cos - second * self.sin, first * self.sin + second * self.cos], -2)
        return turned.flatten(-3)

    def apply_into(self, x: Float[Tensor, "*shape dim"], out: Float[Tensor, "*shape dim"]) -> None:
        shape = (*x.shape[:-1], *self.cos.shape[-2:])
        stretches = [
            part.split(TOKENS_AT_ONCE, -3) for part in (*self._split_halves(x), *self._split_halves(out))
        ]
        cosines, sines = (part.expand(shape).split(TOKENS_AT_ONCE, -3) for part in (self.cos, self.sin))
        for first, second, top, bottom, cos, sin in zip(*stretches, cosines, sines, strict=True):
            torch.mul(first, cos, out=top)
            top.addcmul_(second, sin, value=-1)
            torch.mul(second, cos, out=bottom)
            bottom.addcmul_(first, sin)

    def _split_halves(self, x: Float[Tensor, "*shape dim"]) -> tuple[Tensor, Tensor]:
        blocks = x.unflatten(-1, (self.cos.shape[-2], 2, self.cos.shape[-1]))
        return blocks[..., 0, :], blocks[..., 1, :]
