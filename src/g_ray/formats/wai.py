"""Read scenes in MapAnything's WAI layout.

FOLDER/scene_meta.json       frames with `transform_matrix` (world_from_cam, OpenCV axes), one camera or one per frame
FOLDER/images/…              photographs
FOLDER/depth/…, rendered_depth/…            z-depth as EXR of half floats, in meters; 0 is none
FOLDER/covisibility/v0/pairwise_covisibility--NxN.npy      share of view i that view j sees, in the order of frames

`frame_modalities` holds the key under which a frame names its depth. Depth that a network predicted (`pred_depth`) is
used only if its modality is named. Principal points count from the top-left corner here, as COLMAP's and nerfstudio's,
where most of these files come from; MapAnything's own loaders put pixel centers at whole numbers.
"""

from pathlib import Path
from typing import Any

from g_ray.formats.frames import Axes, build_scene, get_frames, read_document
from g_ray.formats.posed_scene import PosedScene, find_covisibility_file, resolve_inside
from g_ray.media.depth import DepthFile

SCENE_META = "scene_meta.json"
DEPTHS = ("depth", "rendered_depth")
"""Modalities that are true depth, the first that is there."""
COVISIBILITY = "pairwise_covisibility"
AXES: dict[str, Axes] = {"opencv": "opencv", "opengl": "opengl"}


def is_wai(folder: Path) -> bool:
    """Return whether a folder has a scene_meta.json."""
    return (folder / SCENE_META).is_file()


def read_wai(folder: Path, check: bool = True, modality: str | None = None) -> PosedScene:
    """Read the scene of a folder; ValueError, in one line with the frame, if anything is wrong.

    `modality` names the depth to take, e.g. "pred_depth/mvsanywhere". Without `check` photographs are not opened.
    """
    path = folder / SCENE_META
    document = read_document(path)
    frames = get_frames(path, document)
    convention = document.get("camera_convention", "opencv")
    if convention not in AXES:
        raise ValueError(
            f"{path}: camera_convention {convention!r} is not read here; it can be opencv or opengl"
        )
    key = _find_depth_key(path, document, frames, modality)
    return build_scene(
        path,
        "WAI",
        document,
        frames,
        AXES[convention],
        lambda frame: _find_depth(folder, frame, key),
        check=check,
        notes=_collect_notes(document, key),
        covisibility=_find_covisibility(folder, document),
    )


def _find_depth_key(
    path: Path, document: dict[str, Any], frames: list[dict[str, Any]], modality: str | None
) -> str | None:
    """Return the key under which frames name their depth."""
    known = _find_modalities(document)
    if modality is not None:
        if modality not in known:
            there = ", ".join(name for name in known if "depth" in name) or "no depth"
            raise ValueError(f"{path}: no modality {modality!r}; it has {there}")
        return known[modality]
    named = [known[name] for name in DEPTHS if name in known]
    unnamed = [name for name in DEPTHS if any(name in frame for frame in frames)]
    return next(iter([*named, *unnamed]), None)


def _find_modalities(document: dict[str, Any]) -> dict[str, str]:
    """Return the frame key of each modality, nested ones as "pred_depth/mvsanywhere"."""
    modalities: dict[str, str] = {}

    def visit(name: str, entry: Any) -> None:
        if not isinstance(entry, dict):
            return
        if isinstance(entry.get("frame_key"), str):
            modalities[name] = entry["frame_key"]
            return
        for part, inner in entry.items():
            visit(f"{name}/{part}" if name else part, inner)

    visit("", document.get("frame_modalities"))
    return modalities


def _find_depth(folder: Path, frame: dict[str, Any], key: str | None) -> DepthFile | None:
    name = None if key is None else frame.get(key)
    if name is None:
        return None
    if not isinstance(name, str):
        raise ValueError(f"{key} is {name!r}, not a path")
    return DepthFile(resolve_inside(folder, name))


def _find_covisibility(folder: Path, document: dict[str, Any]) -> Path | None:
    modalities = document.get("scene_modalities")
    entry = modalities.get(COVISIBILITY) if isinstance(modalities, dict) else None
    name = entry.get("scene_key") if isinstance(entry, dict) else None
    return resolve_inside(folder, name) if isinstance(name, str) else find_covisibility_file(folder)


def _collect_notes(document: dict[str, Any], key: str | None) -> tuple[str, ...]:
    """Say which of several depths is used."""
    others = [name for name, k in _find_modalities(document).items() if "depth" in name and k != key]
    if not others:
        return ()
    return (f"{SCENE_META}: depth is {key or 'none'}; not used: {', '.join(others)}",)
