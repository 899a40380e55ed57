"""What the golden files hold: each topic is a function that measures the code and returns plain JSON values."""

import json
import re
import shlex
import shutil
import struct
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import golden_access as access
import golden_inputs as inputs
import numpy as np
import torch

DATA = Path(__file__).parent / "data"
RUNS = DATA / "runs"

STEPS, RANKS = (0, 3), (0, 1)

SMALL_NVS = {"data": {"width": 24, "height": 18, "batch": 2}, "loss": {"lpips": 0.0}}

TRAINED_SMALL = {
    "nvs-rooms": {"data": {"batch": 4}},
    "g-ray-rooms": {"data": {"batch": 2, "views": (3, 3), "images_max": None}},
}
"""Changes of the recipes that the shipped weights are scored with."""

CARD_SCENES = 2
"""Test scenes that the scores of the cards are measured on."""

RUN_OPTIONS = (
    "--save-every 5 --keep 9 --log-every 1 --sample-every None --no-tensorboard --device cpu --out run"
)
STORED_RUNS = {
    name: shlex.split(f"train {options} --schedule.steps 8 --schedule.warmup 2 {RUN_OPTIONS}")
    for name, options in {
        "curve": "curve --width 8 --batch 16",
        "nvs": "nvs-tiny-gta_gray --model.dim 24 --model.layers 1 --model.heads 1 --model.ffn 24 --model.patch 4 "
        "--data.width 12 --data.height 12 --data.batch 2",
        "recon": "recon-tiny-gray --data.batch 1 --data.views 2 2",
    }.items()
}
"""Commands that made the runs in data/runs, which were stopped after step 5 of 8."""

# Values


def summarize(array: Any) -> dict[str, Any]:
    """Shape, type and statistics; "weighted" is Σ x · cos i / √n, which depends on the order of the values."""
    array = array.detach().cpu().numpy() if isinstance(array, torch.Tensor) else np.asarray(array)
    flat = array.astype(np.float64).ravel()
    finite = np.isfinite(flat)
    values = np.where(finite, flat, 0.0)
    found: dict[str, Any] = {"shape": list(array.shape), "dtype": str(array.dtype)}
    if not values.size:
        return found
    if not finite.all():
        found["infinite or nan"] = int((~finite).sum())
    found |= {"mean": values.mean(), "std": values.std()}
    found |= {
        "weighted": (values * np.cos(np.arange(values.size))).sum() / values.size**0.5,
        "first": values[:4].tolist(),
    }
    return shorten(found)


def shorten(value: Any) -> Any:
    """Floats with eight significant digits."""
    if isinstance(value, dict):
        return {key: shorten(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [shorten(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(f"{value:.8g}")
    return value


def find_differences(expected: Any, found: Any, rel: float, abs_: float, where: str = "") -> list[str]:
    """One line per value that differs; numbers may be off by `rel` of the expected one, or by `abs_`."""
    if isinstance(expected, dict) and isinstance(found, dict):
        keys = [*expected, *(key for key in found if key not in expected)]
        missing = [f"{where}/{key}: only in the golden file" for key in expected if key not in found]
        added = [f"{where}/{key}: not in the golden file" for key in found if key not in expected]
        both = [key for key in keys if key in expected and key in found]
        inner = [find_differences(expected[key], found[key], rel, abs_, f"{where}/{key}") for key in both]
        return missing + added + [line for lines in inner for line in lines]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        inner = [find_differences(a, b, rel, abs_, f"{where}/{index}") for index, (a, b) in pairs]
        return [line for lines in inner for line in lines]
    if isinstance(expected, float) and isinstance(found, float | int) and not isinstance(found, bool):
        same = abs(found - expected) <= max(abs_, rel * abs(expected))
    else:
        same = expected == found and type(expected) is type(found)
    return [] if same else [f"{where}: {expected!r} in the golden file, now {found!r}"]


# Names and recipes


def record_names(tmp: Path) -> Any:
    return access.public_names()


def record_recipes(tmp: Path) -> Any:
    return {name: access.resolve_recipe(name) for name in access.recipe_names()}


# Shipped weights


def record_weights(name: str) -> Any:
    """Keys, shapes and types in the file and in the model, and scores."""
    from safetensors.torch import load_file

    task, model = access.build_shipped(name, TRAINED_SMALL[name])
    found = {
        "file": describe_tensors(load_file(access.shipped_file(name))),
        "model": describe_tensors(model.state_dict()),
        "training": access.score_training(task, model),
        "card": access.score_card(name, CARD_SCENES),
    }
    return shorten(found)


def record_photos_weights(tmp: Path) -> Any:
    """Keys, shapes and types of the weights whose training data is not in the package.

    Scores of them are in data/tables.
    """
    from safetensors.torch import load_file

    model = access.load_reconstruction("g-ray-photos")
    return {
        "file": describe_tensors(load_file(access.shipped_file("g-ray-photos"))),
        "model": describe_tensors(model.state_dict()),
    }


def describe_tensors(tensors: dict[str, torch.Tensor]) -> dict[str, str]:
    return {key: f"{str(value.dtype)[6:]} {list(value.shape)}" for key, value in sorted(tensors.items())}


# Batches


def record_batches(recipe: Any, tmp: Path) -> dict[str, Any]:
    """Names without the folder that this run writes to."""
    batches = access.read_batches(recipe, STEPS, RANKS)
    return {name: summarize_batch(batch, f"{tmp}/") for name, batch in batches.items()}


def summarize_batch(batch: dict[str, Any], folder: str) -> dict[str, Any]:
    return {
        key: summarize(value)
        if isinstance(value, torch.Tensor)
        else [text.replace(folder, "") for text in value]
        for key, value in batch.items()
    }


def record_rooms(tmp: Path) -> Any:
    changes = {**SMALL_NVS, "data": {**SMALL_NVS["data"], "zoom_max": 2.0, "antialias": 2}}
    return record_batches(access.get_recipe("nvs-tiny-gta_gray", changes), tmp)


def record_objects(tmp: Path) -> Any:
    """Rendered by `g-ray data objects`."""
    words = ["data", "objects", "--out", "objects", "--count", "6", "--size", "24", "--workers", "1"]
    code, _, error = access.run_cli(words, tmp)
    assert code == 0, error
    changes = {**SMALL_NVS, "data": {"width": 24, "height": 24, "batch": 2, "root": tmp / "objects"}}
    folders = sorted(path.name for path in (tmp / "objects").iterdir())
    return {"files": folders, **record_batches(access.get_recipe("nvs-objects-tiny-gta_gray", changes), tmp)}


def record_re10k(tmp: Path) -> Any:
    """Both layouts."""
    inputs.write_re10k_chunks(tmp / "chunks")
    inputs.write_re10k_folders(tmp / "folders")
    found = {}
    for layout in ("chunks", "folders"):
        settings = {"root": tmp / layout, "check": 0, "gap": (3, 6), "zoom_max": 1.5}
        changes = {**SMALL_NVS, "data": {**SMALL_NVS["data"], **settings}, "model": {"patch": 6}}
        found[layout] = record_batches(access.get_recipe("nvs-re10k-paper-gta_gray", changes), tmp)
    return found


def record_paths(tmp: Path) -> Any:
    inputs.write_camera_paths(tmp / "paths.npz")
    changes = {**SMALL_NVS, "data": {**SMALL_NVS["data"], "paths": tmp / "paths.npz", "gap": (3, 6)}}
    return record_batches(access.get_recipe("nvs-paths-tiny-gta_gray", changes), tmp)


def record_scene(tmp: Path) -> Any:
    """Novel-view synthesis from a nerfstudio folder with two kinds of lenses, and from a COLMAP model."""
    inputs.write_nerfstudio(tmp / "nerfstudio", inputs.take_photos(14, ("pinhole", "opencv_fisheye")))
    inputs.write_colmap(tmp / "colmap", inputs.take_photos(12, start=2.0))
    folders = (tmp / "nerfstudio", tmp / "colmap")
    changes = {**SMALL_NVS, "data": {**SMALL_NVS["data"], "folder": folders}}
    return record_batches(access.get_recipe("nvs-scene", changes), tmp)


def record_rooms_views(tmp: Path) -> Any:
    """Reconstruction, with shapes and colors that change from step to step."""
    settings = {"height": 24, "batch": 2, "views": (2, 4), "aspect": (0.5, 1.0), "images_max": 6}
    return record_batches(access.get_recipe("recon-tiny-gray", {"data": {**settings, "color": True}}), tmp)


def record_scenes_views(tmp: Path) -> Any:
    inputs.write_nerfstudio(tmp / "nerfstudio", inputs.take_photos(10, ("pinhole", "opencv_fisheye")))
    settings = {"folders": (tmp / "nerfstudio",), "batch": 2, "views": (2, 3), "hold_out": 0.3}
    return record_batches(access.get_recipe("recon-scenes-tiny", {"data": settings}), tmp)


def record_mixture(tmp: Path) -> Any:
    """Two weighted folders of different layouts, and rooms."""
    inputs.write_nerfstudio(tmp / "nerfstudio", inputs.take_photos(10))
    inputs.write_seven_scenes(tmp / "seven", inputs.take_photos(10, start=1.0))
    settings = {"folders": (tmp / "nerfstudio", tmp / "seven"), "weights": (1.0, 2.0), "rooms": 0.4}
    settings |= {"batch": 1, "views": (2, 2), "hold_out": 0.3}
    return record_batches(access.get_recipe("recon-scenes-tiny", {"data": settings}), tmp)


# Commands with the shipped weights


def record_synthesis(tmp: Path) -> Any:
    """`g-ray synthesize`: one picture through a pinhole."""
    from PIL import Image

    shots = inputs.take_photos(3)
    inputs.write_images(tmp / "photos", shots)
    inputs.write_cameras_json(tmp / "cameras.json", shots)
    inputs.write_cameras_json(tmp / "target.json", shots[1:2])
    words = [
        "synthesize",
        "--context",
        "photos/view_00.png",
        "photos/view_02.png",
        "--cameras",
        "cameras.json",
    ]
    code, _, error = access.run_cli([*words, "--target", "target.json", "--out", "picture.png"], tmp)
    assert code == 0, error
    return summarize(np.asarray(Image.open(tmp / "picture.png")))


def record_exports(tmp: Path) -> Any:
    """All files of `g-ray reconstruct`, for three lenses with known poses."""
    models = ("pinhole", "opencv_fisheye", "equirectangular")
    shots = inputs.take_photos(3, models, width=64, height=48)
    inputs.write_images(tmp / "photos", shots)
    inputs.write_cameras_json(tmp / "cameras.json", shots)
    words = [
        "reconstruct",
        "photos",
        "--calibration",
        "cameras.json",
        "--out",
        "scene",
        "--device",
        "cpu",
        "--model",
        "network",
        "--weights",
        "g-ray-rooms",
        "--place-by",
        "network",
    ]
    code, _, error = access.run_cli([*words, "--depth-exr", "--depth-npy"], tmp)
    assert code == 0, error
    return describe_folder(tmp / "scene")


def describe_folder(folder: Path) -> dict[str, Any]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    found = {path.relative_to(folder).as_posix(): path for path in paths}
    return shorten({name: describe_file(path) for name, path in found.items()})


def describe_file(path: Path) -> Any:
    describe = DESCRIBE.get(path.suffix)
    return "exists" if describe is None else describe(path)


def describe_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def describe_npz(path: Path) -> Any:
    with np.load(path, allow_pickle=False) as arrays:
        return {name: summarize(arrays[name]) for name in sorted(arrays.files)}


def describe_npy(path: Path) -> Any:
    return summarize(np.load(path, allow_pickle=False))


def describe_picture(path: Path) -> Any:
    from PIL import Image

    return summarize(np.asarray(Image.open(path)))


def describe_exr(path: Path) -> Any:
    import OpenEXR

    with OpenEXR.File(str(path), separate_channels=True) as file:
        return {name: summarize(channel.pixels) for name, channel in sorted(file.channels().items())}


def describe_ply(path: Path) -> Any:
    content = path.read_bytes()
    end = content.index(b"end_header\n") + len(b"end_header\n")
    header = content[:end].decode().splitlines()
    kinds = {"float": "<f4", "double": "<f8", "uchar": "u1", "int": "<i4"}
    properties = [line.split()[1:] for line in header if line.startswith("property")]
    rows = np.frombuffer(content[end:], np.dtype([(name, kinds[kind]) for kind, name in properties]))
    return {"header": header, "columns": {name: summarize(rows[name]) for _, name in properties}}


def describe_glb(path: Path) -> Any:
    content = path.read_bytes()
    (length,) = struct.unpack("<I", content[12:16])
    return {"bytes": len(content), "json": json.loads(content[20 : 20 + length])}


def describe_html(path: Path) -> Any:
    """Length and headings; the length may differ by 2 %."""
    text = path.read_text(encoding="utf-8")
    headings = re.findall(r"<(title|h[1-6])\b[^>]*>(.*?)</\1>", text, re.DOTALL)
    return {
        "length": len(text),
        "headings": [f"{tag}: {re.sub('<.*?>', '', body)}" for tag, body in headings],
    }


def describe_colmap(path: Path) -> Any:
    """The whole model for its cameras file; its other files only have to be there."""
    import pycolmap

    if path.stem != "cameras":
        return "part of the model"
    model = pycolmap.Reconstruction(str(path.parent))
    cameras = {
        str(number): [camera.model.name, camera.width, camera.height, list(map(float, camera.params))]
        for number, camera in sorted(model.cameras.items())
    }
    images = {
        image.name: {
            "camera": image.camera_id,
            "points": image.num_points2D(),
            "cam_from_world": image.cam_from_world().matrix().tolist(),
        }
        for _, image in sorted(model.images.items())
    }
    points = [model.points3D[number] for number in sorted(model.points3D)]
    first = [[*map(float, point.xyz), *map(int, point.color)] for point in points[:3]]
    found = {"cameras": cameras, "images": images, "points": len(points), "first points": first}
    return {**found, "xyz": summarize(np.array([point.xyz for point in points]))}


DESCRIBE: dict[str, Callable[[Path], Any]] = {
    ".json": describe_json,
    ".npz": describe_npz,
    ".npy": describe_npy,
    ".png": describe_picture,
    ".jpg": describe_picture,
    ".exr": describe_exr,
    ".ply": describe_ply,
    ".glb": describe_glb,
    ".html": describe_html,
    ".bin": describe_colmap,
}


# Stored runs


def run_training(name: str, tmp: Path) -> Path:
    """Run a command of STORED_RUNS in `tmp`, to its end; returns the folder of the run."""
    with ExitStack() as stack:
        if name == "recon":
            stack.enter_context(access.smallest_reconstruction())
        code, _, error = access.run_cli(STORED_RUNS[name], tmp)
    assert code == 0, error
    return tmp / "run"


def copy_run(name: str, tmp: Path) -> None:
    """The stored run, as it was stopped, to where its command looks for it."""
    shutil.copytree(RUNS / name, tmp / "run")


def read_metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def record_finished_run(run: Path) -> Any:
    """Statistics of the final weights, and the metrics without times."""
    from safetensors.torch import load_file

    weights = load_file(run / "model.safetensors")
    metrics = [
        {key: value for key, value in entry.items() if key != "seconds"} for entry in read_metrics(run)
    ]
    return {
        "weights": {key: summarize(value) for key, value in sorted(weights.items())},
        "metrics": shorten(metrics),
    }


RECORDS: dict[str, Callable[[Path], Any]] = {
    "names": record_names,
    "recipes": record_recipes,
    **{f"weights-{name}": lambda tmp, name=name: record_weights(name) for name in access.SHIPPED},
    "weights-g-ray-photos": record_photos_weights,
    "batches-rooms": record_rooms,
    "batches-objects": record_objects,
    "batches-re10k": record_re10k,
    "batches-paths": record_paths,
    "batches-scene": record_scene,
    "batches-rooms-views": record_rooms_views,
    "batches-scenes-views": record_scenes_views,
    "batches-mixture": record_mixture,
    "synthesis": record_synthesis,
    "exports": record_exports,
}
"""Golden file → function of an empty folder that returns its content."""


def read_golden(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def write_golden(name: str, record: Any) -> None:
    """One line per entry of the outer dict, so that changes can be read."""
    if isinstance(record, dict):
        lines = [f"{json.dumps(key)}: {compact(value)}" for key, value in record.items()]
        text = "{\n" + ",\n".join(lines) + "\n}\n"
    else:
        text = compact(record) + "\n"
    (DATA / f"{name}.json").write_text(text, encoding="utf-8")


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
