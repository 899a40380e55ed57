"""The rows of an NVS table: one value per scene and metric (paper, appendix "NVS Metric Aggregation")."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.metrics.bootstrap import Interval, bootstrap
from g_ray.metrics.psnr import psnr
from g_ray.metrics.ssim import ssim

Distance = Callable[[Tensor, Tensor], Tensor]
"""(truth, predicted) to a value per image."""


@dataclass(frozen=True)
class SceneScores:
    """PSNR pools a scene's targets before the logarithm; SSIM and LPIPS are averaged over them."""

    psnr: Float[Tensor, "scene"]
    ssim: Float[Tensor, "scene"]
    lpips: Float[Tensor, "scene"] | None

    @staticmethod
    def concatenate(parts: "list[SceneScores]") -> "SceneScores":
        """The scenes of several batches, in order."""
        perceptual = [part.lpips for part in parts if part.lpips is not None]
        if perceptual and len(perceptual) != len(parts):
            raise ValueError("some batches have LPIPS and some have not: score all of them alike")
        return SceneScores(
            torch.cat([part.psnr for part in parts]),
            torch.cat([part.ssim for part in parts]),
            torch.cat(perceptual) if perceptual else None,
        )

    def rows(self) -> dict[str, Float[Tensor, "scene"]]:
        scores = {"psnr": self.psnr, "ssim": self.ssim, "lpips": self.lpips}
        return {name: values for name, values in scores.items() if values is not None}

    def summarize(self, *, seed: int = 0) -> dict[str, Interval]:
        """Equal-weight means over scenes, with 95 % bootstrap intervals."""
        return {name: bootstrap(values, seed=seed) for name, values in self.rows().items()}


@torch.no_grad()
def score_scenes(
    truth: Float[Tensor, "scene target 3 h w"],
    predicted: Float[Tensor, "scene target 3 h w"],
    *,
    lpips: Distance | None,
) -> SceneScores:
    """All metrics of the paper's NVS tables; `lpips=None` leaves that column out, and must be said."""
    perceptual = None if lpips is None else lpips(truth, predicted).mean(-1)
    return SceneScores(psnr(truth, predicted), ssim(truth, predicted).mean(-1), perceptual)
