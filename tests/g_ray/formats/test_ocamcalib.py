"""OCamCalib's text files: the model of its publication, worked out by hand, and what is refused."""

import numpy as np
import pytest
import torch

from g_ray.formats import open_calibration
from g_ray.formats.ocamcalib import OCamCalibSource


def test_rays_are_those_of_the_publication(tmp_path):
    path = OCamCalibSource.example(tmp_path).path
    camera = open_calibration(path).lenses[0].build(640, 480)
    rows, columns = np.array([0.0, 100.0, 239.5, 400.0]), np.array([10.0, 600.0, 319.5, 200.0])
    ideal = np.linalg.inv([[0.99, 0.0002], [0.0001, 1.0]]) @ np.stack([rows - 239.5, columns - 319.5])
    rho = np.hypot(*ideal)
    backwards = np.polyval([2.5e-9, -1.0e-6, 1.6e-3, 0.0, -200.0], rho)
    # Its axes are down, right, backwards; ours are right, down, forward.
    expected = np.stack([ideal[1], ideal[0], -backwards], -1)
    expected /= np.linalg.norm(expected, axis=-1, keepdims=True)
    pixels = torch.from_numpy(np.stack([columns, rows], -1) + 0.5)
    rays, valid = camera.unproject(pixels)
    assert valid.all() and rays[0, 2] < 0.2  # the corner is almost perpendicular to the axis
    np.testing.assert_allclose(rays.numpy(), expected, atol=1e-12)
    torch.testing.assert_close(camera.project(5 * rays)[0], pixels)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("-2.0e+02", "2.0e+02", "must begin with a negative number"),
        ("0.0e+00", "0.1", "A1 = 0.1"),
        ("5 -2.0e+02", "6 -2.0e+02", "a polynomial of 6 coefficients has 5"),
        ("239.5 319.5", "239.5", "the center should be 2 numbers"),
        ("0.99 0.0002", "-0.99 0.0002", "mirror the image"),
        ("480 640", "", "it ends before the image size"),
        ("1.6e-03", "nan", "nan"),
    ],
)
def test_refusals(tmp_path, old, new, message):
    path = OCamCalibSource.example(tmp_path).path
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ValueError, match=message):
        open_calibration(path)
