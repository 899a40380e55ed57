"""`g-ray reproduce nvs-fov`, `nvs-rayrope` and `nvs-plucker` in miniature, and what is refused."""

import json
from dataclasses import replace

import pytest

from g_ray.cli.main import main
from g_ray_lab.recipes import nvs_recipes
from g_ray_lab.sources.nvs_settings import PathsData, RoomsData
from g_ray_lab.tables import factor_tables as reproduce_factors
from g_ray_lab.tables import synthesis_table as reproduce_synthesis
from g_ray_lab.training.recipe import Schedule

ZOOMS = ("z1.0", "z1.5", "z2.0", "z2.5")


@pytest.fixture(autouse=True)
def miniature(monkeypatch, tmp_path):
    """One step of very small networks on very small images; no LPIPS weights in the cache."""
    make = nvs_recipes.tiny

    def tiny(method):
        recipe = make(method)
        return replace(
            recipe,
            model=replace(recipe.model, dim=24, layers=1, heads=1, ffn=24),
            data=replace(recipe.data, width=12, height=12, batch=2),
            schedule=Schedule(lr=1e-3, steps=1),
        )

    monkeypatch.setattr(nvs_recipes, "tiny", tiny)
    monkeypatch.setattr(nvs_recipes, "quick", tiny)
    monkeypatch.setattr(reproduce_synthesis, "tiny", tiny)  # imported by name
    monkeypatch.setattr(reproduce_synthesis, "TEST_ROOMS", 2)
    monkeypatch.setattr(reproduce_factors, "FACTOR_SCENES", 2)
    monkeypatch.setenv("G_RAY_CACHE", str(tmp_path / "no-weights"))


def reproduce(name, out, *words):
    return main(["reproduce", name, "--out", str(out), "--seeds", "1", "--jobs", "1", *words])


def read(out):
    return json.loads((out / "result.json").read_text()), (out / "table.md").read_text()


def test_fov_is_scored_at_four_shapes(tmp_path):
    """One row keeps the paper's frequency scale, whatever the number of patches."""
    assert reproduce("nvs-fov", tmp_path, "--methods", "gta", "gta_gray_alpha10") == 0
    result, table = read(tmp_path)
    settings = [row["setting"] for row in result["rows"] if row["method"] == "gta"]
    assert settings == [f"{shape}/{z}" for shape in ("wide", "square", "aspect", "fov") for z in ZOOMS]
    assert table.startswith("Seeds per row: 1.\n\n| psnr, wide | z1.0 |")
    assert "| psnr, difference, aspect | z1.0 |" in table and "gta_gray_alpha10 − gta" in table
    models = {row: settings["model"] for row, settings in result["settings"]["recipes"].items()}
    assert (
        models["gta_gray_alpha10"]["encoding_options"] == {"scale": 10.0} != models["gta"]["encoding_options"]
    )
    for picture in ("psnr.png", "differences.png", "predictions_wide_z2.0.png"):
        assert (tmp_path / picture).is_file()


def test_frequencies_are_trained_with_two_sizes_of_patches(tmp_path):
    assert reproduce("nvs-frequency", tmp_path, "--methods", "alpha_2", "fine_alpha_4") == 0
    result, table = read(tmp_path)
    models = {row: settings["model"] for row, settings in result["settings"]["recipes"].items()}
    assert [models[row]["patch"] for row in ("alpha_2", "fine_alpha_4")] == [6, 3]
    assert [models[row]["encoding_options"] for row in models] == [{"scale": 2.0}, {"scale": 4.0}]
    assert "| psnr, wide |" in table and "| psnr, square |" in table


def test_plucker(tmp_path, shared_data):
    rows = ("scenes64_plucker", "all_room_plucker", "paths_plucker", "paths_gta_gray", "objects_plucker")
    assert reproduce("nvs-plucker", tmp_path, "--methods", *rows) == 0
    result, table = read(tmp_path)
    assert list(dict.fromkeys(row["method"] for row in result["rows"])) == list(rows)
    assert "| psnr, change from z1.0, wide | z1.5 | z2.0 | z2.5 |" in table
    assert {(row["method"], row["minus"]) for row in result["differences"]} == {
        ("paths_gta_gray", "paths_plucker")
    }
    assert (tmp_path / "differences.png").is_file() and (tmp_path / "psnr.png").is_file()
    recipes = result["settings"]["recipes"]
    assert recipes["scenes64_plucker"]["data"]["distinct"] == 64
    assert recipes["all_room_plucker"]["data"]["pose_frame"] == "room"
    assert recipes["paths_plucker"]["data"]["kind"] == "paths"
    assert recipes["objects_plucker"]["data"]["kind"] == "object_arcs"
    references = {row["method"] for row in result["references"]}
    assert references >= {"mean_colour", "paths_mean_colour", "objects_mean_colour"}
    assert not any(name.startswith("all_room") for name in references)
    assert "| objects_mean_colour |" in table.split("psnr, change from z1.0, wide")[1]
    frames = {row: scorer["protocol"] for row, scorer in result["settings"]["row_scorers"].items()}
    assert frames["all_room_plucker"]["parts"]["wide"]["pose_frame"] == "room"


def test_rayrope(tmp_path, shared_data):
    weights = shared_data / "lpips_alex" / "lpips_alex_v0.1.npz"
    rows = ("paths_rayrope", "paths_clamped_rayrope_gray", "mse_rayrope")
    assert reproduce("nvs-rayrope", tmp_path, "--lpips", str(weights), "--methods", *rows) == 0
    result, _ = read(tmp_path)
    assert {(row["method"], row["minus"]) for row in result["differences"]} == {
        ("paths_clamped_rayrope_gray", "paths_rayrope")
    }
    assert set(result["rows"][0]["metrics"]) == {"psnr", "ssim", "lpips"}


def test_each_variant_changes_one_thing(shared_data, tmp_path):
    weights = shared_data / "lpips_alex" / "lpips_alex_v0.1.npz"
    study = reproduce_factors.NVSRayRoPE(tmp_path, lpips=weights).build_study()
    base = study.methods["mse_rayrope_gray"]
    changed = {
        name: {
            field
            for field in ("model", "data", "loss", "schedule")
            if getattr(recipe, field) != getattr(base, field)
        }
        for name, recipe in study.methods.items()
        if name.endswith("rayrope_gray")
    }
    assert changed == {
        "mse_rayrope_gray": set(),
        "lpips_rayrope_gray": {"loss"},
        "head144_rayrope_gray": set(),  # the miniature has one head
        "paths_rayrope_gray": {"data"},
        "paths_clamped_rayrope_gray": {"data", "model"},
    }
    assert study.methods["lpips_rayrope"].loss.lpips == 0.5
    assert isinstance(study.methods["paths_rayrope"].data, PathsData)
    assert study.pairs[-1] == ("paths_clamped_rayrope_gray", "paths_rayrope")
    plucker = reproduce_factors.NVSPlucker(tmp_path).build_study()
    assert isinstance(plucker.methods["scenes512_plucker"].data, RoomsData)
    assert plucker.methods["scenes512_plucker"].data.distinct == 512
    assert plucker.methods["paths_misread_plucker"].data == replace(
        plucker.methods["paths_plucker"].data, axes="blender"
    )
    misread = plucker.row_scorers["paths_misread_plucker"].protocol
    assert all(part.axes == "blender" for part in misread.parts.values())
    assert plucker.methods["paths_long_plucker"].schedule.steps == 3 * base.schedule.steps
    assert ("paths_long_gta_gray", "paths_long_plucker") in plucker.pairs
    objects, rooms = (vars(plucker.methods[row].data) for row in ("objects_plucker", "all_plucker"))
    same = objects.keys() & rooms.keys() - {"antialias"}  # finer textures need more rays per pixel
    assert {name: objects[name] for name in same} == {name: rooms[name] for name in same}


def test_what_is_missing_is_named_before_training(tmp_path, capsys, monkeypatch, shared_data):
    assert reproduce("nvs-rayrope", tmp_path / "o") == 2
    assert "--lpips FILE" in capsys.readouterr().err
    assert reproduce("nvs-plucker", tmp_path / "p", "--scale", "paper") == 2
    assert "--data FOLDER" in capsys.readouterr().err
    monkeypatch.setenv("G_RAY_SHARED_DATA", str(tmp_path / "nothing"))
    assert reproduce("nvs-plucker", tmp_path / "q") == 2
    assert "no camera paths" in capsys.readouterr().err
