"""COLMAP's incremental mapping with the given lenses held fixed, and its triangulation with given poses."""

import math
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from g_ray.formats.colmap.colmap_cameras import count_threads
from g_ray.geometry.pose import Pose
from g_ray.runtime.interruptible import run_interruptibly
from g_ray.sfm.bundle import State, make_problem, triangulate_rays
from g_ray.sfm.pairs import Pair
from g_ray.sfm.sfm_options import MAX_ERROR_PX, MIN_INLIERS, SMALL_SET
from g_ray.sfm.sparse_scene import SparseScene, Tracks, drop_weak_tracks
from g_ray.sfm.workspace import Report, Workspace, convert_pose

RIG_SECONDS = 10.0
"""CPU seconds per view after which mapping with a rig is given up; without one a view takes about a second."""
FEW_VIEWS = 4
"""With at most this many views, points that only two of them see are kept."""


@dataclass(frozen=True)
class Level:
    """How much evidence mapping requires."""

    first_inliers: int
    """Matches of the first pair."""
    first_angle_deg: float
    """Median angle between the rays of the first pair."""
    inliers: int
    """Points that a further view must see."""
    inlier_ratio: float
    min_angle_deg: float
    """Smallest angle between the rays of a point."""


LEVELS = (
    Level(100, 16.0, 30, 0.25, 1.5),
    Level(50, 6.0, 20, 0.15, 1.5),
    Level(25, 2.0, 12, 0.10, 0.7),
)


def map_views(space: Workspace, report: Report, first: Pair | None = None) -> list[Any]:
    """Return COLMAP's models, the largest first; empty if no two views could be oriented.

    Mapping starts from the pair `first`, or from one that COLMAP chooses. Where views are left over, the largest model
    is continued with less demanding thresholds.
    """
    models: list[Any] = []
    for level in LEVELS:
        start = models[0] if models and models[0].num_reg_images() > len(space.views) // 2 else None
        found = _run_mapper(space, make_mapping_options(space, level, first), start, report)
        models = max(models, found, key=lambda group: _rank(group[0]) if group else (0, 0))
        if models and models[0].num_reg_images() == len(space.views):
            break
    report("mapping", 1.0)
    return models


def _run_mapper(space: Workspace, options: Any, start: Any, report: Report) -> list[Any]:
    done = 0 if start is None else start.num_reg_images()

    def advance() -> None:
        nonlocal done
        done += 1
        report("mapping", min(0.99, done / len(space.views)))

    with tempfile.TemporaryDirectory(dir=space.folder, prefix=".mapping-") as folder:
        before = ""
        if start is not None:
            before = str(Path(folder) / "start")
            Path(before).mkdir()
            start.write(before)
        output = Path(folder) / "models"
        output.mkdir()
        token = space.pycolmap.CancellationToken()
        models = run_interruptibly(
            partial(
                space.pycolmap.incremental_mapping,
                *(str(space.database), folder, str(output), options, before),
                next_image_callback=advance,
                cancellation_token=token,
            ),
            token.cancel,
            math.inf if space.rig is None else RIG_SECONDS * len(space.views),
        )
        shutil.rmtree(output)
    return sorted(models.values(), key=_rank, reverse=True)


def map_globally(space: Workspace, report: Report) -> list[Any]:
    """Return COLMAP's models of all rotations, then all positions at once, the largest first."""
    pycolmap = space.pycolmap
    options = pycolmap.GlobalPipelineOptions()
    mapper, bundle = options.mapper, options.mapper.bundle_adjustment
    options.num_threads = mapper.num_threads = 1
    options.random_seed = mapper.random_seed = space.options.seed
    options.min_num_matches, options.decompose_relative_pose = MIN_INLIERS, False
    mapper.refine_sensor_from_rig = bundle.refine_sensor_from_rig = False
    bundle.refine_focal_length = bundle.refine_principal_point = bundle.refine_extra_params = False
    mapper.global_positioning.use_gpu = bundle.ceres.use_gpu = False
    with tempfile.TemporaryDirectory(dir=space.folder, prefix=".mapping-") as folder:
        models = run_interruptibly(
            partial(pycolmap.global_mapping, str(space.database), folder, folder, options)
        )
    report("mapping", 1.0)
    return sorted(models.values(), key=_rank, reverse=True)


def _rank(model: Any) -> tuple[int, int]:
    return model.num_reg_images(), model.num_points3D()


def make_mapping_options(space: Workspace, level: Level, first: Pair | None = None) -> Any:
    """Options with all intrinsics, and the poses of cameras on their rig, fixed."""
    settings = space.options
    options = space.pycolmap.IncrementalPipelineOptions()
    # COLMAP's choice of the first pair depends on the number of threads: small sets give the same on every machine.
    small = len(space.views) <= SMALL_SET
    options.num_threads = 1 if small else count_threads(settings.threads)
    if first is not None:
        options.init_image_id1, options.init_image_id2 = (index + 1 for index in first)
    options.random_seed = options.mapper.random_seed = options.triangulation.random_seed = settings.seed
    options.extract_colors = False
    options.min_model_size, options.max_num_models = 2, 5
    options.min_num_matches = MIN_INLIERS
    options.ba_refine_focal_length = options.ba_refine_principal_point = False
    options.ba_refine_extra_params = options.ba_refine_sensor_from_rig = False
    options.mapper.abs_pose_refine_focal_length = options.mapper.abs_pose_refine_extra_params = False
    # A calibration that was given is not questioned, however unusual its numbers are.
    options.min_focal_length_ratio, options.max_focal_length_ratio = 1e-6, 1e6
    options.max_extra_param = 1e9
    options.mapper.init_min_num_inliers = level.first_inliers
    options.mapper.init_min_tri_angle = level.first_angle_deg
    options.mapper.init_max_error = MAX_ERROR_PX
    options.mapper.abs_pose_min_num_inliers = level.inliers
    options.mapper.abs_pose_min_inlier_ratio = level.inlier_ratio
    options.mapper.abs_pose_max_error = 3 * MAX_ERROR_PX
    options.mapper.filter_max_reproj_error = MAX_ERROR_PX
    options.mapper.filter_min_tri_angle = options.triangulation.min_angle = level.min_angle_deg
    options.triangulation.merge_max_reproj_error = MAX_ERROR_PX
    options.triangulation.complete_max_reproj_error = MAX_ERROR_PX
    options.triangulation.ignore_two_view_tracks = len(space.views) > FEW_VIEWS
    return options


def triangulate_with_poses(space: Workspace, poses: Sequence[Pose | None], level: Level = LEVELS[-1]) -> Any:
    """Triangulate all verified matches with the given poses, which are not changed."""
    with tempfile.TemporaryDirectory(dir=space.folder, prefix=".mapping-") as folder:
        model = make_posed_model(space, poses)
        options = make_mapping_options(space, level)
        return run_interruptibly(
            partial(
                space.pycolmap.triangulate_points, model, str(space.database), folder, folder, True, options
            )
        )


def make_posed_model(space: Workspace, poses: Sequence[Pose | None]) -> Any:
    """COLMAP's model with the views that have poses and no points. Every view is a frame of its own."""
    pycolmap = space.pycolmap
    database = pycolmap.Database.open(str(space.database))
    try:
        model = pycolmap.Reconstruction()
        for camera in database.read_all_cameras():
            model.add_camera(camera)
        for rig in database.read_all_rigs():
            model.add_rig(rig)
        images = {image.image_id: image for image in database.read_all_images()}
        for frame in database.read_all_frames():
            members = list(frame.image_ids)
            pose = poses[members[0].id - 1]
            if pose is None:
                continue
            frame.rig_from_world = convert_pose(pycolmap, pose.inverse())
            model.add_frame(frame)
            for member in members:
                image = images[member.id]
                image.frame_id = frame.frame_id
                model.add_image(image)
            model.register_frame(frame.frame_id)
    finally:
        database.close()
    return model


def convert_model(space: Workspace, model: Any) -> SparseScene:
    """Convert COLMAP's model to pixels of the original images, and drop observations that the true lens rejects."""
    poses: list[Pose | None] = [None] * len(space.views)
    numbers = {number: row for row, number in enumerate(model.points3D)}
    points = np.array([point.xyz for point in model.points3D.values()]).reshape(-1, 3)
    colors = np.zeros((len(points), 3), np.uint8)
    parts = [Tracks.make_empty()]
    for image in model.images.values():
        if not image.has_pose:
            continue
        index = image.image_id - 1
        poses[index] = _read_pose(image)
        seen = [(i, numbers[p.point3D_id]) for i, p in enumerate(image.points2D) if p.has_point3D()]
        rows, owners = np.array(seen, dtype=np.int64).reshape(-1, 2).T.copy()
        features = space.features[index]
        # COLMAP does not extract colors here (see `make_mapping_options`): points take those of their features.
        colors[owners] = features.colors[rows]
        parts.append(
            Tracks(
                torch.full((len(rows),), index),
                torch.from_numpy(owners),
                torch.from_numpy(features.pixels[rows].astype(np.float64)),
                torch.from_numpy(features.descriptors[rows]),
            )
        )
    scene = SparseScene(
        names=tuple(view.name for view in space.views),
        cameras=tuple(view.camera for view in space.views),
        poses=tuple(poses),
        reasons=tuple(None if pose is not None else "no pose was given" for pose in poses),
        points=torch.from_numpy(points),
        colors=torch.from_numpy(colors),
        tracks=Tracks.concatenate(parts),
    )
    return drop_outliers(space, scene)


def drop_outliers(space: Workspace, scene: SparseScene) -> SparseScene:
    """Drop observations beyond the error limit in the true lens, which is given in working pixels."""
    scale = torch.tensor([lens.scale for lens in space.lenses], dtype=torch.float64)
    working = scene.compute_errors_px() * scale[scene.tracks.view]
    return drop_weak_tracks(scene, working <= MAX_ERROR_PX)


def _read_pose(image: Any) -> Pose:
    matrix = torch.from_numpy(np.asarray(image.cam_from_world().matrix(), dtype=np.float64).copy())
    return Pose.from_parts(matrix[:, :3], matrix[:, 3]).inverse()


# Tracks of verified matches


def make_track_scene(
    space: Workspace, geometries: Mapping[Pair, Any], poses: Sequence[Pose | None]
) -> SparseScene:
    """Make a scene of all tracks of views with poses, triangulated with these, whether they fit or not."""
    posed = {index for index, pose in enumerate(poses) if pose is not None}
    usable = {pair: geometry for pair, geometry in geometries.items() if posed.issuperset(pair)}
    view, row, point = connect_features(space, usable)
    features = space.features
    tracks = Tracks(
        torch.from_numpy(view),
        torch.from_numpy(point),
        torch.tensor(_gather([part.pixels for part in features], view, row), dtype=torch.float64),
        torch.from_numpy(_gather([part.descriptors for part in features], view, row)),
    )
    count = int(point.max()) + 1 if len(point) else 0
    colors = torch.zeros(count, 3, dtype=torch.uint8)
    colors[tracks.point] = torch.from_numpy(_gather([part.colors for part in features], view, row))
    # The identity only fills the rows of views without a pose: no track refers to them.
    eye = torch.eye(4, dtype=torch.float64)
    cam_from_world = torch.stack([eye if pose is None else pose.cam_from_world for pose in poses])
    cameras = tuple(view.camera for view in space.views)
    problem = make_problem(tracks, cameras, [lens.scale for lens in space.lenses])
    nowhere = torch.zeros(count, 3, dtype=torch.float64)
    return SparseScene(
        names=tuple(view.name for view in space.views),
        cameras=cameras,
        poses=tuple(poses),
        reasons=tuple("no pose was given" if pose is None else None for pose in poses),
        points=triangulate_rays(problem, State(cam_from_world, nowhere)),
        colors=colors,
        tracks=tracks,
    )


def connect_features(
    space: Workspace, geometries: Mapping[Pair, Any]
) -> tuple[Int[np.ndarray, "n"], Int[np.ndarray, "n"], Int[np.ndarray, "n"]]:
    """View, feature and point of every matched feature; points are connected features.

    Points with two features in one view are wrong somewhere and left out.
    """
    starts = np.cumsum([0, *(len(features) for features in space.features)])
    edges = np.concatenate(
        [np.zeros((0, 2), np.int64)]
        + [
            np.asarray(geometry.inlier_matches, dtype=np.int64) + starts[list(pair)]
            for pair, geometry in geometries.items()
        ]
    )
    matched = np.unique(edges)
    view = np.searchsorted(starts, matched, side="right") - 1
    label = label_components(int(starts[-1]), edges)[matched]
    members = np.bincount(label, minlength=starts[-1])
    views = np.bincount(np.unique(np.stack([label, view], 1), axis=0)[:, 0], minlength=starts[-1])
    keep = members[label] == views[label]
    point = np.unique(label[keep], return_inverse=True)[1].reshape(-1)
    return view[keep], (matched - starts[view])[keep], point.astype(np.int64)


def label_components(count: int, edges: Int[np.ndarray, "edge 2"]) -> Int[np.ndarray, "node"]:
    """The smallest member of each node's component: labels sink along edges, and jump to the labels of their labels."""
    labels = np.arange(count)
    first, second = edges[:, 0], edges[:, 1]
    while True:
        least = np.minimum(labels[first], labels[second])
        sunk = labels.copy()
        np.minimum.at(sunk, first, least)
        np.minimum.at(sunk, second, least)
        sunk = sunk[sunk]
        if np.array_equal(sunk, labels):
            return labels
        labels = sunk


def _gather(tables: Sequence[np.ndarray], view: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Rows of the tables of their views."""
    starts = np.cumsum([0, *(len(table) for table in tables)])
    return np.concatenate(tables)[starts[view] + row]
