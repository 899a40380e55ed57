"""COLMAP's three binary files: cameras, images with their features, points with their tracks.

The reading direction and the format's definition are in `g_ray.data.scenes.colmap_format`.
"""

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8

from g_ray.data.scenes.colmap_cameras import MODELS
from g_ray.data.scenes.colmap_format import FEATURE, RawCamera, RawImage
from g_ray.files import write_atomically

OBSERVATION = np.dtype([("image", "<u4"), ("feature", "<u4")])


def write_model(
    folder: Path,
    cameras: dict[int, RawCamera],
    images: Sequence[RawImage],
    positions: Float[np.ndarray, "n 3"],
    colors: UInt8[np.ndarray, "n 3"],
) -> None:
    """Images and points are numbered from 1 in their order, so `RawImage.point_ids` are rows of positions plus 1.

    Observations are where the points project, so every point's error is 0.
    """
    write_atomically(folder / "cameras.bin", _encode_cameras(cameras))
    write_atomically(folder / "images.bin", _encode_images(images))
    write_atomically(folder / "points3D.bin", _encode_points(images, positions, colors))


def _encode_cameras(cameras: dict[int, RawCamera]) -> bytes:
    parts = [struct.pack("<Q", len(cameras))]
    for number, camera in cameras.items():
        head = (number, MODELS[camera.model].number, camera.width, camera.height)
        parts.append(struct.pack(f"<IiQQ{len(camera.parameters)}d", *head, *camera.parameters))
    return b"".join(parts)


def _encode_images(images: Sequence[RawImage]) -> bytes:
    parts = [struct.pack("<Q", len(images))]
    for number, image in enumerate(images, 1):
        features = np.empty(len(image.pixels), FEATURE)
        features["pixel"], features["point"] = image.pixels, image.point_ids
        parts.append(struct.pack("<I7dI", number, *image.quaternion, *image.translation, image.camera))
        parts.append(image.name.encode() + b"\0" + struct.pack("<Q", len(features)) + features.tobytes())
    return b"".join(parts)


def _encode_points(images: Sequence[RawImage], positions: np.ndarray, colors: np.ndarray) -> bytes:
    tracks, ends = _build_tracks(images, len(positions))
    parts = [struct.pack("<Q", len(positions))]
    start = 0
    for number, (position, color, end) in enumerate(
        zip(positions.tolist(), colors.tolist(), ends.tolist(), strict=True), 1
    ):
        parts.append(struct.pack("<Q3d3BdQ", number, *position, *color, 0.0, end - start))
        parts.append(tracks[start:end].tobytes())
        start = end
    return b"".join(parts)


def _build_tracks(images: Sequence[RawImage], points: int) -> tuple[np.ndarray, np.ndarray]:
    """All observations ordered by point, and where each point's end."""
    owners = np.concatenate([image.point_ids for image in images])
    observations = np.empty(len(owners), OBSERVATION)
    observations["image"] = np.repeat(
        np.arange(1, len(images) + 1), [len(image.point_ids) for image in images]
    )
    observations["feature"] = np.concatenate([np.arange(len(image.point_ids)) for image in images])
    order = np.argsort(owners, kind="stable")
    return observations[order], np.cumsum(np.bincount(owners - 1, minlength=points))
