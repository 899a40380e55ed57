"""Any3R: takes calibrated rays of any central camera; distance along them, and poses out.

Written from its model card: the code was not to be had, so shapes are checked before anything is used.
"""

from collections.abc import Sequence
from typing import Any

from g_ray.predictors.peers.adapter import (
    Adapter,
    PeerImage,
    PeerView,
    collect_rays,
    read_poses,
    split_views,
)
from g_ray.predictors.peers.peer_framing import Placement, Size, fit_width

PATCH = 14


class Any3R(Adapter):
    """Finds no lenses: without calibration it cannot be run."""

    KIND = "ray"

    def load(self) -> Any:
        return self.prepare(self.import_module("any3r").Any3R.from_pretrained(self.weights))

    def place(self, sizes: Sequence[Size]) -> list[Placement]:
        return fit_width(sizes, self.round_size(PATCH), PATCH)

    def predict(self, images: Sequence[PeerImage]) -> list[PeerView]:
        if any(image.camera is None for image in images):
            raise ValueError("Any3R needs the rays of every photograph: leave out --lenses predicted")
        stacked = self.stack_images(images)
        output = self.model.infer(stacked, collect_rays(images)[None].to(self.device))
        count, (height, width) = len(images), stacked.shape[-2:]
        names = {"depth": (count, height, width), "depth_conf": (count, height, width)}
        names["camera_poses"] = (count, 4, 4)
        parts = {}
        for name, shape in names.items():
            value = output[name]
            if value.numel() != count * shape[1] * shape[2]:
                raise ValueError(
                    f"Any3R gave {name} of shape {tuple(value.shape)}, not {shape}: "
                    "install the version that this adapter knows"
                )
            parts[name] = value.reshape(shape)
        return split_views(parts["depth"], parts["depth_conf"], read_poses(parts["camera_poses"]))
