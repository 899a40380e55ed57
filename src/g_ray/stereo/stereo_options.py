"""Settings of the stereo. This module does not import torch, so that a command line can show them quickly."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from g_ray.cameras.camera import Camera


@dataclass(frozen=True)
class StereoOptions:
    """How depth is searched, scored, checked and fused. Costs are 1 − correlation, so they lie in [0, 2]."""

    long_side: int = 480
    """Pixels of the longer image side at which depth is estimated; larger views are reduced, none is enlarged."""
    degrees_per_pixel: float | None = None
    """Largest angle of a pixel: a view whose field of view is wider than `long_side` such angles gets more pixels;
    None: no view does."""
    full_volume: int = 60_000_000
    """Pixels × hypotheses × sources that are swept at full resolution; larger sweeps begin at half of it."""
    sources: int = 4
    """Views that each reference view is compared with."""
    best: int = 2
    """Average this many best source scores per hypothesis; the others may be occluded."""
    window: int = 5
    """Side of the square patch that is correlated, in pixels; odd."""
    similar: float = 0.04
    """Neighbors in a patch lose weight with their color difference from its center, by a factor e per this much."""
    near: float | None = None
    """Smallest ray distance, in the unit of the poses; None derives it from the points or from the poses."""
    far: float | None = None
    """Largest ray distance; None derives it as `near`."""
    noise: float = 0.002
    """Standard deviation of image noise, at a full scale of 1. Weaker texture does not count as texture."""
    small_penalty: float = 0.15
    """Aggregation: cost of a step to a neighboring hypothesis between adjacent pixels."""
    large_penalty: float = 2.0
    """Aggregation: cost of a depth discontinuity where the image has no edge."""
    edge: float = 0.03
    """Aggregation: the image difference at which `large_penalty` is halved."""
    min_score: float = 0.25
    """Depths with a smaller correlation are dropped."""
    min_support: float = 0.01
    """Unless all other hypotheses cost so much more, two other views have to agree with a depth; blank and repetitive
    areas come out empty."""
    min_views: int = 1
    """Other views that have to agree with a depth; in a scene of two views one is all there is."""
    max_depth_error: float = 0.02
    """Largest relative difference of two ray distances that agree."""
    max_expected_error: float = 0.2
    """Depths that are typically off by more, relatively, are dropped: the parallax is too small to know them."""

    def choose_long_side(self, camera: "Camera") -> int:
        """Return the pixels of the longer side at which depth of this camera is estimated, if it has as many."""
        if self.degrees_per_pixel is None:
            return self.long_side
        fov = camera.fov()
        longer = fov.horizontal_deg if camera.width >= camera.height else fov.vertical_deg
        return max(self.long_side, math.ceil(float(longer) / self.degrees_per_pixel))

    def __post_init__(self) -> None:
        if self.window < 3 or self.window % 2 == 0:
            raise ValueError(f"window {self.window}: a patch needs an odd side of at least 3 pixels")
        if not 1 <= self.best <= self.sources:
            raise ValueError(f"best {self.best} of {self.sources} sources: give 1 ≤ best ≤ sources")
        if self.degrees_per_pixel is not None and not self.degrees_per_pixel > 0:
            raise ValueError(f"degrees_per_pixel {self.degrees_per_pixel}: an angle must be positive")
        if self.long_side < 16:
            raise ValueError(f"long_side {self.long_side} is too small: give at least 16 pixels")
        for name in ("near", "far"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} {value}: a ray distance must be positive")
        if self.near is not None and self.far is not None and not self.near < self.far:
            raise ValueError(f"near {self.near} is not below far {self.far}")


DEFAULTS = StereoOptions()
