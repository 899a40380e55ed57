"""Options of exports; plain numbers, so that commands can show them without importing torch."""

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ExportOptions:
    """Which pixels become points, and which further files are written."""

    confidence: float = 0.2
    """Share of the valid pixels, the least confident ones, that give no points."""
    edges: float | None = 0.1
    """A pixel whose depth jumps by more than this share of itself to a neighbor gives no point; None keeps all."""
    voxel: float | None = None
    """Side of cubes, in the result's unit, of which each keeps its most confident point."""
    sky: bool = False
    """Leave out what looks like sky, see `g_ray.export.points.find_sky`."""
    max_points: int = 1_000_000
    """Points in points.ply and scene.glb, at most."""
    max_tracks: int = 100_000
    """Points in the COLMAP model, at most."""
    depth_size: Literal["estimated", "full"] = "estimated"
    """Resolution of stored depth: that at which it was estimated, or that of the photographs."""
    mesh: Literal["poisson", "tsdf", "none"] | None = None
    """Surface of mesh.glb and mesh.ply: through the fused points (Poisson), fused from depth maps (TSDF), or none.
    By default Poisson with stereo, none with other models."""
    faces: int = 200_000
    """Triangles of the mesh, at most."""
    texture_size: int = 4096
    """Texels along a side of the mesh's texture, at most; 0 leaves it with colors of vertices."""
    depth_exr: bool = False
    """Also depth/NAME.exr: channels Z, ray_depth, confidence (needs the package OpenEXR)."""
    depth_npy: bool = False
    """Also depth/NAME.npy with z depth, named in transforms.json: the depth files that nerfstudio reads."""

    def selects_pixels(self) -> bool:
        """Return whether an option asks for a choice of pixels of the depth maps, instead of fused points."""
        plain = ExportOptions()
        return any(
            getattr(self, name) != getattr(plain, name) for name in ("confidence", "edges", "voxel", "sky")
        )

    def __post_init__(self) -> None:
        if not 0 <= self.confidence < 1:
            raise ValueError(
                f"confidence {self.confidence} is no share; give a number from 0 (all) to below 1"
            )
        for name in ("edges", "voxel"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise ValueError(f"{name} {value} is not positive; give a number above 0, or leave it out")
        if self.faces < 100:
            raise ValueError(f"--faces {self.faces} is too few for a mesh: give 100 or more, or --mesh none")
        if self.texture_size and not 64 <= self.texture_size <= 16384:
            raise ValueError(
                f"--texture-size {self.texture_size}: give 64 to 16384 texels, or 0 for no texture"
            )
        if self.max_points < 1 or self.max_tracks < 1:
            raise ValueError(f"{min(self.max_points, self.max_tracks)} points at most: allow at least one")
