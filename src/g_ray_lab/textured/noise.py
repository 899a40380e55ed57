"""Periodic noise and colors for procedural materials."""

import colorsys

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
