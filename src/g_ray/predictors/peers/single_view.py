"""MoGe-2 and UniK3D: depth in meters of single photographs, at the size that they are given; no poses."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from g_ray.predictors.peers.adapter import (
    Adapter,
    PeerImage,
    PeerView,
    collect_rays,
    get_lens,
    make_pinholes,
    make_ray_cameras,
    split_views,
)
from g_ray.predictors.peers.peer_framing import Placement, Size, limit_long_side


class SingleView(Adapter):
    """Resizes by itself: images go in as they are, if they are not larger than --size."""

    def place(self, sizes: Sequence[Size]) -> list[Placement]:
        return limit_long_side(sizes, self.settings.size or self.card.side)


class MoGe(SingleView):
    """Takes the horizontal field of view; its principal point is the middle."""

    def load(self) -> Any:
        return self.prepare(self.import_module("moge.model.v2").MoGeModel.from_pretrained(self.weights))

    def predict(self, images: Sequence[PeerImage]) -> list[PeerView]:
        (image,) = images
        height, width = image.image.shape[-2:]
        fov_deg = None
        if image.camera is not None:
            focal = float(get_lens(image).central_intrinsics()[0, 0])
            fov_deg = 2 * math.degrees(math.atan(width / 2 / focal))
        output = self.model.infer(
            image.image.to(self.device),
            apply_mask=False,
            fov_x=fov_deg,
            use_fp16=self.settings.precision == "bf16" and self.device.type == "cuda",
        )
        # K in units of width and height.
        pixels = torch.tensor([[float(width)], [float(height)], [1.0]])
        intrinsics = output["intrinsics"].detach().float().cpu().reshape(1, 3, 3) * pixels
        depth = output["depth"].reshape(1, height, width)
        return split_views(depth, torch.ones_like(depth), None, make_pinholes(intrinsics, width, height))


class UniK3D(SingleView):
    """Takes rays of any lens, and finds them otherwise. It ignores them unless it is in evaluation mode.

    Rays that it is given come back to 0.005°, measured at 640 px; its own camera objects come back 0.9° off.
    """

    KIND = "ray"
    LEVEL = 9
    """Resolution, from 0 to 9."""

    def load(self) -> Any:
        model = self.prepare(self.import_module("unik3d.models").UniK3D.from_pretrained(self.weights))
        model.resolution_level = self.LEVEL
        return model

    def predict(self, images: Sequence[PeerImage]) -> list[PeerView]:
        (image,) = images
        height, width = image.image.shape[-2:]
        rays = None
        if image.camera is not None:
            rays = collect_rays(images)[0].movedim(-1, 0).to(self.device)
        output = self.model.infer((255 * image.image).round().to(self.device), rays=rays)
        distance = output["distance"].reshape(1, height, width)
        confidence = output["confidence"].reshape(1, height, width)
        directions = output["rays"].reshape(1, 3, height, width).movedim(1, -1)
        return split_views(distance, confidence, None, make_ray_cameras(directions))
