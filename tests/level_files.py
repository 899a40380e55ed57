"""A miniature game: one level in a .pk3, written byte by byte after the format, with geometry known by hand.

A box of 400 × 320 × 160 units whose corner is at (0, 0, 0): four walls with an image of their own name, a floor
through a shader script, a ceiling of sky. In it stand a Bézier arch, a mesh of one triangle, and things that are not
drawn.
"""

import io
import struct
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

SIZE = (400.0, 320.0, 160.0)
WALL, FLOOR, SKY, NOT_DRAWN, GLASS, ARCH, FIN = range(7)
NAMES = ("textures/t/wall", "textures/t/floor", "textures/t/sky", "textures/t/caulk", "textures/t/glass")
NAMES = (*NAMES, "textures/t/arch", "textures/t/fin")
FLAGS = {SKY: 0x4, NOT_DRAWN: 0x80}
ARCH_CONTROL = [
    (x, y, z) for y in (200.0, 220.0, 240.0) for x, z in ((40.0, 10.0), (80.0, 90.0), (120.0, 10.0))
]
FIN_CORNERS = [(300.0, 100.0, 0.0), (340.0, 100.0, 0.0), (320.0, 100.0, 60.0)]
LIGHT = 90  # of the only light map, everywhere
FIN_COLOR = (200, 100, 50)
SCRIPT = """
// a comment { with a brace
textures/t/floor
{
    surfaceparm metalsteps
    {
        map $lightmap
        rgbGen identity
    }
    {
        map textures/t/tiles.tga
        blendFunc GL_DST_COLOR GL_ZERO
        tcMod scale 2 2
    }
}
textures/t/glass { surfaceparm trans
    { map textures/t/tiles.tga
      blendfunc add } }
"""


class LevelFile:
    """Collects the lumps of a BSP file."""

    def __init__(self) -> None:
        self.vertices, self.indices, self.faces = b"", b"", b""
        self.vertex_count, self.index_count = 0, 0

    def add(
        self, texture: int, kind: int, corners, indices=(), patch=(0, 0), light_map=0, color=(255,) * 3
    ) -> None:
        """Corners are x, y, z with uv = (x + y, z) / 100 and the middle of the light map."""
        self.faces += struct.pack(
            "<8i",
            texture,
            -1,
            kind,
            self.vertex_count,
            len(corners),
            self.index_count,
            len(indices),
            light_map,
        )
        self.faces += struct.pack("<4i12f2i", 0, 0, 128, 128, *[0.0] * 12, *patch)
        for x, y, z in corners:
            self.vertices += struct.pack(
                "<10f4B", x, y, z, (x + y) / 100, z / 100, 0.5, 0.5, 0, 0, 1, *color, 255
            )
        self.indices += struct.pack(f"<{len(indices)}i", *indices)
        self.vertex_count += len(corners)
        self.index_count += len(indices)

    def add_quad(self, texture: int, corners) -> None:
        """A polygon whose corners turn clockwise, seen from the side that is drawn."""
        self.add(texture, 1, corners, (0, 1, 2, 0, 2, 3))

    def to_bytes(self, version: int = 46) -> bytes:
        faces = len(self.faces) // 104
        entities = b'{ "classname" "worldspawn" }\n{ "classname" "info_player_deathmatch" "origin" "200 120 40" }\n\0'
        textures = b"".join(
            name.encode().ljust(64, b"\0") + struct.pack("<2i", FLAGS.get(i, 0), 1)
            for i, name in enumerate(NAMES)
        )
        lumps = {0: entities, 1: textures, 7: struct.pack("<6f4i", *[0.0] * 6, 0, faces, 0, 0)}
        lumps |= {10: self.vertices, 11: self.indices, 13: self.faces, 14: bytes([LIGHT]) * (128 * 128 * 3)}
        table, body, start = b"", b"", 8 + 17 * 8
        for number in range(17):
            content = lumps.get(number, b"")
            table += struct.pack("<2i", start + len(body), len(content))
            body += content
        return b"IBSP" + struct.pack("<i", version) + table + body


def make_level() -> LevelFile:
    level, (x, y, z) = LevelFile(), SIZE
    level.add_quad(FLOOR, [(0, 0, 0), (0, y, 0), (x, y, 0), (x, 0, 0)])
    level.add_quad(SKY, [(0, 0, z), (x, 0, z), (x, y, z), (0, y, z)])
    level.add_quad(WALL, [(0, 0, 0), (0, 0, z), (0, y, z), (0, y, 0)])
    level.add_quad(WALL, [(x, 0, 0), (x, y, 0), (x, y, z), (x, 0, z)])
    level.add_quad(WALL, [(0, 0, 0), (x, 0, 0), (x, 0, z), (0, 0, z)])
    level.add_quad(WALL, [(0, y, 0), (0, y, z), (x, y, z), (x, y, 0)])
    level.add_quad(NOT_DRAWN, [(200, 0, 0), (200, 0, z), (200, y, z), (200, y, 0)])
    level.add_quad(GLASS, [(210, 0, 0), (210, 0, z), (210, y, z), (210, y, 0)])
    level.add(ARCH, 2, ARCH_CONTROL, patch=(3, 3))
    level.add(FIN, 3, FIN_CORNERS, (0, 1, 2), light_map=-3, color=FIN_COLOR)
    level.add(WALL, 4, [(50.0, 50.0, 50.0)])  # a billboard
    return level


def make_noise(seed: int) -> np.ndarray:
    """Patches of 8 × 8 texels, which remain visible from afar."""
    patches = np.random.default_rng(seed).integers(20, 256, (4, 4, 3), dtype=np.uint8)
    return patches.repeat(8, 0).repeat(8, 1)


def encode_image(pixels: np.ndarray, kind: str) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind)
    return stream.getvalue()


def write_package(folder: Path, bsp: bytes | None = None, **more: bytes) -> Path:
    """Write mini.pk3 into a folder; `more` are further files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "maps/Mini.bsp": make_level().to_bytes() if bsp is None else bsp,
        "scripts/mini.shader": SCRIPT.encode(),
        "textures/t/wall.tga": encode_image(make_noise(0), "TGA"),
        "textures/t/Tiles.png": encode_image(make_noise(1), "PNG"),
        "textures/t/arch.tga": encode_image(make_noise(2), "TGA"),
        **more,
    }
    with zipfile.ZipFile(folder / "mini.pk3", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return folder
