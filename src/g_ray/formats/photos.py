"""The photographs of a run: files, folders, patterns and videos become named photos in natural order."""

import glob
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jaxtyping import Float
from torch import Tensor

from g_ray.formats import video
from g_ray.formats.exif import Exif, read_exif
from g_ray.formats.images import TURNED, read_pixels

SUFFIXES = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".webp", ".ppm", ".pgm", ".jp2", ".avif")
"""What is taken from a folder. A file that is named itself may have any suffix."""
MIN_SIZE = 32
"""Pixels a side."""
FRAMES = 32
"""Of a video, where nobody says how many."""
DEPTH_ENDINGS = (".depth.png", ".depth.proj.png")
"""Depth maps beside photographs, as 7-Scenes names them: images, but no photographs."""


@dataclass(frozen=True)
class Photo:
    """A photograph, or a frame of a video; `width` and `height` are those of what `load` gives."""

    name: str
    """Unique; a posix path relative to the folder that all photos have in common, e.g. "dslr/a.jpg"."""
    path: Path
    """The file; a frame has its video's."""
    width: int
    height: int
    orientation: int = 1
    """EXIF's; the stored pixels are turned by it if `upright`."""
    upright: bool = True
    time: int | None = None
    """A frame's time stamp in its video."""

    def load(self) -> Float[Tensor, "3 h w"]:
        """Red, green and blue in [0, 1]; OSError that names the file if it is broken."""
        if self.time is not None:
            return video.read_frame(self.path, self.time)
        return read_pixels(self.path, self.orientation if self.upright else 1)

    @property
    def place(self) -> Path:
        """Where the photo lies; a frame, as if its video were a folder."""
        return self.path if self.time is None else self.path.with_suffix("") / Path(self.name).name

    def exif(self) -> Exif:
        """Of a frame: its size alone."""
        return read_exif(self.path) if self.time is None else Exif(self.width, self.height)


def find_photos(
    patterns: Sequence[str | os.PathLike[str]],
    *,
    every: int | None = None,
    frames: int | None = None,
    upright: bool = True,
    note: Callable[[str], None] = lambda text: None,
) -> list[Photo]:
    """Photos from files, folders (with all below them), patterns with * ? [ ] and ** , and videos.

    Of a video every `every`-th frame is taken, or `frames` spread evenly over it (32 if neither is given).
    `upright=False` leaves pixels as stored: EXIF's orientation is then not applied. Depth maps of 7-Scenes in a folder
    or a pattern are left out, and `note` is called with a line that says so. Anything else that cannot be used is a
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


def natural_sort_key(name: str) -> list[tuple[int, int, str]]:
    """Sorts a2 before a10; upper and lower case together."""
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
    """Absolute paths of one argument."""
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
    visible = [path for path in sorted(folder.rglob("*")) if not _is_hidden(path.relative_to(folder))]
    images = [path for path in visible if path.suffix.lower() in SUFFIXES and path.is_file()]
    if not images:
        films = [path.name for path in visible if _is_video(path)]
        hint = f"; it has a video: give {folder / films[0]}" if films else f" ({', '.join(SUFFIXES)})"
        raise ValueError(f"{folder}: no images in this folder{hint}")
    return _leave_out_depth(images, str(folder), note)


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _is_video(path: Path) -> bool:
    return path.suffix.lower() in video.SUFFIXES


def _make_photo(path: Path, folder: Path, upright: bool) -> Photo:
    if path.is_file() and path.stat().st_size == 0:
        raise OSError(f"{path}: an empty file, not an image")
    exif = read_exif(path)
    width, height = exif.width, exif.height
    if upright and exif.orientation in TURNED:
        width, height = height, width
    name = path.relative_to(folder).as_posix()
    return _check_size(Photo(name, path, width, height, exif.orientation, upright))


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
