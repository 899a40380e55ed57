"""CPU seconds of stereo along rays: how they grow with pixels, hypotheses and sources, for one view of a room."""

import time
from dataclasses import replace
from typing import Any

import torch

from g_ray.cameras import OpenCVFisheye
from g_ray.data.rooms import make_random_room
from g_ray.geometry.pose import Pose
from g_ray.stereo import StereoOptions, StereoView, sweep_view

SIDE = 480
NEAR, FAR = 0.5, 8.0


def benchmark_stereo(repeats: int = 1) -> dict[str, Any]:
    """Time `sweep_view` of a fisheye photograph; returns settings and one row per case."""
    base = StereoOptions(long_side=SIDE)
    cases = {
        "480 px, 4 sources": (SIDE, base),
        "480 px, 2 sources": (SIDE, replace(base, sources=2)),
        "480 px, half the hypotheses": (SIDE, replace(base, hypotheses=base.hypotheses // 2)),
        "240 px, 4 sources": (SIDE // 2, base),
    }
    rows = []
    for name, (side, options) in cases.items():
        views = make_views(side, options.sources + 1)
        seconds = []
        for _ in range(repeats):
            start = time.process_time()
            sweep_view(views[0], views[1:], NEAR, FAR, options)
            seconds.append(time.process_time() - start)
        rows.append({"case": name, "cpu_seconds": min(seconds), "hypotheses": options.hypotheses})
    return {"settings": {"repeats": repeats, "threads": torch.get_num_threads()}, "rows": rows}


def make_views(side: int, count: int) -> list[StereoView]:
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
        views.append(StereoView(room.render(camera, pose).rgb.movedim(-1, 0).contiguous(), camera, pose))
    return views
