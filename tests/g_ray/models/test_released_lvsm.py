"""Checkpoints of RayRoPE's released LVSM become ours and compute the same, or are refused by what is wrong."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from released_states import DIM, FFN, LAYERS, PATCH, make_state
from safetensors import safe_open

from g_ray.cameras.pinhole import Pinhole
from g_ray.cli.main import main
from g_ray.geometry.pose import Pose
from g_ray.models.foreign_weights import detect_kind, read_released_config, rename_from_released
from g_ray.rays.views import Views
from g_ray.synthesis.synthesizer import load_network
from g_ray_lab.recipes.released_recipe import convert_released_lvsm


def without_depths() -> dict[str, torch.Tensor]:
    return {name: value for name, value in make_state().items() if "d_proj" not in name}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A file as their training writes it; names as a compiled model has them."""
    path = tmp_path / "step-000080000.pt"
    state = {f"_orig_mod.{name}": value for name, value in make_state().items()}
    torch.save({"step": 80_000, "model": state, "optimizer": {"state": {}}}, path)
    return path


def predict(weights: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Return our images and those of official code."""
    with np.load(Path(__file__).parent / "data" / "released_lvsm.npz") as file:
        scene = {name: torch.from_numpy(file[name]) for name in file.files}
    height, width = scene["images"].shape[-2:]
    numbers = (scene["params"][:, view].unbind(-1) for view in range(4))
    cameras = [Pinhole.make(width, height, fx=fx, fy=fy, cx=cx, cy=cy) for fx, fy, cx, cy in numbers]
    views = Views(cameras, Pose(scene["poses"]))
    with torch.no_grad():
        found = load_network(weights).model.double()(scene["images"], views[:2], views[2:])
    return found, scene["predicted"]


def test_a_converted_network_predicts_what_official_code_does(checkpoint, tmp_path, capsys):
    out = tmp_path / "ours.safetensors"
    assert main(["weights", "convert", str(checkpoint), "--out", str(out)]) == 0
    assert "lvsm weights" in capsys.readouterr().out
    found, wanted = predict(out)
    assert wanted.std() > 0.1 and (found - wanted).abs().max() < 1e-10
    network = load_network(out)
    assert network.encoding == "rayrope" and network.size == (128, 128) and network.baseline == 1.0


def test_what_no_tensor_shows_changes_the_prediction(checkpoint, tmp_path):
    out = tmp_path / "ours.safetensors"
    assert main(["weights", "convert", str(checkpoint), "--out", str(out), "--depth", "inverse"]) == 0
    found, wanted = predict(out)
    assert (found - wanted).abs().max() > 1e-3


def test_cameras_are_read_as_in_the_training(tmp_path):
    """RealEstate10K as released loaders read it, with Blender's axes; objects keep their world."""
    axes = {}
    for kind in ("re10k", "objects"):
        out = tmp_path / f"{kind}.safetensors"
        convert_released_lvsm(make_state(), out, method=None, trained_on=kind)
        with safe_open(out, "pt") as file:
            data = json.loads(file.metadata()["recipe"])["settings"]["data"]
        axes[data["kind"]] = data.get("axes")
    assert axes == {"re10k": "blender", "objects": None}


def test_networks_without_depths_need_a_method():
    state = rename_from_released(without_depths())
    with pytest.raises(ValueError, match="give --method"):
        read_released_config(state, None, "depth")
    gta = read_released_config(state, "gta", "depth")
    assert (gta.conditioning, gta.encoding, gta.encoding_options) == ("camray", "gta", {"sign": -1})
    plain = read_released_config(state, "plucker+none", "depth")
    assert (plain.conditioning, plain.encoding, plain.encoding_options) == ("plucker", "none", {})
    assert (plain.dim, plain.layers, plain.heads, plain.ffn, plain.patch) == (DIM, LAYERS, 2, FFN, PATCH)


@pytest.mark.parametrize(
    ("changes", "method", "message"),
    [
        ({"input_tokenizer.weight": torch.zeros(DIM, 10 * PATCH**2)}, None, "takes? 10 channels"),
        ({"encoder.layers.0.self_attn.q_norm.weight": None}, None, "no norm of queries"),
        ({"encoder.layers.0.linear1.bias": torch.zeros(FFN)}, None, "biases"),
        ({"encoder.layers.0.self_attn.d_proj_weight": torch.zeros(1, DIM)}, None, "only predict_dsig"),
        ({}, "gta", "predicts depths"),
        ({}, "none+rayrope", "shared_rays"),
        ({}, "camray+nothing", "CONDITIONING.ENCODING"),
        ({"encoder.layers.1.norm2.weight": None}, None, "not in the file: blocks"),
        ({"extra": torch.zeros(1)}, None, "not used: extra"),
        ({"encoder.layers.1.linear2.weight": torch.zeros(DIM, FFN + 1)}, None, "other shapes"),
    ],
)
def test_other_networks_are_refused(changes, method, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        convert_released_lvsm(make_state(**changes), tmp_path / "ours.safetensors", method=method)
    assert not (tmp_path / "ours.safetensors").exists()


def test_kinds_are_told_apart():
    assert detect_kind(make_state()) == "lvsm"
    assert detect_kind(f"module.{name}" for name in make_state()) == "lvsm"
