"""The focal length in a photo's own EXIF: a pinhole with its principal point in the middle."""

import math
from pathlib import Path

import torch
from PIL import Image

from g_ray.cameras.pinhole import Pinhole
from g_ray.formats.calibration import CalibratedPhoto, CalibrationSource, Example, has_same_aspect
from g_ray.formats.documents import ParsedFile
from g_ray.formats.exif import FILM_DIAGONAL, Exif
from g_ray.formats.photos import Photo
from g_ray.formats.plausible import check_plausible

KEYWORD = "exif"


class ExifSource(CalibrationSource):
    """FocalLengthIn35mmFilm, or FocalLength and FocalPlaneResolution. Lens distortion is not in EXIF: taken as none."""

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

    def find_camera(self, photo: Photo, resize: bool = False, label: str | None = None) -> CalibratedPhoto:
        exif = photo.exif()
        try:
            focal = compute_focal_px(exif)
            width, height = photo.width, photo.height
            camera = Pinhole.make(
                width, height, fx=focal, fy=focal, cx=width / 2, cy=height / 2, dtype=torch.float64
            )
            check_plausible(camera)
        except ValueError as error:
            raise ValueError(f"{photo.path}: {error}") from None
        return CalibratedPhoto(photo.name, photo.path, camera, self.description)

    @classmethod
    def example(cls, folder: Path) -> Example:
        exif = Image.Exif()
        exif.get_ifd(0x8769)[41989] = 28
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (640, 480)).save(folder / "phone.jpg", exif=exif)
        focal = 28 * 800 / FILM_DIAGONAL
        camera = Pinhole.make(640, 480, fx=focal, fy=focal, cx=320.0, cy=240.0, dtype=torch.float64)
        return Example(Path(KEYWORD), "phone.jpg", camera)


def compute_focal_px(exif: Exif) -> float:
    """In pixels of the photo as it is stored; ValueError, without its name, if EXIF does not tell."""
    _check_uncropped(exif)
    if exif.focal_35mm:
        return exif.focal_35mm * math.hypot(exif.width, exif.height) / FILM_DIAGONAL
    if exif.focal_mm and exif.plane_x:
        return exif.focal_mm * exif.plane_x * exif.width / (exif.taken_width or exif.width)
    has = "a focal length in millimetres, but not the sensor's size" if exif.focal_mm else "no focal length"
    raise ValueError(
        f"its EXIF has {has} (FocalLengthIn35mmFilm, or FocalLength with FocalPlaneXResolution); "
        "give a calibration file, or let one be estimated"
    )


def _check_uncropped(exif: Exif) -> None:
    """A crop keeps the tags, and they are wrong then."""
    width, height = exif.taken_width, exif.taken_height
    if not width or not height:
        return
    stored, turned = (exif.width, exif.height), (exif.height, exif.width)
    if not has_same_aspect((width, height), stored) and not has_same_aspect((width, height), turned):
        raise ValueError(
            f"it is {exif.width}×{exif.height}, but was taken at {width}×{height}, another shape: a crop, "
            "for which its EXIF no longer holds; give a calibration file"
        )
