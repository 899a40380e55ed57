"""The example room: its photographs are what its cameras see, and the shipped network renders it."""

import subprocess
import sys
from pathlib import Path

import torch

from g_ray.demo.room import make_random_room
from g_ray.formats.cameras_json import read_cameras
from g_ray.media.images import read_photo

ROOT = Path(__file__).resolve().parents[2]
ROOM = ROOT / "examples" / "room"


def test_the_photographs_are_what_their_cameras_see():
    room = make_random_room(7, solids=5, coarse=True)
    for named in read_cameras(ROOM / "cameras.json"):
        assert named.pose is not None
        camera, pose = named.camera.to(torch.float32), named.pose.to(torch.float32)
        seen = room.render(camera, pose, antialias=2).rgb.movedim(-1, 0)
        assert (read_photo(ROOM / named.name) - seen).abs().mean() < 1 / 255


def test_the_targets_have_poses_and_one_is_a_fisheye():
    targets = read_cameras(ROOM / "target.json")
    assert {target.camera.NAME for target in targets} == {"opencv_fisheye", "pinhole"}
    assert all(target.pose is not None for target in targets)


def test_the_example_beats_a_grey_picture(tmp_path):
    example, picture = ROOT / "examples" / "synthesize_room.py", tmp_path / "room.png"
    command = [sys.executable, str(example), str(picture)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    scores = {
        line.split(":")[0]: float(line.split()[-2]) for line in done.stdout.splitlines() if "PSNR" in line
    }
    assert scores.keys() == {"zoom", "fisheye"} and min(scores.values()) > 18, scores
    assert read_photo(picture).shape == (3, 432, 288)
