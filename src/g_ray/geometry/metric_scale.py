"""What says how many meters one unit of a world is: a factor with its interval, and who says so."""

from collections.abc import Sequence
from dataclasses import dataclass

TOLERANCE = 0.02
"""Relative difference of two scales that no interval explains, but that is not called a contradiction."""


@dataclass(frozen=True)
class MetricScale:
    """Meters per unit of a world. The true factor lies between `low` and `high` times the given one (95 %)."""

    source: str
    """Who says so, as it stands in a sentence: "GPS of 18 photographs"."""
    factor: float = 1.0
    low: float | None = None
    high: float | None = None
    """None: nobody knows how accurate the source is."""
    detail: str = ""
    """What else the source says, as it stands in parentheses."""

    def __post_init__(self) -> None:
        assert self.factor > 0, f"{self.factor} is no factor"
        assert (self.low is None) == (self.high is None)
        assert self.low is None or self.high is None or 0 < self.low <= 1 <= self.high

    def describe(self) -> str:
        """Return the source with its interval."""
        parts = [self.detail] if self.detail else []
        if self.low is not None and self.high is not None:
            parts.insert(0, f"scale {_format_interval(self.low, self.high)}, 95 % interval")
        return f"{self.source} ({'; '.join(parts)})" if parts else self.source

    def contradicts(self, other: "MetricScale") -> bool:
        """Whether the intervals of two factors are apart by more than the tolerance."""
        ends = [
            (scale.factor * (scale.low or 1.0), scale.factor * (scale.high or 1.0)) for scale in (self, other)
        ]
        (_, below), (above, _) = sorted(ends)
        return above > below * (1 + TOLERANCE)

    def to_figures(self) -> dict[str, float | str | None]:
        """Return what result.json and pages need."""
        return {"source": self.source, "low": self.low, "high": self.high}


def describe_contradictions(scales: Sequence[MetricScale]) -> list[str]:
    """Say which scales contradict the first, which is the one that is taken."""
    return [
        f"scales contradict: {other.describe()} makes everything {other.factor / scales[0].factor:.3f} times as "
        f"long as {scales[0].describe()}, which is taken"
        for other in scales[1:]
        if scales[0].contradicts(other)
    ]


def _format_interval(low: float, high: float) -> str:
    """Format ± percent where the interval is nearly symmetric and small, and its ends otherwise."""
    if abs(low * high - 1) < 0.01 and high < 1.5:
        return f"± {100 * (high - 1):.2g} %"
    return f"factor {low:.3f} … {high:.3f}"


def student_quantile(freedom: float) -> float:
    """Return the 97.5 % quantile of Student's t, by its expansion in 1 / freedom (3 % low for two degrees)."""
    z = 1.959964
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3
