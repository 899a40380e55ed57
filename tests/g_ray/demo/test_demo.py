"""`g-ray demo`: one page that needs nothing else, the figures, and the numbers that both show."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from html_page import Page
from PIL import Image

from g_ray.demo.demo_scene import photograph_room
from g_ray.formats.cameras_json import read_cameras
from g_ray.media.images import read_photo

LENSES = Path(__file__).resolve().parents[3] / "examples" / "lenses"


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "deep" / "folder"
    command = [sys.executable, "-m", "g_ray", "demo", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return out, done.stdout


def test_it_says_what_it_does_and_what_it_found(demo):
    out, said = demo
    for word in (
        "rendering",
        "comparing",
        "drawing",
        "grid index: lenses disagree",
        "ray angle:  lenses agree",
    ):
        assert word in said
    assert str(out / "index.html") in said


def test_ray_phases_agree_to_a_millionth_and_grid_phases_do_not(demo):
    numbers = json.loads((demo[0] / "numbers.json").read_text())
    assert len(numbers["cameras"]) == 3 and len(numbers["pairs"]) >= 5
    assert numbers["ray_spread_rad"] < 1e-6
    for pair in numbers["pairs"]:
        assert pair["ray_spread_rad"] < 1e-6
        assert pair["grid_spread_rad"] > 0.5
        assert max(pair["ray_phase_rad"]) - min(pair["ray_phase_rad"]) < 1e-6


def test_the_figures_are_pictures(demo):
    for name in ("angle-maps", "phases", "priors"):
        for suffix in ("", "-dark"):
            with Image.open(demo[0] / f"{name}{suffix}.png") as picture:
                assert picture.width > 1000


def test_stereo_beats_the_network_and_cameras_that_stand_still(demo):
    rows = {
        model.strip(): [float(number) for number in re.findall(r"(\d+\.?\d*)[%°]?", numbers)]
        for model, numbers in re.findall(
            r"^(stereo|network, .*?|standing .*?)  +(\d.*)$", demo[1], re.MULTILINE
        )
    }
    assert len(rows) == 3
    position, rotation, with_depth, depth, inlier = rows["stereo"]
    assert position < 3 and rotation < 0.3 and with_depth > 25 and depth < 0.02 and inlier > 90
    for model in rows.keys() - {"stereo"}:
        assert rows[model][0] > 10 * position and rows[model][3] > 5 * depth, model


def test_a_room_is_reconstructed_through_three_kinds_of_lens(demo):
    out, said = demo
    folder = out / "reconstruction"
    assert "All 5 photographs are placed." in said
    assert {"report.html", "points.ply", "depths.png"} <= {path.name for path in folder.iterdir()}
    cameras = json.loads((folder / "cameras.json").read_text())["cameras"]
    assert [camera["model"] for camera in cameras].count("opencv_fisheye") == 3
    with Image.open(folder / "depths.png") as picture:
        assert picture.width > 700


def test_the_example_photographs_are_those_of_the_demo():
    scene = photograph_room()
    named = read_cameras(LENSES / "cameras.json")
    assert [view.name for view in named] == list(scene.cameras)
    for view, image, camera in zip(named, scene.images, scene.cameras.values(), strict=True):
        assert (read_photo(LENSES / view.name) - image).abs().mean() < 1 / 255
        assert view.camera.NAME == camera.NAME and bool(
            (view.camera.params - camera.params).abs().max() < 1e-5
        )


def test_the_page_needs_no_network_and_no_other_file(demo):
    text = (demo[0] / "index.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    assert page.links and all(link.startswith("data:image/") for link in page.links)
    assert not re.search(r"https?://|@import|url\(", text)
    assert "${" not in text


def test_the_page_is_accessible(demo):
    text = (demo[0] / "index.html").read_text(encoding="utf-8")
    assert 'lang="en"' in text and "prefers-color-scheme: dark" in text and 'name="viewport"' in text
    assert all(image.get("alt") for image in Page(text).images)


def test_the_probe_of_the_page_holds_what_its_script_needs(demo):
    text = (demo[0] / "index.html").read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    data = json.loads(found[1])
    for view in data["views"]:
        tokens = view["width"] // data["patch"] * view["height"] // data["patch"]
        assert len(view["positions"]["grid"]) == 2 * tokens and len(view["rays"]) == 3 * tokens
