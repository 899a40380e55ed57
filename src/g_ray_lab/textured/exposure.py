"""From linear light to photographs: one exposure for a walk, gentle faults of a camera for each view."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from g_ray_lab.meshes.mesh_files import linear_to_srgb_bytes

KEY = 0.16
"""Linear light that the geometric mean of a walk is brought to: a middle gray."""
DARKEST = 1e-3
"""Share of the mean light below which pixels do not lower it further."""
WHITE = 6.0
"""Light, after exposure, that becomes white; brighter light is clipped."""
NEUTRALIZED = 0.5
"""How far the mean color of a walk is brought to gray."""


@dataclass(frozen=True)
class CameraFaults:
    """How far photographs differ from perfect ones, as standard deviations or largest values."""

    walk_stops: float = 0.35
    view_stops: float = 0.15
    white_balance: float = 0.04
    blur_px: float = 0.6
    blurred: float = 0.3
    """Share of the views that are blurred at all."""
    noise: float = 0.012
    """Largest deviation of the noise at middle gray, in [0, 1]; it grows with the root of the light."""


NO_FAULTS = CameraFaults(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def expose_views(
    light: Float[Tensor, "view h w 3"],
    sky: Float[Tensor, "view h w 3"],
    has_ray: Bool[Tensor, "view h w"],
    random: np.random.Generator,
    faults: CameraFaults,
) -> UInt8[Tensor, "view h w 3"]:
    """Develop the views of a walk together, so that they differ in brightness as one camera's would.

    `light` of surfaces is brought to a middle gray; that of the sky, which is given after exposure, is added.
    """
    gain = measure_gain(light[light.amax(-1) > 0]) * 2 ** (faults.walk_stops * random.normal())
    images = []
    for view in light * gain + sky:
        stops = faults.view_stops * random.normal()
        balance = torch.from_numpy(np.exp(faults.white_balance * random.normal(size=3))).float()
        image = _tone(_blur(view * balance * 2**stops, random, faults))
        # Photons are counted: the deviation goes with the root of the light.
        deviation = random.uniform(0, faults.noise) * (image / 0.18).sqrt()
        noise = torch.from_numpy(random.normal(size=tuple(image.shape))).float()
        images.append((image + deviation * 0.18 * noise).clamp(0, 1))
    bytes_ = linear_to_srgb_bytes((torch.stack(images) * has_ray[..., None]).numpy())
    return torch.from_numpy(bytes_)


def measure_gain(light: Float[Tensor, "pixel 3"]) -> Float[Tensor, "3"]:
    """Gain per channel that brings the geometric mean to KEY and its color part of the way to gray."""
    floor = DARKEST * light.mean().clamp(min=1e-9)
    mean = torch.exp(torch.log(light.clamp(min=float(floor))).mean(0))
    gray = mean.log().mean().exp()
    return KEY / gray * (gray / mean) ** NEUTRALIZED


def _tone(light: Tensor) -> Tensor:
    """Compress highlights: x (1 + x / w²) / (1 + x), which is linear in the dark and 1 at the white point w."""
    return (light * (1 + light / WHITE**2) / (1 + light)).clamp(0, 1)


def _blur(
    light: Float[Tensor, "h w 3"], random: np.random.Generator, faults: CameraFaults
) -> Float[Tensor, "h w 3"]:
    sigma = random.uniform(0.2, max(0.2, faults.blur_px))
    if random.random() >= faults.blurred:
        return light
    place = torch.arange(-2, 3).float()
    weights = torch.exp(-(place**2) / (2 * sigma**2))
    weights = (weights / weights.sum()).expand(3, 1, 1, 5)
    planes = F.pad(light.movedim(-1, 0)[None], (2, 2, 2, 2), mode="replicate")
    smooth = F.conv2d(F.conv2d(planes, weights, groups=3), weights.mT, groups=3)
    return smooth[0].movedim(0, -1)
