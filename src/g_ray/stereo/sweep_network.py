"""A small network that finds depth along the rays of any lenses by comparing learned features.

    photograph ─► features at ¼ and ½ of its size, once per photograph                          `FeaturePyramid`
    ¼: HYPOTHESES inverse distances, the same for all pixels ─► similarity by groups of
       channels, averaged over sources with a weight per pixel ─► 3D convolutions ─► ρ          `SourceWeight`
    ½: FINE inverse distances around the estimate of each pixel ─► the same again ─► ρ          `VolumeFilter`
    full size: each pixel a convex combination of nine estimates of ½ size; confidence

All it knows of a lens is where a pixel goes in another photograph while its distance is swept (`Trajectories`), so
that a fisheye, a panorama and a telephone may be mixed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from g_ray.cameras.camera import Camera
from g_ray.media.view import View
from g_ray.stereo.warp import ProjectionTable, Trajectories

LEVELS = (4, 2)
"""Pixels of the photograph per pixel of a level, coarse first."""
CHANNELS = {4: 32, 2: 16}
GROUPS = 8
"""Groups of channels whose similarity is averaged."""
VOLUME_CHANNELS = 16
"""Similarities and weights, padded: 3D convolutions with multiples of 16 input channels are many times faster."""
HYPOTHESES = 48
"""Inverse distances of the first sweep in training; more are finer, and work without training."""
FINE, FINE_STEP = 8, 0.5
"""Inverse distances of the second sweep, and their spacing in steps of the first."""
REACH = 2
"""Hypotheses to either side of the likeliest whose mean is the first estimate."""
TOLERANCE = 0.03
"""The confidence is the probability that a distance is right up to this share."""
TINY = 1e-4
ELEMENTS_AT_ONCE = 1 << 21
"""Features of a source that are compared in one go: what stays in the cache."""
CURVE = 32
"""Hypotheses whose pixels in a source are interpolated together, see `warp`."""


@dataclass(frozen=True, eq=False)
class PhotoFeatures:
    """Features of a photograph by level."""

    maps: Mapping[int, Float[Tensor, "_ _ _"]]
    mask: Bool[Tensor, "_ _"] | None = None
    """Pixels of the photograph that may be used; None: all."""


@dataclass(frozen=True, eq=False)
class Sight:
    """Where the pixels of a reference go in one source, by level."""

    ways: Mapping[int, Trajectories]

    @staticmethod
    def between(reference: View, source: View) -> "Sight":
        """Compute it for two views whose sides are multiples of the coarsest level."""
        height, width = reference.size
        return Sight(
            {
                level: Trajectories.between(
                    reference,
                    source,
                    reference.camera.to(torch.float32)
                    .resize(width // level, height // level)
                    .unproject_grid()[0],
                )
                for level in LEVELS
            }
        )


@dataclass(frozen=True, eq=False)
class SweepEstimate:
    """What the network finds for a batch of reference views. Places run from 0 at the far end of the swept inverse
    distances to 1 at the near end."""

    coarse: Float[Tensor, "batch h4 w4"]
    coarse_logits: Float[Tensor, "batch n h4 w4"]
    start: Float[Tensor, "batch h2 w2"]
    """The coarse estimate in the resolution of the second sweep, which is centered on it."""
    fine: Float[Tensor, "batch h2 w2"]
    fine_logits: Float[Tensor, "batch k h2 w2"]
    fine_places: Float[Tensor, "batch k h2 w2"]
    full: Float[Tensor, "batch h w"]
    confidence_logits: Float[Tensor, "batch h2 w2"]


class SweepNetwork(nn.Module):
    """Inverse ray distances of reference views from their sources."""

    def __init__(self) -> None:
        super().__init__()
        self.features = FeaturePyramid()
        self.weigh = nn.ModuleDict({str(level): SourceWeight() for level in LEVELS})
        self.coarse = VolumeFilter(CHANNELS[4], halvings=((2, 2, 2), (2, 2, 2)))
        self.fine = VolumeFilter(CHANNELS[2] + 1, halvings=((1, 2, 2),))
        self.enlarge_coarse = ConvexUpsampling(CHANNELS[4])
        self.enlarge_fine = ConvexUpsampling(CHANNELS[2])
        self.confidence = nn.Sequential(_conv2d(CHANNELS[2] + 5, 24), nn.Conv2d(24, 1, 3, padding=1))

    def describe(self, images: Float[Tensor, "photo 3 h w"]) -> dict[int, Float[Tensor, "photo _ _ _"]]:
        """Compute the features of photographs in [0, 1] by level; sides are multiples of the coarsest."""
        mean, deviation = images.mean((-3, -2, -1), keepdim=True), images.std((-3, -2, -1), keepdim=True)
        return self.features((images - mean) / (deviation + 0.05))

    def forward(
        self,
        images: Sequence[Float[Tensor, "view 3 h w"]],
        sights: Sequence[Sequence[Sight]],
        limits: Float[Tensor, "batch 2"],
        hypotheses: int = HYPOTHESES,
    ) -> SweepEstimate:
        """Estimate distances for the first image of every set, between the inverse distances `limits` (far, near)."""
        maps = self.describe(torch.cat(list(images)))
        counts = [len(views) for views in images]
        split = {level: values.split(counts) for level, values in maps.items()}
        photos = [
            [PhotoFeatures({level: split[level][index][view] for level in LEVELS}) for view in range(count)]
            for index, count in enumerate(counts)
        ]
        return self.sweep(photos, sights, limits, hypotheses)

    def sweep(
        self,
        photos: Sequence[Sequence[PhotoFeatures]],
        sights: Sequence[Sequence[Sight]],
        limits: Float[Tensor, "batch 2"],
        hypotheses: int = HYPOTHESES,
    ) -> SweepEstimate:
        """As `forward`, from features; the first photograph of each set is the reference."""
        far, near = (limit[:, None, None, None] for limit in limits.unbind(1))
        places = torch.linspace(0, 1, hypotheses, device=limits.device)[None, :, None, None]
        reference = {level: torch.stack([set_[0].maps[level] for set_ in photos]) for level in LEVELS}
        volume, seen = self._compare(4, photos, sights, far + (near - far) * places)
        logits = self.coarse(volume, reference[4])
        coarse, mass = _average_near_peak(logits.softmax(1), places)
        start = self.enlarge_coarse(reference[4], coarse)
        offsets = torch.arange(FINE, device=limits.device) - (FINE - 1) / 2
        step = FINE_STEP / (hypotheses - 1)
        fine_places = start.detach()[:, None] + offsets[None, :, None, None] * step
        volume, _ = self._compare(2, photos, sights, (far + (near - far) * fine_places).clamp_min(0))
        size = reference[2].shape[-2:]
        hints = _enlarge(torch.stack([mass, seen], 1).detach(), size)
        fine_logits = self.fine(volume, torch.cat([reference[2], hints[:, :1]], 1))
        likely = fine_logits.softmax(1)
        fine = (likely * fine_places).sum(1)
        signs = torch.stack(
            [
                likely.amax(1),
                _measure_entropy(likely),
                (fine - start).abs() * (hypotheses - 1),
            ],
            1,
        )
        confidence = self.confidence(torch.cat([reference[2], hints, signs], 1).detach())[:, 0].float()
        full = self.enlarge_fine(reference[2], fine)
        return SweepEstimate(coarse, logits, start, fine, fine_logits, fine_places, full, confidence)

    def _compare(
        self,
        level: int,
        photos: Sequence[Sequence[PhotoFeatures]],
        sights: Sequence[Sequence[Sight]],
        inverse: Float[Tensor, "batch n _ _"],
    ) -> tuple[Float[Tensor, "batch c n h w"], Float[Tensor, "batch h w"]]:
        """Similarity of every reference to its sources by groups of channels, and how many sources it rests on."""
        volumes, seen = [], []
        for set_, ways, distances in zip(photos, sights, inverse, strict=True):
            found = [
                _compare_source(set_[0].maps[level], photo, level, sight.ways[level], distances)
                for photo, sight in zip(set_[1:], ways, strict=True)
            ]
            shares = [self.weigh[str(level)](blocks) for blocks in found]
            averages = [_average_sources(blocks, shares) for blocks in zip(*found, strict=True)]
            volumes.append(torch.cat([volume for volume, _ in averages]))
            seen.append(torch.stack([weight for _, weight in averages]).amax(0))
        # With the channels last in memory 3D convolutions on CPUs are fastest.
        return torch.stack(volumes).movedim(-1, 1), torch.stack(seen)


@dataclass(frozen=True, eq=False)
class SourceMatch:
    """Similarities of a reference to a source by groups of channels, for a block of hypotheses."""

    similar: Float[Tensor, "g k h w"]
    visible: Float[Tensor, "k h w"]  # 1 where the source sees the point


def _compare_source(
    reference: Float[Tensor, "c h w"],
    photo: PhotoFeatures,
    level: int,
    ways: Trajectories,
    inverse: Float[Tensor, "n _ _"],
) -> list[SourceMatch]:
    """Similarity to one source, in blocks of hypotheses that stay in the cache."""
    table, channels = FeatureTable.make(photo, level), len(reference)
    # Means over groups of channels as a product, which is faster than a sum over so few.
    group = torch.arange(channels, device=reference.device) * GROUPS // channels
    groups = F.one_hot(group).mT.to(reference) * (GROUPS / channels)
    rows, blocks = reference.flatten(1).mT.contiguous(), []
    for pixels, valid in _follow(ways, inverse, max(1, ELEMENTS_AT_ONCE // reference.numel())):
        warped, visible = table.sample(pixels, valid, ways.camera)
        products = (warped.unflatten(0, (-1, len(rows))) * rows).flatten(0, 1)
        blocks.append(SourceMatch((groups @ products.mT).unflatten(1, visible.shape), visible))
    return blocks


def _average_sources(
    blocks: Sequence[SourceMatch], shares: Sequence[Float[Tensor, "1 h w"]]
) -> tuple[Float[Tensor, "k h w c"], Float[Tensor, "h w"]]:
    """Average the similarities to all sources, with their weight as a further channel; and the largest weight."""
    weights = [share * block.visible + TINY for block, share in zip(blocks, shares, strict=True)]
    total = sum(weight * block.similar for block, weight in zip(blocks, weights, strict=True))
    weight = torch.stack(weights).sum(0)
    parts = torch.cat([total / weight, 2 * weight[None] / len(blocks)]).to(blocks[0].similar.dtype)
    channels = F.pad(parts.flatten(1).mT, (0, VOLUME_CHANNELS - len(parts)))
    return channels.unflatten(0, weight.shape), weight.amax(0)


@torch.no_grad()
def _follow(
    ways: Trajectories, inverse: Float[Tensor, "n _ _"], at_once: int
) -> Iterator[tuple[Float[Tensor, "k h w 2"], Bool[Tensor, "k h w"]]]:
    """Yield where the reference's pixels go, a few hypotheses at a time, in full precision even under autocast."""
    exact = torch.autocast(inverse.device.type, enabled=False)
    if inverse.shape[1:] != (1, 1):
        for some in inverse.split(at_once):
            with exact:
                place = ways.project(some)
            yield place
        return
    center = ways.bearings.new_zeros(ways.bearings.shape[:-1])
    for offsets in inverse[:, 0, 0].split(CURVE):
        with exact:
            curves = ways.prepare(center, offsets)
        for start in range(0, len(offsets), at_once):
            with exact:
                place = curves.evaluate(start, min(start + at_once, len(offsets)))
            yield place


@dataclass(frozen=True, eq=False)
class FeatureTable:
    """Features of a source as rows, one per pixel, with a border of zeros."""

    rows: Float[Tensor, "row c"]
    size: tuple[int, int]
    mask: Bool[Tensor, "_ _"] | None

    @staticmethod
    def make(photo: PhotoFeatures, level: int) -> "FeatureTable":
        padded = F.pad(photo.maps[level], (1, 1, 1, 1))
        height, width = photo.maps[level].shape[1:]
        return FeatureTable(padded.flatten(1).mT.contiguous(), (height, width), photo.mask)

    def sample(
        self, pixels: Float[Tensor, "k h w 2"], valid: Bool[Tensor, "k h w"], camera: Camera | ProjectionTable
    ) -> tuple[Float[Tensor, "point c"], Float[Tensor, "k h w"]]:
        """Interpolate features at pixels of the photograph, and return 1 where there are any."""
        with torch.no_grad():
            corners, weights, visible = self._find_corners(pixels, valid, camera)
        # Many times faster than `grid_sample`, which gathers each channel by itself.
        found = F.embedding_bag(corners, self.rows, per_sample_weights=weights, mode="sum")
        return found, visible

    def _find_corners(
        self, pixels: Float[Tensor, "k h w 2"], valid: Bool[Tensor, "k h w"], camera: Camera | ProjectionTable
    ) -> tuple[Int[Tensor, "point 4"], Float[Tensor, "point 4"], Float[Tensor, "k h w"]]:
        """Rows around each pixel and their bilinear weights, all 0 where there is nothing to see."""
        height, width = self.size
        # The ratio is exact where the source's pixels are padded: features cover whole multiples of the level.
        x = pixels[..., 0].nan_to_num(-1.0) * (width / camera.width)
        y = pixels[..., 1].nan_to_num(-1.0) * (height / camera.height)
        valid = valid & (x > 0) & (x < width) & (y > 0) & (y < height)
        if self.mask is not None:
            step = self.mask.shape[0] / height
            column, row = (x * step).long(), (y * step).long()
            column, row = column.clamp(0, self.mask.shape[1] - 1), row.clamp(0, self.mask.shape[0] - 1)
            valid &= self.mask[row, column]
        x, y = (x + 0.5).clamp(0, width + 0.999), (y + 0.5).clamp(0, height + 0.999)
        left, top = x.floor(), y.floor()
        x, y, visible = x - left, y - top, valid.to(x)
        first = (top * (width + 2) + left).int()
        corners = torch.stack([first, first + 1, first + width + 2, first + width + 3], -1)
        upper, lower = (1 - y) * visible, y * visible
        weights = torch.stack([(1 - x) * upper, x * upper, (1 - x) * lower, x * lower], -1)
        return corners.flatten(0, -2), weights.flatten(0, -2), visible


def _average_near_peak(
    likely: Float[Tensor, "batch n h w"], places: Float[Tensor, "1 n 1 1"]
) -> tuple[Float[Tensor, "batch h w"], Float[Tensor, "batch h w"]]:
    """Mean place of the hypotheses next to the likeliest, and their probability."""
    order = torch.arange(likely.shape[1], device=likely.device)[None, :, None, None]
    near = (order - likely.argmax(1, keepdim=True)).abs() <= REACH
    kept = likely * near
    mass = kept.sum(1)
    return (kept * places).sum(1) / mass, mass


def _measure_entropy(likely: Float[Tensor, "batch n h w"]) -> Float[Tensor, "batch h w"]:
    return -(likely * likely.clamp_min(1e-9).log()).sum(1)


def _enlarge(values: Float[Tensor, "batch c _ _"], size: Sequence[int]) -> Float[Tensor, "batch c h w"]:
    return F.interpolate(values, size=tuple(size), mode="bilinear", align_corners=False)


# Parts


def _conv2d(inputs: int, outputs: int, size: int = 3, stride: int = 1, dilation: int = 1) -> nn.Sequential:
    padding = dilation * (size // 2)
    conv = nn.Conv2d(inputs, outputs, size, stride, padding, dilation, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


def _conv3d(
    inputs: int, outputs: int, size: int = 3, stride: tuple[int, int, int] | int = 1
) -> nn.Sequential:
    conv = nn.Conv3d(inputs, outputs, size, stride, size // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm3d(outputs), nn.ReLU(inplace=True))


class Residual(nn.Module):
    """x + two convolutions of x."""

    def __init__(self, channels: int, dilation: int = 1) -> None:
        super().__init__()
        last = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.body = nn.Sequential(
            _conv2d(channels, channels, dilation=dilation), last, nn.BatchNorm2d(channels)
        )

    def forward(self, x: Float[Tensor, "batch c h w"]) -> Float[Tensor, "batch c h w"]:
        return F.relu(x + self.body(x))


class FeaturePyramid(nn.Module):
    """Features at ½ and ¼ of a photograph; a level at ⅛ tells surfaces without texture apart by their surroundings."""

    def __init__(self) -> None:
        super().__init__()
        half, quarter, eighth = CHANNELS[2], CHANNELS[4], 48
        self.at_half = nn.Sequential(_conv2d(3, half, 5, 2), Residual(half))
        self.at_quarter = nn.Sequential(_conv2d(half, quarter, 3, 2), Residual(quarter), Residual(quarter, 2))
        self.at_eighth = nn.Sequential(_conv2d(quarter, eighth, 3, 2), Residual(eighth), Residual(eighth, 2))
        self.to_quarter, self.to_half = nn.Conv2d(eighth, quarter, 1), nn.Conv2d(quarter, half, 1)
        self.out_quarter = nn.Conv2d(quarter, quarter, 3, padding=1)
        self.out_half = nn.Conv2d(half, half, 3, padding=1)

    def forward(self, images: Float[Tensor, "photo 3 h w"]) -> dict[int, Float[Tensor, "photo _ _ _"]]:
        half = self.at_half(images)
        quarter = self.at_quarter(half)
        quarter = quarter + _enlarge(self.to_quarter(self.at_eighth(quarter)), quarter.shape[-2:])
        half = half + _enlarge(self.to_half(quarter), half.shape[-2:])
        return {4: self.out_quarter(quarter).float(), 2: self.out_half(half).float()}


class SourceWeight(nn.Module):
    """How much a source counts at a pixel, from its similarities over all hypotheses: little where it is occluded."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.full((GROUPS,), 1 / GROUPS))
        self.body = nn.Sequential(
            nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(8, 1, 3, padding=1)
        )

    def forward(self, blocks: Sequence["SourceMatch"]) -> Float[Tensor, "1 h w"]:
        mix = self.mix[None].to(blocks[0].similar)
        score = torch.cat([(mix @ b.similar.flatten(1)).float().view(b.visible.shape) for b in blocks])
        seen = torch.stack([block.visible.sum(0) for block in blocks]).sum(0) / len(score)
        signs = [score.amax(0), score.mean(0), score.softmax(0).amax(0), seen]
        return self.body(torch.stack(signs)[None]).float().sigmoid()[0]


class VolumeFilter(nn.Module):
    """3D convolutions over a volume of similarities at several resolutions: one logit per hypothesis and pixel.

    Features of the reference tell where surfaces end.
    """

    WIDTH, DEEP = 16, 32

    def __init__(self, reference: int, halvings: Sequence[tuple[int, int, int]]) -> None:
        super().__init__()
        width = self.WIDTH
        self.volume = nn.Conv3d(VOLUME_CHANNELS, width, 3, padding=1, bias=False)
        self.reference = nn.Conv2d(reference, width, 3, padding=1)
        self.norm = nn.BatchNorm3d(width)
        self.first = _conv3d(width, width)
        widths = [width] + [self.DEEP if len(halvings) > 1 else width] * len(halvings)
        self.down = nn.ModuleList(
            nn.Sequential(_conv3d(before, after, stride=stride), _conv3d(after, after))
            for (before, after), stride in zip(pairwise(widths), halvings, strict=True)
        )
        self.up = nn.ModuleList(_conv3d(after, before, 1) for before, after in pairwise(widths))
        self.out = nn.Conv3d(width, 1, 3, padding=1)

    def forward(
        self, volume: Float[Tensor, "batch c n h w"], reference: Float[Tensor, "batch _ h w"]
    ) -> Float[Tensor, "batch n h w"]:
        x = F.relu(self.norm(self.volume(volume) + self.reference(reference)[:, :, None]))
        levels = [self.first(x)]
        for down in self.down:
            levels.append(down(levels[-1]))
        x = levels.pop()
        for up in reversed(self.up):
            below = levels.pop()
            x = below + F.interpolate(up(x), size=below.shape[-3:], mode="trilinear", align_corners=False)
        return self.out(x)[:, 0].float()


class ConvexUpsampling(nn.Module):
    """Doubles the resolution: each new pixel is a learned convex combination of the nine estimates around it.

    Unlike interpolation it can follow the edge of a surface.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weights = nn.Sequential(_conv2d(channels, 32), nn.Conv2d(32, 36, 1))

    def forward(
        self, features: Float[Tensor, "batch c h w"], values: Float[Tensor, "batch h w"]
    ) -> Float[Tensor, "batch _ _"]:
        height, width = values.shape[-2:]
        weights = self.weights(features).float().reshape(-1, 9, 4, height, width).softmax(1)
        padded = F.pad(values[:, None], (1, 1, 1, 1), mode="replicate")
        around = F.unfold(padded, 3).reshape(-1, 9, 1, height, width)
        return F.pixel_shuffle((weights * around).sum(1), 2)[:, 0]
