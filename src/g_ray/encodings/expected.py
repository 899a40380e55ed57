"""Expected rotations: a coordinate known only up to an interval (RayRoPE)."""

import torch
from jaxtyping import Float
from torch import Tensor

FLAT = 0.01
"""Below this phase width the released code takes the first endpoint."""


def smooth(
    start: Float[Tensor, "*shape"], width: Float[Tensor, "*shape"]
) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    """E[cos a], E[sin a] for a uniform in [start, start + width]: e^{i·middle} · sinc(width/2).

    Symmetric in the two ends and smooth through width = 0.
    """
    middle = start + 0.5 * width
    shrink = torch.sinc(width * (0.5 / torch.pi))
    return middle.cos() * shrink, middle.sin() * shrink


def threshold(
    start: Float[Tensor, "*shape"], width: Float[Tensor, "*shape"]
) -> tuple[Float[Tensor, "*shape"], Float[Tensor, "*shape"]]:
    """The released form: difference quotient of the antiderivative, or the first end where |width| ≤ 0.01.

    Only for comparison with released numbers: it is off by up to 5e-3 and stops gradients where it is flat.
    """
    flat = width.abs() <= FLAT
    safe = torch.where(flat, 1.0, width)
    end = start + width
    cos = torch.where(flat, start.cos(), (end.sin() - start.sin()) / safe)
    sin = torch.where(flat, start.sin(), (start.cos() - end.cos()) / safe)
    return cos, sin


EXPECTATIONS = {"smooth": smooth, "threshold": threshold}
