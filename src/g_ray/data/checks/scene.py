"""What is wrong with a scene folder, before anybody trains on it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.data.checks.contradiction import find_contradiction
from g_ray.data.checks.view_pairs import pick_evenly
from g_ray.data.photos import read_photo
from g_ray.data.scenes import PosedScene, read_scene
from g_ray.data.scenes.covisibility import read_covisibility
from g_ray.formats.depth import is_usable
from g_ray.formats.scene import check_depth_size

Level = Literal["error", "warning", "note"]
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
    """Everything that can be said about a scene; contents of files are looked at in `frames` views spread over it.

    `adapt` changes what the format says about depth; `modality`: see `read_wai`.
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
    scene = adapt(scene)
    findings += [Finding("note", folder, note) for note in scene.notes]
    findings += [
        *_check_layout(scene),
        *_check_photos(scene, frames),
        *_check_depth_files(scene),
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
        yield Finding("warning", scene.folder, "all views stand in one place: depth cannot be told from them")
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
    """Whether photographs can be decoded; that they are there, and their size, is known by then."""
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
