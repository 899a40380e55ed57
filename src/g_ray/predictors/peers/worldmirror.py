"""WorldMirror 1 (HunyuanWorld-Mirror): z-depth and poses; K and poses of all views may be given."""

from collections.abc import Sequence
from typing import Any

from g_ray.predictors.peers.adapter import (
    Adapter,
    PeerImage,
    PeerView,
    collect_intrinsics,
    collect_poses,
    make_pinholes,
    read_poses,
    split_views,
)
from g_ray.predictors.peers.peer_framing import Placement, Size, fit_width

PATCH = 14


class WorldMirror(Adapter):
    """Imported from a clone, whose folder must be on PYTHONPATH."""

    def load(self) -> Any:
        make = self.import_module("src.models.models.worldmirror").WorldMirror
        return self.prepare(make.from_pretrained(self.weights))

    def place(self, sizes: Sequence[Size]) -> list[Placement]:
        return fit_width(sizes, self.round_size(PATCH), PATCH)

    def predict(self, images: Sequence[PeerImage]) -> list[PeerView]:
        stacked = self.stack_images(images)
        # Other keys than these, and keys whose flag is 0, would be ignored without a word.
        views = {"img": stacked}
        posed = all(image.pose is not None for image in images)
        calibrated = all(image.camera is not None for image in images)
        if posed:
            views["camera_poses"] = collect_poses(images)[None].to(self.device)
        if calibrated:
            views["camera_intrs"] = collect_intrinsics(images)[None].to(self.device)
        output = self.model(views=views, cond_flags=[int(posed), 0, int(calibrated)])
        height, width = stacked.shape[-2:]
        depth, confidence = (output[name].reshape(-1, height, width) for name in ("depth", "depth_conf"))
        lenses = make_pinholes(output["camera_intrs"][0], width, height)
        return split_views(depth, confidence, read_poses(output["camera_poses"][0]), lenses)
