"""Grade a reconstruction by the worst of its limits: good, partial or poor."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

Grade = Literal["good", "partial", "poor", "unverified"]
NO_CHECK = "Nothing in the photographs has checked the cameras."
NO_LIMIT = "Photographs are placed, features agree with their cameras, and parallax fixes the depth."


@dataclass(frozen=True)
class Limit:
    """A figure with the values from which a result is partial and poor, and the sentence that says so."""

    measure: Callable[[dict[str, Any]], float | None]
    """Larger is worse; None: not known."""
    partial: float
    poor: float
    describe: Callable[[dict[str, Any]], str]


LIMITS = (
    Limit(
        # Views that a network placed are no evidence that the rest is right.
        lambda f: 1 - (f["placed"] - len(f.get("placed_by_network", ()))) / f["views"],
        0.1,
        0.5,
        lambda f: (
            f"Matching places {f['placed'] - len(f.get('placed_by_network', ()))} of {f['views']:.0f} photographs."
        ),
    ),
    Limit(
        lambda f: f["relative_error"],
        1 / 1000,
        4 / 1000,
        lambda f: (
            "Features do not agree well with their cameras."
            if math.isfinite(f["relative_error"])
            else "No feature is seen from two places: only depth has checked the cameras."
        ),
    ),
    Limit(
        # Depths of one network agree among themselves, right or wrong: only depth checked with the pictures counts.
        lambda f: 1 - f.get("share_with_depth", 0.0),
        0.8,
        0.95,
        lambda f: (
            f"Only {f.get('share_with_depth', 0.0):.0%} of the pixels have a depth that another view confirms."
        ),
    ),
    Limit(
        lambda f: f.get("expected_error"),
        0.03,
        0.1,
        lambda f: (
            f"The parallax is small for this scene: depth is expected to be off by {f['expected_error']:.0%}."
        ),
    ),
    Limit(
        lambda f: f["lens"]["change"] if f.get("lens", {}).get("contradicts") else None,
        0.0,
        0.15,
        lambda f: "The calibration does not fit these photographs.",
    ),
    Limit(
        # A wrong focal length bends depth by some percent without moving a feature, so that nothing else shows it.
        lambda f: f["lens"]["spread"] - 1 if f.get("lens", {}).get("undecided") else None,
        0.0,
        10.0,
        lambda f: "These photographs cannot tell the focal length: a wrong one would not be noticed.",
    ),
    Limit(
        lambda f: None if "pose_excess_px" not in f else f["pose_excess_px"] / f["long_side_px"],
        1 / 1000,
        1 / 100,
        lambda f: "The given poses fit the photographs worse than poses estimated from them.",
    ),
)
"""In the order in which equally bad ones are named."""


def grade_result(figures: dict[str, Any], verified: bool) -> tuple[Grade, str]:
    """Return the grade, and the sentence that names its worst limit."""
    if not verified:
        return "unverified", NO_CHECK
    found = sorted(_list_limits(figures), key=lambda item: -item[0])
    if not found:
        return "good", NO_LIMIT
    severity, limit = found[0]
    return ("poor" if severity >= 1 else "partial"), limit.describe(figures)


def _list_limits(figures: dict[str, Any]) -> Iterator[tuple[float, Limit]]:
    """Yield the limits that are passed, with 0 where a result becomes partial and 1 where it becomes poor."""
    for limit in LIMITS:
        value = limit.measure(figures)
        if value is not None and not value <= limit.partial:
            yield (value - limit.partial) / (limit.poor - limit.partial), limit
