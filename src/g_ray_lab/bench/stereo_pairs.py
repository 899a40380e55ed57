"""Rectified pairs with true disparity: our sweep beside OpenCV's semi-global matcher, quality and time."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from PIL import Image
from torch import Tensor

from g_ray.cameras import Pinhole
from g_ray.geometry.pose import Pose
from g_ray.media.images import FORMATS
from g_ray.media.view import View
from g_ray.stereo import DepthMap, StereoOptions, estimate_depths
from g_ray_lab.datasets.rectified_pairs import find_pairs

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
        beside = Pose.from_parts(torch.eye(3).double(), torch.tensor([1.0, 0.0, 0.0]).double())
        return [
            View("left", camera, Pose.identity(dtype=torch.float64), image=self.left),
            View("right", camera, beside, image=self.right),
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
    return (
        torch.from_numpy(np.asarray(Image.open(path, formats=FORMATS).convert("RGB")).copy())
        .permute(2, 0, 1)
        .float()
        / 255
    )


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

    Of our disparities as many are taken as OpenCV gives, the most confident ones.
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
