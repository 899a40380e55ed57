"""Do the poses of a scene contradict its depth or its pictures? Asked of pairs of its views."""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.base import Camera
from g_ray.data.checks.axes import MatchedViews, check_axes
from g_ray.data.checks.depth import DepthView, Reading, check_depth
from g_ray.data.checks.matching import match_images
from g_ray.data.checks.view_pairs import choose_view_pairs
from g_ray.data.photos import read_photo
from g_ray.data.resample import resample
from g_ray.formats.scene import PosedScene, check_depth_size, check_loaded_photo
from g_ray.geometry.pose import Pose

MATCH_PX = 480
"""Long side of photographs that are matched."""
COLOR_PX = 160
"""Long side of photographs whose colours are compared: small enough to forgive a pixel or two."""
HARDLY = 0.02
"""If fewer points of a view are seen by others, nothing can be said."""
LITTLE = 0.3
"""If fewer of the visible points agree, something is wrong that no reading explains."""
SLIGHT = (0.9, 1.1)
"""A unit so little off is a matter of calibration."""

Message = tuple[Literal["error", "warning", "note"], str]


def find_contradiction(scene: PosedScene, with_depth: Sequence[int], pairs: int) -> Message | None:
    """A line about the scene if something is wrong or in doubt. Views that cannot be read are left aside."""
    if len(with_depth) > 1:
        return _check_depth(scene, choose_view_pairs(scene.poses, with_depth, pairs))
    there = [view for view, path in enumerate(scene.images) if path.is_file()]
    return _check_matches(scene, choose_view_pairs(scene.poses, there, pairs)) if len(there) > 1 else None


def _check_depth(scene: PosedScene, pairs: Sequence[tuple[int, int]]) -> Message | None:
    views = {view: _make_depth_view(scene, view) for view in {view for pair in pairs for view in pair}}
    both = [(a, b) for a, b in ((views[first], views[second]) for first, second in pairs) if a and b]
    if not both:
        return None
    report = check_depth(both)
    verdict = report.verdict(both[0][0].convention)
    if report.better is not None and report.better == Reading(factor=report.better.factor):
        slight = SLIGHT[0] < report.better.factor < SLIGHT[1]
        return "warning" if slight else "error", f"depth and poses are not in one unit: {verdict}"
    if report.better is not None:
        return "error", f"poses, depth and pictures contradict each other: {verdict}"
    if report.visible < HARDLY:
        return "warning", "hardly any point of a view is seen by another: poses or depth may be wrong"
    if report.agreeing < LITTLE:
        return "warning", f"only {verdict}: poses, calibration or depth are wrong, or things move"
    return None


def _check_matches(scene: PosedScene, pairs: Sequence[tuple[int, int]]) -> Message | None:
    photos = {view: _load_small(scene, view, MATCH_PX) for view in {view for pair in pairs for view in pair}}
    matched = []
    for first, second in pairs:
        one, other = photos[first], photos[second]
        if one is not None and other is not None:
            poses = Pose(scene.poses.world_from_cam[[first, second]])
            matched.append(MatchedViews(match_images(one[0], other[0]), (one[1], other[1]), poses))
    if not matched:
        return None
    report = check_axes(matched)
    if report.better is not None:
        return "error", f"poses and pictures contradict each other: {report.verdict}"
    return None if report.certain else ("note", f"camera axes are not confirmed: {report.verdict}")


def _make_depth_view(scene: PosedScene, view: int) -> DepthView | None:
    file, small = scene.depth[view], _load_small(scene, view, COLOR_PX)
    assert file is not None
    if small is None:
        return None
    try:
        depth = file.read()
        check_depth_size(file.path, depth, scene.cameras[view])
    except (ValueError, OSError):
        return None
    return DepthView.make(scene.cameras[view], scene.poses[view], file.convention, depth, small[0])


def _load_small(scene: PosedScene, view: int, longest: int) -> tuple[Float[Tensor, "3 h w"], Camera] | None:
    """A photograph of no more pixels than needed, with its camera."""
    camera = scene.cameras[view]
    try:
        photo = read_photo(scene.images[view])
        check_loaded_photo(scene.images[view], photo, camera)
    except (ValueError, OSError):
        return None
    scale = min(1.0, longest / max(camera.width, camera.height))
    width, height = (max(1, round(scale * size)) for size in (camera.width, camera.height))
    image, small = resample(photo, camera, width, height)
    return image.to(torch.float32), small
