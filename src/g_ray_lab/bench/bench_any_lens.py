"""Benchmark depth from posed photographs through any lenses, mixed in one set, with exact truth.

A stranger's method is a Python file with a function

    estimate(images, cameras, poses, near, far) -> depths

of five photographs [3 h w] in [0, 1], their cameras, their poses `world_from_cam` [5 4 4] and the range of distances in
the scene. It returns the distance along the ray of every pixel of each photograph [h w], 0 where it declines to answer.
"""

import hashlib
import importlib.util
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from g_ray.predictors.model_settings import ROOMS_WEIGHTS, ModelSettings
from g_ray.predictors.network_predictor import NetworkPredictor
from g_ray.predictors.predictor import SceneInput
from g_ray.predictors.sweep_weights import STEREO_WEIGHTS, load_sweep_network
from g_ray.stereo import StereoOptions, SweepNetwork, estimate_depths
from g_ray.stereo.learned_depth import LearnedStereo
from g_ray_lab.bench.any_lens_scenes import (
    LENSES,
    ROUND_DEG,
    SIDE,
    AnyLensSet,
    export_set,
    hash_set,
    list_plans,
    render_set,
)
from g_ray_lab.scoring.table_writer import format_grid, write_table

Estimate = Callable[[AnyLensSet], Sequence[Float[Tensor, "_ _"]]]
Row = dict[str, Any]

NEAR_SHARE, FAR_SHARE = 0.03, 0.1
"""A distance is right, or roughly right, up to these shares."""
NETWORK = f"network {ROOMS_WEIGHTS}, scaled to the truth"
GROUPS: dict[str, Callable[[Row], bool]] = {
    "one lens": lambda row: not row["mixed"],
    "mixed lenses": lambda row: row["mixed"],
    f"{ROUND_DEG}° or wider": lambda row: LENSES[row["lens"]][1] >= ROUND_DEG,
}
EXPECTED_SETS, EXPECTED_HASH = 6, "9cb4d48b439a386d"
EXPECTED: dict[str, tuple[float, ...]] = {
    "classical stereo": (57.9, 48.0, 35.9),
    NETWORK: (15.3, 6.4, 4.2),
    "constant": (11.0, 2.6, 3.0),
    "learned stereo": (86.1, 69.1, 58.4),
    "learned stereo, unchecked": (87.1, 71.6, 63.1),
}
"""Percent of all pixels within 3 %, in the groups, over the first EXPECTED_SETS sets, when the benchmark was made."""


# Methods


def estimate_with_stereo(scene: AnyLensSet, network: SweepNetwork | None = None) -> list[Tensor]:
    """Estimate depths that other views confirm and, with a network, those that it is sure enough of."""
    options = StereoOptions(long_side=SIDE, near=scene.near, far=scene.far)
    depths = estimate_depths(scene.views, None, options, network=network)
    return [depth.merge_candidates().ray_depth for depth in depths]


def estimate_unchecked(scene: AnyLensSet, network: SweepNetwork) -> list[Tensor]:
    """Estimate the depth of every pixel by the sweep network alone."""
    learned, depths = LearnedStereo.prepare(network, scene.views), []
    for index, view in enumerate(scene.views):
        others = [other for other in range(len(scene.views)) if other != index]
        depths.append(1 / learned.estimate(index, others, scene.near, scene.far, view.size).inverse)
    return depths


def estimate_with_network(scene: AnyLensSet, predictor: NetworkPredictor) -> list[Tensor]:
    """Estimate depths by a network that is told the lenses but not the poses."""
    views = [replace(view, pose=None, depth=None) for view in scene.views]
    found = [view for view in predictor.predict(SceneInput(views)).views if view is not None]
    return [
        F.interpolate(depth.ray_depth[None, None], size=view.size, mode="bilinear")[0, 0]
        for depth, view in zip(found, views, strict=True)
    ]


def estimate_constant(scene: AnyLensSet) -> list[Tensor]:
    """Return the geometric mean of the range everywhere."""
    return [torch.full(view.size, (scene.near * scene.far) ** 0.5) for view in scene.views]


def make_methods(weights: Path | None = None, only: Sequence[str] = ()) -> dict[str, Estimate]:
    """Load the methods that are compared, or those whose names have one of the words `only`."""
    network = load_sweep_network(weights or Path(STEREO_WEIGHTS))
    settings = ModelSettings(weights=ROOMS_WEIGHTS, place_by="network")
    methods: dict[str, Estimate] = {
        "learned stereo": partial(estimate_with_stereo, network=network),
        "learned stereo, unchecked": partial(estimate_unchecked, network=network),
        "classical stereo": estimate_with_stereo,
        NETWORK: partial(estimate_with_network, predictor=NetworkPredictor.from_settings(settings)),
        "constant": estimate_constant,
    }
    chosen = {
        name: method for name, method in methods.items() if not only or any(word in name for word in only)
    }
    if not chosen:
        raise ValueError(f"--only {' '.join(only)} names none of {', '.join(methods)}")
    return chosen


def load_method(path: Path) -> Estimate:
    """Load `estimate` of a Python file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ValueError(
            f"{path}: give a Python file with a function estimate(images, cameras, poses, near, far)"
        )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(getattr(module, "estimate", None)):
        raise ValueError(f"{path} has no function estimate(images, cameras, poses, near, far): add it")

    def estimate(scene: AnyLensSet) -> list[Tensor]:
        images, cameras = zip(*((view.load_image(), view.camera) for view in scene.views), strict=True)
        poses = torch.stack([view.get_pose().world_from_cam for view in scene.views])
        found = module.estimate(list(images), list(cameras), poses, scene.near, scene.far)
        return [torch.as_tensor(depth).float() for depth in found]

    return estimate


def read_depths(folder: Path, one: AnyLensSet) -> list[Tensor]:
    """Read the depths FOLDER/SET/0.npy … of a set; ValueError for a missing or wrong one."""
    depths = []
    for view in one.views:
        path = folder / one.name / f"{Path(view.name).stem}.npy"
        try:
            depths.append(torch.from_numpy(np.load(path, allow_pickle=False)).float())
        except (OSError, ValueError, TypeError, EOFError) as error:
            raise ValueError(
                f"{path} is no array of distances ({error}); write one per photograph of --export"
            ) from None
    return depths


# Scores


def score_set(one: AnyLensSet, method: str, depths: Sequence[Tensor], seconds: float) -> list[Row]:
    """Score the depths of a set; a row per view."""
    for view, depth in zip(one.views, depths, strict=True):
        if tuple(depth.shape) != view.size:
            sizes = f"{view.size} pixels (height, width), its depth {tuple(depth.shape)}"
            raise ValueError(f"{method}: {one.name}/{view.name} has {sizes}; estimate one distance per pixel")
    truth = [view.load_ray_depth() for view in one.views]
    scale = _fit_scale(depths, truth) if method == NETWORK else 1.0
    rows, digest = [], hash_set(one)
    for view, lens, depth, true in zip(one.views, one.lenses, depths, truth, strict=True):
        known = true > 0
        error = (scale * depth / true - 1).abs()[known]
        kept = (depth > 0)[known]
        rows.append({
            "set": one.name, "hash": digest, "view": view.name, "lens": lens, "mixed": one.is_mixed, "method": method,
            "kept": float(kept.float().mean()),
            "error": float(error[kept].mean()) if bool(kept.any()) else None,
            "within_3": float((kept & (error <= NEAR_SHARE)).float().mean()),
            "within_10": float((kept & (error <= FAR_SHARE)).float().mean()),
            "cpu_s": seconds / len(one.views),
        })  # fmt: skip
    return rows


def _fit_scale(depths: Sequence[Tensor], truth: Sequence[Tensor]) -> float:
    ratios = [
        true[both] / depth[both]
        for depth, true in zip(depths, truth, strict=True)
        if (both := (true > 0) & (depth > 0)).any()
    ]
    return float(torch.cat(ratios).median())


def benchmark_any_lens(
    out: Path,
    own: Mapping[str, Estimate],
    depths: Path | None,
    count: int | None,
    progress: Callable[[str], None],
) -> str:
    """Compare methods, and the depths of a stranger in a folder, and write the tables; returns them.

    Rows that `out` has already are not computed again.
    """
    out.mkdir(parents=True, exist_ok=True)
    path, methods = out / "rows.jsonl", dict(own)
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    done = {(row["set"], row["method"]) for row in rows}
    if depths is not None:
        methods[str(depths)] = partial(read_depths, depths)
    for plan in list_plans()[:count]:
        missing = {name: one for name, one in methods.items() if (plan.name, name) not in done}
        if not missing:
            continue
        scene = render_set(plan)
        for name, estimate in missing.items():
            found = run_method(scene, name, estimate)
            with path.open("a", encoding="utf-8") as file:
                file.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found))
            rows += found
        progress(f"{plan.name}: {', '.join(dict.fromkeys(plan.lenses))}")
    rows.sort(key=lambda row: row["set"])
    text = format_rows(rows)
    write_table(out, {"settings": {}, "rows": rows}, text)
    return text


def run_method(scene: AnyLensSet, name: str, estimate: Estimate) -> list[Row]:
    """Run a method on a set and score it."""
    start = time.process_time()
    depths = estimate(scene)
    return score_set(scene, name, depths, time.process_time() - start)


def export_any_lens(folder: Path, count: int | None, progress: Callable[[str], None]) -> None:
    """Write photographs, cameras, poses and ranges, for methods that are run elsewhere."""
    for plan in list_plans()[:count]:
        export_set(render_set(plan), folder)
        progress(plan.name)


# Tables


def format_rows(rows: Sequence[Row]) -> str:
    """Format the methods by groups of views, and their right pixels by lens."""
    hashes = dict(sorted((row["set"], row["hash"]) for row in rows))
    digest = hashlib.sha256("".join(hashes.values()).encode()).hexdigest()[:16]
    same, known = "as expected" if digest == EXPECTED_HASH else f"expected {EXPECTED_HASH}", EXPECTED
    if len(hashes) != EXPECTED_SETS:
        same, known = f"figures to expect are known for {EXPECTED_SETS} sets", {}
    note = f"{len(hashes)} sets, hash {digest} ({same})."
    return "\n\n".join((note, _format_groups(rows, known), _format_lenses(rows)))


def _format_groups(rows: Sequence[Row], expected: Mapping[str, Sequence[float]]) -> str:
    title, *others = "% within 3 % / 10 %", "expected", "kept", "error of kept ones", "CPU s per view"
    head = [title, *GROUPS, *others]
    lines = []
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        parts = [[row for row in own if test(row)] for test in GROUPS.values()]
        cells = [f"{_percent(part, 'within_3')} / {_percent(part, 'within_10')}" for part in parts]
        known = " / ".join(f"{value:g}" for value in expected.get(method, ())) or "–"
        errors = [row["error"] for row in own if row["error"] is not None]
        error = f"{sum(errors) / len(errors):.3f}" if errors else "–"
        seconds = sum(row["cpu_s"] for row in own) / len(own)
        lines.append([method, *cells, known, f"{_percent(own, 'kept')} %", error, f"{seconds:.2f}"])
    return format_grid(head, lines)


def _format_lenses(rows: Sequence[Row]) -> str:
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = []
    for lens in LENSES:
        parts = [
            [row for row in rows if (row["lens"], row["method"]) == (lens, method)] for method in methods
        ]
        lines.append([lens, *(_percent(part, "within_3") for part in parts)])
    return format_grid(["% within 3 %, by lens", *methods], lines)


def _percent(rows: Iterable[Row], name: str) -> str:
    values = [row[name] for row in rows]
    return f"{100 * sum(values) / len(values):.1f}" if values else "–"
