"""Time the ray maps of all lenses against OpenCV's undistortion of the same points."""

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from g_ray.cameras import (
    EUCM,
    FOV,
    UCM,
    Camera,
    Division,
    DoubleSphere,
    Equirectangular,
    Fisheye624,
    OpenCV,
    OpenCVFisheye,
    Pinhole,
    ThinPrismFisheye,
    pixel_centers,
)
from g_ray_lab.bench.bench_encodings import time_interleaved

# The size of the fisheye images of ScanNet++, and a lens much like theirs.
WIDTH, HEIGHT = 1752, 1168
_FRAME = {"fx": 791.3, "fy": 789.6, "cx": 875.9, "cy": 584.4}
_CIRCULAR = {**_FRAME, "fx": 350.0, "fy": 350.0, "k1": -0.06}
_FISHEYE = {"k1": -0.029, "k2": -0.0078, "k3": 0.0019, "k4": -0.0004}
_BROWN = {"k1": -0.1, "k2": 0.02, "p1": 0.001, "p2": 0.0005, "k3": 0.003}
_PRISM = {"p1": 0.001, "p2": 0.0005}

# Batches: the number of different cameras, and their size in pixels.
BATCH, BATCH_WIDTH, BATCH_HEIGHT = 100, 252, 168


@dataclass(frozen=True)
class TimedLens:
    """A camera to time, and OpenCV's coefficients for the same points; None: OpenCV does nothing but divide by f."""

    camera: Camera
    opencv: tuple[float, ...] | None
    fisheye: bool = True
    """Whether cv2.fisheye undistorts the points; where OpenCV lacks the lens, it undistorts its own fisheye."""


def _make(model: type[Camera], parameters: dict[str, float]) -> Camera:
    return model.make(WIDTH, HEIGHT, **parameters, dtype=torch.float64)


_K = tuple(_FISHEYE.values())
_ZEROS = (0.0,) * 5
LENSES = {
    "pinhole, no coefficients": TimedLens(_make(Pinhole, _FRAME), None, False),
    "pinhole": TimedLens(_make(Pinhole, _FRAME), _ZEROS, False),
    "OPENCV, 5": TimedLens(_make(OpenCV, {**_FRAME, **_BROWN}), tuple(_BROWN.values()), False),
    "OPENCV, 8": TimedLens(
        _make(OpenCV, {**_FRAME, **_BROWN, "k4": 0.01, "k5": 0.002, "k6": 0.0003}),
        (*_BROWN.values(), 0.01, 0.002, 0.0003),
        False,
    ),
    "fisheye": TimedLens(_make(OpenCVFisheye, {**_FRAME, **_FISHEYE}), _K),
    "circular fisheye": TimedLens(_make(OpenCVFisheye, _CIRCULAR), (-0.06, 0.0, 0.0, 0.0)),
    "thin prism": TimedLens(_make(ThinPrismFisheye, {**_FRAME, **_FISHEYE, **_PRISM, "sx1": 0.001}), _K),
    "circular thin prism": TimedLens(_make(ThinPrismFisheye, {**_CIRCULAR, **_PRISM, "sx1": 0.001}), _K),
    "Fisheye624": TimedLens(_make(Fisheye624, {**_FRAME, **_FISHEYE, **_PRISM, "s1": 0.001}), _K),
    "circular Fisheye624": TimedLens(_make(Fisheye624, {**_CIRCULAR, **_PRISM, "s1": 0.001}), _K),
    "UCM": TimedLens(_make(UCM, {**_FRAME, "alpha": 0.6}), _K),
    "UCM with rim": TimedLens(_make(UCM, {**_FRAME, "fx": 500.0, "fy": 500.0, "alpha": 0.7}), _K),
    "EUCM": TimedLens(_make(EUCM, {**_FRAME, "alpha": 0.6, "beta": 1.1}), _K),
    "double sphere": TimedLens(_make(DoubleSphere, {**_FRAME, "xi": -0.2, "alpha": 0.55}), _K),
    "FOV": TimedLens(_make(FOV, {**_FRAME, "omega": 0.9}), _K),
    "division": TimedLens(_make(Division, {**_FRAME, "k": -0.2}), _K),
    "equirectangular": TimedLens(Equirectangular.panorama(WIDTH, HEIGHT, dtype=torch.float64), _K),
}


def benchmark_rays(
    repeats: int = 3,
    lenses: tuple[str, ...] = tuple(LENSES),
    batch: int = BATCH,
    progress: Callable[[str], None] = lambda step: None,
) -> dict[str, Any]:
    """Return a row per lens for one large map, and one for a batch of small maps.

    A row has CPU seconds (medians over interleaved runs, one thread each) of OpenCV, float64 and float32, the ratios
    of OpenCV's time to ours, and error_px, the largest distance between a pixel and the projection of its float64
    ray. We compute unit rays and a validity mask at all pixel centers; OpenCV undistorts the same points (float64,
    default criteria).
    """
    cv2 = _import_opencv()
    threads = torch.get_num_threads(), cv2.getNumThreads()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    try:
        rows = []
        for name in lenses:
            progress(name)
            lens = LENSES[name]
            small = _vary_focal_length(lens.camera.resize(BATCH_WIDTH, BATCH_HEIGHT), batch)
            rows.append(_time_lens(cv2, name, lens, lens.camera, repeats))
            rows.append(_time_lens(cv2, name, lens, small, repeats))
    finally:
        torch.set_num_threads(threads[0])
        cv2.setNumThreads(threads[1])
    return {"settings": {"repeats": repeats, "opencv": cv2.__version__}, "rows": rows}


def _time_lens(cv2: Any, name: str, lens: TimedLens, camera: Camera, repeats: int) -> dict[str, Any]:
    jobs = {
        "opencv": _prepare_opencv(cv2, lens, camera),
        "float64": camera.unproject_grid,
        "float32": camera.to(torch.float32).unproject_grid,
    }
    seconds = {name: statistics.median(each) for name, each in time_interleaved(jobs, repeats).items()}
    return {
        "lens": name,
        "maps": math.prod(camera.batch_shape),
        "width": camera.width,
        "height": camera.height,
        **{f"{key}_seconds": value for key, value in seconds.items()},
        **{f"{key}_ratio": seconds["opencv"] / seconds[key] for key in ("float64", "float32")},
        "error_px": _compute_error(camera),
    }


def _prepare_opencv(cv2: Any, lens: TimedLens, camera: Camera) -> Callable[[], Any]:
    """Return a job that undistorts all pixels of all cameras."""
    # OpenCV puts pixel centers at integers; shifting K and the points by the same half pixel leaves rays unchanged.
    points = pixel_centers(camera.width, camera.height, dtype=torch.float64).reshape(-1, 1, 2).numpy()
    d = None if lens.opencv is None else np.array(lens.opencv)
    undistort = cv2.fisheye.undistortPoints if lens.fisheye else cv2.undistortPoints
    frames = camera.params.reshape(-1, camera.params.shape[-1])[:, :4].tolist()
    matrices = [np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]]) for fx, fy, cx, cy in frames]
    return lambda: [undistort(points, k, d) for k in matrices]


def _vary_focal_length(camera: Camera, count: int) -> Camera:
    """Return a batch of cameras that differ by up to a percent of focal length."""
    factor = torch.ones(count, camera.params.shape[-1], dtype=camera.dtype)
    factor[:, :2] = torch.linspace(1, 1.01, count, dtype=camera.dtype)[:, None]
    return type(camera)(camera.params * factor, camera.width, camera.height)


def _compute_error(camera: Camera) -> float:
    """Return the largest distance in pixels between a pixel and the projection of its ray, over the first cameras."""
    few = camera[:2] if camera.batch_shape else camera
    rays, valid = few.unproject_grid()
    centers = pixel_centers(few.width, few.height, dtype=torch.float64)
    # Every third row and column shows all parts of the lens.
    rays, valid, centers = rays[..., ::3, ::3, :], valid[..., ::3, ::3], centers[::3, ::3]
    return float((few.project(rays)[0] - centers)[valid].norm(dim=-1).max())


def _import_opencv() -> Any:
    try:
        import cv2
    except ImportError as error:
        raise ValueError("bench rays: OpenCV is missing; install it with pip install 'g-ray[lab]'") from error
    return cv2
