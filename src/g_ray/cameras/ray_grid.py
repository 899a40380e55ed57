"""Unit rays of all pixels of a camera: the fastest of several ways that lead to the same rays."""

import contextlib
import itertools
import math
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.block_maps import INTERPOLATED_DTYPES, Unproject, fill_ray_maps
from g_ray.cameras.inverse import is_recording_grad
from g_ray.cameras.rim_maps import RadialLenses, fill_rim_maps
from g_ray.runtime.device import disable_autocast

if TYPE_CHECKING:
    from g_ray.cameras.camera import Camera


def pixel_centers(
    width: int, height: int, *, dtype: torch.dtype | None = None, device: Any = None
) -> Float[Tensor, "h w 2"]:
    """Compute (column + 0.5, row + 0.5) of every pixel."""
    u = torch.arange(width, dtype=dtype or torch.get_default_dtype(), device=device) + 0.5
    v = torch.arange(height, dtype=dtype or torch.get_default_dtype(), device=device) + 0.5
    return torch.stack(torch.meshgrid(u, v, indexing="xy"), -1)


# Pixels that are unprojected at once.
_CHUNK = 1 << 16
# Pixels of the maps that are interpolated together: their nodes stay in the processor's cache.
_TOGETHER = 1 << 21
# The same with a rim, where finding it and the pixels next to it is one computation for all lenses.
_TOGETHER_WITH_RIM = 1 << 23
# Below this size, unprojecting each of them is as fast as interpolating.
_SMALLEST_MAP = 1 << 14


def compute_ray_grid(camera: "Camera") -> tuple[Float[Tensor, "*batch h w 3"], Bool[Tensor, "*batch h w"]]:
    """Compute unit bearings and validity at all pixel centers.

    On the CPU and without gradients the lens is inverted at some pixels and interpolated between, to rounding (see
    `block_maps` and `rim_maps`); the mask is that of `Camera.unproject`.
    """
    size = (*camera.batch_shape, camera.height, camera.width)
    if is_recording_grad(*camera._collect_tensors().values()) or torch.compiler.is_compiling():
        grid = pixel_centers(camera.width, camera.height, dtype=camera.dtype, device=camera.device)
        return camera.unproject(grid.expand(*size, 2))
    bearings = allocate_empty(*size, 3, dtype=camera.dtype, device=camera.device)
    valid = torch.empty(size, dtype=torch.bool, device=camera.device)
    with disable_autocast(bearings):
        (_interpolate if _can_interpolate(camera) else _unproject_rows)(camera, bearings, valid)
    return bearings, valid


def _can_interpolate(camera: "Camera") -> bool:
    large = camera.width * camera.height >= _SMALLEST_MAP
    return camera.SMOOTH and large and camera.device.type == "cpu" and camera.dtype in INTERPOLATED_DTYPES


def _unproject_rows(camera: "Camera", bearings: Tensor, valid: Tensor) -> None:
    """Write the ray of every pixel, one by one."""
    grid = pixel_centers(camera.width, camera.height, dtype=camera.dtype, device=camera.device)
    # A few rows at a time stay in the processor's cache; temporaries of the whole map would not.
    rows = max(1, _CHUNK // (camera.width * max(1, math.prod(camera.batch_shape))))
    for top in range(0, camera.height, rows):
        piece = grid[top : top + rows]
        part = camera.unproject(piece.expand(*camera.batch_shape, *piece.shape))
        bearings[..., top : top + rows, :, :], valid[..., top : top + rows, :] = part


def _interpolate(camera: "Camera", bearings: Tensor, valid: Tensor) -> None:
    """Write the rays of all pixels: by polynomials over blocks, with a square root where a rim lies in the image."""
    batch, size = math.prod(camera.batch_shape), (camera.height, camera.width)
    flat = camera._replace(params=camera.params.detach().reshape(batch, -1), circle=None)
    rays, known = bearings.view(batch, *size, 3), valid.view(batch, *size)
    has_rim = _find_rims(flat)
    for few in _split(has_rim, math.prod(size)):
        lenses, maps = flat[few], (rays[few], known[few])
        unproject = _choose_unprojection(lenses)
        if has_rim[few.start]:
            fill_rim_maps(RadialLenses.from_cameras(lenses), unproject, *maps)
        else:
            fill_ray_maps(unproject, *maps)
    if camera.circle is not None:
        valid &= _find_circle_pixels(camera)


def _split(has_rim: list[bool], pixels: int) -> list[slice]:
    """Split a batch in stretches of lenses that all have a rim or all have none; each map has `pixels` pixels."""
    stretches, end = [], 0
    for rim, group in itertools.groupby(has_rim):
        start, end = end, end + len(list(group))
        step = max(1, (_TOGETHER_WITH_RIM if rim else _TOGETHER) // pixels)
        stretches += [slice(i, min(i + step, end)) for i in range(start, end, step)]
    return stretches


def _find_rims(lenses: "Camera") -> list[bool]:
    """Find the lenses of a flat batch with a circular rim that may lie in the image."""
    rims = lenses.to(torch.float64)._compute_rim()
    if rims is None:
        return [False] * len(lenses.params)
    fx, fy, cx, cy = lenses.params[..., :4].double().unbind(-1)
    x, y = (torch.maximum(c, n - c) / f for c, n, f in ((cx, lenses.width, fx), (cy, lenses.height, fy)))
    # A lens that shifts points of the plane shifts its rim, by much less than this.
    return (rims < torch.hypot(x, y) * 1.05).tolist()


def _find_circle_pixels(camera: "Camera") -> Bool[Tensor, "*batch h w"]:
    """Find the pixel centers in the image circle as `Camera.unproject` does, to the last bit: the squares of columns
    and rows are shared."""
    assert camera.circle is not None
    u, v, radius_u, radius_v = camera.circle[..., None].unbind(-2)
    columns, rows = (torch.arange(n, dtype=camera.dtype) + 0.5 for n in (camera.width, camera.height))
    across, down = ((columns - u) / radius_u).square(), ((rows - v) / radius_v).square()
    return across[..., None, :] + down[..., None] <= 1


def _choose_unprojection(lenses: "Camera") -> Unproject:
    """Return the function that `fill_ray_maps` calls for a flat batch of lenses."""
    double = lenses.to(torch.float64)

    def unproject(index: Tensor, pixels: Tensor, exact: bool) -> tuple[Tensor, Tensor]:
        camera = lenses if exact else double
        # A lens with many points computes less than many lenses with few points each.
        lens, counts = index.unique_consecutive(return_counts=True)
        if not bool((counts == counts[0]).all()):
            return camera[index].unproject(pixels)
        rays, valid = camera[lens].unproject(pixels.reshape(len(lens), -1, 2))
        return rays.view(*pixels.shape[:2], 3), valid.view(pixels.shape[:2])

    return unproject


# Memory for maps of all pixels.


# Freed maps of this size and above are kept for the next map, up to a bound in bytes: the kernel clears new memory
# page by page, which takes longer than computing the rays. Smaller ones the C library keeps.
_SMALLEST_KEPT, _MOST_KEPT = 1 << 24, 1 << 28
_kept: dict[int, list[np.ndarray]] = {}
"""Buffers by size. Threads share it without a lock: adding to a list and taking from one are single operations."""


def allocate_empty(*shape: int, dtype: torch.dtype, device: Any) -> Tensor:
    """Allocate an uninitialized tensor. On the CPU numpy owns it: numpy requests huge pages, torch does not.

    Filling a fresh 50 MB tensor takes five times longer in 4 kB pages than in huge ones.
    """
    if torch.device(device).type != "cpu" or dtype not in (torch.float32, torch.float64):
        return torch.empty(shape, dtype=dtype, device=device)
    size = math.prod(shape) * dtype.itemsize
    try:
        memory = _kept[size].pop()
    except (KeyError, IndexError):
        memory = np.empty(size, np.uint8)
    if size < _SMALLEST_KEPT:
        return torch.from_numpy(memory).view(dtype).view(shape)
    # The tensor holds an array of its own; once nobody holds that any more the memory is free.
    lent = memory.view()
    weakref.finalize(lent, _keep, memory).atexit = False
    return torch.from_numpy(lent).view(dtype).view(shape)


def _keep(memory: np.ndarray) -> None:
    """Keep freed memory, and let go of the oldest of some size where it is too much."""
    _kept.setdefault(memory.nbytes, []).append(memory)
    while sum(size * len(parts) for size, parts in list(_kept.items())) > _MOST_KEPT:
        with contextlib.suppress(IndexError):
            next(parts for parts in list(_kept.values()) if parts).pop(0)
