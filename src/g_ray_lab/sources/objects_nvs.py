"""Novel-view synthesis from objects: a folder of renders, scanned objects in place of furniture, and camera paths."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from math import log, radians
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from g_ray.cameras.pinhole import Pinhole
from g_ray.geometry.pose import Pose
from g_ray.rays.resample import resample
from g_ray.rays.views import Views
from g_ray_lab.datasets.objaverse import (
    DIRECTIONS,
    NAMES,
    NATIVE,
    ObjectCameras,
    find_objects,
    format_image_name,
    read_cameras,
    read_image,
)
from g_ray_lab.meshes.mesh_files import find_meshes
from g_ray_lab.meshes.textured_scene import MeshScene
from g_ray_lab.sources.arc_views import ArcDraws, ArcNVS
from g_ray_lab.sources.batches import NVSBatch, NVSSource, RecentCache
from g_ray_lab.sources.draws import HELD_OUT, check_draws, draw_all_readable, hash_to_unit, make_generator
from g_ray_lab.sources.nvs_settings import ObjectArcsData, ObjectsData
from g_ray_lab.sources.object_index import (
    EVERY_VIEW,
    PROTOCOLS,
    TEST_SHARE,
    TargetKinds,
    assign_split,
    get_product,
    read_tested,
)
from g_ray_lab.sources.render_objects import DATASET, PROCEDURAL, ObjectJob, ObjectSettings, load_mesh

FARTHEST = 0.5
"""Distance of an object's farthest camera from its center, after scaling; as in released code."""


class ViewRequest(NamedTuple):
    """Views of one object by the names of their images."""

    uid: str
    contexts: tuple[str, ...]
    targets: tuple[str, ...]


class ObjectViews(NamedTuple):
    """The 24 cameras of an object in the order of NAMES."""

    native: Pinhole
    cameras: Pinhole
    poses: Pose


class RenderedObjects:
    """Reads views of objects below `root`, at one size, and remembers what it read last.

    All 24 cameras of an object count for its scale, so that it is the same whichever views are loaded; released
    code takes those of an index entry. The world stays the object's: poses are not made relative to a context.
    """

    def __init__(self, root: Path, width: int, height: int, cache_mb: int = 256) -> None:
        self.root, self.width, self.height = root, width, height
        self._cameras: RecentCache[ObjectViews] = RecentCache(10_000)
        self._images: RecentCache[Tensor] = RecentCache(cache_mb * 2**20 // (3 * width * height))

    def make_batch(self, requests: Sequence[ViewRequest]) -> NVSBatch:
        """One scene per entry, all with the same numbers of contexts and targets."""
        known = len(requests[0].contexts)
        named = [(uid, (*contexts, *targets)) for uid, contexts, targets in requests]
        images = torch.stack(
            [torch.stack([self.get_image(uid, name) for name in names]) for uid, names in named]
        )
        views = self._make_views([(uid, [NAMES.index(name) for name in names]) for uid, names in named])
        folders = tuple(str(self.root / uid) for uid, _ in named)
        return NVSBatch.split(images.to(torch.float32) / 255, views, known, folders)

    def get_image(self, uid: str, name: str) -> UInt8[Tensor, "3 h w"]:
        return self._images((uid, name), partial(self._read_image, uid, name))

    def get_cameras(self, uid: str) -> ObjectViews:
        """Return the cameras of the files and those of the resized images, with scaled poses."""
        return self._cameras(uid, partial(self._read_cameras, uid))

    def _make_views(self, selection: list[tuple[str, list[int]]]) -> Views:
        selected = [(self.get_cameras(uid), indices) for uid, indices in selection]
        params = torch.stack([views.cameras.params[indices] for views, indices in selected])
        matrices = torch.stack([views.poses.world_from_cam[indices] for views, indices in selected])
        cameras = [Pinhole(params[:, view], self.width, self.height) for view in range(params.shape[1])]
        return Views(cameras, Pose(matrices))

    def _read_cameras(self, uid: str) -> ObjectViews:
        read = read_cameras(self.root / uid)
        native = read.cameras.to(torch.float32)
        scaled = read.poses.scale_translation(FARTHEST / read.poses.translation.norm(dim=-1).max())
        return ObjectViews(native, native.resize(self.width, self.height), scaled.to(torch.float32))

    def _read_image(self, uid: str, name: str) -> UInt8[Tensor, "3 h w"]:
        """At another size, the eight bits that a file of that size would hold."""
        path = self.root / uid / "views" / name
        image, camera = read_image(path), self.get_cameras(uid).native[NAMES.index(name)]
        if image.shape[1:] != (camera.height, camera.width):
            size = f"{image.shape[2]}×{image.shape[1]} px"
            raise ValueError(f"{path}: {size}, but its camera takes {camera.width}×{camera.height}")
        if image.shape[1:] == (self.height, self.width):
            return image
        levels, _ = resample(image.to(torch.float32), camera, self.width, self.height)
        return levels.round().clamp(0, 255).to(torch.uint8)


# Batches, each a function of (seed, step, rank).


HELD_OUT_SHARE = 0.02
"""Share of all objects that are neither trained on nor tested on."""

TARGETS: dict[str, TargetKinds] = {"all": EVERY_VIEW, **PROTOCOLS}
"""Targets of a training step: every view but the two that are given, or a protocol's targets."""


@dataclass(frozen=True)
class ObjectsNVS(NVSSource):
    """Two native views of an object are given, another of its 24 is the target; all three are drawn for every sample.

    A sample is a function of (seed, rank, number): `make_batch(step)` holds numbers step · batch and following, for any
    batch size. The objects of the test protocols are never among them.
    """

    settings: ObjectsData
    seed: int = 0

    def __post_init__(self) -> None:
        settings = self.settings
        if settings.targets not in TARGETS:
            raise ValueError(f"unknown targets {settings.targets!r}: choose one of {', '.join(TARGETS)}")
        check_draws(self.seed, batch=settings.batch, width=settings.width, height=settings.height)
        if not self.training_names:
            raise ValueError(
                f"{settings.root} has {len(self._names)} objects to train on: "
                "render at least 2 in addition to those for testing"
            )

    @cached_property
    def _names(self) -> list[str]:
        """Objects that are not for testing, in an order that belongs to their products."""
        names = find_objects(self.settings.root)
        if self.settings.index is None:
            names = [uid for uid in names if assign_split(uid) == "train"]
        else:
            tested = read_tested(self.settings.index)
            names = [uid for uid in names if uid not in tested]
        return sorted(names, key=lambda uid: (hash_to_unit(get_product(uid)), uid))

    @cached_property
    def held_out_names(self) -> list[str]:
        """Objects for validation: the products next to those for testing, at least one."""
        first = hash_to_unit(get_product(self._names[0])) if self._names else 0.0
        # Nothing is below TEST_SHARE, unless an index lists the objects for testing.
        limit = max(HELD_OUT_SHARE + (TEST_SHARE if self.settings.index is None else 0.0), first)
        return [uid for uid in self._names if hash_to_unit(get_product(uid)) <= limit]

    @cached_property
    def training_names(self) -> list[str]:
        return self._names[len(self.held_out_names) :]

    @cached_property
    def objects(self) -> RenderedObjects:
        settings = self.settings
        return RenderedObjects(settings.root, settings.width, settings.height, settings.cache_mb)

    def make_batch(self, step: int, rank: int = 0) -> NVSBatch:
        numbers = range(step * self.settings.batch, (step + 1) * self.settings.batch)
        requests, redrawn = draw_all_readable(partial(self._draw_loaded, rank), numbers, self.objects.root)
        return replace(self.objects.make_batch(requests), redrawn=redrawn)

    def make_held_out(self) -> NVSBatch:
        return self.objects.make_batch(
            [self._draw(self.held_out_names, 0, n) for n in range(self.settings.batch)]
        )

    def _draw_loaded(self, rank: int, number: int, attempt: int) -> ViewRequest:
        """Draw views of a training object and read them; the batch then takes them from the cache."""
        request = self._draw(self.training_names, rank, number, attempt)
        self.objects.get_cameras(request.uid)
        for name in (*request.contexts, *request.targets):
            self.objects.get_image(request.uid, name)
        return request

    def _draw(self, objects: list[str], rank: int, number: int, attempt: int = 0) -> ViewRequest:
        random = make_generator(attempt, self.seed, rank, number)
        uid = objects[random.integers(len(objects))]
        first, second = map(int, random.choice(DIRECTIONS, 2, replace=False))
        targets = TARGETS[self.settings.targets].list_names((first, second))
        contexts = (format_image_name(first, NATIVE), format_image_name(second, NATIVE))
        return ViewRequest(uid, contexts, (targets[random.integers(len(targets))],))


# Scanned objects that stand where the furniture of a room would, before white
#
# Cameras, lenses and zooms are drawn as in rooms (`ArcNVS`), so that tables can tell what the scenes change. Rendered
# objects (`ObjectsNVS`) have other cameras: their fields of view differ within a scene in training too.

EXTENT_M = 1.2
"""Longest side of an object. Its corners are within √3/2 · 1.2 = 1.04 m of the middle, cameras at 1.1 m or more."""

SHARES = {
    "test": (0.0, TEST_SHARE),
    "held_out": (TEST_SHARE, TEST_SHARE + HELD_OUT_SHARE),
    "train": (TEST_SHARE + HELD_OUT_SHARE, 1.0),
}
"""Range of every split in [0, 1), by product: color variants of an object are in one split."""

OBJECT_FROM_SCENE = ((1.0, 0.0, 0.0), (0.0, 0.0, 1.0), (0.0, -1.0, 0.0))
"""Meshes have z up, scenes y down."""


@dataclass(frozen=True)
class ObjectArcsNVS(ArcNVS):
    """Views around scanned objects. Products of the test split are never trained on."""

    NAME, AIM_M, LEVEL_M = "object", None, 0.0

    settings: ObjectArcsData

    @cached_property
    def jobs(self) -> dict[str, list[ObjectJob]]:
        """The objects of each split, by the number in [0, 1) that belongs to their product."""
        folder = self.settings.find_meshes()
        files = find_meshes(folder)
        jobs = {
            split: [
                ObjectJob(uid, files[uid]) for uid in files if low <= hash_to_unit(get_product(uid)) < high
            ]
            for split, (low, high) in SHARES.items()
        }
        missing = [split for split, listed in jobs.items() if not listed]
        if missing:
            raise ValueError(
                f"{folder} has {len(files)} meshes, and by their names none is for {missing[0]}: give a folder with "
                "more of them"
            )
        return jobs

    def render(
        self, draws: Sequence[ArcDraws], camera: Pinhole, poses: Pose
    ) -> UInt8[np.ndarray, "scene view 3 h w"]:
        turn = torch.tensor(OBJECT_FROM_SCENE, dtype=poses.dtype)
        # Meshes have unit size: dividing positions by the extent makes the object that large.
        inside = Pose.from_parts(
            turn @ poses.rotation, (turn @ poses.translation[..., None])[..., 0] / EXTENT_M
        )
        images = [
            MeshScene(load_mesh(self._get_object(draw), ObjectSettings()), light=True).render_color(
                camera[scene], inside[scene], self.settings.antialias
            )
            for scene, draw in enumerate(draws)
        ]
        return torch.stack(images).numpy()

    def _get_object(self, draw: ArcDraws) -> ObjectJob:
        jobs = self.jobs["held_out" if draw.rank == HELD_OUT else self.split]
        return jobs[draw.content % len(jobs)]


# Short camera paths around objects whose field of view changes on the way, rendered: the paper's qualitative figure
#
# The paper shows "changing FoV along short viewpoint trajectories" and gives no numbers. Here a path begins at the
# first given view, circles the object by ARC_DEG at its height and distance, and its focal length grows by a constant
# factor from frame to frame, from FOCAL[0] to FOCAL[1] of the given view's.

ARC_DEG = 30.0
FOCAL = (0.7, 1.5)


def read_settings(root: Path) -> ObjectSettings:
    """Read what the objects of a folder were rendered with."""
    path = root / DATASET
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        known = {field.name for field in fields(ObjectSettings)}
        return ObjectSettings(**{name: value for name, value in document.items() if name in known})
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} does not hold the settings of rendered objects: {error}") from None


def make_path_cameras(first: ObjectCameras, frames: int) -> ObjectCameras:
    """Return the cameras of a path that begins at a view (cameras and poses [1])."""
    if frames < 2:
        raise ValueError(f"{frames} frames: a path has at least 2")
    along = torch.linspace(0.0, 1.0, frames, dtype=torch.float64)
    angle = radians(ARC_DEG) * along
    turn = torch.eye(4, dtype=torch.float64).repeat(frames, 1, 1)
    turn[:, 0, 0], turn[:, 0, 1] = angle.cos(), -angle.sin()  # around z, which is up in an object's frame
    turn[:, 1, 0], turn[:, 1, 1] = angle.sin(), angle.cos()
    factor = torch.exp(log(FOCAL[0]) + along * (log(FOCAL[1]) - log(FOCAL[0])))
    camera = first.cameras
    fx, fy, cx, cy = (camera.parameter(name).double().expand(frames) for name in ("fx", "fy", "cx", "cy"))
    lenses = Pinhole.make(camera.width, camera.height, fx=fx * factor, fy=fy * factor, cx=cx, cy=cy)
    return ObjectCameras(lenses, Pose(turn @ first.poses.world_from_cam.double()))


class TrajectoryObjects:
    """Objects below `root` with rendered paths; `meshes` is the folder that they were rendered from."""

    def __init__(self, root: Path, meshes: Path | None, size: int) -> None:
        self.root, self.size = root, size
        self.settings = read_settings(root)
        if self.settings.meshes != PROCEDURAL and meshes is None:
            raise ValueError(
                f"{root} was rendered from {self.settings.meshes}: give that folder with --meshes, paths are rendered"
            )
        self.files = {} if self.settings.meshes == PROCEDURAL or meshes is None else find_meshes(meshes)
        self.objects = RenderedObjects(root, size, size, cache_mb=0)

    def make_batch(self, uid: str, contexts: tuple[str, str], frames: int) -> NVSBatch:
        """Return the given views of an object, and the frames of a path from the first of them as targets."""
        native = read_cameras(self.root / uid)
        place = NAMES.index(contexts[0])
        first = ObjectCameras(
            native.cameras[place : place + 1].resize(self.size, self.size), native.poses[place : place + 1]
        )
        path = make_path_cameras(first, frames)
        images = self._render(uid, path)
        # The unit of the given views: the object's farthest camera is at FARTHEST.
        poses = path.poses.scale_translation(
            (FARTHEST / native.poses.translation.norm(dim=-1).max()).expand(frames)
        )
        given = self.objects.make_batch([ViewRequest(uid, contexts, contexts)])
        lenses = path.cameras.to(torch.float32)
        targets = Views(
            [lenses[frame : frame + 1] for frame in range(frames)], Pose(poses.world_from_cam[None].float())
        )
        return NVSBatch(given.context_images, given.contexts, images[None], targets, (uid,))

    def _render(self, uid: str, path: ObjectCameras) -> torch.Tensor:
        if self.settings.meshes != PROCEDURAL and uid not in self.files:
            raise ValueError(f"no mesh of {uid} among those of --meshes: give the folder of {self.root}")
        scene = MeshScene(load_mesh(ObjectJob(uid, self.files.get(uid)), self.settings), self.settings.light)
        return scene.render_color(path.cameras, path.poses, self.settings.antialias).float() / 255
