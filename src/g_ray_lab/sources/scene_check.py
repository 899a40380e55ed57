"""Check a scene folder before training: its files, and pairs of views whose depth, poses and pictures must agree."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from g_ray.cameras.camera import Camera
from g_ray.formats import read_scene
from g_ray.formats.posed_scene import PosedScene
from g_ray.geometry.pose import Pose
from g_ray.media.depth import is_usable
from g_ray.media.images import read_photo
from g_ray.media.view import MaskFile, check_depth_size
from g_ray.rays.resample import resample
from g_ray_lab.sources.axes_check import MatchedViews, check_axes, match_images
from g_ray_lab.sources.covisibility import read_covisibility
from g_ray_lab.sources.depth_check import Reading, SampledDepth, check_depth
from g_ray_lab.sources.scenes_nvs import compute_view_distances

ALONG = (1, 4)
"""Frames between two views that follow each other in a video; poses that are read wrongly cannot spoil this choice."""
NEAR = (0.05, 0.15)
"""Ranks, as shares of all views, of views that are near by place and direction."""


def pick_evenly(items: Sequence[int], count: int) -> list[int]:
    """At most `count` of them, evenly."""
    if count <= 0 or len(items) <= count:
        return list(items)
    return [items[int(place)] for place in torch.linspace(0, len(items) - 1, count)]


def choose_view_pairs(poses: Pose, views: Sequence[int], count: int) -> list[tuple[int, int]]:
    """At most about `count` pairs of these views, no pair twice."""
    among = torch.tensor(list(views))
    local = Pose(poses.world_from_cam[among])
    pairs = []
    for place in pick_evenly(range(len(among)), max(1, count // (len(ALONG) + len(NEAR)))):
        order = compute_view_distances(local, place).argsort(stable=True).tolist()
        partners = [place + step for step in ALONG if place + step < len(among)]
        partners += [order[max(1, round(rank * len(order)))] for rank in NEAR if len(order) > 1]
        pairs += [(min(place, other), max(place, other)) for other in partners if other != place]
    return [(int(among[a]), int(among[b])) for a, b in dict.fromkeys(pairs)]


# Pairs of views: poses against depth and pictures.


MATCH_PX = 480
"""Long side of photographs that are matched."""
COLOR_PX = 160
"""Long side of photographs whose colors are compared: small enough to tolerate errors of a pixel or two."""
HARDLY = 0.02
"""If other views see less than this share of the points, there is no result."""
LITTLE = 0.3
"""If fewer of the visible points agree, something is wrong that no reading explains."""
SLIGHT = (0.9, 1.1)
"""A unit that is off by less is a matter of calibration."""

Message = tuple[Literal["error", "warning", "note"], str]


def find_contradiction(scene: PosedScene, with_depth: Sequence[int], pairs: int) -> Message | None:
    """Return a line if something is wrong or uncertain. Views that cannot be read are ignored."""
    if len(with_depth) > 1:
        return _check_depth(scene, choose_view_pairs(scene.poses, with_depth, pairs))
    there = [view for view, path in enumerate(scene.images) if path.is_file()]
    return _check_matches(scene, choose_view_pairs(scene.poses, there, pairs)) if len(there) > 1 else None


def _check_depth(scene: PosedScene, pairs: Sequence[tuple[int, int]]) -> Message | None:
    views = {view: _make_depth_view(scene, view) for view in {view for pair in pairs for view in pair}}
    both = [(a, b) for a, b in ((views[first], views[second]) for first, second in pairs) if a and b]
    if not both:
        return None
    report = check_depth(both)
    verdict = report.verdict(both[0][0].convention)
    if report.better is not None and report.better == Reading(factor=report.better.factor):
        slight = SLIGHT[0] < report.better.factor < SLIGHT[1]
        return "warning" if slight else "error", f"depth and poses are not in one unit: {verdict}"
    if report.better is not None:
        return "error", f"poses, depth and pictures contradict each other: {verdict}"
    if report.visible < HARDLY:
        return "warning", "hardly any point of a view is seen by another: poses or depth may be wrong"
    if report.agreeing < LITTLE:
        return "warning", f"only {verdict}: poses, calibration or depth are wrong, or things move"
    return None


def _check_matches(scene: PosedScene, pairs: Sequence[tuple[int, int]]) -> Message | None:
    photos = {view: _load_small(scene, view, MATCH_PX) for view in {view for pair in pairs for view in pair}}
    matched = []
    for first, second in pairs:
        one, other = photos[first], photos[second]
        if one is not None and other is not None:
            poses = Pose(scene.poses.world_from_cam[[first, second]])
            pixels = match_images(one[0], other[0])
            used = _find_used(scene, first, one[1], pixels[0]) & _find_used(
                scene, second, other[1], pixels[1]
            )
            matched.append(MatchedViews(pixels[:, used], (one[1], other[1]), poses))
    if not matched:
        return None
    report = check_axes(matched)
    if report.better is not None:
        return "error", f"poses and pictures contradict each other: {report.verdict}"
    return None if report.certain else ("note", f"camera axes are not confirmed: {report.verdict}")


def _make_depth_view(scene: PosedScene, view: int) -> SampledDepth | None:
    file, small = scene.depth[view], _load_small(scene, view, COLOR_PX)
    assert file is not None
    if small is None:
        return None
    try:
        depth = file.read()
        check_depth_size(file.path, depth, scene.cameras[view])
    except (ValueError, OSError):
        return None
    mask = _load_mask(scene, view)
    if mask is not None:
        depth = torch.where(_resize_mask(mask, *depth.shape), depth, 0.0)
    return SampledDepth.make(scene.cameras[view], scene.poses[view], file.convention, depth, small[0])


def _load_small(scene: PosedScene, view: int, longest: int) -> tuple[Float[Tensor, "3 h w"], Camera] | None:
    """Read a photograph at no more than the needed size, with its camera."""
    camera = scene.cameras[view]
    try:
        photo = scene.views[view].load_image()
    except (ValueError, OSError):
        return None
    scale = min(1.0, longest / max(camera.width, camera.height))
    width, height = (max(1, round(scale * size)) for size in (camera.width, camera.height))
    image, small = resample(photo, camera, width, height)
    return image.to(torch.float32), small


def _load_mask(scene: PosedScene, view: int) -> Bool[Tensor, "h w"] | None:
    """Read the mask of a view; None if it has none, or one that is reported as damaged."""
    try:
        return scene.views[view].load_mask()
    except (ValueError, OSError):
        return None


def _resize_mask(mask: Bool[Tensor, "h w"], height: int, width: int) -> Bool[Tensor, "rows columns"]:
    return torch.nn.functional.interpolate(mask[None, None].float(), (height, width))[0, 0] > 0.5


def _find_used(
    scene: PosedScene, view: int, camera: Camera, pixels: Float[Tensor, "match 2"]
) -> Bool[Tensor, "match"]:
    """Return which pixels of a reduced photograph its mask leaves."""
    mask = _load_mask(scene, view)
    if mask is None:
        return torch.ones(len(pixels), dtype=torch.bool)
    column, row = pixels.long().unbind(-1)
    return _resize_mask(mask, camera.height, camera.width)[row, column]


# The whole folder.


Level = Literal["error", "warning", "note"]
MOSTLY_HIDDEN = 0.8
"""A mask that hides more may be the wrong way round."""
NAMED = 3
"""Files of one kind of finding that are named one by one; the others are counted."""


@dataclass(frozen=True)
class Finding:
    """An error makes training fail or learn nonsense; a warning may be meant so."""

    level: Level
    file: Path
    text: str


@dataclass(frozen=True)
class SceneReport:
    folder: Path
    kind: str
    views: int
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> int:
        return sum(finding.level == "error" for finding in self.findings)


def check_scene(
    folder: Path,
    frames: int = 24,
    adapt: Callable[[PosedScene], PosedScene] = lambda scene: scene,
    modality: str | None = None,
) -> SceneReport:
    """Check a scene; the contents of files are read in `frames` views spread over it.

    `adapt` changes how depth is read; `modality`: see `read_wai`.
    """
    findings: list[Finding] = []
    try:
        scene = read_scene(folder, modality=modality)
    except (ValueError, OSError) as error:
        findings.append(_make_finding("error", folder, error))
        try:  # without its photographs, to find more than one mistake at a time
            scene = read_scene(folder, check=False, modality=modality)
        except (ValueError, OSError):
            return SceneReport(folder, "unknown", 0, tuple(findings))
    try:
        scene = adapt(scene)
    except (ValueError, OSError) as error:
        findings.append(_make_finding("error", folder, error))
    findings += [Finding("note", folder, note) for note in scene.notes]
    findings += [
        *_check_layout(scene),
        *_check_photos(scene, frames),
        *_check_depth_files(scene),
        *_check_masks(scene, frames),
        *_check_covisibility(scene),
    ]
    findings += _check_depth_maps(scene, frames)
    contradiction = find_contradiction(scene, _find_readable(scene), frames)
    if contradiction is not None:
        findings.append(Finding(contradiction[0], folder, contradiction[1]))
    return SceneReport(folder, scene.kind, len(scene), tuple(findings))


def _make_finding(level: Level, file: Path, error: object) -> Finding:
    """Messages of readers begin with the file that they are about."""
    text = " ".join(str(error).split())
    return Finding(level, file, text.removeprefix(f"{file}: ").removeprefix(f"{file} "))


def _check_layout(scene: PosedScene) -> Iterator[Finding]:
    if len(scene) < 2:
        yield Finding("error", scene.folder, "a single view: nothing to reconstruct from")
    elif float((scene.poses.translation - scene.poses.translation[0]).norm(dim=-1).max()) < 1e-9:
        yield Finding(
            "warning", scene.folder, "all views stand in one place: depth cannot be computed from them"
        )
    if not scene.depth:
        yield Finding("warning", scene.folder, "no depth: the scene cannot be trained on as it is")


def _check_depth_files(scene: PosedScene) -> Iterator[Finding]:
    without = [name for name, file in zip(scene.names, scene.depth or (), strict=False) if file is None]
    if without:
        yield Finding(
            "warning",
            scene.folder,
            f"no depth for {len(without)} of {len(scene)} views ({_abbreviate(without)})",
        )
    missing = [file.path for file in scene.depth if file is not None and not file.path.is_file()]
    for path in missing[:NAMED]:
        yield Finding("error", path, "no such depth map")
    if len(missing) > NAMED:
        yield Finding("error", scene.folder, f"{len(missing)} depth maps are missing in all")


def _check_masks(scene: PosedScene, frames: int) -> Iterator[Finding]:
    """Report masks that cannot be used, and how much the others hide."""
    hidden = []
    files = [view.mask for view in scene.views if isinstance(view.mask, MaskFile)]
    for file in (files[index] for index in pick_evenly(range(len(files)), frames)):
        try:
            hidden.append(1 - float(file.load().float().mean()))
        except (ValueError, OSError) as error:
            yield _make_finding("error", file.path, error)
    if hidden:
        level = "warning" if max(hidden) > MOSTLY_HIDDEN else "note"
        shares = f"{min(hidden):.0%} to {max(hidden):.0%} of the pixels"
        yield Finding(level, scene.folder, f"masks hide {shares} (zero: not used)")


def _check_depth_maps(scene: PosedScene, frames: int) -> Iterator[Finding]:
    """One finding of each kind with its first file, so that a mistake of the exporter is one line."""
    problems: dict[tuple[Level, str], list[Path]] = {}
    for view in pick_evenly(_find_readable(scene), frames):
        file = scene.depth[view]
        assert file is not None
        try:
            depth = file.read()
            check_depth_size(file.path, depth, scene.cameras[view])
        except (ValueError, OSError) as error:
            yield _make_finding("error", file.path, error)
            continue
        for level, text in _check_contents(depth, scene.cameras[view].width):
            problems.setdefault((level, text), []).append(file.path)
    for (level, text), paths in problems.items():
        more = f" (and {len(paths) - 1} more of {frames} that were read)" if len(paths) > 1 else ""
        yield Finding(level, paths[0], text + more)


def _check_contents(depth: Float[Tensor, "h w"], width: int) -> Iterator[tuple[Level, str]]:
    if not bool(torch.isfinite(depth).all()):
        yield "warning", "has numbers that are not finite: read as no depth"
    if bool((depth < 0).any()):
        yield "warning", "has negative numbers: read as no depth"
    if not bool(is_usable(depth).any()):
        yield "error", "no pixel with depth"
    if depth.shape[1] != width:
        yield (
            "warning",
            f"{depth.shape[1]} px wide, its photograph {width}: taken as the same image at another size",
        )


def _check_covisibility(scene: PosedScene) -> Iterator[Finding]:
    if scene.covisibility is None:
        return
    try:
        matrix = np.asarray(read_covisibility(scene.covisibility, len(scene)), dtype=np.float64)
    except (ValueError, OSError) as error:
        yield _make_finding("error", scene.covisibility, error)
        return
    if not np.isfinite(matrix).all() or matrix.min() < 0 or matrix.max() > 1:
        yield Finding("error", scene.covisibility, "shares are not all between 0 and 1; make it again")
    elif len(scene) > 1 and (matrix - np.diag(np.diag(matrix))).max() == 0:
        yield Finding("warning", scene.covisibility, "no view sees anything of another: no set can be drawn")


def _check_photos(scene: PosedScene, frames: int) -> Iterator[Finding]:
    """Report photographs that cannot be decoded; missing files and wrong sizes were reported before."""
    for view in pick_evenly([view for view, path in enumerate(scene.images) if path.is_file()], frames):
        try:
            read_photo(scene.images[view])
        except OSError as error:
            yield _make_finding("error", scene.images[view], error)


def _find_readable(scene: PosedScene) -> list[int]:
    """Views whose depth is on disk."""
    return [view for view, file in enumerate(scene.depth) if file is not None and file.path.is_file()]


def _abbreviate(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")
