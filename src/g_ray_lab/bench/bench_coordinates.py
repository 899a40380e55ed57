"""Compare ray coordinates: how well their positional score reflects the angle between two rays, up to 240°."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.coordinates import COORDINATES, RayCoordinate
from g_ray.encodings.rotary import make_geometric_frequencies, round_to_period

FREQUENCIES = 16
NUDGE_DEG = 0.1
"""Rotation of one ray for `largest_jump`: small, so that only discontinuities change the score noticeably."""


def compare_coordinates(
    fields_of_view_deg: tuple[float, ...] = (60.0, 100.0, 140.0, 180.0, 200.0, 240.0),
    scale: float = 1.0,
    rays: int = 600,
    seed: int = 0,
) -> dict[str, Any]:
    """Return two figures per coordinate and field of view for the positional score (eq:app_score, α = `scale`).

    `rank_correlation` is that between the score of two rays and their cosine (1: the score orders all pairs by
    angle). `largest_jump` is the largest change of the score when one ray is rotated by 0.1°, as a share of its
    range.
    """
    rows = []
    for degrees in fields_of_view_deg:
        directions = _draw_cone(degrees / 2, rays, torch.Generator().manual_seed(seed))
        nudged = _nudge(directions)
        closeness = (directions @ directions.mT).clamp(-1, 1)
        upper = torch.triu_indices(rays, rays, 1)
        for name, kind in COORDINATES.items():
            if not isinstance(kind, RayCoordinate):
                continue
            score = _compute_scores(kind, directions, directions, scale)
            after = _compute_scores(kind, nudged, directions, scale)
            row = {
                "coordinate": name,
                "field_of_view_deg": degrees,
                "rank_correlation": _compute_rank_correlation(score[tuple(upper)], closeness[tuple(upper)]),
                "largest_jump": ((score - after).abs().max() / (4.0 * len(kind.axes) * FREQUENCIES)).item(),
            }
            rows.append(row)
    return {
        "settings": {"scale": scale, "frequencies": FREQUENCIES, "rays": rays, "seed": seed},
        "rows": rows,
    }


def _draw_cone(half_angle_deg: float, count: int, generator: torch.Generator) -> Float[Tensor, "ray 3"]:
    """Draw rays uniformly from the spherical cap around the optical axis."""
    lowest = torch.cos(torch.deg2rad(torch.tensor(half_angle_deg, dtype=torch.float64)))
    z = 1 - torch.rand(count, generator=generator, dtype=torch.float64) * (1 - lowest)
    phi = 2 * torch.pi * torch.rand(count, generator=generator, dtype=torch.float64)
    radius = (1 - z * z).sqrt()
    return torch.stack([radius * phi.cos(), radius * phi.sin(), z], -1)


def _nudge(directions: Float[Tensor, "ray 3"]) -> Float[Tensor, "ray 3"]:
    """Rotate every ray by 0.1° away from the optical axis, the direction in which wide lenses cross 90°."""
    step = torch.deg2rad(torch.tensor(NUDGE_DEG, dtype=torch.float64))
    axis = torch.nn.functional.normalize(
        torch.stack([-directions[:, 1], directions[:, 0], torch.zeros_like(directions[:, 0])], -1), dim=-1
    )
    return directions * step.cos() + torch.linalg.cross(axis, directions) * step.sin()


def _compute_scores(
    kind: RayCoordinate, queries: Tensor, keys: Tensor, scale: float
) -> Float[Tensor, "query key"]:
    """Compute Σ_a Σ_k 2 cos(ω_k Δξ_a) for all pairs, with integer frequencies on periodic axes.

    As cos(x − y) = cos x cos y + sin x sin y, all pairs are one matrix product instead of a cosine per pair.
    """
    bank = make_geometric_frequencies(FREQUENCIES, scale)
    query_parts, key_parts = (
        torch.cat(
            [
                part
                for a, axis in enumerate(kind.axes)
                for phase in (positions[:, a, None] * round_to_period(bank, axis),)
                for part in (phase.cos(), phase.sin())
            ],
            -1,
        )
        for positions in map(kind.compute_for_directions, (queries, keys))
    )
    return 2 * query_parts @ key_parts.mT


def _compute_rank_correlation(a: Float[Tensor, "pair"], b: Float[Tensor, "pair"]) -> float:
    """Return Spearman's rank correlation."""
    ranks = torch.stack([part.argsort().argsort().double() for part in (a, b)])
    return torch.corrcoef(ranks)[0, 1].item()
