"""What datasets share: images, masks and depth maps in files, pinholes, COLMAP models and scene folders as frames."""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.cameras.pinhole import Pinhole
from g_ray.formats.calibration_source import View
from g_ray.formats.colmap.colmap_model import is_model
from g_ray.formats.colmap.colmap_scene import read_lenses
from g_ray.formats.posed_scene import PosedScene
from g_ray.media.depth import Convention, DepthFile, resize_depth
from g_ray.media.images import read_photo
from g_ray.media.view import MaskFile, check_depth_size
from g_ray_lab.datasets.evaluation_scene import (
    DepthSource,
    EvaluationFrame,
    EvaluationScene,
    Framing,
    ImageSource,
    MaskSource,
)

ANY_DEPTH = (0.0, float("inf"))
WHITE = 0.999


@dataclass(frozen=True)
class StoredImage(ImageSource):
    """An image file, with its pixels turned clockwise by quarter turns; EXIF orientation is ignored."""

    path: Path
    turns: int = 0

    def load(self) -> Float[Tensor, "3 h w"]:
        return turn_pixels(read_photo(self.path), self.turns)


@dataclass(frozen=True)
class StoredMask(MaskSource):
    """A mask file: pixels that are 0 are not scored. With `whole`, only pixels at the largest value are."""

    path: Path
    whole: bool = False

    def load(self, camera: Camera) -> Bool[Tensor, "h w"]:
        if not self.whole:
            return MaskFile(self.path, camera.width, camera.height).load()
        full = (read_photo(self.path)[:1] > WHITE)[None].float()
        return F.interpolate(full, (camera.height, camera.width), mode="nearest-exact")[0, 0] > 0.5


@dataclass(frozen=True)
class StoredDepth(DepthSource):
    """A depth map of the frame itself, looked up at the nearest pixel and turned with its image."""

    file: DepthFile
    turns: int = 0
    limits: tuple[float, float] = ANY_DEPTH
    """Depths outside are unknown."""

    @property
    def path(self) -> Path:  # type: ignore[override]
        return self.file.path

    @property
    def convention(self) -> Convention:  # type: ignore[override]
        return self.file.convention

    def sample(self, frame: EvaluationFrame, framing: Framing) -> Float[Tensor, "h w"]:
        depth = turn_pixels(self.file.read(), self.turns)
        check_depth_size(self.path, depth, frame.camera)
        size = (frame.camera.width, frame.camera.height)
        near = resize_depth(depth, size, framing.width, framing.height, framing.box)
        low, high = self.limits
        return torch.where((near > low) & (near < high), near, 0)


def turn_pixels(image: Tensor, turns: int) -> Tensor:
    """Turn the last two axes of an image clockwise by quarter turns."""
    return torch.rot90(image, -turns, (-2, -1)).contiguous() if turns % 4 else image


def splat_depth(camera: Camera, points: Float[Tensor, "point 3"]) -> Float[Tensor, "h w"]:
    """Return z of the nearest camera-frame point in every pixel, 0 in pixels without any."""
    place, keep = locate_points(camera, points)
    nearest = points.new_full((camera.height * camera.width,), torch.inf)
    nearest.scatter_reduce_(0, place[keep], points[keep, 2], "amin")
    return torch.where(torch.isfinite(nearest), nearest, 0).reshape(camera.height, camera.width)


def locate_points(camera: Camera, points: Float[Tensor, "point 3"]) -> tuple[Tensor, Bool[Tensor, "point"]]:
    """Return the flat pixel index of points, and which of them lie in front of the camera and in its image."""
    pixels, imaged = camera.project(points)
    column, row = pixels.floor().long().unbind(-1)
    inside = (column >= 0) & (column < camera.width) & (row >= 0) & (row < camera.height)
    return row * camera.width + column, imaged & inside & (points[:, 2] > 0)


def make_pinhole(
    size: tuple[int, int], fx: float, fy: float, cx: float, cy: float, center: float | int = 0.5
) -> Pinhole:
    """Make a pinhole from numbers of a file whose first pixel has its center at `center`; ours lies at 0.5."""
    shift = 0.5 - center
    return Pinhole.make(*size, fx=fx, fy=fy, cx=cx + shift, cy=cy + shift, dtype=torch.float64)


def read_model_views(place: Path, advice: str) -> list[View]:
    """Read all images of a COLMAP model, sorted by name, with one camera object per lens.

    ValueError ends with the advice.
    """
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


def convert_scene(
    scene: PosedScene,
    name: str,
    dataset: str,
    limits: tuple[float, float] = ANY_DEPTH,
    surface: Path | None = None,
) -> EvaluationScene:
    """Convert a scene folder; depths outside the limits are unknown."""
    depth = scene.depth or (None,) * len(scene)
    frames = tuple(
        EvaluationFrame(
            view_name,
            StoredImage(scene.images[i]),
            scene.cameras[i],
            scene.poses[i],
            None if file is None else StoredDepth(file, limits=limits),
        )
        for i, (view_name, file) in enumerate(zip(scene.names, depth, strict=True))
    )
    return EvaluationScene(name, dataset, frames, surface=surface, notes=scene.notes)
