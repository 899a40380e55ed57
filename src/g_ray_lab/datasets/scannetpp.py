"""Read ScanNet++: a DSLR with a fisheye and an iPhone in one metric world, with a laser-scanned mesh.

ROOT/data/SCENE/dslr/colmap/{cameras,images}.txt               OPENCV_FISHEYE, of the resized images
ROOT/data/SCENE/dslr/resized_images/DSC*.JPG                   and resized_anon_masks/DSC*.png (255: kept); original_…
ROOT/data/SCENE/iphone/colmap/{cameras,images}.txt             OPENCV; names may begin with iphone/ or video/
ROOT/data/SCENE/iphone/rgb/frame_000000.jpg                    extracted frames; or rgb.mkv, whose frames are numbered
ROOT/data/SCENE/iphone/rgb_masks/frame_000000.png              extracted masks; or rgb_mask.mkv, frame by frame
ROOT/data/SCENE/scans/mesh_aligned_0.05.ply
ROOT/SCENE/merge_dslr_iphone/{images,colmap/sparse_render_rgb} both devices in one COLMAP model, as DA3-BENCH has them

nerfstudio/transforms.json is not read: its world has permuted axes. The depth of both devices is the distance to the
mesh along the true ray of each pixel. Anonymized pixels are not scored.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from PIL import Image
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.formats.colmap.colmap_model import is_model
from g_ray.formats.posed_scene import resolve_inside
from g_ray.media.images import read_photo_size
from g_ray.media.video import read_frame, read_frame_times, read_frames
from g_ray.media.view import JPEG_QUALITY, View
from g_ray.rays.ray_map import RayMap
from g_ray.runtime.files import atomic_path
from g_ray_lab.datasets.evaluation_scene import (
    Dataset,
    DepthSource,
    Download,
    EvaluationFrame,
    EvaluationScene,
    Framing,
    ImageSource,
    MaskSource,
)
from g_ray_lab.datasets.stored_frames import StoredImage, StoredMask, read_model_views
from g_ray_lab.datasets.undistortion import (
    UndistortedImage,
    UndistortedMask,
    choose_benchmark_pinhole,
    choose_inner_pinhole,
)
from g_ray_lab.meshes.mesh_files import read_meshes

if TYPE_CHECKING:
    from g_ray_lab.meshes.textured_scene import MeshScene

LICENSE = "ScanNet++ terms of use: non-commercial research, after an application"
DOWNLOAD = Download(
    "scannetpp",
    "ScanNet++ v2",
    "https://kaldir.vc.in.tum.de/scannetpp",
    LICENSE,
    (
        "with the official download script: split nvs_sem_val; dslr/colmap, dslr/resized_images, "
        "dslr/resized_anon_masks, iphone/colmap, iphone/rgb.mkv, iphone/rgb_mask.mkv, scans/mesh_aligned_0.05.ply",
        "for the zoom figure also dslr/original_images",
        "for Wid3R's protocol scannetpp_mv-recon_seq-id-map.json from github.com/jdk9405/Wid3R, "
        "evaluation/datasets/seq-id-maps",
    ),
    (
        "data/7b6477cb95/dslr/colmap/cameras.txt",
        "data/7b6477cb95/dslr/resized_images/DSC03667.JPG",
        "data/7b6477cb95/iphone/colmap/cameras.txt",
        "data/7b6477cb95/iphone/rgb.mkv",
        "data/7b6477cb95/scans/mesh_aligned_0.05.ply",
    ),
)
JOINT_DOWNLOAD = Download(
    "scannetpp-joint",
    "ScanNet++, both devices in one COLMAP model",
    "https://huggingface.co/datasets/haotongl/scannetpp_zipnerf",
    LICENSE,
    ("the dataset of that page, or scannetpp.zip of depth-anything/DA3-BENCH",),
    (
        "09c1414f1b/merge_dslr_iphone/colmap/sparse_render_rgb/cameras.bin",
        "09c1414f1b/merge_dslr_iphone/images/iphone/frame_000000.jpg",
        "09c1414f1b/scans/mesh_aligned_0.05.ply",
    ),
    archives=("scannetpp.zip",),
)
Device = Literal["dslr", "iphone"]
_NVS_SEM_VAL = """
7b6477cb95 c50d2d1d42 cc5237fd77 acd95847c5 fb5a96b1a2 a24f64f7fb 1ada7a0617 5eb31827b7 3e8bba0176 3f15a9266d
21d970d8de 5748ce6f01 c4c04e6d6c 7831862f02 bde1e479ad 38d58a7a31 5ee7c22ba0 f9f95681fd 3864514494 40aec5fffa
13c3e046d7 e398684d27 a8bf42d646 45b0dac5e3 31a2c91c43 e7af285f7d 286b55a2bf 7bc286c1b6 f3685d06a9 b0a08200c9
825d228aec a980334473 f2dc06b1d2 5942004064 25f3b7a318 bcd2436daf f3d64c30f8 0d2ee665be 3db0a1c8f3 ac48a9b736
c5439f4607 578511c8a9 d755b3d9d8 99fa5c25e1 09c1414f1b 5f99900f09 9071e139d9 6115eddb86 27dd4da69e c49a8c6cff
"""
VALIDATION_SCENES = tuple(_NVS_SEM_VAL.split())
"""The 50 scenes of nvs_sem_val, in the order of the split's file."""
MESH = Path("scans/mesh_aligned_0.05.ply")
JOINT = Path("merge_dslr_iphone")
JOINT_MODEL = JOINT / "colmap/sparse_render_rgb"
VIDEOS = ("rgb.mkv", "rgb.mp4")
MASK_VIDEO = "rgb_mask.mkv"
FRAMES, MASKS = "iphone_frames", "iphone_masks"
"""In the root: frames and masks that `extract_iphone_frames` has taken from videos, a folder per scene."""
KEPT = 0.5
"""Brightness of a mask's video above which a pixel is kept: compression blurs its two values."""


@dataclass(frozen=True)
class Stream:
    """The frames of one device, with its lens or undistorted."""

    device: Device
    undistorted: bool
    original: bool = False
    """The DSLR's full-size photographs instead of the resized ones."""


MIXED = (Stream("dslr", undistorted=False), Stream("iphone", undistorted=True))
"""Mixed projection, the paper's main protocol."""
UNDISTORTED = (Stream("dslr", undistorted=True), Stream("iphone", undistorted=True))
HIGH_RESOLUTION = (Stream("dslr", undistorted=True, original=True),)
FISHEYE = (Stream("dslr", undistorted=False),)
IPHONE = (Stream("iphone", undistorted=True),)


# Frames of videos, and depth from the mesh


@dataclass(frozen=True)
class VideoImage(ImageSource):
    """A frame of a video, counted from 0."""

    path: Path
    index: int

    def load(self) -> Float[Tensor, "3 h w"]:
        times = read_frame_times(self.path)
        if self.index >= len(times):
            raise OSError(f"{self.path}: {len(times)} frames, no frame {self.index}: download it again")
        return read_frame(self.path, times[self.index])


@dataclass(frozen=True)
class VideoMask(MaskSource):
    """A frame of a video of masks, counted from 0: bright pixels are scored."""

    video: VideoImage

    def load(self, camera: Camera) -> Bool[Tensor, "h w"]:
        kept = (self.video.load()[:1] > KEPT)[None].float()
        return F.interpolate(kept, (camera.height, camera.width), mode="nearest-exact")[0, 0] > 0.5


class MeshSurface:
    """A mesh on disk, prepared for rays when it is first cast at; the frames of a scene share it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def scene(self) -> "MeshScene":
        try:
            from g_ray_lab.meshes.textured_scene import MeshScene
        except ImportError:
            raise ValueError(
                f"{self.path}: casting at meshes needs embree; pip install 'g-ray[lab]'"
            ) from None
        if not self.path.is_file():
            raise OSError(f"{self.path}: no such mesh; download the scans of the scene")
        return MeshScene(read_meshes(self.path, up="z"), light=False)


@dataclass(frozen=True, eq=False)
class MeshDepth(DepthSource):
    """Distance to the first triangle of a mesh along the true ray of every pixel, for any lens."""

    surface: MeshSurface
    convention = "ray"

    @property
    def path(self) -> Path:  # type: ignore[override]
        return self.surface.path

    def sample(self, frame: EvaluationFrame, framing: Framing) -> Float[Tensor, "h w"]:
        rays = RayMap.from_camera(framing.apply(frame.camera))
        pose = frame.get_pose().to(torch.float64)
        directions = pose.rotate(rays.directions.double()).reshape(-1, 3)
        hits = self.surface.scene.cast(pose.translation.numpy(), directions.float().numpy())
        depth = torch.zeros(rays.valid.numel())
        depth[torch.from_numpy(hits.ray)] = torch.from_numpy(hits.distance)
        return depth.reshape(rays.shape) * rays.valid


# Scenes


def list_scannetpp(root: Path, streams: Sequence[Stream] = FISHEYE) -> list[str]:
    """List the scenes that have calibrations of some devices, and the full-size photographs if a stream needs them."""
    models = [Path(stream.device) / "colmap" for stream in streams]
    known = _list_scenes(root, models)
    if any(stream.original for stream in streams):
        known = [name for name in known if (_find_data(root) / name / "dslr" / "original_images").is_dir()]
    return known


def list_scannetpp_joint(root: Path) -> list[str]:
    """List the scenes that have one calibration of both devices."""
    return _list_scenes(root, [JOINT_MODEL])


def _list_scenes(root: Path, models: Sequence[Path]) -> list[str]:
    folders = sorted(_find_data(root).iterdir())
    return [folder.name for folder in folders if all(is_model(folder / model) for model in models)]


def _find_data(root: Path) -> Path:
    return root / "data" if (root / "data").is_dir() else root


def read_scannetpp(root: Path, name: str, dataset: str, streams: Sequence[Stream]) -> EvaluationScene:
    """Read the frames of some devices, device by device."""
    folder = _find_data(root) / name
    surface = MeshSurface(folder / MESH)
    frames = tuple(frame for stream in streams for frame in _read_stream(root, folder, stream, surface))
    return EvaluationScene(name, dataset, frames, surface=surface.path)


def read_scannetpp_joint(root: Path, name: str, dataset: str, streams: Sequence[Stream]) -> EvaluationScene:
    """Read frames whose cameras were adjusted together, from DA3-BENCH's layout."""
    folder = _find_data(root) / name
    surface = MeshSurface(folder / MESH)
    views = read_model_views(folder / JOINT_MODEL, "download haotongl/scannetpp_zipnerf or DA3-BENCH again")
    frames = []
    for stream in streams:
        for view in views:
            if ("iphone" in view.name) == (stream.device == "iphone"):
                image = StoredImage(resolve_inside(folder / JOINT / "images", view.name))
                frames.append(_make_frame(view, stream, image, None, surface))
    return EvaluationScene(name, dataset, tuple(frames), surface=surface.path)


def _read_stream(root: Path, folder: Path, stream: Stream, surface: MeshSurface) -> list[EvaluationFrame]:
    place, is_phone = folder / stream.device, stream.device == "iphone"
    views = read_model_views(place / "colmap", f"download {stream.device}/colmap of scene {folder.name}")
    kind = "original" if stream.original else "resized"
    images, masks = place / f"{kind}_images", place / f"{kind}_anon_masks"
    frames = []
    for view in _resize_views(images, views) if stream.original else views:
        if is_phone:
            image = _find_iphone_image(place, root / FRAMES / folder.name, view)
            mask = _find_iphone_mask(place, root / MASKS / folder.name, view)
        else:
            image, mask = StoredImage(images / _get_name(view)), _find_mask((masks,), view)
        frames.append(_make_frame(view, stream, image, mask, surface))
    return frames


def _find_mask(folders: Sequence[Path], view: View) -> MaskSource | None:
    """Return the mask of a view in the first folder that has one."""
    paths = [folder / f"{PurePosixPath(view.name).stem}.png" for folder in folders]
    return next((StoredMask(path, whole=True) for path in paths if path.is_file()), None)


def _make_frame(
    view: View, stream: Stream, image: ImageSource, mask: MaskSource | None, surface: MeshSurface
) -> EvaluationFrame:
    assert view.pose is not None
    name, depth = f"{stream.device}/{_get_name(view)}", MeshDepth(surface)
    if not stream.undistorted or view.camera.NAME == "pinhole":
        return EvaluationFrame(name, image, view.camera, view.pose, depth, mask, stream.device)
    camera = choose_pinhole(view.camera)
    warped = UndistortedImage(image, view.camera, camera)
    return EvaluationFrame(
        name, warped, camera, view.pose, depth, UndistortedMask(mask, view.camera), stream.device
    )


def choose_pinhole(camera: Camera) -> Camera:
    """Choose the pinhole that a lens is undistorted to: the benchmark's for the fisheye, for others the widest one
    without empty pixels."""
    is_fisheye = camera.NAME == "opencv_fisheye"
    return choose_benchmark_pinhole(camera) if is_fisheye else choose_inner_pinhole(camera)


def _get_name(view: View) -> str:
    return PurePosixPath(view.name).name


def _find_iphone_image(place: Path, extracted: Path, view: View) -> ImageSource:
    """Return the extracted frame, or the frame of the video whose number is in the name."""
    paths = [folder / _get_name(view) for folder in (place / "rgb", extracted)]
    path = next((path for path in paths if path.is_file()), paths[0])
    video = next((place / name for name in VIDEOS if (place / name).is_file()), None)
    if path.is_file() or video is None:
        return StoredImage(path)
    return VideoImage(video, _get_number(place, view))


def _find_iphone_mask(place: Path, extracted: Path, view: View) -> MaskSource | None:
    """Return the extracted mask, the frame of the masks' video whose number is in the name, or None."""
    stored, video = _find_mask((place / "rgb_masks", extracted), view), place / MASK_VIDEO
    if stored is not None or not video.is_file():
        return stored
    return VideoMask(VideoImage(video, _get_number(place, view)))


def _get_number(place: Path, view: View) -> int:
    """Return the number of a frame in its video."""
    number = PurePosixPath(view.name).stem.rpartition("_")[2]
    if not number.isdigit():
        raise ValueError(f"{place / 'colmap'}: {view.name} is not named after a frame, as frame_000000.jpg")
    return int(number)


def extract_iphone_frames(root: Path, name: str, report: Callable[[str], None]) -> None:
    """Decode a scene's videos once and write registered frames to ROOT/iphone_frames, their masks to ROOT/iphone_masks;
    those that are there stay."""
    place = _find_data(root) / name / "iphone"
    if not is_model(place / "colmap"):
        return
    views = read_model_views(place / "colmap", f"download iphone/colmap of scene {name}")
    frames: dict[int, Path] = {}
    masks: dict[int, Path] = {}
    for view in views:
        image = _find_iphone_image(place, root / FRAMES / name, view)
        mask = _find_iphone_mask(place, root / MASKS / name, view)
        if isinstance(image, VideoImage):
            frames[image.index] = root / FRAMES / name / _get_name(view)
        if isinstance(mask, VideoMask):
            masks[mask.video.index] = root / MASKS / name / f"{PurePosixPath(view.name).stem}.png"
    if frames:
        video = next(place / one for one in VIDEOS if (place / one).is_file())
        report(f"{name}: extracting {len(frames)} frames of {video.name}")
        for index, pixels in read_frames(video, sorted(frames)):
            with atomic_path(frames[index]) as scratch:
                Image.fromarray(pixels).save(scratch, format="jpeg", quality=JPEG_QUALITY, subsampling=0)
    if masks:
        report(f"{name}: extracting {len(masks)} masks of {MASK_VIDEO}")
        for index, pixels in read_frames(place / MASK_VIDEO, sorted(masks)):
            kept = (pixels[..., 0] > 255 * KEPT).astype(np.uint8) * 255
            with atomic_path(masks[index]) as scratch:
                Image.fromarray(kept).save(scratch, format="png")


def _resize_views(images: Path, views: list[View]) -> list[View]:
    """Scale cameras, which belong to the resized photographs, to the size of the original ones."""
    resized: dict[int, Camera] = {}
    for view in views:
        if id(view.camera) not in resized:
            resized[id(view.camera)] = view.camera.resize(*read_photo_size(images / _get_name(view)))
    return [View(view.name, resized[id(view.camera)], view.pose) for view in views]


def _describe(key: str, title: str, streams: tuple[Stream, ...]) -> Dataset:
    listing, reading = partial(list_scannetpp, streams=streams), partial(read_scannetpp, streams=streams)
    return Dataset(f"ScanNet++, {title}", DOWNLOAD, listing, partial(reading, dataset=key))


DATASETS = {
    **{
        key: _describe(key, title, streams)
        for key, title, streams in (
            ("scannetpp-mixed", "DSLR fisheye and iPhone", MIXED),
            ("scannetpp-undistorted", "both devices undistorted", UNDISTORTED),
            ("scannetpp-high-resolution", "full-size DSLR, undistorted", HIGH_RESOLUTION),
            ("scannetpp-fisheye", "DSLR fisheye", FISHEYE),
        )
    },
    "scannetpp-joint": Dataset(
        "ScanNet++, DSLR fisheye and iPhone calibrated together",
        JOINT_DOWNLOAD,
        list_scannetpp_joint,
        partial(read_scannetpp_joint, dataset="scannetpp-joint", streams=MIXED),
    ),
}
