"""Read TUM RGB-D's Freiburg-3 sequences: color, depth registered to it, and a motion-captured trajectory.

ROOT/rgbd_dataset_freiburg3_sitting_static/{rgb,depth}/1341845688.538082.png    depth: 16 bits, 5000 a meter, 0 is none
…/rgb.txt, depth.txt     1341845688.538082 rgb/1341845688.538082.png
…/groundtruth.txt        1341845688.5380 tx ty tz qx qy qz qw        (world_from_cam of the color camera, meters)

Lines that begin with # are comments. Freiburg 3 is rectified, with one published camera. A frame is a color image with
a pose within 0.02 s.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from g_ray.formats.posed_scene import resolve_inside
from g_ray.formats.recordings import make_pose
from g_ray.geometry.pose import Pose
from g_ray.media.depth import DepthFile
from g_ray_lab.datasets.evaluation_scene import (
    Dataset,
    DepthSource,
    Download,
    EvaluationFrame,
    EvaluationScene,
)
from g_ray_lab.datasets.stored_frames import StoredDepth, StoredImage, make_pinhole

DOWNLOAD = Download(
    "tum",
    "TUM RGB-D, Freiburg 3",
    "https://cvg.cit.tum.de/data/datasets/rgbd-dataset",
    "CC BY 4.0",
    (
        "rgbd_dataset_freiburg3_{sitting,walking}_{static,xyz,halfsphere,rpy}.tgz from "
        "https://cvg.cit.tum.de/rgbd/dataset/freiburg3/",
    ),
    (
        "rgbd_dataset_freiburg3_sitting_static/rgb.txt",
        "rgbd_dataset_freiburg3_sitting_static/groundtruth.txt",
    ),
    archives=("rgbd_dataset_freiburg3_*.tgz",),
)
SEQUENCES = tuple(
    f"rgbd_dataset_freiburg3_{who}_{motion}"
    for who in ("sitting", "walking")
    for motion in ("static", "xyz", "halfsphere", "rpy")
)
CAMERA = make_pinhole((640, 480), 535.4, 539.2, 320.1, 247.6, center=0)
PER_METER = 5000
MAX_DIFFERENCE_S = 0.02
"""As the benchmark's own tool associates."""


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
    frames = tuple(
        EvaluationFrame(
            name=colors[i][1][0],
            image=StoredImage(resolve_inside(folder, colors[i][1][0])),
            camera=CAMERA,
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


def read_stamped_lines(path: Path, values: int) -> list[tuple[float, tuple[str, ...]]]:
    """Read lines of a time in seconds and a number of further words; ValueError names a line with other ones."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file; unpack the sequence again") from None
    stamped = []
    for number, line in enumerate(lines, 1):
        words = line.replace(",", " ").split()
        if not words or words[0].startswith("#"):
            continue
        try:
            time_s = float(words[0])
        except ValueError:
            time_s = float("nan")
        if len(words) != values + 1 or not np.isfinite(time_s):
            raise ValueError(f"{path}, line {number}: not a time and {values} values: {line[:60]!r}")
        stamped.append((time_s, tuple(words[1:])))
    if not stamped:
        raise ValueError(f"{path}: no lines in it; unpack the sequence again")
    return stamped


def associate(
    first: Sequence[float], second: Sequence[float], max_difference_s: float = MAX_DIFFERENCE_S
) -> list[tuple[int, int]]:
    """Pair times of two lists, the nearest pairs first and each time at most once; sorted by the first list's times."""
    times, others = np.asarray(first), np.asarray(second)
    order = np.argsort(others, kind="stable")
    low = np.searchsorted(others[order], times - max_difference_s)
    high = np.searchsorted(others[order], times + max_difference_s, side="right")
    candidates = [
        (abs(float(times[i] - others[j])), i, int(j))
        for i in range(len(times))
        for j in order[low[i] : high[i]]
    ]
    used_first, used_second, pairs = set[int](), set[int](), []
    for difference, i, j in sorted(candidates):
        if difference < max_difference_s and i not in used_first and j not in used_second:
            used_first.add(i)
            used_second.add(j)
            pairs.append((i, j))
    return sorted(pairs, key=lambda pair: (times[pair[0]], pair))


DATASETS = {"tum": Dataset("TUM RGB-D, Freiburg 3", DOWNLOAD, list_tum, read_tum)}
