"""`g-ray reconstruct --weights FILE` with VGGT's own file: the model is recognized, and everything given is used."""

import io
import json
from contextlib import redirect_stdout

import pytest
import torch
from PIL import Image
from room_scenes import shots
from safetensors.torch import save_file

from g_ray.cli.main import main
from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.export.result import read_reconstruction
from g_ray.formats.cameras_json import write_cameras
from g_ray.geometry.pose import Pose
from g_ray.media.view import View
from g_ray.models.reconstruction_config import RECONSTRUCTION_SIZES
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.models.vggt import VGGT, VGGTConfig
from g_ray.models.weights import save_reconstruction
from g_ray.predictors import ModelSettings, choose_model
from g_ray.predictors.anchoring import measure_factors, scale_to_points
from g_ray.sfm import SparseScene, Tracks

CONFIG = VGGTConfig("patch", 32, 4, 2, 14, (0, 1, 2, 3), 8, (4, 4, 8, 8), camera_blocks=1)


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    """photos/, lenses.json (pinhole and fisheye in turn, no poses), cameras.json (poses), model.pt and .safetensors."""
    folder = tmp_path_factory.mktemp("vggt")
    (folder / "photos").mkdir()
    taken = shots(3, ("pinhole", "fisheye"), width=60, height=44)
    for shot in taken:
        Image.fromarray(shot.pixels).save(folder / "photos" / shot.name)
    write_cameras(folder / "lenses.json", [View(shot.name, shot.camera) for shot in taken])
    write_cameras(folder / "cameras.json", [View(shot.name, shot.camera, shot.pose) for shot in taken])
    torch.manual_seed(0)
    model = VGGT(CONFIG)
    with torch.no_grad():  # four steps of 0.25 rad: a field of view of a radian
        model.camera_head.pose_branch.fc2.weight[7:] = 0
        model.camera_head.pose_branch.fc2.bias[7:] = 0.25
    state = {
        name.replace("encoder.", "aggregator.patch_embed.", 1).replace(".attn.out.", ".attn.proj."): value
        for name, value in model.state_dict().items()
    }
    torch.save(state, folder / "model.pt")
    save_file({name: value.contiguous() for name, value in state.items()}, folder / "model.safetensors")
    return folder


def run(capture, out, *more, calibration="lenses.json", weights="model.pt"):
    words = ["reconstruct", str(capture / "photos"), "--calibration", str(capture / calibration)]
    return main([*words, "--out", str(out), "--weights", str(capture / weights), "--size", "56", *more])


def test_weights_say_which_model_it_is(capture, tmp_path):
    assert choose_model(ModelSettings(weights=str(capture / "model.pt"))) == "vggt"
    assert choose_model(ModelSettings(weights=str(capture))) == "vggt"  # a folder with model.safetensors
    model = ReconstructionModel(RECONSTRUCTION_SIZES["tiny"]("gray"))
    save_reconstruction(model, tmp_path / "ours.safetensors")
    assert choose_model(ModelSettings(weights=str(tmp_path / "ours.safetensors"))) == "network"
    assert choose_model(ModelSettings(weights="g-ray-rooms")) == "network"
    assert choose_model(ModelSettings()) == "stereo"
    save_file({"x": torch.zeros(1)}, tmp_path / "strange.safetensors")
    with pytest.raises(ValueError, match="say with --model"):
        choose_model(ModelSettings(weights=str(tmp_path / "strange.safetensors")))


@pytest.fixture(scope="module", params=["crop", "pad"])
def finished(request, capture, tmp_path_factory):
    """A result, how photographs were fitted, and what was printed."""
    out, said = tmp_path_factory.mktemp("result") / "out", io.StringIO()
    weights = {"crop": "model.pt", "pad": "model.safetensors"}[request.param]
    with redirect_stdout(said):
        assert run(capture, out, "--fit", request.param, weights=weights) == 0
    return read_reconstruction(out), request.param, said.getvalue()


def test_photographs_of_any_lens(finished):
    result, fit, said = finished
    assert "virtual pinholes, by VGGT" in said and "takes no calibration" in said
    assert result.settings["model"] == "vggt" and result.settings["fit"] == fit
    assert [view.original_camera.NAME for view in result.views] == ["pinhole", "opencv_fisheye", "pinhole"]
    assert all(bool(view.valid.any()) for view in result.views)
    assert torch.allclose(result.views[0].pose.world_from_cam.double(), torch.eye(4).double(), atol=1e-5)


def test_its_own_lenses_are_kept(capture, tmp_path):
    assert run(capture, tmp_path / "out", "--lenses", "predicted") == 0
    result = read_reconstruction(tmp_path / "out")
    # The fisheye went in as it is, and came back as the pinhole that VGGT takes it for.
    assert {view.original_camera.NAME for view in result.views} == {"pinhole"}
    assert (result.views[1].original_camera.width, result.views[1].original_camera.height) == (60, 44)


def test_weights_can_be_shown(capture, capsys):
    assert main(["weights", "show", str(capture / "model.pt")]) == 0
    said = capsys.readouterr().out
    assert "pairs: 4" in said and "depth_head: " in said


def test_refinement_beside_known_poses_is_refused(capture, tmp_path, capsys):
    assert run(capture, tmp_path / "out", "--refine", calibration="cameras.json") == 2
    assert "--poses align" in capsys.readouterr().err


def test_damaged_weights(capture, tmp_path, capsys):
    (tmp_path / "model.pt").write_bytes(b"not a checkpoint")
    words = ["reconstruct", str(capture / "photos"), "--calibration", str(capture / "lenses.json")]
    assert main([*words, "--out", str(tmp_path / "out"), "--weights", str(tmp_path / "model.pt")]) == 2
    assert "is damaged" in capsys.readouterr().err


# Known poses and matches


def make_sparse(view: ReconstructedView, factor: float) -> SparseScene:
    """Points on the rays of a view, `factor` times as far as its depth says."""
    grid = torch.arange(4.5, 40.0, 6.0)
    pixels = torch.cartesian_prod(grid, grid).double()
    depth, _, _ = view.sample(pixels.float())
    rays = view.original_camera.unproject(pixels)[0]
    points = view.pose.to(torch.float64).apply(factor * depth[:, None].double() * rays)
    points[0] *= 50  # a wrong match
    count = len(points)
    tracks = Tracks(
        torch.zeros(count, dtype=torch.long),
        torch.arange(count),
        pixels,
        torch.zeros(count, 128, dtype=torch.uint8),
    )
    return SparseScene(
        ("a", "b"),
        (view.original_camera,) * 2,
        (view.pose.to(torch.float64),) * 2,
        (None, None),
        points,
        torch.zeros(count, 3, dtype=torch.uint8),
        tracks,
    )


def test_depth_is_scaled_to_triangulated_points():
    from g_ray.cameras import Pinhole

    camera = Pinhole.from_fov(70.0, 44, 44)
    depth = 2 + torch.rand(44, 44)
    pose = Pose.look_at((1.0, 0.0, 0.0), (0.0, 0.0, 3.0))
    view = ReconstructedView(
        "a", camera, pose, depth, torch.ones(44, 44), torch.ones(44, 44, dtype=torch.bool)
    )
    other = ReconstructedView(
        "b", camera, pose, depth, torch.ones(44, 44), torch.ones(44, 44, dtype=torch.bool)
    )
    sparse = make_sparse(view, 1.7)
    factors = measure_factors([view, other], sparse)
    assert factors[0] == pytest.approx(1.7, rel=1e-3) and factors[1] is None
    (scaled, follower), notes = scale_to_points([view, other], sparse)
    assert torch.allclose(scaled.ray_depth, 1.7 * depth, rtol=1e-3)
    assert torch.allclose(follower.ray_depth, 1.7 * depth, rtol=1e-3)  # the median of the others
    assert notes == ["1 views have too few matches: their depth takes the median scale"]


def test_known_poses_are_kept(tmp_path, capture):
    """VGGT takes no poses: its result is moved to them, and they stay to the last digit."""
    pytest.importorskip("pycolmap", reason="structure from motion needs pycolmap")
    assert run(capture, tmp_path / "out", "--metric", calibration="cameras.json") == 0
    result = read_reconstruction(tmp_path / "out")
    document = json.loads((capture / "cameras.json").read_text())["cameras"]
    for number, view in enumerate(result.views):
        expected = torch.tensor(document[number]["world_from_cam"], dtype=torch.float64)
        torch.testing.assert_close(view.pose.world_from_cam.double(), expected, atol=1e-6, rtol=0)
    assert any("moved to the known poses" in note for note in result.notes)


def test_weights_that_cannot_be_downloaded(monkeypatch, capture, tmp_path, capsys):
    import huggingface_hub

    def fail(*_, **__):
        raise huggingface_hub.errors.LocalEntryNotFoundError("no connection,\nand nothing in the cache")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)
    words = ["reconstruct", str(capture / "photos"), "--calibration", str(capture / "lenses.json")]
    assert main([*words, "--out", str(tmp_path / "out"), "--weights", "facebook/VGGT-1B"]) == 2
    said = capsys.readouterr().err
    assert "cannot download model.safetensors of facebook/VGGT-1B" in said and said.count("\n") == 1
