"""Settings of structure from motion. This file imports neither torch nor pycolmap, so that a command line can."""

from dataclasses import dataclass

WORKING_SIZE = 1600
"""Longer side, in pixels, of the working image in which features are looked for; other lengths are in its pixels."""
SMALL_SET = 60
"""Up to this number of views one thread maps, since COLMAP's choice of the first pair depends on their number."""
MIN_INLIERS = 15
"""Matches of a pair that must agree with one relative pose."""
MAX_ERROR_PX = 4.0
"""Largest reprojection error of an observation that is kept, in working pixels."""


@dataclass(frozen=True)
class SfMOptions:
    """How features are found and matched, and when given poses are believed."""

    max_features: int = 8192
    """Largest number of features of a photograph."""
    exhaustive_views: int = 20
    """Up to this number of views all pairs are matched, otherwise neighbors in the given order and look-alikes."""
    overlap: int = 10
    """Photographs before and after each one that are matched with it where not all pairs are; half of it in a small
    set, in which what stays unconnected is matched with everything."""
    similar: int = 20
    """Photographs that look most alike each one and are matched with it where not all pairs are; likewise."""
    min_agreement: float = 0.4
    """Share of matches and of tracked features that given poses must explain; below it they contradict the pictures."""
    seed: int = 0
    threads: int = -1
    """Processor threads; -1 takes all."""

    def __post_init__(self) -> None:
        for name in ("max_features", "exhaustive_views", "overlap"):
            if getattr(self, name) < 1:
                raise ValueError(f"SfMOptions: {name} is {getattr(self, name)}; it must be at least 1")
