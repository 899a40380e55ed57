"""`g-ray data textured-rooms` without any assets."""

import json

import pytest

from g_ray.cli.main import main
from g_ray.formats import read_scene
from g_ray_lab.sources.scene_check import check_scene
from g_ray_lab.textured import AssetFolders, RoomSource, make_textured_room, open_assets

NOTHING = ("--furniture", "none", "--objects", "none", "--images", "none")


def run(out, *more: str) -> int:
    return main(["data", "textured-rooms", "--out", str(out), "--workers", "1", *NOTHING, *more])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("rooms")
    assert run(out, "--scenes", "1", "--views", "3", "--sizes", "48x36", "--lenses", "mixed") == 0
    return out


def test_scenes_are_whole(folder):
    scene = folder / "room-train-0-00000-00000"
    assert len(read_scene(scene).names) == 3
    assert not [finding for finding in check_scene(scene, 3).findings if finding.level == "error"]
    settings = json.loads((folder / "dataset.json").read_text())
    assert settings["source"] == "rooms with 0 pieces of furniture, 0 objects and 0 images"


def test_cameras_stay_inside_their_room(folder):
    source = RoomSource(0, 0, "train", AssetFolders(None, None, None))
    room = make_textured_room(source.compute_room_seed(), open_assets(source.folders))
    eyes = read_scene(folder / "room-train-0-00000-00000").poses.translation.numpy()
    assert room.space.is_free(eyes).all()


def test_other_assets_are_refused_in_the_same_folder(folder, tmp_path, capsys):
    (tmp_path / "mesh.npz").write_bytes(b"")
    assert run(folder, "--scenes", "1", "--views", "3", "--lenses", "mixed", "--objects", str(tmp_path)) != 0
    assert "instead of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--furniture", "absent"), "--furniture absent: no such folder"),
        (("--scenes", "0"), "--scenes 0: give 1 or more"),
        (("--seed", "-1"), "seed"),
    ],
)
def test_mistakes_in_options_are_one_line(tmp_path, capsys, options, words):
    assert run(tmp_path / "out", *options) != 0
    error = capsys.readouterr().err
    assert words in error and len(error.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_missing_assets_are_said(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert run(tmp_path / "out", "--furniture", str(tmp_path / "empty"), "--scenes", "0") != 0
    assert run(tmp_path / "out", "--furniture", str(tmp_path / "empty"), "--workers", "0") != 0
    assert "furniture is made of boxes" in capsys.readouterr().out
