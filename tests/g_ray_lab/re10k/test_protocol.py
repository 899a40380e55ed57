"""The paper's protocol on a miniature: frozen, resumable by anyone who has some of the clips, and scored."""

import json
import pickle
import shutil
from dataclasses import asdict, replace
from functools import partial

import pytest
import torch
from released_states import make_state

from g_ray.cli.main import main
from g_ray_lab.datasets.re10k_index import IndexedClip
from g_ray_lab.recipes.released_recipe import convert_released_lvsm
from g_ray_lab.scoring import indexed_protocols
from g_ray_lab.scoring.indexed_protocols import RE10KProtocol, hash_to_units
from g_ray_lab.scoring.nvs_scorer import REFERENCES


@pytest.fixture(params=["chunks", "folders"])
def protocol(miniature, request):
    return RE10KProtocol(str(miniature.root(request.param)), str(miniature.index), width=64, height=36)


def joined(protocol, setting):
    batches = list(protocol.make_batches(setting))
    images = torch.cat([torch.cat([b.context_images, b.target_images], 1) for b in batches])
    cameras = [[*b.contexts.cameras, *b.targets.cameras] for b in batches]
    focal = torch.cat([torch.stack([c.parameter("fx") for c in views], 1) for views in cameras])
    return images, focal, [name for b in batches for name in b.names]


def test_the_papers_settings():
    protocol = RE10KProtocol("root", "index.json")
    assert protocol.settings == ("z1.0", "z1.5", "z2.0", "z2.5")
    assert (protocol.width, protocol.height) == (256, 144)
    assert (protocol.width % 8, protocol.height % 8) == (0, 0)
    json.dumps(asdict(protocol))  # stands in result.json


def test_scenes_are_those_of_the_index_that_are_on_disk(protocol):
    images, _, names = joined(protocol, "z1.0")
    assert images.shape == (2, 5, 3, 36, 64)
    assert names == ["clip 7e57aa, frames [0, 31, 8, 15, 22]", "clip 7e57bb, frames [2, 30, 9, 16, 25]"]
    assert (protocol.scenes.missing, protocol.scenes.without) == (1, 1)


def test_zooms_are_frozen_and_grow_with_z_max(protocol):
    native = joined(protocol, "z1.0")[1]
    ratios = [joined(protocol, setting)[1] / native for setting in ("z1.5", "z2.0", "z2.5")]
    for ratio, z_max in zip(ratios, (1.5, 2.0, 2.5), strict=True):
        assert torch.allclose(ratio[:, 0], torch.ones(2))
        assert (ratio[:, 1:] > 1).all() and (ratio[:, 1:] < z_max).all()
        unit = (ratio[:, 1:] - 1) / (z_max - 1)
        assert torch.allclose(unit, (ratios[0][:, 1:] - 1) / 0.5, atol=1e-4)
    other = joined(replace(protocol, seed=1), "z2.0")[1] / native
    assert not torch.allclose(other[:, 1:], ratios[1][:, 1:])


def test_units_never_change():
    """The protocol: written down, so that nobody changes it unawares."""
    units = hash_to_units(IndexedClip("7e57aa", (0, 31), (8, 15, 22)), 0)
    expected = [0.40608, 0.74052, 0.21463, 0.91992, 0.71823]
    assert torch.allclose(units, torch.tensor(expected, dtype=torch.float64), atol=1e-5), units.tolist()
    many = torch.cat([hash_to_units(IndexedClip(str(n), (0, 1), (2, 3)), 0) for n in range(500)])
    assert abs(float(many.mean()) - 0.5) < 0.03 and many.min() >= 0 and many.max() < 1


def test_a_clip_looks_the_same_whatever_else_is_on_disk(miniature, tmp_path):
    shutil.copytree(miniature.folders / "test", tmp_path / "test")
    (tmp_path / "test" / "metadata" / "7e57aa.json").unlink()
    whole = RE10KProtocol(str(miniature.folders), str(miniature.index), width=64, height=36)
    part = replace(whole, root=str(tmp_path))
    assert torch.equal(joined(part, "z2.5")[0][0], joined(whole, "z2.5")[0][1])
    assert part.scenes.missing == 2
    assert part.digest != whole.digest


def test_the_digest_is_of_what_is_scored_not_of_where_it_lies(miniature):
    one = RE10KProtocol(str(miniature.chunks), str(miniature.index), width=64, height=36)
    other = replace(one, root=str(miniature.folders), at_once=1)
    assert one.digest == other.digest
    changed = [replace(one, seed=1), replace(one, height=32), replace(one, axes="blender")]
    assert len({one.digest, *(protocol.digest for protocol in changed)}) == 4


def test_it_travels_to_other_processes(protocol):
    list(protocol.make_batches("z1.0"))
    again = pickle.loads(pickle.dumps(protocol))
    assert again.digest == protocol.digest


def test_scores(protocol):
    perfect = protocol.score(lambda batch: batch.target_images, "z2.0", None)
    assert (perfect.psnr > 100).all() and perfect.psnr.shape == (2,)
    scores = {name: protocol.score(predict, "z2.5", None).psnr for name, predict in REFERENCES.items()}
    assert all(((values > 5) & (values < 40)).all() for values in scores.values())
    assert (scores["rotation_warp"] > scores["copy_context"]).all()


def test_frames_that_a_clip_does_not_have(miniature, tmp_path):
    (tmp_path / "index.json").write_text('{"7e57aa": {"context": [0, 60], "target": [9]}}')
    protocol = RE10KProtocol(str(miniature.chunks), str(tmp_path / "index.json"), width=64, height=36)
    with pytest.raises(ValueError, match="clip 7e57aa has no frame 60, only 32"):
        list(protocol.make_batches("z1.0"))


def test_an_index_of_other_clips_is_refused(miniature):
    protocol = RE10KProtocol(str(miniature.chunks), str(miniature.index), split="train")
    with pytest.raises(ValueError, match="no clip of"):
        list(protocol.make_batches("z1.0"))


def test_the_papers_table_says_what_is_scored(miniature, tmp_path, capsys):
    from g_ray_lab.tables.zoom_tables import NVSFov

    table = NVSFov(tmp_path, scale="paper", data=miniature.chunks, index=miniature.index)
    study = table.build_study()
    assert capsys.readouterr().out.startswith("2 of 3 indexed scenes are on disk, 1 are missing")
    assert next(iter(study.methods)) == "plucker" and study.scorer.settings[-1] == "z2.5"
    assert all(recipe.data.root == miniature.chunks for recipe in study.methods.values())
    chosen = replace(table, lpips=tmp_path / "lpips.npz").choose_networks(study)
    assert {recipe.loss.lpips_weights for recipe in chosen.methods.values()} == {tmp_path / "lpips.npz"}


def test_a_released_network_is_scored_on_clips(miniature, tmp_path, monkeypatch, capsys):
    """It needs cameras as released loaders read them, and says so; then it is a row of the table."""
    monkeypatch.setenv("G_RAY_CACHE", str(tmp_path / "no-weights"))
    small = partial(RE10KProtocol, width=64, height=32, zooms=(1.0, 2.0))
    monkeypatch.setattr(indexed_protocols, "RE10KProtocol", small)
    weights, out = tmp_path / "official.safetensors", tmp_path / "table"
    convert_released_lvsm(make_state(patch=8), weights, method=None)
    words = [
        "reproduce",
        "nvs-fov",
        "--scale",
        "paper",
        "--data",
        miniature.chunks,
        "--index",
        miniature.index,
    ]
    words += ["--weights", weights, "--seeds", "1", "--jobs", "1", "--scenes", "1", "--out", out]
    assert main([str(word) for word in words]) == 2
    assert "score it with --axes blender" in capsys.readouterr().err
    assert main([*(str(word) for word in words), "--axes", "blender"]) == 0
    result = json.loads((out / "result.json").read_text())
    assert {row["method"] for row in result["rows"]} == {"official"}
    assert result["settings"]["protocol"]["axes"] == "blender" and (out / "predictions_z2.0.png").is_file()
