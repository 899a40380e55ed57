"""Check the declared convention of poses: rays to the same point from two views must meet.

Poses come with camera axes (OpenCV, Blender) and a direction (world_from_cam or its inverse), and files do not say
which. Two rays that see the same point meet in front of both cameras under the right reading; under a wrong one most
of them do not. Nothing here knows where matches come from.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.geometry.pose import Pose

DECLARED = "as declared"
MARGIN_DEG = 0.3
"""One reading must miss by so much less than another to win a match: about a pixel or two of ordinary video."""
MEET_DEG = 1.0
"""Rays that miss by less count as meeting: pixels, calibration and poses all have errors."""
MIN_MATCHES = 20
"""Matches by which one reading must lead."""
CLEARLY = 2
"""Times as many matches must prefer it, besides: wrong matches prefer any."""


def _swap_opengl_opencv(pose: Pose) -> Pose:
    """x right, y up, z backward, read as OpenCV's x right, y down, z forward; and back, for it is its own inverse."""
    return Pose(pose.world_from_cam * pose.world_from_cam.new_tensor([1.0, -1.0, -1.0, 1.0]))


def _convert_from_forward_left_up(pose: Pose) -> Pose:
    """Camera frame x forward, y left, z up."""
    matrix = pose.world_from_cam
    return Pose(torch.stack([-matrix[..., 1], -matrix[..., 2], matrix[..., 0], matrix[..., 3]], -1))


READINGS: dict[str, Callable[[Pose], Pose]] = {
    DECLARED: lambda pose: pose,
    "camera axes turned by 180° about x (OpenCV and Blender axes confused)": _swap_opengl_opencv,
    "inverse poses (cam_from_world and world_from_cam confused)": lambda pose: pose.inverse(),
    "inverse poses with axes turned by 180° about x": lambda pose: _swap_opengl_opencv(pose.inverse()),
    "camera axes x forward, y left, z up": _convert_from_forward_left_up,
}
"""What the matrices may mean instead; each makes an OpenCV world_from_cam of them."""


@dataclass(frozen=True)
class MatchedViews:
    """Pixels of two views that show the same points, and the cameras and poses they are said to have."""

    pixels: Float[Tensor, "2 match 2"]
    cameras: tuple[Camera, Camera]
    poses: Pose  # [2]

    def rays(self) -> Float[Tensor, "2 match 3"]:
        """Unit bearings in each camera's frame, of matches that both lenses can see."""
        (first, first_valid), (second, second_valid) = (
            camera.to(torch.float64).unproject(pixels.to(torch.float64))
            for camera, pixels in zip(self.cameras, self.pixels, strict=True)
        )
        return torch.stack([first, second])[:, first_valid & second_valid]


def is_clear_lead(votes: int, others: int) -> bool:
    """Return whether `votes` matches for a reading clearly outweigh `others` for another."""
    return votes >= MIN_MATCHES + CLEARLY * others


@dataclass(frozen=True)
class AxesReport:
    """How well every reading explains the matches; the first is the declared one."""

    matches: int
    meeting: dict[str, float]  # share of matches whose rays meet
    against: dict[str, tuple[int, int]]  # of another reading: matches that prefer it, and the declared one

    @property
    def better(self) -> str | None:
        """Return the reading that explains the matches clearly better than the declared one, if any."""
        clear = [name for name, (other, declared) in self.against.items() if is_clear_lead(other, declared)]
        return max(clear, key=lambda name: self.meeting[name], default=None)

    @property
    def certain(self) -> bool:
        """Return whether the declared reading is clearly better than every other."""
        return all(is_clear_lead(declared, other) for other, declared in self.against.values())

    @property
    def verdict(self) -> str:
        """One line."""
        share = f"{self.meeting[DECLARED]:.0%} of {self.matches} matched rays meet"
        if self.better is not None:
            return f"{share} as declared, but {self.meeting[self.better]:.0%} with {self.better}"
        if self.certain:
            return f"{share} as declared, at most {max(list(self.meeting.values())[1:]):.0%} otherwise"
        return f"{share} as declared: too few, or the motion is too simple, to tell conventions apart"


def check_axes(pairs: Sequence[MatchedViews]) -> AxesReport:
    """Compare all READINGS on the matches of one or more pairs of views.

    Sideways motion without rotation looks the same with OpenCV and Blender axes: give several pairs.
    """
    if not pairs:
        raise ValueError("no pair of views to check camera axes with: give at least one")
    rays = [pair.rays() for pair in pairs]
    poses = [pair.poses.to(torch.float64) for pair in pairs]
    misses = {
        name: torch.cat([compute_miss_rad(r, read(p)) for r, p in zip(rays, poses, strict=True)])
        for name, read in READINGS.items()
    }
    margin, near = torch.deg2rad(torch.tensor([MARGIN_DEG, MEET_DEG], dtype=torch.float64))
    declared = misses[DECLARED]
    return AxesReport(
        matches=len(declared),
        meeting={name: int((miss < near).sum()) / max(1, len(miss)) for name, miss in misses.items()},
        against={
            name: (int((miss + margin < declared).sum()), int((declared + margin < miss).sum()))
            for name, miss in misses.items()
            if name != DECLARED
        },
    )


def validate_axes(pairs: Sequence[MatchedViews], what: str) -> AxesReport:
    """Return the report, or raise ValueError with the likely convention."""
    report = check_axes(pairs)
    if report.better is not None:
        raise ValueError(f"{what}: poses and pictures contradict each other: {report.verdict}")
    return report


def compute_miss_rad(rays: Float[Tensor, "2 match 3"], poses: Pose) -> Float[Tensor, "match"]:
    """Compute the angle by which two rays miss each other: the larger one of both views, 0 where they meet in front."""
    world = poses.rotate(rays)
    towards = poses.translation.flip(0) - poses.translation  # from each camera to the other
    return torch.stack([_compute_arc_distance(world[1 - i], towards[1 - i], world[i]) for i in (0, 1)]).amax(
        0
    )


def _compute_arc_distance(
    ray: Float[Tensor, "match 3"], epipole: Float[Tensor, "3"], other: Float[Tensor, "match 3"]
) -> Float[Tensor, "match"]:
    """Angle between a ray and the arc on which the points of another ray appear.

    That arc runs from the other camera's center (the epipole: depth 0) to the other ray's direction (infinity).
    """
    start = torch.nn.functional.normalize(epipole.expand_as(other), dim=-1)
    normal = torch.linalg.cross(start, other)
    size = normal.norm(dim=-1, keepdim=True)
    normal = normal / size.clamp(min=1e-12)
    inside = (torch.linalg.cross(normal, start) * ray).sum(-1) >= 0
    inside &= (torch.linalg.cross(other, normal) * ray).sum(-1) >= 0
    off_plane = (normal * ray).sum(-1).clamp(-1, 1).asin().abs()
    ends = torch.minimum(_compute_angle(ray, start), _compute_angle(ray, other))
    return torch.where(inside & (size[:, 0] > 1e-12), off_plane, ends)


def _compute_angle(
    first: Float[Tensor, "match 3"], second: Float[Tensor, "match 3"]
) -> Float[Tensor, "match"]:
    """Exact for small angles too."""
    return torch.atan2(torch.linalg.cross(first, second).norm(dim=-1), (first * second).sum(-1))
