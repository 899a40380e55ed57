"""Photographs: find them in files, folders, patterns and videos, and decide which way up their pixels are used.

One rule holds for every command (`orient_photo`). Pixels are turned upright according to EXIF, unless the user wants
them as stored, or the cameras come from a tool that ignores EXIF (COLMAP, nerfstudio and other scene folders). Where
only one of the two orientations has the shape that the camera was calibrated for, that one is taken.
"""

import glob
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from g_ray.media import video
from g_ray.media.images import HEIF_SUFFIXES, TURNED, check_decodable, read_header, read_photo
from g_ray.rays.resample import resample_image
from g_ray.runtime.out_folder import is_output

SUFFIXES = (
    ".jpg",
    ".jpeg",
    ".png",
    ".tif",
    ".tiff",
    ".bmp",
    ".webp",
    ".ppm",
    ".pgm",
    ".jp2",
    ".avif",
    *HEIF_SUFFIXES,
)
"""Files that are taken from a folder. A file that is named itself may have any suffix."""
UNREAD = (
    *(
        ".jxl",
        ".exr",
        ".hdr",
        ".dng",
        ".cr2",
        ".cr3",
        ".nef",
        ".nrw",
        ".arw",
        ".raf",
    ),
    *(".orf", ".rw2", ".pef", ".srw", ".gpr", ".3fr", ".psd"),
)
"""Photographs that nothing here decodes: they are left out with a note."""
MAX_FILES = 100_000
"""Files and folders below a given one, beyond which it cannot be meant, such as a home folder or a whole disk."""
MIN_SIZE = 32
"""Smallest side in pixels."""
FRAMES = 32
"""Frames of a video if the user gives no number."""
DEPTH_ENDINGS = (".depth.png", ".depth.proj.png")
"""Depth maps next to photographs, as 7-Scenes names them: images, but not photographs."""


@runtime_checkable
class Loadable(Protocol):
    """An image or a mask that is read when it is needed, e.g. a `Photo`."""

    def load(self) -> Tensor:
        """Read the pixels: red, green and blue in [0, 1] of an image, which ones may be used of a mask."""
        ...


class ReducedCopies:
    """Small copies of one photograph, so that it is decoded once for all sizes that are needed.

    Code that needs a copy announces it beforehand (`expect`). When the photograph is next decoded, for any purpose,
    all expected copies are made from it; each is released when it has been taken as often as it was expected.
    """

    def __init__(self) -> None:
        self._expected: Counter[int] = Counter()
        self._copies: dict[int, Float[Tensor, "3 h w"]] = {}

    def expect(self, long_side: int) -> None:
        self._expected[long_side] += 1

    def make(self, image: Float[Tensor, "3 h w"]) -> None:
        """Make the copies that are expected and not there yet."""
        for long_side in +self._expected:
            if long_side not in self._copies:
                self._copies[long_side] = reduce_image(image, long_side)

    def take(self, long_side: int) -> Float[Tensor, "3 h w"] | None:
        """Return a copy if it is there."""
        copy = self._copies.get(long_side)
        self._expected[long_side] -= 1
        if self._expected[long_side] <= 0:
            self._copies.pop(long_side, None)
        return copy


def reduce_image(image: Float[Tensor, "3 _ _"], long_side: int) -> Float[Tensor, "3 h w"]:
    """Return an image whose longer side has at most `long_side` pixels, antialiased."""
    height, width = image.shape[-2:]
    if max(width, height) <= long_side:
        return image
    return resample_image(image, *fit_size(width, height, long_side)).clamp(0, 1)


def fit_size(width: int, height: int, long_side: int) -> tuple[int, int]:
    """Return width and height, reduced so that the longer side has at most `long_side` pixels."""
    longest = max(width, height)
    if longest <= long_side:
        return width, height
    return max(2, round(width * long_side / longest)), max(2, round(height * long_side / longest))


@dataclass(frozen=True)
class Photo:
    """A photograph, or a frame of a video; `width` and `height` are those of what `load` returns."""

    name: str
    """Unique; a posix path relative to the folder that all photos have in common, e.g. "dslr/a.jpg"."""
    path: Path
    """The image file; for a frame, its video."""
    width: int
    height: int
    orientation: int = 1
    """EXIF orientation of the stored pixels."""
    upright: bool = True
    """Whether `load` turns the stored pixels by `orientation`."""
    time: int | None = None
    """Time stamp of a frame in its video."""
    copies: ReducedCopies = field(default_factory=ReducedCopies, init=False, repr=False, compare=False)
    features: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)
    """Features of the whole image (`g_ray.sfm.features`), once an estimate of the calibration has found them."""

    @classmethod
    def from_file(cls, path: Path, name: str, upright: bool = True) -> "Photo":
        """Read the header of an image file; OSError names a file that is not an image."""
        header = read_header(path)
        stored = cls(name, path, header.width, header.height, header.orientation, upright=False)
        return stored.turn(upright)

    def load(self) -> Float[Tensor, "3 h w"]:
        """Read red, green and blue in [0, 1]; OSError names a file that is damaged."""
        if self.time is not None:
            image = video.read_frame(self.path, self.time)
        else:
            image = read_photo(self.path, self.orientation if self.upright else 1)
        self.copies.make(image)
        return image

    def load_copy(self, long_side: int) -> Float[Tensor, "3 h w"]:
        """Read the photograph with at most `long_side` pixels on its longer side, from `copies` if it is there."""
        copy = self.copies.take(long_side)
        return reduce_image(self.load(), long_side) if copy is None else copy

    @property
    def is_turned(self) -> bool:
        """Whether `load` returns other pixels than are stored."""
        return self.upright and self.orientation != 1

    @property
    def place(self) -> Path:
        """Path of the photo; a frame has one as if its video were a folder."""
        return self.path if self.time is None else self.path.with_suffix("") / Path(self.name).name

    def turn(self, upright: bool) -> "Photo":
        """Return the same photo with its pixels upright, or as stored."""
        swap = upright != self.upright and self.orientation in TURNED
        width, height = (self.height, self.width) if swap else (self.width, self.height)
        return replace(self, width=width, height=height, upright=upright)


def orient_photo(photo: Photo, size: tuple[int, int] | None, ignores_exif: bool = False) -> Photo:
    """Return the photo in the orientation that its camera was calibrated for; see the module's rule.

    `size` is the width and height that the camera was calibrated at, if known; `ignores_exif` is true if the tool that
    calibrated it works on stored pixels. A photo that the user wants as stored is returned as it is.
    """
    if not photo.is_turned:
        return photo
    stored = photo.turn(upright=False)
    if size is not None:
        fits_upright, fits_stored = (
            has_same_aspect(size, (one.width, one.height)) for one in (photo, stored)
        )
        if fits_upright != fits_stored:
            return photo if fits_upright else stored
    return stored if ignores_exif else photo


def has_same_aspect(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Return whether one size is the other scaled, up to rounding to whole pixels."""
    scale = other[0] / one[0]
    return abs(one[1] * scale - other[1]) <= max(1.0, scale)


def find_photos(
    patterns: Sequence[str | os.PathLike[str]],
    *,
    every: int | None = None,
    frames: int | None = None,
    upright: bool = True,
    note: Callable[[str], None] = lambda text: None,
) -> list[Photo]:
    """Find photos in files, folders (with all below them), patterns with * ? [ ] and **, and videos.

    From a video, every `every`-th frame is taken, or `frames` spread evenly over it (32 if neither is given).
    `upright=False` leaves pixels as stored instead of turning them by EXIF. Depth maps of 7-Scenes in a folder or a
    pattern are left out, and reported in one line to `note`. Anything else that cannot be used is a
    ValueError or an OSError in one line that names it.
    """
    if isinstance(patterns, str | os.PathLike):
        patterns = [patterns]
    _check_sampling(every, frames)
    paths = [path for pattern in patterns for path in _expand_pattern(os.fspath(pattern), note)]
    if not paths:
        raise ValueError("no photos: give files, folders, patterns or a video")
    _check_unique([str(path) for path in paths], "is given twice; give every photo once")
    if (every or frames) and not any(_is_video(path) for path in paths):
        raise ValueError("every and frames choose frames of a video, but there is none among the photos")
    folder = Path(os.path.commonpath([path.parent for path in paths]))
    photos = []
    for path in paths:
        if _is_video(path):
            photos += _make_frames(path, folder, every, frames)
        else:
            photos.append(_make_photo(path, folder, upright))
    _check_unique([photo.name for photo in photos], "is the name of two photos; rename one of them")
    return sorted(photos, key=lambda photo: natural_sort_key(photo.name))


def check_photos(photos: Sequence[Photo]) -> None:
    """Decode every photo once, so that a damaged one is noticed before hours of work; OSError names it.

    Frames of a video are decoded from one file, which was opened to find them.
    """
    for photo in photos:
        if photo.time is None:
            check_decodable(photo.path)


def natural_sort_key(name: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts a2 before a10, and upper and lower case together."""
    parts = re.split(r"(\d+)", name)
    key = [(1, int(part), "") if part.isdecimal() else (0, 0, part.casefold()) for part in parts]
    return [*key, (0, 0, name)]


def _check_sampling(every: int | None, frames: int | None) -> None:
    if every is not None and frames is not None:
        raise ValueError("every and frames: give one of them")
    for name, value in (("every", every), ("frames", frames)):
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 1")


def _expand_pattern(pattern: str, note: Callable[[str], None]) -> list[Path]:
    """Return the absolute paths that one argument stands for."""
    path = Path(os.path.abspath(os.path.expanduser(pattern)))
    if not pattern:
        raise ValueError("an empty path among the photos; give files, folders, patterns or a video")
    if path.is_dir():
        return _find_images(path, note)
    if path.exists() or not glob.has_magic(pattern):
        return [path]
    matches = sorted(
        Path(os.path.abspath(hit)) for hit in glob.glob(os.path.expanduser(pattern), recursive=True)
    )
    files = [hit for hit in matches if hit.is_file()]
    if not files:
        raise ValueError(f"{pattern}: no file matches this pattern")
    return _leave_out_depth(files, pattern, note)


def _leave_out_depth(paths: list[Path], source: str, note: Callable[[str], None]) -> list[Path]:
    photos = [path for path in paths if not path.name.lower().endswith(DEPTH_ENDINGS)]
    if not photos and paths:
        raise ValueError(
            f"{source}: only depth maps ({paths[0].name}, …), no photographs; give the color images"
        )
    if len(photos) < len(paths):
        note(
            f"{source}: {len(paths) - len(photos)} depth maps (*{DEPTH_ENDINGS[0]}) are not taken for photographs"
        )
    return photos


def _find_images(folder: Path, note: Callable[[str], None]) -> list[Path]:
    listed = list(islice(folder.rglob("*"), MAX_FILES + 1))
    if len(listed) > MAX_FILES:
        raise ValueError(
            f"{folder}: more than {MAX_FILES:,} files below it: give the folder of the photographs"
        )
    visible = [path for path in sorted(listed) if not _is_hidden(path.relative_to(folder))]
    outputs = [path for path in visible if path.is_dir() and is_output(path)]
    if outputs:
        visible = [path for path in visible if not set(path.parents) & set(outputs)]
        note(f"{folder}: left out is what g-ray wrote into {_abbreviate(outputs)}")
    # Pipes and dangling links stay in the list: opening them raises a clear error.
    images = [path for path in visible if path.suffix.lower() in SUFFIXES and not path.is_dir()]
    films = [path for path in visible if _is_video(path)]
    unread = [path for path in visible if path.suffix.lower() in UNREAD]
    if not images:
        hint = f"; it has a video: give {films[0]}" if films else f" ({', '.join(SUFFIXES)})"
        hint = f"; convert {unread[0].name} and others of its kind to JPEG or PNG" if unread else hint
        raise ValueError(f"{folder}: no images in this folder{hint}")
    if unread:
        note(f"{folder}: left out are {_abbreviate(unread)}: convert them to JPEG or PNG to use them")
    links = [path for path in visible if path.is_symlink() and path.is_dir()]
    if links:
        note(
            f"{folder}: links to folders are not followed ({_abbreviate(links)}): give these folders themselves"
        )
    if films:
        note(f"{folder}: left out are {_abbreviate(films)}: give videos by their names to use them")
    return _leave_out_depth(images, str(folder), note)


def _abbreviate(paths: Sequence[Path]) -> str:
    return ", ".join(path.name for path in paths[:3]) + (f", … ({len(paths)})" if len(paths) > 3 else "")


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _is_video(path: Path) -> bool:
    return path.suffix.lower() in video.SUFFIXES


def _make_photo(path: Path, folder: Path, upright: bool) -> Photo:
    if path.is_file() and path.stat().st_size == 0:
        raise OSError(f"{path}: an empty file, not an image")
    return _check_size(Photo.from_file(path, path.relative_to(folder).as_posix(), upright))


def _make_frames(path: Path, folder: Path, every: int | None, frames: int | None) -> list[Photo]:
    times = video.read_frame_times(path)
    indices = video.choose_frames(len(times), every, frames or FRAMES)
    height, width = video.read_frame(path, times[indices[0]]).shape[1:]
    stem = path.relative_to(folder).with_suffix("").as_posix()
    first = _check_size(Photo(stem, path, width, height, time=times[indices[0]]))
    return [replace(first, name=f"{stem}/frame_{i:06d}.png", time=times[i]) for i in indices]


def _check_size(photo: Photo) -> Photo:
    if min(photo.width, photo.height) < MIN_SIZE:
        raise ValueError(
            f"{photo.path}: {photo.width}×{photo.height} px is too small; give at least {MIN_SIZE}×{MIN_SIZE}"
        )
    return photo


def _check_unique(names: list[str], problem: str) -> None:
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"{twice} {problem}")
