"""A folder of photographs with known cameras and poses, whichever tool has written it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.base import Camera
from g_ray.formats.depth import DepthFile
from g_ray.formats.images import read_photo_size
from g_ray.geometry.pose import Pose


@dataclass(frozen=True, eq=False)
class PosedScene:
    """One camera and one pose per photograph, in float64, ordered by name (WAI: as the file orders them).

    Pixels count from the top-left corner, centres at +0.5; poses are `world_from_cam` with OpenCV axes, in the world
    and the unit of the file.
    """

    folder: Path
    kind: str
    """Who wrote it: nerfstudio, COLMAP, WAI or 7-Scenes."""
    names: tuple[str, ...]
    """As the file names its images."""
    images: tuple[Path, ...]
    cameras: tuple[Camera, ...]
    poses: Pose
    """[view, 4, 4]"""
    notes: tuple[str, ...] = ()
    """What the folder holds and this reader leaves aside, a sentence each."""
    depth: tuple[DepthFile | None, ...] = ()
    """One per view, None where a view has none; empty if no view has any. Files may be missing."""
    covisibility: Path | None = None
    """A matrix [view, view] on disk: how much of view i view j sees."""

    def __len__(self) -> int:
        return len(self.names)

    @property
    def summary(self) -> str:
        models = ", ".join(sorted({camera.NAME for camera in self.cameras}))
        return f"{self.folder}: {self.kind}, {len(self)} images ({models})"

    def find_index(self, name: str) -> int:
        """Where an image is: by its name in the file, its path, or any end of its path that only one image has."""
        if name in self.names:
            return self.names.index(name)
        paths = [image.absolute() for image in self.images]
        if Path(name).absolute() in paths:
            return paths.index(Path(name).absolute())
        parts = PurePosixPath(name).parts
        matches = [
            i for i, known in enumerate(self.names) if PurePosixPath(known).parts[-len(parts) :] == parts
        ]
        if len(matches) != 1:
            what = f"{len(matches)} images" if matches else "no image"
            some = ", ".join(self.names[:3]) + (", …" if len(self) > 3 else "")
            raise ValueError(f"{self.folder}: {what} named {name!r}; it has {some}")
        return matches[0]


def resolve_inside(folder: Path, name: str) -> Path:
    """A path that a file names; it may not lead out of the folder."""
    windows = PureWindowsPath(name)
    if not name or "\0" in name or windows.drive or windows.root or ".." in windows.parts:
        raise ValueError(f"{folder}: path {name!r} leads out of the scene folder; name images inside of it")
    return folder / name


def find_covisibility_file(folder: Path) -> Path | None:
    """Where MapAnything keeps it, in a folder of any kind."""
    return next(iter(sorted(folder.glob("covisibility/v0/*.npy"))), None)


def check_photos(names: Sequence[str], images: Sequence[Path], cameras: Sequence[Camera]) -> None:
    """Every image is there and has the size that its camera takes; ValueError names those that are not or have not."""
    missing = [name for name, path in zip(names, images, strict=True) if not path.is_file()]
    if missing:
        some = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        raise ValueError(
            f"{len(missing)} of {len(names)} images are missing: {some}; looked for {_find_first_missing(images)}"
        )
    for path, camera in zip(images, cameras, strict=True):
        check_photo_size(path, camera)


def check_photo_size(path: Path, camera: Camera) -> None:
    _check_size(path, *read_photo_size(path), camera)


def check_loaded_photo(path: Path, photo: Float[Tensor, "3 h w"], camera: Camera) -> None:
    """The same of a photograph that has been read."""
    _check_size(path, photo.shape[-1], photo.shape[-2], camera)


def check_depth_size(path: Path, depth: Float[Tensor, "h w"], camera: Camera) -> None:
    """A depth map may be coarser or finer than its photograph, but not of another shape."""
    height, width = depth.shape
    wrong = max(
        abs(width * camera.height / camera.width - height), abs(height * camera.width / camera.height - width)
    )
    if wrong > 1:
        raise ValueError(
            f"{path} is {width}×{height} px, its photograph {camera.width}×{camera.height}: not of one shape; "
            "make depth maps for the photographs as they are"
        )


def _check_size(path: Path, width: int, height: int, camera: Camera) -> None:
    if (width, height) != (camera.width, camera.height):
        turned = (height, width) == (camera.width, camera.height)
        hint = "it is stored turned by 90°" if turned else "resize image and calibration together"
        raise ValueError(
            f"{path} is {width}×{height} px, but its camera takes {camera.width}×{camera.height}: {hint}"
        )


def _find_first_missing(images: Sequence[Path]) -> Path:
    return next(path for path in images if not path.is_file())
