"""Bake a texture: every texel is a point of the surface, whose color comes from the photographs that see it."""

import io
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import PIL.Image
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from g_ray.mesh.coloring import PhotoSight, color_points
from g_ray.mesh.rasterizer import rasterize
from g_ray.mesh.surface_mesh import SurfaceMesh
from g_ray.mesh.unwrapping import Unwrapped, unwrap

GROWTH = 4
"""Texels that colors grow beyond charts, for viewers that interpolate and reduce textures."""
RESOLVED = 0.75
"""Share of the seen surface whose best photograph has at most the texture's resolution."""
OVERSAMPLING = 1.5
"""Texels per pixel: scores also fall for other reasons than resolution, and texels are interpolated."""
MAX_PHOTO = 4096
"""Long side at which photographs are read, at most."""
JPEG_QUALITY = 90


def paint_texture(
    mesh: SurfaceMesh, sights: Sequence[PhotoSight], gains: Float[Tensor, "view 3"], max_size: int
) -> SurfaceMesh:
    """Unwrap a mesh and color its texels; the texture is as fine as the photographs, with at most `max_size` texels a
    side. Vertices keep their colors."""
    normals = mesh.compute_normals()
    density, long_side = _choose_density(mesh, normals, sights)
    unwrapped = unwrap(mesh, density, max_size)
    # Pixels much smaller than texels would alias.
    long_side = min(MAX_PHOTO, max(256, round(long_side * unwrapped.density / density)))
    texels, points, facing = _list_texels(unwrapped, normals)
    painted = color_points(points, facing, sights, gains, long_side)
    texture = np.full((unwrapped.height * unwrapped.width, 3), 128, np.uint8)
    known = np.zeros(len(texture), bool)
    texture[texels], known[texels] = painted.colors, painted.seen
    shape = (unwrapped.height, unwrapped.width)
    grown = _grow(texture.reshape(*shape, 3), known.reshape(shape))
    colors = None if mesh.colors is None else mesh.colors[unwrapped.source]
    return replace(unwrapped.mesh, colors=colors, texture=grown)


def _choose_density(
    mesh: SurfaceMesh, normals: Float[np.ndarray, "vertex 3"], sights: Sequence[PhotoSight]
) -> tuple[float, int]:
    """Return the resolution of the photographs on the surface, in pixels per unit, and their long side."""
    step = max(1, len(mesh.vertices) // 5000)
    points, facing = torch.from_numpy(mesh.vertices[::step]), torch.from_numpy(normals[::step]).float()
    best, long_side = torch.zeros(len(points)), 0
    for sight in sights:
        full = max(sight.view.camera.width, sight.view.camera.height)
        scale = full / max(sight.camera.width, sight.camera.height)
        best = torch.maximum(best, scale * sight.score(points, facing)[1])
        long_side = max(long_side, full)
    best = best[best > 0]
    return (OVERSAMPLING * float(best.quantile(RESOLVED)) if len(best) else 1.0), long_side


def _list_texels(
    unwrapped: Unwrapped, normals: Float[np.ndarray, "vertex 3"]
) -> tuple[np.ndarray, Float[np.ndarray, "texel 3"], Float[np.ndarray, "texel 3"]]:
    """Return the number of every texel inside of a triangle, its point in the world and the normal there."""
    mesh, shape = unwrapped.mesh, (unwrapped.width, unwrapped.height)
    faces = torch.from_numpy(mesh.faces).long()
    assert mesh.uv is not None
    corners = (torch.from_numpy(mesh.uv).double() * torch.tensor(shape))[faces]
    vertices, facing = torch.from_numpy(mesh.vertices), torch.from_numpy(normals[unwrapped.source])
    texels, points, directions = [], [], []
    for part in rasterize(corners, *shape):
        texels.append(part.pixel)
        for values, parts in ((vertices, points), (facing, directions)):
            parts.append(torch.einsum("tc,tcx->tx", part.weights, values[faces[part.face]]).float())
    texel, first = np.unique(torch.cat(texels).numpy(), return_index=True)
    return texel, torch.cat(points).numpy()[first], torch.cat(directions).numpy()[first]


def _grow(texture: UInt8[np.ndarray, "h w 3"], known: Bool[np.ndarray, "h w"]) -> UInt8[np.ndarray, "h w 3"]:
    """Give texels next to known ones the mean color of these, a few times."""
    values, weight = torch.from_numpy(texture).movedim(-1, 0).float(), torch.from_numpy(known).float()[None]
    for _ in range(GROWTH):
        sums = torch.nn.functional.avg_pool2d(torch.cat([values * weight, weight])[None], 3, 1, 1)[0]
        new = (weight == 0) & (sums[3:] > 0)
        values = torch.where(new, sums[:3] / sums[3:].clamp_min(1e-9), values)
        weight = torch.maximum(weight, new.float())
    return values.round().byte().movedim(0, -1).contiguous().numpy()


def encode_jpeg(texture: UInt8[np.ndarray, "h w 3"]) -> bytes:
    """Encode a texture."""
    content = io.BytesIO()
    PIL.Image.fromarray(texture).save(content, format="JPEG", quality=JPEG_QUALITY)
    return content.getvalue()
