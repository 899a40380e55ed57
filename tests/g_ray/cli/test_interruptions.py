"""Signals, closed pipes and two runs at once: one line, and what is finished stays."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from g_ray.cameras import Pinhole
from g_ray.export.export_options import ExportOptions
from g_ray.media.photos import Photo
from g_ray.media.view import View
from g_ray.predictors.predictor import SceneInput
from g_ray.predictors.stereo_predictor import StereoPredictor
from g_ray.reconstruction import reconstruction_run
from g_ray.reconstruction.inputs import KnownGeometry
from g_ray.reconstruction.reconstruction_run import run_reconstruction
from g_ray.runtime import out_folder
from g_ray.runtime.files import atomic_path, remove_scratch_files

TERMINATED = """
import sys, time
from g_ray.cli import main
from g_ray.formats.colmap.colmap_cameras import import_pycolmap

class Command:
    def run(self):
        import_pycolmap()
        print("ready", flush=True)
        time.sleep(60)

main.parse_command = lambda words: Command()
sys.exit(main.main(["anything"]))
"""


def test_sigterm_is_one_line():
    """COLMAP prints a stack trace of C++ for it, once it is imported."""
    pytest.importorskip("pycolmap")
    process = subprocess.Popen(
        [sys.executable, "-c", TERMINATED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 143
    assert said == "g-ray: terminated; repeat the command to continue what it had begun\n"


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["view", "--help"]])
def test_a_closed_pipe_ends_quietly(words):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "g_ray", *words], stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def make_scene(folder: Path) -> SceneInput:
    views = []
    for name in ("a.png", "b.png"):
        Image.new("RGB", (32, 24)).save(folder / name)
        photo = Photo.from_file(folder / name, name)
        views.append(View(name, Pinhole.from_fov(60.0, 32, 24, dtype=torch.float64), image=photo))
    return SceneInput(views)


def test_two_runs_do_not_share_a_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(out_folder, "TIMEOUT_S", 0.2)
    out = tmp_path / "out"
    with (
        out_folder.lock_folder(out),
        pytest.raises(ValueError, match="another run is writing to") as caught,
    ):
        run_reconstruction(
            make_scene(tmp_path),
            KnownGeometry(),
            StereoPredictor(),
            out,
            ExportOptions(),
            report=print,
            progress=lambda stage, share: None,
        )
    assert "choose another --out" in str(caught.value)
    assert not (out / reconstruction_run.UNFINISHED).exists()


def test_what_a_killed_process_was_writing_is_removed(tmp_path):
    child = os.fork()
    if child == 0:
        with atomic_path(tmp_path / "depth" / "v0.npz") as scratch:
            scratch.write_bytes(b"half")
            os._exit(9)
    os.waitpid(child, 0)
    (tmp_path / ".g-ray.json").write_text("{}")
    assert len(list((tmp_path / "depth").iterdir())) == 1
    remove_scratch_files(tmp_path)
    assert not list((tmp_path / "depth").iterdir()) and (tmp_path / ".g-ray.json").exists()
