"""Reconstruction from scene folders with depth: sets are functions of (seed, step, rank)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.formats.posed_scene import PosedScene
from g_ray.geometry.pointmap import transform_points
from g_ray.geometry.pose import Pose
from g_ray.media.depth import convert_to_ray_depth, resize_depth
from g_ray.media.view import check_depth_size
from g_ray.rays.ray_map import RayMap
from g_ray.rays.resample import Box, place_box, resample
from g_ray.rays.views import Views
from g_ray_lab.sources.batches import RecentCache, ReconstructionBatch
from g_ray_lab.sources.covisibility import compute_overlap, draw_covisible_views
from g_ray_lab.sources.draws import HELD_OUT, draw_all_readable, make_generator
from g_ray_lab.sources.reconstruction_settings import ScenesViews
from g_ray_lab.sources.scene_store import DepthReading, LoadedScene, SceneStore
from g_ray_lab.sources.shaped_sets import ColorChange, ColorJitter, ShapedSets, Size, merge_cameras

# Sets of views, each a function of (seed, step, rank).


SIZE_STREAM = 0x512E
"""Keeps the draws of sizes independent of those of scenes and shapes."""


KEPT_PIXELS = 64 * 168 * 126
"""Pixels of recently loaded views in memory, of 40 bytes each: 54 MB."""


class LoadedView(NamedTuple):
    """A photograph at the size of a batch."""

    image: Float[Tensor, "3 h w"]
    camera: Camera
    rays: RayMap
    ray_depth: Float[Tensor, "h w"]
    points: Float[Tensor, "h w 3"]
    valid: Bool[Tensor, "h w"]


def count_pixels(view: LoadedView) -> int:
    return view.valid.numel()


@dataclass(frozen=True)
class ScenesReconstruction(ShapedSets):
    """Photographs with depth from scene folders of any kind that is read (WAI, nerfstudio, COLMAP, 7-Scenes).

    A set is a walk from view to view through one scene, each overlapping with one before it by more than `overlap`;
    how much views overlap is read from the scene or computed from its depth, once. Every view has its own zoom and its
    own place in the photograph, so principal points lie anywhere; image, depth and camera are cut and resized in one
    step. Any lens will do. Pixels that a mask hides are black and have no depth. Scenes whose names fall to `hold_out`
    are never trained on; of a single scene its last frames are not. Lengths are in the unit of the files: the losses
    know no unit. A set with a file that cannot be read is drawn again, from another scene where there are several.

    With `stored_shape` views have the shape of their photographs. Each step draws one of the shapes that training
    scenes have, as often as their views have it, and takes views of this shape alone.
    """

    settings: ScenesViews
    seed: int = 0
    patch: int = 14
    reading: DepthReading = field(default_factory=DepthReading)
    trains: bool = False
    """Whether scenes that must not be trained on are left out, see `select_trainable`."""
    store: SceneStore = field(init=False, repr=False, compare=False)
    sizes: tuple[dict[Size, dict[int, int]], dict[Size, dict[int, int]]] = field(
        init=False, repr=False, compare=False
    )
    """With `stored_shape`: the views of every size and scene, for training and for validation."""
    recent: RecentCache[LoadedView] = field(init=False, repr=False, compare=False)

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
        store = SceneStore(settings.folders, settings.hold_out, self.reading, settings.masks, self.trains)
        object.__setattr__(self, "store", store)
        sizes = [self._count_sizes(rank) for rank in (0, HELD_OUT)] if settings.stored_shape else [{}, {}]
        object.__setattr__(self, "sizes", (sizes[0], sizes[1]))
        object.__setattr__(self, "recent", RecentCache(KEPT_PIXELS, count_pixels))

    def make_sets(
        self, numbers: Sequence[int], rank: int = 0, *, views: int | None = None, size: Size | None = None
    ) -> ReconstructionBatch:
        """Make sets of the stream; rank `HELD_OUT` has scenes of its own, without color augmentation."""
        views = views or self.settings.views[1]
        if size is None:
            stored, settings = self.settings.stored_shape, self.settings
            size = self.draw_size(numbers[0], rank) if stored else (settings.width, settings.height)

        def make_set(number: int, attempt: int) -> tuple[SetDraw, list[LoadedView]]:
            random = make_generator(attempt, self.seed, rank, number)
            draw = self._draw_set(random, rank, views, size)
            return draw, self._load_views(draw, size)

        made, redrawn = draw_all_readable(make_set, numbers, " ".join(map(str, self.settings.folders)))
        draws, sets = zip(*made, strict=True)
        return _make_batch(sets, draws, redrawn)

    # Shapes as stored

    def list_sizes(self) -> dict[Size, float]:
        counts = {size: sum(scenes.values()) for size, scenes in self.sizes[0].items()}
        return {size: count / sum(counts.values()) for size, count in counts.items()}

    def _count_sizes(self, rank: int) -> dict[Size, dict[int, int]]:
        """Count the views of every size and scene from which a rank may draw; sizes of single views are left out."""
        self._check_stored()
        sizes: dict[Size, dict[int, int]] = {}
        for index in self._list_scenes(rank):
            loaded = self.store[index]
            cameras = [loaded.scene.cameras[view] for view in self.find_allowed(loaded, rank)]
            for size, count in Counter(map(self._fit_size, cameras)).items():
                if count > 1:
                    sizes.setdefault(size, {})[index] = count
        if not sizes:
            raise ValueError(f"{self.settings.folders[0]}: no scene with two views of one shape")
        return sizes

    def draw_size(self, step: int, rank: int) -> Size:
        """Draw the size of a step from (seed, step) alone: all ranks agree. Validation has the most frequent one."""
        if not self.settings.stored_shape:
            return super().draw_size(step, rank)
        counts = {size: sum(scenes.values()) for size, scenes in self.sizes[rank == HELD_OUT].items()}
        if rank == HELD_OUT:
            return max(sorted(counts), key=lambda size: counts[size])
        sizes = sorted(counts)
        shares = np.array([counts[size] for size in sizes]) / sum(counts.values())
        return sizes[np.random.default_rng((self.seed, SIZE_STREAM, step)).choice(len(sizes), p=shares)]

    def _check_stored(self) -> None:
        settings = self.settings
        if settings.zoom_max != 1 or settings.off_center != 0 or settings.aspect != (1.0, 1.0):
            raise ValueError(
                f"zoom_max {settings.zoom_max}, off_center {settings.off_center}, aspect {settings.aspect}: "
                "stored_shape needs 1, 0 and (1, 1)"
            )

    def _fit_size(self, camera: Camera) -> Size:
        """Return the size in whole patches, with the long side of the settings, that fits a photograph best."""
        scale = self.settings.width / max(camera.width, camera.height) / self.patch
        across, down = (max(1, round(scale * side)) * self.patch for side in (camera.width, camera.height))
        return across, down

    # Which views

    def _draw_set(self, random: np.random.Generator, rank: int, views: int, size: Size) -> "SetDraw":
        index = self._draw_scene(random, rank, size)
        loaded = self.store[index]
        allowed = self.find_allowed(loaded, rank)
        if self.settings.stored_shape:
            allowed = [view for view in allowed if self._fit_size(loaded.scene.cameras[view]) == size]
        chosen = draw_covisible_views(random, loaded.covisibility, views, self.settings.overlap, allowed)
        if len(set(chosen)) == 1:
            self._check_overlap(loaded, allowed)
        name = f"{self.store.names[index]}: {' '.join(loaded.scene.names[view] for view in chosen)}"
        augment = self.settings.color and rank != HELD_OUT
        color = ColorJitter().draw(random, views) if augment else None
        return SetDraw(loaded.scene, chosen, random.random((views, 3)), color, name)

    def _draw_scene(self, random: np.random.Generator, rank: int, size: Size) -> int:
        stored = self.settings.stored_shape
        among = list(self.sizes[rank == HELD_OUT][size]) if stored else self._list_scenes(rank)
        return among[int(random.integers(len(among)))]

    def _list_scenes(self, rank: int) -> list[int]:
        single = len(self.store.folders) == 1
        return [0] if single else self.store.held_out if rank == HELD_OUT else self.store.training

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

    def _load_views(self, draw: "SetDraw", size: Size) -> list[LoadedView]:
        loaded = []
        for view, (zoom, across, down) in zip(draw.views, draw.crops, strict=True):
            camera = draw.scene.cameras[view]
            place = (
                0.5 + self.settings.off_center * (across - 0.5),
                0.5 + self.settings.off_center * (down - 0.5),
            )
            zoom = 1 + zoom * (self.settings.zoom_max - 1)
            box = place_box(camera.width, camera.height, *size, zoom=zoom, place=place)
            loaded.append(self._recall_view(draw.scene, view, box, size))
        return loaded

    def _recall_view(self, scene: PosedScene, view: int, box: Box, size: Size) -> LoadedView:
        """Load a view, or return it as it was loaded a moment ago: a small scene is read and resized once."""
        if self.settings.zoom_max > 1 or self.settings.off_center > 0:
            return self._load_view(scene, view, box, size)  # no crop comes twice
        key = (scene.images[view], box, size)
        return self.recent(key, partial(self._load_view, scene, view, box, size))

    def _load_view(self, scene: PosedScene, view: int, box: Box, size: Size) -> LoadedView:
        camera, file = scene.cameras[view], scene.depth[view]
        assert file is not None
        photo, depth = scene.views[view].load_image(), file.read()
        check_depth_size(file.path, depth, camera)
        image, small = resample(photo, camera, *size, box)
        small = small.to(torch.float32)
        rays = RayMap.from_camera(small)
        near = resize_depth(depth, (camera.width, camera.height), *size, box)
        if self.settings.depth_max is not None:
            near = torch.where(near <= self.settings.depth_max, near, 0)
        along, valid = convert_to_ray_depth(near, rays, file.convention)
        mask = scene.views[view].load_mask()
        if mask is not None:
            # A pixel that is partly masked out teaches nothing, and shows nothing: it is black.
            used = resample(mask[None].to(image), camera, *size, box)[0][0] > 0.999
            image, valid, along = image * used, valid & used, along * used
        return LoadedView(image.clamp(0, 1), small, rays, along, along[..., None] * rays.directions, valid)


class SetDraw(NamedTuple):
    """One set: its views, a zoom and a place for each in [0, 1), and colors."""

    scene: PosedScene
    views: list[int]
    crops: Any  # [view, 3]
    colors: ColorChange | None
    name: str


def _make_batch(
    sets: Sequence[list[LoadedView]], draws: Sequence[SetDraw], redrawn: tuple[str, ...]
) -> ReconstructionBatch:
    def stack(name: str) -> Tensor:
        return torch.stack([torch.stack([getattr(view, name) for view in views]) for views in sets])

    slots = list(zip(*sets, strict=True))
    colored = [
        image if draw.colors is None else draw.colors.apply(image)
        for image, draw in zip(stack("image"), draws, strict=True)
    ]
    points, valid = stack("points"), stack("valid")
    poses = torch.stack([draw.scene.poses.world_from_cam[draw.views] for draw in draws])
    relative = Pose(poses).relative_to_first().to(torch.float32)
    return ReconstructionBatch(
        images=torch.stack(colored),
        views=Views([merge_cameras([view.camera for view in slot]) for slot in slots]),
        world_points=transform_points(points, relative) * valid[..., None],
        camera_points=points,
        ray_depth=stack("ray_depth"),
        z_depth=points[..., 2],
        valid=valid,
        poses=relative,
        names=tuple(draw.name for draw in draws),
        redrawn=redrawn,
    )
