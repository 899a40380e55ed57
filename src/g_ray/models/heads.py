"""Prediction, what the reconstruction network returns for views in the frame of the first one, and its small heads."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from g_ray.geometry.pose import Pose, rotation_from_quaternion
from g_ray.runtime.device import disable_autocast


@dataclass(frozen=True)
class Prediction:
    """Maps over the pixels of views of one size, and their poses; up to one scale for the whole scene.

    `camera_points` (DPT head) are in the frame of each camera, `world_points` (linear head) in that of the first
    view; poses come from a head of their own. The three are independent estimates.
    """

    world_points: Float[Tensor, "*batch h w 3"]
    world_confidence: Float[Tensor, "*batch h w"]
    camera_points: Float[Tensor, "*batch h w 3"]
    camera_confidence: Float[Tensor, "*batch h w"]
    translation: Float[Tensor, "*batch 3"]
    quaternion: Float[Tensor, "*batch 4"]

    @property
    def rays(self) -> Float[Tensor, "*batch h w 3"]:
        """Unit directions of the camera-space points."""
        return F.normalize(self.camera_points, dim=-1)

    @property
    def ray_depth(self) -> Float[Tensor, "*batch h w"]:
        """Distance from the camera along the ray."""
        return self.camera_points.norm(dim=-1)

    @property
    def z_depth(self) -> Float[Tensor, "*batch h w"]:
        """Distance from the camera's plane; negative behind it."""
        return self.camera_points[..., 2]

    @property
    def poses(self) -> Pose:
        """world_from_cam, where the world is the first view as predicted (its own pose is not forced to be 1)."""
        return Pose.from_parts(rotation_from_quaternion(self.quaternion), self.translation)

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> "Prediction":
        """Pass each tensor through a function that keeps the last axes."""
        return Prediction(**{name: change(value) for name, value in vars(self).items()})

    def select_view(self, index: int) -> "Prediction":
        """Select one view of a prediction whose second batch axis runs over views."""
        return self.map_tensors(lambda tensor: tensor[:, index])

    def to(self, *args: Any, **kwargs: Any) -> "Prediction":
        return self.map_tensors(lambda tensor: tensor.to(*args, **kwargs))


# Pointmaps: how the raw numbers of a head become a point and a confidence for every pixel.


def linear(raw: Float[Tensor, "*shape c"]) -> Float[Tensor, "*shape c"]:
    return raw


def inverse_log(raw: Float[Tensor, "*shape c"]) -> Float[Tensor, "*shape c"]:
    """Compute sign(y) (e^|y| − 1): far points from small numbers, in any direction (VGGT's points). Slope 1 at zero."""
    return torch.where(raw < 0, -torch.expm1(-raw), torch.expm1(raw))


def exponential(raw: Float[Tensor, "*shape c"]) -> Float[Tensor, "*shape c"]:
    """Compute e^y, positive (VGGT's depth)."""
    return raw.exp()


def depth_first(raw: Float[Tensor, "*shape 3"]) -> Float[Tensor, "*shape 3"]:
    """Compute (xz, yz, z) with z = e^y₂ (Pi3's points): in front of the camera, so for fields of view below 180°."""
    depth = raw[..., 2:].exp()
    return torch.cat([raw[..., :2] * depth, depth], -1)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": linear,
    "inverse_log": inverse_log,
    "exponential": exponential,
    "depth_first": depth_first,
}


def get_activation(name: str) -> Callable[[Tensor], Tensor]:
    if name not in ACTIVATIONS:
        raise ValueError(f"unknown activation {name!r}: choose one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


@dataclass(frozen=True)
class Pointmap:
    """Points (or depths, with one channel) and confidences of at least 1 for every pixel."""

    points: Float[Tensor, "*image h w channel"]
    confidence: Float[Tensor, "*image h w"]

    @classmethod
    def from_raw(
        cls, raw: Float[Tensor, "*image h w raw"], activate: Callable[[Tensor], Tensor]
    ) -> "Pointmap":
        """Pass all channels but the last through an activation; confidence 1 + e^c from the last."""
        # At least 1, as VGGT and DUSt3R: the logarithm in the loss then cannot reward confidences near 0.
        return cls(activate(raw[..., :-1]), 1 + raw[..., -1].exp())


# Linear patch head: each token writes the points of its own pixels.


class LinearPointHead(nn.Module):
    """LayerNorm, then one linear map to a point and a confidence for every pixel of the patch (appendix "3D
    Reconstruction"; the confidence is there because the loss weights with it)."""

    def __init__(self, dim: int, patch: int, *, activate: str = "inverse_log") -> None:
        super().__init__()
        self.patch, self.activate = patch, get_activation(activate)
        self.norm = nn.LayerNorm(dim, eps=1e-5)
        self.pixels = nn.Linear(dim, 4 * patch**2)

    def forward(self, features: Float[Tensor, "image patch dim"], rows: int, columns: int) -> Pointmap:
        with disable_autocast(features):
            raw = self.pixels(self.norm(features.to(self.norm.weight.dtype)))
            # [image (4 p p) rows columns] → [image 4 (rows p) (columns p)]; pixel (i, j) is number c p² + i p + j.
            maps = F.pixel_shuffle(raw.mT.unflatten(-1, (rows, columns)), self.patch)
            return Pointmap.from_raw(maps.movedim(1, -1), self.activate)


# Pose head: the patch features of a view, pooled, become a translation and a quaternion.


class ResidualConv(nn.Module):
    """x + relu(W₃ relu(W₂ relu(W₁ x))); 1×1 convolutions, so a linear map of every patch."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.res_conv1, self.res_conv2, self.res_conv3 = (nn.Linear(dim, dim) for _ in range(3))

    def forward(self, x: Float[Tensor, "image patch dim"]) -> Float[Tensor, "image patch dim"]:
        return x + self.res_conv3(self.res_conv2(self.res_conv1(x).relu()).relu()).relu()


class PoseHead(nn.Module):
    """Residual 1×1 convolutions, global average pooling, an MLP, and a branch each for translation and quaternion
    (appendix "3D Reconstruction"; laid out and named as Pi3's and reloc3r's, with a quaternion for their matrix)."""

    def __init__(self, dim: int, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=1e-5)
        self.project = nn.Linear(dim, width)
        self.res_conv = nn.ModuleList(ResidualConv(width) for _ in range(2))
        # GELU for Pi3's ReLU: as long as poses are beyond the trunk the head learns a constant, and units that
        # ReLU has switched off for that do not come back.
        self.more_mlps = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.fc_t = nn.Linear(width, 3)
        self.fc_rot = nn.Linear(width, 4)
        with torch.no_grad():  # every view starts near the first
            self.fc_rot.bias.copy_(torch.tensor([0.0, 0.0, 0.0, 1.0]))

    def forward(
        self,
        features: Float[Tensor, "image patch dim"],
        mask: Bool[Tensor, "image patch"] | None = None,
    ) -> tuple[Float[Tensor, "image 3"], Float[Tensor, "image 4"]]:
        """Translation and unit quaternion (x, y, z, w) of world_from_cam; patches outside `mask` do not count."""
        with disable_autocast(features):
            x = self.project(self.norm(features.to(self.norm.weight.dtype)))
            for layer in self.res_conv:
                x = layer(x)
            x = self.more_mlps(_masked_mean(x, mask))
            return self.fc_t(x), nn.functional.normalize(self.fc_rot(x), dim=-1)


def _masked_mean(x: Tensor, mask: Tensor | None) -> Float[Tensor, "image dim"]:
    if mask is None:
        return x.mean(1)
    weight = mask.to(x.dtype)[..., None]
    return (x * weight).sum(1) / weight.sum(1).clamp(min=1)
