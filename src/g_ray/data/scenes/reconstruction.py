"""Reconstruction from scene folders with depth: sets are functions of (seed, step, rank)."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.base import Camera
from g_ray.cameras.ray_map_camera import RayMapCamera
from g_ray.data.color import ColorChange, ColorJitter
from g_ray.data.covisibility import compute_overlap, draw_covisible_views
from g_ray.data.reconstruction import ReconstructionBatch, ShapedSets
from g_ray.data.reconstruction_settings import ScenesViews
from g_ray.data.scenes.store import DepthReading, LoadedScene, SceneStore
from g_ray.data.splits import HELD_OUT
from g_ray.formats.depth import convert_to_ray_depth, resize_depth
from g_ray.formats.scene import PosedScene, check_depth_size
from g_ray.geometry.pointmap import transform_points
from g_ray.geometry.pose import Pose
from g_ray.rays.ray_map import RayMap
from g_ray.rays.resample import Box, place_box, resample
from g_ray.rays.views import Views


class LoadedView(NamedTuple):
    """A photograph at the size of a batch."""

    image: Float[Tensor, "3 h w"]
    camera: Camera
    ray_depth: Float[Tensor, "h w"]
    points: Float[Tensor, "h w 3"]
    valid: Bool[Tensor, "h w"]


@dataclass(frozen=True)
class ScenesReconstruction(ShapedSets):
    """Photographs with depth from scene folders of any kind that is read (WAI, nerfstudio, COLMAP, 7-Scenes).

    A set is a walk from view to view through one scene, each overlapping with one before it by more than `overlap`;
    how much views overlap is read from the scene or computed from its depth, once. Every view has its own zoom and its
    own place in the photograph, so principal points lie anywhere; image, depth and camera are cut and resized in one
    step. Any lens will do. Pixels that a mask hides are black and have no depth. Scenes whose names fall to `hold_out`
    are never trained on; of a single scene its last frames are not. Lengths are in the unit of the files: the losses
    know no unit.
    """

    settings: ScenesViews
    seed: int = 0
    patch: int = 14
    reading: DepthReading = field(default_factory=DepthReading)
    store: SceneStore = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        settings = self.settings
        if not 0 <= settings.overlap < 1 or not settings.zoom_max >= 1 or not 0 <= settings.off_center <= 1:
            raise ValueError(
                f"overlap {settings.overlap}, zoom_max {settings.zoom_max}, off_center {settings.off_center}: an "
                "overlap is below 1, a zoom at least 1, and off_center between 0 and 1"
            )
        if not 0 < settings.hold_out < 1 or not 0 <= settings.frames[0] < settings.frames[1] <= 1:
            raise ValueError(
                f"hold_out {settings.hold_out} must lie between 0 and 1, and frames {settings.frames} be a range "
                "within [0, 1]"
            )
        if settings.depth_max is not None and not settings.depth_max > 0:
            raise ValueError(f"depth_max {settings.depth_max} must be a positive number")
        self.check_shape()
        store = SceneStore(settings.folders, settings.hold_out, self.reading, settings.masks)
        object.__setattr__(self, "store", store)

    def make_sets(
        self, numbers: range, rank: int = 0, *, views: int | None = None, height: int | None = None
    ) -> ReconstructionBatch:
        """Make a range of the stream; rank `HELD_OUT` has scenes of its own, without color augmentation."""
        draws = [self._draw_set(number, rank, views or self.settings.views[1]) for number in numbers]
        return _make_batch([self._load_views(draw, height or self.settings.height) for draw in draws], draws)

    # Which views

    def _draw_set(self, number: int, rank: int, views: int) -> "SetDraw":
        random = np.random.default_rng((self.seed, rank, number))
        index = self._draw_scene(random, rank)
        loaded = self.store[index]
        allowed = self.find_allowed(loaded, rank)
        chosen = draw_covisible_views(random, loaded.covisibility, views, self.settings.overlap, allowed)
        if len(set(chosen)) == 1:
            self._check_overlap(loaded, allowed)
        name = f"{self.store.names[index]}: {' '.join(loaded.scene.names[view] for view in chosen)}"
        augment = self.settings.color and rank != HELD_OUT
        color = ColorJitter().draw(random, views) if augment else None
        return SetDraw(loaded.scene, chosen, random.random((views, 3)), color, name)

    def _draw_scene(self, random: np.random.Generator, rank: int) -> int:
        single = len(self.store.folders) == 1
        among = [0] if single else self.store.held_out if rank == HELD_OUT else self.store.training
        return among[int(random.integers(len(among)))]

    def find_allowed(self, loaded: LoadedScene, rank: int) -> list[int]:
        """Return the views that a rank may use: with depth, in the range of frames, in its part of a scene."""
        count = len(loaded.scene)
        start, stop = (round(share * count) for share in self.settings.frames)
        if len(self.store.folders) == 1:
            border = stop - max(2, round(self.settings.hold_out * (stop - start)))
            start, stop = (border, stop) if rank == HELD_OUT else (start, border)
        views = [view for view in loaded.with_depth if start <= view < stop]
        if len(views) < 2:
            raise ValueError(
                f"{loaded.scene.folder}: {len(views)} views with depth to draw from; a set needs at least 2"
            )
        return views

    def _check_overlap(self, loaded: LoadedScene, allowed: list[int]) -> None:
        """Raise ValueError if no two views of the scene overlap; a single view without overlap is tolerated."""
        most = max(float(compute_overlap(loaded.covisibility, view)[allowed].max()) for view in allowed)
        if most <= self.settings.overlap:
            raise ValueError(
                f"{loaded.scene.folder}: no two views overlap by more than {self.settings.overlap:.0%} "
                f"(at most {most:.0%}); leave it out, ask for less overlap, or inspect it with g-ray data check"
            )

    # What they show

    def _load_views(self, draw: "SetDraw", height: int) -> list[LoadedView]:
        taken = []
        for view, (zoom, across, down) in zip(draw.views, draw.crops, strict=True):
            camera = draw.scene.cameras[view]
            place = (
                0.5 + self.settings.off_center * (across - 0.5),
                0.5 + self.settings.off_center * (down - 0.5),
            )
            size = (camera.width, camera.height, self.settings.width, height)
            box = place_box(*size, zoom=1 + zoom * (self.settings.zoom_max - 1), place=place)
            taken.append(self._load_view(draw.scene, view, box, height))
        return taken

    def _load_view(self, scene: PosedScene, view: int, box: Box, height: int) -> LoadedView:
        camera, file = scene.cameras[view], scene.depth[view]
        assert file is not None
        photo, depth = scene.load_photo(view), file.read()
        check_depth_size(file.path, depth, camera)
        image, small = resample(photo, camera, self.settings.width, height, box)
        small = small.to(torch.float32)
        rays = RayMap.from_camera(small)
        near = resize_depth(depth, (camera.width, camera.height), self.settings.width, height, box)
        if self.settings.depth_max is not None:
            near = torch.where(near <= self.settings.depth_max, near, 0)
        along, valid = convert_to_ray_depth(near, rays, file.convention)
        mask = scene.load_mask(view)
        if mask is not None:
            # A pixel that is partly masked out teaches nothing, and shows nothing: it is black.
            used = resample(mask[None].to(image), camera, self.settings.width, height, box)[0][0] > 0.999
            image, valid, along = image * used, valid & used, along * used
        return LoadedView(image.clamp(0, 1), small, along, along[..., None] * rays.directions, valid)


class SetDraw(NamedTuple):
    """One set: its views, a zoom and a place for each in [0, 1), and colors."""

    scene: PosedScene
    views: list[int]
    crops: Any  # [view, 3]
    colors: ColorChange | None
    name: str


def _make_batch(sets: list[list[LoadedView]], draws: list[SetDraw]) -> ReconstructionBatch:
    slots = list(zip(*sets, strict=True))
    images = torch.stack([torch.stack([view.image for view in views]) for views in sets])
    colored = [
        image if draw.colors is None else draw.colors.apply(image)
        for image, draw in zip(images, draws, strict=True)
    ]
    points = torch.stack([torch.stack([view.points for view in views]) for views in sets])
    poses = torch.stack([draw.scene.poses.world_from_cam[draw.views] for draw in draws])
    relative = Pose(poses).relative_to_first().to(torch.float32)
    valid = torch.stack([torch.stack([view.valid for view in views]) for views in sets])
    return ReconstructionBatch(
        images=torch.stack(colored),
        views=Views([merge_cameras([view.camera for view in slot]) for slot in slots]),
        world_points=transform_points(points, relative) * valid[..., None],
        camera_points=points,
        ray_depth=torch.stack([torch.stack([view.ray_depth for view in views]) for views in sets]),
        z_depth=points[..., 2],
        valid=valid,
        poses=relative,
        names=tuple(draw.name for draw in draws),
    )


def merge_cameras(cameras: list[Camera]) -> Camera:
    """Stack cameras; those of several models become tables of their rays, because a batch has one camera model."""
    if len({type(camera) for camera in cameras}) > 1 or isinstance(cameras[0], RayMapCamera):
        cameras = [RayMapCamera.from_rays(*camera.unproject_grid()) for camera in cameras]
    return type(cameras[0]).stack(cameras)
