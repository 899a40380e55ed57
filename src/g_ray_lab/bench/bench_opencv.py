"""Time ray maps against OpenCV's undistortion of the same points, and stereo along rays against its matcher."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from PIL import Image
from torch import Tensor

from g_ray.cameras import (
    EUCM,
    FOV,
    UCM,
    Camera,
    Division,
    DoubleSphere,
    Equirectangular,
    Fisheye624,
    OCam,
    OpenCV,
    OpenCVFisheye,
    Pinhole,
    RayMapCamera,
    ThinPrismFisheye,
    pixel_centers,
)
from g_ray.demo.room import make_random_room
from g_ray.geometry.pose import Pose
from g_ray.media.images import FORMATS
from g_ray.media.view import View
from g_ray.predictors.sweep_weights import load_sweep_network
from g_ray.stereo import StereoOptions, SweepNetwork, estimate_depths, sweep_view
from g_ray.stereo.learned_depth import LearnedStereo
from g_ray.stereo.sweep import count_hypotheses
from g_ray_lab.bench.bench_encodings import time_interleaved
from g_ray_lab.datasets.real_small import find_pairs

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
    "OCam": TimedLens(_make(OCam, {**_FRAME, "a2": -0.33, "a3": 0.01, "a4": -0.03}), _K),
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
    settings = {"repeats": repeats, "opencv": cv2.__version__}
    return {"settings": settings, "rows": rows, "projections": time_table_projection(repeats)}


def time_table_projection(repeats: int, points: int = 1_000_000) -> dict[str, float]:
    """Return the points per CPU second that a table of rays projects, once its index exists, and the index's time.

    The table is a fisheye of 220° at 1600×1532 px in float32; directions are uniform over the sphere, without order,
    so that every access to the table misses the cache.
    """
    focal = 1532 / math.radians(220)
    lens = OpenCVFisheye.make(1600, 1532, fx=focal, fy=focal, cx=800.0, cy=766.0, dtype=torch.float32)
    table = lens.unproject_grid()
    directions = torch.randn(points, 3, generator=torch.Generator().manual_seed(0))
    # A new camera has no index yet; the second projection of the same one does.
    jobs = {"first": lambda: RayMapCamera.from_rays(*table).project(directions)}
    camera = RayMapCamera.from_rays(*table)
    camera.project(directions[:1])
    jobs["again"] = lambda: camera.project(directions)
    seconds = {name: statistics.median(each) for name, each in time_interleaved(jobs, repeats).items()}
    return {
        "points_per_second": points / seconds["again"],
        "index_seconds": seconds["first"] - seconds["again"],
    }


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


# CPU seconds of stereo along rays for one view of a room, and rectified pairs compared with OpenCV's matcher
#
# A sweep of the whole range at full resolution costs its number of samples, pixels × hypotheses × sources. Beyond
# `StereoOptions.full_volume` samples the range is swept at half the resolution, and only a band around the result at
# the full one: an eighth of the samples, and a band of 17 hypotheses.

# Rectified pairs


TOLERANCES_PX = (1.0, 2.0)
"""A pixel whose disparity is off by more is bad."""


@dataclass(frozen=True, eq=False)
class RectifiedPair:
    """Two photographs whose rows correspond, and the disparity of the left one; 0 is unknown."""

    name: str
    left: Float[Tensor, "3 h w"]
    right: Float[Tensor, "3 h w"]
    disparity: Float[Tensor, "h w"]

    @property
    def known(self) -> Bool[Tensor, "h w"]:
        return self.disparity > 0

    @property
    def largest(self) -> int:
        """Disparities that are tried, in pixels: a few more than there are."""
        return int(self.disparity.max()) + 4

    def make_views(self) -> list[View]:
        """Pinholes with f = width and baseline 1, so that disparity = width / z."""
        height, width = self.disparity.shape
        middle = {"cx": width / 2, "cy": height / 2}
        camera = Pinhole.make(width, height, fx=float(width), fy=float(width), **middle, dtype=torch.float64)
        right = Pose.from_parts(torch.eye(3).double(), torch.tensor([1.0, 0.0, 0.0]).double())
        return [
            View("left", camera, Pose.identity(dtype=torch.float64), image=self.left),
            View("right", camera, right, image=self.right),
        ]


def read_pairs(folder: Path) -> list[RectifiedPair]:
    """Read all pairs of a folder; ValueError if it has none."""
    pairs = [
        RectifiedPair(one.name, _read(one.left), _read(one.right), one.disparity.read())
        for one in find_pairs(folder)
    ]
    if not pairs:
        raise ValueError(
            f"{folder}: no rectified pairs; give a folder with datasets.xml, or with NAME_left.png, "
            "NAME_right.png and NAME_disp.npz"
        )
    return pairs


def _read(path: Path) -> Float[Tensor, "3 h w"]:
    image = np.asarray(Image.open(path, formats=FORMATS).convert("RGB"))
    return torch.from_numpy(image.copy()).permute(2, 0, 1).float() / 255


def match_with_sweep(
    pair: RectifiedPair, network: SweepNetwork | None = None
) -> tuple[Float[Tensor, "h w"], Float[Tensor, "h w"]]:
    """Return disparities of all pixels by our sweep, or by the sweep network and refined, and their confidence."""
    width = pair.disparity.shape[1]
    near, far = width / (pair.largest + 1), width / max(float(pair.disparity[pair.known].min()) - 2, 0.5)
    options = StereoOptions(
        long_side=max(pair.disparity.shape),
        near=near,
        far=far,
        min_score=-1.0,
        min_support=-1.0,
        min_views=0,
        max_expected_error=math.inf,  # disparities are compared, whatever depth they are worth
    )
    views = pair.make_views()
    if network is None:
        depth = estimate_depths(views, None, options)[0]
        distance, confidence = depth.ray_depth, depth.confidence
    else:
        found = LearnedStereo.prepare(network, views).estimate(0, [1], near, far, views[0].size)
        depth = sweep_view(views[0], views[1:], near, far, options, found).merge_candidates()
        distance, confidence = torch.where(depth.valid, depth.ray_depth, 1 / found.inverse), found.confidence
    rays = views[0].camera.unproject_grid()[0].float()
    return width / (distance * rays[..., 2]).clamp_min(1e-6), confidence


def match_with_opencv(pair: RectifiedPair) -> Float[Tensor, "h w"]:
    """Return OpenCV's semi-global matching with all eight directions, set as its documentation suggests."""
    import cv2

    count = (pair.largest + 15) // 16 * 16
    matcher = cv2.StereoSGBM.create(
        0, count, 5, 8 * 3 * 25, 32 * 3 * 25, 1, 0, 10, 100, 2, cv2.STEREO_SGBM_MODE_HH
    )
    images = [
        np.ascontiguousarray((image.permute(1, 2, 0).numpy()[..., ::-1] * 255).round().astype(np.uint8))
        for image in (pair.left, pair.right)
    ]
    # The matcher leaves a border of `count` columns empty.
    padded = [cv2.copyMakeBorder(image, 0, 0, count, 0, cv2.BORDER_REPLICATE) for image in images]
    return torch.tensor(matcher.compute(*padded)[:, count:] / 16.0).float()


def compare_pair(pair: RectifiedPair, network: SweepNetwork | None = None) -> dict[str, Any]:
    """Return the shares of bad pixels of the matchers at the same coverage, and their CPU seconds.

    As many of our disparities are taken as OpenCV gives, the most confident ones; with a `network` also of its own.
    """
    start = time.process_time()
    theirs = match_with_opencv(pair)
    seconds = time.process_time() - start
    matched = pair.known & (theirs > 0)
    height, width = pair.disparity.shape
    row: dict[str, Any] = {"pair": pair.name, "width": width, "height": height}
    row["coverage"] = float(matched.sum() / pair.known.sum())
    row |= _score_disparity(theirs, pair, matched, seconds, "_sgbm")
    for ending, model in (("", None), *([("_learned", network)] if network else [])):
        start = time.process_time()
        ours, confidence = match_with_sweep(pair, model)
        seconds = time.process_time() - start
        order = torch.where(pair.known, confidence, -1.0).flatten().argsort(descending=True, stable=True)
        chosen = torch.zeros(pair.known.numel(), dtype=torch.bool)
        chosen[order[: int(matched.sum())]] = True
        row |= _score_disparity(ours, pair, chosen.reshape(pair.known.shape), seconds, ending)
    return row


def _score_disparity(
    found: Float[Tensor, "h w"], pair: RectifiedPair, where: Bool[Tensor, "h w"], seconds: float, ending: str
) -> dict[str, float]:
    bad = {
        f"bad_{limit:g}px{ending}": _measure_bad(found, pair.disparity, where, limit)
        for limit in TOLERANCES_PX
    }
    return {**bad, f"cpu_seconds{ending}": seconds}


def _measure_bad(
    found: Float[Tensor, "h w"], truth: Float[Tensor, "h w"], where: Bool[Tensor, "h w"], limit: float
) -> float:
    return float(((found - truth).abs() > limit)[where].float().mean())


SIDE = 480
NEAR, FAR = 0.5, 8.0
HALF_RANGE_NEAR = 2 / (1 / NEAR + 1 / FAR)
"""From here to FAR lie half as many inverse distances as from NEAR."""


def benchmark_stereo(repeats: int = 1, pairs: Sequence[Path] = ()) -> dict[str, Any]:
    """Time `sweep_view` of a fisheye photograph, and compare rectified pairs with OpenCV's matcher.

    Returns settings, one row per case, and one row per pair of the folders.
    """
    known = [pair for folder in pairs for pair in read_pairs(folder)]  # a wrong folder is refused at once
    network = load_sweep_network() if known else None
    default = StereoOptions(long_side=SIDE)
    whole = replace(default, full_volume=10**12)
    cases = {
        "480 px, 4 sources": (SIDE, default, NEAR),
        "480 px, 4 sources, whole range at full resolution": (SIDE, whole, NEAR),
        "480 px, 2 sources, whole range at full resolution": (SIDE, replace(whole, sources=2), NEAR),
        "480 px, 4 sources, half the range at full resolution": (SIDE, whole, HALF_RANGE_NEAR),
        "240 px, 4 sources, whole range at full resolution": (SIDE // 2, whole, NEAR),
    }
    rows = [_time_case(name, *case, repeats) for name, case in cases.items()]
    return {
        "settings": {"repeats": repeats, "threads": torch.get_num_threads()},
        "rows": rows,
        "pairs": [compare_pair(pair, network) for pair in known],
    }


def _time_case(name: str, side: int, options: StereoOptions, near: float, repeats: int) -> dict[str, Any]:
    views = make_views(side, options.sources + 1)
    hypotheses = count_hypotheses(views[0], views[1:], near, FAR, options)
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        sweep_view(views[0], views[1:], near, FAR, options)
        seconds.append(time.process_time() - start)
    samples = views[0].camera.width * views[0].camera.height * hypotheses * options.sources
    return {
        "case": name,
        "cpu_seconds": min(seconds),
        "hypotheses": hypotheses,
        "samples": samples,
        "ns_per_sample": 1e9 * min(seconds) / samples,
    }


def make_views(side: int, count: int) -> list[View]:
    """Photograph a room by a 130° fisheye from places next to each other."""
    room = make_random_room(0, solids=6, dtype=torch.float32)
    focal = 0.44 * side
    middle = {"cx": side / 2, "cy": 0.375 * side}
    camera = OpenCVFisheye.make(side, side * 3 // 4, fx=focal, fy=focal, **middle)
    views = []
    for number in range(count):
        # The reference stands in the middle of its sources.
        offset = 0.15 * ((number + 1) // 2) * (-1) ** number
        pose = Pose.look_at(eye=torch.tensor([offset, -0.1, -1.8]), target=torch.tensor([0.0, 0.2, 1.0]))
        image = room.render(camera, pose).rgb.movedim(-1, 0).contiguous()
        views.append(View(str(number), camera, pose, image=image))
    return views
