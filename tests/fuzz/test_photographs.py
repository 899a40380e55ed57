"""Mutated photographs: read, or refused in one line that names the file."""

import os
import random

import numpy as np
import pytest
import torch
from fuzz_mutations import mutate_bytes
from PIL import Image

from g_ray.formats.exif import read_exif
from g_ray.media.images import check_decodable, read_photo
from g_ray.media.photos import Photo

COUNT = int(os.environ.get("G_RAY_FUZZ", "40"))


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".tif", ".webp", ".bmp", ".ppm", ".gif", ".jp2"])
def test_mutated_photographs(tmp_path, suffix):
    pixels = np.random.default_rng(0).integers(0, 255, (40, 48, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[271], exif[274] = "maker", 6
    exif.get_ifd(0x8769)[41989] = 28
    Image.fromarray(pixels).save(tmp_path / f"whole{suffix}", exif=exif)
    whole = (tmp_path / f"whole{suffix}").read_bytes()
    for seed in range(COUNT):
        path = tmp_path / f"{seed}{suffix}"
        path.write_bytes(mutate_bytes(whole, random.Random(f"{suffix}{seed}")))
        try:
            photo = Photo.from_file(path, path.name)
            read_exif(photo)
            check_decodable(path)
            values = read_photo(path, photo.orientation)
            assert values.shape == (3, photo.height, photo.width) and bool(torch.isfinite(values).all())
        except (OSError, ValueError) as error:
            assert str(path) in str(error) and "\n" not in str(error) and len(str(error)) < 600
        except Exception as error:
            raise AssertionError(f"seed {seed} of {suffix}: {type(error).__name__}: {error}") from error
