"""Read TUM RGB-D's Freiburg-3 sequences: color, depth registered to it, and a motion-captured trajectory.

ROOT/rgbd_dataset_freiburg3_sitting_static/{rgb,depth}/1341845688.538082.png    depth: 16 bits, 5000 a meter, 0 is none
ROOT/rgbd_dataset_freiburg3_sitting_static/{rgb,depth,groundtruth}.txt         see `g_ray_lab.datasets.tum_files`

Freiburg 3 is rectified, with one published camera. A frame is a color image with a pose within 0.02 s.
"""

from pathlib import Path

import torch

from g_ray.cameras.pinhole import Pinhole
from g_ray.formats.posed_scene import resolve_inside
from g_ray.formats.recordings import make_pose
from g_ray.geometry.pose import Pose
from g_ray.media.depth import DepthFile
from g_ray_lab.datasets.evaluation_scene import DepthSource, EvaluationFrame, EvaluationScene
from g_ray_lab.datasets.image_sources import StoredImage
from g_ray_lab.datasets.true_depth import StoredDepth
from g_ray_lab.datasets.tum_files import associate, read_stamped_lines

SEQUENCES = tuple(
    f"rgbd_dataset_freiburg3_{who}_{motion}"
    for who in ("sitting", "walking")
    for motion in ("static", "xyz", "halfsphere", "rpy")
)
SIZE = (640, 480)
# OpenCV's pixel centers are whole numbers, ours lie at +0.5.
CAMERA = {"fx": 535.4, "fy": 539.2, "cx": 320.1 + 0.5, "cy": 247.6 + 0.5}
PER_METER = 5000


def list_tum(root: Path) -> list[str]:
    """List the sequences that are there."""
    return sorted(path.parent.name for path in root.glob("*/groundtruth.txt"))


def read_tum(root: Path, name: str) -> EvaluationScene:
    """Read all color images with a pose, by time."""
    folder = root / name
    if "freiburg3" not in name:
        raise ValueError(f"{folder}: only sequences of freiburg3 have the camera that is known here")
    colors = read_stamped_lines(folder / "rgb.txt", 1)
    trajectory = read_stamped_lines(folder / "groundtruth.txt", 7)
    times = [time_s for time_s, _ in colors]
    depths = _find_depths(folder, times)
    camera = Pinhole.make(*SIZE, **CAMERA, dtype=torch.float64)
    frames = tuple(
        EvaluationFrame(
            name=colors[i][1][0],
            image=StoredImage(resolve_inside(folder, colors[i][1][0])),
            camera=camera,
            pose=_parse_pose(folder, *trajectory[j]),
            depth=depths.get(i),
            time_s=times[i],
        )
        for i, j in associate(times, [time_s for time_s, _ in trajectory])
    )
    return EvaluationScene(name, "tum", frames, notes=(f"{len(colors) - len(frames)} images have no pose",))


def _find_depths(folder: Path, times: list[float]) -> dict[int, DepthSource]:
    if not (folder / "depth.txt").is_file():
        return {}
    stored = read_stamped_lines(folder / "depth.txt", 1)
    return {
        i: StoredDepth(DepthFile(resolve_inside(folder, stored[j][1][0]), "z", 1 / PER_METER))
        for i, j in associate(times, [time_s for time_s, _ in stored])
    }


def _parse_pose(folder: Path, time_s: float, words: tuple[str, ...]) -> Pose:
    what = f"{folder / 'groundtruth.txt'}: the pose at {time_s:.4f}"
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        raise ValueError(f"{what} is not made of numbers") from None
    return make_pose(what, numbers[3:], numbers[:3])
