"""Write walks through textured scenes as scene folders: images, depth along rays, cameras, poses, covisibility.

Images are developed from linear light as photographs are: a random sky, one exposure for a walk, and gentle faults of a
camera for each view.
"""

import shutil
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Protocol, runtime_checkable
from uuid import uuid4

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, UInt8
from PIL import Image
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.formats.frames import camera_to_frame, pose_to_frame
from g_ray.formats.nerfstudio import DEPTH_CONVENTION, DEPTH_UNIT, read_nerfstudio, write_nerfstudio
from g_ray.geometry.pose import Pose
from g_ray.rays.ray_map import RayMap
from g_ray.runtime.parallel import run_in_processes
from g_ray_lab.meshes.mesh_files import linear_to_srgb_bytes
from g_ray_lab.sources.covisibility import compute_scene_covisibility
from g_ray_lab.sources.draws import hash_to_unit
from g_ray_lab.textured.walk import FreeSpace, LensKind, draw_cameras, draw_walk

PARTIAL = ".partial"
"""Folder below the root for scenes that are being written."""
QUALITY, SUBSAMPLING = 95, 0
ATTEMPTS = 12
"""Walks that are tried for one scene, each from another start."""
LARGEST_16_BIT = 65535


# Sky


WAVES = 5
"""Sine waves that make up the clouds."""
CLOUD_HEIGHT = 0.12
"""Sine of the elevation that is added before directions meet the plane of the clouds, which so ends at the horizon."""

# Linear light at horizon and zenith, after exposure.
CLEAR = (0.75, 0.85, 0.95), (0.12, 0.28, 0.65)
OVERCAST = (0.9, 0.92, 0.95), (0.5, 0.55, 0.6)
DUSK = (0.9, 0.5, 0.25), (0.12, 0.15, 0.3)
NIGHT = (0.02, 0.025, 0.04), (0.005, 0.006, 0.012)
KINDS, SHARES = (CLEAR, OVERCAST, DUSK, NIGHT), (0.5, 0.3, 0.1, 0.1)


@dataclass(frozen=True, eq=False)
class Sky:
    """A gradient from horizon to zenith with soft clouds; z is up."""

    horizon: Float[Tensor, "3"]
    zenith: Float[Tensor, "3"]
    cloud: Float[Tensor, "3"]
    cover: float
    """Where the clouds begin, in standard deviations of their pattern; a large number means no clouds."""
    waves: Float[Tensor, "wave 2"]
    phases: Float[Tensor, "wave"]

    def shine(self, directions: Float[Tensor, "*shape 3"]) -> Float[Tensor, "*shape 3"]:
        """Light from unit directions in the world; below the horizon as at the horizon."""
        up = directions[..., 2].clamp(0, 1)
        share = up.sqrt()[..., None]
        light = (1 - share) * self.horizon + share * self.zenith
        plane = directions[..., :2] / (up + CLOUD_HEIGHT)[..., None]
        pattern = torch.sin(plane @ self.waves.mT + self.phases).mean(-1) * (2 * WAVES) ** 0.5
        covered = torch.sigmoid(3 * (pattern - self.cover))[..., None] * (up / (up + CLOUD_HEIGHT))[..., None]
        return (1 - covered) * light + covered * self.cloud


def draw_sky(random: np.random.Generator) -> Sky:
    """Draw one of the kinds, in colors and brightness of its own."""
    kind = KINDS[int(random.choice(len(KINDS), p=SHARES))]
    colors = torch.tensor([*kind, kind[0]]) * torch.from_numpy(np.exp(0.1 * random.normal(size=(3, 3))))
    horizon, zenith, cloud = (colors * 1.3 ** random.normal()).float()
    return Sky(
        horizon,
        zenith,
        cloud,
        cover=random.uniform(-0.5, 2.5),
        waves=torch.from_numpy(random.normal(size=(WAVES, 2)) * 2).float(),
        phases=torch.from_numpy(random.uniform(0, 2 * np.pi, WAVES)).float(),
    )


# Exposure


KEY = 0.16
"""Linear light that the geometric mean of a walk is brought to: a middle gray."""
DARKEST = 1e-3
"""Share of the mean light below which pixels do not lower it further."""
WHITE = 6.0
"""Light, after exposure, that becomes white; brighter light is clipped."""
NEUTRALIZED = 0.5
"""How far the mean color of a walk is brought to gray."""


@dataclass(frozen=True)
class CameraFaults:
    """How far photographs differ from perfect ones, as standard deviations or largest values."""

    walk_stops: float = 0.35
    view_stops: float = 0.15
    white_balance: float = 0.04
    blur_px: float = 0.6
    blurred: float = 0.3
    """Share of the views that are blurred at all."""
    noise: float = 0.012
    """Largest deviation of the noise at middle gray, in [0, 1]; it grows with the root of the light."""


NO_FAULTS = CameraFaults(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def expose_views(
    light: Float[Tensor, "view h w 3"],
    sky: Float[Tensor, "view h w 3"],
    has_ray: Bool[Tensor, "view h w"],
    random: np.random.Generator,
    faults: CameraFaults,
) -> UInt8[Tensor, "view h w 3"]:
    """Develop the views of a walk together, so that they differ in brightness as one camera's would.

    `light` of surfaces is brought to a middle gray; that of the sky, which is given after exposure, is added.
    """
    gain = measure_gain(light[light.amax(-1) > 0]) * 2 ** (faults.walk_stops * random.normal())
    images = []
    for view in light * gain + sky:
        stops = faults.view_stops * random.normal()
        balance = torch.from_numpy(np.exp(faults.white_balance * random.normal(size=3))).float()
        image = _tone(_blur(view * balance * 2**stops, random, faults))
        # Photons are counted: the deviation goes with the root of the light.
        deviation = random.uniform(0, faults.noise) * (image / 0.18).sqrt()
        noise = torch.from_numpy(random.normal(size=tuple(image.shape))).float()
        images.append((image + deviation * 0.18 * noise).clamp(0, 1))
    bytes_ = linear_to_srgb_bytes((torch.stack(images) * has_ray[..., None]).numpy())
    return torch.from_numpy(bytes_)


def measure_gain(light: Float[Tensor, "pixel 3"]) -> Float[Tensor, "3"]:
    """Gain per channel that brings the geometric mean to KEY and its color part of the way to gray."""
    floor = DARKEST * light.mean().clamp(min=1e-9)
    mean = torch.exp(torch.log(light.clamp(min=float(floor))).mean(0))
    gray = mean.log().mean().exp()
    return KEY / gray * (gray / mean) ** NEUTRALIZED


def _tone(light: Tensor) -> Tensor:
    """Compress highlights: x (1 + x / w²) / (1 + x), which is linear in the dark and 1 at the white point w."""
    return (light * (1 + light / WHITE**2) / (1 + light)).clamp(0, 1)


def _blur(
    light: Float[Tensor, "h w 3"], random: np.random.Generator, faults: CameraFaults
) -> Float[Tensor, "h w 3"]:
    sigma = random.uniform(0.2, max(0.2, faults.blur_px))
    if random.random() >= faults.blurred:
        return light
    place = torch.arange(-2, 3).float()
    weights = torch.exp(-(place**2) / (2 * sigma**2))
    weights = (weights / weights.sum()).expand(3, 1, 1, 5)
    planes = F.pad(light.movedim(-1, 0)[None], (2, 2, 2, 2), mode="replicate")
    smooth = F.conv2d(F.conv2d(planes, weights, groups=3), weights.mT, groups=3)
    return smooth[0].movedim(0, -1)


# Walks


@runtime_checkable
class SceneSource(Protocol):
    """A scene by its name; picklable, and opened in the process that renders it."""

    @property
    def name(self) -> str: ...

    def open(self) -> FreeSpace: ...


@dataclass(frozen=True)
class WalkSettings:
    """All that decides the images of a data set, apart from the scenes. Kept in dataset.json."""

    source: str
    split: str
    lenses: LensKind
    views: int = 12
    sizes: tuple[tuple[int, int], ...] = ((168, 168), (168, 126), (126, 168))
    """Width and height; one of them for each scene."""
    faults: bool = True
    """Noise, blur and differences in exposure."""
    seed: int = 0
    version: int = 1  # raised when the same settings give other images

    def __post_init__(self) -> None:
        if self.views < 2 or self.seed < 0 or not self.sizes:
            raise ValueError(
                f"views {self.views}, seed {self.seed}, {len(self.sizes)} sizes: give at least 2 views and one size, "
                "and a seed of 0 or more"
            )
        if any(not 16 <= side <= 4096 for size in self.sizes for side in size):
            raise ValueError(f"sizes {self.sizes}: give 16 to 4096 px")


@dataclass(frozen=True)
class WalkJob:
    """One walk: the scene folder that it becomes."""

    number: int
    source: SceneSource

    @property
    def name(self) -> str:
        return f"{self.source.name}-{self.number:05d}"


@dataclass(frozen=True)
class WalkOutcome:
    name: str
    refused: str | None = None  # why there is no such scene


def list_walks(sources: Sequence[SceneSource], scenes: int) -> list[WalkJob]:
    """Spread walks over the sources evenly; more scenes only add to fewer."""
    if scenes < 1 or not sources:
        raise ValueError(f"{scenes} scenes of {len(sources)} sources: give at least one of each")
    # In an order that has nothing to do with names, so that a few walks see as many kinds of scenes as possible.
    sources = sorted(sources, key=lambda source: hash_to_unit(source.name))
    return [WalkJob(number, sources[number % len(sources)]) for number in range(scenes)]


def find_unfinished_walks(root: Path, jobs: Sequence[WalkJob]) -> list[WalkJob]:
    return [job for job in jobs if not (root / job.name).is_dir()]


def write_walks(
    root: Path, jobs: Sequence[WalkJob], settings: WalkSettings, workers: int = 1
) -> Generator[WalkOutcome]:
    """Write what is not there yet, in `workers` processes; yield an outcome as each scene is done, in any order."""
    groups: dict[str, list[WalkJob]] = {}
    for job in find_unfinished_walks(root, jobs):
        groups.setdefault(job.source.name, []).append(job)
    write = partial(_write_group, root, settings=settings)
    for outcomes in run_in_processes(write, list(groups.values()), workers, lambda group: group[0].name):
        yield from outcomes


def _write_group(root: Path, jobs: list[WalkJob], settings: WalkSettings) -> list[WalkOutcome]:
    """Write walks through one scene, which is opened once."""
    return [write_walk(root, job, settings) for job in jobs]


def write_walk(root: Path, job: WalkJob, settings: WalkSettings) -> WalkOutcome:
    """Draw one walk, render it and write its folder atomically: into a hidden one, which is then renamed."""
    try:
        space = _open_source(job.source)
    except ValueError as error:
        return WalkOutcome(job.name, str(error))
    random = np.random.default_rng((settings.seed, job.number))
    width, height = settings.sizes[int(random.integers(len(settings.sizes)))]
    for _ in range(ATTEMPTS):
        cameras = draw_cameras(settings.lenses, random, settings.views, width, height)
        poses = draw_walk(space, cameras, random)
        if poses is not None:
            break
    else:
        return WalkOutcome(job.name, f"{job.name}: {ATTEMPTS} walks got stuck; the scene has too little room")
    scratch = root / PARTIAL / f"{job.name}.{uuid4().hex[:8]}"
    try:
        _write_scene(scratch, space, cameras, poses, random, CameraFaults() if settings.faults else NO_FAULTS)
        scratch.rename(root / job.name)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return WalkOutcome(job.name)


@lru_cache(maxsize=1)
def _open_source(source: SceneSource) -> FreeSpace:
    return source.open()


def _write_scene(
    folder: Path,
    space: FreeSpace,
    cameras: Sequence[Camera],
    poses: Sequence[Pose],
    random: np.random.Generator,
    faults: CameraFaults,
) -> None:
    surfaces = [space.scene.view(camera, pose) for camera, pose in zip(cameras, poses, strict=True)]
    rays = [RayMap.from_camera(c).to_world(p.to(c.dtype)) for c, p in zip(cameras, poses, strict=True)]
    sky = draw_sky(random)
    sky_light = [
        view.sky[..., None] * sky.shine(ray.directions) for view, ray in zip(surfaces, rays, strict=True)
    ]
    light, has_ray = torch.stack([view.light for view in surfaces]), torch.stack([ray.valid for ray in rays])
    images = expose_views(light, torch.stack(sky_light), has_ray, random, faults)
    unit = _choose_unit(torch.stack([view.ray_depth for view in surfaces]))
    for part in ("images", "depth", "covisibility/v0"):
        (folder / part).mkdir(parents=True)
    frames = []
    for number, (camera, pose) in enumerate(zip(cameras, poses, strict=True)):
        names = {"file_path": f"images/{number:03d}.jpg", "depth_file_path": f"depth/{number:03d}.png"}
        image = Image.fromarray(images[number].numpy())
        image.save(folder / names["file_path"], quality=QUALITY, subsampling=SUBSAMPLING)
        steps = (surfaces[number].ray_depth / unit).round().clamp(0, LARGEST_16_BIT)
        Image.fromarray(steps.numpy().astype(np.uint16)).save(folder / names["depth_file_path"])
        frames.append({**names, **camera_to_frame(camera), **pose_to_frame(pose)})
    write_nerfstudio(folder, frames, **{DEPTH_UNIT: unit, DEPTH_CONVENTION: "ray"})
    matrix = compute_scene_covisibility(read_nerfstudio(folder, check=False))
    np.save(folder / f"covisibility/v0/pairwise_covisibility--{len(cameras)}x{len(cameras)}.npy", matrix)


def _choose_unit(depth: Float[Tensor, "view h w"]) -> float:
    """Meters per step of the 16-bit depth files: all of a scene's depths fit."""
    return float(np.ceil(float(depth.max()) / LARGEST_16_BIT * 1e6) / 1e6)
