"""Calibrations that are a word: `panorama`, and `fisheye:FOV` for an ideal fisheye of a known field of view.

panorama       360°×180°, equirectangular, of 2:1
fisheye:190    r = f θ (equidistant), 190° across the longer side of the image; what lies beyond has no rays
"""

import math
from pathlib import Path

import torch

from g_ray.cameras.camera import Camera
from g_ray.cameras.equirectangular import Equirectangular
from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.formats.documents import parse_number
from g_ray.media.photos import Photo
from g_ray.media.view import View

PANORAMA, FISHEYE = "panorama", "fisheye"
MAX_FOV_DEG = 300.0


class LensWord:
    """A lens that a word describes completely, up to the size of the photo."""

    def __init__(self, word: str) -> None:
        self.path, self.notes = Path(word), ()
        self.word, _, angle = word.partition(":")
        self.fov_deg = 0.0
        if self.word == FISHEYE:
            try:
                self.fov_deg = parse_number(angle, word)
            except ValueError:
                raise ValueError(f"{word}: give the field of view in degrees, as in fisheye:190") from None
            if not 1 <= self.fov_deg <= MAX_FOV_DEG:
                raise ValueError(f"{word}: the field of view is from 1 to {MAX_FOV_DEG:g} degrees")

    @staticmethod
    def recognizes(word: str) -> bool:
        return (word == PANORAMA or word.split(":")[0] == FISHEYE) and not Path(word).exists()

    def find_camera(self, photo: Photo, resize: bool = False, label: str | None = None) -> View:
        return View(photo.name, self._make_camera(photo), None, f"{self.path} (given)", photo)

    def find_unused(self, photos: object) -> list[str]:
        return []

    def _make_camera(self, photo: Photo) -> Camera:
        width, height = photo.width, photo.height
        if self.word == PANORAMA:
            if width != 2 * height:
                raise ValueError(
                    f"panorama: {photo.name} has {width}×{height} px, and a panorama of 360°×180° is twice as wide as "
                    "high; a part of one needs a cameras.json"
                )
            return Equirectangular.panorama(width, height, dtype=torch.float64)
        radius = max(width, height) / 2
        focal = radius / math.radians(self.fov_deg / 2)
        middle = {"cx": width / 2, "cy": height / 2}
        camera = OpenCVFisheye.make(width, height, fx=focal, fy=focal, **middle, dtype=torch.float64)
        return camera.limit_to_circle(radius)
