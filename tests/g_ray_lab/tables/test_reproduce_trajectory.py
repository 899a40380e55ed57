"""`g-ray reproduce nvs-trajectory`: paths begin where they should, pictures are the objects', a figure in miniature."""

import json
import math

import pytest
import torch
from PIL import Image
from released_states import make_state

from g_ray.cli.main import main
from g_ray_lab.datasets.objaverse import ObjectCameras, read_cameras, read_image
from g_ray_lab.recipes import released_recipe
from g_ray_lab.sources.object_index import write_indices
from g_ray_lab.sources.objects_nvs import TrajectoryObjects, make_path_cameras
from g_ray_lab.sources.render_objects import sample_cameras

SIZE = 24


def test_a_path_begins_at_the_view_and_turns_around_the_object():
    cameras = sample_cameras("teapot", 0, SIZE)
    first = ObjectCameras(cameras.cameras[3:4], cameras.poses[3:4])
    path = make_path_cameras(first, 5)
    assert torch.allclose(path.poses.world_from_cam[0], first.poses.world_from_cam[0])
    eyes = path.poses.translation
    assert torch.allclose(eyes.norm(dim=-1), eyes[:1].norm(dim=-1).expand(5))
    assert torch.allclose(eyes[:, 2], eyes[:1, 2].expand(5))  # the same height
    azimuth = torch.atan2(eyes[:, 1], eyes[:, 0])
    steps = torch.remainder(azimuth.diff(), 2 * math.pi)
    assert torch.allclose(steps, torch.full((4,), math.radians(30) / 4, dtype=torch.float64))
    # All cameras look at the object's center: it is on their optical axes.
    center = path.poses.inverse().translation
    assert (
        torch.allclose(center[:, :2], torch.zeros(5, 2, dtype=torch.float64), atol=1e-9)
        and (center[:, 2] > 0).all()
    )
    ratio = path.cameras.parameter("fx") / first.cameras.parameter("fx")
    assert ratio[0].item() == pytest.approx(0.7) and ratio[-1].item() == pytest.approx(1.5)
    assert torch.allclose(ratio[1:] / ratio[:-1], (ratio[1] / ratio[0]).expand(4))
    with pytest.raises(ValueError, match="at least 2"):
        make_path_cameras(first, 1)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    pytest.importorskip("embreex", reason="rendering needs embreex")
    folder = tmp_path_factory.mktemp("objects") / "data"
    assert (
        main(["data", "objects", "--out", str(folder), "--count", "2", "--size", str(SIZE), "--workers", "1"])
        == 0
    )
    return folder


def test_frames_show_the_object_of_the_given_views(root):
    """Through a given view's own camera the renderer makes that view's file, but for JPEG."""
    uid = "procedural_000001"
    source = TrajectoryObjects(root, None, SIZE)
    native = read_cameras(root / uid)
    image = source._render(uid, ObjectCameras(native.cameras[6:7], native.poses[6:7]))[0]
    stored = read_image(root / uid / "views" / "002_0.jpg").float() / 255
    assert (image - stored).abs().mean() < 0.02 < stored.std()
    batch = source.make_batch(uid, ("002_0.jpg", "005_0.jpg"), 3)
    assert batch.target_images.shape == (1, 3, 3, SIZE, SIZE) and len(batch.targets) == 3
    assert torch.allclose(
        batch.targets.poses.translation[0, 0], batch.contexts.poses.translation[0, 0], atol=1e-5
    )


def test_the_figure_in_miniature(root, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(released_recipe, "GRID", 4)
    networks = tmp_path / "networks"
    released_recipe.convert_released_lvsm(
        make_state(patch=6),
        networks / "runs" / "rayrope-seed0" / "model.safetensors",
        method=None,
        trained_on="objects",
    )
    write_indices(root, networks / "index", {"procedural_000000": (0, 3)})
    words = ["reproduce", "nvs-trajectory", "--networks", str(networks), "--data", str(root), "--frames", "3"]
    assert main([*words, "--out", str(tmp_path / "figure")]) == 0
    with Image.open(tmp_path / "figure" / "trajectory_procedural_000000.png") as image:
        assert min(image.size) > 200
    scores = json.loads((tmp_path / "figure" / "result.json").read_text())["psnr"]
    assert len(scores["procedural_000000"]["rayrope"]) == 3
    assert (
        main(["reproduce", "nvs-trajectory", "--networks", str(tmp_path), "--out", str(tmp_path / "x")]) == 2
    )
    assert "give the --out of nvs-objects" in capsys.readouterr().err
