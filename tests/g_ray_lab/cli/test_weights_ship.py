"""A finished run becomes weights that come with the package."""

import json
from dataclasses import replace

import pytest
from safetensors import safe_open
from safetensors.torch import load_file

from g_ray.cli.main import main
from g_ray.models.weights import find_shipped, list_shipped, load_reconstruction, read_card
from g_ray.runtime.files import strip_paths
from g_ray.synthesis.synthesizer import load_network
from g_ray_lab.cli.train_command import collect_provenance
from g_ray_lab.cli.weights_commands import Ship
from g_ray_lab.losses import NVSLossSettings
from g_ray_lab.recipes import nvs_recipes, reconstruction_recipes
from g_ray_lab.recipes.shipping import format_command
from g_ray_lab.training.engine import train
from g_ray_lab.training.recipe import CurveRecipe, Run, Schedule


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    tiny = nvs_recipes.tiny("gta_gray")
    recipe = replace(
        tiny,
        model=replace(tiny.model, dim=48, layers=2, ffn=48),
        data=replace(tiny.data, batch=2),
        loss=NVSLossSettings(lpips=0.0, lpips_weights=tmp_path_factory.getbasetemp() / "lpips.npz"),
        schedule=Schedule(lr=1e-3, steps=3),
    )
    run = Run(
        out=tmp_path_factory.mktemp("run"), device="cpu", sample_every=None, tensorboard=False, log_every=1
    )
    train("nvs-tiny-gta_gray", recipe, run, collect_provenance())
    return run.out


def test_weights_log_and_card(finished, tmp_path, capsys):
    Ship(finished, "rooms", tmp_path, scenes=8).run()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "rooms.json",
        "rooms.log.jsonl",
        "rooms.safetensors",
    ]
    assert list_shipped(tmp_path) == ["rooms"] and find_shipped("rooms", tmp_path).exists()
    known = read_card("rooms", tmp_path)
    assert known["step"] == 3 and known["recipe"]["settings"]["schedule"]["steps"] == 3
    assert 5 < known["scores"]["z2.5"]["psnr"]["low"] <= known["scores"]["z2.5"]["psnr"]["mean"] < 30
    steps = [json.loads(line)["step"] for line in (tmp_path / "rooms.log.jsonl").read_text().splitlines()]
    assert steps[-1] == 3
    assert str(finished.parent) not in json.dumps(known), "a path of this machine"
    assert "rooms.safetensors: 0.1 MB" in capsys.readouterr().out


def test_what_is_shipped_is_the_network_in_half_precision(finished, tmp_path):
    Ship(finished, "rooms", tmp_path, scenes=1).run()
    before = load_file(finished / "model.safetensors")
    after = load_network(tmp_path / "rooms.safetensors").model.state_dict()
    assert all((before[name] - after[name]).abs().max() < 1e-3 for name in before)
    assert load_file(tmp_path / "rooms.safetensors")["pixels.weight"].element_size() == 2
    with safe_open(tmp_path / "rooms.safetensors", framework="pt") as file:
        settings = json.loads(file.metadata()["recipe"])["settings"]
    assert settings["loss"]["lpips_weights"] == "lpips.npz"


def test_reconstruction_networks_are_scored_through_the_tables_lenses(tmp_path, capsys):
    tiny = reconstruction_recipes.tiny("gray")
    recipe = replace(
        tiny,
        data=replace(tiny.data, batch=1, views=(2, 3), fov_deg=(70.0, 71.0)),
        schedule=Schedule(lr=1e-3, steps=1),
    )
    run = Run(out=tmp_path / "run", device="cpu", sample_every=None, tensorboard=False)
    train("mine", recipe, run, collect_provenance())
    Ship(tmp_path / "run", "rooms", tmp_path, scenes=2).run()
    scores = read_card("rooms", tmp_path)["scores"]
    assert scores.pop("protocol") == (
        "2 test rooms, 3 views of 24×24 px, pinholes of 50°–90°; trained on pinholes alone"
    )
    first = scores.pop("first")
    assert first.pop("sets") == 2 and first.keys() == scores.keys()
    assert first["zoom"]["rays_deg"] == pytest.approx(scores["zoom"]["rays_deg"]["mean"])
    assert list(scores) == ["pinhole", "zoom", "mixed", "fisheye"]
    assert all(len(metrics) == 6 for metrics in scores.values())
    config = recipe.model.build_config()
    assert load_reconstruction(tmp_path / "rooms.safetensors").config == config
    # Another long side is what commands give the network from then on; everything else stays.
    words = ["weights", "ship", str(tmp_path / "run"), "large", "--folder", str(tmp_path), "--scenes", "1"]
    assert main([*words, "--size", "48"]) == 0
    large = load_reconstruction(tmp_path / "large.safetensors").config
    assert large.long_side == 48 != config.long_side and large == replace(config, long_side=48)
    assert main([*words, "--size", str(config.patch - 1)]) == 2
    assert f"give one patch, {config.patch} px, or more" in capsys.readouterr().err


def test_synthesis_networks_have_one_size(finished, tmp_path):
    with pytest.raises(ValueError, match="--size is for reconstruction networks"):
        Ship(finished, "rooms", tmp_path, scenes=1, size=48).run()
    assert not list(tmp_path.iterdir())


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(ValueError, match="folder of a finished g-ray train"):
        Ship(tmp_path, "rooms", tmp_path).run()
    recipe = CurveRecipe(schedule=Schedule(lr=1e-3, steps=1), width=4)
    train("curve", recipe, Run(out=tmp_path / "curve", device="cpu", sample_every=None, tensorboard=False))
    with pytest.raises(ValueError, match="only synthesis, reconstruction and stereo networks"):
        Ship(tmp_path / "curve", "rooms", tmp_path).run()


def test_the_command_is_what_a_user_types():
    words = ["/opt/bin/g-ray", "train", "nvs-tiny-gta", "--out", "/opt/run", "--seed", "3"]
    assert format_command(words) == "g-ray train nvs-tiny-gta --seed 3"
    assert format_command(words, 2) == "torchrun --nproc-per-node 2 -m g_ray train nvs-tiny-gta --seed 3"
    assert strip_paths({"a": ["/opt/x.npz", "b/c", 3]}) == {"a": ["x.npz", "b/c", 3]}
