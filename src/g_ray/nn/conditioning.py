"""Absolute conditioning: rays as input channels of every pixel, or as features of every patch."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from g_ray.geometry.pose import Pose
from g_ray.rays.ray_map import RayMap
from g_ray.rays.views import Views
from g_ray.runtime.device import disable_autocast

CHANNELS = 6
NOISE_SIZE = 256


def plucker(rays: RayMap, pose: Pose) -> Float[Tensor, "*shape 6"]:
    """Compute [d, o × d]: world direction and moment. Depends on where the world's origin is."""
    world = rays.to_world(pose)
    assert world.origins is not None
    return torch.cat([world.directions, torch.linalg.cross(world.origins, world.directions)], -1)


def camray(rays: RayMap, pose: Pose | None = None) -> Float[Tensor, "*shape 6"]:
    """Compute [d, 0]: the camera-local direction; no pose is used. Six channels, so that it can replace `plucker`."""
    return torch.cat([rays.directions, torch.zeros_like(rays.directions)], -1)


def raymap(rays: RayMap, pose: Pose) -> Float[Tensor, "*shape 6"]:
    """Compute [o, d]: where the ray starts in the world and where it goes."""
    world = rays.to_world(pose)
    assert world.origins is not None
    return torch.cat([world.origins, world.directions], -1)


CONDITIONINGS: dict[str, Callable[..., Float[Tensor, "*shape 6"]]] = {
    "plucker": plucker,
    "camray": camray,
    "raymap": raymap,
}


class RayChannels(nn.Module):
    """Six channels per pixel, by the name of a conditioning; no parameters.

    "none" gives one fixed random map to all views (repeated where an image is larger): it tells pixels apart, so
    that a token is not empty, and does not depend on the camera.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        if name not in (*CONDITIONINGS, "none"):
            raise ValueError(f"unknown conditioning {name!r}: choose one of {', '.join(CONDITIONINGS)}, none")
        self.name = name
        noise = torch.randn(NOISE_SIZE, NOISE_SIZE, CHANNELS) if name == "none" else None
        self.register_buffer("noise", noise)

    def forward(self, views: Views, index: int) -> Float[Tensor, "batch h w channel"]:
        """Compute the channels of one view, in the precision of its camera; zero where the lens has no ray."""
        camera = views.cameras[index]
        if self.name == "none":
            return self._tile_noise(camera.height, camera.width).expand(views.batch, -1, -1, -1)
        with disable_autocast(camera.params):
            rays = views.cast_pixel_rays(index).expand_to_batch(views.batch, 2)
            if self.name == "camray":
                channels = CONDITIONINGS[self.name](rays)
            else:
                channels = CONDITIONINGS[self.name](rays, self._get_pose(views, index).to(rays.dtype))
        # Cameras return finite rays where they are not valid, so a product with the mask is safe.
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


# Absolute CamRay at the level of patches: the rays of a patch's pixels become features of its token.


class RayFeatures(nn.Module):
    """Two layers over the camera-local unit rays of all pixels of a patch, to be added to image features.

    `scale` multiplies the rays: over a patch they hardly vary, and over an image by less than 1, so at scale 1
    they are small compared with image features. `gain` multiplies the initial weights of the last layer: near 0 the
    network starts as if it had no rays.
    """

    def __init__(self, dim: int, patch: int, scale: float, gain: float = 1.0) -> None:
        super().__init__()
        self.patch, self.scale = patch, scale
        self.layers = nn.Sequential(nn.Linear(3 * patch**2, dim), nn.GELU(), nn.Linear(dim, dim))
        with torch.no_grad():
            for parameter in self.layers[-1].parameters():
                parameter.mul_(gain)

    def forward(self, views: Views, index: int, batch: int) -> Float[Tensor, "batch patch dim"]:
        """Compute the features of one view; pixels without a ray count as zero."""
        with torch.no_grad():
            rays = views.cast_pixel_rays(index)
            directions = self.scale * rays.directions * rays.valid[..., None]
        patches = split_into_patches(directions, self.patch)
        weight = self.layers[0].weight
        assert isinstance(weight, Tensor)
        return self.layers(patches.to(weight)).expand(batch, -1, -1)


def split_into_patches(
    maps: Float[Tensor, "*batch h w channel"], patch: int
) -> Float[Tensor, "*batch token value"]:
    """Split maps into patches, row by row; the values of a patch are ordered row, column, channel."""
    # [… rows p columns q c] → [… (rows columns) (p q c)]
    cells = maps.unflatten(-2, (-1, patch)).unflatten(-4, (-1, patch))
    return cells.transpose(-4, -3).flatten(-5, -4).flatten(-3)


def join_patches(
    tokens: Float[Tensor, "*batch token value"], patch: int, rows: int
) -> Float[Tensor, "*batch h w channel"]:
    """Undo `split_into_patches`."""
    cells = tokens.unflatten(-1, (patch, patch, -1)).unflatten(-4, (rows, -1))
    return cells.transpose(-4, -3).flatten(-3, -2).flatten(-4, -3)
