"""Losses: pure functions that return a value per sample, and their settings."""

from dataclasses import dataclass
from pathlib import Path

# Settings of the losses, without torch.


@dataclass(frozen=True)
class NVSLossSettings:
    """MSE + lpips · LPIPS."""

    lpips: float = 0.5
    """Weight of AlexNet LPIPS; 0 trains with the squared error alone and needs no AlexNet weights."""
    lpips_weights: Path | None = None
    """File with AlexNet and LPIPS weights; None looks in the cache."""


@dataclass(frozen=True)
class ReconstructionWeights:
    """λ of the camera loss, γ and α of confidences, the quantile of outliers (appendix "3D Reconstruction").

    Where the paper gives no number it follows VGGT, and so do these.
    """

    camera: float = 5.0
    """Weight of the pose's L1 loss; both point losses have weight 1."""
    gamma: float = 1.0
    """Weight of confidence times error."""
    alpha: float = 0.2
    """Weight of the logarithm that keeps confidences away from zero."""
    quantile: float = 0.98
    """Pixels with an error above this quantile are left out."""
    normal_scales: int = 3
    """Normals are compared between pixels 1, 2, 4, … apart, at this many scales."""
