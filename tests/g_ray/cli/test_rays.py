"""`g-ray rays`: numbers that can be checked by hand, and a picture per camera."""

import os
from pathlib import Path

import pytest
import torch
from PIL import Image

from g_ray.cameras import CAMERAS, Equirectangular, OpenCVFisheye, Pinhole
from g_ray.cli.main import main
from g_ray.viewer.angle_maps import describe_camera

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "cameras.json"


def test_a_pinhole_by_hand():
    row = describe_camera("a", Pinhole.from_fov(90.0, 400, 400).to(dtype=torch.float64)).row
    assert row["FoV h × v (diag.)"] == "90.0° × 90.0° (109.5°)"
    assert row["θx"] == "-44.9° … +44.9°"  # pixel centres, half a pixel inside the frame
    assert row["valid"] == "100.0 %"


def test_lenses_beyond_a_half_space_are_noticed():
    assert describe_camera("all around", Equirectangular.panorama(64, 32)).beyond_90_deg
    assert not describe_camera("ahead", Pinhole.from_fov(120.0, 64, 32)).beyond_90_deg


def test_a_camera_without_rays_is_described_too():
    nothing = OpenCVFisheye.make(8, 8, fx=1.0, fy=1.0, cx=500.0, cy=500.0)
    assert describe_camera("dark", nothing).row["θx"] == "no valid ray"


@pytest.mark.parametrize("name", CAMERAS)
def test_every_model_has_a_row(name):
    row = describe_camera(name, CAMERAS[name].example(seed=2)).row
    assert row["model"] == name and "°" in str(row["θx"])


def test_the_example_file(tmp_path, capsys):
    assert main(["rays", str(EXAMPLE), "--out", str(tmp_path / "pictures")]) == 0
    said = capsys.readouterr().out
    pictures = sorted((tmp_path / "pictures").glob("*.png"))
    assert len(pictures) >= 3
    for picture in pictures:
        assert str(picture) in said
        with Image.open(picture) as image:
            assert image.width > 300


def test_one_camera_by_name(tmp_path, capsys):
    assert main(["rays", str(EXAMPLE), "--name", "panorama", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert [path.name for path in tmp_path.glob("[!.]*")] == ["panorama.png"]
    assert "note: panorama sees beyond 90°" in said


def test_an_unknown_name_lists_the_known_ones(tmp_path, capsys):
    assert main(["rays", str(EXAMPLE), "--name", "nobody", "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "no camera 'nobody'" in error and "panorama" in error


EMPTY = '{"format": "g-ray-cameras", "version": 1, "cameras": []}'


@pytest.mark.parametrize("content", ["", "{", "[]", EMPTY, EMPTY.replace("[]", "{}"), '{"nonsense": 1}'])
def test_a_broken_file_is_one_line(tmp_path, capsys, content):
    path = tmp_path / "broken.json"
    path.write_text(content)
    assert main(["rays", str(path), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("g-ray: ") and error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_device_or_a_pipe_is_not_read_for_ever(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe.json")
    for path in (tmp_path / "pipe.json", "/dev/zero"):
        assert main(["rays", str(path)]) == 2
        assert "a pipe or a device, not a file" in capsys.readouterr().err
