"""`g-ray reconstruct` with stereo on a rendered room: exact truth, masks, more photographs, mistakes."""

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
import trimesh
from PIL import Image

pytest.importorskip("pycolmap", reason="structure from motion needs pycolmap")

from g_ray.cameras import Equirectangular, OpenCVFisheye, Pinhole
from g_ray.cli.main import main
from g_ray.demo.room import make_random_room
from g_ray.export.result import read_reconstruction
from g_ray.formats.cameras_json import read_cameras, write_cameras
from g_ray.formats.colmap.colmap_scene import read_colmap
from g_ray.geometry.pose import Pose
from g_ray.media.view import View
from g_ray.predictors.model_settings import ModelSettings
from g_ray.predictors.predictor import SceneInput
from g_ray.predictors.stereo_predictor import StereoPredictor
from g_ray.sfm import SfMOptions
from g_ray.stereo import StereoOptions

WIDTH, HEIGHT, VIEWS = 240, 180, 6
SMALL = 96
"""Width of depth where it is not what a test is about: features are found in whole photographs all the same."""


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    """photos/, cameras.json with poses, lenses.json without; pinholes and fisheyes in turn; true ray depths."""
    folder = tmp_path_factory.mktemp("stereo")
    (folder / "photos").mkdir()
    room = make_random_room(0, solids=6, dtype=torch.float32)
    lenses = [
        Pinhole.make(WIDTH, HEIGHT, fx=170.0, fy=170.0, cx=120.0, cy=90.0),
        OpenCVFisheye.make(WIDTH, HEIGHT, fx=110.0, fy=110.0, cx=121.0, cy=89.0, k1=0.01),
    ]
    cameras, depths = [], []
    for view in range(VIEWS):
        turn = 0.15 * view - 0.4
        eye = torch.tensor([1.3 * math.sin(turn), -0.1, -1.2 - 0.8 * math.cos(turn)])
        pose = Pose.look_at(eye=eye, target=torch.tensor([0.2 * math.sin(1.3 * view), 0.3, 1.0]))
        camera = lenses[view % 2]
        shot = room.render(camera, pose, antialias=2)
        pixels = (255 * shot.rgb).round().byte().numpy()
        Image.fromarray(pixels).save(folder / "photos" / f"v{view}.png")
        depths.append(shot.ray_depth)
        cameras.append(View(f"v{view}.png", camera, pose.to(torch.float64)))
    write_cameras(folder / "cameras.json", cameras)
    write_cameras(folder / "lenses.json", [View(one.name, one.camera) for one in cameras])
    torch.save(torch.stack(depths), folder / "depths.pt")
    return folder


def run(capture, out, *more, calibration="cameras.json"):
    words = ["reconstruct", str(capture / "photos"), "--calibration", str(capture / calibration)]
    return main([*words, "--out", str(out), "--size", str(WIDTH), *more])


@pytest.fixture(scope="module")
def given(capture, tmp_path_factory):
    """A result with given poses."""
    out = tmp_path_factory.mktemp("given") / "out"
    assert run(capture, out, "--metric") == 0
    return out


def test_given_poses_are_kept_and_depth_is_right(capture, given):
    result = read_reconstruction(given)
    true_depth = torch.load(capture / "depths.pt", weights_only=True)
    document = json.loads((capture / "cameras.json").read_text())["cameras"]
    assert result.unit == "metre" and result.quality["grade"] in ("good", "partial")
    assert len(result.views) == VIEWS
    errors = []
    for number, view in enumerate(result.views):
        expected = torch.tensor(document[number]["world_from_cam"], dtype=torch.float64)
        torch.testing.assert_close(view.pose.world_from_cam.double(), expected, atol=1e-9, rtol=0)
        errors.append((view.ray_depth / true_depth[number] - 1).abs()[view.valid])
    error = torch.cat(errors)
    assert len(error) > 0.04 * true_depth.numel()  # the waves on its walls are faint at this size
    assert float((error < 0.03).float().mean()) > 0.75


def test_real_tracks_are_exported(given):
    pycolmap = pytest.importorskip("pycolmap")
    model = pycolmap.Reconstruction(str(given / "colmap" / "sparse" / "0"))
    assert len(model.images) == VIEWS and len(model.points3D) > 50
    assert model.compute_mean_reprojection_error() < 1.5
    lengths = [point.track.length() for point in model.points3D.values()]
    assert min(lengths) >= 2 and max(lengths) > 2


def test_points_have_normals_and_the_page_says_how_good_it_is(given):
    head = (given / "points.ply").read_bytes()[:400].decode("latin1")
    assert "property float nx" in head
    quality = json.loads((given / "result.json").read_text())["quality"]
    assert any("photographs are placed" in sentence for sentence in quality["verdict"])
    assert any("Known poses are kept" in sentence for sentence in quality["verdict"])


def test_poses_by_structure_from_motion(capture, tmp_path, capsys):
    assert run(capture, tmp_path / "out", "--poses", "align", "--size", str(SMALL)) == 0
    quality = read_reconstruction(tmp_path / "out").quality
    assert quality["placed"] == VIEWS
    assert quality["position_error_of_extent"] < 0.1 and quality["rotation_between_views_deg"] < 3
    said = capsys.readouterr().out
    assert "if the cameras stood still" in said and said.index("result: ") < said.index(
        "photographs are placed"
    )


def test_masks_hide_pixels_everywhere(capture, tmp_path):
    masks = tmp_path / "masks"
    masks.mkdir()
    for view in range(VIEWS):
        mask = np.full((HEIGHT, WIDTH), 255, np.uint8)
        mask[:, : WIDTH // 3] = 0
        Image.fromarray(mask).save(masks / f"v{view}.png.png")
    assert run(capture, tmp_path / "out", "--masks", str(masks), "--size", str(SMALL)) == 0
    for view in read_reconstruction(tmp_path / "out").views:
        assert not bool(view.valid[:, : SMALL // 3].any()) and bool(view.valid.any())
    scene = read_colmap(tmp_path / "out" / "colmap", check=False)
    assert len(scene.names) == VIEWS


def test_photographs_are_added_to_a_finished_result(capture, given, tmp_path):
    """A seventh photograph, without a pose, finds its place."""
    first = tmp_path / "first"
    words = ["reconstruct", *(str(capture / "photos" / f"v{view}.png") for view in range(VIEWS - 1))]
    calibration = ["--calibration", str(capture / "cameras.json"), "--size", str(SMALL)]
    assert main([*words, *calibration, "--out", str(first)]) == 0
    last = ["reconstruct", str(capture / "photos" / f"v{VIEWS - 1}.png")]
    lenses = ["--calibration", str(capture / "lenses.json"), "--size", str(SMALL)]
    assert main([*last, *lenses, "--into", str(first), "--out", str(tmp_path / "second")]) == 0
    result = read_reconstruction(tmp_path / "second")
    assert len(result.views) == VIEWS
    true_pose = read_reconstruction(given).views[VIEWS - 1].pose
    offset = (result.views[VIEWS - 1].pose.translation.double() - true_pose.translation.double()).norm()
    assert float(offset) < 0.05


def test_network_fills_what_stereo_leaves_empty(capture, tmp_path):
    assert run(capture, tmp_path / "out", "--fill", "network", "--size", str(SMALL)) == 0
    result = read_reconstruction(tmp_path / "out")
    assert result.quality["share_filled"] > 0
    view = result.views[0]
    assert view.filled is not None and bool(view.valid[view.filled].all())
    filled = trimesh.load(tmp_path / "out" / "points.ply").metadata["_ply_raw"]["vertex"]["data"]["filled"]
    assert 0 < int(filled.sum()) < len(filled) and set(filled.tolist()) == {0, 1}
    (measured,) = (
        part for part in trimesh.load_scene(tmp_path / "out" / "scene.glb").geometry.values()
        if isinstance(part, trimesh.PointCloud)
    )  # fmt: skip
    assert len(measured.vertices) == int((filled == 0).sum())
    page = (tmp_path / "out" / "report.html").read_text()
    assert "of them filled in" in page and 'id="filled"' in page


def test_one_photograph_has_depth_by_a_network_alone(capture, tmp_path, capsys):
    words = ["reconstruct", str(capture / "photos" / "v0.png"), "--calibration", str(capture / "lenses.json")]
    assert main([*words, "--out", str(tmp_path / "stereo")]) == 2
    said = capsys.readouterr().err
    assert "has no parallax" in said and "--model network" in said and said.count("\n") == 1
    alone = ["--model", "network", "--weights", "g-ray-rooms", "--out", str(tmp_path / "out")]
    assert main([*words, *alone]) == 0
    result = read_reconstruction(tmp_path / "out")
    assert result.quality["grade"] == "unverified" and bool(result.views[0].valid.any())
    assert b"element vertex 0\n" not in (tmp_path / "out" / "points.ply").read_bytes()[:200]
    photo = shutil.copy(capture / "photos" / "v0.png", tmp_path / "a.png")
    assert main(["reconstruct", str(photo), *alone[:-1], str(tmp_path / "exif")]) == 2
    assert "no focal length" in capsys.readouterr().err


def test_wide_lenses_get_more_pixels_as_far_as_memory_allows():
    lenses = [Pinhole.from_fov(60, 1600, 1200), Equirectangular.panorama(4000, 2000)]
    scene = SceneInput([View(f"{number}.png", lens) for number, lens in enumerate(lenses)])
    plain = StereoPredictor.from_settings(ModelSettings())
    assert "depth at 480 to 960 px" in plain.estimate_cost(scene).text
    large = plain.estimate_cost(scene).memory
    bounded = StereoPredictor.from_settings(ModelSettings(max_memory=0.98 * large / 2**30)).estimate_cost(
        scene
    )
    assert "480 to 768 px" in bounded.text and bounded.memory < 0.98 * large
    fixed = StereoPredictor.from_settings(ModelSettings(size=480))
    assert "depth at 480 px" in fixed.estimate_cost(scene).text


def test_network_places_what_matching_cannot(capture, tmp_path, capsys):
    """A photograph of a blank wall has no features; its pose is the network's, and everything says so."""
    words = ["reconstruct", *(str(capture / "photos" / f"v{view}.png") for view in range(4))]
    Image.new("RGB", (WIDTH, HEIGHT), (90, 90, 90)).save(tmp_path / "v4.png")
    lenses = ["--calibration", str(capture / "lenses.json"), "--size", str(SMALL)]
    out = tmp_path / "out"
    placing = ["--unplaced", "network", "--weights", "g-ray-rooms"]
    assert main([*words, str(tmp_path / "v4.png"), *lenses, *placing, "--out", str(out)]) == 0
    result = read_reconstruction(out)
    guessed = {view.name.rsplit("/", 1)[-1]: view.pose_guessed for view in result.views}
    assert guessed == {f"v{view}.png": view == 4 for view in range(5)}
    (name,) = result.quality["placed_by_network"]
    assert name.endswith("v4.png") and result.quality["grade"] != "good"
    assert any("stand where the network put them" in sentence for sentence in result.quality["verdict"])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--model", "network", "--unplaced", "network"], "leave them out with --model network"),
        (["--rig", "nowhere.json"], "no such file"),
        (["--into", "nowhere"], "no such folder"),
        (["--model", "network", "--into", "somewhere"], "leave out --model network"),
        (["--masks", "nowhere"], "nowhere"),
        (["--model", "network", "--weights", "g-ray-rooms", "--rig", "RIG"], "cannot use the given rig"),
    ],
)
def test_mistakes_are_one_line(capture, tmp_path, capsys, more, message):
    rig = tmp_path / "rig.json"
    poses = [{"image_prefix": "v0", "ref_sensor": True}, {"image_prefix": "v1", "cam_from_rig_rotation": [1, 0, 0, 0],
             "cam_from_rig_translation": [0.1, 0, 0]}]  # fmt: skip
    rig.write_text(json.dumps([{"cameras": poses}]))
    more = [str(rig) if word == "RIG" else word for word in more]
    assert run(capture, tmp_path / "out", *more) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1
    assert not (tmp_path / "out" / "result.json").exists()


def test_photographs_that_share_nothing(capture, tmp_path, capsys):
    random = np.random.default_rng(0)
    for name in ("a", "b"):
        noise = random.integers(0, 255, (HEIGHT, WIDTH, 3), dtype=np.uint8)
        Image.fromarray(noise).save(tmp_path / f"{name}.png")
    camera = Pinhole.from_fov(60, WIDTH, HEIGHT)
    words = ["reconstruct", str(tmp_path / "a.png"), str(tmp_path / "b.png"), "--out", str(tmp_path / "o")]
    write_cameras(tmp_path / "c.json", [View(f"{name}.png", camera) for name in ("a", "b")])
    assert main([*words, "--calibration", str(tmp_path / "c.json")]) == 2
    assert "share nothing" in capsys.readouterr().err
    # With known poses depth is searched in a guessed range: the result is poor, and says why.
    poses = {name: Pose.look_at([x, 0.0, 0.0], [x, 0.0, 1.0]) for name, x in (("a", 0.0), ("b", 0.2))}
    write_cameras(tmp_path / "p.json", [View(f"{name}.png", camera, pose) for name, pose in poses.items()])
    small = ["--out", str(tmp_path / "q"), "--size", "32"]
    assert main([*words, "--calibration", str(tmp_path / "p.json"), *small]) == 0
    printed = capsys.readouterr().out
    assert "result: poor" in printed and "nothing checks the given poses" in printed


def test_learned_stereo_marks_what_is_not_sure(capture, tmp_path):
    """In these small photographs with little texture the network is sure of few pixels; the others are marked."""
    pytest.importorskip("g_ray_weights")
    assert run(capture, tmp_path / "out", "--metric", "--stereo", "learned", "--size", str(SMALL)) == 0
    result = read_reconstruction(tmp_path / "out")
    right = confirmed = 0
    for view, truth in zip(result.views, torch.load(capture / "depths.pt", weights_only=True), strict=True):
        assert view.filled is not None and not bool((view.filled & ~view.valid).any())
        assert not bool(view.filled.any()) or float(view.confidence[view.filled].max()) <= 0.1
        kept = view.valid & ~view.filled
        confirmed += int(kept.sum())
        true_depth = torch.nn.functional.interpolate(truth[None, None], view.ray_depth.shape)[0, 0]
        right += int(((view.ray_depth / true_depth - 1).abs() < 0.1)[kept].sum())
    assert right > 0.85 * confirmed > 0.005 * VIEWS * SMALL * SMALL * HEIGHT / WIDTH
    assert 0.3 < result.quality["share_filled"] < 1


def test_without_weights_stereo_is_classical_and_says_so(capture, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("g_ray.models.weights.DISTRIBUTION", "weights-that-nobody-installed")
    assert run(capture, tmp_path / "out", "--metric", "--stereo", "learned", "--size", "64") == 0
    said = capsys.readouterr().out
    assert "depth is found by the classical sweep" in said and "pip install" in said
    assert all(view.filled is None for view in read_reconstruction(tmp_path / "out").views)


def test_known_poses_need_no_features(capture):
    """With four features a photograph none match: how far the scene is comes from a sweep over all distances."""
    views = read_cameras(capture / "cameras.json")[:4]
    scene = SceneInput([replace(view, image=load_photo(capture / "photos" / view.name)) for view in views])
    predictor = StereoPredictor(SfMOptions(max_features=4), StereoOptions(long_side=120))
    found = predictor.predict(scene)
    assert found.sparse is not None and not len(found.sparse.points) and found.keeps_poses
    true_depth = torch.load(capture / "depths.pt", weights_only=True)[:4]
    errors = []
    for view, truth in zip(found.views, true_depth, strict=True):
        assert view is not None
        small = torch.nn.functional.interpolate(truth[None, None], view.ray_depth.shape)[0, 0]
        errors.append((view.ray_depth / small - 1).abs()[view.valid])
    assert len(torch.cat(errors)) > 100 and float(torch.cat(errors).median()) < 0.1


def load_photo(path):
    return torch.from_numpy(np.array(Image.open(path))).permute(2, 0, 1).float() / 255


def test_no_depth_at_all_is_said(capture):
    views = read_cameras(capture / "cameras.json")
    images = [load_photo(capture / "photos" / view.name) for view in views]
    scene = SceneInput(
        [replace(view, image=image, pose=None) for view, image in zip(views, images, strict=True)]
    )
    nothing = StereoPredictor(stereo=StereoOptions(long_side=32, min_score=2.0))
    with pytest.raises(ValueError, match="no pixel has a depth that two photographs agree on"):
        nothing.predict(scene)


def test_views_at_once_fit_the_memory(capture, monkeypatch):
    scene = SceneInput(read_cameras(capture / "cameras.json"))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    plenty = StereoPredictor(max_memory=8.0).estimate_cost(scene)
    tight = StereoPredictor(max_memory=plenty.memory / 2**30 - 0.2).estimate_cost(scene)
    assert tight.memory < plenty.memory and tight.seconds > plenty.seconds
