"""Reconstruction from rooms: a camera walks by small turns and steps, so that neighboring views overlap."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from math import pi, radians
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.equirectangular import Equirectangular
from g_ray.demo.room import Rendering, Room, make_random_room
from g_ray.geometry.pointmap import transform_points
from g_ray.geometry.pose import Pose
from g_ray.rays.views import Views
from g_ray_lab.sources.batches import ReconstructionBatch, compute_zoom_factors
from g_ray_lab.sources.draws import SPLITS, check_split
from g_ray_lab.sources.random_lenses import draw_fisheye_coefficients, make_fisheyes, make_pinholes
from g_ray_lab.sources.reconstruction_settings import RoomsLenses, RoomsViews
from g_ray_lab.sources.shaped_sets import ColorChange, ColorJitter, ShapedSets, Size

START = 6
"""Numbers that a walk begins with: where around the room (2), height, what it looks at (2), pitch."""

PER_STEP = 6
"""Numbers per view: step (3), turn, pitch, roll."""

REACH_M = 1.9
HEIGHTS_M = (-0.8, -0.1)
"""Inside the smallest room and above all furniture; y is down."""

TURNS = 3.0
"""A walk turns back when its heading is this many of the largest turns away from the first."""


def make_walk(
    start: Float[Tensor, "set 6"], steps: Float[Tensor, "set view 6"], yaw_deg: float, step_m: float
) -> Pose:
    """Make poses [set view] from numbers in [0, 1): each view is a step from the previous one.

    A step turns by up to ±`yaw_deg` and goes up to ±`step_m` along each horizontal axis, less in height. At the
    end of its range a walk turns around.
    """
    begin, heading, pitch = _draw_start(start)
    centered = 2 * steps - 1
    centered = torch.cat([torch.zeros_like(centered[:, :1, :4]), centered[:, 1:, :4]], 1).cumsum(1)
    path = begin[:, None] + centered[..., :3] * centered.new_tensor([step_m, 0.4 * step_m, step_m])
    across = reflect_into(path[..., (0, 2)], -REACH_M, REACH_M)
    eyes = torch.stack([across[..., 0], reflect_into(path[..., 1], *HEIGHTS_M), across[..., 1]], -1)
    yaw = heading[:, None] + radians(yaw_deg) * reflect_into(centered[..., 3], -TURNS, TURNS)
    tilt = pitch[:, None] + radians(6) * (2 * steps[..., 4] - 1)
    return _make_poses(eyes, yaw, tilt, radians(4) * (2 * steps[..., 5] - 1))


def reflect_into(value: Tensor, low: float, high: float) -> Tensor:
    """Reflect at both ends, as often as it takes: a walk that meets a wall comes back."""
    span = high - low
    return low + span - ((value - low).remainder(2 * span) - span).abs()


def _draw_start(start: Float[Tensor, "set 6"]) -> tuple[Tensor, Tensor, Tensor]:
    """Draw a position around the middle that looks at a point near it: position, heading and pitch."""
    around, out, high, aim_x, aim_z, down = start.unbind(-1)
    radius = 0.8 + out
    x, z = radius * torch.sin(2 * pi * around), radius * torch.cos(2 * pi * around)
    y = HEIGHTS_M[0] + (HEIGHTS_M[1] - HEIGHTS_M[0]) * high
    heading = torch.atan2(1.2 * aim_x - 0.6 - x, 1.2 * aim_z - 0.6 - z)
    return torch.stack([x, y, z], -1), heading, radians(25) * down


def _make_poses(eyes: Float[Tensor, "*view 3"], yaw: Tensor, pitch: Tensor, roll: Tensor) -> Pose:
    """Make poses from yaw about the vertical (+z to +x), pitch downwards, then roll about the optical axis."""
    forward = torch.stack([yaw.sin() * pitch.cos(), pitch.sin(), yaw.cos() * pitch.cos()], -1)
    cos, sin, zero = roll.cos(), roll.sin(), torch.zeros_like(roll)
    turn = torch.stack([cos, -sin, zero, sin, cos, zero, zero, zero, zero + 1], -1).unflatten(-1, (3, 3))
    level = Pose.look_at(eyes, eyes + forward)
    return Pose.from_parts(level.rotation @ turn, eyes)


# Sets of overlapping views, each a function of (seed, step, rank).


LensKind = Literal["pinhole", "fisheye", "panorama"]
LensName = Literal["pinhole", "fisheye", "mixed"]

LENS_STREAM = 0x1E45
"""Keeps the draws of lens kinds independent of those of rooms and shapes."""

PER_LENS = 9
"""Numbers that a view's camera is drawn from: field of view, principal point (2), zoom, distortion (5)."""


@dataclass(frozen=True)
class LensRange:
    """A kind of lens and the range that its horizontal field of view is drawn from; a panorama has all directions."""

    kind: LensKind
    fov_deg: tuple[float, float] = (360.0, 360.0)

    def make_cameras(
        self, unit: Float[Tensor, "set 9"], zoom: Float[Tensor, "set"], off_center: float, size: Size
    ) -> Camera:
        """Make one camera per set from the PER_LENS numbers in [0, 1) that are drawn for a view."""
        if self.kind == "panorama":
            return Equirectangular(Equirectangular.panorama(*size).params.expand(len(unit), -1), *size)
        low, high = np.deg2rad(self.fov_deg)
        fov = low + (high - low) * unit[:, 0]
        frame = (off_center * (2 * unit[:, 1:3] - 1), zoom, *size)
        if self.kind == "pinhole":
            return make_pinholes(fov, *frame)
        return make_fisheyes(fov, draw_fisheye_coefficients(unit[:, 4:]), *frame)


@dataclass(frozen=True)
class RoomsReconstruction(ShapedSets):
    """A camera walks through a procedural room; every view has a lens of its own, and exact depth.

    The four settings of a test are `lens="pinhole"`, the same with `zoom_max=3`, `"mixed"` (every other view a
    fisheye) and `"fisheye"`: rooms and poses are the same in all of them. A set is a function of (seed, split, rank,
    number): `make_batch(step)` holds numbers step · batch and following. More views continue the walk of fewer.
    """

    settings: RoomsViews
    seed: int = 0
    patch: int = 14
    split: str = "train"
    lens: LensName = "pinhole"
    fisheye_deg: tuple[float, float] = (100.0, 140.0)
    """Horizontal field of view of fisheyes; that of pinholes is `settings.fov_deg`."""
    zoom_max: float = 1.0
    antialias: int = 1

    def __post_init__(self) -> None:
        check_split(self.split)
        if self.lens not in ("pinhole", "fisheye", "mixed"):
            raise ValueError(f"unknown lens {self.lens!r}: choose pinhole, fisheye or mixed")
        ranges = {"fov_deg": (self.settings.fov_deg, 180), "fisheye_deg": (self.fisheye_deg, 240)}
        for name, ((low, high), ceiling) in ranges.items():
            if not 0 < low <= high < ceiling:
                raise ValueError(f"{name} {(low, high)} must be a range between 0° and {ceiling}°")
        if not 0 <= self.settings.off_center < 0.5 or self.antialias < 1:
            raise ValueError(
                f"off_center {self.settings.off_center}, antialias {self.antialias}: the principal point stays within "
                "half an image of the middle, and a pixel takes at least one ray"
            )
        compute_zoom_factors(torch.zeros(1), self.zoom_max)
        self.check_shape()

    def with_lens(self, lens: LensName, zoom_max: float = 1.0) -> "RoomsReconstruction":
        """Return the same rooms and walks with other lenses."""
        return replace(self, lens=lens, zoom_max=zoom_max)

    def make_sets(
        self,
        numbers: Sequence[int],
        rank: int = 0,
        *,
        views: int | None = None,
        size: Size | None = None,
        cameras: list[Camera] | None = None,
    ) -> ReconstructionBatch:
        """Make any sets of the stream, e.g. the first 256 sets of the test split; without a number of views, the
        most that a set has. `cameras`, one per view and each batched over the sets, replace those that are drawn."""
        settings = self.settings
        views, size = views or settings.views[1], size or (settings.width, settings.height)
        draws = [SetDraws(self, number, rank, views) for number in numbers]
        rooms = Room.stack(
            [make_random_room(draw.room, settings.solids, coarse=settings.coarse) for draw in draws]
        )
        steps = torch.stack([draw.steps for draw in draws])
        starts = torch.stack([draw.start for draw in draws])
        poses = make_walk(starts, steps, settings.yaw_deg, settings.step_m)
        cameras = cameras or self._make_cameras(torch.stack([draw.lenses for draw in draws]), size)
        rendering = _render(rooms, cameras, poses.to(torch.float32), self.antialias)
        images = self._change_colors(rendering, draws)
        names = tuple(f"room {number} of rank {rank}" for number in numbers)
        return _make_batch(images, rendering, cameras, poses, names)

    def choose_lens(self, view: int) -> Literal["pinhole", "fisheye"]:
        """Return the lens of a view: in mixed sets every second view is a fisheye."""
        if self.lens == "mixed":
            return "fisheye" if view % 2 else "pinhole"
        return self.lens

    def list_sizes(self) -> dict[Size, float]:
        settings = self.settings
        return {(settings.width, settings.height): 1.0} if settings.aspect == (1.0, 1.0) else {}

    def _make_cameras(self, unit: Float[Tensor, "set view number"], size: Size) -> list[Camera]:
        zoom, off_center = compute_zoom_factors(unit[..., 3], self.zoom_max), self.settings.off_center
        lenses = {
            "pinhole": LensRange("pinhole", self.settings.fov_deg),
            "fisheye": LensRange("fisheye", self.fisheye_deg),
        }
        return [
            lenses[self.choose_lens(view)].make_cameras(unit[:, view], zoom[:, view], off_center, size)
            for view in range(unit.shape[1])
        ]

    def _change_colors(
        self, rendering: Rendering, draws: "list[SetDraws]"
    ) -> Float[Tensor, "set view 3 h w"]:
        images = rendering.rgb.movedim(-1, -3)
        if not self.settings.color:
            return images
        colors = ColorChange.stack([ColorJitter().draw(draw.color, images.shape[1]) for draw in draws])
        return colors.apply(images) * rendering.valid[:, :, None]


class SetDraws:
    """All random numbers of one set, in an order that no setting changes."""

    def __init__(self, data: RoomsReconstruction, number: int, rank: int, views: int) -> None:
        key = (data.seed, SPLITS.index(data.split), rank, number)
        random = np.random.default_rng(key)
        self.room = int(random.integers(2**62))
        self.start = torch.from_numpy(random.random(START))
        per_view = torch.from_numpy(random.random((views, PER_STEP + PER_LENS)))
        self.steps, self.lenses = per_view.split((PER_STEP, PER_LENS), -1)
        self.color = np.random.default_rng((*key, 1))  # a separate stream: colors do not change geometry


def _render(rooms: Room, cameras: list[Camera], poses: Pose, antialias: int) -> Rendering:
    """Render the views of each lens model together, and return all of them in their order."""
    models = [type(camera) for camera in cameras]
    groups = [[view for view, kind in enumerate(models) if kind is model] for model in dict.fromkeys(models)]
    parts = []
    for group in groups:
        first = cameras[group[0]]
        params = torch.stack([cameras[view].params for view in group], 1)
        circles = [circle for view in group if (circle := cameras[view].circle) is not None]
        circle = torch.stack(circles, 1) if circles else None
        camera = type(first)(params, first.width, first.height, circle=circle, check=False)
        parts.append(rooms.render(camera, poses[:, group], antialias))
    order = torch.tensor([view for group in groups for view in group]).argsort()
    return Rendering(
        **{
            name: torch.cat([getattr(part, name) for part in parts], 1).index_select(1, order)
            for name in vars(parts[0])
        }
    )


def _make_batch(
    images: Tensor, rendering: Rendering, cameras: list[Camera], poses: Pose, names: tuple[str, ...]
) -> ReconstructionBatch:
    """Assemble the batch, with points in the frame of the first view instead of the room's."""
    to_cameras, to_first = (pose.inverse().to(torch.float32) for pose in (poses, poses[:, :1]))
    visible = rendering.valid[..., None]
    return ReconstructionBatch(
        images=images,
        views=Views(cameras),
        world_points=transform_points(rendering.points, to_first) * visible,
        camera_points=transform_points(rendering.points, to_cameras) * visible,
        ray_depth=rendering.ray_depth,
        z_depth=rendering.z_depth,
        valid=rendering.valid,
        poses=poses.relative_to_first().to(torch.float32),
        names=names,
    )


# The same rooms through lenses of any field of view.


@dataclass(frozen=True)
class LensedRooms(ShapedSets):
    """The rooms and walks of `RoomsReconstruction`, each view of a batch through a lens of its own kind.

    Kinds are drawn for each view of a batch, because a batch has one camera model per view; parameters are drawn for
    each set. With `lenses`, views take those in turn instead.
    """

    settings: RoomsLenses
    seed: int = 0
    patch: int = 14
    split: str = "train"
    lenses: tuple[LensRange, ...] = ()

    def __post_init__(self) -> None:
        low, high = self.settings.fisheye_deg
        if not 0 < low <= high <= 240:
            raise ValueError(f"fisheye_deg {(low, high)} must be a range between 0° and 240°")
        self._get_rooms()

    def make_sets(
        self, numbers: Sequence[int], rank: int = 0, *, views: int | None = None, size: Size | None = None
    ) -> ReconstructionBatch:
        settings, rooms = self.settings, self._get_rooms()
        views, size = views or settings.views[1], size or (settings.width, settings.height)
        unit = torch.stack([SetDraws(rooms, number, rank, views).lenses for number in numbers])
        lenses = self._choose_lenses(numbers[0] // settings.batch, rank, views)
        native = torch.ones(len(numbers), dtype=unit.dtype)
        cameras = [
            lens.make_cameras(unit[:, view], native, settings.off_center, size)
            for view, lens in enumerate(lenses)
        ]
        # The circle makes a fisheye's field of view exact: without it the corners would see up to √2 times as much.
        cameras = [
            camera.limit_to_circle(size[0] / 2) if lens.kind == "fisheye" else camera
            for lens, camera in zip(lenses, cameras, strict=True)
        ]
        return rooms.make_sets(numbers, rank, views=views, size=size, cameras=cameras)

    def with_lenses(self, *lenses: LensRange) -> "LensedRooms":
        """Return the same rooms and walks through other lenses."""
        return replace(self, lenses=lenses)

    def _choose_lenses(self, step: int, rank: int, views: int) -> list[LensRange]:
        if self.lenses:
            return list(islice(cycle(self.lenses), views))
        kinds = (
            LensRange("pinhole", self.settings.fov_deg),
            LensRange("fisheye", self.settings.fisheye_deg),
            LensRange("panorama"),
        )
        random = np.random.default_rng((self.seed, LENS_STREAM, rank, step))
        return [kinds[index] for index in random.integers(len(kinds), size=views)]

    def _get_rooms(self) -> RoomsReconstruction:
        return RoomsReconstruction(self.settings, self.seed, self.patch, self.split)
