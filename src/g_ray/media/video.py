"""Read frames of a video without decoding all of it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

SUFFIXES = (
    ".mp4",
    ".mov",
    ".mkv",
    ".avi",
    ".webm",
    ".m4v",
    ".mpg",
    ".mpeg",
    ".gif",
    ".mjpeg",
    ".ts",
    ".insv",
)


def read_frame_times(path: Path) -> list[int]:
    """Read the time stamps of all frames, in the stream's unit and in order; OSError if there are none."""
    with _open_stream(path) as (container, stream):
        times = sorted(packet.pts for packet in container.demux(stream) if packet.pts is not None)
    if not times:
        raise OSError(f"{path}: a video without frames; export it again or give images")
    return times


def choose_frames(count: int, every: int | None, frames: int) -> list[int]:
    """Choose every n-th frame, or a number of frames spread evenly over the whole video."""
    if every is not None:
        return list(range(0, count, every))
    if frames >= count:
        return list(range(count))
    return [round(i * (count - 1) / max(1, frames - 1)) for i in range(frames)]


def read_frame(path: Path, time: int) -> Float[Tensor, "3 h w"]:
    """Read the frame with a time stamp, upright, in [0, 1]."""
    with _open_stream(path) as (container, stream):
        container.seek(time, stream=stream, backward=True)
        for frame in container.decode(stream):
            if frame.pts is not None and frame.pts >= time:
                return _rotate_upright(frame)
    raise OSError(f"{path}: the frame at time stamp {time} cannot be decoded; export the video again")


def read_frames(path: Path, indices: Sequence[int]) -> Iterator[tuple[int, UInt8[np.ndarray, "h w 3"]]]:
    """Decode a video once and yield the frames with the given numbers, counted from 0 in order of time, upright.

    OSError names a video that ends before the last of them.
    """
    wanted, found = set(indices), 0
    with _open_stream(path) as (container, stream):
        for number, frame in enumerate(container.decode(stream)):
            if number in wanted:
                found += 1
                yield number, np.rot90(frame.to_ndarray(format="rgb24"), round(frame.rotation / 90) % 4)
            if found == len(wanted):
                return
    raise OSError(
        f"{path}: {len(wanted) - found} of {len(wanted)} wanted frames are not in it; download it again"
    )


def _rotate_upright(frame: Any) -> Float[Tensor, "3 h w"]:
    """Turn a frame by the rotation that phones store with it, in counter-clockwise degrees."""
    image = torch.from_numpy(frame.to_ndarray(format="rgb24")).movedim(-1, 0)
    return torch.rot90(image, round(frame.rotation / 90) % 4, (-2, -1)).contiguous().to(torch.float32) / 255


@contextmanager
def _open_stream(path: Path) -> Iterator[tuple[Any, Any]]:
    try:
        import av
        from av.error import FFmpegError
    except ImportError:
        raise OSError(f"{path}: videos need PyAV; pip install 'g-ray[view]'") from None
    if not path.is_file():
        raise OSError(f"{path}: no such video")
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                raise OSError(f"{path}: it has no video stream")
            yield container, container.streams.video[0]
    except FFmpegError as error:
        reason = " ".join((error.strerror or str(error)).split())
        raise OSError(f"{path}: cannot be read as a video ({reason})") from None
