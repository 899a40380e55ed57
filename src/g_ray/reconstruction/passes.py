"""One chunk through the network: photographs and cameras in, a piece for every view out."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.base import Camera
from g_ray.models.inference import run_inference
from g_ray.models.reconstruction import ReconstructionModel
from g_ray.reconstruction.joining import ViewPiece


@runtime_checkable
class Loadable(Protocol):
    """A photograph that is read when it is its turn, e.g. `g_ray.capture.Photo`."""

    def load(self) -> Float[Tensor, "3 h w"]: ...


Image = Loadable | Float[Tensor, "3 _ _"]


@dataclass(frozen=True)
class ChunkRunner:
    """How the network is run."""

    model: ReconstructionModel
    size: int
    """Long side that it sees, in pixels."""
    precision: str = "fp32"
    query_chunk: int | None = None
    """Queries of global attention at a time: less memory, the same result."""

    def __call__(
        self, numbers: Sequence[int], images: Sequence[Image], cameras: Sequence[Camera]
    ) -> list[ViewPiece]:
        """Of the views with these numbers in the whole set."""
        loaded = [image if isinstance(image, Tensor) else image.load() for image in images]
        try:
            inference = run_inference(
                self.model,
                loaded,
                cameras,
                size=self.size,
                query_chunk=self.query_chunk,
                precision=self.precision,
            )
        except (RuntimeError, MemoryError) as error:
            if not isinstance(error, MemoryError) and not re.search(
                "out of memory|allocate memory", str(error)
            ):
                raise
            raise ValueError(
                f"{len(images)} views at {self.size} px do not fit into memory: "
                "give --max-memory, a smaller --size or --precision bf16"
            ) from None
        return [
            ViewPiece(
                number,
                view.camera.unproject_grid()[0].to("cpu", torch.float32),
                view.maps.ray_depth.cpu(),
                view.maps.camera_confidence.cpu(),
                view.valid.cpu(),
                view.maps.poses.to("cpu"),
            )
            for number, view in zip(numbers, inference.views, strict=True)
        ]
