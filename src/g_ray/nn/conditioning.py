"""Absolute conditioning as a layer: what each pixel's ray tells a network through its input channels."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from g_ray.encodings.absolute import CONDITIONINGS
from g_ray.geometry.pose import Pose
from g_ray.geometry.precision import disable_autocast
from g_ray.rays.ray_map import RayMap
from g_ray.rays.views import Views

CHANNELS = 6
NOISE_SIZE = 256


class RayChannels(nn.Module):
    """Six channels per pixel, by the name of a conditioning; no parameters.

    "none" gives one fixed random map to all views (repeated where an image is larger): it tells pixels apart, so
    that a token is not empty, and says nothing of the camera.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        if name not in (*CONDITIONINGS, "none"):
            raise ValueError(f"unknown conditioning {name!r}: choose one of {', '.join(CONDITIONINGS)}, none")
        self.name = name
        noise = torch.randn(NOISE_SIZE, NOISE_SIZE, CHANNELS) if name == "none" else None
        self.register_buffer("noise", noise)

    def forward(self, views: Views, index: int) -> Float[Tensor, "batch h w channel"]:
        """Of one view, in the precision of its camera; zero where the lens has no ray."""
        camera = views.cameras[index]
        if self.name == "none":
            return self._tile_noise(camera.height, camera.width).expand(views.batch, -1, -1, -1)
        with disable_autocast(camera.params):
            rays = _expand_to_batch(RayMap.from_camera(camera), views.batch)
            if self.name == "camray":
                channels = CONDITIONINGS[self.name](rays)
            else:
                channels = CONDITIONINGS[self.name](rays, self._get_pose(views, index).to(rays.dtype))
        return channels * rays.valid[..., None]

    def _get_pose(self, views: Views, index: int) -> Pose:
        if views.poses is None:
            raise ValueError(
                f"{self.name} needs camera poses, but the views have none: pass Views(cameras, poses)"
            )
        return Pose(views.poses[..., index].world_from_cam.expand(views.batch, 4, 4))

    def _tile_noise(self, height: int, width: int) -> Float[Tensor, "h w channel"]:
        assert isinstance(self.noise, Tensor)
        rows, columns = (torch.arange(n, device=self.noise.device) % NOISE_SIZE for n in (height, width))
        return self.noise[rows[:, None], columns]


def _expand_to_batch(rays: RayMap, batch: int) -> RayMap:
    directions = rays.directions.expand(batch, *rays.directions.shape[-3:])
    return RayMap(directions, rays.valid.expand(batch, *rays.valid.shape[-2:]))
