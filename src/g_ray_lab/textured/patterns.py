"""Procedural materials: images of planks, tiles, bricks, plaster and fabrics with detail at every scale.

Every function draws one image that repeats without a seam, together with the meters that one repetition covers.
"""

import colorsys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, UInt8

from g_ray_lab.meshes.mesh_files import linear_to_srgb_bytes, srgb_to_linear

Random = np.random.Generator

HUES, HUE_SHARES = ((0.02, 0.15), (0.53, 0.65), (-0.04, 0.03), (0.0, 1.0)), (0.5, 0.18, 0.12, 0.2)


def make_noise(
    random: Random, size: int, slope: float, stretch: tuple[float, float] = (1.0, 1.0), low: float = 1.0
) -> Float[np.ndarray, "size size"]:
    """Make periodic noise of deviation 1 whose amplitude falls as 1 / frequency^slope (rows, columns stretched).

    Natural images have slopes near 1. Frequencies below `low` cycles per image are damped, so that a repeated tile
    does not show.
    """
    rows = np.fft.fftfreq(size, 1 / size)[:, None] * stretch[0]
    columns = np.fft.rfftfreq(size, 1 / size)[None] * stretch[1]
    frequency = np.sqrt(rows**2 + columns**2 + low**2)
    white = random.standard_normal((size, size)).astype(np.float32)
    spectrum = np.fft.rfft2(white) / frequency**slope
    spectrum[0, 0] = 0
    noise = np.fft.irfft2(spectrum, (size, size)).astype(np.float32)
    return noise / max(float(noise.std()), 1e-6)


def draw_color(
    random: Random,
    hue: tuple[float, float] | None = None,
    saturation: tuple[float, float] = (0.0, 0.6),
    value: tuple[float, float] = (0.3, 0.9),
) -> Float[np.ndarray, "3"]:
    """Draw an sRGB color; hue, saturation and value are ranges in [0, 1]. Without a hue, one of an interior."""
    tone = random.uniform(*hue) if hue else draw_hue(random)
    rgb = colorsys.hsv_to_rgb(tone % 1.0, random.uniform(*saturation), random.uniform(*value))
    return np.array(rgb, np.float32)


def draw_hue(random: Random) -> float:
    """Draw a hue: interiors are mostly of warm colors, then blue; green and purple are rare."""
    low, high = HUES[int(random.choice(len(HUES), p=HUE_SHARES))]
    return float(random.uniform(low, high))


def draw_palette(random: Random, count: int, saturation: float = 0.6) -> Float[np.ndarray, "color 3"]:
    """Draw sRGB colors around one or two hues, from dark to light: what a printed fabric has."""
    base, other = draw_hue(random), draw_hue(random)
    values = np.sort(random.uniform(0.12, 0.95, count))
    hues = np.where(random.random(count) < 0.65, base, other) + random.normal(0, 0.03, count)
    colors = [
        colorsys.hsv_to_rgb(float(hue % 1), float(random.uniform(0.1, saturation)), float(value))
        for hue, value in zip(hues, values, strict=True)
    ]
    return np.array(colors, np.float32)


def to_bytes(srgb: Float[np.ndarray, "row column 3"]) -> UInt8[np.ndarray, "row column 3"]:
    """Round sRGB values in [0, 1] to 8 bits."""
    return (255 * srgb.clip(0, 1) + 0.5).astype(np.uint8)


def mute_colors(
    image: UInt8[np.ndarray, "row column 3"], saturation: float = 0.35
) -> UInt8[np.ndarray, "row column 3"]:
    """Mix an image with its gray version until its mean color is no more saturated than this."""
    mean = image.reshape(-1, 3).mean(0)
    present = float(1 - mean.min() / max(float(mean.max()), 1.0))
    if present <= saturation:
        return image
    gray = image.mean(-1, keepdims=True)
    return (gray + (image - gray) * (saturation / present) + 0.5).clip(0, 255).astype(np.uint8)


def set_mean_light(
    image: UInt8[np.ndarray, "row column 3"], light: float
) -> UInt8[np.ndarray, "row column 3"]:
    """Scale the linear light of an image so that its mean is `light`, unless that would clip more than it should."""
    linear = srgb_to_linear(image.astype(np.float32) / 255)
    factor = light / max(float(linear.mean()), 1e-3)
    peak = float(np.quantile(linear, 0.98))
    return linear_to_srgb_bytes(linear * min(factor, 0.95 / max(peak, 1e-3)))


SIZE = 512  # pixels, square


@dataclass(frozen=True, eq=False)
class Material:
    """An image that repeats over a surface."""

    image: UInt8[np.ndarray, "row column 3"]  # sRGB
    meters: float
    """Width of one repetition."""


WHITE = Material(np.full((4, 4, 3), 255, np.uint8), 1.0)


def _make_grid() -> list[Float[np.ndarray, "size size"]]:
    """Make the columns and rows of pixel centers, in [0, 1)."""
    axis = (np.arange(SIZE, dtype=np.float32) + 0.5) / SIZE
    return list(np.meshgrid(axis, axis, indexing="xy"))


def _shade(
    color: Float[np.ndarray, "*any"], amount: Float[np.ndarray, "size size"]
) -> Float[np.ndarray, "size size 3"]:
    """Darken or lighten a color by 1 + amount at every pixel."""
    return color * (1 + amount[..., None])


def _measure_edge_distance(place: np.ndarray) -> np.ndarray:
    """Distance to the nearest integer."""
    return np.abs(place - np.round(place))


# Floors


def draw_planks(random: Random) -> Material:
    """Draw floor boards: every board has its own tone, and its own piece of the grain."""
    rows_of_boards, per_row = int(random.integers(6, 13)), int(random.integers(1, 3))
    x, y = _make_grid()
    row = np.floor(y * rows_of_boards).astype(int)
    start = random.uniform(0, 1, rows_of_boards)[row]
    along = x * per_row + start
    board = np.floor(along).astype(int) % per_row
    tone = random.normal(0, random.uniform(0.06, 0.2), (rows_of_boards, per_row))[row, board]
    shift = random.integers(0, SIZE, (rows_of_boards, per_row))[row, board]
    grain = _draw_grain(random)
    column, line = (np.arange(SIZE)[None] + shift) % SIZE, (np.arange(SIZE)[:, None] + 7 * shift) % SIZE
    gap = (_measure_edge_distance(y * rows_of_boards) < 0.02) | (_measure_edge_distance(along) < 0.004)
    image = _shade(_draw_wood_color(random), tone + random.uniform(0.08, 0.2) * grain[line, column])
    image[gap] *= random.uniform(0.3, 0.8)
    return Material(to_bytes(image), float(random.uniform(1.2, 2.2)))


def draw_parquet(random: Random) -> Material:
    """Draw squares of strips, turned by a quarter from one to the next."""
    squares, strips = 2 * int(random.integers(2, 5)), int(random.integers(3, 7))
    x, y = _make_grid()
    i, j = np.floor(x * squares).astype(int), np.floor(y * squares).astype(int)
    upright = (i + j) % 2 == 0
    across = np.where(upright, x, y) * squares
    strip = np.floor(across % 1 * strips).astype(int)
    tone = random.normal(0, random.uniform(0.08, 0.2), (squares, squares, strips))[i, j, strip]
    grain = _draw_grain(random)
    gap = _measure_edge_distance(across * strips) < 0.05
    image = _shade(_draw_wood_color(random), tone + 0.12 * np.where(upright, grain.T, grain))
    image[gap] *= random.uniform(0.4, 0.8)
    return Material(to_bytes(image), float(random.uniform(1.2, 2.4)))


def draw_tiles(random: Random) -> Material:
    """Draw square tiles in one or two colors, with joints and a stone-like surface."""
    count = 2 * int(random.integers(2, 6))
    x, y = _make_grid()
    i, j = np.floor(x * count).astype(int), np.floor(y * count).astype(int)
    tone = random.normal(0, random.uniform(0.02, 0.12), (count, count))[i, j]
    first = draw_color(random, saturation=(0.0, 0.35), value=(0.45, 0.92))
    second = draw_color(random, saturation=(0.0, 0.5), value=(0.15, 0.9)) if random.random() < 0.4 else first
    color = np.where(((i + j) % 2 == 0)[..., None], first, second)
    veins = random.uniform(0.03, 0.12) * make_noise(random, SIZE, 1.2, low=3.0)
    image = color * (1 + (tone + veins)[..., None])
    joint = np.minimum(_measure_edge_distance(x * count), _measure_edge_distance(y * count)) < 0.02
    image[joint] = draw_color(random, saturation=(0.0, 0.1), value=(0.3, 0.85))
    return Material(to_bytes(image), float(count * random.uniform(0.15, 0.45)))


def draw_carpet(random: Random) -> Material:
    """Draw cut pile: fine grain, and clouds where it was walked on."""
    fine, clouds = make_noise(random, SIZE, 0.3), make_noise(random, SIZE, 1.4, low=2.0)
    color = draw_color(random, saturation=(0.05, 0.6), value=(0.25, 0.8))
    image = _shade(color, random.uniform(0.08, 0.2) * fine + random.uniform(0.03, 0.1) * clouds)
    return Material(to_bytes(image), float(random.uniform(1.5, 3.0)))


def draw_terrazzo(random: Random) -> Material:
    """Draw chips of a few colors in a matrix."""
    palette = draw_palette(random, 5, 0.4)
    noise, choice = make_noise(random, SIZE, 1.0, low=40.0), make_noise(random, SIZE, 1.0, low=20.0)
    level = np.digitize(choice, [-0.8, -0.2, 0.3, 0.9])
    image = np.where((noise > 0.4)[..., None], palette[level], draw_color(random, saturation=(0.0, 0.2)))
    return Material(to_bytes(image), float(random.uniform(1.0, 2.0)))


# Walls


def draw_plaster(random: Random) -> Material:
    """Draw painted plaster: nearly one color, with the unevenness and stains that real walls have."""
    saturation = (0.0, 0.18) if random.random() < 0.75 else (0.15, 0.45)
    color = draw_color(random, saturation=saturation, value=(0.55, 0.95))
    rough = make_noise(random, SIZE, random.uniform(0.4, 1.0), low=4.0)
    stains = make_noise(random, SIZE, 1.6, low=1.5)
    amount = random.uniform(0.015, 0.06) * rough + random.uniform(0.015, 0.06) * stains
    return Material(to_bytes(_shade(color, amount)), float(random.uniform(2.0, 4.0)))


def draw_wallpaper(random: Random) -> Material:
    """Draw a mirrored motif in two or three colors, repeated with every other column dropped by half."""
    count = int(random.choice([4, 6, 8]))
    x, y = _make_grid()
    drop = 0.5 * (np.floor(x * count) % 2)
    palette = draw_palette(random, 3, 0.45)
    light, middle = palette[2] * 0.4 + 0.6, palette[1] * 0.6 + 0.4
    value = sample_motif(random, x * count, y * count + drop)
    image = np.where((value > 0.3)[..., None], middle, light)
    image = np.where((value > 1.0)[..., None], palette[0] * 0.5 + 0.3, image)
    image = image * (1 + 0.03 * make_noise(random, SIZE, 0.8, low=2.0)[..., None])
    return Material(to_bytes(image), float(count * random.uniform(0.2, 0.5)))


def draw_striped_wallpaper(random: Random) -> Material:
    """Draw vertical stripes of several widths."""
    count = int(random.integers(2, 6))
    edges = np.sort(random.uniform(0, 1, 5))
    palette = draw_palette(random, 6, 0.4) * 0.5 + 0.45
    x, _ = _make_grid()
    image = palette[np.searchsorted(edges, (x * count) % 1)]
    image = image * (1 + 0.03 * make_noise(random, SIZE, 0.9, low=2.0)[..., None])
    return Material(to_bytes(image), float(count * random.uniform(0.25, 0.6)))


def draw_bricks(random: Random) -> Material:
    """Draw courses of bricks with mortar; painted over in one color now and then."""
    courses, per_course = 2 * int(random.integers(6, 11)), int(random.integers(4, 7))
    x, y = _make_grid()
    course = np.floor(y * courses).astype(int)
    along = x * per_course + 0.5 * (course % 2)
    brick = np.floor(along).astype(int) % per_course
    tone = random.normal(0, random.uniform(0.06, 0.2), (courses, per_course))[course, brick]
    rough = 0.1 * make_noise(random, SIZE, 0.8, low=3.0)
    if painted := random.random() < 0.3:
        color = draw_color(random, saturation=(0.0, 0.25), value=(0.6, 0.95))
        tone = 0.3 * tone
    else:
        color = draw_color(random, hue=(0.0, 0.09), saturation=(0.25, 0.65), value=(0.4, 0.75))
    image = _shade(color, tone + rough)
    upright = _measure_edge_distance(along) * courses / per_course
    mortar = np.minimum(upright, _measure_edge_distance(y * courses)) < 0.07
    joint = 0.8 * color if painted else draw_color(random, saturation=(0.0, 0.15), value=(0.4, 0.8))
    image[mortar] = _shade(joint, rough)[mortar]
    return Material(to_bytes(image), float(per_course * random.uniform(0.2, 0.27)))


def draw_concrete(random: Random) -> Material:
    """Draw bare concrete with the joints of its formwork."""
    count = int(random.integers(1, 4))
    x, y = _make_grid()
    clouds, fine = make_noise(random, SIZE, 1.3, low=1.5), make_noise(random, SIZE, 0.5)
    color = draw_color(random, saturation=(0.0, 0.12), value=(0.45, 0.75))
    image = _shade(color, random.uniform(0.05, 0.12) * clouds + 0.04 * fine)
    joint = (_measure_edge_distance(x * count) < 0.008) | (_measure_edge_distance(y * count) < 0.008)
    image[joint] *= 0.75
    return Material(to_bytes(image), float(count * random.uniform(0.8, 1.6)))


def draw_panelling(random: Random) -> Material:
    """Draw upright boards of wood, painted or not."""
    count = int(random.integers(8, 20))
    x, _ = _make_grid()
    board = np.floor(x * count).astype(int)
    tone = random.normal(0, random.uniform(0.03, 0.12), count)[board]
    painted = random.random() < 0.4
    paint = {"saturation": (0.0, 0.3), "value": (0.6, 0.95)}
    color = draw_color(random, **paint) if painted else _draw_wood_color(random)
    grain = (0.04 if painted else 0.14) * _draw_grain(random).T
    image = _shade(color, tone + grain)
    image[_measure_edge_distance(x * count) < 0.03] *= 0.6
    return Material(to_bytes(image), float(count * random.uniform(0.09, 0.16)))


# Furniture


def draw_wood(random: Random) -> Material:
    """Draw a board without joints."""
    image = _shade(_draw_wood_color(random), random.uniform(0.1, 0.2) * _draw_grain(random))
    return Material(to_bytes(image), float(random.uniform(0.8, 1.6)))


def draw_plaid(random: Random) -> Material:
    """Draw a woven fabric: bands of color in both directions, and the weave."""
    count = int(random.integers(3, 9))
    palette, edges = draw_palette(random, 6), np.sort(random.uniform(0, 1, 5))
    x, y = _make_grid()
    warp = palette[np.searchsorted(edges, (x * count) % 1)]
    weft = palette[np.searchsorted(edges, (y * count) % 1)]
    image = 0.5 * (warp + weft) * (1 + 0.08 * make_noise(random, SIZE, 0.2)[..., None])
    return Material(to_bytes(image), float(count * random.uniform(0.12, 0.3)))


def draw_cloth(random: Random) -> Material:
    """Draw a plain fabric: threads and folds."""
    threads = make_noise(random, SIZE, 0.5, (0.2, 3.0)) + make_noise(random, SIZE, 0.5, (3.0, 0.2))
    folds = make_noise(random, SIZE, 1.5, low=2.0)
    color = draw_color(random, saturation=(0.0, 0.7), value=(0.2, 0.9))
    return Material(to_bytes(_shade(color, 0.05 * threads + 0.06 * folds)), float(random.uniform(0.6, 1.2)))


def draw_print(random: Random) -> Material:
    """Draw a printed fabric: a mirrored motif in a few colors."""
    count = int(random.integers(2, 6))
    palette = draw_palette(random, 4)
    x, y = _make_grid()
    value = sample_motif(random, x * count, y * count)
    image = palette[np.digitize(value, [-0.6, 0.3, 1.1])]
    image = image * (1 + 0.06 * make_noise(random, SIZE, 0.3)[..., None])
    return Material(to_bytes(image), float(count * random.uniform(0.12, 0.35)))


# What is listed twice is drawn twice as often.
Patterns = tuple[Callable[[Random], Material], ...]
FLOORS: Patterns = (draw_planks, draw_planks, draw_parquet, draw_tiles, draw_carpet, draw_terrazzo)
PAPERS: Patterns = (draw_wallpaper, draw_striped_wallpaper)
WALLS: Patterns = (draw_plaster, draw_plaster, *PAPERS, draw_bricks, draw_concrete, draw_panelling)
CEILINGS: Patterns = (draw_plaster, draw_plaster, draw_panelling, draw_concrete)
FABRICS: Patterns = (draw_plaid, draw_cloth, draw_print)
FURNITURE: Patterns = (draw_wood, draw_wood, draw_plaster)


# Parts


def _draw_wood_color(random: Random) -> Float[np.ndarray, "3"]:
    return draw_color(random, hue=(0.05, 0.12), saturation=(0.2, 0.65), value=(0.3, 0.85))


def _draw_grain(random: Random) -> Float[np.ndarray, "size size"]:
    """Draw long fibers along x, with rings that bend."""
    fibers = make_noise(random, SIZE, 0.9, (1.0, 14.0))
    bend = make_noise(random, SIZE, 1.6, (1.0, 4.0), low=2.0)
    rings = np.sin(random.uniform(2, 6) * bend + 0.6 * fibers)
    return (0.6 * fibers + 0.6 * rings).astype(np.float32)


def sample_motif(random: Random, x: np.ndarray, y: np.ndarray, fold: float = 0.5) -> np.ndarray:
    """Look up smooth noise mirrored about the axes of a cell: thresholds of it look like printed ornaments."""
    noise = make_noise(random, 128, float(random.uniform(1.2, 2.0)), low=float(random.uniform(4, 9)))
    folded = [(np.abs((place + fold) % (2 * fold) - fold) * 127 / fold / 2).astype(int) for place in (x, y)]
    return noise[folded[1], folded[0]]
