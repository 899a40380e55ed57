"""The reconstruction network as a predictor: chunks of views that fit into memory, joined by shared views."""

import copy
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors import SafetensorError, safe_open

from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.media.view import View
from g_ray.models.foreign_weights import read_foreign
from g_ray.models.inference import run_inference
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.models.vggt import HUB_FILES, is_vggt
from g_ray.models.weights import CONFIG, FILE, RECIPE, find_file, load_reconstruction, read_untrained
from g_ray.predictors import network_cost
from g_ray.predictors.anchoring import estimate_matching, place_by_matches
from g_ray.predictors.chunks import StoredChunks, join_chunks, predict_chunks, split_into_chunks
from g_ray.predictors.model_settings import MIN_CHUNK, OVERLAP, WEIGHTS, ModelSettings, PlaceBy, Precision
from g_ray.predictors.network_cost import check_precision
from g_ray.predictors.predictor import Cost, Prior, Progress, SceneInput, ScenePrediction
from g_ray.runtime.device import choose_device
from g_ray.sfm import CannotMatch, SfMOptions

GIB = 2**30


@dataclass(frozen=True)
class NetworkPredictor:
    """Poses and depth along calibrated rays, from the reconstruction network."""

    USES: ClassVar[frozenset[Prior]] = frozenset({"masks"})

    model: ReconstructionModel
    size: int
    """Long side of its input in pixels."""
    precision: str = "fp32"
    query_chunk: int | None = None
    """Queries of global attention at a time: less memory, the same result."""
    at_once: int | None = None
    """Views in a chunk; None: all of them."""
    max_memory: float | None = None
    """GiB of the whole process, instead of `at_once`."""
    weights: str = "given"
    """Where the model came from, for the record."""
    place_by: PlaceBy = "network"
    """By matches, by the network's poses where these fail, with depth corrected by their points; or all by itself."""
    sfm: SfMOptions = field(default_factory=SfMOptions)

    @property
    def NAME(self) -> str:
        return "network"

    @staticmethod
    def from_settings(
        settings: ModelSettings, model: ReconstructionModel | None = None
    ) -> "NetworkPredictor":
        """Make the predictor of a network that is loaded already, or load the weights."""
        weights = settings.weights or WEIGHTS
        model = model or load_network(weights, settings.device, settings.precision)
        return NetworkPredictor(
            model,
            settings.size or model.config.long_side,
            settings.precision,
            at_once=settings.at_once,
            max_memory=settings.max_memory,
            weights=weights,
            place_by=settings.place_by or "network",
        )

    def describe_settings(self) -> dict[str, Any]:
        settings = {
            "weights": self.weights,
            "method": self.model.config.method,
            "size": self.size,
            "precision": self.precision,
            "at_once": self.at_once,
            "max_memory": self.max_memory,
        }
        if self.place_by == "matches":
            settings |= {"place_by": self.place_by, "sfm": asdict(self.sfm)}
        if self.weights != "given":
            stat = find_file(self.weights).stat()
            settings["weights_bytes"] = stat.st_size
        return settings

    def count_at_once(self, views: Sequence[View]) -> int:
        """Return the number of views in a chunk."""
        if self.max_memory is None:
            return min(self.at_once or len(views), len(views))
        patches = self._count_patches(views)
        memory = int(self.max_memory * GIB) - network_cost.BASE_MEMORY
        weights = network_cost.count_weights(self.model)
        return network_cost.find_chunk_size(self.model.config, weights, patches, memory, MIN_CHUNK)

    def estimate_cost(self, scene: SceneInput) -> Cost:
        at_once = self.count_at_once(scene.views)
        patches = self._count_patches(scene.views)
        weights = network_cost.count_weights(self.model)
        chunks = [
            network_cost.estimate_chunk_cost(self.model.config, weights, [patches[view] for view in chunk])
            for chunk in self._split(len(scene.views), at_once)
        ]
        speed = network_cost.EFFICIENCY * network_cost.measure_operations_per_second(self._device)
        parts = "one chunk" if len(chunks) == 1 else f"{len(chunks)} chunks of {at_once}"
        seconds = sum(chunk.operations for chunk in chunks) / speed
        text = f"{len(scene.views)} views in {parts} at {self.size} px"
        if self.place_by == "matches":
            pairs, matching = estimate_matching([view.camera for view in scene.views], self.sfm)
            seconds, text = seconds + matching, f"{text}, features and matches of {pairs} pairs"
        return Cost(seconds, max(chunk.memory for chunk in chunks) + network_cost.BASE_MEMORY, text)

    def predict(
        self, scene: SceneInput, work: Path | None = None, progress: Progress = lambda stage, share: None
    ) -> ScenePrediction:
        """Predict chunks and join them; then place them by matches, if requested."""
        chunks = self._split(len(scene.views), self.count_at_once(scene.views))
        stored = None if work is None else StoredChunks(work)
        predicted = predict_chunks(
            self, scene.views, chunks, stored, lambda done, count: progress("network", done / count)
        )
        views, notes = join_chunks(predicted)
        if self.place_by == "network" or len(views) < 2:
            return ScenePrediction(tuple(views), (None,) * len(views), notes=tuple(notes))
        try:
            anchored = place_by_matches(
                views, scene, placed=True, options=self.sfm, work=work, progress=progress
            )
        except CannotMatch as error:
            notes = [*notes, f"poses are the network's own: {error}"]
            return ScenePrediction(tuple(views), (None,) * len(views), notes=tuple(notes))
        return ScenePrediction(
            tuple(anchored.views),
            tuple(anchored.reasons),
            sparse=anchored.sparse,
            figures=anchored.figures,
            notes=(*notes, *anchored.notes),
        )

    def load_finished(self, scene: SceneInput, work: Path) -> ScenePrediction | None:
        """Join the chunks that are in the work folder, from the first one without a gap."""
        stored, finished = StoredChunks(work), []
        for number, chunk in enumerate(self._split(len(scene.views), self.count_at_once(scene.views))):
            views = stored.load(number, chunk, [scene.views[view] for view in chunk])
            # Chunks are joined through the views they share, so that none behind a gap can be placed.
            if views is None:
                break
            finished.append(views)
        if not finished:
            return None
        views, notes = join_chunks(finished)
        missing = len(scene.views) - len(views)
        if self.place_by == "matches":
            notes = [*notes, "photographs are not placed by their matches yet: poses are the network's own"]
        return ScenePrediction((*views, *[None] * missing), (None,) * len(scene.views), notes=tuple(notes))

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _count_patches(self, views: Sequence[View]) -> list[int]:
        return network_cost.count_patches([view.camera for view in views], self.size, self.model.config.patch)

    @staticmethod
    def _split(count: int, at_once: int) -> list[tuple[int, ...]]:
        return split_into_chunks(count, at_once, min(OVERLAP, at_once - 1))

    def __call__(self, views: Sequence[View]) -> list[ReconstructedView]:
        """Predict a few views at once, at the network's own resolution."""
        try:
            inference = run_inference(
                self.model,
                [view.load_image() for view in views],
                [view.camera for view in views],
                size=self.size,
                query_chunk=self.query_chunk,
                precision=self.precision,
                masks=[view.load_mask() for view in views],
            )
        except (RuntimeError, MemoryError) as error:
            # Estimates of memory are approximate, and other programs use it too; users can choose less.
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
                predicted.fit_pose().to("cpu"),
                predicted.maps.ray_depth.cpu(),
                predicted.maps.camera_confidence.cpu(),
                predicted.valid.cpu(),
                photo_camera=view.camera,
            )
            for view, predicted in zip(views, inference.views, strict=True)
        ]


def load_network(
    weights: str | Path | ReconstructionModel, device: str = "auto", precision: Precision = "fp32"
) -> ReconstructionModel:
    """Load a network from a file, a folder, a Hugging Face id or the name of shipped weights, or take a loaded one.

    For int8 a loaded network is copied first, because quantizing cannot be undone.
    """
    if isinstance(weights, ReconstructionModel):
        model = weights
    else:
        model, untrained = load_reconstruction(weights), read_untrained(weights)
        if untrained:
            raise ValueError(
                f"{weights}: {', '.join(untrained)} have random weights, as in a converted VGGT; fine-tune first: "
                f"g-ray train recon-scenes-stage1 --init {weights} --data.folders DIR"
            )
    model = model.to(choose_device(device)).eval()
    check_precision(precision, next(model.parameters()).device)
    if precision != "int8" or model.is_quantized:
        return model
    return (copy.deepcopy(model) if model is weights else model).quantize()


def _is_out_of_memory(error: Exception) -> bool:
    """Return whether an error is about memory; on CPUs torch raises a plain RuntimeError."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or bool(
        re.search("out of memory|allocate memory", str(error))
    )


# Which model weights belong to


def detect_model(weights: str) -> str:
    """Return "network" for weights of ours, "vggt" for VGGT's; ValueError for others."""
    path = find_file(weights, HUB_FILES.get(weights, FILE))
    names, is_ours = _read_names(path)
    if is_ours:
        return "network"
    if is_vggt(dict.fromkeys(names)):
        return "vggt"
    raise ValueError(
        f"{path} is neither a network of g-ray nor VGGT: say with --model which model it belongs to"
    )


def _read_names(path: Path) -> tuple[Iterable[str], bool]:
    """Return the names of the tensors, and whether the file holds a config or a recipe of ours."""
    if path.suffix != ".safetensors":
        return read_foreign(path), False
    try:
        with safe_open(path, framework="pt") as file:
            return list(file.keys()), bool({CONFIG, RECIPE} & (file.metadata() or {}).keys())
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file: {error}") from None
