"""A camera walks through a room: small turns and small steps, so that neighbouring views overlap."""

from math import pi, radians

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.geometry.pose import Pose

START = 6
"""Numbers that a walk begins with: where around the room (2), height, what it looks at (2), pitch."""

PER_STEP = 6
"""Numbers per view: step (3), turn, pitch, roll."""

REACH_M = 1.9
HEIGHTS_M = (-0.8, -0.1)
"""Inside the smallest room and above all furniture; y is down."""

TURNS = 3.0
"""So many whole turns of a step away from where it began, a walk turns back."""


def make_walk(
    start: Float[Tensor, "set 6"], steps: Float[Tensor, "set view 6"], yaw_deg: float, step_m: float
) -> Pose:
    """World_from_cam [set view] from numbers in [0, 1): each view a step from the one before.

    A step turns by up to ±`yaw_deg` and goes up to ±`step_m` along each horizontal axis, less in height. At the
    end of its range a walk turns around.
    """
    begin, heading, pitch = _draw_start(start)
    centerd = 2 * steps - 1
    centerd = torch.cat([torch.zeros_like(centerd[:, :1, :4]), centerd[:, 1:, :4]], 1).cumsum(1)
    path = begin[:, None] + centerd[..., :3] * centerd.new_tensor([step_m, 0.4 * step_m, step_m])
    across = reflect_into(path[..., (0, 2)], -REACH_M, REACH_M)
    eyes = torch.stack([across[..., 0], reflect_into(path[..., 1], *HEIGHTS_M), across[..., 1]], -1)
    yaw = heading[:, None] + radians(yaw_deg) * reflect_into(centerd[..., 3], -TURNS, TURNS)
    tilt = pitch[:, None] + radians(6) * (2 * steps[..., 4] - 1)
    return _make_poses(eyes, yaw, tilt, radians(4) * (2 * steps[..., 5] - 1))


def reflect_into(value: Tensor, low: float, high: float) -> Tensor:
    """Reflect at both ends, as often as it takes: a walk that meets a wall comes back."""
    span = high - low
    return low + span - ((value - low).remainder(2 * span) - span).abs()


def _draw_start(start: Float[Tensor, "set 6"]) -> tuple[Tensor, Tensor, Tensor]:
    """Somewhere around the middle, with the eyes on something near it: place, heading and pitch."""
    around, out, high, aim_x, aim_z, down = start.unbind(-1)
    radius = 0.8 + out
    x, z = radius * torch.sin(2 * pi * around), radius * torch.cos(2 * pi * around)
    y = HEIGHTS_M[0] + (HEIGHTS_M[1] - HEIGHTS_M[0]) * high
    heading = torch.atan2(1.2 * aim_x - 0.6 - x, 1.2 * aim_z - 0.6 - z)
    return torch.stack([x, y, z], -1), heading, radians(25) * down


def _make_poses(eyes: Float[Tensor, "*view 3"], yaw: Tensor, pitch: Tensor, roll: Tensor) -> Pose:
    """Yaw about the vertical from +z to +x, pitch downwards, then roll about the optical axis."""
    forward = torch.stack([yaw.sin() * pitch.cos(), pitch.sin(), yaw.cos() * pitch.cos()], -1)
    cos, sin, zero = roll.cos(), roll.sin(), torch.zeros_like(roll)
    turn = torch.stack([cos, -sin, zero, sin, cos, zero, zero, zero, zero + 1], -1).unflatten(-1, (3, 3))
    level = Pose.look_at(eyes, eyes + forward)
    return Pose.from_parts(level.rotation @ turn, eyes)
