"""Time the ray map of a fisheye image against OpenCV's undistortion of the same points."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from g_ray.cameras import OpenCVFisheye, pixel_centers
from g_ray.rays.ray_map import RayMap

# The size of the fisheye images of ScanNet++, and a lens much like theirs.
WIDTH, HEIGHT = 1752, 1168
LENS = {
    "fx": 791.3,
    "fy": 789.6,
    "cx": 875.9,
    "cy": 584.4,
    "k1": -0.029,
    "k2": -0.0078,
    "k3": 0.0019,
    "k4": -0.0004,
}


def benchmark_rays(repeats: int = 15) -> dict[str, Any]:
    """Return rows `opencv`, `float64` and `float32` with seconds, ratio (OpenCV's time over the row's) and error_px.

    Seconds are medians of CPU time over interleaved runs, one thread each. We compute unit rays and a validity
    mask for all 1752 x 1168 pixel centers; OpenCV undistorts the same points (float64, default criteria). The error
    is the largest distance between a pixel and the float64 projection of its ray.
    """
    cv2 = _import_opencv()
    camera = OpenCVFisheye.make(WIDTH, HEIGHT, **LENS, dtype=torch.float64)
    single = camera.to(torch.float32)
    # OpenCV puts pixel centers at integers; shifting K and the points by the same half pixel leaves rays unchanged.
    points = pixel_centers(WIDTH, HEIGHT, dtype=torch.float64).reshape(-1, 1, 2).numpy()
    k, d = camera.central_intrinsics().numpy(), camera.params[4:8].numpy()
    threads = torch.get_num_threads(), cv2.getNumThreads()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    try:
        jobs = {
            "opencv": lambda: cv2.fisheye.undistortPoints(points, k, d),
            "float64": lambda: RayMap.from_camera(camera),
            "float32": lambda: RayMap.from_camera(single),
        }
        seconds = _time_interleaved(jobs, repeats)
        errors = _compute_errors(camera, jobs["opencv"](), jobs["float64"](), jobs["float32"]())
    finally:
        torch.set_num_threads(threads[0])
        cv2.setNumThreads(threads[1])
    rows = [
        {
            "name": name,
            "seconds": seconds[name],
            "ratio": seconds["opencv"] / seconds[name],
            "error_px": errors[name],
        }
        for name in jobs
    ]
    settings = {"width": WIDTH, "height": HEIGHT, **LENS, "repeats": repeats, "opencv": cv2.__version__}
    return {"settings": settings, "rows": rows}


def _time_interleaved(jobs: dict[str, Callable[[], Any]], repeats: int, warm_up: int = 4) -> dict[str, float]:
    """Return median CPU seconds per job, without the first rounds, in which memory is allocated."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(warm_up + repeats):
        for name, job in jobs.items():
            start = time.process_time()
            job()
            times[name].append(time.process_time() - start)
    return {name: statistics.median(values[warm_up:]) for name, values in times.items()}


def _compute_errors(
    camera: OpenCVFisheye, opencv: np.ndarray, double: RayMap, single: RayMap
) -> dict[str, float]:
    """Return the largest distance in pixels between a pixel and the projection of its ray."""
    tangent = torch.from_numpy(opencv).reshape(HEIGHT, WIDTH, 2)
    rays = {
        "opencv": torch.cat([tangent, torch.ones_like(tangent[..., :1])], -1),
        "float64": double.directions,
        "float32": single.directions.double(),
    }
    centers = pixel_centers(WIDTH, HEIGHT, dtype=torch.float64)
    return {name: float((camera.project(ray)[0] - centers).norm(dim=-1).max()) for name, ray in rays.items()}


def _import_opencv() -> Any:
    try:
        import cv2
    except ImportError as error:
        raise ValueError(
            "bench rays: OpenCV is missing; install it with pip install 'g-ray[calib]'"
        ) from error
    return cv2
