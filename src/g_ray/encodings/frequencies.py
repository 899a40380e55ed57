"""Frequency banks of the rotary encodings."""

from math import pi

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.coordinates import Axis


def make_geometric_frequencies(
    count: int, scale: float = 1.0, base: float = 100.0, device: torch.device | str | None = None
) -> Float[Tensor, "{count}"]:
    """ω_k = α β^(−k/n), k = 0 … n−1, falling from the scale α (paper, eq:frequency)."""
    return scale * base ** (-torch.arange(count, dtype=torch.float64, device=device) / count)


def make_periodic_frequencies(
    count: int, period: float, ratio: float = 3.0, device: torch.device | str | None = None
) -> Float[Tensor, "{count}"]:
    """ω_k = (2π/P) b^k, k = 0 … n−1, rising from the longest period P (RayRoPE; paper, eq:rayrope_frequency)."""
    return 2 * pi / period * ratio ** torch.arange(count, dtype=torch.float64, device=device)


def round_to_period(frequencies: Float[Tensor, "n"], axis: Axis) -> Float[Tensor, "n"]:
    """Frequencies that an axis admits: on a periodic one, the nearest whole number (at least 1) of turns.

    Then a coordinate and the same coordinate one period later have the same phase: no seam.
    """
    if axis.period is None:
        return frequencies
    turns = (frequencies * axis.period / (2 * pi)).round().clamp(min=1.0)
    return turns * 2 * pi / axis.period
