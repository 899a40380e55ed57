"""Command lines that make every table at a tiny size, and what is kept of their results in data/tables."""

import contextlib
import csv
import gzip
import json
import os
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import golden_access as access
import golden_inputs as inputs
import golden_records as records

TABLES = records.DATA / "tables"

EVERYTHING = "G_RAY_GOLDEN"
"""Environment variable: with the value "all" the tests make the expensive tables too."""

OUT = "out"
"""Folder of the result of a table, below that of the inputs."""

VOLATILE = {"provenance", "cpu_seconds", "seconds", "date", "commit", "hardware", "system", "python", "torch"}
"""Keys that differ between two runs of one version, or between machines."""

VOLATILE_ENDINGS = ("digest", "sha256", "_bytes", "_seconds", "seconds_per_set")
"""Of keys. Digests are of settings, which the records hold too, and of files of weights."""

TIMES = re.compile(r"\bCPU s\b|\bseconds\b")
"""In the head of a column of times."""


@dataclass(frozen=True)
class GoldenTable:
    """Commands in one folder; the last one makes the table."""

    commands: tuple[str, ...]
    """`{shared}` is the folder of shared data."""
    inputs: Callable[[Path], None] | None = None
    """Writes the input files into the folder."""
    needs: tuple[str, ...] = ()
    """Files of the shared data without which the table is skipped."""
    modules: tuple[str, ...] = ()
    """Packages without which the table is skipped."""
    expensive: bool = False
    """Whether it is made on request only: more than a few CPU seconds."""
    is_timing: bool = False
    """Whether its numbers are measured times: only their places are kept."""


# Inputs


def write_room(folder: Path) -> None:
    """20 frames in the layout of 7-Scenes."""
    inputs.write_seven_scenes(folder / "room", inputs.take_photos(20))


def write_levels(folder: Path) -> None:
    """One folder to train on and four to test on."""
    for number, ending in enumerate(
        ("train-pinhole", "test-pinhole", "test-zoom", "test-mixed", "test-fisheye")
    ):
        shots = inputs.take_photos(6, start=0.4 * number)
        inputs.write_nerfstudio(folder / "levels" / f"box-{ending}", shots)


def write_miniatures(*names: str) -> Callable[[Path], None]:
    """Miniatures of datasets, each in a folder of its name."""

    def write(folder: Path) -> None:
        for name in names:
            access.write_miniature(name, folder / name, scenes=2, frames=6, width=64)

    return write


# Commands


SHORT = "--seeds 1 --steps 2 --jobs 1"
LPIPS = "lpips_alex/lpips_alex_v0.1.npz"
DINO = "dinov2_vits14/dinov2_vits14_fp16.safetensors"
TRAIN_TWO = (
    "reproduce recon-ablation --out networks --seeds 2 --steps 2 --jobs 1 --methods gray rope --no-score"
)
"""Networks for the tables that measure finished ones."""
OBJECTS = "data objects --out objects --count 12 --size 48 --workers 1"
GRAY_AND_ROPE = (
    "--weights gray=networks/runs/gray-seed0/model.safetensors gray=networks/runs/gray-seed1/model.safetensors "
    "rope=networks/runs/rope-seed0/model.safetensors rope=networks/runs/rope-seed1/model.safetensors"
)


def make_table(name: str, options: str, *before: str, **more: Any) -> GoldenTable:
    """The table of `g-ray reproduce NAME`, after other commands."""
    return GoldenTable((*before, f"reproduce {name} --out {OUT} {options}"), **more)


def make_evaluation(protocol: str, dataset: str, options: str, **more: Any) -> GoldenTable:
    """`g-ray evaluate PROTOCOL` on a miniature of its dataset."""
    command = f"evaluate {protocol} --data {dataset} --out {OUT} {options}"
    return GoldenTable((command,), write_miniatures(dataset), **more)


GOLDEN_TABLES: dict[str, GoldenTable] = {
    # Novel-view synthesis
    "nvs-fov": make_table("nvs-fov", f"{SHORT} --scenes 1 --methods gta gta_gray"),
    "nvs-fov-methods": make_table("nvs-fov", f"{SHORT} --scenes 1", expensive=True),
    "nvs-fov-seeds": make_table(
        "nvs-fov", "--seeds 2 --steps 2 --jobs 1 --scenes 2 --methods gta gta_gray", expensive=True
    ),
    "nvs-zoom": make_table(
        "nvs-zoom",
        "--networks networks --seeds 1 --steps 2 --jobs 1 --scenes 2 --methods gta gta_gray",
        f"reproduce nvs-fov --out networks {SHORT} --methods gta gta_gray --no-score",
    ),
    "nvs-frequency": make_table("nvs-frequency", f"{SHORT} --scenes 1 --methods alpha_1 alpha_40"),
    "nvs-rayrope": make_table(
        "nvs-rayrope",
        f"{SHORT} --scenes 2 --lpips {{shared}}/{LPIPS}",
        needs=(LPIPS, "re10k_cameras"),
        expensive=True,
    ),
    "nvs-plucker": make_table(
        "nvs-plucker",
        f"{SHORT} --scenes 2",
        needs=("re10k_cameras", "gso_mini"),
        modules=("embreex",),
        expensive=True,
    ),
    "nvs-objects": make_table(
        "nvs-objects", f"{SHORT} --scenes 1 --data objects", OBJECTS, modules=("embreex",), expensive=True
    ),
    "nvs-trajectory": make_table(
        "nvs-trajectory",
        "--networks networks --data objects --objects 1 --frames 3",
        OBJECTS,
        f"reproduce nvs-objects --out networks --data objects {SHORT} --methods gta rayrope_gray --no-score",
        modules=("embreex",),
    ),
    # Reconstruction
    "recon-ablation": make_table("recon-ablation", "--seeds 2 --steps 2 --jobs 1 --early 1", expensive=True),
    "recon-ablation-tests": make_table(
        "recon-ablation", f"{SHORT} --tests levels --methods gray rope", inputs=write_levels, expensive=True
    ),
    "recon-ablation-dino": make_table(
        "recon-ablation-dino",
        f"{SHORT} --data levels --encoder {{shared}}/{DINO} --photos room --methods gray gray_random",
        inputs=lambda folder: (write_levels(folder), write_room(folder))[0],
        needs=(DINO,),
        expensive=True,
    ),
    "recon-photos": make_table("recon-photos", f"{SHORT} --data room", inputs=write_room, expensive=True),
    "coordinates": make_table("coordinates", f"{SHORT} --methods tangent equidistant camray", expensive=True),
    "frequency-recon": make_table("frequency-recon", f"{SHORT} --methods alpha_1 alpha_2"),
    # Measurements of finished networks
    "attention": make_table(
        "attention", "--networks networks --data room --pairs 2", TRAIN_TWO, inputs=write_room
    ),
    "calibration-noise": make_table(
        "calibration-noise",
        "--networks networks --photos room --sets 2 --stereo-sets 0",
        TRAIN_TWO,
        inputs=write_room,
    ),
    "calibration-noise-stereo": make_table(
        "calibration-noise",
        "--networks networks --data levels/box-test-zoom --photos room --sets 1 --stereo-sets 1 --seeds 1",
        TRAIN_TWO,
        inputs=lambda folder: (write_levels(folder), write_room(folder))[0],
        expensive=True,
    ),
    "calibration-estimated": make_table(
        "calibration-estimated",
        "--networks networks --data room --sets 1 --sources truth guess --no-stereo",
        TRAIN_TWO,
        inputs=write_room,
    ),
    "runtime": make_table(
        "runtime",
        "--weights g-ray-rooms --views 2 3 --trials 2 --size 24 --device cpu",
        expensive=True,
        is_timing=True,
    ),
    # Finished models on the evaluation protocols
    "recon-heterogeneous": make_table(
        "recon-heterogeneous", f"--models standing network {GRAY_AND_ROPE}", TRAIN_TWO, expensive=True
    ),
    "recon-homogeneous": make_table(
        "recon-homogeneous", "--models standing network --limit 1", expensive=True
    ),
    "recon-qualitative": make_table(
        "recon-qualitative", "--models standing network --views 4", expensive=True
    ),
    "fov-stress": make_table("fov-stress", f"--models standing {GRAY_AND_ROPE}", TRAIN_TWO, expensive=True),
    "resolution": make_table("resolution", f"--models standing {GRAY_AND_ROPE}", TRAIN_TWO, expensive=True),
    "real-small": make_table(
        "real-small",
        "--data {shared} --models standing network --limit 1",
        needs=("7scenes_redkitchen100", "sceaux", "middlebury_motorcycle", "stereo_disparity"),
        expensive=True,
    ),
    "evaluate-eth3d": make_evaluation(
        "eth3d-fov", "eth3d", "--model network --weights g-ray-rooms --width 56 --views 2 4 --limit 1"
    ),
    "evaluate-eth3d-photos": make_evaluation(
        "eth3d-fov", "eth3d", "--model network --weights g-ray-photos --width 112 --views 2 --limit 1"
    ),
    "evaluate-scannetpp": make_evaluation(
        "scannetpp-mixed", "scannetpp-mixed", "--model standing --width 56 --views 2 4 --limit 1"
    ),
    "evaluate-pandaset": make_evaluation(
        "pandaset", "pandaset", "--model standing --width 56 --views 2 --limit 1", expensive=True
    ),
    "evaluate-sintel-depth": make_evaluation(
        "sintel-depth", "sintel", "--model network --weights g-ray-rooms --width 56 --limit 1"
    ),
    "evaluate-sintel-pose": make_evaluation(
        "sintel-pose", "sintel", "--model network --weights g-ray-rooms --width 56 --limit 1"
    ),
}
"""File in data/tables → the commands that make it."""


def find_missing(table: GoldenTable) -> str | None:
    """What a table needs and is not there: data or a package; None if nothing is missing."""
    for module in table.modules:
        try:
            __import__(module)
        except ImportError:
            return module
    missing = [name for name in table.needs if not (access.shared_data() / name).exists()]
    return missing[0] if missing else None


def record_table(name: str, tmp: Path) -> Any:
    """Run the commands of a table in an empty folder; its result, its text and the files beside it."""
    table = GOLDEN_TABLES[name]
    if table.inputs is not None:
        table.inputs(tmp)
    with _no_cached_weights(tmp):
        for command in table.commands:
            words = shlex.split(command.format(shared=access.shared_data()))
            code, _, error = access.run_cli(words, tmp)
            if code:
                # `g-ray evaluate` returns 1 if scenes are missing; the record says which.
                assert code == 1 and command == table.commands[-1] and words[0] == "evaluate", error
    return describe_result(tmp / OUT, tmp, table.is_timing)


@contextlib.contextmanager
def _no_cached_weights(tmp: Path) -> Any:
    """Hide downloaded weights: with those of LPIPS, tables have one more column."""
    with mock.patch.dict(os.environ, {"G_RAY_CACHE": str(tmp / "cache")}):
        yield


def describe_result(out: Path, tmp: Path, is_timing: bool) -> dict[str, Any]:
    """result.json, Markdown tables, rows and names of files, without what differs between two runs."""
    found: dict[str, Any] = {
        "files": sorted(path.name for path in out.iterdir() if not path.name.startswith("."))
    }
    result = json.loads((out / "result.json").read_text(encoding="utf-8"))
    result = drop_volatile(result, {str(tmp): "", str(access.shared_data()): "shared"})
    found["result"] = hide_numbers(result) if is_timing else records.shorten(result)
    for path in sorted(out.glob("*.md")):
        lines = drop_times(path.read_text(encoding="utf-8").splitlines())
        found[path.name] = [SIGNED.sub("0", line) for line in lines] if is_timing else lines
    if (out / "rows.csv").is_file():
        with (out / "rows.csv").open(encoding="utf-8", newline="") as file:
            rows = drop_volatile(list(csv.DictReader(file)), {})
        found["rows.csv"] = [{key: parse_number(value) for key, value in row.items()} for row in rows]
    if (out / "scores.csv.gz").is_file():
        lines = gzip.decompress((out / "scores.csv.gz").read_bytes()).decode().splitlines()
        found["scores.csv.gz"] = {"head": lines[0], "lines": len(lines)}
    return found


def drop_volatile(value: Any, folders: dict[str, str]) -> Any:
    """Nested values without volatile keys, and with `folders` replaced in strings."""
    if isinstance(value, dict):
        return {
            key: drop_volatile(item, folders)
            for key, item in value.items()
            if key not in VOLATILE and not key.endswith(VOLATILE_ENDINGS)
        }
    if isinstance(value, list):
        return [drop_volatile(item, folders) for item in value]
    if isinstance(value, str):
        for folder, short in folders.items():
            value = value.replace(folder, short)
    return value


def hide_numbers(value: Any) -> Any:
    """Nested values with "number" in place of each fraction."""
    if isinstance(value, dict):
        return {key: hide_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [hide_numbers(item) for item in value]
    return "number" if isinstance(value, float) else value


def drop_times(lines: list[str]) -> list[str]:
    """Lines of Markdown without table columns whose heads are about time."""
    kept: list[str] = []
    dropped: set[int] = set()
    inside = False
    for line in lines:
        if not line.startswith("|"):
            inside = False
            kept.append(line)
            continue
        cells = line.strip("|").split("|")
        if not inside:
            dropped = {index for index, cell in enumerate(cells) if TIMES.search(cell)}
        inside = True
        kept.append("|".join(["", *(c for i, c in enumerate(cells) if i not in dropped), ""]))
    return kept


def parse_number(text: str) -> float | str:
    """The number that a text holds, or the text."""
    try:
        return records.shorten(float(text))
    except ValueError:
        return text


NUMBER = re.compile(r"\d+(?:\.\d+)?")
SIGNED = re.compile(rf"[-+]?{NUMBER.pattern}")


def split_texts(record: Any) -> tuple[Any, dict[str, list[str]]]:
    """A record without its Markdown, and the Markdown."""
    texts = {key: value for key, value in record.items() if key.endswith(".md")}
    return {key: value for key, value in record.items() if key not in texts}, texts


def find_table_differences(golden: Any, found: Any) -> list[str]:
    """One line per difference; a printed number may differ by one in its last place, as rounding may."""
    (golden, golden_texts), (found, found_texts) = split_texts(golden), split_texts(found)
    lines = records.find_differences(golden, found, rel=1e-4, abs_=1e-5)
    lines += [f"{name}: not in both" for name in golden_texts.keys() ^ found_texts.keys()]
    for name in golden_texts.keys() & found_texts.keys():
        before, after = golden_texts[name], found_texts[name]
        if len(before) != len(after):
            lines.append(f"{name}: {len(before)} lines in the golden file, now {len(after)}")
            continue
        pairs = zip(before, after, strict=True)
        lines += [f"{name}: {a!r} in the golden file, now {b!r}" for a, b in pairs if not is_same_line(a, b)]
    return lines


def is_same_line(a: str, b: str) -> bool:
    """Whether two lines have the same words, and numbers that differ by one in the last place at most."""
    # A difference may be printed as -0.000 or 0.000.
    if NUMBER.sub("0", a).replace("-0", "0") != NUMBER.sub("0", b).replace("-0", "0"):
        return False
    return all(is_same_number(x, y) for x, y in zip(NUMBER.findall(a), NUMBER.findall(b), strict=True))


def is_same_number(x: str, y: str) -> bool:
    """Whether two printed numbers differ by one in the last place at most; whole numbers are equal."""
    places = len(x.partition(".")[2])
    return x == y if not places else abs(float(x) - float(y)) < 1.01 * 10**-places


def read_golden_table(name: str) -> Any:
    return records.read_golden(f"tables/{name}")
