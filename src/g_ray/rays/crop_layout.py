"""Where pinhole crops of a photograph look, so that together they see all of its rays.

Crops stand in rows on the sphere: a row holds equally spaced crops at one angle from a polar axis, and a cap at a pole
may replace a row. Rows about the vertical suit panoramas, rows about the optical axis suit fisheyes. All layouts of
that kind with few rows are tried on the rays of the lens, and the one with the fewest crops is kept.
"""

import math
from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float
from torch import Tensor

MAX_ROWS = 5
MAX_PER_ROW = 12
POLES = (1, 2)
"""Axes of the photograph's frame that rows may surround: y, the vertical, and z, the optical axis."""


def choose_rotations(rays: Float[Tensor, "ray 3"], core_deg: float) -> Float[Tensor, "crop 3 3"]:
    """Choose `photo_from_crop` of few upright square crops, so that every ray lies in the middle `core_deg` of one."""
    rays = rays.double()
    layouts = (torch.cat(rows) for pole in POLES for rows in _propose_rows(rays, core_deg, pole))
    best = None
    for directions in layouts:
        rotations = _drop_redundant(rays, look_along(directions), core_deg)
        if best is None or len(rotations) < len(best):
            best = rotations
    if best is None:
        raise ValueError(
            f"no layout with {MAX_ROWS} rows of {MAX_PER_ROW} crops covers the lens with {core_deg:g}° each: "
            "use wider crops or less overlap"
        )
    return best


def look_along(directions: Float[Tensor, "*crop 3"]) -> Float[Tensor, "*crop 3 3"]:
    """Rotations whose z axis is the direction: first a turn about the vertical, then a tilt, so x stays horizontal."""
    x, y, z = torch.nn.functional.normalize(directions, dim=-1).unbind(-1)
    level = torch.hypot(x, z)
    at_pole = level < 1e-6
    sin_yaw = torch.where(at_pole, 0.0, x / level.clamp(min=1e-12))
    cos_yaw = torch.where(at_pole, 1.0, z / level.clamp(min=1e-12))
    zero = torch.zeros_like(x)
    right = torch.stack([cos_yaw, zero, -sin_yaw], -1)
    forward = torch.stack([sin_yaw * level, y, cos_yaw * level], -1)
    return torch.stack([right, torch.linalg.cross(forward, right), forward], -1)


# Layouts


def _propose_rows(rays: Tensor, core_deg: float, pole: int) -> Iterator[list[Tensor]]:
    """Rows about an axis of the photograph that cover all rays: with one to MAX_ROWS rows, with caps and without."""
    angle = torch.acos(rays[:, pole].clamp(-1, 1))
    low, high = float(angle.min()), float(angle.max())
    cap = math.radians(core_deg) / 2
    near_pole, far_pole = low < cap, high > math.pi - cap
    for with_near in {False, near_pole}:
        for with_far in {False, far_pole}:
            start, stop = (cap if with_near else low), (math.pi - cap if with_far else high)
            caps = [_make_pole(pole, 1.0)] * with_near + [_make_pole(pole, -1.0)] * with_far
            for count in range(1, MAX_ROWS + 1) if start < stop else [0]:
                rows = _fill_rows(rays, angle, core_deg, pole, start, stop, count)
                if rows is not None:
                    yield caps + rows


def _fill_rows(
    rays: Tensor, angle: Tensor, core_deg: float, pole: int, start: float, stop: float, count: int
) -> list[Tensor] | None:
    """Evenly spaced rows, each with as few crops as cover its band of rays; None where a band cannot be covered."""
    rows = []
    for index in range(count):
        bottom, top = (start + (stop - start) * (index + i) / count for i in (0, 1))
        band = rays[(angle >= bottom) & (angle <= top)]
        row = _fill_row(band, core_deg, pole, (bottom + top) / 2)
        if row is None:
            return None
        rows.append(row)
    return rows


def _fill_row(band: Tensor, core_deg: float, pole: int, angle: float) -> Tensor | None:
    if not len(band):
        return band
    first, second = (pole + 1) % 3, (pole + 2) % 3
    turn = torch.atan2(band[:, second], band[:, first]).sort().values
    begin, span = _find_arc(turn)
    for count in range(1, MAX_PER_ROW + 1):
        # A closed row can also begin between the axes of the photograph, which may save crops in the corners.
        for phase in (0.5,) if span < 2 * math.pi else (0.0, 0.5):
            at = begin + span * (torch.arange(count, dtype=band.dtype, device=band.device) + phase) / count
            row = torch.zeros(count, 3, dtype=band.dtype, device=band.device)
            row[:, pole] = math.cos(angle)
            row[:, first], row[:, second] = math.sin(angle) * at.cos(), math.sin(angle) * at.sin()
            if bool(_find_seen(band, look_along(row), core_deg).any(0).all()):
                return row
    return None


def _find_arc(turn: Float[Tensor, "ray"]) -> tuple[float, float]:
    """Start and length of the shortest arc that holds all sorted angles; the full circle if gaps are below 30°."""
    gaps = torch.cat([turn[1:], turn[:1] + 2 * math.pi]) - turn
    widest = int(gaps.argmax())
    if float(gaps[widest]) < math.radians(30):
        return 0.0, 2 * math.pi
    return float(turn[(widest + 1) % len(turn)]), 2 * math.pi - float(gaps[widest])


def _make_pole(pole: int, sign: float) -> Tensor:
    direction = torch.zeros(1, 3, dtype=torch.float64)
    direction[0, pole] = sign
    return direction


def _find_seen(rays: Tensor, rotations: Tensor, core_deg: float) -> Bool[Tensor, "crop ray"]:
    x, y, z = (rays @ rotations).unbind(-1)
    reach = math.tan(math.radians(core_deg) / 2) * z
    return (x.abs() <= reach) & (y.abs() <= reach)


def _drop_redundant(rays: Tensor, rotations: Tensor, core_deg: float) -> Tensor:
    """Leave out crops whose rays all lie in others, the emptiest first."""
    seen = _find_seen(rays, rotations, core_deg)
    keep = torch.ones(len(rotations), dtype=torch.bool)
    for index in seen.sum(1).argsort().tolist():
        keep[index] = False
        if not bool(seen[keep].any(0).all()):
            keep[index] = True
    return rotations[keep]
