"""Camera loss: L1 of translation and quaternion."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.geometry.pose import Pose
from g_ray.geometry.quaternion import quaternion_from_rotation

LARGEST = 100.0
"""Where the error of a translation's coordinate stops to grow."""

ENOUGH = 100
"""Sets whose first view has no more valid pixels than this have no scale to speak of: their poses are not used."""


@dataclass(frozen=True)
class CameraTerms:
    """Means over sets, views and coordinates."""

    translation: Float[Tensor, ""]
    rotation: Float[Tensor, ""]

    @property
    def total(self) -> Float[Tensor, ""]:
        return self.translation + self.rotation


def camera_loss(
    translation: Float[Tensor, "set view 3"],
    quaternion: Float[Tensor, "set view 4"],
    truth: Pose,
    usable: Bool[Tensor, "set"],
) -> CameraTerms:
    """|t̂ − t| and |q̂ − q| of the final prediction, absolute poses world_from_cam (appendix "3D Reconstruction").

    The true quaternion (x, y, z, w) has w ≥ 0, which is all that is done about q and −q being one rotation: views
    of a set look less than half a turn apart, and a network learns the sign.
    """
    shift = (translation - truth.translation).abs().clamp(max=LARGEST)
    turn = (quaternion - quaternion_from_rotation(truth.rotation)).abs()
    return CameraTerms(_mean_of_usable(shift, usable), _mean_of_usable(turn, usable))


def _mean_of_usable(
    values: Float[Tensor, "set view channel"], usable: Bool[Tensor, "set"]
) -> Float[Tensor, ""]:
    """0, and still a function of the prediction, where no set is usable."""
    return torch.where(usable, values.mean((1, 2)), 0).sum() / usable.sum().clamp(min=1)
