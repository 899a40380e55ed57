"""Poses as measurements: what it costs bundle adjustment to move away from poses that were given.

A camera that turns about a point near itself moves its image by f (θ + b/z): a smaller angle θ and a constant added to
all inverse distances 1/z fit the pictures almost as well. Bundle adjustment alone then settles far from poses that were
measured: by 8 % in distance for 3 % of reprojection error in the red kitchen of 7-Scenes. A prior of the poses' own
noise decides what the pictures leave open, and fixes the frame and the scale of the world too.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.geometry.pose import Pose

MAX_DEVIATIONS = 3 * 6**0.5
"""Poses farther off than this, three in each of six directions, count less and less: single ones may be wrong."""


@dataclass(frozen=True, eq=False)
class PosePrior:
    """Given poses with the standard deviations of their rotation and of their place."""

    frame_from_world: Float[Tensor, "frame 4 4"]
    rotation_rad: float
    translation: float  # in the unit of the world

    def compute_cost(self, frame_from_world: Float[Tensor, "frame 4 4"]) -> float:
        """Σ k² log(1 + ‖d‖²/k²) over the frames, d in standard deviations."""
        square = self._measure(frame_from_world).square().sum(-1)
        return float((MAX_DEVIATIONS**2 * torch.log1p(square / MAX_DEVIATIONS**2)).sum())

    def linearize(
        self, frame_from_world: Float[Tensor, "frame 4 4"]
    ) -> tuple[Float[Tensor, "frame 6 6"], Float[Tensor, "frame 6"]]:
        """Blocks and gradients of the normal equations by left increments of the frames."""
        steps = self._measure(frame_from_world)
        weight = 1 / (1 + steps.square().sum(-1, keepdim=True) / MAX_DEVIATIONS**2)
        scale = self._list_scales()
        return torch.diag_embed(weight * scale.square()), weight * scale * steps

    def _measure(self, frame_from_world: Float[Tensor, "frame 4 4"]) -> Float[Tensor, "frame 6"]:
        """Rotation and shift from the given frames to the present ones, in standard deviations."""
        motion = Pose(frame_from_world) @ Pose(self.frame_from_world).inverse()
        twice = motion.rotation - motion.rotation.mT
        # The axis times the sine of the angle; angles are a few degrees at most.
        turn = torch.stack([twice[:, 2, 1], twice[:, 0, 2], twice[:, 1, 0]], -1) / 2
        return torch.cat([turn, motion.translation], -1) * self._list_scales()

    def _list_scales(self) -> Float[Tensor, "6"]:
        return torch.tensor(
            [1 / self.rotation_rad] * 3 + [1 / self.translation] * 3, dtype=self.frame_from_world.dtype
        )
