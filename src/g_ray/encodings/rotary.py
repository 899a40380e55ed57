"""Rotary encodings of one coordinate pair (grid-index RoPE, and G-ray itself), and frequency banks for all of them.

Which channel pairs with which is drawn in `rotation`.
"""

from dataclasses import dataclass
from math import pi

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.coordinates import Axis, get_coordinate
from g_ray.encodings.encoding_base import (
    DirectSum,
    Encoding,
    Identity,
    TokenMap,
    Tokenwise,
    check_choice,
    check_split,
)
from g_ray.encodings.rotation import Rotation
from g_ray.rays.views import CENTER, Samples, Tokens


def make_geometric_frequencies(
    count: int, scale: float = 1.0, base: float = 100.0, device: torch.device | str | None = None
) -> Float[Tensor, "{count}"]:
    """Make ω_k = α β^(−k/n), k = 0 … n−1, falling from the scale α (paper, eq:frequency)."""
    # In float64 and rounded once: powers in float32 may differ between devices in the last digit.
    return scale * base ** (-torch.arange(count, dtype=torch.float64, device=device) / count)


def make_periodic_frequencies(
    count: int, period: float, ratio: float = 3.0, device: torch.device | str | None = None
) -> Float[Tensor, "{count}"]:
    """Make ω_k = (2π/P) b^k, k = 0 … n−1, rising from the longest period P (RayRoPE; paper, eq:rayrope_frequency)."""
    return 2 * pi / period * ratio ** torch.arange(count, dtype=torch.float64, device=device)


def round_to_period(frequencies: Float[Tensor, "n"], axis: Axis) -> Float[Tensor, "n"]:
    """Round to frequencies that an axis admits: on a periodic one, the nearest whole number (at least 1) of turns.

    Then a coordinate and the same coordinate one period later have the same phase: no seam.
    """
    if axis.period is None:
        return frequencies
    turns = (frequencies * axis.period / (2 * pi)).round().clamp(min=1.0)
    return turns * 2 * pi / axis.period


PAIRINGS = ("block", "half", "interleaved")
"""Which channels turn together: i and i + n inside an axis block, i and i + D/2 of the head, or 2i and 2i + 1."""


@dataclass(frozen=True)
class Rotary(Encoding):
    """All channels rotated by one coordinate pair and, in a video, by the time of the frame.

    With the coordinate `grid` this is RoPE; with `tangent` it is G-ray, the paper's direct form.
    `rotate_values` also rotates v and counter-rotates the output (eq:output); off, it is the paper's ablation.

    `time` gives the first channels to the time of each view. `split` lists the channels of every axis block in their
    order in the head, e.g. (44, 42, 42) for time, y and x in Wan; without it the blocks are equal, and time takes
    what is left over.
    """

    coordinate: str = "tangent"
    scale: float = 1.0  # α of eq:frequency
    base: float = 100.0  # β of eq:frequency
    rotate_values: bool = True
    samples: Samples = CENTER
    y_first: bool = False  # VGGT's order of the axis blocks; x first otherwise
    offset: tuple[float, float] = (0.0, 0.0)  # of patches against special tokens, see `match_offset`
    sign: int = 1  # of the phases: +1 in eq:rotation_bank, −1 in the released RayRoPE, GTA and PRoPE code
    time: bool = False
    time_scale: float = 1.0  # α of the time axis, per frame
    split: tuple[int, ...] | None = None
    pairing: str = "block"

    def __post_init__(self) -> None:
        get_coordinate(self.coordinate)
        check_choice("sign", self.sign, (1, -1))
        check_choice("pairing", self.pairing, PAIRINGS)
        # Options may come from a command line or a file, where a word can stand in the place of a number.
        scales = (self.scale, self.time_scale, self.base)
        if not all(isinstance(value, int | float) and value > 0 for value in scales):
            raise ValueError(
                f"frequency scales {self.scale} and {self.time_scale} and base {self.base} must be positive numbers"
            )
        if not self.samples:
            raise ValueError(
                "samples not given: name at least one position inside the patch, e.g. ((0.5, 0.5),)"
            )
        self._check_split()

    @property
    def blocks(self) -> int:
        """Axis blocks of the rays: one per sample and axis."""
        return len(self.samples) * len(get_coordinate(self.coordinate).axes)

    @property
    def rotary_channels(self) -> int:
        """Channels of a head that are rotated."""
        return self.head_dim

    def list_widths(self) -> tuple[int, ...]:
        """List the channels of every axis block, in their order in the head."""
        if self.split is not None:
            return self.split
        if not self.time:
            return (self.rotary_channels // self.blocks,) * self.blocks
        width = 2 * (self.rotary_channels // (2 * self.blocks + 2))
        return (self.rotary_channels - self.blocks * width, *(width,) * self.blocks)

    def compute_rotation(self, tokens: Tokens) -> TokenMap:
        """Compute E = R_Ω(θx) ⊕ R_Ω(θy) of every token, with a head axis (paper, eq:rotation, eq:angular_phase)."""
        where = get_coordinate(self.coordinate)(tokens, self.samples)
        is_patch = tokens.layout.get_patch_mask(tokens.device)
        axes = list(enumerate(where.axes))
        # Blocks are (sample, axis).
        positions = [
            (where.values[..., sample, index] + self.offset[index] * is_patch, axis, self.scale)
            for sample in range(len(self.samples))
            for index, axis in (reversed(axes) if self.y_first else axes)
        ]
        if self.time:
            times = get_coordinate("time")(tokens)
            positions.insert(0, (times.values[..., 0, 0], times.axes[0], self.time_scale))
        phases = []
        for (values, axis, scale), width in zip(positions, self.list_widths(), strict=True):
            bank = make_geometric_frequencies(width // 2, scale, self.base, device=values.device)
            # values [batch token] · ω [n] → phases [batch 1 token n]
            phases.append(self.sign * values[:, None, :, None] * round_to_period(bank, axis).to(values.dtype))
        return self._pair_channels(phases)

    def _pair_channels(self, phases: list[Float[Tensor, "batch 1 token _"]]) -> TokenMap:
        if self.pairing == "half":
            return Rotation.from_phases(torch.cat(phases, -1)[..., None, :])
        if self.pairing == "interleaved":
            return Rotation.from_phases(torch.cat(phases, -1)[..., None])
        widths = tuple(2 * part.shape[-1] for part in phases)
        if len(set(widths)) == 1:
            return Rotation.from_phases(torch.stack(phases, -2))
        return DirectSum(tuple(Rotation.from_phases(part[..., None, :]) for part in phases), widths)

    def _check_split(self) -> None:
        blocks, channels = self.blocks + self.time, self.rotary_channels
        if self.split is None and not self.time:
            multiple = (
                2 * blocks * self.head_dim // max(1, channels)
            )  # a head without channels is refused, too
            check_split(self, multiple or 2 * blocks, f"pairs in {blocks} axis blocks")
        widths = self.list_widths()
        even = all(isinstance(width, int) and width > 0 and width % 2 == 0 for width in widths)
        if len(widths) != blocks or not even or sum(widths) != channels:
            raise ValueError(
                f"channels {widths} do not split {channels} rotary channels: give {blocks} even numbers "
                f"that add up to {channels}, {'time first' if self.time else 'one per axis'}"
            )

    def _prepare(self, queries: Tokens, keys: Tokens) -> Tokenwise:
        query = self.compute_rotation(queries)
        key = query if keys is queries else self.compute_rotation(keys)
        # E⁻¹ of the query meets E of the key, so values enter by their angle relative to the query (eq:output).
        value, output = (key, query.adjoint()) if self.rotate_values else (Identity(), Identity())
        return Tokenwise(
            self.head_dim, queries.views.batch, queries.layout, keys.layout, query, key, value, output
        )
