"""Objects when there is no folder of meshes: every seed one to four textured solids.

A solid is a closed surface over the unit square of (u, v). Its texture is a solid pattern (`textures.py`) evaluated
where each texel lies on the surface: nothing is stretched, and no seam shows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import pi

import numpy as np
import torch
from jaxtyping import Float

from g_ray.demo.textures import PATTERNS
from g_ray_lab.meshes.mesh_files import LINEAR_OF_BYTE, Mesh, linear_to_srgb_bytes

AROUND, ALONG = 96, 48  # cells of a surface
TEXTURE = 192  # pixels, square
FINE, COARSE = ("checker", "dots", "marble", "stripes", "bricks", "planks"), ("waves", "plain", "marble")

Random = np.random.Generator
Surface = Callable[[Float[np.ndarray, "*n"], Float[np.ndarray, "*n"]], Float[np.ndarray, "*n 3"]]
"""Points of a surface over [0, 1]²; u runs around the z axis, v from below to above."""


def make_random_object(random: Random) -> tuple[Mesh, ...]:
    """One to four solids that hang together. The middle and the size do not matter: see `scale_to_unit_size`."""
    count = int(random.integers(1, 5))
    parts, center = [], np.zeros(3)
    for number in range(count):
        size = random.uniform(0.5, 1.0) if number else 1.0
        parts.append(_make_solid(random, center, size))
        center = center + random.uniform(0.45, 0.9) * size * _draw_unit_vector(random)
    return tuple(parts)


def _make_solid(random: Random, center: Float[np.ndarray, "3"], size: float) -> Mesh:
    shape = SHAPES[int(random.integers(len(SHAPES)))](random)
    turn = _draw_rotation(random) if random.random() < 0.7 else np.eye(3)  # the rest stands upright
    stretch = size * random.uniform(0.6, 1.0, 3)

    def surface(u: np.ndarray, v: np.ndarray) -> np.ndarray:
        return (shape(u, v) * stretch) @ turn.T

    u, v = np.meshgrid(np.linspace(0, 1, AROUND + 1), np.linspace(0, 1, ALONG + 1), indexing="xy")
    vertices = surface(u, v).reshape(-1, 3)
    return Mesh(
        vertices=vertices + center,
        faces=_make_grid_faces(),
        tint=np.ones_like(vertices, dtype=np.float32),
        uv=np.stack([u, v], -1).reshape(-1, 2).astype(np.float32),
        texture=_make_texture(random, surface),
        repeat=False,
    )


def _make_grid_faces() -> np.ndarray:
    corner = (np.arange(ALONG)[:, None] * (AROUND + 1) + np.arange(AROUND)).ravel()
    right, above, across = corner + 1, corner + AROUND + 1, corner + AROUND + 2
    return np.concatenate([np.stack([corner, right, across], -1), np.stack([corner, across, above], -1)])


# Shapes


def make_superellipsoid(random: Random) -> Surface:
    """|x|ᵖ + |y|ᵖ + |z|ᵖ = 1: an octahedron at p = 1, a ball at 2, nearly a cube at 10."""
    power = float(random.choice([1.2, 2.0, 3.0, 5.0, 10.0]))

    def surface(u: np.ndarray, v: np.ndarray) -> np.ndarray:
        direction = _compute_directions(u, v)
        return direction / (np.abs(direction) ** power).sum(-1, keepdims=True) ** (1 / power)

    return surface


def make_pebble(random: Random) -> Surface:
    """Make a ball with smooth dents and bumps."""
    waves, phase = random.normal(0, 2.2, (6, 3)), random.uniform(0, 2 * pi, 6)
    depth = random.uniform(0.05, 0.12)

    def surface(u: np.ndarray, v: np.ndarray) -> np.ndarray:
        direction = _compute_directions(u, v)
        return direction * (1 + depth * np.sin(direction @ waves.T + phase).sum(-1, keepdims=True))

    return surface


def make_torus(random: Random) -> Surface:
    """Make a ring with a round to square section."""
    thick, power = random.uniform(0.18, 0.45), float(random.choice([2.0, 4.0, 8.0]))

    def surface(u: np.ndarray, v: np.ndarray) -> np.ndarray:
        section = np.stack([np.cos(2 * pi * v), np.sin(2 * pi * v)], -1)
        section = thick * section / (np.abs(section) ** power).sum(-1, keepdims=True) ** (1 / power)
        return _revolve(u, 1 - thick + section[..., 0], section[..., 1])

    return surface


def make_lathe(random: Random) -> Surface:
    """Make a vase, a bottle, a chess piece: a random profile turned about the z axis, closed at both ends."""
    knots = int(random.integers(3, 7))
    radius = np.concatenate([[0.0], random.uniform(0.15, 0.7, knots), [0.0]])
    height = np.concatenate([[-1.0], np.sort(random.uniform(-1.0, 1.0, knots - 2)), [1.0]])
    height = np.concatenate([height[:1], height, height[-1:]])
    length = np.concatenate([[0.0], np.hypot(np.diff(radius), np.diff(height)).cumsum()])

    def surface(u: np.ndarray, v: np.ndarray) -> np.ndarray:
        # Even steps along the profile, so that caps and slopes get their share of the texture.
        place = v * length[-1]
        return _revolve(u, np.interp(place, length, radius), np.interp(place, length, height))

    return surface


SHAPES: tuple[Callable[[Random], Surface], ...] = (make_superellipsoid, make_pebble, make_torus, make_lathe)


def _revolve(u: np.ndarray, radius: np.ndarray, height: np.ndarray) -> np.ndarray:
    return np.stack([radius * np.cos(2 * pi * u), radius * np.sin(2 * pi * u), height], -1)


def _compute_directions(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return _revolve(u, np.sin(pi * v), -np.cos(pi * v))


# Textures


@dataclass(frozen=True)
class _Layer:
    """A pattern in space between two linear colors."""

    pattern: str
    cell: float  # size of a unit of the pattern
    shift: Float[np.ndarray, "3"]
    colors: Float[np.ndarray, "2 3"]

    def evaluate(self, points: Float[np.ndarray, "n 3"]) -> Float[np.ndarray, "n 3"]:
        blend = PATTERNS[self.pattern](torch.from_numpy(points / self.cell + self.shift)).numpy()[:, None]
        return self.colors[0] * (1 - blend) + self.colors[1] * blend


def _make_texture(random: Random, surface: Surface) -> np.ndarray:
    """Mix a fine pattern with a coarse one of other colors: regular patterns alone look alike everywhere."""
    centers = (np.arange(TEXTURE) + 0.5) / TEXTURE
    u, v = np.meshgrid(centers, centers[::-1], indexing="xy")  # the first row of an image is its top
    points = surface(u, v).reshape(-1, 3)
    fine, coarse = _draw_layer(random, FINE, (0.12, 0.3)), _draw_layer(random, COARSE, (0.7, 1.4))
    light = 0.6 * fine.evaluate(points) + 0.4 * coarse.evaluate(points)
    return linear_to_srgb_bytes(light.reshape(TEXTURE, TEXTURE, 3))


def _draw_layer(random: Random, patterns: tuple[str, ...], cells: tuple[float, float]) -> _Layer:
    first = random.integers(0, 256, 3)
    second = (first + random.integers(80, 177, 3)) % 256  # never much alike
    colors = LINEAR_OF_BYTE[np.stack([first, second])].astype(np.float64)
    return _Layer(str(random.choice(patterns)), random.uniform(*cells), random.uniform(0, 1, 3), colors)


# Directions


def _draw_unit_vector(random: Random) -> np.ndarray:
    vector = random.normal(size=3)
    return vector / np.linalg.norm(vector)


def _draw_rotation(random: Random) -> np.ndarray:
    """Uniform over all rotations."""
    basis, triangle = np.linalg.qr(random.normal(size=(3, 3)))
    basis = basis * np.sign(np.diag(triangle))
    return basis * np.sign(np.linalg.det(basis))
