"""Rooms full of textured solids, seen by a few cameras with any lenses that stand close together: data for stereo.

The geometry is that of `g_ray.demo.room`, cast exactly; solids lie, lean and float at any angle, surfaces carry two
layers of drawn materials, a third of them with hardly any contrast, and some shine. Some rooms have no ceiling and lack
walls: there the sky is seen, at an infinite distance. Exposure, sharpness and noise differ from view to view.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, UInt8
from PIL import Image
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.equirectangular import Equirectangular
from g_ray.demo.room import FACES, Room, Solids, make_random_room
from g_ray.geometry.pose import Pose
from g_ray.runtime.files import atomic_path
from g_ray_lab.sources.random_lenses import draw_fisheye_coefficients, make_fisheyes, make_pinholes
from g_ray_lab.textured import patterns
from g_ray_lab.textured.walk_writer import Sky, draw_sky

Random = np.random.Generator

SOLIDS = 14
TEXTURE_PX = 256
TEXTURES, ROOMS_PER_POOL = 48, 25
"""Textures that so many rooms in a row share: drawing them takes longer than rendering a room."""
PICTURES = 0.5
"""Share of textures that are parts of images, where a folder of them is given."""
WEAK, WEAK_CONTRAST = 0.35, (0.02, 0.35)
"""Share of textures with little contrast, and how much of it they keep."""
LAYERS_M = ((0.5, 4.0), (0.15, 0.8))
"""Width of one repetition of the two layers of texture."""
BASELINE = (0.03, 0.3)
"""Distance of a source from the first view, in median depths of the latter."""
LENSES = {"narrow": 0.22, "pinhole": 0.28, "fisheye": 0.4, "panorama": 0.1}
"""Share of scenes by the kind of the first lens."""
FOV_DEG = {"narrow": (18.0, 42.0), "pinhole": (40.0, 100.0), "fisheye": (100.0, 220.0)}
SAME_LENS = 0.55
"""Share of scenes all of whose views have one lens."""
CEILING, FLOOR = 2, 3
MISSING_WALLS, MOST_SKY = 0.6, 0.6
"""Share of the walls that an open room lacks, and largest share of a view that may be sky."""
MIN_CLEARANCE_M = 0.25
TRIES = 30
SHARPER = 2
"""Rays per pixel and axis."""


@dataclass(frozen=True, eq=False)
class StereoPictures:
    """Photographs of a scene and the exact distance along the ray of every pixel."""

    images: UInt8[Tensor, "view 3 h w"]
    ray_depth: Float[Tensor, "view h w"]  # 0 where there is no ray, infinite where there is sky

    def save(self, path: Path) -> None:
        with atomic_path(path) as scratch, scratch.open("wb") as file:
            np.savez(file, images=self.images.numpy(), ray_depth=self.ray_depth.half().numpy())

    @staticmethod
    def load(path: Path) -> "StereoPictures":
        with np.load(path, allow_pickle=False) as stored:
            images, depth = torch.from_numpy(stored["images"]), torch.from_numpy(stored["ray_depth"])
        return StereoPictures(images, depth.float())


@dataclass(frozen=True, eq=False)
class StereoRoom:
    """A room with cameras; everything is a function of its seed."""

    room: Room
    surfaces: "Surfaces"
    cameras: Sequence[Camera]
    poses: Sequence[Pose]
    seed: tuple[int, ...]
    opening: "OpenSky | None" = None

    @staticmethod
    def draw(
        seed: tuple[int, ...],
        views: int,
        side: int,
        lenses: Sequence[str] = tuple(LENSES),
        open_share: float = 0.0,
    ) -> "StereoRoom":
        """Draw the room `seed[-1]` of a stream; `lenses` are the kinds that its views may have.

        `open_share` of the rooms are open to the sky, but for those in which a view would hardly see anything else.
        """
        random = np.random.default_rng(seed)
        room = scatter_solids(make_random_room(int(random.integers(2**62)), SOLIDS), random)
        surfaces = Surfaces.draw(random)
        cameras, poses = _draw_views(room, random, views, side, lenses)
        closed = StereoRoom(room, surfaces, cameras, poses, seed)
        random = np.random.default_rng((*seed, 4))
        if random.random() >= open_share:
            return closed
        opened = replace(closed, opening=OpenSky.draw(random))
        coarse = [
            opened.cast(camera.resize(16, 16), pose)[2] for camera, pose in zip(cameras, poses, strict=True)
        ]
        return opened if all(float(part.isinf().float().mean()) < MOST_SKY for part in coarse) else closed

    @property
    def pool(self) -> tuple[int, ...]:
        """Seed of the textures."""
        return *self.seed[:-1], self.seed[-1] // ROOMS_PER_POOL

    def render(self, textures: Float[Tensor, "texel 3"]) -> StereoPictures:
        """Take all photographs, each with its own exposure, sharpness and noise; `textures` are those of its pool."""
        random = np.random.default_rng((*self.seed, 1))
        gain = random.uniform(0.45, 1.1)
        views = list(zip(self.cameras, self.poses, strict=True))
        images = [
            _develop(self.render_colors(camera, pose, textures), random, gain) for camera, pose in views
        ]
        depth = [self.cast(camera, pose)[2] for camera, pose in views]
        return StereoPictures(torch.stack(images), torch.stack(depth))

    def render_colors(self, camera: Camera, pose: Pose, textures: Tensor) -> Float[Tensor, "3 h w"]:
        """Render sRGB colors, averaged over SHARPER² rays per pixel."""
        fine = camera.resize(SHARPER * camera.width, SHARPER * camera.height)
        points, solid, depth = self.cast(fine, pose)
        colors = self.surfaces.paint(textures, self.room, points, solid, pose.translation)
        if self.opening is not None:
            sky = self.opening.shine(points - pose.translation)
            colors = torch.where(depth.isinf().reshape(-1, 1), sky, colors)
        visible = colors * (depth > 0).reshape(-1, 1)
        return F.avg_pool2d(visible.mT.reshape(1, 3, fine.height, fine.width), SHARPER)[0]

    def cast(self, camera: Camera, pose: Pose) -> tuple[Tensor, Tensor, Float[Tensor, "h w"]]:
        """Points, solids and distances of all pixels; the distance is 0 where there is no ray, infinite to the sky."""
        rays, valid = camera.unproject_grid()
        directions = rays.reshape(-1, 3) @ pose.rotation.mT
        origin = pose.translation[None]
        distance, solid = self.room.cast(origin, directions)
        points = origin + distance[:, None] * directions
        if self.opening is not None:
            surface = self.room.compute_normals(points, solid)[1]
            distance = torch.where(self.opening.lacks(surface), torch.inf, distance)
        return points, solid, torch.where(valid, distance.reshape(valid.shape), 0.0)


@dataclass(frozen=True, eq=False)
class OpenSky:
    """The faces that a room lacks, and the sky that is seen instead."""

    faces: Bool[Tensor, "face"]
    sky: Sky

    @staticmethod
    def draw(random: Random) -> "OpenSky":
        faces = torch.from_numpy(random.random(FACES) < MISSING_WALLS)
        faces[CEILING], faces[FLOOR] = True, False
        return OpenSky(faces, draw_sky(random))

    def lacks(self, surface: Int[Tensor, "ray"]) -> Bool[Tensor, "ray"]:
        return (surface < FACES) & self.faces[surface.clamp_max(FACES - 1)]

    def shine(self, directions: Float[Tensor, "ray 3"]) -> Float[Tensor, "ray 3"]:
        """Return sRGB colors of the sky; rooms have their y axis down, skies their z axis up."""
        x, y, z = F.normalize(directions, dim=-1).unbind(-1)
        return self.sky.shine(torch.stack([x, z, -y], -1)).clamp(0, 1) ** (1 / 2.2)


def _develop(linear: Float[Tensor, "3 h w"], random: Random, gain: float) -> UInt8[Tensor, "3 h w"]:
    """Make a photograph of 8 bits: soft now and then, with its own exposure, white balance, contrast and noise."""
    image = linear
    if random.random() < 0.3:
        image = F.avg_pool2d(F.pad(image[None], (1,) * 4, mode="replicate"), 3, 1)[0]
    balance = torch.from_numpy(np.exp(random.normal(0, 0.03, (3, 1, 1)))).float()
    image = (image * balance * (gain * math.exp(random.normal(0, 0.12)))).clamp(0, 1)
    image = image ** math.exp(random.normal(0, 0.1))
    noise = torch.from_numpy(random.standard_normal(tuple(image.shape), np.float32)) * random.uniform(
        0, 0.025
    )
    return ((image + noise).clamp(0, 1) * 255).round().byte()


# Surfaces


@dataclass(frozen=True, eq=False)
class Surfaces:
    """Two layers of texture for each surface: six faces of the room, then one per solid."""

    index: Tensor  # [layer, surface]
    meters: Float[Tensor, "layer surface"]
    shift: Float[Tensor, "layer surface 2"]
    detail: Float[Tensor, "surface"]
    """How much of the second layer is added."""
    gloss: Bool[Tensor, "surface"]

    @staticmethod
    def draw(random: Random) -> "Surfaces":
        count = FACES + SOLIDS
        meters = [np.exp(random.uniform(np.log(low), np.log(high), count)) for low, high in LAYERS_M]
        return Surfaces(
            torch.from_numpy(random.integers(TEXTURES, size=(2, count))),
            torch.from_numpy(np.stack(meters)).float(),
            torch.from_numpy(random.uniform(0, 2, (2, count, 2))).float(),
            torch.from_numpy(random.uniform(0, 0.6, count)).float(),
            torch.from_numpy(random.random(count) < 0.35),
        )

    def paint(
        self, textures: Tensor, room: Room, points: Tensor, solid: Tensor, eye: Tensor
    ) -> Float[Tensor, "ray 3"]:
        """Return sRGB colors; highlights move with the viewer."""
        normal, surface = room.compute_normals(points, solid)
        axis = normal.abs().argmax(-1)
        across = torch.where(axis == 0, points[:, 1], points[:, 0])
        along = torch.where(axis == 2, points[:, 1], points[:, 2])
        place = torch.stack([across, along], -1)
        base, detail = (self._look_up(textures, layer, place, surface) for layer in (0, 1))
        albedo = (base + self.detail[surface][:, None] * (detail - detail.mean())).clamp(0.01, 1)
        light = room._compute_light(points, normal)[:, None]
        halfway = F.normalize(eye - points, dim=-1) + F.normalize(room.lamps.mean(-2) - points, dim=-1)
        shine = (F.normalize(halfway, dim=-1) * normal).sum(-1).clamp(0, 1) ** 30 * self.gloss[surface]
        return (1.3 * albedo * light + 0.4 * shine[:, None]).clamp(0, 1) ** (1 / 2.2)

    def _look_up(
        self, textures: Tensor, layer: int, place: Float[Tensor, "ray 2"], surface: Tensor
    ) -> Float[Tensor, "ray 3"]:
        """Interpolate a layer, which repeats mirrored."""
        unit = place / self.meters[layer][surface][:, None] + self.shift[layer][surface]
        unit = 1 - (unit.remainder(2) - 1).abs()
        at = unit * (TEXTURE_PX - 1.001)
        corner = at.long()
        x, y = (at - corner).split(1, -1)
        first = (self.index[layer][surface] * TEXTURE_PX + corner[:, 1]) * TEXTURE_PX + corner[:, 0]
        a, b, c, d = (textures.index_select(0, first + step) for step in (0, 1, TEXTURE_PX, TEXTURE_PX + 1))
        return torch.lerp(torch.lerp(a, b, x), torch.lerp(c, d, x), y)


def draw_textures(pool: tuple[int, ...], pictures: Path | None = None) -> Float[Tensor, "texel 3"]:
    """Draw the textures of a pool of scenes, of all kinds of materials and of noise as in natural images.

    PICTURES of them are parts of the .jpg files in the folder `pictures`.
    """
    random = np.random.default_rng((*pool, 2))
    kinds = (*patterns.FLOORS, *patterns.WALLS, *patterns.FABRICS, patterns.draw_wood)
    paths = sorted(pictures.glob("*.jpg")) if pictures else []
    textures = []
    for _ in range(TEXTURES):
        if paths and random.random() < PICTURES:
            texture = _cut_picture(paths[int(random.integers(len(paths)))], random)
        elif random.random() < 0.5:
            image = kinds[int(random.integers(len(kinds)))](random).image.astype(np.float32) / 255
            texture = image.reshape(TEXTURE_PX, 2, TEXTURE_PX, 2, 3).mean((1, 3))
        else:
            texture = _draw_noise_texture(random)
        if random.random() < WEAK:
            mean = texture.mean((0, 1))
            texture = mean + (texture - mean) * random.uniform(*WEAK_CONTRAST)
        textures.append(texture.clip(0.02, 0.98))
    return torch.from_numpy(np.stack(textures).astype(np.float32)).reshape(-1, 3)


def _cut_picture(path: Path, random: Random) -> Float[np.ndarray, "row column 3"]:
    """Cut a square out of an image, now and then mirrored or turned."""
    image = Image.open(path).convert("RGB")
    side = round(min(image.size) * random.uniform(0.5, 1))
    left, top = (int(random.integers(length - side, endpoint=True)) for length in image.size)
    square = image.resize((TEXTURE_PX, TEXTURE_PX), box=(left, top, left + side, top + side))
    texture = np.rot90(np.asarray(square, np.float32) / 255, int(random.integers(4)))
    return texture[:, :: random.choice([-1, 1])]


def _draw_noise_texture(random: Random) -> Float[np.ndarray, "row column 3"]:
    """Draw noise with the spectrum of natural images, now and then in a few levels with sharp edges."""
    slope, low = float(random.uniform(0.6, 1.8)), float(np.exp(random.uniform(0, 3)))
    layers = [patterns.make_noise(random, TEXTURE_PX, slope, low=low) for _ in range(3)]
    mixed = np.stack(layers, -1) @ (1 + 0.4 * random.normal(size=(3, 3)))
    texture = 1 / (1 + np.exp(-random.uniform(0.4, 1.8) * mixed / mixed.std()))
    if random.random() < 0.4:
        levels = int(random.integers(2, 6))
        texture = np.round(texture * levels) / levels
    return texture * random.uniform(0.4, 1) + random.uniform(0, 0.3)


# Geometry


def scatter_solids(room: Room, random: Random) -> Room:
    """Return the room with solids of other sizes, standing, leaning or floating anywhere."""
    half = room.half_size.double()
    center, frames = room.solids.center.double().clone(), room.solids.solid_from_world.double().clone()
    for index in range(1, SOLIDS + 1):
        size = np.exp(random.uniform(np.log(0.08), np.log(0.7)) + 0.5 * random.normal(size=3))
        if bool(room.solids.is_ball[index]):
            size[:] = size[0]
        center[index] = torch.from_numpy(random.uniform(-0.95, 0.95, 3)) * half
        if random.random() < 0.6:
            turn = draw_rotation(random, random.uniform(0, 2))
        else:
            turn = _rotate(np.array([0.0, 1.0, 0.0]) * random.uniform(0, math.pi))
            center[index, 1] = half[1] - size[1]
        frames[index] = turn.mT / torch.from_numpy(size)[:, None]
    solids = Solids(center.float(), frames.float(), room.solids.is_ball)
    return replace(room, solids=solids, shadows=False)


def draw_rotation(random: Random, angle: float) -> Float[Tensor, "3 3"]:
    """Draw a rotation by an angle about any axis."""
    axis = random.normal(size=3)
    return _rotate(axis / np.linalg.norm(axis) * angle)


def _rotate(vector: np.ndarray) -> Float[Tensor, "3 3"]:
    """Rotation about a vector by its length."""
    x, y, z = vector
    skew = torch.tensor([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]], dtype=torch.float64)
    return torch.linalg.matrix_exp(skew)


# Cameras


def _draw_views(
    room: Room, random: Random, views: int, side: int, lenses: Sequence[str]
) -> tuple[list[Camera], list[Pose]]:
    """Draw a first view with some room before it, and others around it that look at what it sees."""
    shares = np.array([LENSES[kind] for kind in lenses])
    first = str(random.choice(lenses, p=shares / shares.sum()))
    half = room.half_size.double().numpy()
    for _ in range(TRIES):
        eye = random.uniform(-0.8, 0.8, 3) * half
        look = random.normal(size=3) * (1, 0.5, 1)
        look /= np.linalg.norm(look)
        pose, camera = look_at(eye, eye + look, 0.0), _draw_camera(random, first, side)
        distance = measure_distances(room, camera, pose)
        if distance.min() > MIN_CLEARANCE_M and distance.median() > 0.8:
            break
    middle = float(distance.median())
    same = random.random() < SAME_LENS
    cameras, poses = [camera], [pose]
    for _ in range(views - 1):
        for _ in range(TRIES):
            kind = first if first == "narrow" or random.random() < 0.4 else str(random.choice(lenses))
            other = camera if same else _draw_camera(random, kind, side)
            step = random.normal(size=3)
            step -= 0.6 * look * (step @ look)
            step *= middle * np.exp(random.uniform(*np.log(BASELINE))) / np.linalg.norm(step)
            spread = 0.15 if first == "narrow" else 0.3
            target = eye + middle * (look + spread * _get_half_width(camera) * random.normal(size=3))
            source = look_at(eye + step, target, random.normal(0, 0.15))
            inside = (np.abs(eye + step) < 0.95 * half).all()
            if inside and measure_distances(room, other, source).min() > 0.15:
                break
        cameras.append(other)
        poses.append(source)
    return cameras, poses


def _get_half_width(camera: Camera) -> float:
    """Tangent of half the field of view, at most that of 90°."""
    return math.tan(math.radians(min(float(camera.fov().horizontal_deg), 90.0)) / 2)


def look_at(eye: np.ndarray, target: np.ndarray, roll: float) -> Pose:
    """Return the pose of a camera, turned by `roll` about its axis."""
    level = Pose.look_at(torch.from_numpy(eye), torch.from_numpy(target))
    turned = level.rotation @ _rotate(np.array([0.0, 0.0, roll]))
    return Pose.from_parts(turned, level.translation).to(torch.float32)


def measure_distances(room: Room, camera: Camera, pose: Pose) -> Float[Tensor, "ray"]:
    """Measure the distances that a camera sees, along a few hundred rays."""
    rays, valid = camera.resize(16, 16).unproject_grid()
    return room.cast(pose.translation[None], rays[valid] @ pose.rotation.mT)[0]


def _draw_camera(random: Random, kind: str, side: int) -> Camera:
    """Draw a lens of a kind; the rim of every second fisheye, and of all beyond 150°, is a circle."""
    if kind == "panorama":
        focal = side / math.radians(random.uniform(150, 200))
        frame = {"fx": focal, "fy": focal, "cx": side / 2, "cy": side / 2}
        return Equirectangular.make(side, side, **frame, dtype=torch.float32)
    low, high = FOV_DEG[kind]
    fov = torch.deg2rad(torch.tensor(random.uniform(low, high), dtype=torch.float64))
    center = torch.from_numpy(random.normal(0, 0.015, 2))
    zoom = torch.ones((), dtype=torch.float64)
    if kind != "fisheye":
        return make_pinholes(fov, center, zoom, side, side)
    coefficients = draw_fisheye_coefficients(torch.from_numpy(random.random(5)))
    camera = make_fisheyes(fov, coefficients, center, zoom, side, side)
    is_round = float(fov) > math.radians(150) or random.random() < 0.5
    return camera.limit_to_circle(side / 2) if is_round else camera
