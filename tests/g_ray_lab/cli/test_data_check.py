"""g-ray data check: every fault that is put into a data set is found and named; a good one passes, real frames too."""

import json
import shutil

import numpy as np
import pytest
import torch

from g_ray.cli.main import main
from g_ray.formats import read_scene
from g_ray_lab.sources.scene_check import _make_depth_view, check_scene

SIDE = (48, 36)
"""Width and height of the photographs that `room_scenes.shots` takes."""
TURN = torch.diag(torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64))
WRITERS = {
    "WAI": "write_wai",
    "nerfstudio": "write_nerfstudio_depth",
    "COLMAP": "write_colmap_dense",
    "7-Scenes": "write_seven_scenes",
}


@pytest.fixture(scope="module")
def shots(room_scenes):
    return room_scenes.shots(9)


@pytest.fixture(scope="module")
def good(tmp_path_factory, room_scenes, shots):
    """A WAI scene to copy and spoil."""
    folder = tmp_path_factory.mktemp("good") / "room"
    room_scenes.write_wai(folder, shots, covisibility=True)
    return folder


def edited(folder, change):
    """scene_meta.json with every frame changed."""
    document = json.loads((folder / "scene_meta.json").read_text())
    for frame in document["frames"]:
        change(frame)
    (folder / "scene_meta.json").write_text(json.dumps(document))


def matrices(folder, change):
    def each(frame):
        matrix = torch.tensor(frame["transform_matrix"], dtype=torch.float64)
        frame["transform_matrix"] = change(matrix).tolist()

    edited(folder, each)


def spoiled_depth(folder, change, room_scenes, shots):
    for shot in shots:
        room_scenes.write_exr(folder / "depth" / shot.name.replace("png", "exr"), change(shot))


def holes(shot):
    depth = shot.z_depth.copy()
    depth[0, 0], depth[1, 1] = np.nan, np.inf
    return depth


FAULTS = {  # how a scene is spoiled, whether that is an error or a warning, and what must be said, about which file
    "axes": (lambda f, *_: matrices(f, lambda m: m @ TURN), "error", "OpenCV and Blender axes confused", ""),
    "inverse poses": (lambda f, *_: matrices(f, torch.linalg.inv), "error", "with inverse poses", ""),
    "ray depth": (
        lambda f, *r: spoiled_depth(f, lambda s: s.ray_depth, *r),
        "error",
        "depth along the ray instead of z-depth",
        "",
    ),
    "millimetres": (
        lambda f, *r: spoiled_depth(f, lambda s: s.z_depth * 1000, *r),
        "error",
        "depth times about 0.001",
        "",
    ),
    "kilometres": (
        lambda f, *r: spoiled_depth(f, lambda s: s.z_depth / 100, *r),
        "error",
        "depth times about 100",
        "",
    ),
    "both": (
        lambda f, *r: (
            matrices(f, lambda m: m @ TURN),
            spoiled_depth(f, lambda s: s.z_depth * 100, *r),
        ),
        "error",
        "axes confused) and depth times about 0.01",
        "",
    ),
    "no calibration": (
        lambda f, *_: edited(f, lambda frame: [frame.pop(key) for key in ("fl_x", "fl_y")]),
        "error",
        "no focal length",
        "",
    ),
    "no image": (lambda f, *_: (f / "images/view_03.png").unlink(), "error", "view_03.png", ""),
    "broken image": (
        lambda f, *_: (f / "images/view_03.png").write_bytes((f / "images/view_03.png").read_bytes()[:300]),
        "error",
        "cannot be read as an image",
        "view_03.png",
    ),
    "no depth map": (
        lambda f, *_: (f / "depth/view_02.exr").unlink(),
        "error",
        "no such depth map",
        "view_02.exr",
    ),
    "broken depth map": (
        lambda f, *_: (f / "depth/view_02.exr").write_bytes(b"no"),
        "error",
        "cannot be read as EXR",
        "view_02.exr",
    ),
    "not finite": (
        lambda f, *r: spoiled_depth(f, holes, *r),
        "warning",
        "not finite: read as no depth (and 7 more",
        "view_00.exr",
    ),
    "empty": (
        lambda f, *r: spoiled_depth(f, lambda s: s.z_depth * 0, *r),
        "error",
        "no pixel with depth",
        "view_00.exr",
    ),
    "other shape": (
        lambda f, *r: spoiled_depth(f, lambda s: s.z_depth[:, :30], *r),
        "error",
        "30×36 px, its photograph 48×36: not of one shape",
        "view_00.exr",
    ),
    "coarse depth": (
        lambda f, *r: spoiled_depth(f, lambda s: s.z_depth[::2, ::2], *r),
        "warning",
        "24 px wide, its photograph 48",
        "view_00.exr",
    ),
    "covisibility": (
        lambda f, *_: np.save(next((f / "covisibility/v0").iterdir()), np.ones((4, 9))),
        "error",
        "shape 4×9 for 9 views",
        ".npy",
    ),
    "covisibility above 1": (
        lambda f, *_: np.save(next((f / "covisibility/v0").iterdir()), np.full((9, 9), 2.0)),
        "error",
        "between 0 and 1",
        ".npy",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(tmp_path, monkeypatch, room_scenes, shots, good, fault):
    spoil, level, said, file = FAULTS[fault]
    if file and level == "error":  # of one file: views need not be compared, which takes a second
        monkeypatch.setattr("g_ray_lab.sources.scene_check.find_contradiction", lambda *_: None)
    folder = tmp_path / "room"
    shutil.copytree(good, folder)
    spoil(folder, room_scenes, shots)
    report = check_scene(folder, frames=8)
    found = [f for f in report.findings if said in f.text and str(f.file).endswith(file)]
    assert found and {f.level for f in found} == {level}, report.findings
    if level == "warning":
        assert not report.errors


@pytest.mark.parametrize("kind", WRITERS)
def test_good_scenes_pass(tmp_path, room_scenes, shots, kind):
    getattr(room_scenes, WRITERS[kind])(tmp_path, shots)
    report = check_scene(tmp_path, frames=8)
    assert (report.kind, report.views) == (kind, 9)
    assert [f for f in report.findings if f.level != "note"] == []


def test_fisheyes_pass_and_their_ray_depth_is_noticed(tmp_path, room_scenes):
    shots = room_scenes.shots(9, ("fisheye", "pinhole"))
    room_scenes.write_wai(tmp_path, shots)
    assert not check_scene(tmp_path, frames=8).errors
    spoiled_depth(tmp_path, lambda shot: shot.ray_depth, room_scenes, shots)
    assert "depth along the ray" in check_scene(tmp_path, frames=8).findings[-1].text


def test_without_depth_pictures_are_matched(tmp_path, room_scenes):
    shots = room_scenes.shots(5, width=160, height=120)
    document = room_scenes.write_nerfstudio(tmp_path, shots)
    report = check_scene(tmp_path, frames=8)
    assert not report.errors and any("no depth" in f.text for f in report.findings)
    for frame in document["frames"]:
        frame["transform_matrix"] = (torch.tensor(frame["transform_matrix"]).double() @ TURN).tolist()
    (tmp_path / "transforms.json").write_text(json.dumps(document))
    (error,) = [f for f in check_scene(tmp_path, frames=8).findings if f.level == "error"]
    assert "OpenCV and Blender axes confused" in error.text


def test_the_command(tmp_path, room_scenes, shots, good, capsys):
    for name in ("a", "b"):
        shutil.copytree(good, tmp_path / "data" / name)
    assert main(["data", "check", str(tmp_path / "data"), "--frames", "8"]) == 0
    assert "2 scenes of 2, 18 views: 0 errors, 0 warnings" in capsys.readouterr().out
    (tmp_path / "data/b/depth/view_02.exr").unlink()
    out = tmp_path / "report.json"
    assert main(["data", "check", str(tmp_path / "data"), "--frames", "9", "--json", str(out)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"error: {tmp_path}/data/b/depth/view_02.exr: no such depth map"
    document = json.loads(out.read_text())
    assert (document["errors"], document["warnings"], len(document["scenes"])) == (1, 0, 2)
    assert document["scenes"][1]["findings"][0]["level"] == "error"
    assert main(["data", "check", str(tmp_path / "data"), "--frames", "4", "--scenes", "1"]) == 0
    assert main(["data", "check", str(tmp_path / "nowhere")]) == 2


def test_what_files_hold_can_be_told(tmp_path, room_scenes, shots, good, capsys):
    shutil.copytree(good, tmp_path / "room")
    spoiled_depth(tmp_path / "room", lambda shot: shot.ray_depth * 1000, room_scenes, shots)
    command = ["data", "check", str(tmp_path / "room"), "--frames", "8"]
    assert main(command) == 1
    assert main([*command, "--depth-convention", "ray", "--depth-unit", "0.001"]) == 0


def write_masks(folder, names, hide):
    """Masks that hide the given columns, with nerfstudio's names."""
    from PIL import Image

    folder.mkdir()
    for name in names:
        mask = np.full((SIDE[1], SIDE[0]), 255, np.uint8)
        mask[:, :hide] = 0
        Image.fromarray(mask).save(folder / name)


def test_masks_are_checked_and_hide_depth(tmp_path, room_scenes, shots, capsys):
    document = room_scenes.write_nerfstudio_depth(tmp_path, shots)
    write_masks(tmp_path / "masks", [shot.name for shot in shots], SIDE[0] // 2)
    for frame, shot in zip(document["frames"], shots, strict=True):
        frame["mask_path"] = f"masks/{shot.name}"
    (tmp_path / "transforms.json").write_text(json.dumps(document))
    findings = check_scene(tmp_path, frames=8).findings
    assert [f.text for f in findings if f.level != "note"] == []
    assert any("masks hide 50% to 50% of the pixels" in f.text for f in findings)
    view = _make_depth_view(read_scene(tmp_path), 0)
    pixels, _ = shots[0].camera.to(torch.float32).project(view.bearings)
    assert len(pixels) and float(pixels[:, 0].min()) >= SIDE[0] // 2  # what is compared with other views
    (tmp_path / "masks" / shots[0].name).unlink()
    assert main(["data", "check", str(tmp_path), "--frames", "9"]) == 1
    assert "no such mask" in capsys.readouterr().out


def test_masks_of_a_folder_are_checked(tmp_path, room_scenes, shots, good, capsys):
    shutil.copytree(good, tmp_path / "room")
    write_masks(tmp_path / "room" / "masks", [shot.name for shot in shots], SIDE[0])
    assert main(["data", "check", str(tmp_path / "room"), "--masks", "masks", "--frames", "8"]) == 1
    assert "hides the whole photograph" in capsys.readouterr().out


REAL = {
    "as it is": (lambda scene: scene, None),
    "axes": (lambda scene: turned(scene), "axes confused"),
    "ray": (lambda scene: with_depth(scene, convention="ray"), "z-depth instead of along the ray"),
    "millimetres": (lambda scene: with_depth(scene, unit=1.0), "depth times about 0.001"),
}


def turned(scene):
    from dataclasses import replace

    from g_ray.geometry.pose import Pose

    views = (replace(view, pose=Pose(view.pose.world_from_cam @ TURN)) for view in scene.views)
    return replace(scene, views=tuple(views))


def with_depth(scene, **changes):
    from dataclasses import replace

    views = (replace(view, depth=replace(view.depth, **changes)) for view in scene.views)
    return replace(scene, views=tuple(views))


@pytest.mark.parametrize("case", REAL)
def test_real_frames(shared_data, case):
    adapt, said = REAL[case]
    folder = shared_data / "7scenes_redkitchen100"
    report = check_scene(folder, frames=8, adapt=adapt)
    assert report.views == 100
    note, *problems = report.findings
    assert note.level == "note" and "color camera f = 525 px" in note.text
    assert [said in finding.text for finding in problems] == ([] if said is None else [True])


def test_readers_still_refuse_what_the_check_reports(tmp_path, good):
    shutil.copytree(good, tmp_path / "room")
    (tmp_path / "room/images/view_03.png").unlink()
    with pytest.raises(ValueError, match="1 of 9 images are missing"):
        read_scene(tmp_path / "room")
    assert len(read_scene(tmp_path / "room", check=False)) == 9
