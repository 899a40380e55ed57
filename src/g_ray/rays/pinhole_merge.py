"""Depths that a pinhole-only tool predicted for virtual pinholes, back on the rays of the photograph.

Depths of different crops agree as distances along the ray, never as z. Each crop may have a scale of its own: the
medians of log-distance ratios where crops overlap give one equation per pair, log s_j − log s_i = median(log d_i/d_j),
solved together. Crops are then averaged in log distance, weighted by confidence and by the angle to the crop's axis, so
that a crop fades out before its border.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.pinhole import Pinhole
from g_ray.rays.virtual_pinholes import VirtualPinholes

MIN_OVERLAP = 16
"""Pixels that two crops must share for their ratio to count."""

JUMP = 0.1
"""Relative difference beyond which two depths belong to different surfaces and are not averaged."""

_FAINT = 1e-4
"""Weight of a crop at its border, relative to its axis: something where no other crop has a depth."""


@dataclass(frozen=True, eq=False)
class MergedDepth:
    """Distance along the photograph's rays and its confidence, zero where not valid; the scale each crop was given."""

    ray_depth: Float[Tensor, "height width"]
    confidence: Float[Tensor, "height width"]
    valid: Bool[Tensor, "height width"]
    scales: Float[Tensor, "crop"]
    groups: Int[Tensor, "crop"]  # crops of different groups share no pixels: their scales are not comparable


def merge_depths(
    pinholes: VirtualPinholes,
    depths: Float[Tensor, "crop h w"],
    *,
    kind: Literal["z", "ray"],
    confidence: Float[Tensor, "crop h w"] | None = None,
    valid: Bool[Tensor, "crop h w"] | None = None,
    align_scales: bool = True,
    photo: Camera | None = None,
) -> MergedDepth:
    """Merge depths of all crops, as z or as distance along the ray, into one map of ray distance of the photograph.

    Depths may have another resolution than the crops, and `photo` may be the photograph's camera at another size.
    Depths that are not finite or not positive are left out, as is what `valid` excludes. Scales have a weighted
    geometric mean of 1 in each group of crops that overlap.
    """
    photo = photo or pinholes.photo
    samples = _sample_crops(pinholes, photo, depths, kind, confidence, valid)
    if align_scales:
        log_scales, groups = solve_log_scales(samples.log_distance, samples.known)
    else:
        log_scales, groups = depths.new_zeros(len(depths)), torch.zeros(len(depths), dtype=torch.long)
    scaled = samples.log_distance + log_scales[:, None]
    log_merged, weight, any_known = _average(scaled, samples.weight * samples.known)
    strongest = (samples.confidence * samples.weight * samples.known).sum(0) / weight.clamp(min=1e-30)
    shape = (photo.height, photo.width)
    return MergedDepth(
        ray_depth=torch.where(any_known, log_merged.exp(), 0.0).reshape(shape),
        confidence=torch.where(any_known, strongest, 0.0).reshape(shape),
        valid=any_known.reshape(shape),
        scales=log_scales.exp(),
        groups=groups,
    )


# Crops on the photograph's rays


@dataclass(frozen=True, eq=False)
class _Samples:
    """Every crop at every pixel of the photograph; zero where the crop has no depth."""

    log_distance: Float[Tensor, "crop pixel"]
    weight: Float[Tensor, "crop pixel"]  # feather times confidence
    confidence: Float[Tensor, "crop pixel"]
    known: Bool[Tensor, "crop pixel"]


def _sample_crops(
    pinholes: VirtualPinholes,
    photo: Camera,
    depths: Tensor,
    kind: str,
    confidence: Tensor | None,
    valid: Tensor | None,
) -> _Samples:
    if len(depths) != len(pinholes):
        raise ValueError(f"{len(depths)} depth maps for {len(pinholes)} crops: give one per crop")
    crop = pinholes.crop.resize(depths.shape[2], depths.shape[1])
    rays, usable = photo.unproject_grid()
    rays, usable = rays.flatten(0, 1), (usable & _resize_mask(pinholes, photo)).flatten()
    shape = (len(depths), len(rays))
    log_distance, feather, sure = (rays.new_zeros(shape) for _ in range(3))
    known = torch.zeros(shape, dtype=torch.bool, device=rays.device)
    z_over_distance = crop.unproject_grid()[0][..., 2]
    for index, rotation in enumerate(pinholes.photo_from_crop):
        turned = rays @ rotation
        pixels, ahead = crop.project(turned)
        inside = ((pixels >= 0.5) & (pixels <= pixels.new_tensor([crop.width, crop.height]) - 0.5)).all(-1)
        chosen = (ahead & inside & usable).nonzero()[:, 0]
        z = depths[index].to(rays) * (z_over_distance if kind == "ray" else 1.0)
        solid = torch.isfinite(z) & (z > 0)
        solid = solid if valid is None else solid & valid[index]
        # Planes have 1/z linear in the pixel, so that bilinear interpolation is exact on them.
        inverse = torch.where(solid, 1 / z, 0.0)
        trust = torch.ones_like(z) if confidence is None else confidence[index].to(z)
        value, trust, found = _interpolate(inverse, trust, solid, pixels[chosen])
        direction = turned[chosen]
        log_distance[index, chosen] = torch.where(
            found, -(value * direction[:, 2]).clamp(min=1e-30).log(), 0.0
        )
        feather[index, chosen] = _compute_feather(direction, crop)
        sure[index, chosen] = trust
        known[index, chosen] = found
    return _Samples(log_distance, feather * sure, sure, known)


def _resize_mask(pinholes: VirtualPinholes, photo: Camera) -> Bool[Tensor, "height width"]:
    if pinholes.mask is None:
        return torch.ones(photo.height, photo.width, dtype=torch.bool, device=photo.device)
    mask = pinholes.mask[None, None].float()
    return (
        torch.nn.functional.interpolate(mask, size=(photo.height, photo.width), mode="nearest-exact")[0, 0]
        > 0.5
    )


def _interpolate(
    inverse: Float[Tensor, "h w"],
    trust: Float[Tensor, "h w"],
    solid: Bool[Tensor, "h w"],
    at: Float[Tensor, "n 2"],
) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"], Bool[Tensor, "n"]]:
    """Bilinear inverse depth and confidence from those of the four neighbors that lie on the nearest one's surface."""
    height, width = inverse.shape
    corner = (at - 0.5).floor().clamp(min=0)
    corner = torch.minimum(corner, at.new_tensor([max(width - 2, 0), max(height - 2, 0)])).long()
    x, y = (at - 0.5 - corner).unbind(-1)
    offsets = torch.tensor([[0, 0], [1, 0], [0, 1], [1, 1]], device=at.device)
    places = corner[:, None] + offsets
    index = places[..., 1].clamp(max=height - 1) * width + places[..., 0].clamp(max=width - 1)
    share = torch.stack([(1 - x) * (1 - y), x * (1 - y), (1 - x) * y, x * y], -1)
    share = share * solid.flatten()[index]
    values = inverse.flatten()[index]
    nearest = values.gather(1, share.argmax(1, keepdim=True))
    # Averages across an occluding edge would lie on neither surface.
    share = share * ((values - nearest).abs() <= JUMP * nearest)
    total = share.sum(1)
    share = share / total.clamp(min=1e-12)[:, None]
    # The nearest of four neighbors has a share of at least a quarter: without it there is no depth.
    return (share * values).sum(1), (share * trust.flatten()[index]).sum(1), total > 0.2499


def _compute_feather(direction: Float[Tensor, "n 3"], crop: Pinhole) -> Float[Tensor, "n"]:
    """1 on the crop's axis, smoothly down to almost 0 at its border, by the angle to the axis along each side."""
    half = direction.new_tensor([crop.width, crop.height]) / 2 / crop.params[:2].to(direction)
    angle = torch.atan2(direction[:, :2].abs(), direction[:, 2:]) / torch.atan(half)
    rest = (1 - angle).clamp(0, 1)
    return (rest * rest * (3 - 2 * rest)).prod(-1).clamp(min=_FAINT)


# One scale per crop


def solve_log_scales(
    log_distance: Float[Tensor, "crop pixel"], known: Bool[Tensor, "crop pixel"]
) -> tuple[Float[Tensor, "crop"], Int[Tensor, "crop"]]:
    """Solve for the logarithms of one factor per crop that make overlapping crops agree, and the group of each crop.

    Minimizes Σ n |log s_i − log s_j + median(log d_i − log d_j)| over pairs that share n pixels, by reweighted least
    squares: a pair whose overlap is wrong as a whole does not bend the others.
    """
    count = len(known)
    pairs, medians, sizes = [], [], []
    for i in range(count):
        for j in range(i + 1, count):
            both = known[i] & known[j]
            size = int(both.sum())
            if size >= MIN_OVERLAP:
                pairs.append((i, j))
                medians.append((log_distance[i] - log_distance[j])[both].median().double())
                sizes.append(size)
    groups = _label_groups(count, pairs)
    anchors = torch.nn.functional.one_hot(groups).mT.double().cpu() * known.sum(1).double().cpu()
    if not pairs:
        return log_distance.new_zeros(count), groups
    rows = torch.zeros(len(pairs), count, dtype=torch.float64)
    for row, (i, j) in zip(rows, pairs, strict=True):
        row[i], row[j] = 1.0, -1.0
    target, base = -torch.stack(medians).cpu(), torch.tensor(sizes, dtype=torch.float64)
    weight, scales = base, torch.zeros(count, dtype=torch.float64)
    # The mean of a group is free: rows that set it to zero make the system regular without bending the rest.
    anchors = anchors / anchors.sum(1, keepdim=True).clamp(min=1)
    for _ in range(20):
        left = torch.cat([rows * weight[:, None].sqrt(), anchors])
        right = torch.cat([target * weight.sqrt(), torch.zeros(len(anchors), dtype=torch.float64)])
        scales = torch.linalg.lstsq(left, right, driver="gelsd").solution
        weight = base / (rows @ scales - target).abs().clamp(min=1e-4)
    return scales.to(log_distance), groups


def _label_groups(count: int, pairs: list[tuple[int, int]]) -> Int[Tensor, "crop"]:
    """Number the connected groups of crops."""
    label = list(range(count))
    for i, j in pairs:
        old, new = max(label[i], label[j]), min(label[i], label[j])
        label = [new if value == old else value for value in label]
    names = sorted(set(label))
    return torch.tensor([names.index(value) for value in label])


def _average(
    log_distance: Float[Tensor, "crop pixel"], weight: Float[Tensor, "crop pixel"]
) -> tuple[Float[Tensor, "pixel"], Float[Tensor, "pixel"], Bool[Tensor, "pixel"]]:
    """Weighted mean over the crops that agree with the heaviest one; its total weight; whether any crop has a depth."""
    best, owner = weight.max(0)
    center = log_distance.gather(0, owner[None])
    agreeing = weight * ((log_distance - center).abs() <= JUMP)
    total = agreeing.sum(0)
    mean = center[0] + ((log_distance - center) * agreeing).sum(0) / total.clamp(min=1e-30)
    return mean, weight.sum(0), best > 0
