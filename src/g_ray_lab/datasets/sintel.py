"""Read MPI Sintel: rendered films with cameras and depth.

ROOT/training/final/alley_2/frame_0001.png            1024×436
ROOT/training/depth/alley_2/frame_0001.dpt            see `g_ray_lab.datasets.sintel_files`
ROOT/training/camdata_left/alley_2/frame_0001.cam
"""

from pathlib import Path

import torch

from g_ray.cameras.pinhole import Pinhole
from g_ray.formats.recordings import make_pose_from_matrix
from g_ray.media.images import read_photo_size
from g_ray_lab.datasets.evaluation_scene import EvaluationFrame, EvaluationScene
from g_ray_lab.datasets.image_sources import StoredImage
from g_ray_lab.datasets.sintel_files import SintelDepthFile, read_cam
from g_ray_lab.datasets.true_depth import StoredDepth

SEQUENCES = (
    *("alley_2", "ambush_4", "ambush_5", "ambush_6", "cave_2", "cave_4", "market_2", "market_5", "market_6"),
    *("shaman_3", "sleeping_1", "sleeping_2", "temple_2", "temple_3"),
)
"""Those of the published protocols: cameras that move."""
PASS = "final"


def list_sintel(root: Path) -> list[str]:
    """List the sequences that are there."""
    return sorted(path.name for path in (root / "training" / PASS).glob("*") if path.is_dir())


def read_sintel(root: Path, name: str) -> EvaluationScene:
    """Read a sequence; the sky has a huge depth, which protocols cut."""
    folder = root / "training"
    images = sorted((folder / PASS / name).glob("frame_*.png"))
    return EvaluationScene(
        name, "sintel", tuple(_read_frame(folder, name, image) for image in images), unit="none"
    )


def _read_frame(folder: Path, name: str, image: Path) -> EvaluationFrame:
    path = folder / "camdata_left" / name / f"{image.stem}.cam"
    intrinsics, cam_from_world = read_cam(path)
    (fx, _, cx), (_, fy, cy) = intrinsics[:2].tolist()
    # Its pixel centers are whole numbers, ours lie at +0.5.
    camera = Pinhole.make(
        *read_photo_size(image), fx=fx, fy=fy, cx=cx + 0.5, cy=cy + 0.5, dtype=torch.float64
    )
    return EvaluationFrame(
        name=image.name,
        image=StoredImage(image),
        camera=camera,
        pose=make_pose_from_matrix(f"{path}: the pose", cam_from_world).inverse(),
        depth=StoredDepth(SintelDepthFile(folder / "depth" / name / f"{image.stem}.dpt")),
    )
