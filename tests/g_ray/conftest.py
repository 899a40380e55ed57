"""Photos on disk for the tests of capture."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from g_ray.media.photos import Photo


@pytest.fixture
def shoot(tmp_path):
    """`shoot("dslr/a.jpg", (640, 480), tags)` writes a photo below tmp_path/photos; tags are EXIF's."""

    def write(name: str, size: tuple[int, int] = (64, 48), tags: dict[int, object] | None = None) -> Path:
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        seed = sum(map(ord, name))
        small = np.random.default_rng(seed).integers(0, 255, (8, 8, 3), dtype=np.uint8)
        exif = Image.Exif()
        for tag, value in (tags or {}).items():
            (exif if tag < 0x8000 else exif.get_ifd(0x8769))[tag] = value
        Image.fromarray(small).resize(size).save(path, exif=exif)
        return path

    return write


@pytest.fixture
def imagine(tmp_path):
    """`imagine("dslr/a.jpg", (640, 480))`: a photo of which there is no file."""

    def photo(name: str, size: tuple[int, int] = (640, 480), **options) -> Photo:
        return Photo(name, tmp_path / "photos" / name, *size, **options)

    return photo
