"""Evaluation datasets: where one is downloaded, and its scenes of frames with camera, pose and true depth.

The image and the truth of a frame are sources, which are read when a part of the frame is loaded at the size of a
protocol. A source of depth returns a map for any part at any size, so that meshes are cast at and LiDAR points are
projected with exactly the rays that are scored.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.geometry.pose import Pose
from g_ray.media.depth import Convention, convert_to_ray_depth
from g_ray.rays.ray_map import RayMap
from g_ray.rays.resample import Box, fit_box, resample

if TYPE_CHECKING:
    from g_ray_lab.datasets.dtu import VolumeFiles

Unit = Literal["m", "mm", "none"]
"""Unit of a scene's world; "none" where the dataset has no unit."""

ROUNDED = 6
"""Decimals of cameras and poses that a fingerprint includes."""


@dataclass(frozen=True)
class Framing:
    """A part of an image and the size that it is resized to."""

    width: int
    height: int
    box: Box

    @staticmethod
    def whole(camera: Camera, width: int, height: int) -> "Framing":
        """Take the whole image, each axis scaled by its own factor."""
        return Framing(width, height, (0.0, 0.0, float(camera.width), float(camera.height)))

    @staticmethod
    def fit(camera: Camera, width: int, height: int, zoom: float | int = 1.0) -> "Framing":
        """Take the largest part in the middle that has the new shape; `zoom` > 1 takes 1/zoom of it."""
        left, top, right, bottom = fit_box(camera.width, camera.height, width, height, zoom)
        # Rounding must not lead out of the image.
        box = (max(left, 0.0), max(top, 0.0), min(right, camera.width), min(bottom, camera.height))
        return Framing(width, height, box)

    def apply(self, camera: Camera) -> Camera:
        """Return the camera of that part at that size."""
        return camera.resize(self.width, self.height, self.box)


class FileSource(ABC):
    """Something of a frame that is stored in a file."""

    path: Path

    def list_files(self) -> tuple[Path, ...]:
        """List the files that are read."""
        return (self.path,)


class ImageSource(FileSource):
    """Where the pixels of a frame come from."""

    @abstractmethod
    def load(self) -> Float[Tensor, "3 h w"]:
        """Read red, green and blue in [0, 1]; OSError or ValueError names a file that cannot be read."""

    def load_for(self, camera: Camera) -> Float[Tensor, "3 h w"]:
        """Read the image; ValueError if its size differs from its camera's."""
        image = self.load()
        size, expected = (image.shape[2], image.shape[1]), (camera.width, camera.height)
        if size != expected:
            raise ValueError(
                f"{self.path} is {size[0]}×{size[1]} px, but its camera takes {expected[0]}×{expected[1]}: "
                "unpack the original file again"
            )
        return image

    def load_framed(self, camera: Camera, framing: Framing) -> Float[Tensor, "3 h w"]:
        """Read a part of the image at a size, antialiased; ValueError if the image has not the camera's size."""
        return resample(self.load_for(camera), camera, framing.width, framing.height, framing.box)[0]


class DepthSource(FileSource):
    """Where the true depth of a frame comes from."""

    convention: Convention = "z"

    @abstractmethod
    def sample(self, frame: "EvaluationFrame", framing: Framing) -> Float[Tensor, "h w"]:
        """Return depth at the pixel centers of a part of the frame; 0 or not finite where none is known."""


class MaskSource:
    """Which pixels of a frame are scored; subclasses define `load`, or `sample` where it is not a lookup."""

    def load(self, camera: Camera) -> Bool[Tensor, "h w"]:
        """Read the mask of the whole image."""
        raise NotImplementedError

    def sample(self, camera: Camera, framing: Framing) -> Bool[Tensor, "h w"]:
        """Look the mask up at the pixel centers of a part of the image that `camera` takes."""
        mask, (left, top, right, bottom) = self.load(camera), framing.box
        columns = _locate_centers(framing.width, left, right, mask.shape[1])
        rows = _locate_centers(framing.height, top, bottom, mask.shape[0])
        return mask[rows[:, None], columns]


def _locate_centers(count: int, start: float, stop: float, size: int) -> Tensor:
    places = start + (torch.arange(count, dtype=torch.float64) + 0.5) * (stop - start) / count
    return places.long().clamp(0, size - 1)


@dataclass(frozen=True, eq=False)
class EvaluationView:
    """A frame as a model gets it, with the truth it is scored against."""

    name: str
    device: str
    image: Float[Tensor, "3 h w"]
    camera: Camera
    pose: Pose | None
    """`world_from_cam`, float64; None where the dataset has none."""
    ray_depth: Float[Tensor, "h w"]
    """Distance along the unit ray; 0 where it is unknown."""
    valid: Bool[Tensor, "h w"]
    """Where the truth is known and not masked out."""


@dataclass(frozen=True, eq=False)
class EvaluationFrame:
    """One image of a scene with everything that is known about it. Camera and pose are float64."""

    name: str
    """Unique in its scene and the same on every machine: view indices are made of names."""
    image: ImageSource
    camera: Camera
    pose: Pose | None
    """`world_from_cam`; None in datasets that have depth alone."""
    depth: DepthSource | None = None
    mask: MaskSource | None = None
    device: str = ""
    """Which camera of a scene took it, e.g. "dslr" or "iphone"; empty if there is only one."""
    time_s: float | None = None

    def get_pose(self) -> Pose:
        """Return the pose; ValueError if there is none."""
        if self.pose is None:
            raise ValueError(f"frame {self.name} has no pose: its dataset has depth alone")
        return self.pose

    def load_depth(self, framing: Framing) -> tuple[Float[Tensor, "h w"], Bool[Tensor, "h w"]]:
        """Return the distance along the rays of a part of the image, 0 where unknown, and where it is known."""
        rays = RayMap.from_camera(framing.apply(self.camera))
        if self.depth is None:
            return torch.zeros(rays.shape), torch.zeros(rays.shape, dtype=torch.bool)
        sampled = self.depth.sample(self, framing).to(rays.dtype)
        along, valid = convert_to_ray_depth(sampled, rays, self.depth.convention)
        if self.mask is not None:
            valid = valid & self.mask.sample(self.camera, framing)
        return torch.where(valid, along, 0).float(), valid

    def load_view(self, framing: Framing) -> EvaluationView:
        """Read image and truth of a part of the frame at a size."""
        image = self.image.load_framed(self.camera, framing)
        camera = framing.apply(self.camera)
        depth, valid = self.load_depth(framing)
        return EvaluationView(
            self.name, self.device, image.clamp(0, 1), camera.to(torch.float32), self.pose, depth, valid
        )


@dataclass(frozen=True, eq=False)
class EvaluationScene:
    """The frames of a scene, in the order of the dataset, in one world."""

    name: str
    dataset: str
    """Key of `DATASETS`."""
    frames: tuple[EvaluationFrame, ...]
    unit: Unit = "m"
    surface: Path | None = None
    """True mesh or point cloud in the same world, where the dataset has one."""
    volume: "VolumeFiles | None" = None
    """Part of space that the surface covers, where the dataset has files of it."""
    notes: tuple[str, ...] = ()
    """What was decided or left out while reading, a sentence each."""
    by_name: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.frames:
            raise ValueError(f"{self.dataset}, scene {self.name}: no frames; unpack the dataset again")
        object.__setattr__(self, "by_name", {frame.name: i for i, frame in enumerate(self.frames)})
        if len(self.by_name) < len(self.frames):
            names = [frame.name for frame in self.frames]
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"{self.dataset}, scene {self.name}: two frames are named {twice!r}")
        for frame in self.frames:
            if frame.pose is not None and not bool(torch.isfinite(frame.pose.world_from_cam).all()):
                raise ValueError(
                    f"{self.dataset}, scene {self.name}: the pose of {frame.name} is not finite: leave the frame out, "
                    "or unpack the dataset again"
                )

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, name: str) -> EvaluationFrame:
        if name not in self.by_name:
            raise ValueError(f"{self.dataset}, scene {self.name}: no frame named {name!r}")
        return self.frames[self.by_name[name]]

    @property
    def poses(self) -> Pose:
        """All poses [frame, 4, 4], float64; ValueError if frames have none."""
        return Pose(torch.stack([frame.get_pose().world_from_cam for frame in self.frames]))

    @property
    def devices(self) -> tuple[str, ...]:
        """The device of every frame."""
        return tuple(frame.device for frame in self.frames)

    def fingerprint(self) -> str:
        """Hash names, cameras and poses, but no path and no pixel: it differs if the dataset was changed."""
        digest = hashlib.sha256()
        for frame in self.frames:
            camera, parts = frame.camera, [frame.camera.params.flatten().double()]
            if frame.pose is not None:
                parts.append(frame.pose.world_from_cam[:3].flatten().double())
            # Adding 0 turns −0 into 0.
            numbers = " ".join(
                f"{round(value, ROUNDED) + 0.0:.{ROUNDED}f}" for value in torch.cat(parts).tolist()
            )
            head = f"{frame.name} {frame.device} {camera.NAME} {camera.width} {camera.height}"
            digest.update(f"{head} {numbers}\n".encode())
        return digest.hexdigest()[:16]

    def list_surface_files(self) -> tuple[Path, ...]:
        """List the files of the true surface and its volume."""
        volume = () if self.volume is None else (self.volume.mask, self.volume.plane)
        return (*(() if self.surface is None else (self.surface,)), *volume)

    def list_missing_files(self) -> Iterator[Path]:
        """Yield the files of images and depth that are not there."""
        for frame in self.frames:
            sources = (frame.image, frame.depth)
            paths = [path for source in sources if source is not None for path in source.list_files()]
            yield from (path for path in paths if not path.is_file())


# Datasets


@dataclass(frozen=True)
class Download:
    """A dataset as it is distributed; several readers may share one.

    Licenses are as far as they are known; the provider's page decides. Nothing is downloaded automatically: several
    datasets require an account and consent.
    """

    name: str
    """What `g-ray data prepare` takes."""
    title: str
    page: str
    license: str
    files: tuple[str, ...]
    """What to download, a sentence each."""
    layout: tuple[str, ...]
    """Paths that must be there after unpacking, for people."""
    archives: tuple[str, ...] = ()
    """Patterns of archives that are unpacked; folders that are unpacked already are linked."""
    nested: tuple[str, ...] = ()
    """Patterns of archives inside of them, each unpacked next to itself."""
    real_levels: int = 0
    """Levels of folders that are made instead of linked, so that something can be put into them."""

    def explain(self) -> str:
        """Describe where the dataset is downloaded, under which license, and what must be there."""
        lines = [self.title, f"  page     {self.page}", f"  license  {self.license}"]
        for head, texts in (("files", self.files), ("layout", self.layout)):
            lines += [f"  {head if i == 0 else '':8} {text}" for i, text in enumerate(texts)]
        return "\n".join(lines)


@dataclass(frozen=True)
class Dataset:
    """One way to read a download."""

    title: str
    source: Download
    list_scenes: Callable[[Path], list[str]]
    read: Callable[[Path, str], EvaluationScene]
    """`read(root, scene)`; ValueError or OSError in one line if anything is wrong."""
    depth: Literal["dense", "sparse", "none"] = "dense"
    folder: str = ""
    """Where its scenes are in the download; they may also lie in the root itself."""

    @property
    def download(self) -> str:
        """Key of `DOWNLOADS`."""
        return self.source.name

    def find_root(self, root: Path) -> Path:
        """Return the folder that `list_scenes` and `read` take, of a prepared download or of itself."""
        return root / self.folder if (root / self.folder).is_dir() else root
