"""Weights with a config that does not fit their tensors: refused in one line, before a network is built."""

import dataclasses
import json
import time

import pytest
import torch
from safetensors.torch import save_file

from g_ray.cli.main import main
from g_ray.models.lvsm import LVSM
from g_ray.models.lvsm_config import tiny
from g_ray.models.reconstruction_config import RECONSTRUCTION_SIZES
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.models.weights import load_reconstruction
from g_ray.synthesis.synthesizer import load_network
from g_ray_lab.recipes.nvs_recipes import tiny as make_recipe


@pytest.fixture(scope="module")
def tensors():
    return ReconstructionModel(RECONSTRUCTION_SIZES["tiny"]("gray")).state_dict()


@pytest.mark.parametrize(
    "changes",
    [
        *({"pairs": value} for value in (10**9, 0, -1, None, "3", 1.5, [], 10**30, True)),
        *({"dim": value} for value in (10**9, 3 * 10**6, 99, 0, -96, None)),
        *({"dpt_channels": value} for value in ([10**9] * 4, [0, 0, 0, 0], [1], None, [-1] * 4)),
        *(
            {name: value}
            for name in ("heads", "patch", "pose_dim", "dpt_features")
            for value in (10**12, -2, 0)
        ),
        *({"method": value} for value in ("none", None, [])),
        {"taps": [0, 0, 0, 10**12]},
        {"encoding_options": {"coordinate": 3}},
        {"encoding_options": []},
        {"unknown": 1},
        {"layer_scale": float("nan")},
    ],
)
def test_reconstruction(tensors, tmp_path, changes):
    config = {**dataclasses.asdict(RECONSTRUCTION_SIZES["tiny"]("gray")), **changes}
    metadata = {"format": "pt", "reconstruction_config": json.dumps(config)}
    save_file(tensors, tmp_path / "a.safetensors", metadata=metadata)
    check_refused(lambda: load_reconstruction(tmp_path / "a.safetensors"), changes)


@pytest.mark.parametrize("text", ["", "[]", "null", "[" * 99999, '{"a": 1}', "NaN"])
def test_a_config_that_is_none(tensors, tmp_path, text):
    save_file({"a": torch.ones(1)}, tmp_path / "a.safetensors", metadata={"reconstruction_config": text})
    check_refused(lambda: load_reconstruction(tmp_path / "a.safetensors"), text)
    save_file({"a": torch.ones(1)}, tmp_path / "b.safetensors", metadata={"recipe": text})
    check_refused(lambda: load_network(tmp_path / "b.safetensors"), text)


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": 10**9},
        {"layers": None},
        {"dim": 10**12},
        {"dim": 3},
        {"heads": 0},
        {"encoding": "no"},
        {"patch": -1},
    ],
)
def test_synthesis(tmp_path, changes):
    recipe = make_recipe("gta_gray")
    settings = recipe.to_settings()
    settings["model"] = {**settings["model"], **changes}
    document = {"name": "x", "kind": "NVSRecipe", "settings": settings}
    weights = LVSM(tiny(recipe.model.encoding, recipe.model.conditioning)).state_dict()
    save_file(weights, tmp_path / "a.safetensors", metadata={"recipe": json.dumps(document)})
    check_refused(lambda: load_network(tmp_path / "a.safetensors"), changes)


def check_refused(load, what):
    before = time.process_time()
    try:
        load()
    except (ValueError, OSError) as error:
        assert "\n" not in str(error) and len(str(error)) < 700, what
    else:
        # Numbers that the network does not depend on, or that mean the same, may be accepted.
        assert what in (
            {"pairs": True},
            {"pairs": "3"},
            {"layer_scale": pytest.approx(float("nan"), nan_ok=True)},
        )
    assert time.process_time() - before < 5


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("text.pt", b"not a checkpoint"),
        ("text.safetensors", b"not a checkpoint"),
        ("zip.pth", b"PK\x03\x04 and nothing else"),
        ("pickle.pt", b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R."),
        ("empty.pt", b""),
    ],
)
def test_converting_something_else(tmp_path, capsys, name, content):
    (tmp_path / name).write_bytes(content)
    assert main(["weights", "convert", str(tmp_path / name), "--out", str(tmp_path / "out.safetensors")]) == 2
    assert capsys.readouterr().err.count("\n") == 1 and not (tmp_path / "out.safetensors").exists()


@pytest.mark.parametrize(
    "names",
    [
        ["aggregator.camera_token"],
        ["register_tokens"],
        ["embeddings.register_tokens"],
        ["encoder.register_tokens"],
    ],
)
def test_converting_a_part(tmp_path, capsys, names):
    torch.save({name: torch.ones(1, 2, 384) for name in names}, tmp_path / "part.pt")
    torch.save({3: torch.ones(1), "model": {"a": 1}}, tmp_path / "odd.pt")
    for file in ("part.pt", "odd.pt"):
        assert (
            main(["weights", "convert", str(tmp_path / file), "--out", str(tmp_path / "out.safetensors")])
            == 2
        )
        assert capsys.readouterr().err.count("\n") == 1
