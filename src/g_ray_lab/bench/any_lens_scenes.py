"""Scenes of the benchmark `any-lens`: rooms, and groups of objects, each seen by five cameras through any lenses.

Everything follows from a seed by integers and float64, and is rounded to bytes and tenths of millimeters at the end, so
that processors and versions that round the last digit differently give the same files; `hash_set` tells.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor

from g_ray.cameras import (
    EUCM,
    FOV,
    UCM,
    Camera,
    Division,
    DoubleSphere,
    Equirectangular,
    OpenCV,
    OpenCVFisheye,
    Pinhole,
)
from g_ray.demo.room import Room, make_random_room
from g_ray.formats.cameras_json import write_cameras
from g_ray.geometry.pose import Pose
from g_ray.media.view import View
from g_ray.runtime.files import write_json
from g_ray_lab.textured import (
    SOLIDS,
    TEXTURE_PX,
    TEXTURES,
    StereoRoom,
    Surfaces,
    look_at,
    measure_distances,
    scatter_solids,
)

SEED = 26
SIDE, VIEWS = 192, 5
LENSES: dict[str, tuple[type[Camera], float, dict[str, float]]] = {
    "pinhole 25°": (Pinhole, 25, {}),
    "pinhole 70°": (Pinhole, 70, {}),
    "OpenCV, barrel, 95°": (OpenCV, 95, {"k1": -0.12, "k2": 0.01, "p1": 0.001}),
    "division 110°": (Division, 110, {"k": -0.25}),
    "fisheye 120°": (OpenCVFisheye, 120, {"k1": 0.02, "k2": -0.004}),
    "FOV 130°": (FOV, 130, {"omega": 0.9}),
    "UCM 150°": (UCM, 150, {"alpha": 0.6}),
    "EUCM 165°": (EUCM, 165, {"alpha": 0.62, "beta": 1.05}),
    "fisheye 180°": (OpenCVFisheye, 180, {"k1": -0.02, "k2": 0.002}),
    "double sphere 195°": (DoubleSphere, 195, {"xi": -0.2, "alpha": 0.6}),
    "fisheye 220°": (OpenCVFisheye, 220, {"k1": 0.01, "k2": -0.002}),
    "panorama 360°": (Equirectangular, 360, {}),
}
"""Camera, field of view along the width in degrees, and the parameters that give the lens its shape."""
ROUND_DEG = 150
"""From here on the image is a circle."""
MIXTURE = (0, 1, 3, 6, 8)
"""A mixed set has the lenses at these distances from its first one, in the order of LENSES."""
KINDS = ("room", "objects")
UNIT_M = 1e-4
RANGE = (0.8, 1.25)
"""Ends of the range that methods are given, as multiples of the 1 % and 99 % quantiles of the distances."""
OCTAVES = 6
NOISE = 12
"""Largest noise, in 1/1020 of full scale."""

Data = TypeVar("Data")


@dataclass(frozen=True, eq=False)
class AnyLensSet:
    """Photographs of a scene, what methods are told, and the truth."""

    name: str
    lenses: Sequence[str]
    views: Sequence[View]
    """With image, camera and pose; `depth` is the true distance along the rays, 0 where there is no ray."""
    near: float
    far: float

    @property
    def is_mixed(self) -> bool:
        return len(set(self.lenses)) > 1


@dataclass(frozen=True)
class Plan:
    """What a set shows and through which lenses, before it is rendered."""

    number: int
    kind: str
    lenses: Sequence[str]

    @property
    def name(self) -> str:
        return f"{self.number:02d}-{self.kind}"


def list_plans() -> list[Plan]:
    """List the sets: for each lens one that has no other, and one that mixes it with four others."""
    names = list(LENSES)
    pairs = [(number, steps) for number in range(len(names)) for steps in ((0,) * VIEWS, MIXTURE)]
    return [
        Plan(index, KINDS[(index + index // 2) % 2], [names[(number + step) % len(names)] for step in steps])
        for index, (number, steps) in enumerate(pairs)
    ]


def hash_set(one: AnyLensSet) -> str:
    """Return a digest of all photographs, poses and distances."""
    digest = hashlib.sha256()
    for view in one.views:
        digest.update((view.load_image() * 255).round().byte().numpy().tobytes())
        digest.update((view.load_ray_depth() / UNIT_M).round().int().numpy().tobytes())
        digest.update(view.get_pose().world_from_cam.float().numpy().tobytes())
    return digest.hexdigest()[:16]


def export_set(one: AnyLensSet, folder: Path) -> None:
    """Write the photographs, cameras with poses, and the range of a set, without the truth."""
    place = folder / one.name
    place.mkdir(parents=True, exist_ok=True)
    for view in one.views:
        pixels = (view.load_image() * 255).round().byte().permute(1, 2, 0)
        Image.fromarray(pixels.numpy()).save(place / view.name)
    write_cameras(place / "cameras.json", one.views)
    write_json(place / "range.json", {"near": one.near, "far": one.far})


def make_lens(name: str) -> Camera:
    """Make a lens whose field of view fills the width of the image."""
    kind, degrees, shape = LENSES[name]
    if kind is Equirectangular:
        focal = SIDE / (2 * math.pi)
        frame = {"fx": focal, "fy": focal, "cx": SIDE / 2, "cy": SIDE / 4}
        return kind.make(SIDE, SIDE // 2, **frame, dtype=torch.float64)
    half = math.radians(degrees / 2)
    unit = kind.make(1, 1, fx=1.0, fy=1.0, cx=0.0, cy=0.0, **shape, dtype=torch.float64)
    edge = unit.project(torch.tensor([math.sin(half), 0.0, math.cos(half)], dtype=torch.float64))[0]
    focal = SIDE / 2 / float(edge[0])
    frame = {"fx": focal, "fy": focal, "cx": SIDE / 2, "cy": SIDE / 2}
    camera = kind.make(SIDE, SIDE, **frame, **shape, dtype=torch.float64)
    return camera.limit_to_circle(SIDE / 2) if degrees >= ROUND_DEG else camera


# Rooms


def render_set(plan: Plan) -> AnyLensSet:
    """Draw the room of a set, place its cameras, and take the photographs."""
    random = np.random.default_rng((SEED, plan.number))
    room = scatter_solids(make_random_room(int(random.integers(2**62)), SOLIDS), random)
    if plan.kind == "objects":
        room = _gather_solids(room, random)
    room, cameras = _widen(room), [make_lens(lens) for lens in plan.lenses]
    poses = _place_cameras(room, cameras, plan.kind, random)
    scene = StereoRoom(room, _widen(Surfaces.draw(random)), cameras, poses, (SEED, plan.number))
    textures = _draw_textures(random)
    views = []
    for index, (camera, pose) in enumerate(zip(cameras, poses, strict=True)):
        image = _expose(scene.render_colors(camera, pose, textures), random)
        depth = ((scene.cast(camera, pose)[2] / UNIT_M).round() * UNIT_M).float()
        views.append(View(f"{index}.png", camera, pose, "rendered", image.float() / 255, depth=depth))
    distances = torch.cat([view.load_ray_depth().flatten() for view in views])
    low, high = distances[distances > 0].double().quantile(torch.tensor([0.01, 0.99]).double()).tolist()
    return AnyLensSet(plan.name, plan.lenses, views, round(RANGE[0] * low, 2), round(RANGE[1] * high, 2))


def _widen(data: Data) -> Data:
    """Return a dataclass with all its numbers in float64."""
    changed: dict[str, Any] = {}
    for field in fields(data):  # pyright: ignore[reportArgumentType]
        value = getattr(data, field.name)
        if isinstance(value, Tensor) and value.is_floating_point():
            changed[field.name] = value.double()
        elif hasattr(value, "__dataclass_fields__"):
            changed[field.name] = _widen(value)
    return replace(data, **changed)  # pyright: ignore[reportArgumentType]


def _gather_solids(room: Room, random: np.random.Generator) -> Room:
    """Return the room with all solids near its middle."""
    center = room.solids.center.clone()
    center[1:] = torch.from_numpy(random.uniform(-0.6, 0.6, (SOLIDS, 3))).float()
    return replace(room, solids=replace(room.solids, center=center))


def _place_cameras(
    room: Room, cameras: Sequence[Camera], kind: str, random: np.random.Generator
) -> list[Pose]:
    """Place cameras next to each other, in a room with a common direction, around objects facing them."""
    half = room.half_size.numpy()
    while True:
        turn = random.uniform(0, 2 * math.pi)
        ahead = np.array([math.sin(turn), random.uniform(-0.2, 0.2), math.cos(turn)])
        side = np.array([math.cos(turn), 0.0, -math.sin(turn)])
        eye = random.uniform(-0.5, 0.5, 3) * half if kind == "room" else -2.1 * ahead
        poses = []
        for index in range(len(cameras)):
            across, up = (index - 2) * random.uniform(0.1, 0.25), random.uniform(-0.2, 0.2)
            place = eye + across * side + up * np.array([0.0, 1.0, 0.0]) + random.uniform(-0.15, 0.15) * ahead
            target = eye + 2.1 * ahead + random.uniform(-0.2, 0.2, 3)
            poses.append(look_at(place, target, random.uniform(-0.2, 0.2)).to(torch.float64))
        inside = all((pose.translation.abs().numpy() < 0.95 * half).all() for pose in poses)
        nearest = [measure_distances(room, camera, pose) for camera, pose in zip(cameras, poses, strict=True)]
        if inside and min(float(distance.min()) for distance in nearest) > 0.3:
            return poses


def _draw_textures(random: np.random.Generator) -> Float[Tensor, "texel 3"]:
    """Draw blotches of several sizes in any colors, some in flat patches, a third with little contrast."""
    textures = []
    for _ in range(TEXTURES):
        total = torch.zeros(3, TEXTURE_PX, TEXTURE_PX, dtype=torch.float64)
        smooth = int(random.integers(1, 4))
        for octave in range(OCTAVES):
            grid = torch.from_numpy(random.integers(256, size=(1, 3, 4 << octave, 4 << octave))).double()
            layer = F.interpolate(grid, size=(TEXTURE_PX, TEXTURE_PX), mode="bilinear", align_corners=False)
            total += layer[0] / 2 ** (octave * smooth / 2)
        total = (total - total.amin()) / (total.amax() - total.amin())
        if random.random() < 0.3:
            total = (total * 5).floor() / 5
        contrast = random.uniform(0.05, 0.3) if random.random() < 0.33 else random.uniform(0.6, 1.0)
        textures.append((total * contrast + random.uniform(0, 1 - contrast)).flatten(1).mT)
    return (torch.cat(textures).clamp(0.02, 0.98) * 255).round() / 255


def _expose(linear: Float[Tensor, "3 h w"], random: np.random.Generator) -> UInt8[Tensor, "3 h w"]:
    """Make a photograph of 8 bits with its own exposure and noise."""
    noise = torch.from_numpy(random.integers(-NOISE, NOISE, size=(4, *linear.shape)).sum(0))
    image = linear * random.uniform(0.6, 1.1) + noise * (random.uniform(0, 1) / 1020)
    return (image.clamp(0, 1) * 255).round().byte()
