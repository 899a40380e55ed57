"""VGGT with camera and depth heads: what official code made of a tiny network, and weights as they are downloaded.

Weights are drawn by name, so that the stored file holds outputs alone; `benchmarks/parity_vggt.py` wrote it.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from g_ray.cameras import Pinhole
from g_ray.models.vggt import VGGT, EncodedCameras, VGGTConfig, build_vggt, load_vggt, read_config

CONFIG = VGGTConfig("patch", 32, 4, 2, 14, (0, 1, 2, 3), 8, (4, 4, 8, 8), camera_blocks=4)


@pytest.fixture(scope="module")
def script(repo_root):
    path = repo_root / "benchmarks" / "parity_vggt.py"
    spec = importlib.util.spec_from_file_location("parity_vggt", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def state(script) -> dict[str, torch.Tensor]:
    """A checkpoint with VGGT's own names."""
    with torch.device("meta"):
        shapes = {name: tuple(value.shape) for name, value in VGGT(CONFIG).state_dict().items()}
    names = {
        name.replace("encoder.", "aggregator.patch_embed.", 1).replace(".attn.out.", ".attn.proj."): shape
        for name, shape in shapes.items()
    }
    return {name: script.draw_weights(name, shape) for name, shape in names.items()}


@pytest.fixture(scope="module")
def vectors() -> dict[str, torch.Tensor]:
    with np.load(Path(__file__).parent / "data" / "vggt_tiny.npz") as file:
        return {name: torch.from_numpy(file[name]) for name in file.files}


def relative(found, wanted) -> float:
    return float((found - wanted).abs().max() / wanted.abs().max())


@torch.no_grad()
def test_every_stage_is_what_official_code_computed(script, state, vectors):
    model, step = build_vggt(state), script.STEP
    kept = script.record(model, ["camera_head.trunk.3", "depth_head.scratch.refinenet1"])
    codes = []
    model.camera_head.register_forward_hook(lambda _, __, output: codes.extend(output))
    found = model(script.make_images(script.SIZES["vectors"], 2))
    assert relative(torch.stack(kept["camera_head.trunk.3"])[..., ::step], vectors["trunk"]) < 1e-5
    assert relative(kept["depth_head.scratch.refinenet1"][0][..., ::step, ::step], vectors["refined"]) < 1e-5
    assert relative(torch.stack(codes), vectors["codes"]) < 1e-5
    assert relative(found.depth[..., ::step, ::step], vectors["depth"]) < 1e-5
    assert relative(found.confidence[..., ::step, ::step], vectors["confidence"]) < 1e-5
    assert relative(found.cameras.poses.cam_from_world[..., :3, :], vectors["extrinsics"]) < 1e-5


@torch.no_grad()
def test_chunks_of_queries_change_nothing(script, state):
    model, images = build_vggt(state), script.make_images(script.SIZES["vectors"], 3)
    whole, parts = model(images), model(images, query_chunk=5)
    assert relative(parts.depth, whole.depth) < 1e-5
    assert relative(parts.cameras.code, whole.cameras.code) < 1e-5


def test_code_is_the_inverse_pose_and_two_angles():
    # A camera at (1, 2, 3) that is turned by 90° about y: its z axis is the world's x axis.
    quarter = 0.5**0.5
    rotation = torch.tensor([[0.0, 0, -1], [0, 1, 0], [1, 0, 0]])  # cam_from_world
    translation = -rotation @ torch.tensor([1.0, 2, 3])
    code = torch.cat([translation, 3 * torch.tensor([0.0, -quarter, 0, quarter]), torch.tensor([1.2, 1.5])])
    cameras = EncodedCameras(code)
    assert torch.allclose(cameras.poses.translation, torch.tensor([1.0, 2, 3]), atol=1e-6)
    assert torch.allclose(cameras.poses.rotation[:, 2], torch.tensor([1.0, 0, 0]), atol=1e-6)
    k = cameras.compute_intrinsics(518, 294)
    camera = Pinhole.make(518, 294, fx=k[0, 0], fy=k[1, 1], cx=k[0, 2], cy=k[1, 2])
    edge, _ = camera.unproject(torch.tensor([[518.0, 147.0], [259.0, 294.0]]))
    across, down = torch.atan2(edge[0, 0], edge[0, 2]), torch.atan2(edge[1, 1], edge[1, 2])
    assert float(across) == pytest.approx(0.75, abs=1e-6) and float(down) == pytest.approx(0.6, abs=1e-6)


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_downloaded_file_is_read_as_it_is(state, tmp_path, suffix):
    extra = {"point_head.norm.weight": torch.ones(64), "track_head.feature.weight": torch.ones(2, 2)}
    path = tmp_path / f"model.{suffix}"
    if suffix == "pt":
        torch.save({**state, **extra}, path)
    else:
        save_file({name: value.contiguous() for name, value in {**state, **extra}.items()}, path)
    model = load_vggt(path)
    assert model.config == CONFIG == read_config(state)
    assert not model.training and next(model.parameters()).dtype == torch.float32
    # A folder works where the file has the hub's name.
    assert suffix == "pt" or load_vggt(tmp_path).config == CONFIG


def change(state, name, value):
    return {key: (value if key == name else old) for key, old in state.items()}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (
            lambda s: {k: v for k, v in s.items() if not k.startswith("camera_head.")},
            "camera and depth heads",
        ),
        (
            lambda s: {k: v for k, v in s.items() if k != "aggregator.global_blocks.2.ls1.gamma"},
            "1 tensors are missing",
        ),
        (lambda s: s | {"aggregator.zero_convs.0.weight": torch.ones(1)}, "none of VGGT's"),
        (
            lambda s: change(s, "camera_head.pose_branch.fc2.weight", torch.ones(7, 32)),
            "the rest of the file",
        ),
        (lambda s: change(s, "camera_head.empty_pose_tokens", torch.ones(1, 1, 8)), "has shape"),
        (lambda s: {}, "no tensors"),
    ],
)
def test_weights_that_do_not_fit_are_refused_in_one_line(state, spoil, words):
    with pytest.raises(ValueError, match=words) as caught:
        build_vggt(spoil(state))
    assert "\n" not in str(caught.value)


def test_sides_must_be_whole_patches(state):
    with pytest.raises(ValueError, match="multiples of 14 px"):
        build_vggt(state)(torch.zeros(1, 2, 3, 28, 30))
