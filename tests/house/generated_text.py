"""Write the blocks of the README and the docs that repeat what the code already states.

A block stands between `<!-- generated: NAME -->` and `<!-- end of NAME -->`. `make generated` rewrites all of them;
`test_generated_text.py` fails if one is out of date.
"""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from g_ray.cameras import CAMERAS
from g_ray.capture.estimators import ESTIMATORS
from g_ray.coordinates import COORDINATES
from g_ray.encodings import CONDITIONINGS, ENCODINGS
from g_ray.formats import CALIBRATIONS
from g_ray.recipes import RECIPES

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks" / "results"

# The rows of the speed table: the name in the file, the name in the table. Bold rows use ray angles.
ENCODING_ROWS = {
    "rope": "grid RoPE",
    "gray": "**G-ray**",
    "gta": "GTA",
    "gta_gray": "**GTA + G-ray**",
    "prope": "PRoPE",
    "rayrope": "RayRoPE",
    "rayrope_gray": "**RayRoPE + G-ray**",
}


def format_registries() -> str:
    """Return the table of registries: what is chosen by name, where the names are defined, and the names."""
    rows: list[tuple[str, str, Mapping[str, Any]]] = [
        ("camera models", "CAMERAS` in `cameras/__init__.py", CAMERAS),
        ("coordinates", "COORDINATES` in `coordinates.py", COORDINATES),
        ("encodings", "ENCODINGS` in `encodings/__init__.py", ENCODINGS),
        ("input conditionings", "CONDITIONINGS` in `encodings/absolute.py", CONDITIONINGS),
        ("calibration sources", "CALIBRATIONS` in `formats/__init__.py", CALIBRATIONS),
        ("calibration estimators", "ESTIMATORS` in `capture/estimators/__init__.py", ESTIMATORS),
        ("recipes", "RECIPES` in `recipes/__init__.py", RECIPES),
    ]
    lines = ["| kind | registry in `src/g_ray` | names |", "|---|---|---|"]
    for kind, place, registry in rows:
        lines.append(f"| {kind} | `{place}` | {', '.join(f'`{name}`' for name in registry)} |")
    return "\n".join(lines)


def format_camera_parameters() -> str:
    """Return the parameters of every camera model, in their order."""
    lines = ["| `model` | class | `params` |", "|---|---|---|"]
    for name, camera in CAMERAS.items():
        lines.append(
            f"| `{name}` | `{camera.__module__}.{camera.__name__}` | {' '.join(camera.PARAMETERS)} |"
        )
    return "\n".join(lines)


def format_layers() -> str:
    """Return the import contract of pyproject.toml as a picture: a package imports only from lines below its own."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    (contract,) = tools["importlinter"]["contracts"]
    return "\n".join(["```text", *contract["layers"], "```"])


def format_speed(suffix: str = "") -> str:
    """Return the table of attention times and memory from the stored benchmark results."""
    few, many = (_read_rows(f"encodings_{name}{suffix}.json") for name in ("3x1024", "16x256"))
    lines = [
        "| | 3 views × 1024 tokens, batch 2: forward | forward + backward "
        "| 16 × 256, batch 1: forward | forward + backward | kept for backward at 16 views |",
        "|---|---|---|---|---|---|",
    ]
    for name, title in ENCODING_ROWS.items():
        times = [row[name][key] for row in (few, many) for key in ("forward", "forward_backward")]
        cells = " | ".join(f"{value:.2f}" for value in [*times, many[name]["saved"]])
        lines.append(f"| {title} | {cells} |")
    return "\n".join(lines)


def format_ray_speed() -> str:
    """Return the sentence about the time of a full ray map."""
    rows = _read_rows("rays.json")
    opencv, double, single = (
        f"{1000 * rows[name]['seconds']:.0f} ms" for name in ("opencv", "float64", "float32")
    )
    return (
        f"The full 1752×1168 unit-ray map of a four-coefficient fisheye takes {double} in float64 and {single} in "
        f"float32:\n{rows['float64']['ratio']:.1f} and {rows['float32']['ratio']:.1f} times as fast as "
        f"`cv2.fisheye.undistortPoints` on the same points ({opencv})."
    )


def _read_rows(file: str) -> dict[str, dict[str, float]]:
    return {row["name"]: row for row in json.loads((BENCHMARKS / file).read_text())["rows"]}


BLOCKS: dict[tuple[str, str], Callable[[], str]] = {
    ("README.md", "registries"): format_registries,
    ("CONTRIBUTING.md", "layers"): format_layers,
    ("docs/cameras-json.md", "camera parameters"): format_camera_parameters,
    ("docs/benchmarks.md", "speed"): format_speed,
    ("docs/benchmarks.md", "speed of the first run"): lambda: format_speed("_first"),
    ("docs/benchmarks.md", "ray maps"): format_ray_speed,
}


def replace_block(text: str, name: str, content: str) -> str:
    """Return the text with new content between the markers of that name; ValueError if there is not exactly one."""
    begin, end = f"<!-- generated: {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"expected exactly one block {begin} … {end}")
    return pattern.sub(lambda _: f"{begin}\n\n{content}\n\n{end}", text)


def main() -> None:
    for (file, name), make in BLOCKS.items():
        path = ROOT / file
        path.write_text(replace_block(path.read_text(), name, make()))


if __name__ == "__main__":
    main()
