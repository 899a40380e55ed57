"""The attention explorer: for a clicked pixel, the positional prior and the attention of a network in all views."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.encodings.rotation import position_score
from g_ray.export.result import Reconstruction
from g_ray.geometry.pose import Pose
from g_ray.media.images import read_photo
from g_ray.models.attention_maps import AttentionMaps
from g_ray.models.inference import PatchFraming
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.rays.views import Views
from g_ray.viewer.priors import G_RAY, GRID_ROPE, Bank, TokenGrid, make_token_grids

PATCH, TOKENS = 14, 37
"""Without a network: DINOv2's patches, 37 of them on the long side."""
BANKS = {"gray": G_RAY, "rope": GRID_ROPE}


@dataclass(frozen=True)
class ViewAnswer:
    """One view's answer to a click. Scores are None where no ray reaches the patch."""

    scores: dict[str, Float[Tensor, "row column"]]
    valid: Bool[Tensor, "row column"]
    landing_px: tuple[float, float] | None
    """Where the reconstructed point of the clicked pixel is seen here, in this view's pixels."""

    def to_document(self) -> dict[str, Any]:
        rows, columns = self.valid.shape
        known = self.valid.flatten().tolist()
        maps = {
            name: [
                float(f"{score:.5g}") if ok else None
                for score, ok in zip(map_.flatten().tolist(), known, strict=True)
            ]
            for name, map_ in self.scores.items()
        }
        return {"rows": rows, "columns": columns, "maps": maps, "landing_px": self.landing_px}


@dataclass(frozen=True)
class Answer:
    """Of one click: the patch that was meant, its point in the world where depth is known, and every view."""

    view: int
    row: int
    column: int
    ray_deg: tuple[float, float]
    point: tuple[float, float, float] | None
    views: tuple[ViewAnswer, ...]

    def to_document(self) -> dict[str, Any]:
        return {**vars(self), "views": [view.to_document() for view in self.views]}


class Explorer:
    """Positional priors (paper, eq:app_score) of ray angles and of the grid index; with a network, its attention.

    `size` is the long side of images as the network sees them, in pixels; without one, what it was trained with.
    """

    def __init__(
        self,
        reconstruction: Reconstruction,
        model: ReconstructionModel | None = None,
        size: int | None = None,
    ) -> None:
        self.reconstruction = reconstruction
        patch, side = (
            (PATCH, TOKENS * PATCH) if model is None else (model.config.patch, model.config.long_side)
        )
        self.framing = PatchFraming(side if size is None else size, patch)
        self.views = reconstruction.cameras()
        self.cameras = [
            view.camera.resize(*self.framing.compute_stretched_size(view.camera)) for view in self.views
        ]
        self.banks = {name: _adapt_bank(bank, model) for name, bank in BANKS.items()}
        self.grids: dict[str, list[TokenGrid]] = {
            name: make_token_grids(self.cameras, patch, bank.coordinate) for name, bank in self.banks.items()
        }
        self.valid = _compute_valid(self.cameras, patch)
        self.attention = None if model is None else self._compute_attention(model)

    @property
    def pairs(self) -> int:
        """Return the layers to choose from; none without a network."""
        return 0 if self.attention is None else self.attention.pairs

    def probe(self, view: int, u: float, v: float, pair: int | None = None) -> Answer:
        """Compute prior and attention of the patches of all views for pixel (u, v) of a view."""
        if not 0 <= view < len(self.cameras):
            raise ValueError(f"view {view}: there are {len(self.cameras)}, counted from 0")
        whole = self.views[view].camera
        if not (0 <= u <= whole.width and 0 <= v <= whole.height):
            raise ValueError(f"pixel ({u}, {v}) lies outside of view {view}, {whole.width}×{whole.height} px")
        rows, columns = self.valid[view].shape
        row, column = (
            min(int(v * rows / whole.height), rows - 1),
            min(int(u * columns / whole.width), columns - 1),
        )
        scores = {name: self._compute_prior(name, view, row, column) for name in self.banks}
        if self.attention is not None:
            last = self.pairs - 1
            scores["attention"] = self.attention.compute_maps(
                last if pair is None else pair, view, row, column
            )
        point = self._find_point(view, u, v)
        probed = tuple(
            ViewAnswer(
                {name: maps[other] for name, maps in scores.items()},
                self.valid[other],
                None if point is None else _project_point(point, calibrated.camera, calibrated.pose),
            )
            for other, calibrated in enumerate(self.views)
        )
        angles = torch.rad2deg(self.grids["gray"][view].positions[row, column]).tolist()
        place = None if point is None else tuple(point.tolist())
        return Answer(view, row, column, (angles[0], angles[1]), place, probed)

    def _compute_prior(
        self, name: str, view: int, row: int, column: int
    ) -> list[Float[Tensor, "row column"]]:
        """Compute s / s_max of every patch."""
        bank, grids = self.banks[name], self.grids[name]
        position = grids[view].positions[row, column][None]
        frequencies = bank.make_frequencies()
        most = 4 * len(frequencies)
        return [position_score(position, grid.positions, frequencies)[0] / most for grid in grids]

    def _find_point(self, view: int, u: float, v: float) -> Float[Tensor, "3"] | None:
        """Return the reconstructed point of a pixel, if there is one."""
        reconstructed = self.reconstruction.views[view]
        pixel = torch.tensor([[u, v]], dtype=torch.float64)
        depths, _, valid = reconstructed.sample(pixel)
        depth = float(depths[0])
        if not bool(valid.all()) or not isfinite(depth) or depth <= 0:
            return None
        ray, known = reconstructed.original_camera.to(torch.float64).unproject(pixel)
        if not bool(known.all()):
            return None
        pose = reconstructed.pose.to(torch.float64)
        return pose.rotation @ (ray[0] * depth) + pose.translation

    def _compute_attention(self, model: ReconstructionModel) -> AttentionMaps:
        photos = [read_photo(self.reconstruction.get_image_path(view.name)) for view in self.views]
        pairs = zip(photos, self.views, strict=True)
        return AttentionMaps.from_model(model, [self.framing(photo, view.camera) for photo, view in pairs])


def _adapt_bank(bank: Bank, model: ReconstructionModel | None) -> Bank:
    """Return the bank with as many frequencies as the network's heads have."""
    if model is None:
        return bank
    return Bank(bank.title, bank.coordinate, bank.scale, bank.base, model.config.head_dim // 4)


def _compute_valid(cameras: Sequence[Camera], patch: int) -> list[Bool[Tensor, "row column"]]:
    tokens = Views(list(cameras)).tokens(patch)
    flat = tokens.valid().reshape(-1)
    return [
        flat[span].unflatten(0, (segment.rows, segment.columns))
        for segment, span in tokens.layout.iterate_spans()
    ]


def _project_point(
    point: Float[Tensor, "3"], camera: Camera, pose: Pose | None
) -> tuple[float, float] | None:
    """Project a world point into a camera; occlusion is not checked."""
    if pose is None:
        return None
    pose, camera = pose.to(torch.float64), camera.to(torch.float64)
    pixels, valid = camera.project((pose.rotation.mT @ (point - pose.translation))[None])
    if not bool((valid & camera.contains(pixels)).all()):
        return None
    u, v = pixels[0].tolist()
    return u, v
