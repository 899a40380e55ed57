"""Images that do not repeat: rugs, paintings, spines of books, and what is outside a window."""

import numpy as np
from jaxtyping import UInt8

from g_ray_lab.textured.noise import Random, draw_color, draw_palette, make_noise, to_bytes
from g_ray_lab.textured.patterns import sample_motif


def draw_rug(random: Random, height: int = 384, width: int = 256) -> UInt8[np.ndarray, "row column 3"]:
    """Draw a rug: a field with a mirrored motif inside bands."""
    palette = random.permutation(draw_palette(random, 6, 0.75))
    y, x = np.meshgrid((np.arange(height) + 0.5) / width, (np.arange(width) + 0.5) / width, indexing="ij")
    edge = np.minimum(np.minimum(x, 1 - x), np.minimum(y, height / width - y))
    field = sample_motif(random, x - 0.5, y - height / width / 2, fold=1.0)
    image = palette[np.digitize(field, [-1.0, -0.3, 0.3, 1.0])]
    band = palette[np.digitize(sample_motif(random, 6 * x, 6 * y), [-0.5, 0.4, 1.2])]
    image = np.where(((edge > 0.05) & (edge < 0.14))[..., None], band, image)
    image = np.where(((edge < 0.03) | ((edge > 0.14) & (edge < 0.155)))[..., None], palette[5], image)
    weave = random.normal(0, 0.08, (height, width, 1)).astype(np.float32)
    return to_bytes((image * (1 + weave)).astype(np.float32))


def draw_painting(random: Random, size: int = 192) -> UInt8[np.ndarray, "row column 3"]:
    """Draw an abstract painting or a hazy landscape."""
    if random.random() < 0.5:
        levels = int(random.integers(4, 9))
        noise = make_noise(random, size, random.uniform(1.2, 2.2), low=float(random.uniform(1, 5)))
        palette = random.permutation(draw_palette(random, levels, 0.9))
        image = palette[np.digitize(noise, np.linspace(-1.3, 1.3, levels - 1))]
    else:
        image = _draw_landscape(random, size)
    strokes = 0.08 * make_noise(random, size, 0.7)[..., None]
    return to_bytes((image * (1 + strokes)).astype(np.float32))


def draw_view(random: Random, size: int) -> UInt8[np.ndarray, "row column 3"]:
    """Draw what is outside a window: sky, hills and trees."""
    image = _draw_landscape(random, size)
    leaves = 0.25 * make_noise(random, size, 0.8, low=6.0) * (np.linspace(-1.1, 1, size) > 0)[:, None]
    return to_bytes((image * (1 + leaves[..., None])).astype(np.float32))


def _draw_landscape(random: Random, size: int) -> np.ndarray:
    rows = np.linspace(0, 1, size, dtype=np.float32)[:, None, None]
    sky = draw_color(random, hue=(0.53, 0.62), saturation=(0.05, 0.45), value=(0.75, 1.0))
    image = np.broadcast_to(sky * (1 - rows) + rows * draw_color(random, value=(0.7, 1.0)), (size, size, 3))
    for depth in np.linspace(0.52, 0.85, int(random.integers(2, 5))):
        ridge = depth + 0.05 * make_noise(random, size, 1.3)[0]
        below = np.arange(size)[:, None] / size > ridge[None]
        hill = draw_color(random, hue=(0.1, 0.36), saturation=(0.15, 0.55), value=(0.15, 0.6))
        image = np.where(below[..., None], hill, image)
    return image.astype(np.float32)


def draw_book_spines(random: Random, width: int = 384, height: int = 96) -> UInt8[np.ndarray, "row column 3"]:
    """Draw a row of books, seen from their spines."""
    image = np.full((height, width, 3), 0.05, np.float32)
    column = 0
    while column < width:
        thick, tall = int(random.integers(6, 22)), int(height * random.uniform(0.7, 1.0))
        spine = image[height - tall :, column : column + thick - 1]
        spine[:] = draw_color(random, saturation=(0.1, 0.9), value=(0.15, 0.9))
        top = int(tall * random.uniform(0.1, 0.6))
        spine[top : top + int(random.integers(4, 24)), 1:-1] = draw_color(random, value=(0.2, 1.0))
        spine[:] *= np.linspace(0.8, 1.1, max(spine.shape[1], 1))[None, :, None]
        column += thick
    return to_bytes(image * (1 + random.normal(0, 0.04, image.shape)).astype(np.float32))
