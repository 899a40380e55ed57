"""Bring a scene to where GPS says that its photographs were taken: meters east, north and up of a place."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.geometry.geodesy import Place, compute_enu
from g_ray.geometry.metric_scale import MetricScale, student_quantile
from g_ray.geometry.similarity import Similarity, fit_similarity

MIN_PLACES = 3
TRIES = 100
"""Triples of photographs from which a fit may start."""
MIN_TO_REJECT = 6
"""Photographs without which none is called wrong: fewer fit nearly any three of them."""
REJECT = 5.0
"""Standard deviations beyond which a photograph's GPS is wrong."""
LEAST_WRONG_M = 3.0
"""Distance below which GPS is not called wrong: what receivers of phones and drones are off by in the open."""
MIN_SHARE = 0.6
"""Share of the photographs that must agree."""
MAX_SCALE_ERROR = 0.2
"""Half of the scale's interval beyond which GPS does not give a scale."""
MAX_ANGLE_DEG = 20.0
"""Half of the interval of heading or level beyond which GPS does not give them."""
MAX_CORRELATION = 0.9
"""GPS errors drift; the correlation of successive ones is estimated from few of them and therefore limited."""


@dataclass(frozen=True)
class GpsAlignment:
    """A similarity to meters east, north and up of `origin`, with half widths of 95 % intervals."""

    similarity: Similarity
    origin: Place
    positions: Float[Tensor, "view 3"]
    """Where GPS says that the cameras are; rows without GPS are NaN."""
    used: Bool[Tensor, "view"]
    """Photographs whose GPS agrees with the others."""
    typical_m: float
    """Median distance of used positions from GPS."""
    position_m: float
    """Distance within which GPS of a further photograph would be expected."""
    scale_error: float
    heading_deg: float
    level_deg: float

    @property
    def gives_scale(self) -> bool:
        return self.scale_error <= MAX_SCALE_ERROR

    @property
    def gives_rotation(self) -> bool:
        """Whether heading and level can be told: not with photographs on a line."""
        return self.gives_scale and max(self.heading_deg, self.level_deg) <= MAX_ANGLE_DEG

    def to_scale(self) -> MetricScale:
        """Return what GPS says about the scale; ValueError if it says too little."""
        if not self.gives_scale:
            extent = self.positions[self.used].std(0).norm()
            raise ValueError(
                f"GPS cannot tell the scale: it is off by {self.typical_m:.2g} m where the photographs spread over "
                f"{float(extent):.2g} m"
            )
        turn = "; heading and level cannot be told, as the photographs are nearly on a line"
        if self.gives_rotation:
            turn = f", heading ± {self.heading_deg:.2g}°, level ± {self.level_deg:.2g}°"
        reach = 1 + self.scale_error
        detail = f"off by {self.typical_m:.2g} m in the median{turn}"
        count = int(self.used.sum())
        return MetricScale(
            f"GPS of {count} photographs", float(self.similarity.scale), 1 / reach, reach, detail
        )

    def with_factor(self, factor: float) -> Similarity:
        """Return the similarity with a scale from elsewhere: the middle of the cameras stays where GPS puts it."""
        moved = self.similarity
        middle = self.positions[self.used].mean(0)
        at = moved.rotation.mT @ (middle - moved.translation) / moved.scale
        scale = torch.tensor(factor, dtype=torch.float64)
        return replace(moved, scale=scale, translation=middle - scale * moved.rotation @ at)

    def to_metrics(self) -> dict[str, float]:
        """Return the agreement, keyed by display names."""
        return {
            "photographs with GPS": float(torch.isfinite(self.positions[:, 0]).sum()),
            "photographs whose GPS agrees": float(self.used.sum()),
            "distance from GPS (median), m": self.typical_m,
            "distance expected of further GPS (95 %), m": self.position_m,
        }

    def list_wrong(self) -> list[int]:
        """List the views whose GPS disagrees with the others."""
        return torch.nonzero(torch.isfinite(self.positions[:, 0]) & ~self.used)[:, 0].tolist()


def align_to_gps(centers: Float[Tensor, "view 3"], places: Sequence[Place | None]) -> GpsAlignment:
    """Fit camera centers to GPS robustly; ValueError where too few photographs have it, or they disagree."""
    known = torch.tensor([place is not None for place in places])
    if int(known.sum()) < MIN_PLACES:
        raise ValueError(
            f"GPS of {int(known.sum())} placed photographs cannot tell the scale: {MIN_PLACES} can"
        )
    found = torch.stack([place.to_tensor() for place in places if place is not None])
    origin = Place(*found.median(0).values.tolist())
    positions = torch.full((len(places), 3), math.nan, dtype=torch.float64)
    positions[known] = compute_enu(found, origin)
    source, target = centers[known].double(), positions[known]
    if float((target - target[0]).norm(dim=-1).max()) == 0:
        raise ValueError("GPS has the same place for all photographs: it cannot tell the scale")
    inside = _find_agreeing(source, target)
    if float(inside.double().mean()) < MIN_SHARE:
        raise ValueError(
            f"GPS contradicts the photographs: it agrees with {int(inside.sum())} of {len(inside)} and is not used"
        )
    used = known.clone()
    used[known] = inside
    similarity = fit_similarity(source[inside], target[inside])
    return _state_intervals(GpsAlignment(similarity, origin, positions, used, *[math.inf] * 5), centers)


def _find_agreeing(source: Float[Tensor, "n 3"], target: Float[Tensor, "n 3"]) -> Bool[Tensor, "n"]:
    """Find the points that agree with one similarity: the best of many triples by a high rank of its distances."""
    count = len(source)
    if count < MIN_TO_REJECT:
        return torch.ones(count, dtype=torch.bool)
    rank = count // 2 + 2  # as many must fit beside the three that every triple fits
    best, smallest = torch.zeros(count, dtype=torch.float64), math.inf
    random = torch.Generator().manual_seed(0)
    for _ in range(TRIES):
        triple = torch.randperm(count, generator=random)[:3]
        try:
            fit = fit_similarity(source[triple], target[triple])
        except ValueError:
            continue
        off = (fit.apply(source) - target).norm(dim=-1)
        value = float(off.kthvalue(rank).values)
        if value < smallest:
            best, smallest = off, value
    # Rank n/2 of the length of three normal components is 1.54 standard deviations; few points fit too well.
    deviation = smallest / 1.54 * (1 + 5 / (count - 3))
    inside = best <= max(REJECT * deviation, LEAST_WRONG_M)
    if int(inside.sum()) < MIN_PLACES:
        return inside
    off = (fit_similarity(source[inside], target[inside]).apply(source) - target).norm(dim=-1)
    return off <= max(REJECT * deviation, LEAST_WRONG_M)


def _state_intervals(fit: GpsAlignment, centers: Float[Tensor, "view 3"]) -> GpsAlignment:
    """Return the fit with its intervals: covariance of seven parameters, widened where errors drift."""
    moved, target = fit.similarity.apply(centers.double())[fit.used], fit.positions[fit.used]
    off = moved - target
    count = len(off)
    correlation = _measure_correlation(off)
    # Errors that drift count for fewer photographs: n (1 − ρ) / (1 + ρ).
    widening = (1 + correlation) / (1 - correlation)
    freedom = max(3 * count / widening - 7, 2.0)
    variance = 3 * off.square().sum(0) / (3 * count - 7)
    deviation = (widening * variance).clamp_min(1e-12).sqrt()
    arm = moved - moved.mean(0)
    # Columns: relative scale, turns about east, north and up; the shift is removed with the mean.
    columns = [arm] + [torch.linalg.cross(axis.expand_as(arm), arm) for axis in torch.eye(3).double()]
    design = torch.stack(columns, -1) / deviation[:, None]
    covariance = torch.linalg.pinv(design.flatten(0, 1).mT @ design.flatten(0, 1), rtol=1e-12, hermitian=True)
    quantile = student_quantile(freedom)
    scale, *turns = (quantile * covariance.diagonal().clamp_min(0).sqrt()).tolist()
    turns = [math.degrees(turn) for turn in turns]
    line = torch.linalg.svdvals(arm)
    if float(line[1]) < 1e-6 * float(
        line[0]
    ):  # exactly on a line: the pseudo-inverse has left out the turn about it
        turns = [math.inf] * 3
    # 95 % of the lengths of three normal components are below √7.81 standard deviations.
    far = math.sqrt(7.81 * float(deviation.square().mean()) * (1 + 7 / (3 * count))) * quantile / 1.96
    return replace(
        fit,
        typical_m=float(off.norm(dim=-1).median()),
        position_m=far,
        scale_error=scale,
        heading_deg=turns[2],
        level_deg=max(turns[:2]),
    )


def _measure_correlation(off: Float[Tensor, "n 3"]) -> float:
    """Return the correlation of errors of successive photographs, from 0 up."""
    total = float(off.square().sum())
    if len(off) < MIN_TO_REJECT or total == 0:
        return 0.0
    return min(max(float((off[1:] * off[:-1]).sum()) / total, 0.0), MAX_CORRELATION)
