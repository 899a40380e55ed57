"""π³ and π³-X: points in the frame of every camera, poses as world_from_cam without a reference view.

Depth is the distance along the ray, whose direction is that of the points. Wid3R, built on π³, is here too.
"""

from collections.abc import Sequence
from math import pi
from typing import Any

import torch
from torch import Tensor

from g_ray.cameras.equirectangular import Equirectangular
from g_ray.cameras.pinhole import Pinhole
from g_ray.models.foreign_weights import read_foreign
from g_ray.models.weights import find_file
from g_ray.predictors.peers.adapter import (
    Adapter,
    PeerImage,
    PeerView,
    collect_poses,
    collect_rays,
    make_ray_cameras,
    read_poses,
    split_views,
)
from g_ray.predictors.peers.peer_framing import Placement, Size, fit_first

PIXELS, PATCH = 255_000, 14


class Pi3(Adapter):
    """Images alone, all stretched to the shape of the first."""

    KIND = "ray"
    FILTER = "lanczos"

    def load(self) -> Any:
        return self.prepare(self.import_module("pi3.models.pi3").Pi3.from_pretrained(self.weights))

    def place(self, sizes: Sequence[Size]) -> list[Placement]:
        pixels = PIXELS
        if self.settings.size is not None:
            width, height = (side * self.settings.size / max(sizes[0]) for side in sizes[0])
            # Half a patch more on each side, so that rounding to patches may go up.
            pixels = round((width + PATCH / 2) * (height + PATCH / 2))
        return fit_first(sizes, pixels, PATCH)

    def predict(self, images: Sequence[PeerImage]) -> list[PeerView]:
        output = self.model(self.stack_images(images))
        return read_local_points(output, output["conf"][..., 0].sigmoid())


class Pi3X(Pi3):
    """Takes rays in front of the camera, and poses together with them; in meters, approximately."""

    def load(self) -> Any:
        return self.prepare(self.import_module("pi3.models.pi3x").Pi3X.from_pretrained(self.weights))

    def predict(self, images: Sequence[PeerImage]) -> list[PeerView]:
        # Masks [1 view] mark the views that have a prior; without them all views would count as known.
        with_rays = all(image.camera is not None for image in images)
        posed = torch.tensor([[image.pose is not None and with_rays for image in images]])
        priors: dict[str, Any] = {}
        if with_rays:
            priors["rays"] = collect_rays(images)[None].to(self.device)
        if bool(posed.any()):
            priors["poses"] = collect_poses(images)[None].to(self.device)
        output = self.model(
            self.stack_images(images),
            **priors,
            with_prior=with_rays,
            mask_add_depth=torch.zeros_like(posed).to(self.device),
            mask_add_ray=torch.full_like(posed, with_rays).to(self.device),
            mask_add_pose=posed.to(self.device),
        )
        return read_local_points(output, output["conf"][..., 0].sigmoid())


class Wid3R(Pi3):
    """Takes the type of a lens alone: pinhole, fisheye or panorama. It needs a GPU."""

    def load(self) -> Any:
        make = self.import_module("wid3r.models.wid3r_training").Wid3R
        model = make(
            pos_type="rope100",
            decoder_size="large",
            load_vggt=False,
            freeze_encoder=True,
            use_global_points=False,
            train_conf=False,
            num_dec_blk_not_to_checkpoint=4,
            ckpt=None,
            use_camera_gt=False,
        )
        return self.load_state(model, read_foreign(find_file(self.weights)))

    def predict(self, images: Sequence[PeerImage]) -> list[PeerView]:
        lenses = torch.cat([self._make_lens(image) for image in images]).to(self.device)  # pyright: ignore
        output = self.model(self.stack_images(images), cameras=lenses)
        # Uncertainty is 0 or more: 1/(1 + u) orders pixels as it does, the best first.
        return read_local_points(
            output, 1 / (1 + output["uncertain"].reshape(output["local_points"].shape[:-1]))
        )

    def _make_lens(self, image: PeerImage) -> Any:
        """Make its camera object; of the parameters it reads none, as in its own evaluation."""
        types = self.import_module("cam_utils.camera")
        height, width = image.image.shape[-2:]
        if isinstance(image.camera, Equirectangular):
            return types.Spherical(params=torch.tensor([1.0, 1.0, 1.0, 1.0, width, height, pi, pi / 2]))
        if image.camera is None or isinstance(image.camera, Pinhole):
            return types.Pinhole(params=torch.tensor([1.0, 1.0, float(width), float(height)]))
        return types.Fisheye624(params=torch.zeros(16))


def read_local_points(output: Any, confidence: Tensor) -> list[PeerView]:
    """Read points of every camera [1 view h w 3] and world_from_cam [1 view 4 4]."""
    points = output["local_points"][0].detach().float()
    poses = read_poses(output["camera_poses"][0].float())
    return split_views(points.norm(dim=-1), confidence[0], poses, make_ray_cameras(points))
