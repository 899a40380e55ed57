"""SIFT features of a photograph through any lens, with their places in the original image.

Up to moderate angles features are looked for in the photograph itself. Wide lenses bend the surroundings of a point
differently in every view, so that descriptors cease to match: their images are first resampled into pinhole crops that
cover the field of view. A feature of a crop is taken to its ray, and back to the original pixel, exactly.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped, UInt8
from torch import Tensor
from torch.nn.functional import interpolate

from g_ray.cameras.camera import Camera
from g_ray.cameras.ray_grid import pixel_centers
from g_ray.formats.colmap.colmap_cameras import measure_angles_deg
from g_ray.media.photos import Photo
from g_ray.media.view import View
from g_ray.rays.virtual_pinholes import VirtualPinholes, cover_with_pinholes, grow
from g_ray.sfm.sfm_options import WORKING_SIZE, SfMOptions

RAW_ANGLE_DEG = 75.0
"""A lens is cropped if more than a tenth of its pixels look further away from the axis."""
RAW_SHARE = 0.9
CROP_FOV_DEG = 84.0
WINDOW_STEP, WINDOW_MARGIN = 8, 40
"""Crops overlap, and features belong to one of them: pixels further than this from a crop's own part are not drawn."""
BORDER_PX = 6
"""Features this near to where the lens sees nothing are features of that border."""


@dataclass(frozen=True, eq=False)
class Features:
    """Places in the original image (corner origin), descriptors and colors."""

    pixels: Float[np.ndarray, "n 2"]
    descriptors: UInt8[np.ndarray, "n 128"]
    colors: UInt8[np.ndarray, "n 3"]

    def __len__(self) -> int:
        return len(self.pixels)

    def select(self, keep: Bool[np.ndarray, "n"]) -> "Features":
        return Features(self.pixels[keep], self.descriptors[keep], self.colors[keep])


Detector = Callable[
    [Float[Tensor, "3 h w"], int], tuple[Float[np.ndarray, "n 2"], Shaped[np.ndarray, "n 128"]]
]
"""Returns places (corner origin) and descriptors of at most so many features of an image."""


def extract_features(pycolmap: Any, view: View, options: SfMOptions) -> Features:
    """Find features where the lens has rays and the mask allows them."""
    if not needs_crops(view.camera) and isinstance(view.image, Photo) and view.image.features:
        (features,) = view.image.features
        return features.select(find_usable(view, features.pixels))
    image = view.load_image().detach().float().cpu()
    pixels, descriptors = detect(view, image, partial(run_sift, pycolmap), options.max_features, WORKING_SIZE)
    return Features(pixels, descriptors, sample_colors(image, pixels))


def detect(
    view: View, image: Float[Tensor, "3 h w"], detector: Detector, count: int, longer: int
) -> tuple[Float[np.ndarray, "n 2"], Shaped[np.ndarray, "n 128"]]:
    """Return pixels and descriptors of features of a view's image, reduced to a longer side, through any lens."""
    working = _resize_to_working(image, longer)
    if needs_crops(view.camera):
        pixels, descriptors = _detect_in_crops(view.camera, working, detector, count)
    else:
        pixels, descriptors = detector(working, count)
        pixels = pixels * _compare_sizes(image, working)
    usable = find_usable(view, pixels)
    return pixels[usable], descriptors[usable]


def find_usable(view: View, pixels: Float[np.ndarray, "n 2"]) -> Bool[np.ndarray, "n"]:
    """Return at which pixels the lens has a ray and the mask allows features."""
    usable = view.camera.unproject(torch.from_numpy(pixels).double())[1].numpy()
    mask = view.load_mask()
    return usable if mask is None else usable & _sample_nearest(mask.cpu(), pixels)


def find_features(
    pycolmap: Any, image: Float[Tensor, "3 h w"], options: SfMOptions, longer: int = WORKING_SIZE
) -> Features:
    """Find features in a whole image, whatever its lens, reduced to a longer side."""
    working = _resize_to_working(image, longer)
    pixels, descriptors = run_sift(pycolmap, working, options.max_features)
    pixels = pixels * _compare_sizes(image, working)
    return Features(pixels, descriptors, sample_colors(image, pixels))


def _compare_sizes(image: Float[Tensor, "3 _ _"], working: Float[Tensor, "3 _ _"]) -> np.ndarray:
    return np.array([image.shape[2] / working.shape[2], image.shape[1] / working.shape[1]], dtype=np.float32)


def _resize_to_working(image: Float[Tensor, "3 _ _"], longer: int = WORKING_SIZE) -> Float[Tensor, "3 _ _"]:
    height, width = image.shape[1:]
    scale = min(1.0, longer / max(width, height))
    if scale == 1.0:
        return image
    size = (max(1, round(height * scale)), max(1, round(width * scale)))
    return interpolate(image[None], size, mode="bilinear", antialias=True)[0]


def needs_crops(camera: Camera) -> bool:
    """Whether a lens is too wide for descriptors of its raw image."""
    return float(measure_angles_deg(camera).quantile(RAW_SHARE)) > RAW_ANGLE_DEG


def _detect_in_crops(
    camera: Camera, working: Tensor, detector: Detector, count: int
) -> tuple[Float[np.ndarray, "n 2"], Shaped[np.ndarray, "n 128"]]:
    small = camera.resize(working.shape[2], working.shape[1])
    cover = cover_with_pinholes(small, fov_deg=CROP_FOV_DEG)
    ratio = np.array([camera.width / small.width, camera.height / small.height], dtype=np.float32)
    limit = max(256, 2 * count // len(cover))
    # Pixels are drawn in single precision, which is twice as fast through ray maps; places of features are exact.
    drawn = replace(
        cover,
        photo=small.to(dtype=torch.float32),
        crop=cover.crop.to(dtype=torch.float32),
        photo_from_crop=cover.photo_from_crop.float(),
    )
    parts = []
    for index, window in enumerate(_find_windows(cover)):
        crop, seen = (part[0] for part in _cut(drawn, window).render(working, [index]))
        places, descriptors = detector(crop, limit)
        pixels, owned = _return_to_photo(_cut(cover, window), index, torch.from_numpy(places).double())
        keep = owned.numpy() & _sample_nearest(_erode(seen), places)
        parts.append(((pixels.numpy() * ratio).astype(np.float32)[keep], descriptors[keep]))
    pixels, descriptors = (np.concatenate(part) for part in zip(*parts, strict=True))
    return pixels, descriptors


def _find_windows(cover: VirtualPinholes) -> list[tuple[int, int, int, int]]:
    """Find left, top, width and height of the part of each crop that holds its own rays, with what surrounds them."""
    side = (cover.crop.width, cover.crop.height)
    coarse = pixel_centers(*(-(-n // WINDOW_STEP) for n in side), dtype=cover.crop.dtype) * WINDOW_STEP
    windows = []
    for index in range(len(cover)):
        places = coarse[_return_to_photo(cover, index, coarse)[1]]
        if not len(places):
            windows.append((0, 0, *side))
            continue
        low = (places.amin(0) - WINDOW_MARGIN).clamp_min(0).long().tolist()
        high = (places.amax(0) + WINDOW_MARGIN).long().tolist()
        left, top = low
        windows.append((left, top, *(min(a, b) - c for a, b, c in zip(side, high, low, strict=True))))
    return windows


def _cut(cover: VirtualPinholes, window: tuple[int, int, int, int]) -> VirtualPinholes:
    """Return the same crops, reduced to a window."""
    return replace(cover, crop=cover.crop.crop(*window))


def _return_to_photo(
    cover: VirtualPinholes, index: int, places: Float[Tensor, "*n 2"]
) -> tuple[Float[Tensor, "*n 2"], Bool[Tensor, "*n"]]:
    """Pixels of the photograph, and whether the features there belong to this crop.

    Crops overlap: a ray belongs to the crop with the nearest axis.
    """
    pixels, usable = cover.map_to_photo(places, index)
    rays = cover.crop.unproject(places)[0] @ cover.photo_from_crop[index].mT
    nearest = (rays @ cover.photo_from_crop[:, :, 2].mT).argmax(-1)
    return pixels, usable & (nearest == index)


def run_sift(
    pycolmap: Any, image: Float[Tensor, "3 h w"], max_features: int
) -> tuple[Float[np.ndarray, "n 2"], UInt8[np.ndarray, "n 128"]]:
    """Places (corner origin) and descriptors in an image."""
    options = pycolmap.FeatureExtractionOptions()
    options.num_threads = 1
    options.sift.max_num_features = max_features
    luminance = (image * image.new_tensor([0.299, 0.587, 0.114])[:, None, None]).sum(0)
    gray = (luminance.clamp(0, 1) * 255).round().byte().numpy()
    extractor = pycolmap.FeatureExtractor.create(options, pycolmap.Device.auto)
    keypoints, descriptors = extractor.extract_from_uint8_array(np.ascontiguousarray(gray))
    if not len(keypoints):
        return np.zeros((0, 2), np.float32), np.zeros((0, 128), np.uint8)
    places = np.asarray(pycolmap.keypoints_to_matrix(keypoints), dtype=np.float32)
    return places[:, :2].copy(), np.asarray(descriptors.data, dtype=np.uint8).reshape(-1, 128)


def normalize_descriptors(descriptors: UInt8[np.ndarray, "n 128"]) -> Float[Tensor, "n 128"]:
    """Unit vectors, whose products are the cosines between descriptors."""
    return torch.nn.functional.normalize(torch.from_numpy(descriptors.astype(np.float32)), dim=-1)


def sample_colors(
    image: Float[Tensor, "3 h w"], pixels: Float[np.ndarray, "n 2"]
) -> UInt8[np.ndarray, "n 3"]:
    """Return red, green and blue at pixels."""
    columns, rows = _find_nearest(pixels, image.shape[2], image.shape[1])
    return (image[:, rows, columns].clamp(0, 1) * 255).round().byte().mT.contiguous().numpy()


def _sample_nearest(mask: Bool[Tensor, "h w"], pixels: np.ndarray) -> Bool[np.ndarray, "n"]:
    columns, rows = _find_nearest(pixels, mask.shape[1], mask.shape[0])
    return mask[rows, columns].numpy()


def _find_nearest(pixels: np.ndarray, width: int, height: int) -> tuple[Tensor, Tensor]:
    places = torch.from_numpy(np.floor(pixels).astype(np.int64))
    return places[:, 0].clamp(0, width - 1), places[:, 1].clamp(0, height - 1)


def _erode(mask: Bool[Tensor, "h w"]) -> Bool[Tensor, "h w"]:
    return ~grow(~mask, BORDER_PX)
