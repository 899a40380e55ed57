"""Settings of structure from motion. This file imports neither torch nor pycolmap, so that a command line can."""

from dataclasses import dataclass
from typing import Literal

Pairing = Literal["auto", "exhaustive", "sequential", "retrieval"]


@dataclass(frozen=True)
class SfMOptions:
    """How features are found and matched, and when a view counts as registered.

    Lengths in pixels are measured in the working image, whose longer side is at most `max_image_size`.
    """

    max_image_size: int = 1600
    """Longer side, in pixels, of the image in which features are looked for."""
    max_features: int = 8192
    """Largest number of features of a photograph."""
    pairing: Pairing = "auto"
    """Which photographs are matched: all pairs up to `exhaustive_views` views, otherwise neighbors in the given order
    and photographs that look alike."""
    exhaustive_views: int = 60
    overlap: int = 10
    """Photographs before and after each one that are matched with it where pairing is sequential."""
    similar: int = 20
    """Photographs that look most alike each one and are matched with it where not all pairs are."""
    min_inliers: int = 15
    """Matches of a pair that must agree with one relative pose."""
    max_error_px: float = 4.0
    """Largest reprojection error of an observation that is kept."""
    min_agreement: float = 0.4
    """Share of matches and of tracked features that given poses must explain; below it they contradict the pictures."""
    seed: int = 0
    threads: int = -1
    """Processor threads; -1 takes all."""

    def __post_init__(self) -> None:
        for name in ("max_image_size", "max_features", "exhaustive_views", "overlap", "min_inliers"):
            if getattr(self, name) < 1:
                raise ValueError(f"SfMOptions: {name} is {getattr(self, name)}; it must be at least 1")
        if not self.max_error_px > 0:
            raise ValueError(f"SfMOptions: max_error_px is {self.max_error_px}; it must be above 0")
