"""Score classical and learned stereo on the same poses of real photographs: kitchen, castle, living room, demo room.

    python benchmarks/stereo.py --data FOLDER --cache FOLDER [--weights FILE] [--scenes kitchen-8 sceaux …]

FOLDER has 7scenes_redkitchen100, sceaux and slambook2_rgbd. Poses are computed once and kept in the cache. Errors are
relative, after one scale per scene; *right* is the share of all pixels with known depth that are within 3 %. *unbent*:
the same after a scale and a constant of inverse depth for each view, fitted to the truth, which removes what errors of
poses do to a view as a whole; *points* are the triangulated features of the same poses, compared at their pixels.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from g_ray.cameras import Pinhole
from g_ray.demo.demo_scene import photograph_room
from g_ray.media.view import View
from g_ray.predictors.predictor import SceneInput
from g_ray.predictors.stereo_predictor import collect_sparse_points
from g_ray.predictors.sweep_weights import STEREO_WEIGHTS, load_sweep_network
from g_ray.predictors.view_placement import place_views
from g_ray.runtime.files import write_json
from g_ray.runtime.provenance import collect_provenance
from g_ray.sfm import SfMOptions
from g_ray.stereo import (
    DepthMap,
    SparsePoints,
    StereoOptions,
    SweepNetwork,
    Uncertainty,
    choose_range,
    choose_sources,
    estimate_depths,
)
from g_ray.stereo.learned_depth import LearnedStereo
from g_ray_lab.datasets.evaluation_scene import Framing
from g_ray_lab.datasets.real_small import KITCHEN, SCEAUX, read_real_small

SIDE = 480
RIGHT = 0.03
REFINED = "-refined"
"""End of the names of scenes whose given poses are adjusted to the photographs."""
FIT_ROUNDS = 20
SKY = 6
"""The castle's sky is in the uppermost of so many parts of the photographs."""


@dataclass
class PosedPhotographs:
    """What stereo is given, and the true distances along the rays, 0 where they are not known."""

    views: list[View]
    points: SparsePoints | None
    uncertainty: Uncertainty | None
    truth: list[Tensor]


def load_kitchen(data: Path, frames: Sequence[int]) -> tuple[list[View], list[Tensor]]:
    """Load frames without poses, and Kinect depth moved to the color camera."""
    return load_real(data, KITCHEN, frames, keep_poses=False)


def load_real(
    data: Path, name: str, frames: Sequence[int] | None, keep_poses: bool
) -> tuple[list[View], list[Tensor]]:
    scene = read_real_small(data, name)
    views, truth = [], []
    for number in frames or range(len(scene.frames)):
        frame = scene.frames[number]
        size = frame.camera.width, frame.camera.height
        full = frame.load_view(Framing.whole(frame.camera, *size))
        views.append(
            View(f"{number:03d}.png", frame.camera.to(torch.float64), frame.get_pose(), image=full.image)
        )
        small = views[-1].limit_size(SIDE).camera
        there = frame.load_view(Framing.whole(frame.camera, small.width, small.height))
        truth.append(torch.where(there.valid, there.ray_depth, 0.0))
    # One lens, one object: these were taken by one camera.
    views = [replace(view, camera=views[0].camera) for view in views]
    return [view if keep_poses else replace(view, pose=None) for view in views], truth


def load_living_room(data: Path) -> tuple[list[View], list[Tensor]]:
    """Load five RGB-D frames without poses."""
    folder = data / "slambook2_rgbd" / "ch5" / "rgbd"
    camera = Pinhole.make(640, 480, fx=518.0, fy=519.0, cx=325.5, cy=253.5, dtype=torch.float64)
    views, truth = [], []
    for number in range(1, 6):
        pixels = np.asarray(Image.open(folder / "color" / f"{number}.png").convert("RGB"))
        image = torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 255
        views.append(View(f"{number}.png", camera, image=image))
        z = torch.from_numpy(np.asarray(Image.open(folder / "depth" / f"{number}.pgm")).astype(np.float32))
        rays = camera.unproject_grid()[0].float()
        distance = (z / 1000 / rays[..., 2])[None, None]
        small = views[-1].limit_size(SIDE).size
        truth.append(torch.nn.functional.interpolate(distance, small, mode="nearest")[0, 0])
    return views, truth


def load_demo() -> tuple[list[View], list[Tensor]]:
    """Render the demo's room through a pinhole, three fisheyes and a tele lens, with exact poses."""
    scene = photograph_room()
    views = [
        replace(view, image=image, depth=None) for view, image in zip(scene.truth, scene.images, strict=True)
    ]
    return views, [view.load_ray_depth() for view in scene.truth]


def list_scenes(data: Path) -> dict[str, Callable[[], tuple[list[View], list[Tensor]]]]:
    return {
        "kitchen-12": lambda: load_kitchen(data, range(12)),
        "kitchen-8": lambda: load_kitchen(data, range(0, 100, 8)),
        "kitchen-12-refined": lambda: load_real(data, KITCHEN, range(12), keep_poses=True),
        "kitchen-8-refined": lambda: load_real(data, KITCHEN, range(0, 100, 8), keep_poses=True),
        "living-room": lambda: load_living_room(data),
        "sceaux": lambda: load_real(data, SCEAUX, None, keep_poses=True),
        "demo": load_demo,
    }


def place(name: str, load: Callable[[], tuple[list[View], list[Tensor]]], cache: Path) -> PosedPhotographs:
    """Find poses and points as `g-ray reconstruct` does, or read them from the cache."""
    path = cache / f"{name}.pt"
    if path.is_file():
        return torch.load(path, weights_only=False)
    views, truth = load()
    if all(view.pose is not None for view in views) and not name.endswith(REFINED):
        small = [view.limit_size(SIDE) for view in views]
        small = [replace(view, image=view.load_image()) for view in small]
        points = None if name == "demo" else collect_true_points(small, truth)
        found = PosedPhotographs(small, points, None, truth)
    else:
        placed = place_views(SceneInput(views), SfMOptions(), adjusts=name.endswith(REFINED))
        indices = list(placed.sparse.registered)
        small = [replace(views[i], pose=placed.sparse.poses[i]).limit_size(SIDE) for i in indices]
        small = [replace(view, image=view.load_image()) for view in small]
        points = collect_sparse_points(placed.sparse, indices)
        found = PosedPhotographs(
            small, points, placed.measure_uncertainty(small), [truth[i] for i in indices]
        )
    cache.mkdir(parents=True, exist_ok=True)
    torch.save(found, path)
    return found


def collect_true_points(views: Sequence[View], truth: Sequence[Tensor]) -> SparsePoints:
    """Collect the points of structure from motion that are the truth, and which view saw them."""
    positions = []
    for view, distance in zip(views, truth, strict=True):
        rays = view.camera.to(torch.float32).unproject_grid()[0]
        positions.append(view.get_pose().to(torch.float32).apply((rays * distance[..., None])[distance > 0]))
    return SparsePoints(torch.cat(positions))


def estimate_unchecked(
    scene: PosedPhotographs, network: SweepNetwork, options: StereoOptions
) -> list[DepthMap]:
    """Estimate every pixel by the network alone."""
    learned = LearnedStereo.prepare(network, scene.views)
    depths = []
    for index, sources in enumerate(choose_sources(scene.views, scene.points, options, scene.uncertainty)):
        view = scene.views[index]
        near, far = choose_range(scene.views, scene.points, index, options)
        found = learned.estimate(index, sources, near, far, view.size)
        everywhere = torch.ones(view.size, dtype=torch.bool)
        depths.append(DepthMap(1 / found.inverse, found.confidence, everywhere))
    return depths


def score_points(scene: PosedPhotographs) -> dict[str, float]:
    """Score the distances of triangulated features where flat surfaces are known."""
    found, known = [], []
    if scene.points is None or scene.points.visible is None:
        return {}
    for view, distance, visible in zip(scene.views, scene.truth, scene.points.visible, strict=True):
        local = view.get_pose().to(torch.float64).inverse().apply(scene.points.positions[visible].double())
        pixels, _ = view.camera.to(torch.float64).project(local)
        height, width = view.size
        column, row = pixels[:, 0].long().clamp(0, width - 1), pixels[:, 1].long().clamp(0, height - 1)
        # Next to an edge the sensor may have seen another surface.
        around = torch.nn.functional.unfold(distance[None, None], 5, padding=2)[0].unflatten(1, view.size)
        flat = around.amax(0) < 1.03 * around.amin(0)
        at = flat[row, column]
        found.append(local.norm(dim=-1)[at].float())
        known.append(distance[row, column][at])
    distance, truth = torch.cat(found), torch.cat(known)
    error = (distance * (truth / distance).median() / truth - 1).abs()
    return {
        "error": float(error.mean()),
        "right": float((error <= RIGHT).float().mean()),
        "count": len(error),
    }


def unbend(found: Tensor, truth: Tensor, kept: Tensor) -> Tensor:
    """Return distances of a view after the scale and the constant of inverse depth that fit the truth best."""
    if int(kept.sum()) < 10:
        return found
    inverse, wanted = 1 / found[kept].double(), 1 / truth[kept].double()
    weight = torch.ones_like(wanted)
    matrix = torch.stack([inverse, torch.ones_like(inverse)], 1)
    fit = torch.zeros(2, dtype=torch.float64)
    for _ in range(FIT_ROUNDS):  # least absolute relative errors
        share = (weight / wanted.square())[:, None]
        fit = torch.linalg.solve(matrix.mT @ (share * matrix), matrix.mT @ (share[:, 0] * wanted))
        weight = 1 / ((matrix @ fit) / wanted - 1).abs().clamp_min(1e-3)
    bent = (fit[0] / found.double().clamp_min(1e-12) + fit[1]).clamp_min(1e-6)
    return torch.where(found > 0, 1 / bent, 0.0).float()


def score(scene: PosedPhotographs, depths: Sequence[DepthMap]) -> dict[str, object]:
    """Score confirmed depths, and those with the unconfirmed ones."""
    truth = torch.cat([depth.flatten() for depth in scene.truth])
    found, valid, merged, sure = (
        torch.cat([part.flatten() for part in parts])
        for parts in zip(
            *(
                (depth.ray_depth, depth.valid, depth.merge_candidates().ray_depth, depth.confidence)
                for depth in depths
            ),
            strict=True,
        )
    )
    known = truth > 0
    scale = (truth / found)[known & valid].median()
    error = (merged * scale / truth - 1).abs()
    straight = [
        unbend(depth.merge_candidates().ray_depth, true, (true > 0) & depth.valid)
        for depth, true in zip(depths, scene.truth, strict=True)
    ]
    left = (torch.cat([part.flatten() for part in straight]) / truth - 1).abs()
    row: dict[str, object] = {}
    for title, kept in (("confirmed", valid), ("with unconfirmed", merged > 0)):
        at = known & kept
        sky = [
            depth.merge_candidates().ray_depth if title != "confirmed" else depth.ray_depth
            for depth in depths
        ]
        row[title] = {
            "error": float(error[at].mean()),
            "kept": float(at.sum() / known.sum()),
            "kept of all": float(kept.float().mean()),
            "right": float((error[at] <= RIGHT).sum() / known.sum()),
            "right of kept": float((error[at] <= RIGHT).float().mean()),
            "error, unbent": float(left[at].mean()),
            "right, unbent": float((left[at] <= RIGHT).sum() / known.sum()),
            "top sixth": float(
                np.mean([float((part[: len(part) // SKY] > 0).float().mean()) for part in sky])
            ),
        }
    extra = known & (merged > 0) & ~valid
    if bool(extra.any()):
        row["unconfirmed alone"] = {
            "error": float(error[extra].mean()),
            "right": float((error[extra] <= RIGHT).float().mean()),
        }
    expected = torch.cat(
        [
            torch.zeros_like(d.ray_depth).flatten()
            if d.expected_error is None
            else d.expected_error.flatten()
            for d in depths
        ]
    )
    row["true / expected"] = [
        float(error[at].median() / expected[at].median())
        for low, high in ((0, 0.005), (0.005, 0.01), (0.01, 0.02), (0.02, 0.05), (0.05, 0.2))
        if int((at := known & valid & (expected > low) & (expected <= high)).sum()) > 500
    ]
    row["confidence"] = [
        [
            round(float(sure[at].mean()), 2),
            round(float((error[at] <= RIGHT).float().mean()), 2),
            int(at.sum()),
        ]
        for low in np.arange(0, 1, 0.1)
        if int((at := known & (merged > 0) & (sure > low) & (sure <= low + 0.1)).sum()) > 500
    ]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--weights", type=Path, default=Path(STEREO_WEIGHTS))
    parser.add_argument("--scenes", nargs="+")
    parser.add_argument("--methods", nargs="*", default=["classical", "learned", "unchecked"])
    parser.add_argument("--json", type=Path)
    settings = parser.parse_args()
    torch.set_num_threads(1)
    network, options = load_sweep_network(settings.weights), StereoOptions(long_side=SIDE)
    scenes, rows = list_scenes(settings.data), []
    for name in settings.scenes or scenes:
        scene = place(name, scenes[name], settings.cache)
        points = score_points(scene)
        print(f"{name}: {len(scene.views)} views, points {points}", flush=True)
        for method in settings.methods:
            start = time.process_time()
            if method == "unchecked":
                depths = estimate_unchecked(scene, network, options)
            else:
                depths = estimate_depths(
                    scene.views, scene.points, options,
                    uncertainty=scene.uncertainty, network=network if method == "learned" else None,
                )  # fmt: skip
            seconds = (time.process_time() - start) / len(scene.views)
            row = {
                "scene": name,
                "method": method,
                "cpu_s": seconds,
                "points": points,
                **score(scene, depths),
            }
            rows.append(row)
            print(format_row(row), flush=True)
    if settings.json:
        write_json(settings.json, {"provenance": collect_provenance(), "rows": rows}, indent=2)


def format_row(row: dict) -> str:
    cells = [f"{row['scene']:12} {row['method']:10} {row['cpu_s']:5.2f} s"]
    for title in ("confirmed", "with unconfirmed"):
        part = row[title]
        cells.append(
            f"{title}: error {part['error']:.4f} kept {part['kept']:.3f} right {part['right']:.3f} "
            f"(of kept {part['right of kept']:.4f}; "
            f"of all pixels {part['kept of all']:.3f}, top {part['top sixth']:.3f}; "
            f"unbent error {part['error, unbent']:.4f} right {part['right, unbent']:.3f})"
        )
        if row["method"] != "learned":
            break
    extra = [
        f"{name}: {row[name]}"
        for name in ("unconfirmed alone", "true / expected", "confidence")
        if row.get(name)
    ]
    return "\n    ".join([*cells, *extra])


if __name__ == "__main__":
    main()
