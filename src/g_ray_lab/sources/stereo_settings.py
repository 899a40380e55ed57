"""Settings of the rooms that learned stereo trains on, without torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

LensName = Literal["narrow", "pinhole", "fisheye", "panorama"]


@dataclass(frozen=True)
class StereoData:
    """Rooms with textured solids, rendered with exact depth, through lenses of any kinds."""

    KIND: ClassVar[str] = "stereo-rooms"

    sides: tuple[int, ...] = (128,)
    """Pixels of square images, multiples of 8; batches take turns."""
    batch: int = 4
    """References per process and step."""
    views: int = 5
    """Photographs of a room; each of them is a reference now and then."""
    sources: tuple[int, int] = (2, 3)
    """Sources of a reference, drawn between these."""
    distinct: int = 250
    """Different rooms; further steps repeat them with other references, sources, colors and errors of poses."""
    lenses: tuple[LensName, ...] = ("narrow", "pinhole", "fisheye", "panorama")
    """Kinds of lenses; narrow pinholes are parts of large photographs."""
    open_share: float = 0.0
    """Share of rooms without ceiling and most walls, under a sky, whose pixels count as never right."""
    pictures: Path | None = None
    """Folder of .jpg files whose parts cover some of the surfaces, besides drawn materials; None draws all."""
    cache: Path | None = None
    """Keep rendered photographs in this folder (400 kB a room)."""
