"""A photo with its camera, and the table of them that people read before a run."""

import os
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import ClassVar

from g_ray.cameras.base import Camera
from g_ray.formats.documents import ParsedFile
from g_ray.formats.images import TURNED
from g_ray.formats.photos import Photo
from g_ray.formats.plausible import check_plausible
from g_ray.geometry.pose import Pose


@dataclass(frozen=True, eq=False)
class CalibratedPhoto:
    """What is known about the camera that took a photo."""

    name: str
    path: Path
    camera: Camera
    """At the photo's size; float64, but for ray maps (float32); pixels count from the top-left corner."""
    source: str
    """Where the camera came from, for people: "fisheye.yaml (OpenCV)"."""
    pose: Pose | None = None
    """`world_from_cam` with OpenCV axes, in the world and the unit of the source, if it knows."""


def format_calibration_table(views: Sequence[CalibratedPhoto]) -> str:
    """One line a view: name, size, model, horizontal field of view, source, and whether its pose is known."""
    head = ("photo", "size", "model", "FoV", "calibration", "pose")
    rows = [
        head,
        *(_format_row(view, fov) for view, fov in zip(views, _compute_fields_of_view(views), strict=True)),
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    lines.insert(1, "  ".join("─" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)


def _format_row(view: CalibratedPhoto, fov_deg: float) -> tuple[str, ...]:
    size = f"{view.camera.width}×{view.camera.height}"
    pose = "known" if view.pose is not None else "–"
    return (view.name, size, view.camera.NAME, f"{fov_deg:.1f}°", view.source, pose)


def _compute_fields_of_view(views: Sequence[CalibratedPhoto]) -> list[float]:
    """Photos of one lens share its camera, and its field of view is computed once."""
    known: dict[int, float] = {}
    for view in views:
        if id(view.camera) not in known:
            known[id(view.camera)] = float(view.camera.fov().horizontal_deg)
    return [known[id(view.camera)] for view in views]


# A calibration for one image size and a photo of another: scaled if people ask for it, else refused with advice.


RESIZE = "--resize-calibration"
AS_STORED = "--as-stored"


def has_same_aspect(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether one size is the other scaled, up to the rounding of sides to whole pixels."""
    scale = other[0] / one[0]
    return abs(one[1] * scale - other[1]) <= max(1.0, scale)


def rescale_camera(camera: Camera, photo: Photo, resize: bool) -> Camera:
    """The camera at the photo's size; ValueError, without the source's name, if it is another one's."""
    camera_size, photo_size = (camera.width, camera.height), (photo.width, photo.height)
    if camera_size == photo_size:
        return camera
    sizes = f"it is for {camera.width}×{camera.height} px, {photo.name} has {photo.width}×{photo.height}"
    if camera_size == photo_size[::-1] and photo.upright and photo.orientation in TURNED:
        raise ValueError(
            f"{sizes}: the photo is stored lying and its EXIF says to turn it; "
            f"{AS_STORED} uses the pixels as they are stored"
        )
    if camera_size == photo_size[::-1]:
        raise ValueError(
            f"{sizes}: it belongs to the photo turned by 90°; calibrate the camera in this position"
        )
    if not has_same_aspect(camera_size, photo_size):
        raise ValueError(
            f"{sizes}, another shape: the photo was cropped or is from another camera; calibrate this size"
        )
    if not resize:
        raise ValueError(
            f"{sizes}, the same shape: if the photo was only scaled, {RESIZE} scales the calibration "
            f"by {photo.width / camera.width:.4g}"
        )
    return camera.resize(photo.width, photo.height)


# What every source of calibration can do: tell whether a file is its own, and find a photo's camera in it.


@dataclass(frozen=True, eq=False)
class Lens:
    """One camera of a source."""

    label: str
    """The image or the device that it belongs to, as the file names it."""
    build: Callable[[int, int], Camera]
    """Called with the size; a mistake in the numbers is a ValueError."""
    size: tuple[int, int] | None
    """Width and height, if the file knows."""
    pose: Pose | None = None

    @classmethod
    def from_camera(cls, label: str, camera: Camera, pose: Pose | None = None) -> "Lens":
        return cls(label, lambda width, height: camera, (camera.width, camera.height), pose)


@dataclass(frozen=True)
class Example:
    """A miniature of the format on disk, for tests and documentation."""

    path: Path
    photo: str
    """Name of a photo that it calibrates."""
    camera: Camera
    """… as this camera."""


class CalibrationSource(ABC):
    """A calibration file or folder, opened; see `PER_PHOTO` for how a photo's camera is found."""

    NAME: ClassVar[str]
    TITLE: ClassVar[str]
    """For people, in tables and messages."""
    CENTER: ClassVar[float]
    """Where the file puts the centre of the first pixel: 0 or 0.5. Ours is 0.5."""
    PER_PHOTO: ClassVar[bool]
    """True: the file names images. False: it names devices; a device's camera serves all photos of its size, or those
    that have its name as a folder or as their own."""

    def __init__(self, path: Path, lenses: Sequence[Lens], notes: Sequence[str] = ()) -> None:
        if not lenses:
            raise ValueError(f"{path}: no cameras in it ({self.TITLE})")
        self.path, self.lenses, self.notes = path, tuple(lenses), tuple(notes)
        self._by_name: dict[str, list[Lens]] = defaultdict(list)
        for lens in lenses:
            self._by_name[PurePosixPath(lens.label).name].append(lens)
        self._fitted: dict[tuple[int, int, int], tuple[Camera, Camera]] = {}

    # What a source supplies

    @classmethod
    @abstractmethod
    def recognizes(cls, file: ParsedFile) -> bool:
        """By what the file or folder holds."""

    @classmethod
    @abstractmethod
    def open(cls, file: ParsedFile) -> "CalibrationSource":
        """ValueError in one line that names the file if anything in it is wrong."""

    @classmethod
    @abstractmethod
    def example(cls, folder: Path) -> Example:
        """Write a miniature of the format."""

    # What all have

    @property
    def description(self) -> str:
        return f"{self.path.name} ({self.TITLE})"

    def find_camera(
        self, photo: Photo, resize: bool = False, label: str | None = None
    ) -> CalibratedPhoto | None:
        """None if the source does not know the photo; ValueError if it does and the camera cannot be used.

        `resize` scales a calibration made for the same photo at another size; `label` names the camera to take.
        """
        lens = self._find_by_label(label) if label is not None else self._find_lens(photo)
        if lens is None:
            return None
        try:
            camera = self._build_camera(lens, photo, resize)
        except ValueError as error:
            name = f"camera {lens.label!r}: " if lens.label else ""
            raise ValueError(f"{self.path}: {name}{error}") from None
        return CalibratedPhoto(photo.name, photo.path, camera, self.description, lens.pose)

    def find_unused(self, photos: Sequence[Photo]) -> list[str]:
        """Names of images that the source knows and nobody has given."""
        if not self.PER_PHOTO:
            return []
        used = {id(self._find_lens(photo)) for photo in photos}
        return [lens.label for lens in self.lenses if id(lens) not in used]

    def _build_camera(self, lens: Lens, photo: Photo, resize: bool) -> Camera:
        size = (photo.width, photo.height)
        source_camera = lens.build(*(lens.size or size))
        key = (id(source_camera), *size)
        if key not in self._fitted:
            if lens.size is None:
                check_principal_point(source_camera)
            camera = rescale_camera(source_camera, photo, resize)
            check_plausible(camera)
            self._fitted[key] = (source_camera, camera)  # given too: its id may not be used again
        return self._fitted[key][1]

    def _find_by_label(self, label: str) -> Lens:
        for lens in self.lenses:
            if lens.label == label:
                return lens
        known = ", ".join(lens.label for lens in self.lenses[:8])
        raise ValueError(f"{self.path}: no camera {label!r}; it has {known}")

    def _find_lens(self, photo: Photo) -> Lens | None:
        return self._find_by_image(photo) if self.PER_PHOTO else self._find_by_device(photo)

    def _find_by_image(self, photo: Photo) -> Lens | None:
        """The lens whose label shares the longest end of the path with the photo."""
        name = photo.place.name
        candidates = self._by_name.get(name, []) + self._by_name.get(PurePosixPath(name).stem, [])
        matches = [(count_common_parts(lens.label, photo), lens) for lens in candidates]
        longest = max((count for count, _ in matches), default=0)
        if longest == 0:
            return None
        best = [lens for count, lens in matches if count == longest]
        if len(best) > 1:
            names = " and ".join(repr(lens.label) for lens in best[:2])
            raise ValueError(
                f"{self.path}: {photo.name} could be {names}; give the photos in folders of these names"
            )
        return best[0]

    def _find_by_device(self, photo: Photo) -> Lens | None:
        named = self._find_by_folder(photo) or list(self.lenses)
        fitting = [lens for lens in named if lens.size in (None, (photo.width, photo.height))]
        candidates = fitting or named
        if len(candidates) > 1:
            names = ", ".join(f"{lens.label} ({_format_size(lens)})" for lens in candidates)
            raise ValueError(
                f"{self.path}: which camera took {photo.name} ({photo.width}×{photo.height})? It has {names}; "
                f"put photos in folders of these names, or say {photo.name}={self.path.name}:{candidates[0].label}"
            )
        return candidates[0]

    def _find_by_folder(self, photo: Photo) -> list[Lens]:
        """Lenses whose label is the photo's own name or a folder above it; the nearest folder counts."""
        parts = [*photo.place.parent.parts, photo.place.stem]
        for part in reversed(parts):
            named = [lens for lens in self.lenses if lens.label == part]
            if named:
                return named
        return []


def count_common_parts(label: str, photo: Photo) -> int:
    """How many last parts of the two paths agree; 0 unless the shorter one agrees as a whole."""
    known, place = PurePosixPath(label).parts, Path(os.path.abspath(photo.place)).parts
    own = len(PurePosixPath(photo.name).parts)
    count = 0
    for ours, theirs in zip(reversed(place), reversed(known), strict=False):
        if ours != theirs and not (count == 0 and PurePath(ours).stem == theirs):
            break
        count += 1
    return count if count >= min(len(known), own) else 0


def _format_size(lens: Lens) -> str:
    return "any size" if lens.size is None else f"{lens.size[0]}×{lens.size[1]}"


def check_principal_point(camera: Camera) -> None:
    """A file without an image size is taken for the photo's, unless its principal point says otherwise."""
    cx, cy = camera.params[2:4].tolist()
    if abs(cx / camera.width - 0.5) > 0.2 or abs(cy / camera.height - 0.5) > 0.2:
        raise ValueError(
            f"it names no image size, and its principal point ({cx:.0f}, {cy:.0f}) is far from the middle of "
            f"{camera.width}×{camera.height}: probably calibrated at another size; write the size into the file"
        )
