"""Write images as PNG, and sequences of frames as MP4 or GIF."""

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from g_ray.runtime.files import atomic_path

SUFFIXES = (".mp4", ".gif")
CODECS = ("libx264", "mpeg4")
"""Video codecs by preference: the first that the installed FFmpeg has. libx264 is missing from LGPL builds."""


def to_byte_image(picture: Float[Tensor, "3 h w"]) -> np.ndarray:
    """Convert values in [0, 1] to bytes [h, w, 3]."""
    return (picture.clamp(0, 1).movedim(0, -1) * 255).round().byte().cpu().numpy()


def save_picture(path: Path, picture: Float[Tensor, "3 h w"]) -> None:
    """Write one image as PNG."""
    with atomic_path(path) as scratch:
        Image.fromarray(to_byte_image(picture)).save(scratch, format="PNG")


def save_animation(path: Path, frames: Iterable[Float[Tensor, "3 h w"]], fps: int) -> None:
    """Write frames as GIF or MP4, by the suffix of `path`; `frames` may be a generator."""
    with atomic_path(path) as scratch:
        (_write_gif if path.suffix == ".gif" else _write_mp4)(scratch, frames, fps)


def _write_gif(path: Path, frames: Iterable[Tensor], fps: int) -> None:
    images = [Image.fromarray(to_byte_image(frame)) for frame in frames]
    images[0].save(
        path, format="GIF", save_all=True, append_images=images[1:], duration=round(1000 / fps), loop=0
    )


def _write_mp4(path: Path, frames: Iterable[Tensor], fps: int) -> None:
    import av  # only for videos; in the extra [view]

    codec = next(name for name in CODECS if name in av.codecs_available)
    with av.open(str(path), "w", format="mp4") as container:
        stream: Any = container.add_stream(codec, rate=Fraction(fps), options={"crf": "16"})
        for number, frame in enumerate(frames):
            image = _pad_to_even(to_byte_image(frame))
            if number == 0:
                stream.height, stream.width = image.shape[:2]
                stream.pix_fmt = "yuv420p"
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode())


def _pad_to_even(image: np.ndarray) -> np.ndarray:
    """Repeat the last row or column of odd sizes: yuv420p stores color per 2×2 pixels."""
    return np.pad(image, ((0, image.shape[0] % 2), (0, image.shape[1] % 2), (0, 0)), mode="edge")
