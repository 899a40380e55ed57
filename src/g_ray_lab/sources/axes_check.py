"""Check the declared convention of poses: rays to the same point from two views must meet.

Poses come with camera axes (OpenCV, Blender) and a direction (world_from_cam or its inverse), and files do not state
which. Two rays that see the same point meet in front of both cameras under the right reading; under a wrong one most
of them do not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.geometry.pose import Pose

DECLARED = "as declared"
MARGIN_DEG = 0.3
"""How much less one reading must miss than another to win a match: about a pixel or two of ordinary video."""
MEET_DEG = 1.0
"""Rays that miss by less count as meeting: pixels, calibration and poses all have errors."""
MIN_MATCHES = 20
"""Matches by which one reading must lead."""
CLEARLY = 2
"""In addition, this many times as many matches must prefer it: wrong matches prefer any reading."""


def swap_opengl_opencv(pose: Pose) -> Pose:
    """x right, y up, z backward, read as OpenCV's x right, y down, z forward; and back, for it is its own inverse."""
    return Pose(pose.world_from_cam * pose.world_from_cam.new_tensor([1.0, -1.0, -1.0, 1.0]))


def _convert_from_forward_left_up(pose: Pose) -> Pose:
    """Camera frame x forward, y left, z up."""
    matrix = pose.world_from_cam
    return Pose(torch.stack([-matrix[..., 1], -matrix[..., 2], matrix[..., 0], matrix[..., 3]], -1))


READINGS: dict[str, Callable[[Pose], Pose]] = {
    DECLARED: lambda pose: pose,
    "camera axes turned by 180° about x (OpenCV and Blender axes confused)": swap_opengl_opencv,
    "inverse poses (cam_from_world and world_from_cam confused)": lambda pose: pose.inverse(),
    "inverse poses with axes turned by 180° about x": lambda pose: swap_opengl_opencv(pose.inverse()),
    "camera axes x forward, y left, z up": _convert_from_forward_left_up,
}
"""What the matrices may mean instead; each makes an OpenCV world_from_cam of them."""


@dataclass(frozen=True)
class MatchedViews:
    """Pixels of two views that show the same points, and their declared cameras and poses."""

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


# Match points of two images: corners and the patches around them, in plain torch.


RADIUS = 7
"""Pixels from the middle of a patch to its edge."""
LIKENESS = 0.8
"""Normalized correlation that a match needs."""
DISTINCT = 0.7
"""Squared distance to the best patch, in units of that to the next best, that a match may have."""


def match_images(
    first: Float[Tensor, "3 h w"], second: Float[Tensor, "3 height width"], corners: int = 800
) -> Float[Tensor, "2 match 2"]:
    """Pixels of both images (corner origin) that look the same: each the other's best, and better than its next best.

    For views of similar direction and scale, such as frames of a video.
    """
    (places, patches), (others, like) = (
        _extract_patches(image.mean(0), corners) for image in (first, second)
    )
    if len(places) < 2 or len(others) < 2:
        return first.new_empty(2, 0, 2)
    likeness = patches @ like.mT
    best, partner = likeness.topk(2, 1)
    mutual = likeness.argmax(0)[partner[:, 0]] == torch.arange(len(places))
    # Unit vectors are √(2 − 2 cos) apart. A rival that is nearly as near makes a match doubtful.
    distinct = 1 - best[:, 0] < DISTINCT * (1 - best[:, 1])
    good = mutual & distinct & (best[:, 0] > LIKENESS)
    return torch.stack([places[good], others[partner[good, 0]]])


def _extract_patches(
    luminance: Float[Tensor, "h w"], corners: int
) -> tuple[Float[Tensor, "corner 2"], Float[Tensor, "corner pixel"]]:
    """Corners and the patches around them, free of brightness and contrast: products are correlations."""
    places = _find_corners(luminance, corners)
    column, row = places.floor().long().unbind(-1)
    offset = torch.arange(-RADIUS, RADIUS + 1)
    patches = luminance[(row[:, None] + offset)[:, :, None], (column[:, None] + offset)[:, None]].flatten(1)
    return places, F.normalize(patches - patches.mean(1, keepdim=True), dim=1)


def _find_corners(luminance: Float[Tensor, "h w"], count: int) -> Float[Tensor, "corner 2"]:
    """Detect corners (Shi and Tomasi 1994), strongest first, none next to a stronger one."""
    image = luminance[None, None]
    dx, dy = image[..., 1:-1, 2:] - image[..., 1:-1, :-2], image[..., 2:, 1:-1] - image[..., :-2, 1:-1]
    xx, yy, xy = (F.avg_pool2d(product, 5, 1) for product in (dx * dx, dy * dy, dx * dy))
    strength = (xx + yy) / 2 - (((xx - yy) / 2) ** 2 + xy**2).sqrt()
    strength = F.pad(strength, (3,) * 4)[0, 0]
    peak = strength == F.max_pool2d(strength[None, None], 7, 1, 3)[0, 0]
    border = torch.zeros_like(peak)
    border[RADIUS:-RADIUS, RADIUS:-RADIUS] = True
    row, column = (peak & border & (strength > 1e-6)).nonzero(as_tuple=True)
    strongest = strength[row, column].argsort(descending=True)[:count]
    return torch.stack([column, row], -1)[strongest] + 0.5
