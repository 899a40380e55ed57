"""What the browser draws in 3D: photographs on the rays of their own lenses, a grid with a scale bar, a ruler."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import viser
import viser.transforms as tf
from jaxtyping import Bool, Float, UInt8
from PIL import Image
from trimesh import Trimesh
from trimesh.visual import TextureVisuals
from trimesh.visual.material import PBRMaterial

from g_ray.cameras.camera import Camera
from g_ray.export.frusta import FLAT_DEG
from g_ray.export.result import Unit
from g_ray.media.images import open_photo
from g_ray.viewer.ruler import Ruler
from g_ray.viewer.viewpoint import make_upright_basis

MESH_CELLS = 24
"""Cells of the mesh of a photograph, across and down."""


def read_thumbnail(path: Path, side: int) -> UInt8[np.ndarray, "h w 3"]:
    """Read a photograph, downscaled to at most `side` pixels."""
    with open_photo(path) as photo:
        photo.draft("RGB", (side, side))  # JPEG decodes smaller sizes faster
        small = photo.convert("RGB")
    small.thumbnail((side, side))
    return np.asarray(small)


# viser draws meshes through three.js's filmic tone mapping (ACES, the fit of S. Hill), which makes photographs pale.
# With v = A · color / EXPOSURE, the display shows B · r(v), r(v) = (v² + a v − b) / (c v² + d v + e).
EXPOSURE, WHITE = 0.6, 0.76
"""WHITE: what the mapping leaves of white; colors are scaled by it, so that none is clipped."""
A = np.array([[0.59719, 0.35458, 0.04823], [0.07600, 0.90834, 0.01566], [0.02840, 0.13383, 0.83777]])
B = np.array([[1.60475, -0.53108, -0.07367], [-0.10208, 1.10813, -0.00605], [-0.00327, -0.07276, 1.07602]])
FIT = (0.0245786, 0.000090537, 0.983729, 0.4329510, 0.238081)


def undo_tone_mapping(photo: UInt8[np.ndarray, "h w 3"]) -> UInt8[np.ndarray, "h w 3"]:
    """Return the texture that tone mapping turns into the photograph, darkened to WHITE."""
    encoded = photo / 255
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    a, b, c, d, e = FIT
    displayed = (WHITE * linear) @ np.linalg.inv(B).T
    # r(v) = s is a quadratic in v with one positive root: (1 − c s) v² + (a − d s) v − (b + e s) = 0.
    first, second, third = 1 - c * displayed, a - d * displayed, -(b + e * displayed)
    v = (-second + np.sqrt(second**2 - 4 * first * third)) / (2 * first)
    before = np.clip(EXPOSURE * v @ np.linalg.inv(A).T, 0, 1)
    encoded = np.where(before <= 0.0031308, 12.92 * before, 1.055 * before ** (1 / 2.4) - 0.055)
    return (255 * encoded).round().astype(np.uint8)


def build_photo_surface(camera: Camera, photo: UInt8[np.ndarray, "h w 3"], size: float) -> Trimesh | None:
    """Build a textured mesh in the camera's frame, at distance `size` as `build_frustum` draws its outline.

    None if no cell of the mesh has rays at all of its corners.
    """
    u, v = np.meshgrid(np.linspace(0, 1, MESH_CELLS + 1), np.linspace(0, 1, MESH_CELLS + 1))
    shares = np.stack([u, v], -1).reshape(-1, 2)
    rays, valid = _cast_rays(camera, shares)
    flat = valid.all() and rays[:, 2].min() > np.cos(np.deg2rad(FLAT_DEG))
    faces = _triangulate(valid)
    if not len(faces):
        return None
    # The material only shines by itself, as black metal reflects nothing: a photograph has no shading but its own.
    material = PBRMaterial(
        baseColorFactor=[0, 0, 0, 255],
        emissiveTexture=Image.fromarray(undo_tone_mapping(photo)),
        emissiveFactor=[1.0, 1.0, 1.0],
        metallicFactor=1.0,
        roughnessFactor=1.0,
        doubleSided=True,
    )
    texture = TextureVisuals(uv=shares * [1, -1] + [0, 1], material=material)
    vertices = rays * (size / rays[:, 2:] if flat else size)
    return Trimesh(vertices, faces, visual=texture, process=False)


def find_surface_share(
    surface: Trimesh, origin: Float[np.ndarray, "3"], direction: Float[np.ndarray, "3"]
) -> Float[np.ndarray, "2"] | None:
    """Return where a ray first meets a photograph, in shares of its width and height (Möller and Trumbore, 1997)."""
    corner, *others = np.moveaxis(surface.triangles, 1, 0)
    first, second = (other - corner for other in others)
    across = np.cross(direction, second)
    start, scale = origin - corner, (first * across).sum(-1)
    up = np.cross(start, first)
    with np.errstate(divide="ignore", invalid="ignore"):  # triangles seen edge-on
        b, c, distance = (
            (x * y).sum(-1) / scale for x, y in ((start, across), (direction, up), (second, up))
        )
        hits = np.nonzero((b >= 0) & (c >= 0) & (b + c <= 1) & (distance > 0))[0]
    if not len(hits):
        return None
    hit = hits[distance[hits].argmin()]
    weights = np.array([1 - b[hit] - c[hit], b[hit], c[hit]])
    texture: TextureVisuals = surface.visual  # pyright: ignore[reportAssignmentType]
    return (weights @ np.asarray(texture.uv)[surface.faces[hit]]) * [1, -1] + [0, 1]


def _cast_rays(
    camera: Camera, shares: Float[np.ndarray, "n 2"]
) -> tuple[Float[np.ndarray, "n 3"], np.ndarray]:
    """Cast rays at shares of the image's width and height; (0, 0, 1) where there is none."""
    pixels = torch.from_numpy(shares * [camera.width, camera.height])
    rays, valid = (x.numpy(force=True) for x in camera.to(torch.float64).unproject(pixels))
    return np.where(valid[:, None], rays, [0.0, 0.0, 1.0]), valid


def _triangulate(valid: np.ndarray) -> np.ndarray:
    """Return two triangles for each cell of the grid whose four corners are valid."""
    corner = np.arange((MESH_CELLS + 1) ** 2).reshape(MESH_CELLS + 1, MESH_CELLS + 1)
    a, b, c, d = (x.flatten() for x in (corner[:-1, :-1], corner[:-1, 1:], corner[1:, 1:], corner[1:, :-1]))
    cells = np.stack([a, b, c, d], -1)
    cells = cells[valid[cells].all(1)]
    return np.concatenate([cells[:, [0, 1, 2]], cells[:, [0, 2, 3]]])


CELL = 0.3
"""Approximate side of a cell of the grid, in median depths of the points."""
GRID_CELLS = 40
"""Largest number of cells along a side of the grid."""
LINES, SECTIONS, BAR = (150, 155, 165), (120, 125, 135), (255, 79, 154)
"""Visible on white and on black."""


def round_length(length: float) -> float:
    """Return the largest of 1, 2 and 5 times a power of ten that is no longer than `length`."""
    power = 10.0 ** math.floor(math.log10(length))
    return max(step * power for step in (1, 2, 5) if step * power <= length * (1 + 1e-9))


def format_length(length: float, unit: Unit) -> str:
    """Format a length: in meters only if the scale is known."""
    if unit == "metre":
        return f"{length:g} m"
    return f"{length:g} unit" if length == 1 else f"{length:g} units"


class SceneGuides:
    """Grid and scale bar. A cell of the grid is as long as the bar."""

    def __init__(
        self,
        server: viser.ViserServer,
        points: Float[np.ndarray, "n 3"],
        centers: Float[np.ndarray, "view 3"],
        up: Float[np.ndarray, "3"],
        depth: float,
        unit: Unit,
    ) -> None:
        self.length = round_length(CELL * depth)
        basis = make_upright_basis(up)
        # x and y of the grid are horizontal, z is up: right, forward, −down.
        axes = np.stack([basis[:, 0], basis[:, 2], up], 1)
        inside = points @ axes
        low, high = np.quantile(inside, (0.02, 0.98), axis=0)
        # Cameras are few and matter all: the grid reaches below each of them.
        low[:2], high[:2] = (
            np.minimum(low, (centers @ axes).min(0))[:2],
            np.maximum(high, (centers @ axes).max(0))[:2],
        )
        cells = np.clip(np.ceil((high - low)[:2] / self.length) + 1, 4, GRID_CELLS)
        middle = np.round((low + high) / 2 / self.length) * self.length
        middle[2] = low[2]
        width, height = (cells * self.length).tolist()
        self.grid = server.scene.add_grid(
            "/guides/grid",
            width,
            height,
            cell_size=self.length,
            section_size=5 * self.length,
            cell_color=LINES,
            section_color=SECTIONS,
            fade_distance=200 * depth,
            shadow_opacity=0.0,
            wxyz=tf.SO3.from_matrix(axes).wxyz,
            position=axes @ middle,
        )
        # On the floor below the cameras: in front of the first viewpoint, and not behind their photographs.
        place = np.median(centers @ axes, axis=0)
        place[2] = low[2]
        self._add_bar(server, place, axes, unit)

    def _add_bar(
        self,
        server: viser.ViserServer,
        middle: Float[np.ndarray, "3"],
        axes: Float[np.ndarray, "3 3"],
        unit: Unit,
    ) -> None:
        """Add a bar with a tick at each end and its length below; `middle` is in the axes of the grid."""
        ends = [axes @ (middle + side * self.length * np.array([0.5, 0, 0])) for side in (-1, 1)]
        tick = 0.1 * self.length * axes[:, 1]
        lines = [ends, *((end - tick, end + tick) for end in ends)]
        self.bar = server.scene.add_line_segments(
            "/guides/bar", np.array(lines, np.float32), BAR, thickness=4.0, thickness_units="screen"
        )
        self.label = server.scene.add_label(
            "/guides/length",
            format_length(self.length, unit),
            position=(ends[0] + ends[1]) / 2,
            anchor="top-center",
        )

    def show(self, visible: bool) -> None:
        for part in (self.grid, self.bar, self.label):
            part.visible = visible


class RulerTool:
    """A switch; while it is on, two clicks on points measure between them."""

    def __init__(
        self, server: viser.ViserServer, ruler: Ruler, list_shown: Callable[[], Bool[np.ndarray, "point"]]
    ) -> None:
        self.server, self.ruler, self.list_shown = server, ruler, list_shown
        self.switch = server.gui.add_checkbox(
            "Measure", initial_value=False, hint="Click two points for their distance"
        )
        self.switch.on_update(lambda _: self._switch())
        self.said = server.gui.add_markdown("")
        self.picked: list[int] = []
        self.handles: list[viser.SceneNodeHandle] = []

    def _switch(self) -> None:
        self.server.scene.remove_click_callback("all")
        self._clear()
        if self.switch.value:
            self.server.scene.on_click()(
                lambda event: self.click(np.array(event.ray_origin), np.array(event.ray_direction))
            )

    def _clear(self) -> None:
        for handle in self.handles:
            handle.remove()
        self.handles, self.picked, self.said.content = [], [], ""

    def click(self, origin: Float[np.ndarray, "3"], direction: Float[np.ndarray, "3"]) -> None:
        """Take the point that the ray of a click meets; the second one ends a measurement, the third begins another."""
        found = self.ruler.pick(origin, direction, self.list_shown())
        if found is None:
            return
        if len(self.picked) != 1:
            self._clear()
        self.picked.append(found)
        ends = self.ruler.positions[self.picked]
        text = "click the second point"
        if len(self.picked) == 2:
            text = self.ruler.measure(*self.picked).describe()
            line = self.server.scene.add_line_segments(
                "/ruler/line", ends[None].astype(np.float32), BAR, thickness=4.0, thickness_units="screen"
            )
            self.handles.append(line)
        self.said.content = text
        label = self.server.scene.add_label("/ruler/text", text, position=ends.mean(0), anchor="top-center")
        self.handles.append(label)
