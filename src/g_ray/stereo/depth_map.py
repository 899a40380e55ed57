"""What stereo takes in addition to views, sparse points, and what it gives: depth maps."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class SparsePoints:
    """Points in the world, e.g. of structure from motion, and which views saw them."""

    positions: Float[Tensor, "point 3"]
    visible: Bool[Tensor, "view point"] | None = None
    """None: a point counts as seen wherever it falls into the frame."""


@dataclass(frozen=True, eq=False)
class DepthMap:
    """Distance along the unit ray of every pixel center, in the unit of the poses."""

    ray_depth: Float[Tensor, "h w"]  # 0 where invalid
    confidence: Float[Tensor, "h w"]  # in [0, 1]; 0 where there is neither a depth nor a candidate
    valid: Bool[Tensor, "h w"]
    candidates: Float[Tensor, "h w"] | None = None
    """Distances of further pixels, 0 elsewhere: too uncertain for one view to confirm, but not for two. Of a checked
    map: those that only the sweep network supports."""
    expected_error: Float[Tensor, "h w"] | None = None
    """Error to expect relative to the depth, the median of its absolute value; 0 where invalid. None: not known."""

    def merge_candidates(self) -> "DepthMap":
        """Take candidates for depths."""
        if self.candidates is None:
            return self
        merged = torch.where(self.valid, self.ray_depth, self.candidates)
        return DepthMap(merged, self.confidence, merged > 0)
