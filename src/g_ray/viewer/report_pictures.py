"""Pictures of a view for the report: photograph, depth and confidence, small enough that many fit into a page."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, UInt8
from PIL import Image

from g_ray.data.photos import read_photo
from g_ray.export.result import Result, ResultView
from g_ray.viewer.colours import map_to_heat
from g_ray.viewer.embed import encode_jpeg, make_data_uri

SIDE = 480
"""Of a picture, at most."""
MIN_SIDE = 48
BUDGET = 6_000_000
"""Bytes of all pictures together."""
SAMPLES = 5_000
"""Pixels of a view that scales are estimated from."""


@dataclass(frozen=True)
class Scales:
    """One for all views, so that a colour means the same everywhere; the outermost 2 % are beyond them."""

    near: float
    far: float
    low: float
    high: float

    @staticmethod
    def from_result(result: Result) -> "Scales":
        depth, confidence = [], []
        for view in result.views:
            step = max(1, int(view.valid.sum()) // SAMPLES)
            depth.append(view.ray_depth[view.valid][::step].numpy(force=True))
            confidence.append(view.confidence[view.valid][::step].numpy(force=True))
        depths, sureness = np.concatenate(depth), np.concatenate(confidence)
        if not len(depths):
            return Scales(1.0, 2.0, 0.0, 1.0)
        near, far = np.quantile(depths, (0.02, 0.98))
        low, high = np.quantile(sureness, (0.02, 0.98))
        return Scales(*(float(x) for x in (near, far, low, high)))

    def scale_depth(self, depth: Float[np.ndarray, "h w"]) -> Float[np.ndarray, "h w"]:
        """Near is 1 and far is 0, by the logarithm: halves of the distance are even steps."""
        near, far = np.log([max(self.near, 1e-9), max(self.far, 2e-9)])
        return (far - np.log(np.maximum(depth, 1e-9))) / max(far - near, 1e-9)

    def scale_confidence(self, confidence: Float[np.ndarray, "h w"]) -> Float[np.ndarray, "h w"]:
        return (confidence - self.low) / max(self.high - self.low, 1e-9)


@dataclass(frozen=True)
class ViewPictures:
    """Data URIs of one size."""

    width: int
    height: int
    photo: str
    depth: str
    confidence: str


def make_view_pictures(result: Result, view: ResultView, scales: Scales, budget: int) -> ViewPictures:
    """Three pictures of at most `budget` bytes, if it takes smaller ones."""
    photo = (
        (read_photo(result.get_image_path(view.name)).movedim(0, -1).numpy() * 255).round().astype(np.uint8)
    )
    depth, confidence, valid = (x.numpy(force=True) for x in (view.ray_depth, view.confidence, view.valid))
    side = SIDE
    while True:
        width, height = _compute_size(photo.shape[1], photo.shape[0], side)
        rows, columns = _sample_indices(photo.shape[0], height), _sample_indices(photo.shape[1], width)
        at = np.ix_(rows, columns)
        pictures = (
            np.asarray(Image.fromarray(photo).resize((width, height), Image.Resampling.BOX)),
            map_to_heat(_mask_invalid(scales.scale_depth(depth[at]), valid[at])),
            map_to_heat(_mask_invalid(scales.scale_confidence(confidence[at]), valid[at])),
        )
        encoded = [_encode(picture) for picture in pictures]
        if sum(map(len, encoded)) <= budget or side <= MIN_SIDE:
            return ViewPictures(width, height, *encoded)
        side = max(MIN_SIDE, int(side * 0.75))


def _encode(picture: UInt8[np.ndarray, "h w 3"]) -> str:
    return make_data_uri(encode_jpeg(picture, quality=82), "jpeg")


def _compute_size(width: int, height: int, side: int) -> tuple[int, int]:
    scale = min(1.0, side / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))


def _sample_indices(count: int, wanted: int) -> np.ndarray:
    """Pixels in the middle of equal parts: depth is never mixed across edges."""
    return ((np.arange(wanted) + 0.5) * count / wanted).astype(np.int64)


def _mask_invalid(
    values: Float[np.ndarray, "h w"], valid: Bool[np.ndarray, "h w"]
) -> Float[np.ndarray, "h w"]:
    return np.where(valid, values, np.nan)
