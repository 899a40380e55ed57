"""Rotary encodings of one coordinate pair (grid-index RoPE, and G-ray itself), and frequency banks for all of them.

Which channel pairs with which is drawn in `rotation`.
"""

from dataclasses import dataclass, replace
from math import pi

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.coordinates import Axis, get_coordinate
from g_ray.encodings.encoding_base import Encoding, Tokenwise, check_choice, check_split
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


@dataclass(frozen=True)
class Rotary(Encoding):
    """All channels rotated by one coordinate pair.

    With the coordinate `grid` this is RoPE; with `tangent` it is G-ray, the paper's direct form.
    `rotate_values` also rotates v and counter-rotates the output (eq:output); off, it is the paper's ablation.
    """

    coordinate: str = "tangent"
    scale: float = 1.0  # α of eq:frequency
    base: float = 100.0  # β of eq:frequency
    rotate_values: bool = True
    samples: Samples = CENTER
    y_first: bool = False  # VGGT's order of the axis blocks; x first otherwise
    sign: int = 1  # of the phases: +1 in eq:rotation_bank, −1 in the released RayRoPE, GTA and PRoPE code

    def __post_init__(self) -> None:
        get_coordinate(self.coordinate)
        check_choice("sign", self.sign, (1, -1))
        # Options may come from a command line or a file, where a word can stand in the place of a number.
        if not all(isinstance(value, int | float) and value > 0 for value in (self.scale, self.base)):
            raise ValueError(f"frequency scale {self.scale} and base {self.base} must be positive numbers")
        if not self.samples:
            raise ValueError(
                "samples not given: name at least one position inside the patch, e.g. ((0.5, 0.5),)"
            )
        check_split(self, 2 * self.blocks, f"pairs in {self.blocks} axis blocks")

    @property
    def blocks(self) -> int:
        """Axis blocks: one per sample and axis."""
        return len(self.samples) * len(get_coordinate(self.coordinate).axes)

    def compute_rotation(self, tokens: Tokens, channels: int) -> Rotation:
        """Compute E = R_Ω(θx) ⊕ R_Ω(θy) of every token, with a head axis (paper, eq:rotation, eq:angular_phase)."""
        where = get_coordinate(self.coordinate)(tokens, self.samples)
        bank = make_geometric_frequencies(
            channels // (2 * self.blocks), self.scale, self.base, device=where.values.device
        )
        frequencies = torch.stack([round_to_period(bank, axis) for axis in where.axes]).to(where.values.dtype)
        # values [batch token sample axis] · ω [axis n] → phases [batch token sample axis n]; blocks are (sample, axis).
        phases = self.sign * where.values[..., None] * frequencies
        phases = phases.flip(-2) if self.y_first else phases
        return Rotation.from_phases(phases.flatten(-3, -2)[:, None])

    def _prepare(self, queries: Tokens, keys: Tokens) -> Tokenwise:
        query = self.compute_rotation(queries, self.head_dim)
        key = query if keys is queries else self.compute_rotation(keys, self.head_dim)
        prepared = Tokenwise(self.head_dim, queries.views.batch, queries.layout, keys.layout, query, key)
        # E⁻¹ of the query meets E of the key, so values enter by their angle relative to the query (eq:output).
        return replace(prepared, value=key, output=query.inverse()) if self.rotate_values else prepared
