"""Batches for learned stereo: one view of a room as reference, some of the others as sources, errors of their poses."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.geometry.pose import Pose
from g_ray.media.view import View
from g_ray.stereo.sweep_network import Sight
from g_ray_lab.sources.batches import BatchSource, RecentCache
from g_ray_lab.sources.draws import HELD_OUT, SPLITS, check_draws
from g_ray_lab.sources.stereo_settings import StereoData
from g_ray_lab.textured.stereo_rooms import StereoPictures, StereoRoom, draw_rotation, draw_textures

POSE_NOISE_PX = 0.5
"""Largest deviation of the directions that poses give their pixels."""
NEAR, FAR = (0.6, 0.9), (1.1, 1.8)
"""Ends of the swept range, as multiples of the 1 % and 99 % quantiles of the true distances."""
UNKNOWN_RANGE, UNKNOWN_NEAR, UNKNOWN_FAR = 0.25, (0.25, 0.6), (2.0, 10.0)
"""Share of references whose range is hardly known, and its ends."""
GRAY = 0.2
HELD_OUT_SETS = 12


@dataclass(frozen=True, eq=False)
class StereoSet:
    """A reference view, first, with its sources."""

    images: Float[Tensor, "view 3 h w"]  # in [0, 1]
    cameras: list[Camera]
    poses: Pose  # world_from_cam [view], with errors
    limits: Float[Tensor, "2"]  # inverse distances, far and near
    ray_depth: Float[Tensor, "h w"]  # of the reference; infinite to the sky
    valid: Bool[Tensor, "h w"]
    name: str = ""

    def list_sights(self) -> list[Sight]:
        """Compute where the pixels of the reference go in its sources, in full precision even under autocast."""
        views = [View(str(i), camera, self.poses[i]) for i, camera in enumerate(self.cameras)]
        with torch.autocast(self.images.device.type, enabled=False):
            return [Sight.between(views[0], source) for source in views[1:]]

    def compute_places(self) -> Float[Tensor, "h w"]:
        """Compute where the true inverse distances lie between the limits, 0 to 1."""
        far, near = self.limits
        return (1 / self.ray_depth.clamp_min(1e-3) - far) / (near - far)


@dataclass(frozen=True, eq=False)
class StereoBatch:
    """Sets of equally large images."""

    sets: list[StereoSet]


@dataclass(frozen=True)
class StereoViews(BatchSource[StereoBatch]):
    """An endless stream of references in `distinct` rooms, each with other sources, errors and colors every time."""

    settings: StereoData
    seed: int = 0
    split: str = "train"
    rooms: RecentCache[StereoRoom] = field(
        default_factory=lambda: RecentCache(4096), compare=False, repr=False
    )
    pools: RecentCache[Tensor] = field(default_factory=lambda: RecentCache(2), compare=False, repr=False)

    def __post_init__(self) -> None:
        settings = self.settings
        check_draws(self.seed, batch=settings.batch, distinct=settings.distinct)
        if not 2 <= settings.sources[0] <= settings.sources[1] < settings.views:
            raise ValueError(
                f"sources {settings.sources} of {settings.views} views: give a range from 2 to one less than views"
            )
        if not settings.sides or any(side % 8 or side < 32 for side in settings.sides):
            raise ValueError(f"sides {settings.sides}: give multiples of 8 px, 32 or more")
        if settings.pictures and not any(settings.pictures.glob("*.jpg")):
            raise ValueError(f"{settings.pictures} has no .jpg files: give a folder of them, or none")

    def make_batch(self, step: int, rank: int = 0) -> StereoBatch:
        first = step * self.settings.batch
        side = self.settings.sides[step % len(self.settings.sides)]
        return StereoBatch([self.make_set(first + i, rank, side) for i in range(self.settings.batch)])

    def make_held_out(self) -> StereoBatch:
        return StereoBatch([self.make_set(number, HELD_OUT) for number in range(HELD_OUT_SETS)])

    def make_set(self, number: int, rank: int = 0, side: int | None = None) -> StereoSet:
        """Make any set of the stream; `side` is the first of the settings unless given."""
        settings = self.settings
        stream = (self.seed, SPLITS.index(self.split), rank)
        room = self._draw_room((*stream, number % settings.distinct), side or settings.sides[0])
        pictures = self._take_pictures(room)
        random = np.random.default_rng((*stream, number, 3))
        count = int(random.integers(settings.sources[0], settings.sources[1], endpoint=True))
        chosen = random.permutation(settings.views)[: count + 1].tolist()
        cameras = [room.cameras[i] for i in chosen]
        depth = pictures.ray_depth[chosen[0]]
        valid = (depth > 0) & depth.isfinite()
        limits = _draw_limits(depth[valid], random)
        return StereoSet(
            _change_colors(pictures.images[chosen].float() / 255, random),
            cameras,
            _disturb([room.poses[i] for i in chosen], cameras, random),
            limits,
            depth,
            valid,
            f"stereo room {number % settings.distinct} of rank {rank}",
        )

    def _draw_room(self, seed: tuple[int, ...], side: int) -> StereoRoom:
        views, lenses, share = self.settings.views, self.settings.lenses, self.settings.open_share
        return self.rooms((*seed, side), lambda: StereoRoom.draw(seed, views, side, lenses, share))

    def _take_pictures(self, room: StereoRoom) -> StereoPictures:
        """Render a room, or read what a run has kept of it."""
        folder, settings = self.settings.cache, self.settings
        if folder is None:
            return self._render(room)
        more = [*(["pictures"] if settings.pictures else []), *(["open"] if room.opening else [])]
        kinds = "-".join((*settings.lenses, *more))
        name = "-".join(map(str, (*room.seed, settings.views, room.cameras[0].width))) + f"-{kinds}.npz"
        path = Path(folder) / name
        if path.is_file():
            return StereoPictures.load(path)
        folder.mkdir(parents=True, exist_ok=True)
        pictures = self._render(room)
        pictures.save(path)
        return pictures

    def _render(self, room: StereoRoom) -> StereoPictures:
        pictures = self.settings.pictures
        return room.render(self.pools(room.pool, lambda: draw_textures(room.pool, pictures)))


def _draw_limits(distance: Float[Tensor, "n"], random: np.random.Generator) -> Float[Tensor, "2"]:
    """Draw the inverse distances that a sweep ends at, as if it were known beforehand roughly where the scene is."""
    near, far = torch.quantile(distance, distance.new_tensor([0.01, 0.99])).tolist()
    is_known = random.random() >= UNKNOWN_RANGE
    near *= random.uniform(*(NEAR if is_known else UNKNOWN_NEAR))
    far *= random.uniform(*(FAR if is_known else UNKNOWN_FAR))
    return torch.tensor([1 / far, 1 / near])


def _disturb(poses: Sequence[Pose], cameras: Sequence[Camera], random: np.random.Generator) -> Pose:
    """Turn sources by angles of a fraction of a pixel, as errors of calibration and of poses do."""
    deviation = random.uniform(0, POSE_NOISE_PX)
    turned = [poses[0].world_from_cam.double()]
    for pose, camera in zip(poses[1:], cameras[1:], strict=True):
        angle = float(np.abs(random.normal())) * deviation * _measure_pixel_angle(camera)
        change = Pose.from_parts(draw_rotation(random, angle), torch.zeros(3, dtype=torch.float64))
        turned.append((pose.to(torch.float64) @ change).world_from_cam)
    return Pose(torch.stack(turned))


def _measure_pixel_angle(camera: Camera) -> float:
    """Angle between the rays of two neighbors in the middle of an image."""
    middle = torch.tensor([camera.width / 2, camera.height / 2], dtype=camera.dtype)
    rays, _ = camera.unproject(torch.stack([middle, middle + middle.new_tensor([1.0, 0.0])]))
    return float((rays[1] - rays[0]).norm())


def _change_colors(
    images: Float[Tensor, "view 3 h w"], random: np.random.Generator
) -> Float[Tensor, "view 3 h w"]:
    """Permute channels or remove color for all views alike; change exposure and contrast of each, and add noise."""
    images = images[:, torch.from_numpy(random.permutation(3))]
    if random.random() < GRAY:
        images = images.mean(1, keepdim=True).expand(-1, 3, -1, -1)
    gain, gamma = (
        torch.from_numpy(np.exp(random.normal(0, 0.12, (len(images), 1, 1, 1)))).float() for _ in range(2)
    )
    images = (images * gain).clamp(0, 1) ** gamma
    noise = torch.from_numpy(random.standard_normal(tuple(images.shape), np.float32))
    return images + noise * random.uniform(0, 0.015)
