"""Rotation: the group SO(2)ⁿ, acting on pairs of channels.

A head of D channels holds one block per axis, and a block of 2n channels one pair per frequency ω₁ … ωₙ. With two axes
and n = 2, a and b being the two channels of a pair:

    channel        0     1     2     3     4     5     6     7
                ┌───────── x block ────────┬───────── y block ────────┐
                │ a ω₁  a ω₂  b ω₁  b ω₂   │ a ω₁  a ω₂  b ω₁  b ω₂   │
                └──────────────────────────┴──────────────────────────┘

Channel i pairs with channel i + n of the same block (split halves), as in VGGT and RayRoPE, so that their weights load
as they are; the paper's adjacent pairs, 2i with 2i + 1, are a permutation of it. They are blocks of one pair each, and
channel i with i + D/2 of the whole head is one block of all pairs: `Rotary.pairing`. With `y_first` the blocks change
places. Several samples per token give more blocks: x and y of the first sample, then x and y of the second.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from g_ray.encodings.encoding_base import TokenMap

NUMBERS_AT_ONCE = 2**19
"""On a CPU, so that a stretch of tokens stays in the cache over the passes of `Rotation.apply_into`: 2 MB."""


@dataclass(frozen=True)
class Rotation(TokenMap):
    """Planar rotations of channel pairs: (a, b) ↦ (a cos φ − b sin φ, a sin φ + b cos φ) (paper, eq:rotation_bank).

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
    def channels(self) -> int:
        return 2 * self.cos.shape[-1] * self.cos.shape[-2]

    def inverse(self) -> "Rotation":
        """Invert a true rotation: by −φ."""
        return Rotation(self.cos, -self.sin)

    def adjoint(self) -> "Rotation":
        return self.inverse()

    def compose(self, other: "Rotation") -> "Rotation":
        """Add the phases of both."""
        return Rotation(*_rotate(self.cos, self.sin, other))

    def __matmul__(self, other: "Rotation") -> "Rotation":
        return self.compose(other)

    def entries(self) -> tuple[Tensor, ...]:
        return (self.cos, self.sin)

    def apply_plain(self, x: Float[Tensor, "*shape dim"]) -> Float[Tensor, "*shape dim"]:
        return torch.stack(_rotate(*self._split_halves(x), self), -2).flatten(
            -3
        )  # [… block 2 pair] → [… dim]

    def apply_into(self, x: Float[Tensor, "*shape dim"], out: Float[Tensor, "*shape dim"]) -> None:
        if self.cos.shape[-1] == 1 and _has_complex_view(out):
            # Adjacent channels are complex numbers: one product instead of passes over every second number.
            x = x if _has_complex_view(x) else x.contiguous()
            torch.mul(_view_as_complex(x), self.to_complex(), out=_view_as_complex(out))
            return
        # A GPU would pay for every stretch, and for every block, with more launches, and has no use for them.
        on_cpu, tokens = x.device.type == "cpu", x.ndim - 2
        at_once = NUMBERS_AT_ONCE * x.shape[tokens] // max(1, x.numel()) if on_cpu else x.shape[tokens]
        parts = (x, out, self._cos_of_channels.expand_as(x), self.sin.expand(*x.shape[:-1], -1, -1))
        for x, out, cos, sin in zip(*(part.split(max(1, at_once), tokens) for part in parts), strict=True):
            # Products accumulate in the output: temporaries as large as all tokens would cost more than the arithmetic.
            source = x.clone() if x.data_ptr() == out.data_ptr() else x
            torch.mul(source, cos, out=out)
            halves = (*self._split_halves(source), *self._split_halves(out), sin)
            blocks = (part.unbind(-2) if on_cpu else [part] for part in halves)
            for a, b, top, bottom, turn in zip(*blocks, strict=True):
                top.addcmul_(b, turn, value=-1)
                bottom.addcmul_(a, turn)

    def cos_sin(self) -> tuple[Float[Tensor, "*shape pairs"], Float[Tensor, "*shape pairs"]]:
        return self.cos.flatten(-2), self.sin.flatten(-2)

    @cached_property
    def _cos_of_channels(self) -> Float[Tensor, "*shape dim"]:
        """The cosine of every channel: twice that of each pair. Kept, since all layers need it."""
        return self.cos[..., None, :].expand(*self.cos.shape[:-1], 2, -1).flatten(-3)

    def to_complex(self) -> Complex[Tensor, "*shape pairs"]:
        """Return cos φ + i sin φ of all pairs, block after block."""
        return torch.complex(self.cos, self.sin).flatten(-2)

    def _split_halves(self, x: Float[Tensor, "*shape dim"]) -> tuple[Tensor, Tensor]:
        blocks = x.unflatten(-1, (self.cos.shape[-2], 2, self.cos.shape[-1]))  # [… dim] → [… block 2 pair]
        return blocks[..., 0, :], blocks[..., 1, :]


def _has_complex_view(x: Tensor) -> bool:
    """Whether pairs of adjacent channels start at even places of memory."""
    steps = (*x.stride()[:-1], x.storage_offset())
    return x.stride(-1) == 1 and all(step % 2 == 0 for step in steps)


def _view_as_complex(x: Float[Tensor, "*shape dim"]) -> Complex[Tensor, "*shape pairs"]:
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)))


def _rotate(first: Tensor, second: Tensor, by: Rotation) -> tuple[Tensor, Tensor]:
    return first * by.cos - second * by.sin, first * by.sin + second * by.cos


# The positional prior: what attention would see if all features were the same.


def position_score(
    queries: Float[Tensor, "*query axis"], keys: Float[Tensor, "*key axis"], frequencies: Float[Tensor, "n"]
) -> Float[Tensor, "..."]:
    """Compute s(i, j) = Σ_a Σ_k 2 cos(ω_k (ξ_i − ξ_j)) for all pairs (paper, eq:app_score): [*query, *key]."""
    flat_queries, flat_keys = queries.flatten(0, -2), keys.flatten(0, -2)
    difference = flat_queries[:, None] - flat_keys[None]
    score = 2 * (difference[..., None] * frequencies.to(difference)).cos().sum((-1, -2))
    return score.reshape(*queries.shape[:-1], *keys.shape[:-1])


def probe_score(query: Rotation, key: Rotation) -> Float[Tensor, "... query key"]:
    """Compute the same by the probe q = k = 1 through the rotations themselves (eq:app_planarro, eq:app_cos)."""
    ones = query.cos.new_ones(())
    rotated_query = query.apply_plain(ones.expand(*query.cos.shape[:-2], query.channels))
    rotated_key = key.apply_plain(ones.expand(*key.cos.shape[:-2], key.channels))
    return rotated_query @ rotated_key.mT
