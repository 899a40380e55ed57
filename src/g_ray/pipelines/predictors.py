"""Models that predict the geometry of a few views at once; reconstruction runs one over chunks of a scene."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch

from g_ray.export.reconstruction import ReconstructedView
from g_ray.formats.calibration import CalibratedView
from g_ray.models.checkpoint import load_reconstruction
from g_ray.models.inference import run_inference
from g_ray.models.reconstruction import ReconstructionModel
from g_ray.training.distributed import choose_device

WEIGHTS = "g-ray-rooms"
"""Weights that come with g-ray."""


@runtime_checkable
class Predictor(Protocol):
    """Photographs with cameras in; pose, depth along the ray, confidence and validity of each view out."""

    def __call__(self, views: Sequence[CalibratedView]) -> list[ReconstructedView]:
        """Predict views of one scene, in a common world of unknown scale, at the predictor's own resolution.

        `camera` of a returned view takes images of that resolution. ValueError if the views cannot be predicted.
        """
        ...


@dataclass(frozen=True)
class NetworkPredictor:
    """The reconstruction network."""

    model: ReconstructionModel
    size: int
    """Long side of its input in pixels."""
    precision: str = "fp32"
    query_chunk: int | None = None
    """Queries of global attention at a time: less memory, the same result."""

    def __call__(self, views: Sequence[CalibratedView]) -> list[ReconstructedView]:
        try:
            inference = run_inference(
                self.model,
                [view.load_photo() for view in views],
                [view.camera for view in views],
                size=self.size,
                query_chunk=self.query_chunk,
                precision=self.precision,
            )
        except (RuntimeError, MemoryError) as error:
            if not _is_out_of_memory(error):
                raise
            raise ValueError(
                f"{len(views)} views at {self.size} px do not fit into memory: "
                "give --max-memory, a smaller --size or --precision bf16"
            ) from None
        return [
            ReconstructedView(
                view.name,
                predicted.camera.to("cpu"),
                predicted.maps.poses.to("cpu"),
                predicted.maps.ray_depth.cpu(),
                predicted.maps.camera_confidence.cpu(),
                predicted.valid.cpu(),
            )
            for view, predicted in zip(views, inference.views, strict=True)
        ]


def load_network(weights: str | Path | ReconstructionModel, device: str = "auto") -> ReconstructionModel:
    """Load a network from a file, a folder, a Hugging Face id or the name of shipped weights, or take a loaded one."""
    model = weights if isinstance(weights, ReconstructionModel) else load_reconstruction(weights)
    return model.to(choose_device(device, 0)).eval()


def _is_out_of_memory(error: Exception) -> bool:
    """Return whether an error is about memory; on CPUs torch raises a plain RuntimeError."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or bool(
        re.search("out of memory|allocate memory", str(error))
    )
