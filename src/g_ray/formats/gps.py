"""GPS in the EXIF of photographs: where each was taken, as far as the receiver knew."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from g_ray.geometry.geodesy import Place, compute_enu
from g_ray.media.images import open_photo, read_exif_tags
from g_ray.media.photos import Photo
from g_ray.media.view import View

GPS = 0x8825
_SOUTH, _LATITUDE, _WEST, _LONGITUDE, _BELOW, _ALTITUDE = 1, 2, 3, 4, 5, 6
MAX_APART_M = 50_000.0
"""A photograph that is farther from the middle of all others belongs to another scene, or its GPS is wrong."""


def read_place(photo: Photo) -> Place | None:
    """Read where a photograph was taken; None without latitude, longitude and altitude, and for frames of videos."""
    if photo.time is not None:
        return None
    with open_photo(photo.path) as image:
        tags = read_exif_tags(image).get_ifd(GPS)
    latitude, longitude = _parse_angle(tags.get(_LATITUDE)), _parse_angle(tags.get(_LONGITUDE))
    altitude = _parse_value(tags.get(_ALTITUDE))
    if math.isnan(latitude + longitude + altitude) or abs(latitude) > 90 or abs(longitude) > 180:
        return None
    if latitude == longitude == 0:  # written by devices without a fix
        return None
    return Place(
        -latitude if str(tags.get(_SOUTH, "N")).startswith("S") else latitude,
        -longitude if str(tags.get(_WEST, "E")).startswith("W") else longitude,
        -altitude if tags.get(_BELOW) in (1, b"\x01") else altitude,
    )


def read_places(views: Sequence[View], report: Callable[[str], None]) -> list[Place | None]:
    """Read where photographs were taken; places that contradict most others, or have no altitude, are left out.

    ValueError, in words that continue "GPS …", if they say nothing together.
    """
    places = [read_place(view.image) if isinstance(view.image, Photo) else None for view in views]
    found = [place for place in places if place is not None]
    if not found:
        return places
    if len(found) > 1 and all(place.altitude_m == 0 for place in found):
        raise ValueError("has the altitude 0 in all photographs, so that it was not recorded")
    middle = Place(*(torch.stack([place.to_tensor() for place in found]).median(0).values.tolist()))
    kept = [None if place is None or _is_far(place, middle) else place for place in places]
    far = [view.name for view, place, near in zip(views, places, kept, strict=True) if place and not near]
    if 2 * len(far) >= len(found):
        raise ValueError(f"names places more than {MAX_APART_M / 1000:.0f} km apart")
    if far:
        report(
            f"GPS of {', '.join(far[:3])}{', …' if len(far) > 3 else ''} is more than "
            f"{MAX_APART_M / 1000:.0f} km from the others and not used"
        )
    return kept


def _is_far(place: Place, middle: Place) -> bool:
    return float(compute_enu(place.to_tensor()[None], middle).norm()) > MAX_APART_M


def _parse_angle(value: Any) -> float:
    """Parse degrees, minutes and seconds; NaN if they are none."""
    try:
        degrees, minutes, seconds = (_parse_value(part) for part in value)
    except (TypeError, ValueError):
        return math.nan
    return degrees + minutes / 60 + seconds / 3600


def _parse_value(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, ZeroDivisionError):
        return math.nan
    return number if number >= 0 and math.isfinite(number) else math.nan
