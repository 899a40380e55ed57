"""Write the blocks of the README and the docs that repeat what the code already states.

A block stands between `<!-- generated: NAME -->` and `<!-- end of NAME -->`. `make generated` rewrites all of them;
`test_generated_text.py` fails if one is out of date.
"""

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

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


# What is chosen by name: the kind, and the module and name of the dict. If one is renamed, change its line.
REGISTRIES = {
    "camera models": "g_ray.cameras:CAMERAS",
    "coordinates": "g_ray.coordinates:COORDINATES",
    "encodings": "g_ray.encodings:ENCODINGS",
    "networks that are adapted": "g_ray.hosts:HOSTS",
    "input conditionings": "g_ray.nn.conditioning:CONDITIONINGS",
    "calibration sources": "g_ray.formats:CALIBRATIONS",
    "scene folders": "g_ray.formats:SCENES",
    "calibration estimators": "g_ray.calibration.estimators:ESTIMATORS",
    "reconstruction models": "g_ray.predictors:MODELS",
    "sources of metric scale": "g_ray.reconstruction.world:SCALE_SOURCES",
    "synthesis methods": "g_ray.models.lvsm_config:METHODS",
    "reconstruction methods": "g_ray.models.reconstruction_config:RECONSTRUCTION_METHODS",
    "training recipes": "g_ray_lab.recipes:RECIPES",
}

# Functions that convert a camera into another program's, and raise ValueError where that is not exact.
CAMERA_WRITERS = {
    "COLMAP": "g_ray.formats.colmap.colmap_cameras:camera_to_colmap",
    "nerfstudio": "g_ray.formats.frames:camera_to_frame",
}


def load(place: str) -> Any:
    """Return the object at `module:name`."""
    module, name = place.split(":")
    return getattr(import_module(module), name)


def load_registry(kind: str) -> Mapping[str, Any]:
    """Return the registry of that kind."""
    return load(REGISTRIES[kind])


def format_registries() -> str:
    """Return the table of registries: what is chosen by name, where the names are defined, and the names."""
    lines = ["| kind | registry | names |", "|---|---|---|"]
    for kind, place in REGISTRIES.items():
        names = ", ".join(f"`{entry}`" for entry in load_registry(kind))
        lines.append(f"| {kind} | `{place.split(':')[1]}` in `{find_definition(place)}` | {names} |")
    return "\n".join(lines)


def find_definition(place: str) -> Path:
    """Return the file, relative to the repository, that defines `module:name`."""
    module, name = place.split(":")
    file = Path(import_module(module).__file__ or "")
    files = sorted(file.parent.rglob("*.py")) if file.name == "__init__.py" else [file]
    (found,) = (path for path in files if re.search(rf"^{name}\b.*=", path.read_text(), re.MULTILINE))
    return found.relative_to(ROOT)


def format_recipes() -> str:
    """Return the recipes with the first sentence of their docstrings."""
    lines = ["| recipe | what it trains |", "|---|---|"]
    for name, recipe in load_registry("training recipes").items():
        lines.append(f"| `{name}` | {recipe.description} |")
    return "\n".join(lines)


def format_camera_parameters() -> str:
    """Return the parameters of every camera model, in their order."""
    lines = ["| `model` | class | `params` |", "|---|---|---|"]
    for name, camera in load_registry("camera models").items():
        lines.append(
            f"| `{name}` | `{camera.__module__}.{camera.__name__}` | {' '.join(camera.PARAMETERS)} |"
        )
    return "\n".join(lines)


def format_camera_exports() -> str:
    """Return the camera models that other programs get for each of ours."""
    lines = [f"| our camera | {' | '.join(CAMERA_WRITERS)} |", "|---|---|---|"]
    for name, camera in load_registry("camera models").items():
        cells = " | ".join(find_written_models(camera, load(place)) for place in CAMERA_WRITERS.values())
        lines.append(f"| `{name}` | {cells} |")
    return "\n".join(lines)


def find_written_models(camera: Any, convert: Callable[[Any], Any]) -> str:
    """Return the models into which a camera is converted, and the parameters that must be zero for it."""
    if camera.NAME == "equirectangular":
        plain = camera.panorama(64, 32, dtype=torch.float64)
    else:
        plain = camera.example(0)
    optional = [name for name in camera.PARAMETERS[4:] if name not in camera.DEFAULTS]
    places = {name: camera.PARAMETERS.index(name) for name in optional}
    models, lost = dict[str, None](), []
    for kept in (None, *optional):  # no distortion, then one parameter at a time
        params = plain.params.clone()
        for name, place in places.items():
            if name != kept:
                params[place] = 0.0
        try:
            written = convert(replace(plain, params=params, check=False))
        except ValueError:
            if kept is None:
                return "–"
            lost.append(kept)
        else:
            models[written["camera_model"] if isinstance(written, dict) else written[0]] = None
    return ", ".join(models) + (f" (without {' '.join(lost)})" if lost else "")


def format_downloads() -> str:
    """Return where evaluation datasets are downloaded, and under which license."""
    lines = ["| name | dataset | license | page |", "|---|---|---|---|"]
    for name, one in load("g_ray_lab.datasets.dataset_registry:DOWNLOADS").items():
        lines.append(f"| `{name}` | {one.title} | {one.license} | <{one.page}> |")
    return "\n".join(lines)


def format_datasets() -> str:
    """Return the readers of evaluation datasets, with the download that they read and the first paths of its layout."""
    downloads = load("g_ray_lab.datasets.dataset_registry:DOWNLOADS")
    lines = ["| reader | reads | download | depth | layout |", "|---|---|---|---|---|"]
    for name, one in load("g_ray_lab.datasets.dataset_registry:DATASETS").items():
        layout = "<br>".join(f"`{path}`" for path in downloads[one.download].layout[:3])
        lines.append(f"| `{name}` | {one.title} | `{one.download}` | {one.depth} | {layout} |")
    return "\n".join(lines)


def format_protocols() -> str:
    """Return the evaluation protocols: scenes, views, size, and what is decided where publications are silent."""
    lines = [
        "| protocol | part | reader | scenes | views | depth | decided here |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, one in load("g_ray_lab.scoring.protocol_registry:PROTOCOLS").items():
        counts = (
            ", ".join(map(str, one.view_counts))
            if any(one.view_counts)
            else type(one.sampling).__name__.lower()
        )
        cells = [f"`{name}`", one.part, f"`{one.dataset}`", str(len(one.scenes) or "all"), counts, one.depth]
        lines.append(f"| {' | '.join(cells)} | {'; '.join(one.notes)} |")
    return "\n".join(lines)


def format_peers() -> str:
    """Return the table of networks of other projects."""
    lines = [
        "| `--model` | lenses | takes | views | weights | license of the weights | install |",
        "|" + "---|" * 7,
    ]
    words = {"pinhole": "pinholes", "forward": "rays with z > 0", "any": "any"}
    for name, card in load("g_ray.predictors.peers:PEERS").items():
        views = "many" if card.many else "one"
        takes = card.describe_inputs() + ("; meters" if card.metric else "")
        lines.append(
            f"| `{name}` ({card.title}) | {words[card.lenses]} | {takes} | {views} | `{card.weights}` | "
            f"{card.license} | `{card.install}` |"
        )
    return "\n".join(lines)


def format_layers() -> str:
    """Return the layers of pyproject.toml as a picture: a package imports only from lines below its own."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    layers = {
        root: contract["layers"]
        for contract in tools["importlinter"]["contracts"]
        if contract["type"] == "layers"
        for root in contract["containers"]
    }
    lines = ["```text"]
    for root in sorted(layers, reverse=True):  # the laboratory imports the library
        lines += [root, *(f"  {layer}" for layer in layers[root])]
    return "\n".join([*lines, "```"])


def format_extras() -> str:
    """Return the optional dependencies of pyproject.toml."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lines = ["| extra | packages |", "|---|---|"]
    for name, requirements in extras.items():
        packages = ", ".join(re.split("[<>=]", requirement)[0] for requirement in requirements)
        lines.append(f"| `{name}` | {packages} |")
    return "\n".join(lines)


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


def format_hosts() -> str:
    """Return the table of adapted networks beside the released ones."""
    lines = [
        "| network | itself | reference | cost of ray angles | without values | once per call | training |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in json.loads((BENCHMARKS / "hosts.json").read_text())["rows"].items():
        cells = [f"{row[kind]:.0e} / {row[f'{kind}_gradient']:.0e}" for kind in ("identity", "gray")]
        if "network_gray" in row:
            for kind in ("gray", "gray_qk"):
                cells.append(f"{row[f'attention_{kind}']:.2f} / {row[f'network_{kind}']:.2f}")
            cells += [f"{1000 * row['prepare_seconds_gray']:.0f} ms", f"{row['training_gray']:.2f}"]
        else:
            cells += ["not measured", "", "", ""]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def format_ray_speed() -> str:
    """Return the table of ray maps compared with OpenCV."""
    rows = json.loads((BENCHMARKS / "rays.json").read_text())["rows"]
    lines = [
        "| lens | one map of 1752×1168: OpenCV | float64 | float32 | 100 maps of 252×168: OpenCV | float64 | float32 |",
        "|---|---|---|---|---|---|---|",
    ]
    batches = {row["lens"]: row for row in rows if row["maps"] > 1}
    for large in (row for row in rows if row["maps"] == 1):
        cells = []
        for row in (large, batches.get(large["lens"])):
            cells.append(f"{1000 * row['opencv_seconds']:.0f} ms" if row else "")
            for dtype in ("float64", "float32"):
                cells.append(
                    f"{1000 * row[f'{dtype}_seconds']:.0f} ms, {row[f'{dtype}_ratio']:.1f}×" if row else ""
                )
        lines.append(f"| {large['lens']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def format_finetuning() -> str:
    """Return the table of networks that change from grid positions to ray angles, by steps of further training.

    Means over networks, with Student's interval where there are several.
    """
    rows = json.loads((BENCHMARKS / "finetune_from_grid.json").read_text())["rows"]
    steps = sorted({row["steps"] for row in rows})
    heads = " | ".join(f"{step:,} steps" if step == 0 else f"{step:,}" for step in steps)
    lines = [f"| tested on | coordinates | {heads} |", "|---" * (2 + len(steps)) + "|"]
    compute_interval = load("g_ray_lab.metrics.intervals:compute_run_interval")
    for setting in ("pinhole", "zoom", "fisheye"):
        for variant in dict.fromkeys(row["variant"] for row in rows):
            cells = []
            for step in steps:
                of = [one for one in rows if (one["variant"], one["steps"]) == (variant, step)]
                errors = torch.tensor([[one["scores"][setting]["rays_deg"]] for one in of])
                interval = compute_interval(errors)
                cells.append(f"{interval.mean:.1f}")
                if len(of) > 1:
                    cells[-1] += f" ± {interval.high - interval.mean:.1f}"
            lines.append(f"| {setting} | {variant} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _read_rows(file: str) -> dict[str, dict[str, float]]:
    return {row["name"]: row for row in json.loads((BENCHMARKS / file).read_text())["rows"]}


BLOCKS: dict[tuple[str, str], Callable[[], str]] = {
    ("docs/registries.md", "registries"): format_registries,
    ("CONTRIBUTING.md", "layers"): format_layers,
    ("docs/index.md", "extras"): format_extras,
    ("docs/cameras-json.md", "camera parameters"): format_camera_parameters,
    ("docs/export.md", "camera exports"): format_camera_exports,
    ("docs/models.md", "peers"): format_peers,
    ("docs/training.md", "recipes"): format_recipes,
    ("docs/evaluation-data.md", "downloads"): format_downloads,
    ("docs/evaluation-data.md", "evaluation datasets"): format_datasets,
    ("docs/evaluation-data.md", "protocols"): format_protocols,
    ("docs/recipes.md", "fine-tuning"): format_finetuning,
    ("docs/benchmarks.md", "speed"): format_speed,
    ("docs/benchmarks.md", "speed of the first run"): lambda: format_speed("_first"),
    ("docs/benchmarks.md", "ray maps"): format_ray_speed,
    ("docs/hosts.md", "hosts"): format_hosts,
}


def replace_block(text: str, name: str, content: str) -> str:
    """Return the text with new content between the markers of that name; ValueError if there is not exactly one."""
    begin, end = f"<!-- generated: {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"expected exactly one block {begin} … {end}")
    return pattern.sub(lambda _: f"{begin}\n\n{content}\n\n{end}", text)


TO_REPEAT = ("runtime",)
"""Tables that were made with local changes, before this was checked; they are made again when their networks are."""


def find_dirty_tables() -> list[str]:
    """Return the tables in results/ whose code is in no commit, so that nobody can make them again."""
    found = []
    for path in sorted((ROOT / "results").rglob("result.json")):
        provenance = json.loads(path.read_text(encoding="utf-8")).get("provenance", {})
        name = path.parent.relative_to(ROOT / "results").as_posix()
        if str(provenance.get("commit", "")).endswith("-dirty") and name not in TO_REPEAT:
            found.append(name)
    return found


def main() -> None:
    for (file, name), make in BLOCKS.items():
        path = ROOT / file
        path.write_text(replace_block(path.read_text(), name, make()))
    if dirty := find_dirty_tables():
        raise SystemExit(
            f"made with local changes: {', '.join(dirty)}; commit them and make these tables again"
        )


if __name__ == "__main__":
    main()
