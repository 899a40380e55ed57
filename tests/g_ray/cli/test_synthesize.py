"""`g-ray synthesize`: pictures and videos from photographs, and every mistake in one line."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from PIL import Image

from g_ray.cameras import OpenCVFisheye
from g_ray.cli.main import main
from g_ray.formats.cameras_json import write_cameras
from g_ray.media.view import View
from g_ray_lab.training.recipe import CurveRecipe


@pytest.fixture(scope="module")
def place(tmp_path_factory, room_scenes):
    """Photographs, a camera file, targets, a scene folder and weights."""
    folder = tmp_path_factory.mktemp("synthesize")
    views = room_scenes.shots(5)
    room_scenes.write_images(folder, views)
    room_scenes.write_camera_file(folder / "cameras.json", views[:3])
    room_scenes.write_camera_file(folder / "blind.json", views[:3], poses=False)
    stems = [replace(view, name=view.name[:-4]) for view in views[:2]]
    room_scenes.write_camera_file(folder / "stems.json", stems)
    others = [replace(view, name=f"lens {i}") for i, view in enumerate(views[:2])]
    room_scenes.write_camera_file(folder / "others.json", others)
    room_scenes.write_camera_file(folder / "small.json", room_scenes.shots(2, width=40, height=36))
    fisheye = OpenCVFisheye.make(80, 80, fx=24.0, fy=24.0, cx=40.0, cy=40.0, dtype=torch.float64)
    write_cameras(folder / "target.json", [View("fish eye", fisheye, views[3].pose)])
    write_cameras(folder / "lens.json", [View("fish eye", fisheye)])
    write_cameras(folder / "targets.json", [View(f"t{i}", views[i].camera, views[i].pose) for i in (3, 4)])
    write_cameras(folder / "alike.json", [View(n, fisheye, views[3].pose) for n in ("a b", "a?b")])
    write_cameras(folder / "empty.json", [])
    room_scenes.write_colmap(folder / "scene", views)
    room_scenes.write_weights(folder / "model.safetensors")
    (folder / "broken.png").write_bytes((folder / "view_00.png").read_bytes()[:300])
    (folder / "broken.safetensors").write_bytes(b"x" * 100)
    (folder / "file").write_text("not a folder")
    return folder


def run(place, *words, context=("view_00.png", "view_01.png"), out="out", weights="model.safetensors"):
    photos = [name if "--scene" in words else str(place / name) for name in context]
    known = [
        str(place / word) if word.endswith(".json") or word in ("scene", "file") else word for word in words
    ]
    return main(
        [
            "synthesize",
            "--context",
            *photos,
            *known,
            "--weights",
            str(place / weights),
            "--out",
            str(place / out),
        ]
    )


CAMERAS = ["--cameras", "cameras.json"]
TARGET = ["--target", "target.json"]


def test_a_fisheye_target_from_two_photographs(place, capsys):
    assert run(place, *CAMERAS, *TARGET, out="one.png") == 0
    said = capsys.readouterr().out
    assert "cameras: by name, 2 of the 3" in said and "opencv_fisheye 80×80 → 42×42 px" in said
    assert "as given, in meters" in said and "contexts: 2 at 48×36 px" in said
    with Image.open(place / "one.png") as image:
        assert image.size == (42, 42)
    assert run(place, *CAMERAS, *TARGET, "--full-size", out="large") == 0
    with Image.open(place / "large" / "fish_eye.png") as image:
        assert image.size == (80, 80)


def test_several_targets_are_a_picture_each(place, capsys):
    assert run(place, *CAMERAS, "--target", "targets.json", "--baseline", "0.7", out="several") == 0
    assert "so that contexts are up to 0.7 apart" in capsys.readouterr().out
    assert sorted(path.name for path in (place / "several").glob("[!.]*")) == ["t3.png", "t4.png"]


@pytest.mark.parametrize(
    ("file", "message"),
    [("stems.json", "by name, 2 of the 2"), ("others.json", "so in order: view_00.png = lens 0")],
)
def test_cameras_are_matched_by_stem_or_in_order_and_that_is_said(place, capsys, file, message):
    assert run(place, "--cameras", file, *TARGET, out=f"{file}.png") == 0
    assert message in capsys.readouterr().out


def test_a_scene_folder_and_one_of_its_views(place, capsys):
    assert run(place, "--scene", "scene", "--target", "view_03.png", out="view.png") == 0
    said = capsys.readouterr().out
    assert "COLMAP, 5 images (pinhole)" in said and "pinhole 48×36 → 48×36 px" in said


@pytest.mark.parametrize(
    ("words", "out"),
    [
        (["--path", "interpolate", "--frames", "5"], "path.gif"),
        (["--path", "orbit", "--frames", "5", "--extent", "20", "--fps", "5"], "path.mp4"),
        (["--path", "zoom", "--frames", "5", "--target", "lens.json"], "zoom.gif"),
    ],
)
def test_paths(place, capsys, words, out):
    assert run(place, *CAMERAS, *words, out=out) == 0
    said = capsys.readouterr().out
    assert f"5 frames, {words[1]}" in said and "frames: 100 %" in said
    assert ("opencv_fisheye" if "lens.json" in words else "pinhole 48×36") in said
    if out.endswith(".gif"):
        with Image.open(place / out) as image:
            assert image.n_frames == 5
    else:
        assert (place / out).stat().st_size > 500


def test_the_same_command_gives_the_same_picture(place):
    for name in ("a.png", "b.png"):
        assert run(place, *CAMERAS, *TARGET, out=name) == 0
    assert (place / "a.png").read_bytes() == (place / "b.png").read_bytes()


@pytest.mark.parametrize(
    ("words", "more", "message"),
    [
        ([*TARGET], {}, "either --cameras FILE or --scene FOLDER"),
        ([*CAMERAS, "--scene", "scene", *TARGET], {}, "either --cameras FILE or --scene FOLDER"),
        ([*CAMERAS], {}, "nothing to render"),
        ([*CAMERAS, *TARGET], {"context": ("nobody.png", "view_01.png")}, "nobody.png has no camera in"),
        ([*CAMERAS, *TARGET], {"context": ("view_00.png", "view_04.png")}, "view_04.png has no camera in"),
        ([*CAMERAS, *TARGET], {"context": ("view_00.png", "view_00.png")}, "twice"),
        (["--cameras", "stems.json", *TARGET], {"context": ("view_00.jpg", "view_01.png")}, "jpg: no such image"),
        (["--cameras", "others.json", *TARGET], {"context": ("view_00.png", "broken.png")}, "png: cannot be read"),
        (["--cameras", "small.json", *TARGET], {}, "it is for 40×36 px, view_00.png has 48×36, another shape"),
        (["--cameras", "blind.json", *TARGET], {}, "camera 'view_00.png' of"),
        (["--cameras", "nowhere.json", *TARGET], {}, "nowhere.json: no such calibration"),
        ([*CAMERAS, "--target", "lens.json"], {}, "target 'fish eye' has no pose"),
        ([*CAMERAS, "--target", "empty.json"], {}, "has no cameras: add one"),
        ([*CAMERAS, "--target", "target.yaml"], {}, "give a .json file with cameras"),
        ([*CAMERAS, "--target", "missing.json"], {}, "missing.json: cannot be read"),
        ([*CAMERAS, "--target", "alike.json"], {}, "two targets would both be written as a_b.png"),
        ([*CAMERAS, "--target", "targets.json"], {"out": "x.png"}, "is one picture, but there are 2 targets"),
        ([*CAMERAS, *TARGET], {"out": "x.jpg"}, "give a .png file or a folder"),
        ([*CAMERAS, *TARGET], {"out": "x.mp4"}, "give a .png file or a folder"),
        ([*CAMERAS, "--path", "orbit"], {"out": "x.png"}, "give a .mp4 or .gif file"),
        ([*CAMERAS, *TARGET], {"out": "file/deep"}, "is a file, not a folder"),
        ([*CAMERAS, *TARGET], {"out": "file"}, "is a file: give a folder"),
        ([*CAMERAS, *TARGET], {"weights": "nowhere.safetensors"}, "nowhere.safetensors: no such file"),
        ([*CAMERAS, *TARGET], {"weights": "broken.safetensors"}, "is not a safetensors file"),
        ([*CAMERAS, *TARGET], {"weights": "target.json"}, "is not a safetensors file"),
        ([*CAMERAS, *TARGET, "--frames", "3"], {}, "--frames needs --path"),
        ([*CAMERAS, "--path", "orbit", "--frames", "0"], {"out": "x.gif"}, "--frames must be positive"),
        ([*CAMERAS, "--path", "orbit", "--frames", "1000000000"], {"out": "x.gif"}, "has 10000 frames at most"),
        ([*CAMERAS, "--path", "interpolate", "--extent", "3"], {"out": "x.gif"}, "--extent goes with --path orbit"),
        ([*CAMERAS, "--path", "zoom", "--extent", "0.5"], {"out": "x.gif"}, "shows nothing new"),
        ([*CAMERAS, "--path", "orbit", *TARGET], {"out": "x.gif"}, "one camera, without world_from_cam"),
        ([*CAMERAS, "--path", "orbit"], {"out": "x.gif", "context": ("view_00.png",)}, "look side by side"),
        ([*CAMERAS, *TARGET, "--baseline", "-1"], {}, "--baseline must be positive"),
        ([*CAMERAS, *TARGET, "--baseline", "inf"], {}, "--baseline must be positive and finite"),
        ([*CAMERAS, *TARGET, "--device", "meta"], {}, "runs on cpu and cuda"),
        ([*CAMERAS, *TARGET, "--device", "abacus"], {}, "is not a device"),
        (["--scene", "scene", "--target", "view_9.png"], {}, "no image named 'view_9.png'"),
        (["--scene", "scene", *TARGET], {"context": ("a.png",)}, "no image named 'a.png'"),
        (["--scene", "file", *TARGET], {}, "no such folder"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(place, capsys, words, more, message):
    assert run(place, *words, **more) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and message in error and error.startswith("g-ray: ")


def test_weights_of_another_task_and_of_another_shape_are_refused(place, capsys, tmp_path):
    from safetensors.torch import save_file

    document = {"name": "curve", "kind": "CurveRecipe", "settings": CurveRecipe().to_settings()}
    save_file({"a": torch.ones(1)}, tmp_path / "a.safetensors", metadata={"recipe": json.dumps(document)})
    assert run(place, *CAMERAS, *TARGET, weights=tmp_path / "a.safetensors") == 2
    assert "give weights of a novel-view synthesis recipe" in capsys.readouterr().err
    from g_ray_lab.recipes.nvs_recipes import tiny

    document = {"name": "tiny", "kind": "NVSRecipe", "settings": tiny("gta_gray").to_settings()}
    save_file({"a": torch.ones(1)}, tmp_path / "b.safetensors", metadata={"recipe": json.dumps(document)})
    assert run(place, *CAMERAS, *TARGET, weights=tmp_path / "b.safetensors") == 2
    error = capsys.readouterr().err
    assert "its config asks for 4 layers" in error and error.count("\n") == 1


def test_help_does_not_import_torch():
    code = (
        "import sys\nfrom g_ray.cli.main import main\n"
        "try:\n    main(['synthesize', '--help'])\nexcept SystemExit as stop:\n    assert stop.code == 0\n"
        "heavy = {'torch', 'numpy', 'safetensors', 'PIL', 'av'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
