"""Read Omnidata's starter dataset: its renderings of HM3D, and Taskonomy as its download tool unpacks it.

ROOT/rgb/hm3d/BUILDING/point_0_view_0_domain_rgb.png
ROOT/point_info/hm3d/BUILDING/point_0_view_0_domain_point_info.json
ROOT/depth_zbuffer/hm3d/BUILDING/point_0_view_0_domain_depth_zbuffer.png, or
ROOT/depth_euclidean/hm3d/BUILDING/point_0_view_0_domain_depth_euclidean.png    along the ray

The files are those of Taskonomy (`g_ray_lab.datasets.taskonomy`), sorted by kind first. A scene is the folder of a
building's images. Other components have cameras of their own (Hypersim, BlendedMVG) and are not read.
"""

from pathlib import Path

from g_ray.formats.posed_scene import PosedScene
from g_ray.formats.recordings import build_recorded_scene
from g_ray_lab.datasets.taskonomy import RGB, DepthDomain, read_views

TITLE = "Omnidata"
COMPONENTS = ("hm3d", "taskonomy")


def is_omnidata(folder: Path) -> bool:
    is_building = folder.resolve().parent.name in COMPONENTS and _find_domain(folder, "point_info").is_dir()
    return is_building and next(folder.glob(f"point_*{RGB}"), None) is not None


def read_omnidata(folder: Path, check: bool = True) -> PosedScene:
    """Read the views of a building; ValueError, in one line with the file, if anything is wrong."""
    depth = DepthDomain(_find_domain(folder, "depth_zbuffer"), "depth_zbuffer", "z")
    if not depth.folder.is_dir():
        depth = DepthDomain(_find_domain(folder, "depth_euclidean"), "depth_euclidean", "ray")
    views = read_views(folder, _find_domain(folder, "point_info"), depth)
    return build_recorded_scene(folder, TITLE, views, check)


def _find_domain(folder: Path, domain: str) -> Path:
    """Return where a domain of the building is whose images are in `folder`, which may be below a link."""
    real = folder.resolve()
    return real.parent.parent.parent / domain / real.parent.name / real.name
