"""MapAnything: takes rays of any lens and poses; rays, distances along them, and poses in meters out."""

from collections.abc import Sequence
from typing import Any

import torch

from g_ray.predictors.peers.adapter import (
    Adapter,
    PeerImage,
    PeerView,
    collect_rays,
    make_ray_cameras,
    normalize_imagenet,
    read_poses,
    split_views,
)
from g_ray.predictors.peers.peer_framing import Placement, Size, fit_shapes

PATCH = 14
PATCHES = (37, 28, 24, 21, 18, 12)
"""Rows of landscape images that are 37 patches wide: 1:1, 4:3, 3:2, 16:9, 2:1, 3.2:1."""
NORM = "dinov2"


class MapAnything(Adapter):
    """Rays go in as they are: from K it would make rays of integer pixels, half a pixel off."""

    KIND = "ray"
    FILTER = "lanczos_or_bicubic"

    def load(self) -> Any:
        model = self.import_module("mapanything.models").MapAnything.from_pretrained(self.weights)
        norm = model.encoder.data_norm_type
        if norm != NORM:
            raise ValueError(
                f"{self.weights} wants images normalized as {norm!r}, this adapter knows {NORM!r}"
            )
        return self.prepare(model)

    def place(self, sizes: Sequence[Size]) -> list[Placement]:
        scale = self.round_size(PATCH) / self.card.side
        wide = [(37, rows) for rows in PATCHES]
        # Portraits of 3.2:1 do not exist there.
        shapes = [*wide, *((rows, 37) for _, rows in wide[1:-1])]
        return fit_shapes(sizes, [_scale(shape, scale) for shape in shapes])

    def predict(self, images: Sequence[PeerImage]) -> list[PeerView]:
        output = self.model.infer(
            [self._make_view(image) for image in images],
            memory_efficient_inference=False,
            use_amp=self.settings.precision == "bf16",
            amp_dtype="bf16",
            # Both would set points to zero that are to be scored.
            apply_mask=False,
            mask_edges=False,
        )
        stacked = {
            name: torch.cat([view[name] for view in output])
            for name in ("depth_along_ray", "conf", "ray_directions", "camera_poses")
        }
        return split_views(
            stacked["depth_along_ray"][..., 0],
            stacked["conf"],
            read_poses(stacked["camera_poses"]),
            make_ray_cameras(stacked["ray_directions"]),
        )

    def _make_view(self, image: PeerImage) -> dict[str, Any]:
        """Make the dict of one view, with the keys that are known: others are refused."""
        view: dict[str, Any] = {
            "img": normalize_imagenet(image.image)[None].to(self.device),
            "data_norm_type": [NORM],
        }
        if image.camera is not None:
            view["ray_directions"] = collect_rays([image]).to(self.device)
        if image.pose is not None:
            view["camera_poses"] = image.pose.world_from_cam.float()[None].to(self.device)
            # Known poses may be in any unit.
            view["is_metric_scale"] = torch.tensor([False], device=self.device)
        return view


def _scale(patches: Size, scale: float) -> Size:
    columns, rows = patches
    return max(1, round(columns * scale)) * PATCH, max(1, round(rows * scale)) * PATCH
