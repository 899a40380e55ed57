"""Fuse depth maps into a truncated signed distance volume (Curless and Levoy 1996), extract its surface, and score it.

The volume is stored in blocks near surfaces. A voxel holds the mean over views of min(1, s/τ), where s is the distance
along the ray from the voxel's center to the surface that the view sees there, positive in front of it, and τ is the
truncation. Voxels with s ≤ −τ are hidden and not updated. Any lens will do: distances are measured along rays, and
voxels are projected by the camera.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import permutations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.geometry.pose import Pose
from g_ray.geometry.similarity import Similarity, fit_similarity
from g_ray_lab.metrics.point_cloud import (
    Points,
    build_tree,
    check_points,
    find_nearest,
    sample_triangles,
    thin_out,
)
from g_ray_lab.metrics.pose_metrics import check_poses

BLOCK = 16
"""Voxels along the side of a block."""
MAX_BLOCKS = 150_000
"""About 5 GB; more come from depths that are scattered through space."""
REACH = 1 << 20
"""Blocks on either side of the origin: three coordinates fit into one 64-bit key."""
BLOCKS_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class DepthView:
    """What one view contributes: distances along the rays of its camera."""

    camera: Camera
    pose: Pose
    ray_depth: Float[Tensor, "h w"]
    valid: Bool[Tensor, "h w"]

    def __post_init__(self) -> None:
        if tuple(self.ray_depth.shape) != (self.camera.height, self.camera.width):
            raise ValueError(
                f"a depth map of {self.ray_depth.shape[1]}×{self.ray_depth.shape[0]} px for a camera of "
                f"{self.camera.width}×{self.camera.height} px"
            )
        if bool((self.valid & ~(self.ray_depth.isfinite() & (self.ray_depth > 0))).any()):
            raise ValueError("valid depths must be finite and above 0: mask out the others")

    def limit_depth(self, max_depth: float) -> "DepthView":
        """Mask out what is farther along the optical axis, as published."""
        rays, known = self.camera.unproject_grid()
        near = rays[..., 2] * self.ray_depth <= max_depth
        return DepthView(self.camera, self.pose, self.ray_depth, self.valid & known & near)

    def list_points(self) -> Float[Tensor, "point 3"]:
        """Return the valid pixels' points in the world, float64."""
        rays, known = self.camera.unproject_grid()
        used = self.valid & known
        local = rays[used].double() * self.ray_depth[used, None].double()
        pose = self.pose.to(torch.float64)
        return local @ pose.rotation.mT + pose.translation


@dataclass(frozen=True, eq=False)
class TsdfVolume:
    """Blocks of voxels, sorted by key. Voxel i of an axis has its center at (i + ½) · voxel."""

    voxel: float
    keys: Int[Tensor, "block"]
    distance: Float[Tensor, "block x y z"]  # in units of the truncation, within [−1, 1]
    weight: Float[Tensor, "block x y z"]  # how many views have updated a voxel

    def find(self, keys: Int[Tensor, "*n"]) -> tuple[Int[Tensor, "*n"], Bool[Tensor, "*n"]]:
        """Return the places of blocks, and whether they are there."""
        place = torch.searchsorted(self.keys, keys).clamp(max=max(len(self.keys) - 1, 0))
        return place, self.keys[place] == keys


def fuse_depth(views: Sequence[DepthView], *, voxel: float, truncation: float) -> TsdfVolume:
    """Fuse depth maps. A view updates the blocks within the truncation of its points.

    ValueError if no view has a valid pixel, or if points are scattered over more blocks than fit into memory.
    """
    if not 0 < voxel <= truncation:
        raise ValueError(f"the voxel {voxel} must be above 0, and the truncation {truncation} no smaller")
    touched = [_find_blocks(view.list_points(), voxel * BLOCK, truncation) for view in views]
    keys = torch.cat(touched).unique() if touched else torch.zeros(0, dtype=torch.int64)
    if not len(keys):
        raise ValueError("no view has a valid depth: there is nothing to fuse")
    if len(keys) > MAX_BLOCKS:
        raise ValueError(
            f"depths are scattered over {len(keys)} blocks of {voxel * BLOCK:g}, more than {MAX_BLOCKS}: "
            "limit depths, or mask out those far away"
        )
    shape = (len(keys), BLOCK, BLOCK, BLOCK)
    volume = TsdfVolume(voxel, keys, torch.zeros(shape), torch.zeros(shape))
    for view, own in zip(views, touched, strict=True):
        for part in own.split(BLOCKS_AT_ONCE):
            _update(volume, view, part, truncation)
    return volume


def pack_keys(blocks: Int[Tensor, "*n 3"]) -> Int[Tensor, "*n"]:
    """Pack block coordinates into one number, which orders blocks by x, then y, then z."""
    x, y, z = (blocks + REACH).unbind(-1)
    return (x * 2 * REACH + y) * 2 * REACH + z


def unpack_keys(keys: Int[Tensor, "*n"]) -> Int[Tensor, "*n 3"]:
    """Invert `pack_keys`."""
    side = 2 * REACH
    return torch.stack([keys // side // side, keys // side % side, keys % side], -1) - REACH


def _find_blocks(points: Float[Tensor, "point 3"], side: float, truncation: float) -> Int[Tensor, "block"]:
    """Return the keys of all blocks that the cubes of half side `truncation` around points meet."""
    if not len(points):
        return torch.zeros(0, dtype=torch.int64)
    if float(points.abs().max()) + truncation >= (REACH - 1) * side:
        raise ValueError(f"points are {float(points.abs().max()):.3g} away: too far for blocks of {side:g}")
    low, high = (((points + offset) / side).floor().long() for offset in (-truncation, truncation))
    # Points of a surface share their ranges of blocks: few distinct ones remain.
    ranges = torch.cat([low, high], 1).unique(dim=0)
    low, high = ranges[:, :3], ranges[:, 3:]
    keys = []
    for offset in _list_offsets(int((high - low).max()) + 1):
        blocks = low + offset
        keys.append(pack_keys(blocks[(blocks <= high).all(1)]))
    return torch.cat(keys).unique()


def _list_offsets(count: int) -> Iterator[Int[Tensor, "3"]]:
    yield from torch.cartesian_prod(*[torch.arange(count)] * 3).reshape(-1, 3)


def _update(volume: TsdfVolume, view: DepthView, keys: Int[Tensor, "block"], truncation: float) -> None:
    """Add one view to the running means of some blocks, in place."""
    axis = torch.arange(BLOCK)
    cell = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1)
    centers = (unpack_keys(keys)[:, None, None, None] * BLOCK + cell + 0.5).double() * volume.voxel
    cam_from_world = view.pose.to(torch.float64).inverse()
    local = centers @ cam_from_world.rotation.mT + cam_from_world.translation
    camera = view.camera.to(torch.float64)
    pixels, imaged = camera.project(local)
    seen = imaged & camera.contains(pixels)
    column = pixels[..., 0].nan_to_num().long().clamp(0, camera.width - 1)
    row = pixels[..., 1].nan_to_num().long().clamp(0, camera.height - 1)
    signed = view.ray_depth[row, column].double() - torch.linalg.vector_norm(local, dim=-1)
    new = seen & view.valid[row, column] & (signed > -truncation)
    value = (signed / truncation).clamp(max=1).to(volume.distance.dtype)
    place, _ = volume.find(keys)
    distance, weight = volume.distance[place], volume.weight[place]
    volume.distance[place] = torch.where(new, (distance * weight + value) / (weight + 1), distance)
    volume.weight[place] = weight + new


# Surfaces


BLOCKS_PER_CUT = 512

# Corner c of a cell lies at the bits of c: x = c >> 2, y = c >> 1 & 1, z = c & 1.
CORNERS = torch.tensor([[c >> 2, c >> 1 & 1, c & 1] for c in range(8)])
# Six tetrahedra around the diagonal 0–7, one for each order of the axes. Neighboring cells cut their common face along
# the same diagonal, so that the surface has no cracks.
TETRAHEDRA = torch.tensor([[0, a, a | b, 7] for a, b, _ in permutations((1, 2, 4))])
# Edges of a tetrahedron, whose corners are sorted by value, that carry the corners of its triangles.
TRIANGLES = {
    1: [[(0, 1), (0, 2), (0, 3)]],
    2: [[(0, 2), (0, 3), (1, 3)], [(0, 2), (1, 3), (1, 2)]],
    3: [[(0, 3), (1, 3), (2, 3)]],
}
"""By how many corners lie behind the surface."""


def extract_triangles(volume: TsdfVolume) -> Float[np.ndarray, "triangle 3 3"]:
    """Return the zero level of the distance as triangles, by marching tetrahedra; their orientation is arbitrary.

    Distances are linear along edges. Only cells of which all eight corners were seen take part. Marching cubes, which
    published scores use, cut each cell into fewer triangles; their surfaces differ by a fraction of a voxel.
    """
    parts = [_cut_cells(*cells, volume.voxel) for cells in _list_cells(volume)]
    return torch.cat(parts).numpy() if parts else np.zeros((0, 3, 3))


def _list_cells(volume: TsdfVolume) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the first voxel [cell, 3] and the corner values [cell, 8] of the cells that the surface crosses."""
    for keys in volume.keys.split(BLOCKS_PER_CUT):
        distance, seen = _pad(volume, keys)
        corners = torch.stack([_shift(distance, corner) for corner in CORNERS], -1)
        whole = torch.stack([_shift(seen, corner) for corner in CORNERS], -1).all(-1)
        block, *cell = (whole & (corners < 0).any(-1) & (corners >= 0).any(-1)).nonzero(as_tuple=True)
        yield (
            unpack_keys(keys)[block] * BLOCK + torch.stack(cell, -1),
            corners[block, cell[0], cell[1], cell[2]],
        )


def _pad(volume: TsdfVolume, keys: Tensor) -> tuple[Float[Tensor, "b x y z"], Bool[Tensor, "b x y z"]]:
    """Return blocks with one more layer of voxels at their upper sides, from the neighboring blocks."""
    size = (len(keys), *(BLOCK + 1,) * 3)
    distance, seen = torch.zeros(size), torch.zeros(size, dtype=torch.bool)
    for corner in CORNERS:
        place, there = volume.find(pack_keys(unpack_keys(keys) + corner))
        inner = tuple(slice(BLOCK, None) if step else slice(0, BLOCK) for step in corner.tolist())
        outer = tuple(slice(0, 1) if step else slice(None) for step in corner.tolist())
        distance[(slice(None), *inner)] = volume.distance[place][(slice(None), *outer)]
        weight = volume.weight[place][(slice(None), *outer)]
        seen[(slice(None), *inner)] = there[:, None, None, None] & (weight > 0)
    return distance, seen


def _shift(values: Tensor, corner: Tensor) -> Tensor:
    x, y, z = corner.tolist()
    return values[:, x : x + BLOCK, y : y + BLOCK, z : z + BLOCK]


def _cut_cells(first: Tensor, values: Tensor, voxel: float) -> Float[Tensor, "triangle 3 3"]:
    """Cut the six tetrahedra of each cell at value 0."""
    values = values.double()[:, TETRAHEDRA].reshape(-1, 4)
    places = (first[:, None] + CORNERS + 0.5).double()[:, TETRAHEDRA].reshape(-1, 4, 3) * voxel
    # Sorted by value, the corners behind the surface come first, and each number of them is one case.
    values, order = values.sort(-1)
    places = places.gather(1, order[..., None].expand(-1, -1, 3))
    behind = (values < 0).sum(-1)
    parts = [
        torch.stack([_cross(places[behind == count], values[behind == count], edge) for edge in triangle], 1)
        for count, triangles in TRIANGLES.items()
        for triangle in triangles
    ]
    return torch.cat(parts)


def _cross(places: Tensor, values: Tensor, edge: tuple[int, int]) -> Float[Tensor, "n 3"]:
    """Return where an edge crosses 0. Its ends have values below 0 and not below 0, so that they differ."""
    a, b = edge
    share = values[:, a] / (values[:, a] - values[:, b])
    return places[:, a] + share[:, None] * (places[:, b] - places[:, a])


# Score depth and poses by the surface that they make together, as DA3-BENCH does: a TSDF, points on it, an F-score

SAMPLES = 1_000_000
"""Points that are drawn on a surface before they are thinned out."""
RANSAC_STEPS, RANSAC_SEED = 10, 42


@dataclass(frozen=True)
class FusionSettings:
    """How depth is fused and compared; lengths in meters."""

    voxel: float
    truncation: float
    threshold: float
    """Distance within which a point counts as right."""
    scoring_voxel: float
    """Both clouds are thinned out to one point in each."""
    max_depth: float = float("inf")
    """Along the optical axis."""
    crop_margin: float | None = None
    """Predicted points farther outside of the box of the truth are cut off; None: all are kept."""
    samples: int = SAMPLES


DA3_BENCH: dict[str, FusionSettings] = {
    "eth3d": FusionSettings(voxel=5 / 128, truncation=0.2, threshold=0.25, scoring_voxel=5 / 128),
    "7scenes": FusionSettings(voxel=1 / 128, truncation=0.04, threshold=0.05, scoring_voxel=1 / 128),
    "scannetpp": FusionSettings(
        voxel=0.02, truncation=0.15, threshold=0.05, scoring_voxel=0.02, max_depth=5.0, crop_margin=0.1
    ),
}


@dataclass(frozen=True)
class SurfaceScores:
    """Distances in the unit of the truth; shares in [0, 1]. Without predicted points distances are infinite."""

    acc: float
    comp: float
    overall: float
    """Mean of both."""
    precision: float
    """Share of predicted points within the threshold of the truth."""
    recall: float
    """Share of true points within the threshold of the prediction."""
    f_score: float
    """2 · precision · recall / (precision + recall)"""

    def rows(self) -> dict[str, float]:
        """Return the values by name."""
        return asdict(self)


def score_fusion(
    truth: Points, views: Sequence[DepthView], true_poses: Pose, settings: FusionSettings
) -> SurfaceScores:
    """Align predicted views to the true poses [view], fuse their depth, and compare the surface with true points.

    `truth` are points drawn from the true surface (`sample_triangles`). Views hold predicted depth and poses; as
    published, mask out the pixels without true depth before, since nothing can be said about these.
    """
    points = fuse_to_points(align_views(views, true_poses), settings)
    return compare_surfaces(truth, points, settings)


def fuse_to_points(views: Sequence[DepthView], settings: FusionSettings, *, seed: int = 0) -> Points:
    """Fuse the depth of views in one world, and draw points on the surface."""
    near = [view.limit_depth(settings.max_depth) for view in views]
    volume = fuse_depth(near, voxel=settings.voxel, truncation=settings.truncation)
    return sample_triangles(extract_triangles(volume), settings.samples, seed=seed)


def compare_surfaces(truth: Points, predicted: Points, settings: FusionSettings) -> SurfaceScores:
    """Thin out both clouds and compare nearest neighbors."""
    check_points("true", truth)
    if settings.crop_margin is not None:
        low, high = truth.min(0) - settings.crop_margin, truth.max(0) + settings.crop_margin
        predicted = predicted[((predicted >= low) & (predicted <= high)).all(1)]
    if not len(predicted):
        inf = float("inf")
        return SurfaceScores(inf, inf, inf, 0.0, 0.0, 0.0)
    check_points("predicted", predicted)
    truth, predicted = (thin_out(points, settings.scoring_voxel) for points in (truth, predicted))
    to_truth, _ = find_nearest(build_tree(truth), predicted)
    to_prediction, _ = find_nearest(build_tree(predicted), truth)
    precision, recall = (float((far < settings.threshold).mean()) for far in (to_truth, to_prediction))
    accuracy, completeness = float(to_truth.mean()), float(to_prediction.mean())
    both = precision + recall
    return SurfaceScores(
        acc=accuracy,
        comp=completeness,
        overall=(accuracy + completeness) / 2,
        precision=precision,
        recall=recall,
        f_score=2 * precision * recall / both if both > 0 else 0.0,
    )


# Alignment of poses


def align_views(views: Sequence[DepthView], true_poses: Pose) -> list[DepthView]:
    """Move views into the world of the true poses, with the scale that their centers fix."""
    poses = Pose(torch.stack([view.pose.world_from_cam.double() for view in views]))
    similarity = align_robustly(true_poses, poses)
    return [
        replace(
            view,
            pose=similarity.transform_pose(Pose(pose)),
            ray_depth=view.ray_depth * float(similarity.scale),
        )
        for view, pose in zip(views, poses.world_from_cam, strict=True)
    ]


def align_robustly(truth: Pose, predicted: Pose, *, seed: int = RANSAC_SEED) -> Similarity:
    """Find the similarity between camera centers [view] that most views agree with, as DA3-BENCH does.

    Ten times half of the views (at least three) are fitted; the fit with the most views within a threshold wins, then
    with the smallest mean error of these, and is repeated on them. The threshold is the median distance of the
    centers, after a fit of all, to the nearest true center. ValueError for fewer than three views.
    """
    check_poses(truth, predicted)
    centers, goals = predicted.translation.double(), truth.translation.double()
    best = fit_similarity(centers, goals)
    nearest = torch.cdist(best.apply(centers), goals).min(1).values
    # The published median is numpy's, which averages the two in the middle.
    threshold = float(np.median(nearest.numpy()))
    count, score, agreeing = max(3, (len(centers) + 1) // 2), (-1, -float("inf")), None
    rng = np.random.default_rng(seed)
    for _ in range(RANSAC_STEPS):
        chosen = torch.from_numpy(rng.choice(len(centers), size=count, replace=False))
        guess = _try_fit(centers[chosen], goals[chosen])
        if guess is None:
            continue
        error = torch.linalg.vector_norm(guess.apply(centers) - goals, dim=-1)
        inliers = error <= threshold
        mean = error[inliers].mean().item() if bool(inliers.any()) else float("inf")
        if (int(inliers.sum()), -mean) > score:
            score, best, agreeing = (int(inliers.sum()), -mean), guess, inliers
    if agreeing is not None and int(agreeing.sum()) >= 3:
        return _try_fit(centers[agreeing], goals[agreeing]) or best
    return best


def _try_fit(source: Float[torch.Tensor, "n 3"], target: Float[torch.Tensor, "n 3"]) -> Similarity | None:
    """Fit a similarity, or return None where the points do not fix one."""
    try:
        similarity = fit_similarity(source, target)
    except ValueError:
        return None
    return similarity if float(similarity.scale) > 0 else None
