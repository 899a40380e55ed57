"""Photographs of two rooms in one folder: two results, the larger first."""

import json
import math

import pytest
import torch

pytest.importorskip("pycolmap", reason="structure from motion needs pycolmap")

from g_ray.cameras import Pinhole
from g_ray.cli.main import main
from g_ray.demo.room import make_random_room
from g_ray.export.result import read_reconstruction
from g_ray.formats.cameras_json import write_cameras
from g_ray.geometry.pose import Pose
from g_ray.media.view import View, store_image
from g_ray.runtime.out_folder import UNFINISHED
from g_ray.sfm.structure_from_motion import find_groups

CAMERA = Pinhole.make(320, 240, fx=230.0, fy=230.0, cx=160.0, cy=120.0, dtype=torch.float64)


def write_rooms(folder, counts):
    """One room per count, with so many photographs of it, and cameras.json without poses."""
    views = []
    for seed, count in enumerate(counts):
        room = make_random_room(seed, solids=6, dtype=torch.float32)
        for index in range(count):
            turn = 0.12 * index - 0.2
            eye = [1.3 * math.sin(turn), -0.1, -1.2 - 0.8 * math.cos(turn)]
            pose = Pose.look_at(eye, [0.1, 0.3, 1.0])
            seen = room.render(CAMERA.to(dtype=torch.float32), pose.to(torch.float32), antialias=2)
            views.append(View(f"room{seed}_{index}.png", CAMERA))
            store_image(seen.rgb.movedim(-1, 0), folder / views[-1].name, CAMERA)
    write_cameras(folder / "cameras.json", views)


def test_groups_are_components_of_pairs():
    pairs = [(0, 1), (5, 3), (3, 4), (7, 8), (1, 6)]
    assert find_groups(range(1, 9), pairs) == ((3, 4, 5), (1, 6), (7, 8))


def test_two_rooms_are_two_results(tmp_path, capsys):
    write_rooms(tmp_path / "photos", (4, 3))
    words = ["reconstruct", str(tmp_path / "photos"), "--out", str(tmp_path / "out"), "--size", "48"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "2 groups that nothing connects" in printed
    for number, count in ((1, 4), (2, 3)):
        result = read_reconstruction(tmp_path / "out" / f"group-{number}")
        room = f"room{number - 1}_"
        assert [view.name for view in result.cameras()] == [f"{room}{index}.png" for index in range(count)]
        assert result.quality["views"] == result.quality["placed"] == count
        assert (tmp_path / "out" / f"group-{number}" / "report.html").is_file()
    page = (tmp_path / "out" / "report.html").read_text()
    assert 'href="group-2/report.html"' in page
    listed = json.loads((tmp_path / "out" / "result.json").read_text())["groups"]
    assert [len(group["views"]) for group in listed] == [4, 3]
    assert not (tmp_path / "out" / UNFINISHED).parent.exists()
    with pytest.raises(ValueError, match="holds groups that nothing connects: give one of them"):
        read_reconstruction(tmp_path / "out")
    assert main(words) == 2 and "holds a finished result" in capsys.readouterr().err
