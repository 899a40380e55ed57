"""The attention explorer: for a chosen pixel, the positional prior and the attention of a network in all views."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np
import torch
import viser
from jaxtyping import Float, UInt8
from PIL import Image, ImageDraw
from torch import Tensor

from g_ray.export.result import Reconstruction
from g_ray.media.images import read_photo
from g_ray.models.attention_maps import AttentionMaps
from g_ray.models.inference import PatchFraming
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.viewer.colors import map_to_heat
from g_ray.viewer.priors import G_RAY, GRID_ROPE, compute_prior_maps, make_token_grids

PATCH, TOKENS = 14, 37
"""Without a network: DINOv2's patches, 37 of them on the long side."""
ATTENTION = "Attention"
BANKS = {"G-ray prior": G_RAY, "Grid RoPE prior": GRID_ROPE}
WIDTH, SIDE, FADE = 380, 400, 0.66
"""Width of the panel and long side of its pictures in pixels; opacity of the colors over a photograph."""
MARK = (255, 79, 154)
HELP = "Click a camera in the scene to look from it, then a pixel of its photograph; or choose both here."


@dataclass(frozen=True, eq=False)
class Answer:
    """The patch of a chosen pixel, its reconstructed point where depth is known, and what all views show for it."""

    view: int
    row: int
    column: int
    ray_deg: tuple[float, float]
    point: Float[Tensor, "3"] | None
    maps: dict[str, list[Tensor]]
    """Maps by kind, [row, column] per view; NaN where no ray reaches the patch."""
    landing_px: list[tuple[float, float] | None]
    """Per view, the projection of the point into the photograph; occlusion is not checked."""


class Explorer:
    """Positional priors (paper, eq:app_score) of ray angles and of the grid index; with a network, its attention.

    `size` is the long side of images as the network sees them, in pixels; by default that of its training.
    """

    def __init__(
        self,
        reconstruction: Reconstruction,
        model: ReconstructionModel | None = None,
        size: int | None = None,
    ) -> None:
        self.reconstruction, self.views = reconstruction, reconstruction.cameras()
        self.patch, side, self.banks = PATCH, TOKENS * PATCH, dict(BANKS)
        if model is not None:
            self.patch, side = model.config.patch, model.config.long_side
            count = model.config.head_dim // 4  # as many frequencies as the network's heads have
            self.banks = {kind: replace(bank, count=count) for kind, bank in BANKS.items()}
        framing = PatchFraming(side if size is None else size, self.patch)
        sizes = [framing.compute_stretched_size(view.camera) for view in self.views]
        self.cameras = [view.camera.resize(*size) for view, size in zip(self.views, sizes, strict=True)]
        self.grids = make_token_grids(self.cameras, self.patch, "tangent")
        self.attention = None
        if model is not None:
            photos = [read_photo(reconstruction.get_image_path(view.name)) for view in self.views]
            frames = [framing(photo, view.camera) for photo, view in zip(photos, self.views, strict=True)]
            self.attention = AttentionMaps.from_model(model, frames)

    @property
    def layers(self) -> int:
        """Return the number of global attention layers to choose from; 0 without a network."""
        return 0 if self.attention is None else self.attention.pairs

    def probe(self, view: int, u: float, v: float, layer: int = -1) -> Answer:
        """Compute prior and attention of the patches of all views for pixel (u, v) of a view."""
        if not 0 <= view < len(self.cameras):
            raise ValueError(f"view {view}: there are {len(self.cameras)}, counted from 0")
        whole, grid = self.views[view].camera, self.grids[view]
        if not (0 <= u <= whole.width and 0 <= v <= whole.height):
            raise ValueError(f"pixel ({u}, {v}) lies outside of view {view}, {whole.width}×{whole.height} px")
        rows, columns = grid.valid.shape
        row = min(int(v * rows / whole.height), rows - 1)
        column = min(int(u * columns / whole.width), columns - 1)
        maps = {
            kind: compute_prior_maps(self.cameras, self.patch, (view, row, column), bank)
            for kind, bank in self.banks.items()
        }
        if self.attention is not None:
            maps[ATTENTION] = self.attention.compute_maps(layer % self.layers, view, row, column)
        valid = [grid.valid for grid in self.grids]
        point = self._find_point(view, u, v)
        x_deg, y_deg = torch.rad2deg(grid.positions[row, column]).tolist()
        return Answer(
            view,
            row,
            column,
            (x_deg, y_deg),
            point,
            {
                kind: [one.masked_fill(~ok, torch.nan) for one, ok in zip(found, valid, strict=True)]
                for kind, found in maps.items()
            },
            [None if point is None else self._project(point, other) for other in range(len(self.views))],
        )

    def _find_point(self, view: int, u: float, v: float) -> Float[Tensor, "3"] | None:
        """Return the reconstructed point of a pixel, if there is one."""
        reconstructed = self.reconstruction.views[view]
        pixel = torch.tensor([[u, v]], dtype=torch.float64)
        depths, _, valid = reconstructed.sample(pixel)
        ray, known = reconstructed.original_camera.to(torch.float64).unproject(pixel)
        if not (bool((valid & known).all()) and 0 < float(depths[0]) < float("inf")):
            return None
        pose = reconstructed.pose.to(torch.float64)
        return pose.rotation @ (ray[0] * float(depths[0])) + pose.translation

    def _project(self, point: Float[Tensor, "3"], view: int) -> tuple[float, float] | None:
        camera, pose = self.views[view].camera.to(torch.float64), self.views[view].pose
        if pose is None:
            return None
        pose = pose.to(torch.float64)
        pixels, valid = camera.project((pose.rotation.mT @ (point - pose.translation))[None])
        u, v = pixels[0].tolist()
        return (u, v) if bool((valid & camera.contains(pixels)).all()) else None


class ExplorerPanel:
    """A panel of the browser view: controls for a photograph and a pixel, and a map over every photograph."""

    def __init__(
        self,
        server: viser.ViserServer,
        explorer: Explorer,
        photos: Sequence[np.ndarray],
        on_answer: Callable[[Answer], None],
    ) -> None:
        self.explorer, self.photos, self.on_answer = explorer, photos, on_answer
        self.names = [view.name for view in explorer.views]
        self.lock, self.shown = Lock(), None
        kinds = (*((ATTENTION,) if explorer.layers else ()), *explorer.banks)
        gui, panel = server.gui, server.gui.add_panel()
        panel.dock_right()
        panel.set_width(WIDTH)
        camera = explorer.views[0].camera
        with panel.add_tab(ATTENTION):
            gui.add_markdown(HELP)
            self.view = gui.add_dropdown("Photograph", self.names)
            self.x, self.y = (
                gui.add_slider(axis, min=0, max=end, step=1, initial_value=end // 2)
                for axis, end in (("x", camera.width), ("y", camera.height))
            )
            self.kind = gui.add_dropdown("Map", kinds)
            self.layer = gui.add_slider(
                "Layer",
                min=1,
                max=max(2, explorer.layers),
                step=1,
                initial_value=max(1, explorer.layers),
                visible=explorer.layers > 1,
                hint="A layer of global attention, averaged over heads",
            )
            self.stretch = gui.add_checkbox("Stretch colors", False, hint="Use a range of values per picture")
            self.text = gui.add_markdown("")
            self.images = [
                gui.add_image(photo, label=name) for photo, name in zip(photos, self.names, strict=True)
            ]
        self.view.on_update(self._follow_view)
        for control in (self.x, self.y, self.kind, self.layer, self.stretch):
            control.on_update(self._follow)
        self.update()

    def select(self, view: int, u: float, v: float) -> None:
        """Choose a pixel of a photograph, and show its maps."""
        camera = self.explorer.views[view].camera
        self.view.value = self.names[view]
        for slider, at, end in ((self.x, u, camera.width), (self.y, v, camera.height)):
            slider.max, slider.value = end, min(max(round(at), 0), end)
        self.update()

    def update(self) -> None:
        """Show the maps of the chosen pixel."""
        with (
            self.lock
        ):  # a dragged slider calls more often than maps are computed: those in between are skipped
            chosen = (self.view.value, self.x.value, self.y.value, self.layer.value)
            state = (*chosen, self.kind.value, self.stretch.value)
            if state == self.shown:
                return
            self.shown = state
            view = self.names.index(self.view.value)
            pixel = (float(self.x.value), float(self.y.value))
            answer = self.explorer.probe(view, *pixel, int(self.layer.value) - 1)
            self._draw(answer)
        self.on_answer(answer)

    def _follow(self, event: viser.GuiEvent[Any]) -> None:
        if event.client is not None:  # else set by `select`
            self.update()

    def _follow_view(self, event: viser.GuiEvent[Any]) -> None:
        if event.client is not None:
            number = self.names.index(self.view.value)
            camera = self.explorer.views[number].camera
            self.select(number, float(camera.width // 2), float(camera.height // 2))

    def _draw(self, answer: Answer) -> None:
        kind = self.kind.value
        maps = [one.numpy(force=True) for one in answer.maps[kind]]
        low, high = compute_range(maps, kind)
        for number, values in enumerate(maps):
            limits = compute_range([values], kind) if self.stretch.value else (low, high)
            picture = blend_map(self.photos[number], values, *limits)
            self.images[number].image = self._mark(picture, answer, number)
            self.images[number].label = f"{self.names[number]}: {describe_view(answer, number, kind)}"
        colors = "dark to bright" if self.stretch.value else f"{low:.3g} (dark) to {high:.3g} (bright)"
        self.text.content = (
            f"pixel {self.x.value:.0f}, {self.y.value:.0f}; ray {answer.ray_deg[0]:.1f}° across, "
            f"{answer.ray_deg[1]:.1f}° down"
            + ("" if answer.point is not None else "; no depth is known here")
            + f"; colors: {colors}"
        )

    def _mark(self, picture: UInt8[np.ndarray, "h w 3"], answer: Answer, number: int) -> np.ndarray:
        """Draw a square around the chosen patch, or a cross where the point lands in another view."""
        camera, landing = self.explorer.views[number].camera, answer.landing_px[number]
        rows, columns = answer.maps[self.kind.value][number].shape
        height, width = picture.shape[:2]
        image = Image.fromarray(picture)
        pen = ImageDraw.Draw(image)
        for color, thickness in (((0, 0, 0), 6), (MARK, 2)):
            if number == answer.view:
                x, y = (answer.column + 0.5) * width / columns, (answer.row + 0.5) * height / rows
                half = max(0.5 * width / columns, 7) + thickness / 2  # PIL draws outlines inwards
                pen.rectangle((x - half, y - half, x + half, y + half), outline=color, width=thickness)
            elif landing is not None:
                x, y = landing[0] / camera.width * width, landing[1] / camera.height * height
                for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1)):
                    pen.line((x + 5 * dx, y + 5 * dy, x + 16 * dx, y + 16 * dy), color, thickness)
        return np.asarray(image)


def compute_range(maps: Sequence[np.ndarray], kind: str) -> tuple[float, float]:
    """Return the values that are drawn darkest and brightest."""
    values = np.concatenate([one.flatten() for one in maps])
    values = values[~np.isnan(values)]
    if not len(values):
        return 0.0, 1.0
    if kind == ATTENTION:  # one patch must not blacken the rest
        return 0.0, float(np.quantile(values, 0.998)) or float(values.max())
    return float(values.min()), float(values.max())


def blend_map(
    photo: UInt8[np.ndarray, "h w 3"], values: Float[np.ndarray, "row column"], low: float, high: float
) -> UInt8[np.ndarray, "height width 3"]:
    """Draw a map in colors over a gray photograph; patches without a value stay uncolored."""
    scale = SIDE / max(photo.shape[:2])
    width, height = (max(1, round(scale * side)) for side in photo.shape[1::-1])
    gray = np.asarray(Image.fromarray(photo).resize((width, height)).convert("L"))[..., None]
    at = np.ix_(*(np.arange(n) * m // n for n, m in zip((height, width), values.shape, strict=True)))
    shares = ((values - low) / max(high - low, 1e-12))[at]
    colors = (1 - FADE) * gray + FADE * map_to_heat(shares)
    return np.where(np.isnan(shares)[..., None], gray, colors).round().astype(np.uint8)


def describe_view(answer: Answer, number: int, kind: str) -> str:
    """Describe a view's picture: its share of the attention, or whether it sees the point."""
    if kind == ATTENTION:
        return f"{np.nansum(answer.maps[kind][number].numpy(force=True)):.1%} of all attention"
    if number == answer.view:
        return "the chosen pixel"
    if answer.landing_px[number] is not None:
        return "cross: the point of the chosen pixel"
    return "does not see the point" if answer.point is not None else "no depth is known"
