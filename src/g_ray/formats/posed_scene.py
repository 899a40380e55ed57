"""What scene formats share: a folder of photographs with known cameras and poses, and checks of its files."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.formats.calibration_source import CalibratedView
from g_ray.formats.documents import describe
from g_ray.geometry.pose import Pose
from g_ray.media.depth import DepthFile
from g_ray.media.images import read_photo, read_photo_size
from g_ray.media.mask_file import MaskFile
from g_ray.media.photos import Photo, orient_photo


@dataclass(frozen=True)
class SceneFormat:
    """How scene folders of one kind are recognized and read."""

    title: str
    """For people; `PosedScene.kind`."""
    marker: str
    """What a folder of this kind holds, for messages."""
    recognizes: Callable[[Path], bool]
    read: Callable[..., "PosedScene"]
    """`read(folder, check)`; without `check` photographs are not opened. With `modalities`, a third argument names the
    depth to take."""
    modalities: bool = False
    """Whether a folder can hold several kinds of depth."""


@dataclass(frozen=True, eq=False)
class PosedScene:
    """One camera and one pose per photograph, in float64, ordered by name (WAI: as the file orders them).

    Pixels count from the top-left corner, centers at +0.5; poses are `world_from_cam` with OpenCV axes, in the world
    and the unit of the file. The tools that write scene folders ignore EXIF orientation, so cameras are of the stored
    pixels, unless their size shows that they are of the upright ones (`orient_photo`).
    """

    folder: Path
    kind: str
    """Title of its format: nerfstudio, COLMAP, WAI or 7-Scenes."""
    names: tuple[str, ...]
    """As the file names its images."""
    images: tuple[Path, ...]
    cameras: tuple[Camera, ...]
    poses: Pose
    """[view, 4, 4]"""
    notes: tuple[str, ...] = ()
    """What the folder holds and this reader does not use, a sentence each."""
    depth: tuple[DepthFile | None, ...] = ()
    """One per view, None where a view has none; empty if no view has any. Files may be missing."""
    covisibility: Path | None = None
    """A matrix [view, view] on disk: how much of view i view j sees."""
    masks: tuple[MaskFile | None, ...] = ()
    """One per view, None where all pixels may be used; empty if no view has any. Files may be missing."""

    def __len__(self) -> int:
        return len(self.names)

    @property
    def summary(self) -> str:
        models = ", ".join(sorted({camera.NAME for camera in self.cameras}))
        return f"{self.folder}: {self.kind}, {len(self)} images ({models})"

    def find_index(self, name: str) -> int:
        """Return the index of an image: by its name in the file, its path, or an end of its path that no other has."""
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

    def get_view(self, view: int) -> CalibratedView:
        """Return camera and pose of a view."""
        return CalibratedView(self.names[view], self.cameras[view], self.poses[view], self.kind)

    def load_mask(self, view: int) -> Bool[Tensor, "h w"] | None:
        """Read which pixels of a view may be used; None: all. OSError or ValueError if the mask cannot be used."""
        mask = self.masks[view] if self.masks else None
        return None if mask is None else mask.load()

    def load_photo(self, view: int) -> Float[Tensor, "3 h w"]:
        """Read the photograph of a view in [0, 1], the way up that its camera was calibrated for.

        OSError if it cannot be read, ValueError if it does not have the size that its camera takes.
        """
        path, camera = self.images[view], self.cameras[view]
        photo = read_photo(path)
        if not _has_size(camera, photo.shape[-1], photo.shape[-2]):
            photo = _orient_for_camera(path, camera).load()
        return photo


def resolve_inside(folder: Path, name: str) -> Path:
    """Return the path of a file that a document names; ValueError if it leads out of the folder."""
    windows = PureWindowsPath(name)
    # A colon is part of a name here, "a:b.jpg", and of a drive on Windows.
    on_drive = windows.drive and (os.name == "nt" or windows.root)
    if not name or on_drive or windows.root or ".." in windows.parts:
        raise ValueError(
            f"{folder}: path {describe(name)} leads out of the scene folder; name images inside of it"
        )
    if "\0" in name or any("\ud800" <= character <= "\udfff" for character in name):
        raise ValueError(f"{folder}: {describe(name)} cannot be the name of a file; rename the image")
    return folder / name


def find_covisibility_file(folder: Path) -> Path | None:
    """Return the covisibility matrix where MapAnything keeps it, in a folder of any kind."""
    return next(iter(sorted(folder.glob("covisibility/v0/*.npy"))), None)


def check_photos(names: Sequence[str], images: Sequence[Path], cameras: Sequence[Camera]) -> None:
    """Check that images exist and have the size that their camera takes; ValueError names the first that does not."""
    missing = [name for name, path in zip(names, images, strict=True) if not path.is_file()]
    if missing:
        some = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        raise ValueError(
            f"{len(missing)} of {len(names)} images are missing: {some}; looked for {_find_first_missing(images)}"
        )
    for path, camera in zip(images, cameras, strict=True):
        check_photo_size(path, camera)


def check_photo_size(path: Path, camera: Camera) -> None:
    """Check that a photograph has the size that its camera takes, as stored or upright."""
    if not _has_size(camera, *read_photo_size(path)):
        _orient_for_camera(path, camera)


def _orient_for_camera(path: Path, camera: Camera) -> Photo:
    """Return a photograph the way up that its camera was calibrated for; ValueError if neither has its size."""
    photo = orient_photo(Photo.from_file(path, path.name), (camera.width, camera.height), ignores_exif=True)
    if not _has_size(camera, photo.width, photo.height):
        turned = (photo.height, photo.width) == (camera.width, camera.height)
        hint = "it is stored turned by 90°" if turned else "resize image and calibration together"
        raise ValueError(
            f"{path} is {photo.width}×{photo.height} px, but its camera takes {camera.width}×{camera.height}: {hint}"
        )
    return photo


def _has_size(camera: Camera, width: int, height: int) -> bool:
    return (width, height) == (camera.width, camera.height)


def check_depth_size(path: Path, depth: Float[Tensor, "h w"], camera: Camera) -> None:
    """Check that a depth map has the shape of its photograph; it may be coarser or finer."""
    height, width = depth.shape
    wrong = max(
        abs(width * camera.height / camera.width - height), abs(height * camera.width / camera.height - width)
    )
    if wrong > 1:
        raise ValueError(
            f"{path} is {width}×{height} px, its photograph {camera.width}×{camera.height}: not of one shape; "
            "make depth maps for the photographs as they are"
        )


def _find_first_missing(images: Sequence[Path]) -> Path:
    return next(path for path in images if not path.is_file())
