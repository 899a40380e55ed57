"""Sets of views in batches whose shape is drawn for every step, from one source or from a mixture; color jitter.

Numbers of sets, views and rows follow the appendix "3D Reconstruction".
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import isfinite, pi
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.ray_map_camera import RayMapCamera
from g_ray.geometry.pose import Pose
from g_ray.rays.ray_map import RayMap
from g_ray.rays.views import Views
from g_ray_lab.sources.batches import ReconstructionBatch, ReconstructionSource
from g_ray_lab.sources.draws import HELD_OUT, check_draws, draw_weighted
from g_ray_lab.sources.reconstruction_settings import ReconstructionData

SHAPE_STREAM = 0x5A4E
"""Keeps the draws of shapes independent of those of scenes."""
MIXTURE_STREAM = 0x31C5
"""Keeps the draws of mixtures independent of those of scenes and shapes."""

Size = tuple[int, int]
"""Width and height."""


class BatchShape(NamedTuple):
    """Shape of the batch of one process at one step."""

    sets: int
    views: int
    width: int
    height: int


class ShapedSets(ReconstructionSource):
    """A source that makes any range of its stream in any shape that its settings allow."""

    settings: ReconstructionData
    seed: int
    patch: int

    @abstractmethod
    def make_sets(
        self, numbers: Sequence[int], rank: int = 0, *, views: int | None = None, size: Size | None = None
    ) -> ReconstructionBatch:
        """Make sets of the stream, by default with the most views that a set has, at the tallest height."""

    def make_batch(self, step: int, rank: int = 0) -> ReconstructionBatch:
        shape, first = self.draw_shape(step), step * self.settings.batch
        numbers = range(first, first + shape.sets)
        return self.make_sets(numbers, rank, views=shape.views, size=self.draw_size(step, rank))

    def make_held_out(self) -> ReconstructionBatch:
        return self.make_batch(0, HELD_OUT)

    def draw_shape(self, step: int) -> BatchShape:
        """Draw the number of views and the aspect ratio of a step from (seed, step) alone: all ranks agree."""
        settings = self.settings
        random = np.random.default_rng((self.seed, SHAPE_STREAM, step))
        views = int(random.integers(settings.views[0], settings.views[1], endpoint=True))
        aspect = round(float(random.uniform(*settings.aspect)), 2)
        # 1e-6 more, so that 100 × 0.29 is not 28.999….
        rows = int(settings.height * aspect + 1e-6) // self.patch
        limit = settings.batch if settings.images_max is None else settings.images_max // views
        return BatchShape(min(settings.batch, limit), views, settings.width, max(1, rows) * self.patch)

    def draw_size(self, step: int, rank: int) -> Size:
        """Return the size of the images of a step, which all training ranks share."""
        shape = self.draw_shape(step)
        return shape.width, shape.height

    def check_shape(self) -> None:
        """Raise ValueError for settings from which no batch can be drawn."""
        settings, patch = self.settings, self.patch
        if not 1 <= settings.views[0] <= settings.views[1]:
            raise ValueError(f"views {settings.views} must be a range from 1 or more, e.g. (2, 24)")
        if not 0 < settings.aspect[0] <= settings.aspect[1] <= 1:
            raise ValueError(f"aspect {settings.aspect} must be a range in (0, 1], e.g. (0.33, 1.0)")
        check_draws(self.seed, batch=settings.batch, patch=patch)
        if min(settings.width, settings.height) < patch or settings.width % patch or settings.height % patch:
            raise ValueError(
                f"images of {settings.width}×{settings.height} px cannot be cut into patches of {patch} px: "
                "give multiples of it"
            )
        if settings.images_max is not None and settings.images_max < settings.views[1]:
            raise ValueError(
                f"images_max {settings.images_max} is below the {settings.views[1]} views that a set may have: "
                "raise it, or use fewer views"
            )

    def list_sizes(self) -> dict[Size, float]:
        """Return the sizes that batches can have, with the share of views that has each; empty if any size will do."""
        return {}


def merge_cameras(cameras: Sequence[Camera]) -> Camera:
    """Stack cameras; those of several models become tables of their rays, because a batch has one camera model."""
    kinds = {(type(camera), camera.circle is None) for camera in cameras}
    if len(kinds) > 1 or isinstance(cameras[0], RayMapCamera):
        rays = [RayMap.from_camera(camera) for camera in cameras]
        return RayMapCamera.stack([RayMapCamera.from_rays(each.directions, each.valid) for each in rays])
    return type(cameras[0]).stack(cameras)


@dataclass(frozen=True)
class MixtureReconstruction(ReconstructionSource):
    """Each set of each rank draws its source by weight, so that every step sees the whole mixture.

    All sources have batches of one shape. Where they keep the shape of photographs (`stored_shape`), a step draws one
    size and takes its sets from the sources that have it: a source has weight × share of its views of this size, so
    over many steps every source is drawn in proportion to its weight.
    """

    sources: tuple[ShapedSets, ...]
    weights: tuple[float | int, ...]
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.sources or len(self.sources) != len(self.weights):
            raise ValueError(
                f"{len(self.sources)} sources and {len(self.weights)} weights: give one or more, and a weight for each"
            )
        if not all(isfinite(weight) and weight > 0 for weight in self.weights) or self.seed < 0:
            raise ValueError(
                f"weights {self.weights} must be positive numbers, and seed {self.seed} 0 or more"
            )
        shapes = {
            (source.seed, source.patch, *source.settings.get_shape().values()) for source in self.sources
        }
        if len(shapes) > 1:
            raise ValueError(
                "sources of a mixture must have batches of one shape, one patch size and one seed"
            )

    def make_batch(self, step: int, rank: int = 0) -> ReconstructionBatch:
        shape = self.sources[0].draw_shape(step)
        size, weights = self._draw_size(step, (shape.width, shape.height))
        first = step * self.sources[0].settings.batch
        numbers: dict[int, list[int]] = {}
        for number in range(first, first + shape.sets):
            numbers.setdefault(self.choose_source(number, rank, weights), []).append(number)
        parts = [
            self.sources[index].make_sets(numbers[index], rank, views=shape.views, size=size)
            for index in sorted(numbers)
        ]
        return merge_batches(parts)

    def make_held_out(self) -> ReconstructionBatch:
        """Make a batch of the source with the greatest weight."""
        return self.sources[int(np.argmax(self.weights))].make_held_out()

    def choose_source(self, number: int, rank: int = 0, weights: Sequence[float | int] | None = None) -> int:
        """Return the index of the source of a set of a rank."""
        random = np.random.default_rng((self.seed, MIXTURE_STREAM, rank, number))
        return draw_weighted(random, self.weights if weights is None else weights)

    def _draw_size(self, step: int, drawn: Size) -> tuple[Size, list[float]]:
        """Draw the size of a step, the same on all ranks; return it and the weights of the sources at this size."""
        shares = [source.list_sizes() or {drawn: 1.0} for source in self.sources]
        sizes = sorted({size for share in shares for size in share})
        each = [
            [weight * share.get(size, 0.0) for weight, share in zip(self.weights, shares, strict=True)]
            for size in sizes
        ]
        random = np.random.default_rng((self.seed, MIXTURE_STREAM, step))
        index = draw_weighted(random, [sum(weights) for weights in each])
        return sizes[index], each[index]


def merge_batches(parts: Sequence[ReconstructionBatch]) -> ReconstructionBatch:
    """Put the sets of several batches of one shape into one."""
    if len(parts) == 1:
        return parts[0]
    tensors = {
        field.name: torch.cat([getattr(part, field.name) for part in parts])
        for field in fields(ReconstructionBatch)
        if isinstance(getattr(parts[0], field.name), torch.Tensor)
    }
    return ReconstructionBatch(
        **tensors,
        views=Views([_merge_slot(parts, view) for view in range(len(parts[0].views))]),
        poses=Pose(torch.cat([part.poses.world_from_cam for part in parts])),
        names=tuple(name for part in parts for name in part.names),
        redrawn=tuple(reason for part in parts for reason in part.redrawn),
    )


def _merge_slot(parts: Sequence[ReconstructionBatch], view: int) -> Camera:
    batched = [(part.views.cameras[view], len(part)) for part in parts]
    return merge_cameras([camera[index] for camera, count in batched for index in range(count)])


# Color augmentation: brightness, contrast, saturation, hue and gamma, for a whole set or for each view

LUMA = (0.299, 0.587, 0.114)

YIQ = ((0.299, 0.587, 0.114), (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112))
"""Brightness, and a plane of color in which hue is an angle."""


@dataclass(frozen=True)
class ColorJitter:
    """How far colors may go. Factors are drawn in 1 ± range, the hue in ± range of a whole turn.

    The defaults are VGGT's; γ is 0 there. Hue turns in the YIQ plane, which is linear, where VGGT's turns in HSV.
    """

    brightness: float = 0.5
    contrast: float = 0.5
    saturation: float = 0.5
    hue: float = 0.1
    gamma: float = 0.0
    probability: float = 0.9  # of any change
    gray: float = 0.05  # probability of no color at all
    shared: float = 0.7  # probability that all views of a set change alike

    def __post_init__(self) -> None:
        ranges = {name: getattr(self, name) for name in ("brightness", "contrast", "saturation", "gamma")}
        wrong = [name for name, value in ranges.items() if not 0 <= value < 1]
        if wrong or not 0 <= self.hue <= 0.5:
            raise ValueError(
                f"{', '.join(wrong) or 'hue'} is out of range: factors are 1 ± less than 1, and hue ± at most 0.5"
            )
        if not all(0 <= value <= 1 for value in (self.probability, self.gray, self.shared)):
            raise ValueError("probability, gray and shared are probabilities: give numbers between 0 and 1")

    def draw(self, random: np.random.Generator, views: int) -> "ColorChange":
        """Colors of the views of one set."""
        unit = random.random((views, 7))
        if random.random() < self.shared:
            unit[:] = unit[0]
        changed = unit[:, 5] < self.probability
        ranges = np.array([self.brightness, self.contrast, self.saturation, self.gamma])
        factors = np.where(changed[:, None], 1 + ranges * (2 * unit[:, :4] - 1), 1.0)
        factors[:, 2] *= unit[:, 6] >= self.gray
        turn = np.where(changed, 2 * pi * self.hue * (2 * unit[:, 4] - 1), 0.0)
        brightness, contrast, saturation, gamma = torch.from_numpy(factors).unbind(-1)
        return ColorChange(brightness, contrast, saturation, gamma, torch.from_numpy(turn))


@dataclass(frozen=True)
class ColorChange:
    """What happens to the colors of images; 1, 1, 1, 1, 0 leaves them alone."""

    brightness: Float[Tensor, "*image"]
    contrast: Float[Tensor, "*image"]  # about the image's mean gray
    saturation: Float[Tensor, "*image"]  # 0 is gray
    gamma: Float[Tensor, "*image"]
    hue_rad: Float[Tensor, "*image"]

    @staticmethod
    def stack(each: "list[ColorChange]") -> "ColorChange":
        return ColorChange(
            *(torch.stack(parts) for parts in zip(*(vars(c).values() for c in each), strict=True))
        )

    def apply(self, images: Float[Tensor, "*image 3 h w"]) -> Float[Tensor, "*image 3 h w"]:
        """Images in [0, 1] to images in [0, 1]: first γ, then everything linear in one product, then contrast."""
        gamma = self.gamma.to(images)[..., None, None, None]
        pixels = (images.clamp(0, 1) ** gamma).flatten(-2)
        changed = self._build_matrix().to(images) @ pixels
        luminance = (changed.new_tensor(LUMA) @ changed).mean(-1)[..., None, None]
        contrast = self.contrast.to(images)[..., None, None]
        return (luminance + contrast * (changed - luminance)).clamp(0, 1).reshape(images.shape)

    def _build_matrix(self) -> Float[Tensor, "*image 3 3"]:
        """Brightness times saturation and hue: both act on the color plane of YIQ, and leave gray alone."""
        yiq = torch.tensor(YIQ, dtype=torch.float64)
        cos, sin = self.saturation * self.hue_rad.cos(), self.saturation * self.hue_rad.sin()
        zero, one = torch.zeros_like(cos), torch.ones_like(cos)
        turn = torch.stack([one, zero, zero, zero, cos, -sin, zero, sin, cos], -1).unflatten(-1, (3, 3))
        return self.brightness[..., None, None] * (torch.linalg.inv(yiq) @ turn @ yiq)
