"""Rooms along the paths of real cameras: the paths of RealEstate10K clips in one npz file, without their pictures.

One array per clip, [frame 16] = fx fy cx cy in units of the picture's size, camera_from_world 3×4 row by row.
"""

import zipfile
from dataclasses import dataclass, field, replace
from math import cos, pi, sin
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.pinhole import Pinhole
from g_ray.demo.room import Room, make_random_room
from g_ray.geometry.pose import Pose
from g_ray.rays.views import Views
from g_ray_lab.datasets.re10k import convert_poses
from g_ray_lab.sources.batches import NVSBatch, NVSSource, compute_zoom_factors
from g_ray_lab.sources.clip_sampling import (
    check_sampling,
    draw_frames,
    hash_to_unit,
    normalize_poses,
)
from g_ray_lab.sources.draws import check_draws, check_split
from g_ray_lab.sources.nvs_settings import PathsData


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
