"""Depth Anything 3: z-depth and cameras of many views; K only together with the poses of all views.

Its `inference` is not used: it crops views of different sizes, returns given poses as its prediction or aligned ones
with depth of another scale, and runs in float16 on a CPU. The network below it takes tensors and has none of that.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.geometry.pose import Pose
from g_ray.predictors.peers.adapter import (
    Adapter,
    PeerImage,
    PeerView,
    collect_intrinsics,
    collect_poses,
    invert_extrinsics,
    make_pinholes,
    normalize_imagenet,
    split_views,
)
from g_ray.predictors.peers.peer_framing import Placement, Size, fit_long_side

PATCH = 14
MIN_SPREAD = 0.1
"""Poses are divided by their median distance from the first, but not by less than this, as in DA3."""


class DepthAnything3(Adapter):
    """Long side 504 px; views of different shapes are cropped to the smallest in the middle, as DA3 does."""

    FILTER = "area"

    def load(self) -> Any:
        make = self.import_module("depth_anything_3.api").DepthAnything3
        return self.prepare(make.from_pretrained(self.weights))

    def place(self, sizes: Sequence[Size]) -> list[Placement]:
        return fit_long_side(sizes, self.round_size(PATCH), PATCH)

    def predict(self, images: Sequence[PeerImage]) -> list[PeerView]:
        stacked = normalize_imagenet(self.stack_images(images))
        extrinsics = intrinsics = None
        if all(image.pose is not None and image.camera is not None for image in images):
            extrinsics = normalize_extrinsics(collect_poses(images))[None].to(self.device)
            intrinsics = collect_intrinsics(images)[None].to(self.device)
        # The last argument keeps the order of the views: by default another one becomes the reference.
        output = self.model.model(stacked, extrinsics, intrinsics, [], False, False, "first")
        if "extrinsics" not in output:
            raise ValueError(
                f"{self.weights} estimates depth of single photographs: give DA3 weights for many views"
            )
        height, width = stacked.shape[-2:]
        lenses = make_pinholes(output["intrinsics"][0], width, height)
        depth = output["depth"].reshape(len(images), height, width)
        confidence = output["depth_conf"].reshape(len(images), height, width)
        return split_views(depth, confidence, invert_extrinsics(output["extrinsics"][0]), lenses)


def normalize_extrinsics(world_from_cam: Float[Tensor, "view 4 4"]) -> Float[Tensor, "view 4 4"]:
    """cam_from_world relative to the first camera, in units of the median distance from it."""
    poses = Pose(world_from_cam.double()).relative_to_first()
    spread = torch.linalg.vector_norm(poses.translation, dim=-1).median().clamp(min=MIN_SPREAD)
    return poses.scale_translation(1 / spread).inverse().world_from_cam.float()
