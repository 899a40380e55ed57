"""What a photograph's EXIF says about the camera: device, focal length, orientation."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from g_ray.formats.images import ORIENTATION, open_photo

_MAKE, _MODEL, _DETAILS = 271, 272, 0x8769
_FOCAL, _FOCAL_35, _WIDTH, _HEIGHT = 37386, 41989, 40962, 40963
_PLANE_X, _PLANE_Y, _PLANE_UNIT = 41486, 41487, 41488
_MILLIMETRES = {2: 25.4, 3: 10.0, 4: 1.0, 5: 1e-3}
FILM_DIAGONAL = math.hypot(36.0, 24.0)


@dataclass(frozen=True)
class Exif:
    """Zero or empty: not known. Sizes are those of the stored pixels."""

    width: int
    height: int
    orientation: int = 1
    device: str = ""
    focal_mm: float = 0.0
    focal_35mm: float = 0.0
    """The focal length that gives the same angle of view on 36 × 24 mm film, by the diagonal (CIPA DC-008)."""
    taken_width: int = 0
    taken_height: int = 0
    """Size as the camera wrote it; editors that resize often leave it."""
    plane_x: float = 0.0
    plane_y: float = 0.0
    """Sensor pixels per millimetre."""


def read_exif(path: Path) -> Exif:
    """An image without EXIF has its size and nothing else; OSError names a file that is no image."""
    with open_photo(path) as image:
        tags = image.getexif()
        details = tags.get_ifd(_DETAILS)
        unit = _MILLIMETRES.get(int(_parse_number(details.get(_PLANE_UNIT, 2))), 25.4)
        orientation = int(_parse_number(tags.get(ORIENTATION, 1)))
        return Exif(
            *image.size,
            orientation=orientation if 1 <= orientation <= 8 else 1,
            device=" ".join(_parse_text(tags.get(tag)) for tag in (_MAKE, _MODEL)).strip(),
            focal_mm=_parse_number(details.get(_FOCAL)),
            focal_35mm=_parse_number(details.get(_FOCAL_35)),
            taken_width=int(_parse_number(details.get(_WIDTH))),
            taken_height=int(_parse_number(details.get(_HEIGHT))),
            plane_x=_parse_number(details.get(_PLANE_X)) / unit,
            plane_y=_parse_number(details.get(_PLANE_Y)) / unit,
        )


def _parse_number(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, ZeroDivisionError):
        return 0.0
    return number if math.isfinite(number) and number > 0 else 0.0


def _parse_text(value: Any) -> str:
    return value.strip("\0 ") if isinstance(value, str) else ""
