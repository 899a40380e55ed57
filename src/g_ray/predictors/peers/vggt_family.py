"""The family of VGGT: our own implementation of VGGT itself, and adapters to VGGT-Omega and OmniVGGT.

All predict z-depth with a confidence of at least 1, and cameras in VGGT's nine numbers (`g_ray.models.vggt`).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from g_ray.models.foreign_weights import read_foreign
from g_ray.models.vggt import VGGT, EncodedCameras, load_vggt
from g_ray.models.weights import find_file
from g_ray.nn.int8 import quantize_blocks
from g_ray.predictors.peers.adapter import (
    Adapter,
    PeerImage,
    PeerView,
    collect_intrinsics,
    collect_poses,
    make_pinholes,
    split_views,
)
from g_ray.predictors.peers.peer_framing import Placement, Size, fit_square, fit_tokens, fit_width

PATCH = 14


class NativeVGGT(Adapter):
    """Images as VGGT's loader prepares them: 518 px wide, cropped or padded to at most a square."""

    model: VGGT

    def load(self) -> VGGT:
        model = self.prepare(load_vggt(self.weights))
        if self.settings.precision == "int8":
            quantize_blocks(model.encoder)
            quantize_blocks(model.aggregator)
        return model

    def place(self, sizes: Sequence[Size]) -> list[Placement]:
        patch = self.model.config.patch
        rule = fit_width if self.settings.fit == "crop" else fit_square
        return rule(sizes, self.round_size(patch), patch)

    def predict(self, images: Sequence[PeerImage]) -> list[PeerView]:
        output = self.model(self.stack_images(images))
        return read_prediction(output.cameras.code, output.depth, output.confidence)


class VGGTOmega(Adapter):
    """Images alone, in 1024 patches of 16 px whatever their aspect ratio."""

    FILE = "vggt_omega_1b_512.pt"
    PATCH = 16

    def load(self) -> Any:
        model = self.import_module("vggt_omega.models").VGGTOmega()
        return self.load_state(model, read_foreign(find_file(self.weights, self.FILE)))

    def place(self, sizes: Sequence[Size]) -> list[Placement]:
        return fit_tokens(sizes, self.round_size(self.PATCH), self.PATCH)

    def predict(self, images: Sequence[PeerImage]) -> list[PeerView]:
        output = self.model(self.stack_images(images))
        return read_prediction(output["pose_enc"], output["depth"][..., 0], output["depth_conf"])


class OmniVGGT(Adapter):
    """Takes K and poses of the same views, the first among them. Poses go in as cam_from_world, 3×4."""

    FILE = "OmniVGGT.safetensors"

    def load(self) -> Any:
        make = self.import_module("omnivggt.models.omnivggt").OmniVGGT
        with skip_hub():
            model = make()
        return self.load_state(model, read_foreign(find_file(self.weights, self.FILE)))

    def place(self, sizes: Sequence[Size]) -> list[Placement]:
        return fit_width(sizes, self.round_size(PATCH), PATCH)

    def predict(self, images: Sequence[PeerImage]) -> list[PeerView]:
        stacked = self.stack_images(images)
        known = [index for index, image in enumerate(images) if image.pose is not None and image.camera]
        # The model reads the device from `depth` even if none is known; empty lists, not None, mean "nothing is known".
        depth = torch.zeros(1, len(images), *stacked.shape[-2:], device=self.device)
        extrinsics = intrinsics = None
        if known:
            extrinsics = torch.linalg.inv(collect_poses(images).double())[None, :, :3].float().to(self.device)
            intrinsics = collect_intrinsics(images)[None].to(self.device)
        output = self.model(
            images=stacked,
            extrinsics=extrinsics,
            intrinsics=intrinsics,
            depth=depth,
            mask=torch.zeros_like(depth, dtype=torch.bool),
            depth_gt_index=[],
            camera_gt_index=known,
        )
        return read_prediction(output["pose_enc"], output["depth"][..., 0], output["depth_conf"])


@contextmanager
def skip_hub() -> Iterator[None]:
    """Build without downloading: OmniVGGT fetches DINOv2 first, although its own weights replace all of it."""
    load = torch.hub.load
    torch.hub.load = lambda *_, **__: nn.Identity()  # has no weights to copy
    try:
        yield
    finally:
        torch.hub.load = load


def read_prediction(code: Tensor, depth: Tensor, confidence: Tensor) -> list[PeerView]:
    """Read encoded cameras [1 view 9], depth and confidence [1 view h w]."""
    height, width = depth.shape[-2:]
    cameras = EncodedCameras(code[0].detach().float().cpu())
    lenses = make_pinholes(cameras.compute_intrinsics(width, height), width, height)
    return split_views(depth[0], confidence[0], cameras.poses, lenses)
