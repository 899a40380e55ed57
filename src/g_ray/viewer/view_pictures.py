"""Pictures of a view for the page of a reconstruction: photograph, depth, confidence, expected error; in few bytes."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, UInt8
from PIL import Image
from torch import Tensor

from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.export.result import Reconstruction
from g_ray.media.images import read_photo
from g_ray.media.photos import reduce_image
from g_ray.viewer.colors import NOTHING, map_to_heat
from g_ray.viewer.embed import encode_jpeg, make_data_uri

SIDE = 480
"""Longest side of a picture, in pixels."""
MIN_SIDE = 48
HATCH = 3
"""Width of the stripes over depth that was filled in, in pixels of a picture across and down."""
SAMPLES = 5_000
"""Pixels of a view that scales are estimated from."""


@dataclass(frozen=True)
class Scales:
    """Ranges of depth and confidence, the same for all views, without the outermost 2 %."""

    near: float
    far: float
    low: float
    high: float

    @staticmethod
    def from_reconstruction(reconstruction: Reconstruction) -> "Scales":
        depth, confidence = [], []
        for view in reconstruction.views:
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
        """Map near to 1 and far to 0, by the logarithm: halving the distance is an even step."""
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
    error: str | None
    """None: the expected error is not known."""


def make_view_pictures(
    reconstruction: Reconstruction, view: ReconstructedView, scales: Scales, budget: int
) -> ViewPictures:
    """Make pictures of at most `budget` bytes, smaller ones if needed."""
    photo = (255 * _read_small(reconstruction, view).movedim(0, -1).numpy()).round().astype(np.uint8)
    depth, confidence, valid = (x.numpy(force=True) for x in (view.ray_depth, view.confidence, view.valid))
    filled = np.zeros_like(valid) if view.filled is None else view.filled.numpy(force=True)
    error = None if view.expected_error is None else view.expected_error.numpy(force=True)
    side = SIDE
    while True:
        width, height = _compute_size(photo.shape[1], photo.shape[0], side)
        rows, columns = _sample_indices(depth.shape[0], height), _sample_indices(depth.shape[1], width)
        at = np.ix_(rows, columns)
        pictures = [
            np.asarray(Image.fromarray(photo).resize((width, height), Image.Resampling.BOX)),
            _color_map(scales.scale_depth(depth[at]), valid[at], filled[at]),
            _color_map(scales.scale_confidence(confidence[at]), valid[at], filled[at]),
        ]
        if error is not None:
            pictures.append(_color_map(_scale_error(error[at]), valid[at] & (error[at] > 0), filled[at]))
        encoded = [_encode(picture) for picture in pictures]
        if sum(map(len, encoded)) <= budget or side <= MIN_SIDE:
            first, second, third, *rest = encoded
            return ViewPictures(width, height, first, second, third, rest[0] if rest else None)
        side = max(MIN_SIDE, int(side * 0.75))


LEAST_ERROR, LARGEST_ERROR = 0.001, 0.1
"""Range of the colors of expected errors, the same on all pages."""


def _scale_error(error: Float[np.ndarray, "h w"]) -> Float[np.ndarray, "h w"]:
    """Map the largest error to 0 and the least to 1, by the logarithm."""
    low, high = np.log([LEAST_ERROR, LARGEST_ERROR])
    return (high - np.log(np.maximum(error, 1e-9))) / (high - low)


def _read_small(reconstruction: Reconstruction, view: ReconstructedView) -> Float[Tensor, "3 h w"]:
    """Read the photograph of a view at the size of a picture: as the run has kept it, or from the folder."""
    if view.photo is not None:
        return view.photo.load_copy(SIDE)
    return reduce_image(read_photo(reconstruction.get_image_path(view.name)), SIDE)


def _encode(picture: UInt8[np.ndarray, "h w 3"]) -> str:
    return make_data_uri(encode_jpeg(picture, quality=82), "jpeg")


def _compute_size(width: int, height: int, side: int) -> tuple[int, int]:
    scale = min(1.0, side / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))


def _sample_indices(count: int, wanted: int) -> np.ndarray:
    """Return pixels in the middle of equal parts, so that depth is never averaged across edges."""
    return ((np.arange(wanted) + 0.5) * count / wanted).astype(np.int64)


def _color_map(
    values: Float[np.ndarray, "h w"], valid: Bool[np.ndarray, "h w"], filled: Bool[np.ndarray, "h w"]
) -> UInt8[np.ndarray, "h w 3"]:
    """Color a map: gray where nothing is known, hatched with gray where depth was filled in."""
    colors = map_to_heat(np.where(valid, values, np.nan))
    rows, columns = np.indices(values.shape)
    stripes = (rows + columns) // HATCH % 2 == 0
    return np.where((valid & filled & stripes)[..., None], np.array(NOTHING, np.uint8), colors)
