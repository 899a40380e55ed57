"""`g-ray data levels` on a miniature package."""

import json

import pytest
from level_files import write_package

from g_ray.cli.main import main
from g_ray_lab.cli.data_rendering import Levels, parse_size
from g_ray_lab.textured.scene_sources import is_test_level

SPLIT = "test" if is_test_level("mini") else "train"
OTHER = "train" if SPLIT == "test" else "test"


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return write_package(tmp_path_factory.mktemp("game"))


def run(out, package, *more: str) -> int:
    options = ["--views", "2", "--sizes", "32x24", "--split", SPLIT, "--workers", "1", *more]
    return main(["data", "levels", "--out", str(out), "--from", str(package), *options])


def test_the_command_writes_scenes_and_resumes(tmp_path, package, capsys):
    assert run(tmp_path / "out", package, "--scenes", "1", "--lenses", "zoom") == 0
    assert "1 of 1 scenes are in" in capsys.readouterr().out
    settings = json.loads((tmp_path / "out" / "dataset.json").read_text())
    assert settings["lenses"] == "zoom" and settings["sizes"] == [[32, 24]] and settings["split"] == SPLIT
    assert str(package) not in json.dumps(settings)  # a path describes one machine only
    before = (tmp_path / "out" / "mini-00000" / "transforms.json").stat().st_mtime_ns
    assert run(tmp_path / "out", package, "--scenes", "2", "--lenses", "zoom") == 0
    assert sorted(path.name for path in (tmp_path / "out").glob("mini-*")) == ["mini-00000", "mini-00001"]
    assert (tmp_path / "out" / "mini-00000" / "transforms.json").stat().st_mtime_ns == before
    assert not (tmp_path / "out" / ".partial").exists()


def test_other_settings_are_refused(tmp_path, package, capsys):
    assert run(tmp_path / "out", package, "--scenes", "1") == 0
    assert run(tmp_path / "out", package, "--scenes", "1", "--seed", "1") != 0
    assert "seed 0 instead of 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--sizes", "32"), "WIDTHxHEIGHT"),
        (("--sizes", "8x8"), "16 to 4096"),
        (("--workers", "0"), "--workers 0"),
        (("--scenes", "0"), "0 scenes"),
        (("--split", OTHER), f"no levels for the split {OTHER}"),
    ],
)
def test_mistakes_in_options_are_one_line(tmp_path, package, capsys, options, words):
    assert run(tmp_path / "out", package, *options) != 0
    error = capsys.readouterr().err
    assert words in error and len(error.strip().splitlines()) == 1


def test_sizes():
    assert parse_size("168x126") == (168, 126)
    assert Levels.__dataclass_fields__["sizes"].default == ("168x168", "168x126", "126x168")
