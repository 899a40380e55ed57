"""Draw a photograph in 3D on the rays of its own lens: flat for a pinhole, curved for a fisheye, a sphere for a
panorama."""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from trimesh import Trimesh
from trimesh.visual import TextureVisuals
from trimesh.visual.material import PBRMaterial

from g_ray.cameras.base import Camera
from g_ray.export.frusta import FLAT_DEG

CELLS = 24
"""Of the mesh, across and down."""


def read_thumbnail(path: Path, side: int) -> UInt8[np.ndarray, "h w 3"]:
    """Read a photograph, downscaled to at most `side` pixels."""
    with Image.open(path) as photo:
        photo.draft("RGB", (side, side))  # JPEG decodes smaller sizes faster
        small = photo.convert("RGB")
    small.thumbnail((side, side))
    return np.asarray(small)


def build_photo_surface(camera: Camera, photo: UInt8[np.ndarray, "h w 3"], size: float) -> Trimesh | None:
    """Build a textured mesh in the camera's frame, at distance `size` as `build_frustum` draws its outline.

    None if no cell of the mesh has rays at all of its corners.
    """
    u, v = np.meshgrid(np.linspace(0, 1, CELLS + 1), np.linspace(0, 1, CELLS + 1))
    shares = np.stack([u, v], -1).reshape(-1, 2)
    rays, valid = _cast_rays(camera, shares)
    flat = valid.all() and rays[:, 2].min() > np.cos(np.deg2rad(FLAT_DEG))
    faces = _triangulate(valid)
    if not len(faces):
        return None
    # The material only shines by itself, as black metal reflects nothing: a photograph has no shading but its own.
    material = PBRMaterial(
        baseColorFactor=[0, 0, 0, 255],
        emissiveTexture=Image.fromarray(photo),
        emissiveFactor=[1.0, 1.0, 1.0],
        metallicFactor=1.0,
        roughnessFactor=1.0,
        doubleSided=True,
    )
    texture = TextureVisuals(uv=shares * [1, -1] + [0, 1], material=material)
    vertices = rays * (size / rays[:, 2:] if flat else size)
    return Trimesh(vertices, faces, visual=texture, process=False)


def _cast_rays(
    camera: Camera, shares: Float[np.ndarray, "n 2"]
) -> tuple[Float[np.ndarray, "n 3"], np.ndarray]:
    """Cast rays at shares of the image's width and height; (0, 0, 1) where there is none."""
    pixels = torch.from_numpy(shares * [camera.width, camera.height])
    rays, valid = (x.numpy(force=True) for x in camera.to(torch.float64).unproject(pixels))
    return np.where(valid[:, None], rays, [0.0, 0.0, 1.0]), valid


def _triangulate(valid: np.ndarray) -> np.ndarray:
    """Return two triangles for each cell of the grid whose four corners are valid."""
    corner = np.arange((CELLS + 1) ** 2).reshape(CELLS + 1, CELLS + 1)
    a, b, c, d = (x.flatten() for x in (corner[:-1, :-1], corner[:-1, 1:], corner[1:, 1:], corner[1:, :-1]))
    cells = np.stack([a, b, c, d], -1)
    cells = cells[valid[cells].all(1)]
    return np.concatenate([cells[:, [0, 1, 2]], cells[:, [0, 2, 3]]])
