"""What scene formats share: a folder of photographs with known cameras and poses, and checks of its files."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath

import torch

from g_ray.cameras.camera import Camera
from g_ray.formats.documents import describe
from g_ray.geometry.pose import Pose
from g_ray.media.depth import DepthFile
from g_ray.media.images import read_photo_size
from g_ray.media.view import View, orient_for_camera


@dataclass(frozen=True)
class SceneFormat:
    """How scene folders of one kind are recognized and read."""

    title: str
    """Display name; `PosedScene.kind`."""
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
    views: tuple[View, ...]
    """With image (a path), camera and pose; depth and mask where the folder has them. Files may be missing."""
    notes: tuple[str, ...] = ()
    """What the folder holds and this reader does not use, a sentence each."""
    covisibility: Path | None = None
    """A matrix [view, view] on disk: how much of view i view j sees."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the images as in the file."""
        return tuple(view.name for view in self.views)

    @cached_property
    def images(self) -> tuple[Path, ...]:
        return tuple(view.image for view in self.views if isinstance(view.image, Path))

    @cached_property
    def cameras(self) -> tuple[Camera, ...]:
        return tuple(view.camera for view in self.views)

    @cached_property
    def poses(self) -> Pose:
        """[view, 4, 4]"""
        return Pose(torch.stack([view.get_pose().world_from_cam for view in self.views]))

    @cached_property
    def depth(self) -> tuple[DepthFile | None, ...]:
        """One per view, None where a view has none; empty if no view has any."""
        files = tuple(view.depth if isinstance(view.depth, DepthFile) else None for view in self.views)
        return files if any(files) else ()

    def __len__(self) -> int:
        return len(self.views)

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


def check_images(names: Sequence[str], images: Sequence[Path], cameras: Sequence[Camera]) -> None:
    """Check that images exist and have the size that their camera takes; ValueError names the first that does not."""
    missing = [name for name, path in zip(names, images, strict=True) if not path.is_file()]
    if missing:
        some = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        first = next(path for path in images if not path.is_file())
        raise ValueError(f"{len(missing)} of {len(names)} images are missing: {some}; looked for {first}")
    for path, camera in zip(images, cameras, strict=True):
        check_photo_size(path, camera)


def check_photo_size(path: Path, camera: Camera) -> None:
    """Check that a photograph has the size that its camera takes, as stored or upright."""
    if read_photo_size(path) != (camera.width, camera.height):
        orient_for_camera(path, camera)
