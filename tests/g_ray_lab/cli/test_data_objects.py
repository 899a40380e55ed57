"""g-ray data objects, as a user runs it: refused meshes, other settings, Ctrl-C, a killed run."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trimesh
from PIL import Image

from g_ray.cli.main import main
from g_ray.runtime.progress import CountBar
from g_ray_lab.cluster import parse_options
from g_ray_lab.datasets.objaverse import NAMES, PARTIAL, find_objects
from g_ray_lab.sources.render_objects import ObjectSettings, claim_folder

COARSE = ["--size", "16", "--antialias", "1"]


def objects(out: Path, *arguments: str) -> int:
    return main(["data", "objects", "--out", str(out), *COARSE, "--workers", "1", *arguments])


@pytest.fixture
def meshes(tmp_path) -> Path:
    folder = tmp_path / "meshes"
    folder.mkdir()
    trimesh.creation.box().export(folder / "box.ply")
    (folder / "broken.glb").write_bytes(b"glTF")
    return folder


def test_procedural_objects_and_their_sheet(tmp_path, capsys):
    assert objects(tmp_path / "out", "--count", "2") == 0
    said = capsys.readouterr()
    assert f"2 of 2 objects are in {tmp_path / 'out'}" in said.out and "2/2 objects" in said.err
    assert find_objects(tmp_path / "out") == ["procedural_000000", "procedural_000001"]
    assert not (tmp_path / "out" / PARTIAL).exists()
    sheet = tmp_path / "sheet.png"
    assert main(["data", "sheet", "--root", str(tmp_path / "out"), "--out", str(sheet), "--count", "2"]) == 0
    assert Image.open(sheet).size == (6 * 16, 2 * 16)


def test_a_mesh_that_cannot_be_read_is_named_counted_and_passed_over(tmp_path, meshes, capsys):
    out = tmp_path / "out"
    assert objects(out, "--meshes", str(meshes)) == 0
    said = capsys.readouterr()
    assert "skipped" in said.err and "broken.glb" in said.err
    assert "1 of 2 objects are in" in said.out and "1 of 2 meshes could not be read" in said.out
    assert "broken.glb" in (out / "refused.json").read_text()
    assert objects(out, "--meshes", str(meshes), "--strict") == 2
    (meshes / "broken.glb").unlink()
    assert objects(out, "--meshes", str(meshes), "--strict") == 0
    assert not (out / "refused.json").exists()


def test_nothing_readable_is_an_error(tmp_path, meshes):
    (meshes / "box.ply").unlink()
    assert objects(tmp_path / "out", "--meshes", str(meshes)) == 2


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--count", "1", "--size", "32"], "was made with size 16 instead of 32"),
        (["--count", "1", "--seed", "7"], "was made with seed 0 instead of 7"),
        ([], "how many objects? --count N"),
        (["--meshes", "nowhere"], "nowhere is not a folder of meshes"),
        (["--count", "1", "--workers", "0"], "--workers 0"),
        (["--count", "1", "--antialias", "0"], "antialias 0"),
        (["--count", "2", "--cluster", "local", "--cluster-options", "fast"], "write KEY=VALUE"),
    ],
)
def test_mistakes_are_one_line(tmp_path, capsys, arguments, line):
    claim_folder(tmp_path, ObjectSettings(size=16, antialias=1))
    assert objects(tmp_path, *arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith("g-ray: ") and line in said and said.count("\n") == 1


def test_options_of_a_cluster():
    assert parse_options(("slurm_partition=cpu", "timeout_min=60")) == {
        "slurm_partition": "cpu",
        "timeout_min": 60,
    }


def test_the_bar_counts_objects():
    bar = CountBar(10, 4, "objects")
    bar.rate = 0.5
    assert bar.format_text() == "4/10 objects (40%)  30.0/min  0:12 left"


def started(out: Path) -> subprocess.Popen[str]:
    """In a session of its own, as from a terminal; it has rendered something when this returns."""
    words = ["data", "objects", "--out", str(out), *COARSE, "--count", "5000", "--workers", "2"]
    run = subprocess.Popen(
        [sys.executable, "-m", "g_ray", *words],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: out.is_dir() and find_objects(out))
    return run


def wait_until(condition) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def check_and_resume(out: Path) -> None:
    names = find_objects(out)
    assert all(len(list((out / name / "views").iterdir())) == len(NAMES) for name in names)
    before = {name: (out / name / "cameras.json").stat().st_mtime_ns for name in names}
    assert objects(out, "--count", str(len(names))) == 0
    assert {
        name: (out / name / "cameras.json").stat().st_mtime_ns for name in names
    }.items() >= before.items()
    assert not (out / PARTIAL).exists()


def test_ctrl_c_keeps_what_is_finished(tmp_path):
    run = started(tmp_path / "out")
    os.killpg(run.pid, signal.SIGINT)
    _, said = run.communicate(timeout=300)
    assert run.returncode == 130 and said.endswith("g-ray: stopped\n") and "Traceback" not in said
    check_and_resume(tmp_path / "out")


def test_a_killed_run_leaves_whole_objects_and_no_processes(tmp_path):
    run = started(tmp_path / "out")
    run.kill()
    run.wait()

    def gone() -> bool:
        try:
            os.killpg(run.pid, 0)
        except ProcessLookupError:
            return True
        return False

    wait_until(gone)
    check_and_resume(tmp_path / "out")
