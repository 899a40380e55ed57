"""nerfstudio's transforms.json: a global camera or one per frame, OpenGL axes (x right, y up, z backward).

`applied_transform` and `applied_scale` tell how nerfstudio has moved the world since COLMAP: frames have it in them
already, so poses are in the moved world and nothing is undone. Depth maps (`depth_file_path`) hold z-depth in units of
`depth_unit_scale_factor` metres, 0.001 if the file does not say. Masks, point clouds and all keys that this reader has
no use for are named in `PosedScene.notes`.
"""

from pathlib import Path
from typing import Any

from g_ray.formats.depth import DepthFile
from g_ray.formats.frames import DISTORTION, INTRINSICS, build_scene, get_frames, parse_number, read_document
from g_ray.formats.scene import PosedScene, find_covisibility_file, resolve_inside

TRANSFORMS = "transforms.json"
DEPTH_UNIT = "depth_unit_scale_factor"
MILLIMETRE = 1e-3
"""What nerfstudio takes depth to be in when nobody says."""
USED = {
    "camera_model",
    "frames",
    "file_path",
    "transform_matrix",
    "depth_file_path",
    DEPTH_UNIT,
    *INTRINSICS,
    *DISTORTION,
}
MOVED = {"applied_transform", "applied_scale"}


def read_nerfstudio(folder: Path, check: bool = True, name: str = TRANSFORMS) -> PosedScene:
    """ValueError, in one line with the frame, if anything is wrong; without `check` photographs are not looked at."""
    path = folder / name
    document = read_document(path)
    frames = sorted(get_frames(path, document), key=lambda frame: frame["file_path"])
    return build_scene(
        path,
        "nerfstudio",
        document,
        frames,
        "opengl",
        lambda frame: _find_depth(folder, {**document, **frame}),
        check=check,
        notes=_collect_notes(document, frames),
        covisibility=find_covisibility_file(folder),
    )


def _find_depth(folder: Path, settings: dict[str, Any]) -> DepthFile | None:
    name = settings.get("depth_file_path")
    if name is None:
        return None
    unit = parse_number(settings, DEPTH_UNIT) if DEPTH_UNIT in settings else MILLIMETRE
    if not isinstance(name, str) or unit <= 0:
        raise ValueError(
            f"depth_file_path {name!r} and {DEPTH_UNIT} {unit} must be a path and a positive number"
        )
    return DepthFile(resolve_inside(folder, name), "z", unit)


def _collect_notes(document: dict[str, Any], frames: list[dict[str, Any]]) -> tuple[str, ...]:
    keys = set(document).union(*(frame.keys() for frame in frames))
    notes = []
    if keys & MOVED:
        notes.append(f"{TRANSFORMS}: poses are in the world after {' and '.join(sorted(keys & MOVED))}")
    unused = sorted(keys - USED - MOVED)
    if unused:
        notes.append(f"{TRANSFORMS}: not used: {', '.join(unused)}")
    return tuple(notes)
