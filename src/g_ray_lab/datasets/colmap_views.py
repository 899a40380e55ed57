"""The images of a COLMAP model with camera and pose, as ETH3D and ScanNet++ store them."""

from pathlib import Path

from g_ray.formats.colmap.colmap_model import is_model
from g_ray.formats.colmap.colmap_scene import read_lenses
from g_ray.media.view import View


def read_model_views(place: Path, advice: str) -> list[View]:
    """Read all images of a model, by name; images of one lens share its camera. ValueError ends with the advice."""
    if not is_model(place):
        raise ValueError(f"{place}: no calibration; {advice}")
    views = []
    for lens in read_lenses(place):
        if lens.size is None or lens.pose is None:
            raise ValueError(f"{place}: {lens.label} has no camera or no pose; {advice}")
        try:
            views.append(View(lens.label, lens.build(*lens.size), lens.pose))
        except ValueError as error:
            raise ValueError(f"{place}: {lens.label}: {error}; {advice}") from None
    return sorted(views, key=lambda view: view.name)
