"""Novel-view synthesis from an arc around the middle of a scene: rooms, and what scanned objects share with them.

A scene is a function of (seed, split, rank, number): `make_batch(step)` holds numbers step · batch and following, for
any batch size.
"""

import contextlib
import hashlib
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from g_ray.cameras.pinhole import Pinhole
from g_ray.demo.room import Room, make_random_room
from g_ray.geometry.pose import Pose
from g_ray.rays.views import Views
from g_ray.runtime.files import atomic_path
from g_ray_lab.sources.batches import NVSBatch, NVSSource, compute_zoom_factors
from g_ray_lab.sources.draws import HELD_OUT, SPLITS, check_draws, check_split
from g_ray_lab.sources.nvs_settings import ArcData, RoomsData

VERSION = 1
"""Version of the pictures: rooms that look otherwise get another number, and cached pictures of the old ones are not
used."""

NOT_PICTURED = ("batch", "cache", "distinct", "pose_frame")
"""Settings that no picture depends on."""


@dataclass(frozen=True)
class ArcNVS(NVSSource):
    """Views that are rendered on demand, through the zoomed cameras themselves.

    Cameras stand on an arc around the middle of the scene: contexts at its ends (further ones in between), targets
    between them. Poses are in meters, relative to the first context or to the scene.
    """

    NAME: ClassVar[str]
    """What a scene is called in messages."""
    AIM_M: ClassVar[tuple[float, float, float] | None]
    """Half extent of the box around the middle from which the point that all cameras look at is drawn; None does not
    draw it."""
    LEVEL_M: ClassVar[float]
    """Mean height of the points that cameras look at; y is down."""

    settings: ArcData
    seed: int = 0
    split: str = "train"
    zooms: tuple[float, ...] | None = None
    """A zoom for every view, for tests; None draws them up to `settings.zoom_max`."""
    fov_px: int | None = None
    """Pixels that the drawn field of view spans, for tests; None is the width. The height keeps the vertical field of
    view of square images when images become wider."""

    def __post_init__(self) -> None:
        settings = self.settings
        check_split(self.split)
        names = ("batch", "contexts", "targets", "antialias")
        check_draws(self.seed, **{name: getattr(settings, name) for name in names})
        if not 0 < settings.fov_deg[0] <= settings.fov_deg[1] < 180:
            raise ValueError(f"fields of view {settings.fov_deg} must be a range between 0° and 180°")
        if settings.distinct is not None and (settings.distinct < 1 or settings.distinct % settings.batch):
            raise ValueError(
                f"{settings.distinct} distinct scenes in batches of {settings.batch}: give a multiple of the batch"
            )
        if self.fov_px is not None and self.fov_px < 1:
            raise ValueError(f"a field of view that spans {self.fov_px} px: give a positive number")
        compute_zoom_factors(torch.zeros(1), settings.zoom_max)
        count = settings.contexts + settings.targets
        if self.zooms is not None and (len(self.zooms) != count or not all(zoom >= 1 for zoom in self.zooms)):
            raise ValueError(
                f"zooms {self.zooms}: give a number of at least 1 for each of "
                f"{settings.contexts} contexts and {settings.targets} targets"
            )

    @abstractmethod
    def render(
        self, draws: "Sequence[ArcDraws]", camera: Pinhole, poses: Pose
    ) -> UInt8[np.ndarray, "scene view 3 h w"]:
        """Render the views of scenes; poses are in their own frames."""

    def make_batch(self, step: int, rank: int = 0) -> NVSBatch:
        batch, distinct = self.settings.batch, self.settings.distinct
        if distinct is not None:
            step %= distinct // batch
        return self.make_scenes(range(step * batch, (step + 1) * batch), rank)

    def make_held_out(self) -> NVSBatch:
        return self.make_batch(0, HELD_OUT)

    def make_scenes(self, numbers: range, rank: int = 0) -> NVSBatch:
        """Make a range of the stream, e.g. the first 256 scenes of the test split."""
        draws = [ArcDraws(self, number, rank) for number in numbers]
        poses = Pose.look_at(
            torch.stack([draw.eyes for draw in draws]), torch.stack([draw.aims for draw in draws])
        )
        camera = self._make_cameras(
            torch.stack([draw.fov_rad for draw in draws]), torch.stack([draw.zoom_unit for draw in draws])
        )
        rgb = torch.from_numpy(self._load_or_render(draws, camera, poses, numbers, rank)).float() / 255
        world = poses.relative_to_first() if self.settings.pose_frame == "first_context" else poses
        views = Views([camera[:, view] for view in range(rgb.shape[1])], world.to(torch.float32))
        names = tuple(f"{self.NAME} {number} of rank {rank}" for number in numbers)
        return NVSBatch.split(rgb, views, self.settings.contexts, names)

    def _load_or_render(
        self, draws: "Sequence[ArcDraws]", camera: Pinhole, poses: Pose, numbers: range, rank: int
    ) -> UInt8[np.ndarray, "scene view 3 h w"]:
        """Return pictures in 8 bits, as cameras store them, so that cached and rendered ones are equal."""
        if self.settings.cache is None:
            return self.render(draws, camera, poses)
        folder = self.settings.cache / self._compute_digest() / f"rank{rank}"
        path = folder / f"{numbers.start}-{numbers.stop}.npy"
        with contextlib.suppress(FileNotFoundError, ValueError, EOFError):  # missing or damaged: render it
            return np.load(path, allow_pickle=False)
        pictures = self.render(draws, camera, poses)
        with atomic_path(path) as scratch:
            np.save(scratch, pictures, allow_pickle=False)
        return pictures

    def _compute_digest(self) -> str:
        """Hash everything that determines a picture; `VERSION` stands for the code that renders."""
        decisive = {**vars(self.settings), "seed": self.seed, "split": self.split}
        settings = {name: value for name, value in decisive.items() if name not in NOT_PICTURED}
        # Absent otherwise, so that pictures cached before these existed are used.
        for name in ("zooms", "fov_px"):
            if (value := getattr(self, name)) is not None:
                settings[name] = value
        return hashlib.sha256(f"{VERSION} {sorted(settings.items())}".encode()).hexdigest()[:16]

    def with_zoom(self, zoom_max: float) -> "ArcNVS":
        """Return the same scenes and poses with zooms up to `zoom_max`."""
        return replace(self, settings=replace(self.settings, zoom_max=zoom_max))

    def _make_cameras(self, fov_rad: Float[Tensor, "batch"], unit: Float[Tensor, "batch view"]) -> Pinhole:
        native = (self.fov_px or self.settings.width) / 2 / torch.tan(fov_rad / 2)
        drawn = compute_zoom_factors(unit, self.settings.zoom_max)
        zooms = drawn if self.zooms is None else drawn.new_tensor(self.zooms).expand_as(drawn)
        focal = (native[:, None] * zooms).to(torch.float32)
        width, height = self.settings.width, self.settings.height
        return Pinhole.make(width, height, fx=focal, fy=focal, cx=width / 2, cy=height / 2)


class ArcDraws:
    """All random numbers of one scene, in an order that no setting changes but the number of views.

    `content` is the number that stands for the scene itself. Cameras (`eyes`) are above all furniture and inside every
    room, so that none is in a wall, and at least 1.1 m from the middle; `aims` are the points they look at.
    """

    def __init__(self, source: ArcNVS, number: int, rank: int) -> None:
        settings, self.rank = source.settings, rank
        random = np.random.default_rng((source.seed, SPLITS.index(source.split), rank, number))
        count = settings.contexts + settings.targets
        self.content = int(random.integers(2**62))
        self.fov_rad = torch.tensor(np.deg2rad(random.uniform(*settings.fov_deg)))
        self.zoom_unit = torch.from_numpy(random.random(count))
        arc = np.deg2rad(random.uniform(*settings.arc_deg)) * random.choice([-1, 1])
        start = random.uniform(0, 2 * np.pi)
        # Places on the arc: contexts at 0 and 1 and between, targets between.
        along = random.uniform(0.2, 0.8, count)
        along[0] = 0.0
        along[settings.contexts - 1] = 1.0 if settings.contexts > 1 else 0.0
        angle = start + arc * along
        radius = random.uniform(1.3, 2.0) + random.uniform(-0.2, 0.2, count)
        height = random.uniform(-0.5, -0.1) + random.uniform(-0.1, 0.1, count)
        self.eyes = torch.from_numpy(np.stack([radius * np.sin(angle), height, radius * np.cos(angle)], -1))
        middle = np.zeros(3) if source.AIM_M is None else random.uniform(-1, 1, 3) * source.AIM_M
        aims = middle + random.uniform(-0.15, 0.15, (count, 3))
        aims[:, 1] += source.LEVEL_M
        self.aims = torch.from_numpy(aims)


@dataclass(frozen=True)
class RoomsNVS(ArcNVS):
    """Views around the furniture of procedural rooms, whose seed is `content`.

    Cameras look at about their own height: a zoomed view shows what a wide one shows, and not the furniture on the
    floor alone.
    """

    NAME, AIM_M, LEVEL_M = "room", (1.0, 0.5, 1.0), -0.2

    settings: RoomsData

    def render(
        self, draws: Sequence[ArcDraws], camera: Pinhole, poses: Pose
    ) -> UInt8[np.ndarray, "scene view 3 h w"]:
        rooms = Room.stack(
            [make_random_room(draw.content, self.settings.solids, coarse=True) for draw in draws]
        )
        rgb = rooms.render(camera, poses.to(torch.float32), self.settings.antialias).rgb.movedim(-1, -3)
        return (255 * rgb).round().to(torch.uint8).contiguous().numpy()
