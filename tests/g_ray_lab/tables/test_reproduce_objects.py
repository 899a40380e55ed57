"""`g-ray data objects-index` and `g-ray reproduce nvs-objects`: a whole table in miniature, and what is refused."""

import json
from dataclasses import replace

import pytest
import torch
from PIL import Image
from released_states import make_state

from g_ray.cli.main import main
from g_ray.runtime.out_folder import claim_out
from g_ray_lab.recipes import nvs_recipes
from g_ray_lab.sources.nvs_settings import OBJECTS
from g_ray_lab.sources.object_index import PROTOCOLS, assign_split, write_indices
from g_ray_lab.training.recipe import Schedule

NAMES = [f"object{i}" for i in range(60)]
TESTED = [name for name in NAMES if assign_split(name) == "test"][:2]
TRAINED = [name for name in NAMES if assign_split(name) == "train"][:3]
SIZE = 24


@pytest.fixture(scope="module")
def root(tmp_path_factory, write_objects):
    return write_objects(tmp_path_factory.mktemp("objects") / "data", [*TRAINED, *TESTED], SIZE)


@pytest.fixture
def miniature(monkeypatch, tmp_path):
    """The small scale with two steps of a very small network; no LPIPS weights."""
    make = nvs_recipes.objects_tiny

    def tiny(method, root=OBJECTS):
        recipe = make(method, root)
        return replace(
            recipe,
            model=replace(recipe.model, dim=48, layers=1, heads=1, ffn=48),
            data=replace(recipe.data, width=SIZE, height=SIZE, batch=2),
            schedule=Schedule(lr=1e-3, steps=2),
        )

    monkeypatch.setattr(nvs_recipes, "objects_tiny", tiny)
    monkeypatch.setenv("G_RAY_CACHE", str(tmp_path / "no-weights"))


def reproduce(*words: object) -> int:
    return main(["reproduce", "nvs-objects", *map(str, words), "--seeds", "1", "--jobs", "1"])


def test_index_command(root, tmp_path, capsys):
    assert main(["data", "objects-index", str(root), "--out", str(tmp_path / "index"), "--seed", "2"]) == 0
    said = capsys.readouterr().out
    assert len(said.splitlines()) == 6 and "novel_fov_dolly.json  12 targets per object" in said
    assert sorted(json.loads((tmp_path / "index" / "mixed.json").read_text())) == sorted(TESTED)
    assert main(["data", "objects-index", str(root), "--out", str(tmp_path / "index"), "--seed", "3"]) == 2
    assert "choose another folder" in capsys.readouterr().err


def test_a_table_from_a_given_folder(root, tmp_path, capsys, miniature):
    out = tmp_path / "table"
    assert reproduce("--out", out, "--data", root, "--methods", "gta", "gta_gray") == 0
    result = json.loads((out / "result.json").read_text())
    assert (result["name"], result["scale"]) == ("nvs-objects", "small")
    assert [(row["method"], row["setting"]) for row in result["rows"]] == [
        (method, setting) for method in ("gta", "gta_gray") for setting in PROTOCOLS
    ]
    assert {row["method"] for row in result["references"]} == {"mean_colour", "copy_context", "rotation_warp"}
    assert "| novel_fov |" in (out / "table.md").read_text()
    for picture in ("psnr.png", "ssim.png", "predictions_novel_fov.png"):
        with Image.open(out / picture) as image:
            assert min(image.size) > 200
    assert not (out / "data").exists()
    index = (out / "index" / "novel.json").read_bytes()
    capsys.readouterr()
    assert reproduce("--out", out, "--data", root, "--methods", "gta") == 0  # nothing is left to train
    assert (out / "index" / "novel.json").read_bytes() == index


def test_objects_of_another_folder_are_refused_before_training(
    root, tmp_path, capsys, miniature, write_objects
):
    out = tmp_path / "table"
    claim_out(out, "reproduce")
    assert main(["data", "objects-index", str(root), "--out", str(out / "index")]) == 0
    other = write_objects(tmp_path / "other", [*TRAINED, *TESTED], 12)
    assert reproduce("--out", out, "--data", other) == 2
    said = capsys.readouterr().err
    assert "was made for other cameras" in said and said.count("\n") == 1
    assert not (out / "runs").exists()


def test_without_a_folder_objects_are_rendered_first(tmp_path, monkeypatch, miniature):
    """Procedural ones where no scanned objects lie; the second call finds them there."""
    from g_ray_lab.tables import object_table

    pytest.importorskip("embreex", reason="rendering needs embreex")
    monkeypatch.setenv("G_RAY_SHARED_DATA", str(tmp_path / "nothing"))
    monkeypatch.setattr(object_table, "MADE", 3)
    root = object_table.render_small_objects(tmp_path / "data", SIZE)
    cameras = sorted(root.glob("procedural_*/cameras.json"))
    assert len(cameras) == 3 and len(list(root.glob("*/views/*.jpg"))) == 3 * 24
    written = [path.stat().st_mtime_ns for path in cameras]
    assert object_table.render_small_objects(root, SIZE) == root
    assert [path.stat().st_mtime_ns for path in cameras] == written


def test_scanned_objects_are_used_where_they_are(shared_data, tmp_path, monkeypatch):
    from g_ray_lab.sources import render_objects as rendering
    from g_ray_lab.tables import object_table

    asked = []

    def render(*given):
        asked.append(given)
        yield from ()

    monkeypatch.setattr(rendering, "render_objects", render)
    object_table.render_small_objects(tmp_path, 48)
    (_, jobs, settings, _) = asked[0]
    assert len(jobs) == len(rendering.list_object_jobs(shared_data / "gso_mini", None, 0))
    assert settings.meshes == "gso_mini" and settings.size == 48


def test_paper_scale_needs_data_and_names_the_command(tmp_path, capsys):
    assert reproduce("--scale", "paper", "--out", tmp_path) == 2
    said = capsys.readouterr().err
    assert "--data" in said and "g-ray data objects" in said and said.count("\n") == 1


def test_a_released_network_is_scored_on_objects(root, tmp_path, capsys, miniature):
    """From official names to a row of the table, with one command each."""
    torch.save({"model": make_state(patch=6)}, tmp_path / "official.pt")
    weights, out = tmp_path / "rayrope-official.safetensors", tmp_path / "table"
    words = [
        "weights",
        "convert",
        str(tmp_path / "official.pt"),
        "--out",
        str(weights),
        "--trained-on",
        "objects",
    ]
    assert main(words) == 0
    assert reproduce("--out", out, "--data", root, "--weights", weights, "--scenes", 1) == 0
    result = json.loads((out / "result.json").read_text())
    assert [row["method"] for row in result["rows"]] == ["rayrope-official"] * len(PROTOCOLS)
    assert result["settings"]["protocol"]["limit"] == 1 and not (out / "runs").exists()
    assert "the first 1 test scenes only" in (out / "table.md").read_text()


def test_an_index_of_the_earlier_split_is_refused(root, tmp_path, capsys, miniature):
    """It tests objects that are trained on now."""
    out = tmp_path / "table"
    claim_out(out, "reproduce")
    write_indices(root, out / "index", {TRAINED[0]: (0, 1), TESTED[0]: (2, 3)})
    assert reproduce("--out", out, "--data", root) == 2
    said = capsys.readouterr().err
    assert f"tests 1 objects that are trained on, e.g. {TRAINED[0]}" in said and said.count("\n") == 1
    assert not (out / "runs").exists()
