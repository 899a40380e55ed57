"""Unit rays of all pixels of a camera: the fastest of several ways that lead to the same rays."""

import itertools
import math
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.block_maps import INTERPOLATED_DTYPES, Unproject, fill_ray_maps
from g_ray.cameras.fold_maps import FoldedLenses
from g_ray.cameras.inverse import is_recording_grad
from g_ray.cameras.pixels import allocate_empty, pixel_centers
from g_ray.cameras.rim_maps import RadialLenses, fill_rim_maps

if TYPE_CHECKING:
    from g_ray.cameras.camera import Camera

# Pixels that are unprojected at once.
_CHUNK = 1 << 16
# Pixels of the maps that are interpolated together: their nodes stay in the processor's cache.
_TOGETHER = 1 << 21
# The same with a rim, where finding it and the pixels next to it is one computation for all lenses.
_TOGETHER_WITH_RIM = 1 << 23
# Below so many pixels, unprojecting each of them is as fast as interpolating.
_SMALLEST_MAP = 1 << 14
# Points of a rim that are projected to find how far it reaches.
_RIM_POINTS = 32


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
    if _can_interpolate(camera):
        _interpolate(camera, bearings, valid)
    else:
        _unproject_rows(camera, bearings, valid)
    return bearings, valid


def _can_interpolate(camera: "Camera") -> bool:
    large = camera.width * camera.height >= _SMALLEST_MAP
    return camera.SMOOTH and large and camera.device.type == "cpu" and camera.dtype in INTERPOLATED_DTYPES


def _unproject_rows(camera: "Camera", bearings: Tensor, valid: Tensor) -> None:
    """Write the ray of every pixel, each by itself."""
    grid = pixel_centers(camera.width, camera.height, dtype=camera.dtype, device=camera.device)
    # A few rows at a time stay in the processor's cache; temporaries of the whole map would not.
    rows = max(1, _CHUNK // (camera.width * max(1, math.prod(camera.batch_shape))))
    for top in range(0, camera.height, rows):
        piece = grid[top : top + rows]
        part = camera.unproject(piece.expand(*camera.batch_shape, *piece.shape))
        bearings[..., top : top + rows, :, :], valid[..., top : top + rows, :] = part


def _interpolate(camera: "Camera", bearings: Tensor, valid: Tensor) -> None:
    """Write the rays of all pixels: by polynomials over blocks, beside a square root if there is a rim or a fold."""
    batch, size = math.prod(camera.batch_shape), (camera.height, camera.width)
    flat = camera._replace(params=camera.params.detach().reshape(batch, -1), circle=None)
    rays, known = bearings.view(batch, *size, 3), valid.view(batch, *size)
    fold, rims = flat.to(torch.float64)._describe_fold(), flat.to(torch.float64)._compute_rim()
    has_rim = _find_rims(flat, rims)
    has_fold = _find_rims(flat, None if fold is None else fold.compute_radius())
    for few in _split(list(zip(has_rim, has_fold, strict=True)), math.prod(size)):
        lenses, maps = flat[few], (rays[few], known[few])
        unproject = _choose_unprojection(lenses)
        if has_rim[few.start]:
            fill_rim_maps(_fit_radial_part(lenses), unproject, *maps)
        elif has_fold[few.start] and fold is not None:
            affine = lenses.params[:, :4].double()
            fill_rim_maps(FoldedLenses.fit(fold.select(few), affine, flat.dtype), unproject, *maps)
        else:
            fill_ray_maps(unproject, *maps)
    if camera.circle is not None:
        valid &= _find_circle_pixels(camera)


def _split(kinds: list[tuple[bool, bool]], pixels: int) -> list[slice]:
    """Split a batch in stretches of lenses of one kind, with maps of so many pixels."""
    stretches, end = [], 0
    for kind, group in itertools.groupby(kinds):
        start, end = end, end + len(list(group))
        step = max(1, (_TOGETHER_WITH_RIM if any(kind) else _TOGETHER) // pixels)
        stretches += [slice(i, min(i + step, end)) for i in range(start, end, step)]
    return stretches


def _find_rims(lenses: "Camera", rims: Float[Tensor, "lens"] | None) -> list[bool]:
    """Find out which lenses of a flat batch have a rim, of the given radius on the plane, that may lie in the image."""
    if rims is None:
        return [False] * len(lenses.params)
    fx, fy, cx, cy = lenses.params[..., :4].double().unbind(-1)
    x, y = (torch.maximum(c, n - c) / f for c, n, f in ((cx, lenses.width, fx), (cy, lenses.height, fy)))
    # A lens that shifts points of the plane shifts its rim, by much less than this.
    return (rims < torch.hypot(x, y) * 1.05).tolist()


def _fit_radial_part(lenses: "Camera") -> RadialLenses:
    double = lenses.to(torch.float64)
    rims = double._compute_rim()
    assert rims is not None

    def lift(core: Tensor) -> Tensor:
        return double._lift_core(core, double._align(double.params, core))[0]

    def locate(index: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
        params = double.params[index, None]
        return double._undistort_plane((pixels - params[..., 2:4]) / params[..., 0:2], params)

    angle = torch.linspace(0, 2 * math.pi, _RIM_POINTS + 1, dtype=torch.float64)[1:]
    # On the rim itself rays may point straight back, which has no azimuth.
    circle = torch.stack([angle.cos(), angle.sin()], -1) * (0.99 * rims[:, None, None])
    return RadialLenses.fit(rims, double.project(lift(circle))[0], lift, locate, lenses.dtype)


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
