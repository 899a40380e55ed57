"""Guessed poses, a network's say, for photographs that matching cannot place: aligned, then adjusted to what matches.

A guess is brought to the world of the registered views: the similarity between both gives the scale, and the registered
view that is closest in the guessed world the place to start from. Tracks of verified matches that reach a guessed view
then adjust its pose, if tracks that were held out improve; registered views do not move.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.geometry.pose import Pose
from g_ray.geometry.similarity import fit_similarity_to_poses
from g_ray.sfm.mapping import drop_outliers
from g_ray.sfm.match_tracks import make_track_scene
from g_ray.sfm.pairs import Pair
from g_ray.sfm.refinement import MIN_HELD_OUT, refine
from g_ray.sfm.sfm_options import MIN_INLIERS
from g_ray.sfm.sparse_scene import SparseScene, Tracks
from g_ray.sfm.workspace import Workspace

HOLD_OUT = 0.2
"""Share of the tracks that decide whether an adjusted pose is kept."""
SAME_VIEW_RAD = 1.0
"""Beyond this angle two photographs hardly see the same things: it counts as much as the spread of all cameras."""
MIN_OBSERVATIONS = 6
"""Features without which a pose is not adjusted: three would fix it, but allow no wrong one."""


def place_by_guesses(
    space: Workspace, geometries: Mapping[Pair, Any], scene: SparseScene, guesses: Sequence[Pose]
) -> SparseScene:
    """Give guessed poses to the views of a scene that have none; `guessed` of the result names them.

    With fewer than two registered views, nothing relates both worlds: all poses are then guesses.
    """
    if len(scene.registered) < 2:
        return start_from_guesses(space, geometries, scene, guesses)
    missing = [index for index, pose in enumerate(scene.poses) if pose is None]
    poses = align_guesses(scene, guesses)
    extra, note = _adjust_guesses(space, _select_tracks(space, geometries, poses, missing), scene.registered)
    return replace(
        scene,
        poses=extra.poses,
        points=torch.cat([scene.points, extra.points]),
        colors=torch.cat([scene.colors, extra.colors]),
        tracks=Tracks.concatenate(
            [scene.tracks, replace(extra.tracks, point=extra.tracks.point + len(scene.points))]
        ),
        reasons=(None,) * len(poses),
        guessed=tuple(missing),
        notes=(*scene.notes, note),
    )


def start_from_guesses(
    space: Workspace, geometries: Mapping[Pair, Any], scene: SparseScene, guesses: Sequence[Pose]
) -> SparseScene:
    """Take the guesses for all views, and adjust them to the matches that there are."""
    poses = [pose.to("cpu").to(torch.float64) for pose in guesses]
    full, note = _adjust_guesses(space, make_track_scene(space, geometries, poses), ())
    everything = tuple(range(len(poses)))
    return replace(full, guessed=everything, notes=(*scene.notes, note))


def align_guesses(scene: SparseScene, guesses: Sequence[Pose]) -> list[Pose]:
    """Return the registered poses as they are, and the guesses of all other views in their world.

    A guess is taken relative to its closest registered view, of which the true place is known: on photographs of the
    red kitchen rotations are then off by 14° instead of 25° (docs: photographs).
    """
    rows = torch.tensor(scene.registered)
    stacked = Pose(torch.stack([pose.world_from_cam.cpu().double() for pose in guesses]))
    scale = fit_similarity_to_poses(stacked[rows], scene.stack_poses()).scale
    poses = list(scene.poses)
    for index in range(len(poses)):
        if scene.poses[index] is None:
            anchor = int(rows[_measure_separation(stacked[rows], stacked[index]).argmin()])
            step = stacked[anchor].inverse() @ stacked[index]
            known = scene.poses[anchor]
            assert known is not None
            poses[index] = known @ Pose.from_parts(step.rotation, scale * step.translation)
    return [pose for pose in poses if pose is not None]


def _measure_separation(poses: Pose, other: Pose) -> Float[Tensor, "view"]:
    """Distance in units of the cameras' spread, plus the angle in units of `SAME_VIEW_RAD`."""
    centers = poses.translation
    spread = torch.linalg.vector_norm(centers - centers.mean(0), dim=-1).square().mean().sqrt()
    distance = torch.linalg.vector_norm(centers - other.translation, dim=-1)
    # ‖A − B‖ = √8 sin(angle / 2), accurate for small angles too.
    half = (poses.rotation - other.rotation).flatten(-2).norm(dim=-1) / 8**0.5
    return distance / spread + 2 * torch.asin(half.clamp(max=1)) / SAME_VIEW_RAD


def _select_tracks(
    space: Workspace, geometries: Mapping[Pair, Any], poses: Sequence[Pose], guessed: Sequence[int]
) -> SparseScene:
    """Return a scene of the tracks that reach a guessed view; the others have points already."""
    scene = make_track_scene(space, geometries, poses)
    reached = torch.zeros(len(scene.points), dtype=torch.bool)
    reached[scene.tracks.point[torch.isin(scene.tracks.view, torch.tensor(guessed))]] = True
    number = torch.cumsum(reached.long(), 0) - 1
    tracks = scene.tracks.select(reached[scene.tracks.point])
    tracks = replace(tracks, point=number[tracks.point])
    return replace(scene, points=scene.points[reached], colors=scene.colors[reached], tracks=tracks)


def _adjust_guesses(space: Workspace, scene: SparseScene, fixed: Sequence[int]) -> tuple[SparseScene, str]:
    """Adjust all but the fixed views if held-out tracks then fit better, drop what does not fit, and say so."""
    outcome = f"{len(scene.points)} tracks reach them, too few to adjust them"
    seen = scene.count_observations()
    # A view without features would drift freely, so it stays where the guess puts it.
    still = sorted(
        {*fixed, *(index for index, count in enumerate(seen.tolist()) if count < MIN_OBSERVATIONS)}
    )
    if round(HOLD_OUT * len(scene.points)) >= MIN_HELD_OUT and len(still) < len(scene.names):
        answer = refine(
            scene, options=space.options, hold_out=HOLD_OUT, fixed=still, coarse=True, measured=True
        )
        scene = answer.scene
        outcome = (
            f"adjusted to {len(scene.points)} tracks" if answer.kept else "adjusting them did not help"
        ) + f" (held-out error {answer.before_px:.1f} px before, {answer.after_px:.1f} px after)"
    scene = drop_outliers(space, scene)
    supported = scene.count_observations()
    places = [index for index in range(len(scene.names)) if index not in fixed]
    good = sum(int(supported[index]) >= MIN_INLIERS for index in places)
    return scene, (
        f"guessed poses of {len(places)} photographs: {outcome}; {good} of them fit "
        f"{MIN_INLIERS} features or more"
    )
