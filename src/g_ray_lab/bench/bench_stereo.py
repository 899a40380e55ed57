"""CPU seconds of stereo along rays for one view of a room, and rectified pairs compared with OpenCV's matcher.

A sweep of the whole range at full resolution costs its number of samples, pixels × hypotheses × sources. Beyond
`StereoOptions.full_volume` samples the range is swept at half the resolution, and only a band around the result at the
full one: an eighth of the samples, and a band of 17 hypotheses.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from PIL import Image
from torch import Tensor

from g_ray.cameras import OpenCVFisheye, Pinhole
from g_ray.demo.room import make_random_room
from g_ray.geometry.pose import Pose
from g_ray.media.images import FORMATS
from g_ray.media.view import View
from g_ray.stereo import DepthMap, StereoOptions, estimate_depths, sweep_view
from g_ray.stereo.sweep import count_hypotheses
from g_ray_lab.datasets.real_small import find_pairs

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


def match_with_sweep(pair: RectifiedPair) -> tuple[Float[Tensor, "h w"], DepthMap]:
    """Return disparities of all pixels by our sweep, and the depth map that they come from."""
    width = pair.disparity.shape[1]
    options = StereoOptions(
        long_side=max(pair.disparity.shape),
        near=width / (pair.largest + 1),
        far=width / max(float(pair.disparity[pair.known].min()) - 2, 0.5),
        min_score=-1.0,
        min_support=-1.0,
        min_views=0,
    )
    views = pair.make_views()
    depth = estimate_depths(views, None, options)[0]
    rays = views[0].camera.unproject_grid()[0].float()
    return width / (depth.ray_depth * rays[..., 2]).clamp_min(1e-6), depth


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


def compare_pair(pair: RectifiedPair) -> dict[str, Any]:
    """Return the shares of bad pixels of both matchers at the same coverage, and their CPU seconds.

    As many of our disparities are taken as OpenCV gives, the most confident ones.
    """
    start = time.process_time()
    ours, depth = match_with_sweep(pair)
    between = time.process_time()
    theirs = match_with_opencv(pair)
    seconds = between - start, time.process_time() - between
    matched = pair.known & (theirs > 0)
    order = torch.where(pair.known, depth.confidence, -1.0).flatten().argsort(descending=True, stable=True)
    chosen = torch.zeros(pair.known.numel(), dtype=torch.bool)
    chosen[order[: int(matched.sum())]] = True
    chosen = chosen.reshape(pair.known.shape)
    height, width = pair.disparity.shape
    row: dict[str, Any] = {"pair": pair.name, "width": width, "height": height}
    row["coverage"] = float(matched.sum() / pair.known.sum())
    for limit in TOLERANCES_PX:
        row[f"bad_{limit:g}px"] = _measure_bad(ours, pair.disparity, chosen, limit)
        row[f"bad_{limit:g}px_sgbm"] = _measure_bad(theirs, pair.disparity, matched, limit)
    return row | {"cpu_seconds": seconds[0], "cpu_seconds_sgbm": seconds[1]}


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
        "pairs": [compare_pair(pair) for pair in known],
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
