"""Read MPI Sintel: rendered films with cameras and depth, in files of its own; little-endian.

ROOT/training/final/alley_2/frame_0001.png            1024×436
ROOT/training/depth/alley_2/frame_0001.dpt            float32 202021.25, int32 width, int32 height, then z-depth as
                                                      float32, row by row
ROOT/training/camdata_left/alley_2/frame_0001.cam     float32 202021.25, 3×3 intrinsics, then 3×4 cam_from_world, both
                                                      float64, row by row
"""

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.formats.recordings import make_pose_from_matrix
from g_ray.media.depth import DepthFile
from g_ray.media.images import read_photo_size
from g_ray.runtime.files import write_atomically
from g_ray_lab.datasets.evaluation_scene import Dataset, Download, EvaluationFrame, EvaluationScene
from g_ray_lab.datasets.stored_frames import StoredDepth, StoredImage, make_pinhole

DOWNLOAD = Download(
    "sintel",
    "MPI Sintel",
    "http://sintel.is.tue.mpg.de",
    "for research; the film is CC BY 3.0, Blender Foundation",
    ("MPI-Sintel-training_images.zip", "MPI-Sintel-depth-training-20150305.zip"),
    (
        "training/final/alley_2/frame_0001.png",
        "training/depth/alley_2/frame_0001.dpt",
        "training/camdata_left/alley_2/frame_0001.cam",
    ),
    archives=("MPI-Sintel-*.zip",),
)
SEQUENCES = (
    *("alley_2", "ambush_4", "ambush_5", "ambush_6", "cave_2", "cave_4", "market_2", "market_5", "market_6"),
    *("shaman_3", "sleeping_1", "sleeping_2", "temple_2", "temple_3"),
)
"""Those of the published protocols: cameras that move."""
PASS = "final"
TAG = struct.pack("<f", 202021.25)


def list_sintel(root: Path) -> list[str]:
    """List the sequences that are there."""
    return sorted(path.name for path in (root / "training" / PASS).glob("*") if path.is_dir())


def read_sintel(root: Path, name: str) -> EvaluationScene:
    """Read a sequence; the sky has a huge depth, which protocols cut."""
    folder = root / "training"
    images = sorted((folder / PASS / name).glob("frame_*.png"))
    frames = tuple(_read_frame(folder, name, image) for image in images)
    return EvaluationScene(name, "sintel", frames, unit="none")


def _read_frame(folder: Path, name: str, image: Path) -> EvaluationFrame:
    path = folder / "camdata_left" / name / f"{image.stem}.cam"
    intrinsics, cam_from_world = read_cam(path)
    (fx, _, cx), (_, fy, cy) = intrinsics[:2].tolist()
    return EvaluationFrame(
        name=image.name,
        image=StoredImage(image),
        camera=make_pinhole(read_photo_size(image), fx, fy, cx, cy, center=0),
        pose=make_pose_from_matrix(f"{path}: the pose", cam_from_world).inverse(),
        depth=StoredDepth(SintelDepthFile(folder / "depth" / name / f"{image.stem}.dpt")),
    )


@dataclass(frozen=True)
class SintelDepthFile(DepthFile):
    """A .dpt file; the sky has a huge depth."""

    def read(self) -> Float[Tensor, "h w"]:
        content = _read_tagged(self.path)
        if len(content) < 8:
            raise OSError(f"{self.path}: the file ends too early; unpack it again")
        width, height = struct.unpack("<2i", content[:8])
        if min(width, height) < 1 or len(content) != 8 + 4 * width * height:
            raise OSError(
                f"{self.path}: {len(content) - 8} bytes of depth for {width}×{height} pixels; unpack it again"
            )
        return torch.from_numpy(np.frombuffer(content[8:], "<f4").reshape(height, width).astype(np.float32))


def read_cam(path: Path) -> tuple[Float[np.ndarray, "3 3"], Float[np.ndarray, "3 4"]]:
    """Read intrinsics (pixel centers at whole numbers) and cam_from_world; OSError names a damaged file."""
    content = _read_tagged(path)
    if len(content) != 8 * (9 + 12):
        raise OSError(f"{path}: {len(content) + 4} bytes, but a camera has 172; unpack it again")
    numbers = np.frombuffer(content, "<f8")
    return numbers[:9].reshape(3, 3).copy(), numbers[9:].reshape(3, 4).copy()


def write_dpt(path: Path, depth: Float[np.ndarray, "h w"]) -> None:
    """Write z-depth."""
    height, width = depth.shape
    write_atomically(path, TAG + struct.pack("<2i", width, height) + depth.astype("<f4").tobytes())


def write_cam(
    path: Path, intrinsics: Float[np.ndarray, "3 3"], cam_from_world: Float[np.ndarray, "3 4"]
) -> None:
    """Write intrinsics (pixel centers at whole numbers) and cam_from_world."""
    write_atomically(path, TAG + intrinsics.astype("<f8").tobytes() + cam_from_world.astype("<f8").tobytes())


def _read_tagged(path: Path) -> bytes:
    if not path.is_file():
        raise OSError(f"{path}: no such file; unpack MPI Sintel again")
    content = path.read_bytes()
    if content[:4] != TAG:
        raise OSError(f"{path}: does not begin with Sintel's tag; unpack it again")
    return content[4:]


DATASETS = {"sintel": Dataset("MPI Sintel", DOWNLOAD, list_sintel, read_sintel)}
