"""The evaluation index of Objaverse as released with RayRoPE.

Files are `objaverse_index_test_context2_{all,radial,spherical}.json`. A file is `{uid: {"context_view_files": […],
"target_view_files": […], "partition": "000-155", "num_angles": 8, "total_views": 24, "include_orig_target": …,
"include_radial_target": …}}`. Ours has the same first three fields, six target sets instead of three, and a digest
of the cameras; `partition` is a folder of Objaverse there.
"""

import json
from pathlib import Path
from typing import Any

from g_ray.runtime.files import write_atomically
from g_ray_lab.datasets.objaverse import DIRECTIONS, NAMES, NATIVE, format_image_name
from g_ray_lab.sources.object_index import ContextPairs, Entry, ObjectIndex

PREFIX = "objaverse_index_test_context2_"

RELEASED = {"mixed": "all", "fov_dolly": "radial", "novel": "spherical"}
"""Our protocols and the ends of their file names."""

NATIVE_VIEWS = {format_image_name(direction, NATIVE): direction for direction in range(DIRECTIONS)}


def read_released_contexts(path: Path) -> ContextPairs:
    """Read which two directions a released index gives for each object."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return {uid: _parse_contexts(entry["context_view_files"]) for uid, entry in document.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{path}: not an index of objects with two native context views each "
            f"({type(error).__name__}: {str(error)[:80]})"
        ) from None


def _parse_contexts(names: list[str]) -> tuple[int, int]:
    first, second = (NATIVE_VIEWS[name] for name in names)
    if first == second:
        raise ValueError(f"the same view twice: {names[0]}")
    return first, second


def write_released(indices: dict[str, ObjectIndex], out: Path) -> list[Path]:
    """Write the three released files of our protocols of the same objects."""
    paths = []
    for protocol, ending in RELEASED.items():
        document = {uid: _format_entry(entry, protocol) for uid, entry in indices[protocol].entries.items()}
        paths.append(out / f"{PREFIX}{ending}.json")
        write_atomically(paths[-1], json.dumps(document, indent=2) + "\n")
    return paths


def _format_entry(entry: Entry, protocol: str) -> dict[str, Any]:
    """Format an object as released: targets in the order of their names."""
    return {
        "context_view_files": list(entry.contexts),
        "target_view_files": sorted(entry.targets),
        "partition": "test",
        "num_angles": DIRECTIONS,
        "total_views": len(NAMES),
        "include_orig_target": protocol in ("mixed", "novel"),
        "include_radial_target": protocol in ("mixed", "fov_dolly"),
    }
