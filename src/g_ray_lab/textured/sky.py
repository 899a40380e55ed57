"""Random skies: light by direction, from clear to overcast, for scenes whose own sky is a picture far away."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

WAVES = 5
"""Sine waves that make up the clouds."""
CLOUD_HEIGHT = 0.12
"""Sine of the elevation that is added before directions meet the plane of the clouds, which so ends at the horizon."""

# Linear light at horizon and zenith, after exposure.
CLEAR = (0.75, 0.85, 0.95), (0.12, 0.28, 0.65)
OVERCAST = (0.9, 0.92, 0.95), (0.5, 0.55, 0.6)
DUSK = (0.9, 0.5, 0.25), (0.12, 0.15, 0.3)
NIGHT = (0.02, 0.025, 0.04), (0.005, 0.006, 0.012)
KINDS, SHARES = (CLEAR, OVERCAST, DUSK, NIGHT), (0.5, 0.3, 0.1, 0.1)


@dataclass(frozen=True, eq=False)
class Sky:
    """A gradient from horizon to zenith with soft clouds; z is up."""

    horizon: Float[Tensor, "3"]
    zenith: Float[Tensor, "3"]
    cloud: Float[Tensor, "3"]
    cover: float
    """Where the clouds begin, in standard deviations of their pattern; a large number means no clouds."""
    waves: Float[Tensor, "wave 2"]
    phases: Float[Tensor, "wave"]

    def shine(self, directions: Float[Tensor, "*shape 3"]) -> Float[Tensor, "*shape 3"]:
        """Light from unit directions in the world; below the horizon as at the horizon."""
        up = directions[..., 2].clamp(0, 1)
        share = up.sqrt()[..., None]
        light = (1 - share) * self.horizon + share * self.zenith
        plane = directions[..., :2] / (up + CLOUD_HEIGHT)[..., None]
        pattern = torch.sin(plane @ self.waves.mT + self.phases).mean(-1) * (2 * WAVES) ** 0.5
        covered = torch.sigmoid(3 * (pattern - self.cover))[..., None] * (up / (up + CLOUD_HEIGHT))[..., None]
        return (1 - covered) * light + covered * self.cloud


def draw_sky(random: np.random.Generator) -> Sky:
    """Draw one of the kinds, in colors and brightness of its own."""
    kind = KINDS[int(random.choice(len(KINDS), p=SHARES))]
    colors = torch.tensor([*kind, kind[0]]) * torch.from_numpy(np.exp(0.1 * random.normal(size=(3, 3))))
    horizon, zenith, cloud = (colors * 1.3 ** random.normal()).float()
    return Sky(
        horizon,
        zenith,
        cloud,
        cover=random.uniform(-0.5, 2.5),
        waves=torch.from_numpy(random.normal(size=(WAVES, 2)) * 2).float(),
        phases=torch.from_numpy(random.uniform(0, 2 * np.pi, WAVES)).float(),
    )
