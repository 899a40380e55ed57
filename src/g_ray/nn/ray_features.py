"""Absolute CamRay at the level of patches: the rays of a patch's pixels become features of its token."""

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from g_ray.cameras.base import Camera
from g_ray.geometry.precision import disable_autocast
from g_ray.rays.ray_map import RayMap


class RayFeatures(nn.Module):
    """Two layers over the camera-local unit rays of all pixels of a patch, to be added to image features.

    `scale` multiplies the rays: over a patch they hardly vary, and over an image by less than 1, so at scale 1
    they whisper beside image features.
    """

    def __init__(self, dim: int, patch: int, scale: float) -> None:
        super().__init__()
        self.patch, self.scale = patch, scale
        self.layers = nn.Sequential(nn.Linear(3 * patch**2, dim), nn.GELU(), nn.Linear(dim, dim))

    def forward(self, camera: Camera, batch: int) -> Float[Tensor, "batch patch dim"]:
        """Of one view; pixels without a ray count as zero."""
        with disable_autocast(camera.params), torch.no_grad():
            rays = RayMap.from_camera(camera)
            directions = self.scale * rays.directions * rays.valid[..., None]
        patches = rearrange(directions, "... (r p) (s q) c -> ... (r s) (p q c)", p=self.patch, q=self.patch)
        weight = self.layers[0].weight
        assert isinstance(weight, Tensor)
        return self.layers(patches.to(weight)).expand(batch, -1, -1)
