"""Color augmentation: brightness, contrast, saturation, hue and gamma, for a whole set or for each view."""

from dataclasses import dataclass
from math import pi

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

LUMA = (0.299, 0.587, 0.114)

YIQ = ((0.299, 0.587, 0.114), (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112))
"""Brightness, and a plane of color in which hue is an angle."""


@dataclass(frozen=True)
class ColorJitter:
    """How far colors may go. Factors are drawn in 1 ± range, the hue in ± range of a whole turn.

    The defaults are VGGT's; γ is 0 there. Hue turns in the YIQ plane, which is linear, where VGGT's turns in HSV.
    """

    brightness: float = 0.5
    contrast: float = 0.5
    saturation: float = 0.5
    hue: float = 0.1
    gamma: float = 0.0
    probability: float = 0.9  # of any change
    gray: float = 0.05  # probability of no color at all
    shared: float = 0.7  # probability that all views of a set change alike

    def __post_init__(self) -> None:
        ranges = {name: getattr(self, name) for name in ("brightness", "contrast", "saturation", "gamma")}
        wrong = [name for name, value in ranges.items() if not 0 <= value < 1]
        if wrong or not 0 <= self.hue <= 0.5:
            raise ValueError(
                f"{', '.join(wrong) or 'hue'} is out of range: factors are 1 ± less than 1, and hue ± at most 0.5"
            )
        if not all(0 <= value <= 1 for value in (self.probability, self.gray, self.shared)):
            raise ValueError("probability, gray and shared are probabilities: give numbers between 0 and 1")

    def draw(self, random: np.random.Generator, views: int) -> "ColorChange":
        """Colors of the views of one set."""
        unit = random.random((views, 7))
        if random.random() < self.shared:
            unit[:] = unit[0]
        changed = unit[:, 5] < self.probability
        ranges = np.array([self.brightness, self.contrast, self.saturation, self.gamma])
        factors = np.where(changed[:, None], 1 + ranges * (2 * unit[:, :4] - 1), 1.0)
        factors[:, 2] *= unit[:, 6] >= self.gray
        turn = np.where(changed, 2 * pi * self.hue * (2 * unit[:, 4] - 1), 0.0)
        brightness, contrast, saturation, gamma = torch.from_numpy(factors).unbind(-1)
        return ColorChange(brightness, contrast, saturation, gamma, torch.from_numpy(turn))


@dataclass(frozen=True)
class ColorChange:
    """What happens to the colors of images; 1, 1, 1, 1, 0 leaves them alone."""

    brightness: Float[Tensor, "*image"]
    contrast: Float[Tensor, "*image"]  # about the image's mean gray
    saturation: Float[Tensor, "*image"]  # 0 is gray
    gamma: Float[Tensor, "*image"]
    hue_rad: Float[Tensor, "*image"]

    @staticmethod
    def stack(each: "list[ColorChange]") -> "ColorChange":
        return ColorChange(
            *(torch.stack(parts) for parts in zip(*(vars(c).values() for c in each), strict=True))
        )

    def apply(self, images: Float[Tensor, "*image 3 h w"]) -> Float[Tensor, "*image 3 h w"]:
        """Images in [0, 1] to images in [0, 1]: first γ, then everything linear in one product, then contrast."""
        gamma = self.gamma.to(images)[..., None, None, None]
        pixels = (images.clamp(0, 1) ** gamma).flatten(-2)
        changed = self._build_matrix().to(images) @ pixels
        luminance = (changed.new_tensor(LUMA) @ changed).mean(-1)[..., None, None]
        contrast = self.contrast.to(images)[..., None, None]
        return (luminance + contrast * (changed - luminance)).clamp(0, 1).reshape(images.shape)

    def _build_matrix(self) -> Float[Tensor, "*image 3 3"]:
        """Brightness times saturation and hue: both act on the color plane of YIQ, and leave gray alone."""
        yiq = torch.tensor(YIQ, dtype=torch.float64)
        cos, sin = self.saturation * self.hue_rad.cos(), self.saturation * self.hue_rad.sin()
        zero, one = torch.zeros_like(cos), torch.ones_like(cos)
        turn = torch.stack([one, zero, zero, zero, cos, -sin, zero, sin, cos], -1).unflatten(-1, (3, 3))
        return self.brightness[..., None, None] * (torch.linalg.inv(yiq) @ turn @ yiq)
