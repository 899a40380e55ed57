"""CPU seconds of stereo along rays: how they grow with pixels, hypotheses and sources, for one view of a room.

A sweep of the whole range at full resolution costs its number of samples, pixels × hypotheses × sources. Beyond
`StereoOptions.full_volume` samples the range is swept at half the resolution, and only a band around the result at the
full one: an eighth of the samples, and a band of 17 hypotheses.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from g_ray.cameras import OpenCVFisheye
from g_ray.geometry.pose import Pose
from g_ray.media.view import View
from g_ray.stereo import StereoOptions, sweep_view
from g_ray.stereo.sweep import count_hypotheses
from g_ray_lab.bench.stereo_pairs import compare_pair, read_pairs
from g_ray_lab.sources.rooms import make_random_room

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
    """Photograph a room by a 130° fisheye from places beside each other."""
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
