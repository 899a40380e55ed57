"""Score textured meshes of rendered rooms and scanned objects: surface against the truth, texture at held-out places.

Every second photograph is reconstructed with its true camera and pose; the others are held out.

- **Surface**: precision is the share of points drawn on the mesh that are within `REACH` of the true surface; recall
  the share of true points, at pixels that have a depth, that are within it of the mesh. The reference is the same
  Poisson surface through true points at the same pixels.
- **Texture**: PSNR at held-out photographs, beside that of the best of the photographs warped there with the true
  depth, at the pixels that it sees and that show the mesh.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.opencv_fisheye import OpenCVFisheye
from g_ray.cameras.pinhole import Pinhole
from g_ray.export.mesh_export import orient_points
from g_ray.geometry.pose import Pose
from g_ray.media.view import View
from g_ray.mesh.depth_fusion import DepthView
from g_ray.mesh.mesh_building import MeshSettings, build_mesh, build_surface, render_picture
from g_ray.mesh.rasterizer import render_depth, sample_map
from g_ray.mesh.surface_mesh import SurfaceMesh
from g_ray.predictors.predictor import SceneInput
from g_ray.predictors.stereo_predictor import StereoPredictor
from g_ray.reconstruction.inputs import KnownGeometry
from g_ray.reconstruction.reconstruct import reconstruct_views
from g_ray.runtime.files import write_atomically
from g_ray.stereo.stereo_options import StereoOptions
from g_ray_lab.bench.verdict_cases import photograph_room
from g_ray_lab.meshes.mesh_files import read_meshes, scale_to_unit_size
from g_ray_lab.meshes.textured_scene import MeshScene
from g_ray_lab.metrics.point_cloud import build_tree, find_nearest, sample_triangles

REACH = 0.01
"""Distance at which a point counts as right, in median distances of the surface from the cameras."""
SAMPLES = 100_000
SIDE = 320
"""Long side of photographs and of depth, in pixels."""
VISIBLE = 0.02
"""Relative distance by which a warped point may lie behind what its photograph sees."""
OBJECT_LENSES = {
    "pinhole": Pinhole.make(SIDE, 240, fx=420.0, fy=420.0, cx=160.0, cy=120.0),
    "fisheye": OpenCVFisheye.make(SIDE, 240, fx=132.0, fy=132.0, cx=160.0, cy=120.0, k1=0.02, k2=-0.003),
}


@dataclass(frozen=True)
class Subject:
    """Photographs of one scene with true cameras, poses and depth, which is 0 beside an object."""

    name: str
    photographs: Callable[[], Sequence[View]]


def list_subjects(objects: Path | None) -> Iterator[Subject]:
    """Yield a room through a pinhole and a fisheye and, with a folder of meshes, two scanned objects."""
    for lens in ("pinhole", "fisheye"):
        yield Subject(f"room 1, {lens}", partial(photograph_room, 1, lens, 0.2, 11))
    files = [] if objects is None else sorted(objects.glob("*.npz"))
    for number, path in enumerate(files[:: max(1, len(files) // 2)][:2]):
        lens = tuple(OBJECT_LENSES)[number % 2]
        yield Subject(f"{path.stem[:24]}, {lens}", partial(photograph_object, path, lens))


def photograph_object(path: Path, lens: str) -> list[View]:
    """Render an object of unit size from 13 places above it, 9° apart."""
    scene = MeshScene(scale_to_unit_size(read_meshes(path)))
    camera, views = OBJECT_LENSES[lens], []
    distance = 2.2 if lens == "pinhole" else 1.1
    for number in range(13):
        turn, rise = math.radians(9.0 * number), 0.6 + 0.15 * math.sin(number)
        across = distance * math.cos(rise)
        eye = torch.tensor([across * math.cos(turn), across * math.sin(turn), distance * math.sin(rise)])
        pose = Pose.look_at(eye, torch.zeros(3), down=torch.tensor([0.0, 0.0, -1.0]))
        seen = scene.render(camera, pose, antialias=3)
        views.append(
            View("", camera, pose, "rendered", seen.rgb.float() / 255, seen.mask, seen.ray_depth.float())
        )
    return views


def benchmark_meshes(out: Path, objects: Path | None, progress: Callable[[str], None]) -> None:
    """Score the subjects that `out` does not have yet, and write the table."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "rows.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    done = {row["name"] for row in rows}
    for subject in list_subjects(objects):
        if subject.name in done:
            continue
        row = score_subject(subject)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        rows.append(row)
        progress(format_row(row))
    write_atomically(out / "table.md", "\n".join([*HEAD, *map(format_row, rows)]) + "\n")


HEAD = (
    "| scene | with depth | F-score | true points | chamfer | true points | PSNR | best warp | CPU s a photograph |",
    "|---|---|---|---|---|---|---|---|---|",
)


def format_row(row: dict[str, Any]) -> str:
    """Format a line of the table."""
    surface, reference = row["surface"], row["reference"]
    cells = (
        row["name"],
        f"{100 * row['share']:.0f} %",
        *(f"{100 * part['f_score']:.1f} %" for part in (surface, reference)),
        *(f"{100 * part['chamfer']:.2f} %" for part in (surface, reference)),
        f"{row['psnr']:.1f}",
        f"{row['warp_psnr']:.1f}",
        f"{row['cpu_s']:.1f}",
    )
    return "| " + " | ".join(cells) + " |"


def score_subject(subject: Subject) -> dict[str, Any]:
    """Reconstruct every second photograph, build the mesh and score it."""
    views = [replace(view, name=f"v{number:02d}.png") for number, view in enumerate(subject.photographs())]
    used, held_out = views[::2], views[1::2]
    given = [replace(view, pose=None, depth=None) for view in used]
    known = KnownGeometry(poses=[view.get_pose() for view in used], metric=True)
    predictor = StereoPredictor(stereo=StereoOptions(long_side=SIDE))
    result = reconstruct_views(SceneInput(given), predictor, known=known)
    assert result.cloud is not None
    placed = {view.name: view for view in result.views}
    depths = [
        DepthView(view.camera, view.pose, view.ray_depth, view.valid & (view.ray_depth > 0))
        for view in (placed[view.name] for view in used)
    ]
    start = time.process_time()
    settings = MeshSettings(texture_size=2048)
    mesh = build_mesh(depths, used, orient_points(result.cloud, depths), settings).mesh
    cpu_s = (time.process_time() - start) / len(used)
    true_depths = [_give_truth(depth, view) for depth, view in zip(depths, used, strict=True)]
    reference = build_surface(true_depths, orient_points(None, true_depths), settings)
    size = float(torch.cat([depth.ray_depth[depth.valid] for depth in true_depths]).median())
    surface = _list_surface(views)
    known_points = np.concatenate([depth.list_points().numpy() for depth in true_depths])
    seen = sum(int((view.load_ray_depth() > 0).sum()) for view in used)
    psnr, warp_psnr = score_texture(mesh, used, held_out)
    return {
        "name": subject.name,
        "share": sum(int(depth.valid.sum()) for depth in depths) / seen,
        "surface": score_surface(mesh, surface, known_points, size),
        "reference": score_surface(reference, surface, known_points, size),
        "psnr": psnr,
        "warp_psnr": warp_psnr,
        "cpu_s": cpu_s,
        "faces": len(mesh.faces),
    }


def _give_truth(depth: DepthView, view: View) -> DepthView:
    """Return the true depth at the pixels that have one."""
    exact = view.load_ray_depth()
    return replace(depth, ray_depth=exact, valid=depth.valid & (exact > 0))


def _list_surface(views: Sequence[View]) -> Float[np.ndarray, "point 3"]:
    """List the true points that any photograph sees, also the held-out ones."""
    parts = []
    for view in views:
        depth = view.load_ray_depth()
        parts.append(DepthView(view.camera, view.get_pose(), depth, depth > 0).list_points().numpy())
    return np.concatenate(parts)


def score_surface(
    mesh: SurfaceMesh,
    surface: Float[np.ndarray, "point 3"],
    known: Float[np.ndarray, "known 3"],
    size: float,
) -> dict[str, float]:
    """Score a mesh against the true surface, and against the true points where depth is known; lengths over `size`."""
    drawn = sample_triangles(mesh.vertices[mesh.faces], SAMPLES)
    known = known[:: max(1, len(known) // SAMPLES)]
    off, _ = find_nearest(build_tree(surface), drawn)
    missing, _ = find_nearest(build_tree(drawn), known)
    precision, recall = (float((part <= REACH * size).mean()) for part in (off, missing))
    return {
        "precision": precision,
        "recall": recall,
        "f_score": 2 * precision * recall / max(precision + recall, 1e-9),
        "chamfer": float(off.mean() + missing.mean()) / 2 / size,
    }


def score_texture(mesh: SurfaceMesh, used: Sequence[View], held_out: Sequence[View]) -> tuple[float, float]:
    """Return the mean PSNR of the mesh at held-out photographs, and that of the best photograph warped there."""
    scores = []
    for view in held_out:
        truth = view.load_image().movedim(0, -1)
        shown = render_depth(mesh, view.camera.to(torch.float32), view.get_pose()).distance.isfinite()
        shown = shown & (view.load_ray_depth() > 0)
        picture = torch.from_numpy(render_picture(mesh, view, SIDE)).float() / 255
        warps = [(warp, seen & shown) for warp, seen in (_warp(view, other) for other in used)]
        best, where = max(warps, key=lambda one: _measure_psnr(one[0], truth, one[1]))
        scores.append((_measure_psnr(picture, truth, where), _measure_psnr(best, truth, where)))
    psnr, warp = np.mean(scores, axis=0)
    return float(psnr), float(warp)


def _measure_psnr(picture: Tensor, truth: Tensor, where: Bool[Tensor, "h w"]) -> float:
    if int(where.sum()) < where.numel() // 20:
        return -math.inf  # a photograph that sees next to nothing of it
    return -10 * math.log10(max(float((picture - truth)[where].square().mean()), 1e-10))


def _warp(view: View, other: View) -> tuple[Float[Tensor, "h w 3"], Bool[Tensor, "h w"]]:
    """Fetch the colors of another photograph by the true depth of a view; and where it sees the same point."""
    depth = view.load_ray_depth()
    rays, valid = view.camera.to(torch.float64).unproject_grid()
    points = view.get_pose().to(torch.float64).apply(rays * depth[..., None].double())
    local = other.get_pose().to(torch.float64).inverse().apply(points)
    pixels, imaged = other.camera.to(torch.float64).project(local)
    places = (pixels / torch.tensor([other.camera.width, other.camera.height])).float().reshape(-1, 2)
    places = places.nan_to_num(-1.0)
    color = sample_map(other.load_image(), places).reshape(*depth.shape, 3)
    there = sample_map(other.load_ray_depth()[None], places).reshape(depth.shape)
    distance = local.norm(dim=-1).float()
    inside = ((places > 0) & (places < 1)).all(-1).reshape(depth.shape)
    same = (there - distance).abs() <= VISIBLE * distance
    return color, inside & imaged & valid & (depth > 0) & same
