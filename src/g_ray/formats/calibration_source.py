"""What calibration formats share: the search for a photo's camera in a calibration file.

`CalibrationSource` is the base class of all formats in `g_ray.formats.CALIBRATIONS`.
"""

import os
import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import ClassVar

from g_ray.cameras.camera import Camera
from g_ray.formats.documents import ParsedFile
from g_ray.formats.plausible import check_plausible
from g_ray.geometry.pose import Pose
from g_ray.media.photos import Photo, has_same_aspect, orient_photo
from g_ray.media.view import MaskFile, View


def format_calibration_table(views: Sequence[View]) -> str:
    """Format a line for each lens: photos, size, model, horizontal field of view, source, whether poses are known."""
    head = ("photo", "size", "model", "FoV", "calibration", "pose")
    groups: dict[tuple[str, ...], list[str]] = {}
    for view, fov in zip(views, _compute_fields_of_view(views), strict=True):
        name, *rest = _format_row(view, fov)
        # Photographs of one lens share its camera object; equal numbers alone may be two lenses.
        groups.setdefault((str(id(view.camera)), *rest), []).append(name)
    rows = [head, *((_format_names(names), *key[1:]) for key, names in groups.items())]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    lines.insert(1, "  ".join("─" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines)


def _format_names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]} ({len(names)})"


def _format_row(view: View, fov_deg: float) -> tuple[str, ...]:
    size = f"{view.camera.width}×{view.camera.height}"
    pose = "–" if view.pose is None else "estimated" if view.is_estimated else "known"
    return (view.name, size, view.camera.NAME, f"{fov_deg:.1f}°", view.source or "–", pose)


def _compute_fields_of_view(views: Sequence[View]) -> list[float]:
    """Compute horizontal fields of view, once for each camera: photos of one lens share it."""
    known: dict[int, float] = {}
    for view in views:
        if id(view.camera) not in known:
            known[id(view.camera)] = float(view.camera.fov().horizontal_deg)
    return [known[id(view.camera)] for view in views]


# A calibration for another image size than the photo's


RESIZE = "--resize-calibration"
MAX_OFFSET = 0.1
"""Largest offset of a principal point from the middle, as a share of the side; 0.17 for a 4:3 image turned by 90°."""
_NUMBER, _SIDE = re.compile(r"\d+"), re.compile("left|right")


def rescale_camera(camera: Camera, photo: Photo, resize: bool) -> Camera:
    """Return the camera at the photo's size, scaled if `resize`; ValueError, without the file's name, if impossible."""
    camera_size = (camera.width, camera.height)
    check_photo_fits(camera_size, photo, resize)
    return camera if camera_size == (photo.width, photo.height) else camera.resize(photo.width, photo.height)


def check_photo_fits(camera_size: tuple[int, int], photo: Photo, resize: bool) -> None:
    """Check that a camera for images of one size can serve a photo; ValueError, without the file's name, if not."""
    photo_size = (photo.width, photo.height)
    if camera_size == photo_size:
        return
    width, height = camera_size
    sizes = f"it is for {width}×{height} px, {photo.name} has {photo.width}×{photo.height}"
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
            f"by {photo.width / width:.4g}"
        )


# Calibration formats


@dataclass(frozen=True, eq=False)
class Lens:
    """One camera of a calibration file."""

    label: str
    """The image or the device that it belongs to, as the file names it."""
    build: Callable[[int, int], Camera]
    """Makes the camera for a width and a height; a mistake in the numbers is a ValueError."""
    size: tuple[int, int] | None
    """Width and height that it was calibrated at, if the file has them."""
    pose: Pose | None = None
    mask: Path | None = None
    """Image that is not zero where a pixel of the photo may be used, if the file names one."""

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
    """Display name, for tables and messages."""
    CENTER: ClassVar[float]
    """Where the file puts the center of the first pixel: 0 or 0.5. Ours is 0.5."""
    PER_PHOTO: ClassVar[bool]
    """True: the file names images. False: it names devices; a device's camera serves all photos of its size, or those
    that have its name as a folder or as their own."""
    IGNORES_EXIF: ClassVar[bool] = False
    """Whether the tool works on stored pixels, whatever their EXIF orientation; see `orient_photo`."""

    def __init__(self, path: Path, lenses: Sequence[Lens], notes: Sequence[str] = ()) -> None:
        if not lenses:
            raise ValueError(f"{path}: no cameras in it ({self.TITLE})")
        self.path, self.lenses, self.notes = path, tuple(lenses), tuple(notes)
        self._by_name: dict[str, list[Lens]] = defaultdict(list)
        for lens in lenses:
            self._by_name[PurePosixPath(lens.label).name].append(lens)
        self._fitted: dict[tuple[int, int, int], tuple[Camera, Camera]] = {}

    # What a format supplies

    @classmethod
    @abstractmethod
    def recognizes(cls, file: ParsedFile) -> bool:
        """Return whether a file or folder has this format, by its content."""

    @classmethod
    @abstractmethod
    def open(cls, file: ParsedFile) -> "CalibrationSource":
        """Read the calibration; ValueError in one line that names the file if anything in it is wrong."""

    @classmethod
    @abstractmethod
    def example(cls, folder: Path) -> Example:
        """Write a miniature of the format to a folder."""

    # What all formats share

    @property
    def description(self) -> str:
        return f"{self.path.name} ({self.TITLE})"

    def find_camera(self, photo: Photo, resize: bool = False, label: str | None = None) -> View | None:
        """Return the photo with its camera, or None if the source does not have it.

        `resize` scales a calibration made for the same photo at another size; `label` names the camera to take.
        ValueError if there is a camera and it cannot be used.
        """
        lens = self._find_by_label(label, photo) if label is not None else self._find_lens(photo)
        if lens is None:
            return None
        photo = orient_photo(photo, lens.size, self.IGNORES_EXIF)
        try:
            camera = self._build_camera(lens, photo, resize)
        except ValueError as error:
            name = f"camera {lens.label!r}: " if lens.label else ""
            raise ValueError(f"{self.path}: {name}{error}") from None
        mask = None if lens.mask is None else MaskFile.fit(lens.mask, photo)
        return View(photo.name, camera, lens.pose, self.description, photo, mask)

    def find_unused(self, photos: Sequence[Photo]) -> list[str]:
        """Return the names of images that the source has and that are not among the photos."""
        if not self.PER_PHOTO:
            return []
        used = {id(self._find_lens(photo)) for photo in photos}
        return [lens.label for lens in self.lenses if id(lens) not in used]

    def _build_camera(self, lens: Lens, photo: Photo, resize: bool) -> Camera:
        size = (photo.width, photo.height)
        if lens.size is not None:
            # Before the camera is built: some models compute a ray for each pixel of the size that a file claims.
            check_photo_fits(lens.size, photo, resize)
        source_camera = lens.build(*(lens.size or size))
        key = (id(source_camera), *size)
        if key not in self._fitted:
            if lens.size is None:
                check_principal_point(source_camera)
            camera = rescale_camera(source_camera, photo, resize)
            check_plausible(camera)
            # The source's camera is kept as well, so that no other object can get its id.
            self._fitted[key] = (source_camera, camera)
        return self._fitted[key][1]

    def _find_by_label(self, label: str, photo: Photo) -> Lens:
        named = [lens for lens in self.lenses if lens.label == label]
        if not named:
            known = ", ".join(dict.fromkeys(lens.label for lens in self.lenses[:8])) or "one without a name"
            raise ValueError(f"{self.path}: no camera {label!r}; it has {known}")
        return self._choose_size(named, photo)

    def _choose_size(self, lenses: Sequence[Lens], photo: Photo) -> Lens:
        """Return the lens for the photo's size among those of one device."""
        fitting = [lens for lens in lenses if lens.size in (None, (photo.width, photo.height))]
        if len(fitting or lenses) == 1:
            return (fitting or lenses)[0]
        # Sizes of one device differ by a crop too (Aria), so that scaling any of them would be a guess.
        sizes = " and ".join(_format_size(lens) for lens in lenses)
        raise ValueError(
            f"{self.path}: camera {lenses[0].label!r} records {sizes} px, {photo.name} has "
            f"{photo.width}×{photo.height}: give photos as they were recorded, neither scaled nor cropped"
        )

    def _find_lens(self, photo: Photo) -> Lens | None:
        return self._find_by_image(photo) if self.PER_PHOTO else self._find_by_device(photo)

    def _find_by_image(self, photo: Photo) -> Lens | None:
        """Return the lens whose label shares the longest end of the path with the photo."""
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
        named = self._find_by_folder(photo)
        if not named:
            self._check_not_missing(photo)
            named = list(self.lenses)
        fitting = [lens for lens in named if lens.size in (None, (photo.width, photo.height))]
        candidates = fitting or named
        if len({lens.label for lens in candidates}) == 1:
            return self._choose_size(candidates, photo)
        if len(candidates) > 1:
            names = ", ".join(f"{lens.label} ({_format_size(lens)})" for lens in candidates)
            raise ValueError(
                f"{self.path}: which camera took {photo.name} ({photo.width}×{photo.height})? It has {names}; "
                f"put photos in folders of these names, or say {photo.name}={self.path.name}:{candidates[0].label}"
            )
        return candidates[0]

    def _check_not_missing(self, photo: Photo) -> None:
        """Refuse a photo in a folder of a further device of the rig, cam1 or right, which the file does not have."""
        parts = [*photo.place.parent.parts, photo.place.stem]
        for part in reversed(parts):
            sibling = next((lens for lens in self.lenses if _are_siblings(lens.label, part)), None)
            if sibling is not None:
                raise ValueError(
                    f"{self.path}: no camera {part!r} for {photo.name}; it has {sibling.label!r} of the same rig: "
                    f"add the camera, or say {photo.name}={self.path.name}:{sibling.label}"
                )

    def _find_by_folder(self, photo: Photo) -> list[Lens]:
        """Return lenses whose label is the photo's own name or a folder above it; the nearest folder counts."""
        parts = [*photo.place.parent.parts, photo.place.stem]
        for part in reversed(parts):
            named = [lens for lens in self.lenses if lens.label == part]
            if named:
                return named
        return []


def _are_siblings(label: str, part: str) -> bool:
    """Return whether two names differ in a number or a side alone: cam0 and cam1, left and right."""
    one, other = (_SIDE.sub("*", _NUMBER.sub("#", name.lower())) for name in (label, part))
    # A bare number is rather the number of a photo than that of a camera.
    return label != part and one == other and ("*" in one or ("#" in one and one != "#"))


def count_common_parts(label: str, photo: Photo) -> int:
    """Count the last parts of two paths that agree; 0 unless the shorter path agrees as a whole."""
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
    """Refuse a camera of a file without an image size whose principal point does not suit the photo's size."""
    cx, cy = camera.params[2:4].tolist()
    offset = max(abs(cx / camera.width - 0.5), abs(cy / camera.height - 0.5))
    if offset > MAX_OFFSET:
        raise ValueError(
            f"it names no image size, and its principal point ({cx:.0f}, {cy:.0f}) is far from the middle of "
            f"{camera.width}×{camera.height}: probably calibrated at another size; write the size into the file"
        )
