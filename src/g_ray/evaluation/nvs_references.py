"""What synthesis must beat: predictions that need no network."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from g_ray.data.nvs import NVSBatch
from g_ray.rays.ray_map import RayMap
from g_ray.rays.views import Views

Images = Float[Tensor, "scene target 3 h w"]


def predict_mean_color(batch: NVSBatch) -> Images:
    """The mean colour of the contexts, everywhere."""
    mean = batch.context_images.mean((1, 3, 4))
    return mean[:, None, :, None, None].expand_as(batch.target_images)


def copy_context(batch: NVSBatch) -> Images:
    """The first context, pixel by pixel."""
    return batch.context_images[:, :1].expand_as(batch.target_images)


def warp_by_rotation(batch: NVSBatch) -> Images:
    """What the contexts saw in the directions of the target's rays, as if all cameras stood in one place.

    Where several contexts saw a direction the first one counts, where none did the mean colour.
    """
    warped = [_warp(batch, target) for target in range(batch.target_images.shape[1])]
    return torch.stack(warped, 1)


def _warp(batch: NVSBatch, target: int) -> Float[Tensor, "scene 3 h w"]:
    image = predict_mean_color(batch)[:, target].clone()
    directions = _compute_world_directions(batch.targets, target)
    for context in reversed(range(len(batch.contexts))):
        pixels, visible = _look_up(batch.contexts, context, directions)
        colors = F.grid_sample(
            batch.context_images[:, context],
            pixels,
            mode="bilinear",
            padding_mode="border",
            align_corners=False,
        )
        image = torch.where(visible[:, None], colors, image)
    return image


def _compute_world_directions(views: Views, index: int) -> Float[Tensor, "scene h w 3"]:
    assert views.poses is not None
    rays = RayMap.from_camera(views.cameras[index])
    directions = rays.directions.expand(views.batch, *rays.directions.shape[-3:])
    return (views.poses.rotation[:, index, None, None] @ directions[..., None])[..., 0]


def _look_up(views: Views, index: int, directions: Float[Tensor, "scene h w 3"]) -> tuple[Tensor, Tensor]:
    """Where a camera images world directions, in grid_sample's units, and whether it does."""
    assert views.poses is not None
    camera = views.cameras[index]
    local = (views.poses.rotation[:, index, None, None].mT @ directions[..., None])[..., 0]
    pixels, valid = camera.project(local)
    size = pixels.new_tensor([camera.width, camera.height])
    return 2 * pixels / size - 1, valid & camera.contains(pixels)


REFERENCES: dict[str, Callable[[NVSBatch], Images]] = {
    "mean_colour": predict_mean_color,
    "copy_context": copy_context,
    "rotation_warp": warp_by_rotation,
}
