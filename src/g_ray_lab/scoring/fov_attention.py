"""Where global attention looks in pairs of a wide image and a crop of it (paper, fig:attention), as numbers and maps.

Weights are the network's own: softmax of its q and k after norm and encoding, averaged over global layers and heads.
The position-only prior has the same softmax over constant features q = k = 1 (eq:app_score): what the encoding alone
would attend to.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.encodings.encoding_base import Tokenwise
from g_ray.encodings.rotation import Rotation, probe_score
from g_ray.formats import find_scenes, read_scene
from g_ray.formats.posed_scene import PosedScene
from g_ray.models.attention_maps import AttentionMaps
from g_ray.models.inference import FramedImage, PatchFraming
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.rays.resample import Box, place_box, resample
from g_ray.rays.views import Views
from g_ray_lab.datasets.dataset_registry import DATASETS
from g_ray_lab.datasets.evaluation_scene import EvaluationScene, Framing
from g_ray_lab.scoring.protocol import Protocol
from g_ray_lab.scoring.scored_runs import ScoredRun
from g_ray_lab.scoring.store import Shard
from g_ray_lab.sources.reconstruction_settings import RoomsViews
from g_ray_lab.sources.rooms_reconstruction import RoomsReconstruction

ZOOM = 2.0
"""The narrow image shows 1/ZOOM of each side, a quarter of the wide one."""


@dataclass(frozen=True)
class FovPair:
    """A wide image and its crop, both as the network sees them."""

    name: str
    wide: FramedImage
    narrow: FramedImage
    box: Box
    """The shared field of view, in pixels of the wide frame."""

    @property
    def frames(self) -> tuple[FramedImage, FramedImage]:
        return self.wide, self.narrow

    def compute_coverage(self, patch: int) -> Float[Tensor, "row column"]:
        """Compute the share of every patch of the wide image that lies in the shared field of view."""
        left, top, right, bottom = self.box
        across = _compute_overlap(self.wide.camera.width // patch, patch, left, right)
        down = _compute_overlap(self.wide.camera.height // patch, patch, top, bottom)
        return down[:, None] * across

    def measure_texture(self) -> float:
        """Return the mean absolute difference of neighboring pixels in the wide image: low without texture."""
        gray = self.wide.image.mean(0)
        return float((gray.diff(dim=0).abs().mean() + gray.diff(dim=1).abs().mean()) / 2)


def _compute_overlap(count: int, patch: int, start: float, stop: float) -> Float[Tensor, "patch"]:
    """Compute the share of each of `count` stretches of `patch` pixels that lies between start and stop."""
    edges = torch.arange(count + 1, dtype=torch.float64) * patch
    return (edges[1:].clamp(max=stop) - edges[:-1].clamp(min=start)).clamp(min=0) / patch


def make_pair(
    name: str,
    image: Float[Tensor, "3 h w"],
    camera: Camera,
    framing: PatchFraming,
    place: tuple[float, float] = (0.5, 0.5),
    zoom: float = ZOOM,
) -> FovPair:
    """Cut the narrow image out of the wide one at `place` (in [0, 1]², see `place_box`) and frame both alike."""
    wide = framing(image, camera)
    width, height = wide.camera.width, wide.camera.height
    box = place_box(camera.width, camera.height, camera.width, camera.height, zoom=zoom, place=place)
    crop, lens = resample(image, camera, width, height, box)
    narrow = FramedImage(crop, lens, wide.content, lens, (0.0, 0.0, float(width), float(height)))
    across, down = width / camera.width, height / camera.height
    inside = (box[0] * across, box[1] * down, box[2] * across, box[3] * down)
    return FovPair(name, wide, narrow, inside)


Load = Callable[[int], tuple[Float[Tensor, "3 h w"], Camera]]
"""From the number of a view to its image and camera."""


@dataclass(frozen=True, eq=False)
class PairScene:
    """The views of a scene that pairs are cut from."""

    name: str
    views: Sequence[str]
    load: Load


def open_folders(folder: Path) -> list[PairScene]:
    """Open a scene folder, or all in a folder."""
    return [_open_folder(read_scene(one, check=False)) for one in find_scenes(folder)]


def _open_folder(scene: PosedScene) -> PairScene:
    def load(view: int) -> tuple[Tensor, Camera]:
        return scene.views[view].load_image().clamp(0, 1), scene.cameras[view]

    return PairScene(scene.folder.name, scene.names, load)


def open_rooms(side: int, patch: int, count: int) -> list[PairScene]:
    """Open procedural rooms of the test split, one view of each, twice as large as a network sees them: a crop of half
    the width has as many pixels as the whole."""
    large = round(ZOOM * side)
    rooms = RoomsReconstruction(RoomsViews(large, large, views=(1, 1)), patch=patch, split="test")

    def open_room(number: int) -> PairScene:
        def load(view: int) -> tuple[Tensor, Camera]:
            batch = rooms.make_sets([number])
            return batch.images[0, view], batch.views.cameras[view][0]

        return PairScene(f"room {number}", ["view 0"], load)

    return [open_room(number) for number in range(count)]


def open_protocol(protocol: Protocol, root: Path) -> list[PairScene]:
    """Open the scenes of a protocol that are there, at its size; ValueError if none is."""
    dataset = DATASETS[protocol.dataset]
    if not root.is_dir():
        raise ValueError(f"{root}: no such folder; g-ray data prepare {dataset.download} makes it")
    root = dataset.find_root(root)
    names = [name for name in dataset.list_scenes(root) if not protocol.scenes or name in protocol.scenes]
    if not names:
        raise ValueError(f"{root}: no scene of {protocol.title}; give the folder that holds them")
    # A crop of half the width has as many pixels as the whole.
    size = protocol.size.resize(round(ZOOM * protocol.size.width))
    return [_open_scene(dataset.read(root, name), size.frame) for name in names]


def _open_scene(scene: EvaluationScene, frame_size: Callable[[Camera], Framing]) -> PairScene:
    def load(view: int) -> tuple[Tensor, Camera]:
        frame = scene.frames[view]
        framing = frame_size(frame.camera)
        return frame.image.load_framed(frame.camera, framing).clamp(0, 1), framing.apply(frame.camera)

    return PairScene(scene.name, [frame.name for frame in scene.frames], load)


@dataclass(frozen=True, eq=False)
class PairSource:
    """Pairs of the images of scenes, evenly spread over scenes and their views."""

    scenes: Sequence[PairScene]
    count: int = 48
    is_centered: bool = True
    """Cut from the middle; anywhere otherwise, so that attention that prefers the middle gains nothing."""
    seed: int = 0

    def make_pairs(self, framing: PatchFraming) -> list[FovPair]:
        """Make all pairs, always the same."""
        random, scenes = np.random.default_rng(self.seed), self.scenes
        pairs = []
        for number in range(self.count):
            scene = scenes[number % len(scenes)]
            rounds = -(-self.count // len(scenes))  # images of each scene
            view = (number // len(scenes)) * len(scene.views) // rounds
            place = (0.5, 0.5) if self.is_centered else tuple(random.random(2).tolist())
            photo, camera = scene.load(view)
            name = f"{scene.name}/{scene.views[view]}"
            pairs.append(make_pair(name, photo, camera.to(torch.float32), framing, place))
        return pairs


def split_by_texture(textures: Sequence[float]) -> tuple[list[int], list[int]]:
    """Return the indices of the third with the least texture and of the third with the most."""
    order = sorted(range(len(textures)), key=lambda index: textures[index])
    third = len(order) // 3
    return sorted(order[:third]), sorted(order[len(order) - third :])


def choose_examples(group: Sequence[FovPair]) -> list[FovPair]:
    """Return a pair with little texture and one with much: at the borders of the outer sixths."""
    ordered = sorted(group, key=lambda pair: pair.measure_texture())
    return [ordered[len(ordered) // 6], ordered[-1 - len(ordered) // 6]]


WIDE, NARROW = 0, 1
PRIOR = "position only"
CHANCE = "uniform"
WEAK, RICH = "weak texture", "rich texture"
ATTENTION_METRICS = {
    "inside_back": "share of the attention of the narrow image to the wide one that falls inside the shared field of "
    "view",
    "inside_back_exchanged": "the same with the narrow image as the first view",
    "inside": "share of the attention to the narrow image that comes from patches of the wide one inside the shared "
    "field of view",
    "angle_deg": "mean angle, weighted by attention, between a patch inside the shared field of view and the patches "
    "of the narrow image that it attends to",
}


@dataclass(frozen=True)
class PairAttention:
    """How much every patch of one image of a pair attends to every patch of the other."""

    wide_to_narrow: Float[Tensor, "wide narrow"]
    narrow_to_wide: Float[Tensor, "narrow wide"]

    @classmethod
    def from_model(
        cls, model: ReconstructionModel, pair: FovPair, *, narrow_first: bool = False
    ) -> "PairAttention":
        """Run the network on the two images, the wide one first unless told otherwise."""
        maps = AttentionMaps.from_model(model, pair.frames[::-1] if narrow_first else pair.frames)
        wide, narrow = (NARROW, WIDE) if narrow_first else (WIDE, NARROW)
        return cls(maps.average_between(wide, narrow).cpu(), maps.average_between(narrow, wide).cpu())

    @classmethod
    @torch.no_grad()
    def from_positions(cls, model: ReconstructionModel, pair: FovPair) -> "PairAttention":
        """Attend by the global encoding of the network alone, over the patches of both images.

        Rays that are an input (CamRay) are features, so that they are no part of it.
        """
        tokens = Views([frame.camera for frame in pair.frames]).tokens(model.config.patch)
        position = model.aggregator.across.prepare(tokens)
        if not isinstance(position, Tokenwise):
            raise ValueError(f"method {model.config.method}: its encoding has no position-only prior")
        if not isinstance(position.query, Rotation) or not isinstance(position.key, Rotation):
            return cls.from_chance(pair, model.config.patch)  # no position: constant features are all alike
        score = probe_score(position.query, position.key)[0, 0] / model.config.head_dim**0.5
        weights, count = score.softmax(-1), len(tokens) // 2
        return cls(weights[:count, count:], weights[count:, :count])

    @classmethod
    def from_chance(cls, pair: FovPair, patch: int) -> "PairAttention":
        """Attend to everything alike."""
        count = pair.compute_coverage(patch).numel()
        even = torch.full((count, count), 0.5 / count)
        return cls(even, even)

    def compute_map(self, rows: int) -> Float[Tensor, "row column"]:
        """Compute how much the narrow image gets from each patch of the wide one: the paper's map."""
        return self.wide_to_narrow.sum(-1).unflatten(0, (rows, -1))

    def score(self, pair: FovPair, patch: int) -> dict[str, float]:
        """Compute ATTENTION_METRICS."""
        coverage = pair.compute_coverage(patch).flatten()
        given, back = self.wide_to_narrow.double(), self.narrow_to_wide.double().sum(0)
        rays = (
            Views([frame.camera for frame in pair.frames]).tokens(patch).rays().directions[0, :, 0].double()
        )
        wide, narrow = rays.split(len(coverage))
        # 2 asin(‖a − b‖/2) keeps its digits at small angles.
        chord = (wide[:, None] - narrow).norm(dim=-1)
        angles = torch.rad2deg(2 * torch.asin((chord / 2).clamp(max=1)))
        mean_angle = (given * angles).sum(-1) / given.sum(-1)
        return {
            "inside_back": float(back @ coverage / back.sum()),
            "inside": float(given.sum(-1) @ coverage / given.sum()),
            "angle_deg": float(mean_angle @ coverage / coverage.sum()),
        }


PairScores = Mapping[str, list[dict[str, float]]]
"""setting → the scores of each pair"""


def score_pairs(
    model: ReconstructionModel, pairs: Mapping[str, Sequence[FovPair]]
) -> dict[str, dict[str, list[dict[str, float]]]]:
    """Score the attention of a network, its position-only prior, and chance, on all pairs of all settings."""
    patch = model.config.patch
    makers: dict[str, Callable[[FovPair], tuple[PairAttention, PairAttention | None]]] = {
        "attention": lambda pair: (
            PairAttention.from_model(model, pair),
            PairAttention.from_model(model, pair, narrow_first=True),
        ),
        # The order of views is no position.
        "prior": lambda pair: (PairAttention.from_positions(model, pair), None),
        "chance": lambda pair: (PairAttention.from_chance(pair, patch), None),
    }
    return {
        kind: {
            setting: [score_orders(*make(pair), pair, patch) for pair in group]
            for setting, group in pairs.items()
        }
        for kind, make in makers.items()
    }


def select_pairs(pairs: Mapping[str, Sequence[FovPair]], shard: Shard) -> dict[str, list[FovPair]]:
    """Return the pairs of a share of the work: every n-th of each setting."""
    return {
        setting: [pair for position, pair in enumerate(group) if shard.takes(position)]
        for setting, group in pairs.items()
    }


def interleave_scores(shares: Sequence[Mapping[str, PairScores]]) -> dict[str, PairScores]:
    """Join the results of `score_pairs` on all shares, in the order of the pairs."""
    return {
        kind: {
            setting: _interleave([share[kind][setting] for share in shares]) for setting in shares[0][kind]
        }
        for kind in shares[0]
    }


def _interleave(lists: Sequence[list[dict[str, float]]]) -> list[dict[str, float]]:
    total = sum(map(len, lists))
    return [lists[position % len(lists)][position // len(lists)] for position in range(total)]


def score_orders(
    wide_first: PairAttention, narrow_first: PairAttention | None, pair: FovPair, patch: int
) -> dict[str, float]:
    """Compute ATTENTION_METRICS with the wide image first, and where attention falls with the narrow one first; None
    where the order changes nothing."""
    scores = wide_first.score(pair, patch)
    exchanged = scores if narrow_first is None else narrow_first.score(pair, patch)
    return {**scores, "inside_back_exchanged": exchanged["inside_back"]}


def make_scored_run(
    method: str, seed: int, scores: PairScores, textures: Mapping[str, Sequence[float]]
) -> ScoredRun:
    """Return the scores by metric, with two more settings: the pairs of all settings with least and most texture."""
    pooled = [one for setting in scores for one in scores[setting]]
    weak, rich = split_by_texture([value for setting in scores for value in textures[setting]])
    groups = {
        **scores,
        WEAK: [pooled[index] for index in weak],
        RICH: [pooled[index] for index in rich],
    }
    by_metric = {
        setting: {metric: [one[metric] for one in group] for metric in ATTENTION_METRICS}
        for setting, group in groups.items()
    }
    return ScoredRun.from_scores(method, seed, by_metric)
