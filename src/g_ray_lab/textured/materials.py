"""Materials and pictures of one room: procedural ones, and photographs from the assets where there are any."""

from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import UInt8

from g_ray_lab.textured import patterns
from g_ray_lab.textured.assets import RoomAssets
from g_ray_lab.textured.patterns import (
    Material,
    Random,
    draw_color,
    draw_palette,
    make_noise,
    mute_colors,
    sample_motif,
    set_mean_light,
    to_bytes,
)

PHOTO_SHARE = 0.3
EVEN = 0.1
"""Deviation of the brightness of an image between its parts, at most, for a photograph of one material."""


MAX_UNUSED = 0.1
"""Share of black texels in a piece of a texture that is hung as a picture, at most."""
COVERS = 5
"""Fabrics, and as many other materials, of the furniture of one room."""
DETAIL_LIGHT = 0.5


@dataclass(frozen=True, eq=False)
class Cover:
    """A material for surfaces without a texture, and a gray version of it to multiply a color with."""

    material: Material
    detail: Material  # its mean light is DETAIL_LIGHT


def make_detail(material: Material) -> Material:
    """Make a gray version of a material, of fixed mean light."""
    gray = material.image.mean(-1, keepdims=True).astype(np.uint8).repeat(3, -1)
    return replace(material, image=set_mean_light(gray, DETAIL_LIGHT))


@dataclass(frozen=True, eq=False)
class MaterialSource:
    """Draws materials for walls, floors, furniture and pictures."""

    assets: RoomAssets
    random: Random
    _covers: dict[bool, list[Cover]] = field(default_factory=lambda: {True: [], False: []}, repr=False)

    def draw_floor(self) -> Material:
        return self._draw_photo_or(patterns.FLOORS, (0.12, 0.4))

    def draw_wall(self) -> Material:
        return self._draw_photo_or(patterns.WALLS, (0.25, 0.6))

    def draw_ceiling(self) -> Material:
        return self._draw(patterns.CEILINGS)

    def draw_cover(self, soft: bool) -> Cover:
        """Draw a material for furniture out of the few of this room: fabric if it is soft, else wood or paint."""
        known = self._covers[soft]
        if len(known) < COVERS:
            known.append(Cover(material := self._draw_cover_material(soft), make_detail(material)))
            return known[-1]
        return known[int(self.random.integers(COVERS))]

    def _draw_cover_material(self, soft: bool) -> Material:
        if soft:
            return self._draw(patterns.FABRICS)
        photo = self._draw_furniture_photo() if self.random.random() < PHOTO_SHARE else None
        return photo or self._draw(patterns.FURNITURE)

    def draw_picture(self) -> UInt8[np.ndarray, "row column 3"]:
        """Draw what hangs in a frame: a painting, or a piece of the texture of a scanned object."""
        paths = self.assets.objects
        if paths and self.random.random() < 0.6:
            parts = self.assets.load_object(paths[int(self.random.integers(len(paths)))])
            if parts and parts[0].texture is not None and min(parts[0].texture.shape[:2]) >= 256:
                crop = self._crop(parts[0].texture, int(self.random.integers(128, 257)))
                # Textures of scans are black where no surface uses them.
                if (crop.max(-1) < 12).mean() < MAX_UNUSED:
                    return crop
        return draw_painting(self.random)

    def _draw(self, kinds: patterns.Patterns) -> Material:
        return kinds[int(self.random.integers(len(kinds)))](self.random)

    def _draw_photo_or(self, kinds: patterns.Patterns, light: tuple[float, float]) -> Material:
        images = self.assets.images
        if images and self.random.random() < PHOTO_SHARE:
            image = self.assets.load_image(images[int(self.random.integers(len(images)))])
            if image is not None:
                # Images of games are dark, to be lit; here they are seen in the light of a room.
                bright = set_mean_light(mute_colors(image), float(self.random.uniform(*light)))
                return Material(bright, float(self.random.uniform(1.0, 2.5)))
        return self._draw(kinds)

    def _draw_furniture_photo(self) -> Material | None:
        """Take the texture of a piece of furniture, if it shows one material all over."""
        entries = self.assets.furniture
        if not entries:
            return None
        parts = self.assets.load_furniture(entries[int(self.random.integers(len(entries)))]) or ()
        for part in parts:
            if part.texture is not None and is_even(part.texture):
                return Material(part.texture, float(self.random.uniform(0.5, 1.2)))
        return None

    def _crop(self, image: np.ndarray, size: int) -> np.ndarray:
        row, column = (int(self.random.integers(side - size + 1)) for side in image.shape[:2])
        return image[row : row + size, column : column + size]


def is_even(image: UInt8[np.ndarray, "row column 3"]) -> bool:
    """Tell whether an image has detail but the same brightness in all its parts."""
    if min(image.shape[:2]) < 128:
        return False
    gray = image.mean(-1) / 255
    rows, columns = (side // 8 * 8 for side in gray.shape)
    blocks = gray[:rows, :columns].reshape(8, rows // 8, 8, columns // 8).mean((1, 3))
    return bool(blocks.std() < EVEN and gray.std() > 0.01 and 0.12 < gray.mean() < 0.92)


# Pictures


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
