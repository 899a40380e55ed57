"""Novel-view synthesis from the clips of RealEstate10K, matches for a check of their poses, and rooms along them."""

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import cos, pi, sin
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.pinhole import Pinhole
from g_ray.demo.room import Room, make_random_room
from g_ray.geometry.pose import Pose
from g_ray.rays.resample import fit_box, resample
from g_ray.rays.views import Views
from g_ray_lab.datasets.re10k import Clip, Clips, convert_poses
from g_ray_lab.sources.axes_check import MatchedViews, match_images, swap_opengl_opencv
from g_ray_lab.sources.batches import NVSBatch, NVSSource, compute_zoom_factors
from g_ray_lab.sources.draws import (
    check_draws,
    check_sampling,
    check_split,
    draw_all_readable,
    draw_frames,
    hash_to_unit,
    make_generator,
    normalize_poses,
)
from g_ray_lab.sources.nvs_settings import PathsData, RE10KData

STEP = 15
"""Frames between two views of a pair: enough motion for rays to part, little enough to recognize things."""
PAIRS = 4
"""Pairs per clip."""


def match_clips(clips: Clips, count: int) -> list[MatchedViews]:
    """Match pixels in `count` clips, always the same ones, for `check_axes`."""
    chosen = sorted(clips.keys, key=hash_to_unit)[:count]
    return [pair for key in chosen for pair in match_pairs(clips.get_clip(key))]


def match_pairs(clip: Clip) -> list[MatchedViews]:
    """Match pixels in pairs of frames, spread over the clip."""
    step = min(STEP, len(clip) - 1)
    if not step:
        return []
    matched = []
    for first in sorted({int(start) for start in torch.linspace(0, len(clip) - 1 - step, PAIRS)}):
        one, other = clip.frame(first), clip.frame(first + step)
        poses = Pose(clip.poses.world_from_cam[[first, first + step]])
        pixels = match_images(one.image, other.image)
        matched.append(MatchedViews(pixels, (one.camera, other.camera), poses))
    return matched


# Batches, as the paper trains and evaluates on them.


TRIES = 64
"""Clips drawn for a scene before giving up."""
HELD_OUT = 16
"""Clips that are kept for validation; a tenth of all if there are few."""


@dataclass(frozen=True)
class ClipFrames:
    """A scene: frames of a clip, contexts before targets, and how much each is zoomed."""

    clip: Clip
    frames: Sequence[int]
    contexts: int
    zoom: Float[Tensor, "view"]


@dataclass(frozen=True)
class RE10KNVS(NVSSource):
    """Random ranges of random clips: a scene is a function of (seed, rank, number), for any batch size.

    A clip that is too short is drawn again from the same random numbers.
    """

    clips: Clips
    settings: RE10KData
    seed: int = 0
    keys: tuple[str, ...] = field(init=False, repr=False)
    kept: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        settings = self.settings
        check_draws(self.seed, batch=settings.batch)
        check_sampling(settings.gap, settings.contexts, settings.targets)
        compute_zoom_factors(torch.zeros(1), settings.zoom_max)
        ordered = sorted(self.clips.keys, key=hash_to_unit)
        if len(ordered) < 2:
            raise ValueError(
                f"{len(ordered)} clip: at least 2 are needed, to train on one and validate on the other"
            )
        kept = min(HELD_OUT, max(1, len(ordered) // 10))
        object.__setattr__(self, "kept", tuple(sorted(ordered[:kept])))
        object.__setattr__(self, "keys", tuple(sorted(ordered[kept:])))

    def make_batch(self, step: int, rank: int = 0) -> NVSBatch:
        batch = self.settings.batch
        return self._load(self.keys, rank, range(step * batch, (step + 1) * batch))

    def make_held_out(self) -> NVSBatch:
        return self._load(self.kept, 0, range(self.settings.batch))

    def with_zoom(self, zoom_max: float) -> "RE10KNVS":
        """Return the same scenes with zooms up to `zoom_max`."""
        return replace(self, settings=replace(self.settings, zoom_max=zoom_max))

    def _load(self, keys: tuple[str, ...], rank: int, numbers: range) -> NVSBatch:
        scenes, redrawn = draw_all_readable(partial(self._load_clip, keys, rank), numbers, self.settings.root)
        return replace(_stack_scenes(scenes), redrawn=redrawn)

    def _load_clip(self, keys: tuple[str, ...], rank: int, number: int, attempt: int) -> "LoadedClip":
        frames = self._draw_frames(keys, make_generator(attempt, self.seed, rank, number))
        return _load_scene(frames, self.settings.width, self.settings.height)

    def _draw_frames(self, keys: tuple[str, ...], random: np.random.Generator) -> ClipFrames:
        contexts, targets, gap = self.settings.contexts, self.settings.targets, self.settings.gap
        unit = torch.from_numpy(random.random(contexts + targets))
        for _ in range(TRIES):
            clip = self.clips.get_clip(keys[int(random.integers(len(keys)))])
            if len(clip) > gap[0]:
                frames = draw_frames(random, len(clip), gap, contexts, targets)
                return ClipFrames(clip, frames, contexts, compute_zoom_factors(unit, self.settings.zoom_max))
        raise ValueError(f"none of {TRIES} clips drawn has more than {gap[0]} frames: change the frame gap")


def load_scenes(scenes: Sequence[ClipFrames], width: int, height: int) -> NVSBatch:
    """Load scenes of equally many views; each frame is cropped and resized together with its camera in one step."""
    return _stack_scenes([_load_scene(scene, width, height) for scene in scenes])


class LoadedClip(NamedTuple):
    """A scene with its pictures, cameras and poses."""

    scene: ClipFrames
    pictures: Float[Tensor, "view 3 h w"]
    cameras: list[Pinhole]
    poses: Float[Tensor, "view 4 4"]


def _stack_scenes(loaded: Sequence[LoadedClip]) -> NVSBatch:
    contexts = loaded[0].scene.contexts
    views = Views(
        [Pinhole.stack(per_view) for per_view in zip(*(each.cameras for each in loaded), strict=True)],
        normalize_poses(Pose(torch.stack([each.poses for each in loaded])), contexts).to(torch.float32),
    )
    pictures = torch.stack([each.pictures for each in loaded])
    names = tuple(f"clip {each.scene.clip.key}, frames {list(each.scene.frames)}" for each in loaded)
    return NVSBatch.split(pictures, views, contexts, names)


def _load_scene(scene: ClipFrames, width: int, height: int) -> LoadedClip:
    beyond = [number for number in scene.frames if not 0 <= number < len(scene.clip)]
    if beyond:
        raise ValueError(
            f"clip {scene.clip.key} has no frame {beyond[0]}, only {len(scene.clip)}: the clip is not complete"
        )
    pictures, cameras = [], []
    for number, zoom in zip(scene.frames, scene.zoom.tolist(), strict=True):
        frame = scene.clip.frame(number)
        box = fit_box(frame.camera.width, frame.camera.height, width, height, zoom)
        picture, camera = resample(frame.image, frame.camera, width, height, box)
        pictures.append(picture)
        cameras.append(camera)
    poses = scene.clip.poses.world_from_cam[list(scene.frames)]
    return LoadedClip(scene, torch.stack(pictures), cameras, poses)


# Rooms along the paths of real cameras: the paths of RealEstate10K clips in one npz file, without their pictures
#
# One array per clip, [frame 16] = fx fy cx cy in units of the picture's size, camera_from_world 3×4 row by row.


@dataclass(frozen=True)
class CameraPath:
    """Where a camera went, and through which lens it looked."""

    key: str
    intrinsics: Float[Tensor, "frame 4"]  # fx fy cx cy, in units of the picture's width and height
    poses: Pose  # [frame]

    def __len__(self) -> int:
        return len(self.intrinsics)


def read_paths(file: Path) -> dict[str, CameraPath]:
    """Read all paths of a file by clip, in float64."""
    if not zipfile.is_zipfile(file):
        raise ValueError(f"{file} is not an npz file of camera paths")
    with np.load(file) as arrays:
        return {key: _parse_path(key, arrays[key], f"{file}, clip {key}") for key in sorted(arrays.files)}


def _parse_path(key: str, rows: np.ndarray, where: str) -> CameraPath:
    if rows.ndim != 2 or rows.shape[1] != 16 or not np.issubdtype(rows.dtype, np.floating):
        raise ValueError(f"{where}: shape {rows.shape}, expected [frame, 16] numbers")
    values = torch.from_numpy(rows.astype(np.float64))
    if not (torch.isfinite(values).all() and (values[:, :2] > 0).all()):
        raise ValueError(f"{where}: focal lengths and poses must be finite, and focal lengths positive")
    bottom = values.new_tensor([0.0, 0.0, 0.0, 1.0]).expand(len(values), 1, 4)
    matrices = torch.cat([values[:, 4:].reshape(-1, 3, 4), bottom], 1)
    return CameraPath(key, values[:, :4], convert_poses(matrices, "opencv", where))


# Rooms seen along the paths of real cameras: real motion and lenses, with scenes that need no download.


SPLITS = {"test": (0.0, 0.1), "held_out": (0.1, 0.15), "train": (0.15, 1.0)}
"""Which clips, by the number in [0, 1) that belongs to their names."""

FREE = ((-2.2, -1.05, -2.2), (2.2, -0.05, 2.2))
"""Corners of a box, in meters, that every room leaves free: above all furniture, and away from walls and ceiling."""


@dataclass(frozen=True)
class PathRoomsNVS(NVSSource):
    """Contexts and targets from a range of a real clip, as RealEstate10K trains (`clip_sampling`), inside a room.

    A scene is a function of (seed, split, rank, number), for any batch size.
    """

    settings: PathsData
    seed: int = 0
    split: str = "train"
    clips: dict[str, list[CameraPath]] = field(init=False, repr=False, compare=False)  # by split

    def __post_init__(self) -> None:
        settings = self.settings
        check_split(self.split, SPLITS)
        check_draws(self.seed, batch=settings.batch, antialias=settings.antialias)
        check_sampling(settings.gap, settings.contexts, settings.targets)
        compute_zoom_factors(torch.zeros(1), settings.zoom_max)
        object.__setattr__(self, "clips", self._group_by_split())

    def _group_by_split(self) -> dict[str, list[CameraPath]]:
        file, gap = self.settings.find_file(), self.settings.gap
        paths = [path for path in read_paths(file).values() if len(path) > gap[0]]
        clips = {
            split: [path for path in paths if low <= hash_to_unit(path.key) < high]
            for split, (low, high) in SPLITS.items()
        }
        if not clips[self.split] or not clips["held_out"]:
            raise ValueError(
                f"{file} has {len(paths)} clips of more than {gap[0]} frames: "
                f"too few for the splits {self.split} and held_out"
            )
        return clips

    def make_batch(self, step: int, rank: int = 0) -> NVSBatch:
        return self.make_scenes(range(step * self.settings.batch, (step + 1) * self.settings.batch), rank)

    def make_held_out(self) -> NVSBatch:
        return self.make_scenes(range(self.settings.batch), split="held_out")

    def with_zoom(self, zoom_max: float) -> "PathRoomsNVS":
        """Return the same scenes and poses with zooms up to `zoom_max`."""
        return replace(self, settings=replace(self.settings, zoom_max=zoom_max))

    def make_scenes(self, numbers: range, rank: int = 0, split: str | None = None) -> NVSBatch:
        """Make a range of the stream."""
        draws = [self.draw_path(number, rank, split or self.split) for number in numbers]
        rooms = Room.stack([draw.room for draw in draws])
        poses = Pose(torch.stack([draw.poses.world_from_cam for draw in draws]))
        camera = Pinhole.stack([draw.camera for draw in draws])
        rgb = rooms.render(camera, poses.to(torch.float32), self.settings.antialias).rgb.movedim(-1, -3)
        contexts = self.settings.contexts
        if self.settings.axes == "blender":
            poses = swap_opengl_opencv(poses)
        world = normalize_poses(poses, contexts).to(torch.float32)
        views = Views([camera[:, view] for view in range(rgb.shape[1])], world)
        return NVSBatch.split(rgb, views, contexts, tuple(draw.name for draw in draws))

    def draw_path(self, number: int, rank: int, split: str) -> "PlacedPath":
        """One scene before it is rendered."""
        random = np.random.default_rng((self.seed, list(SPLITS).index(split), rank, number))
        clip = self.clips[split][int(random.integers(len(self.clips[split])))]
        frames = draw_frames(
            random, len(clip), self.settings.gap, self.settings.contexts, self.settings.targets
        )
        zoom = compute_zoom_factors(torch.from_numpy(random.random(len(frames))), self.settings.zoom_max)
        return PlacedPath(
            name=f"clip {clip.key}, frames {frames}, in room {number} of rank {rank}",
            room=make_random_room(int(random.integers(2**62)), self.settings.solids, coarse=True),
            poses=place_poses(Pose(clip.poses.world_from_cam[frames]), self.settings.contexts, random),
            camera=make_cameras(clip.intrinsics[frames], zoom, self.settings.width, self.settings.height),
        )


@dataclass(frozen=True)
class PlacedPath:
    """A room and the views of it."""

    name: str
    room: Room
    poses: Pose  # [view], in the room
    camera: Pinhole  # [view]


def place_poses(poses: Pose, contexts: int, random: np.random.Generator) -> Pose:
    """Place a path in a room: turned about the vertical, tilted down a little, scaled, and moved into the free box.

    The first camera is taken to be level. The path stands where it has the room before it, and is scaled to 0.3 to 1 m
    between first and last context, or less if it would not fit.
    """
    turn = _make_rotation(random.uniform(0, 2 * pi), random.uniform(0, 0.25)).to(poses.dtype)
    turned = Pose.from_parts(turn, turn.new_zeros(3)) @ poses.relative_to_first()
    low, high = poses.world_from_cam.new_tensor(FREE)
    size = turned.translation.amax(0) - turned.translation.amin(0)
    baseline = float(turned.translation[contexts - 1].norm())
    fits = float(((high - low) / size.clamp(min=1e-9)).min())
    wanted = random.uniform(0.3, 1.0) / max(baseline, 1e-9)
    scaled = turned.scale_translation(turned.translation.new_full(turned.batch_shape, min(wanted, fits)))
    # The middle of the path may be anywhere in the free box that is left when the path's own size is taken off.
    middle = (scaled.translation.amax(0) + scaled.translation.amin(0)) / 2
    rest = ((high - low - min(wanted, fits) * size) / 2).clamp(min=0)
    back = -random.uniform(1.0, 1.8) * turned.rotation[:, :, 2].mean(0)
    back[1] = random.uniform(-1.0, 1.0) * rest[1]
    offset = (low + high) / 2 + torch.minimum(torch.maximum(back, -rest), rest) - middle
    return Pose.from_parts(scaled.rotation, scaled.translation + offset)


def make_cameras(
    intrinsics: Float[Tensor, "view 4"], zoom: Float[Tensor, "view"], width: int, height: int
) -> Pinhole:
    """Return the lens of each frame after the largest centered crop of the wanted shape, zoomed."""
    fx, fy, cx, cy = intrinsics.unbind(-1)
    focal = torch.maximum(fx * width, fy * height) * zoom
    # Pixels are square, so an uncropped picture would be focal/fx by focal/fy pixels.
    return Pinhole.make(
        width,
        height,
        fx=focal,
        fy=focal,
        cx=width / 2 + (cx - 0.5) * focal / fx,
        cy=height / 2 + (cy - 0.5) * focal / fy,
        dtype=torch.float32,
    )


def _make_rotation(yaw_rad: float, tilt_rad: float) -> Float[Tensor, "3 3"]:
    """Rotate about the vertical (y), after tilting the camera down about its x axis."""
    about_y = [[cos(yaw_rad), 0, sin(yaw_rad)], [0, 1, 0], [-sin(yaw_rad), 0, cos(yaw_rad)]]
    about_x = [[1, 0, 0], [0, cos(tilt_rad), sin(tilt_rad)], [0, -sin(tilt_rad), cos(tilt_rad)]]
    return torch.tensor(about_y, dtype=torch.float64) @ torch.tensor(about_x, dtype=torch.float64)
