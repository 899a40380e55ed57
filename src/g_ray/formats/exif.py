"""EXIF: device, focal length and orientation of a photograph, and the pinhole camera that they imply."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from g_ray.cameras.pinhole import Pinhole
from g_ray.formats.calibration_source import CalibrationSource, Example
from g_ray.formats.documents import ParsedFile
from g_ray.formats.plausible import check_plausible
from g_ray.media.images import open_photo, read_exif_tags
from g_ray.media.photos import Photo, has_same_aspect
from g_ray.media.view import View

KEYWORD = "exif"
_MAKE, _MODEL, _DETAILS = 271, 272, 0x8769
_FOCAL, _FOCAL_35, _WIDTH, _HEIGHT = 37386, 41989, 40962, 40963
_PLANE_X, _PLANE_Y, _PLANE_UNIT = 41486, 41487, 41488
_MILLIMETERS = {2: 25.4, 3: 10.0, 4: 1.0, 5: 1e-3}
FILM_DIAGONAL = math.hypot(36.0, 24.0)


@dataclass(frozen=True)
class Exif:
    """EXIF data about a camera; zero or empty means unknown. Sizes are those of the stored pixels."""

    width: int
    height: int
    device: str = ""
    focal_mm: float = 0.0
    focal_35mm: float = 0.0
    """The focal length that gives the same angle of view on 36 × 24 mm film, by the diagonal (CIPA DC-008)."""
    taken_width: int = 0
    taken_height: int = 0
    """Size as the camera wrote it; editors that resize often leave it unchanged."""
    plane_x: float = 0.0
    plane_y: float = 0.0
    """Sensor pixels per millimeter."""


def read_exif(photo: Photo) -> Exif:
    """Read the EXIF of a photo; a frame of a video has a size and nothing else."""
    if photo.time is not None:
        return Exif(photo.width, photo.height)
    with open_photo(photo.path) as image:
        tags = read_exif_tags(image)
        details = tags.get_ifd(_DETAILS)
        unit = _MILLIMETERS.get(int(_parse_number(details.get(_PLANE_UNIT, 2))), 25.4)
        return Exif(
            *image.size,
            device=" ".join(_parse_text(tags.get(tag)) for tag in (_MAKE, _MODEL)).strip(),
            focal_mm=_parse_number(details.get(_FOCAL)),
            focal_35mm=_parse_number(details.get(_FOCAL_35)),
            taken_width=int(_parse_number(details.get(_WIDTH))),
            taken_height=int(_parse_number(details.get(_HEIGHT))),
            plane_x=_parse_number(details.get(_PLANE_X)) / unit,
            plane_y=_parse_number(details.get(_PLANE_Y)) / unit,
        )


def compute_focal_px(exif: Exif) -> float:
    """Compute the focal length in pixels of the stored photo; ValueError, without its name, if EXIF lacks it."""
    _check_uncropped(exif)
    if exif.focal_35mm:
        return exif.focal_35mm * math.hypot(exif.width, exif.height) / FILM_DIAGONAL
    if exif.focal_mm and exif.plane_x:
        return exif.focal_mm * exif.plane_x * exif.width / (exif.taken_width or exif.width)
    has = "a focal length in millimeters, but not the sensor's size" if exif.focal_mm else "no focal length"
    raise ValueError(
        f"its EXIF has {has} (FocalLengthIn35mmFilm, or FocalLength with FocalPlaneXResolution); "
        "give a calibration file, or let one be estimated"
    )


class ExifSource(CalibrationSource):
    """FocalLengthIn35mmFilm, or FocalLength and FocalPlaneResolution; principal point in the middle, no distortion."""

    NAME, TITLE, CENTER, PER_PHOTO = "exif", "EXIF focal length", 0.5, False

    def __init__(self) -> None:
        self.path, self.lenses, self.notes = Path(KEYWORD), (), ()

    @classmethod
    def recognizes(cls, file: ParsedFile) -> bool:
        return str(file.path) == KEYWORD and not file.path.exists()

    @classmethod
    def open(cls, file: ParsedFile) -> "ExifSource":
        return cls()

    @property
    def description(self) -> str:
        return self.TITLE

    def find_camera(self, photo: Photo, resize: bool = False, label: str | None = None) -> View:
        exif = read_exif(photo)
        try:
            focal = compute_focal_px(exif)
            width, height = photo.width, photo.height
            camera = Pinhole.make(
                width, height, fx=focal, fy=focal, cx=width / 2, cy=height / 2, dtype=torch.float64
            )
            check_plausible(camera)
        except ValueError as error:
            raise ValueError(f"{photo.path}: {error}") from None
        return View(photo.name, camera, None, self.description, photo)

    @classmethod
    def example(cls, folder: Path) -> Example:
        exif = Image.Exif()
        exif.get_ifd(_DETAILS)[_FOCAL_35] = 28
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (640, 480)).save(folder / "phone.jpg", exif=exif)
        focal = 28 * 800 / FILM_DIAGONAL
        camera = Pinhole.make(640, 480, fx=focal, fy=focal, cx=320.0, cy=240.0, dtype=torch.float64)
        return Example(Path(KEYWORD), "phone.jpg", camera)


def _check_uncropped(exif: Exif) -> None:
    """Refuse a cropped photo: editors keep the tags, which then no longer hold."""
    width, height = exif.taken_width, exif.taken_height
    if not width or not height:
        return
    stored, turned = (exif.width, exif.height), (exif.height, exif.width)
    if not has_same_aspect((width, height), stored) and not has_same_aspect((width, height), turned):
        raise ValueError(
            f"it is {exif.width}×{exif.height}, but was taken at {width}×{height}, another shape: a crop, "
            "for which its EXIF no longer holds; give a calibration file"
        )


def _parse_number(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, ZeroDivisionError):
        return 0.0
    return number if math.isfinite(number) and number > 0 else 0.0


def _parse_text(value: Any) -> str:
    return value.strip("\0 ") if isinstance(value, str) else ""
