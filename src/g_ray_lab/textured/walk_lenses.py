"""Lenses of the views of a walk, by the kind of data set: pinholes, strongly varied zooms, fisheyes, or all of them."""

from math import radians
from typing import Literal, get_args

import numpy as np
import torch

from g_ray.cameras.camera import Camera
from g_ray.cameras.equirectangular import Equirectangular
from g_ray_lab.sources.random_lenses import draw_fisheye_coefficients, make_fisheyes, make_pinholes

LensKind = Literal["pinhole", "zoom", "fisheye", "mixed"]
PINHOLE_DEG = (30.0, 110.0)
FISHEYE_DEG = (100.0, 200.0)
"""Fields of view along the longer side of the image."""
PANORAMAS = 0.08
"""Share of full panoramas among the views of mixed sets; the others are pinholes or fisheyes, half each."""
SAME_LENS = 0.5
"""Share of pinhole walks with one lens; in the others it varies by up to VARIED about that of the walk."""
VARIED = 1.25
OFF_CENTER = 0.04
"""The principal point is up to this far from the middle, in image sizes."""


def draw_cameras(
    kind: LensKind, random: np.random.Generator, count: int, width: int, height: int
) -> list[Camera]:
    """Draw the camera of each view of a walk."""
    if kind not in get_args(LensKind):
        raise ValueError(f"lenses {kind!r}: choose one of {', '.join(get_args(LensKind))}")
    if kind == "pinhole":
        middle, varied = _draw_angle(PINHOLE_DEG, random), random.random() >= SAME_LENS
        spread = VARIED ** (2 * random.random(count) - 1) if varied else np.ones(count)
        return [_make_pinhole(np.clip(middle * s, *PINHOLE_DEG), random, width, height) for s in spread]
    if kind == "zoom":
        # Stratified, so that every set has long and short focal lengths.
        share = random.permutation((np.arange(count) + random.random(count)) / count)
        low, high = np.log(PINHOLE_DEG)
        return [_make_pinhole(np.exp(low + (high - low) * s), random, width, height) for s in share]
    if kind == "fisheye":
        return [_make_fisheye(random, width, height) for _ in range(count)]
    return [_make_any(random, width, height) for _ in range(count)]


def _make_any(random: np.random.Generator, width: int, height: int) -> Camera:
    choice = random.random()
    if choice < PANORAMAS:
        return Equirectangular.panorama(width, height)
    if choice < (1 + PANORAMAS) / 2:
        return _make_pinhole(_draw_angle(PINHOLE_DEG, random), random, width, height)
    return _make_fisheye(random, width, height)


def _draw_angle(range_deg: tuple[float, float], random: np.random.Generator) -> float:
    low, high = range_deg
    return low + (high - low) * random.random()


def _make_pinhole(fov_deg: float, random: np.random.Generator, width: int, height: int) -> Camera:
    center, zoom = _draw_frame(random, width, height)
    return make_pinholes(torch.tensor(radians(fov_deg)), center, zoom, width, height)


def _make_fisheye(random: np.random.Generator, width: int, height: int) -> Camera:
    fov = torch.tensor(radians(_draw_angle(FISHEYE_DEG, random)))
    k = draw_fisheye_coefficients(torch.from_numpy(random.random(5)).float())
    return make_fisheyes(fov, k, *_draw_frame(random, width, height), width, height)


def _draw_frame(random: np.random.Generator, width: int, height: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Principal point, and the zoom that makes an angle along the width one along the longer side."""
    center = torch.from_numpy(OFF_CENTER * (2 * random.random(2) - 1)).float()
    return center, torch.tensor(max(width, height) / width)
