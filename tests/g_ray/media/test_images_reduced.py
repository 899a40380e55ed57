"""Photographs read at a smaller size: means of their pixels, whatever the file."""

import numpy as np
import pytest
import torch
from PIL import Image

from g_ray.media.images import read_photo, read_reduced_photo


@pytest.mark.parametrize(("name", "tolerance"), [("a.png", 1 / 255), ("a.jpg", 0.03)])
def test_reduced_photographs_are_means(tmp_path, name, tolerance):
    row, column = np.meshgrid(np.linspace(0, 6, 480), np.linspace(0, 9, 640), indexing="ij")
    values = np.stack([np.sin(row), np.cos(column), np.sin(row + column)], -1)
    Image.fromarray((127 * (values + 1)).astype(np.uint8)).save(tmp_path / name, quality=95)
    small = read_reduced_photo(tmp_path / name, 80, 60)
    whole = torch.nn.functional.avg_pool2d(read_photo(tmp_path / name), 8)
    assert small.shape == (3, 60, 80)
    assert float((small - whole).abs().max()) < tolerance


def test_sixteen_bits_are_reduced_too(tmp_path):
    values = np.linspace(0, 65535, 64 * 48).reshape(48, 64).astype(np.uint16)
    Image.fromarray(values).save(tmp_path / "a.png")
    small = read_reduced_photo(tmp_path / "a.png", 16, 12)
    whole = torch.nn.functional.avg_pool2d(read_photo(tmp_path / "a.png"), 4)
    assert torch.allclose(small, whole, atol=1e-5)
