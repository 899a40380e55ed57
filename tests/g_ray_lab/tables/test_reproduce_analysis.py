"""`g-ray reproduce attention`, `calibration-noise` and `calibration-estimated` in miniature, and what is refused."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from room_scenes import shots, write_nerfstudio_depth
from safetensors.torch import save_file

from g_ray.cli.main import main
from g_ray.models.reconstruction_config import ReconstructionNetwork
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.reconstruction.set_metrics import METRICS
from g_ray_lab.miniatures import MINIATURES
from g_ray_lab.miniatures.miniature_room import MiniatureSize
from g_ray_lab.recipes import reconstruction_recipes
from g_ray_lab.scoring.calibration_conditions import CONDITIONS
from g_ray_lab.scoring.evaluated_models import find_networks
from g_ray_lab.scoring.scored_runs import join_shares
from g_ray_lab.scoring.store import Shard
from g_ray_lab.tables import ablation_tables, calibration_tables
from g_ray_lab.tables.ablation_tables import ReconAblation, ReconConverged
from g_ray_lab.tables.attention_table import Attention
from g_ray_lab.tables.calibration_tables import CalibrationEstimated, CalibrationNoise


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A folder as a study leaves it, with random weights."""
    folder = tmp_path_factory.mktemp("study")
    for method, seed in (("rope", 0), ("gray", 0), ("rope", 1), ("gray", 1), ("gray", 2)):
        torch.manual_seed(seed)
        network = ReconstructionNetwork(method, size="tiny")
        recipe = {"kind": "ReconstructionRecipe", "settings": {"model": asdict(network)}}
        place = folder / "runs" / f"{method}-seed{seed}"
        place.mkdir(parents=True)
        state = ReconstructionModel(network.build_config()).state_dict()
        save_file(state, place / "model.safetensors", metadata={"recipe": json.dumps(recipe)})
    (folder / "runs" / "camray-seed0").mkdir()  # not finished
    return folder


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scene") / "room"
    write_nerfstudio_depth(folder, shots(8, width=48, height=48))
    return folder


def test_networks_of_a_study(study):
    def list_names(*choice):
        return [network.name for network in find_networks(study, *choice)]

    assert list_names() == ["gray-seed0", "gray-seed1", "gray-seed2", "rope-seed0", "rope-seed1"]
    assert list_names(["rope"]) == ["rope-seed0", "rope-seed1"]
    assert list_names([], 2) == ["gray-seed0", "gray-seed1", "rope-seed0", "rope-seed1"]
    assert list_names(["gray"], 3) == ["gray-seed0", "gray-seed1", "gray-seed2"]
    with pytest.raises(ValueError, match=r"--seeds 3, but not finished: rope-seed2"):
        find_networks(study, seeds=3)
    with pytest.raises(ValueError, match=r"--seeds 0: give at least 1"):
        find_networks(study, seeds=0)
    (single,) = find_networks(study / "runs" / "rope-seed0" / "model.safetensors")
    assert (single.method, single.seed) == ("rope", 0)
    with pytest.raises(ValueError, match=r"no finished network of camray \(it has: gray, rope\)"):
        find_networks(study, ["camray"])


def test_attention(study, room, tmp_path):
    command = Attention(tmp_path / "o", networks=study, data=(room,), pairs=2, seeds=2)
    command.run()
    result = json.loads((tmp_path / "o" / "result.json").read_text())
    settings = ["room center", "room anywhere", "weak texture", "rich texture"]
    assert [(row["method"], row["setting"]) for row in result["rows"][:4]] == [
        ("gray", name) for name in settings
    ]
    assert all(row["seeds"] == 2 for row in result["rows"])
    references = {row["method"]: row["metrics"]["inside"]["mean"] for row in result["references"]}
    assert references["uniform"] == pytest.approx(0.25)
    assert references["rope, position only"] == pytest.approx(0.25, abs=1e-5)
    assert references["gray, position only"] > 0.25
    assert {row["minus"] for row in result["differences"]} == {"rope"}
    assert (tmp_path / "o" / "attention.png").stat().st_size > 10_000
    assert "| gray − rope |" in (tmp_path / "o" / "table.md").read_text()


def test_attention_in_shares(study, room, tmp_path, monkeypatch):
    """Two processes share the pairs, the last one writes the table that one process writes."""
    monkeypatch.setattr(Attention, "draw", lambda self, result: None)
    whole = Attention(tmp_path / "whole", networks=study, data=(room,), pairs=3, seeds=1, methods=("gray",))
    whole.run()
    for number in (2, 1):
        assert not (tmp_path / "shared" / "result.json").exists()
        replace(whole, out=tmp_path / "shared", shard=f"{number}/2").run()
    one, other = (json.loads((tmp_path / name / "result.json").read_text()) for name in ("whole", "shared"))
    assert one["rows"] == other["rows"] and one["references"] == other["references"]


def test_converged_networks_are_analyzed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(reconstruction_recipes, "converged", reconstruction_recipes.tiny)
    monkeypatch.setattr(ablation_tables, "TEST_SETS", 1)
    for kind in (Attention, ReconConverged):
        monkeypatch.setattr(kind, "draw", lambda self, result: None)
    table = ReconConverged(
        tmp_path / "o", seeds=1, steps=1, jobs=1, methods=("gray", "camray_faint"), photos=(tmp_path,)
    )
    replace(table, dry_run=True).run()
    assert "train camray_faint" in capsys.readouterr().out and not table.out.exists()
    analyses = {analysis.out.name: analysis for analysis in table.list_analyses()}
    assert list(analyses) == [
        "attention",
        "calibration-noise",
        "calibration-estimated",
        "fov-stress",
        "resolution",
    ]
    attention = replace(analyses["attention"], pairs=1)
    monkeypatch.setattr(ReconConverged, "list_analyses", lambda self: iter([attention]))
    table.run()
    ablation, found = (
        json.loads((folder / "result.json").read_text()) for folder in (table.out, attention.out)
    )
    assert {row["minus"] for row in ablation["differences"]} == {"camray_faint"}
    assert {row["method"] for row in found["rows"]} == {"gray", "camray_faint"}
    for given in (*analyses["fov-stress"].weights, *analyses["resolution"].weights):
        assert Path(given.partition("=")[2]).is_file()
    with pytest.raises(ValueError, match="--scale small only"):
        ReconConverged(tmp_path / "p", scale="paper").build_study()


def test_calibration_noise(study, room, tmp_path):
    command = CalibrationNoise(
        tmp_path / "o", networks=study, photos=room, sets=1, size=16, stereo_sets=0, seeds=1
    )
    command.run()
    result = json.loads((tmp_path / "o" / "result.json").read_text())
    test = result["tests"]["photos"]
    means = {
        (row["method"], row["setting"]): {metric: row["metrics"][metric]["mean"] for metric in METRICS}
        for row in [*test["rows"], *test["references"]]
    }
    for condition in CONDITIONS:
        # A network that does not see calibrations does not change with them.
        assert means["rope", condition] == means["rope", "correct"]
        assert condition == "correct" or means["gray", condition] != means["gray", "correct"]
    assert (
        means["calibration alone", "correct"]["rays_deg"]
        < 0.05
        < means["calibration alone", "shuffled"]["rays_deg"]
    )
    assert (tmp_path / "o" / "photos.png").is_file() and result["settings"]["photos"]["folders"] == ["room"]
    assert result["settings"]["photos"]["side"] == 16


def test_calibration_estimated(study, room, tmp_path):
    options = {"sources": ("truth", "guess"), "sets": 1, "stereo": False, "seeds": 2}
    CalibrationEstimated(tmp_path / "o", networks=study, data=(room,), **options).run()
    result = json.loads((tmp_path / "o" / "result.json").read_text())
    assert [row["source"] for row in result["accuracy"]] == ["truth", "guess"]
    test = result["tests"]["room"]
    assert [(row["method"], row["setting"], row["seeds"]) for row in test["rows"]] == [
        (method, source, 2) for method in ("gray", "rope") for source in ("truth", "guess")
    ]
    rays = [row["metrics"]["rays_deg"]["mean"] for row in test["rows"][:2]]
    assert rays[0] < 0.01 < rays[1]
    assert [(row["method"], row["setting"]) for row in test["changes"]] == [
        ("gray", "guess"),
        ("rope", "guess"),
    ]
    assert {(row["method"], row["minus"]) for row in test["differences"]} == {("gray", "rope")}


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    """Miniatures of the datasets, as `g-ray data prepare` leaves them."""
    folder = tmp_path_factory.mktemp("datasets")
    for name, miniature in (("eth3d", "eth3d"), ("scannetpp", "scannetpp-mixed"), ("pandaset", "pandaset")):
        MINIATURES[miniature](folder / name, MiniatureSize(1, 4, 56))
    return folder


@pytest.fixture
def few_views(monkeypatch):
    """Sets of two views: the protocols' smallest."""
    monkeypatch.setattr(calibration_tables, "PAPER_VIEWS", 2)


def test_calibration_noise_on_datasets(study, datasets, few_views, tmp_path):
    options = {"networks": study, "data": (datasets,), "seeds": 2, "limit": 1, "scale": "paper"}
    CalibrationNoise(tmp_path / "o", **options).run()
    result = json.loads((tmp_path / "o" / "result.json").read_text())
    assert list(result["tests"]) == ["mean", "eth3d-fov", "scannetpp-undistorted", "pandaset"]
    means = {
        name: {(row["method"], row["setting"]): row["metrics"]["points_rel"]["mean"] for row in test["rows"]}
        for name, test in result["tests"].items()
    }
    assert list(means["mean"]) == [(method, one) for method in ("gray", "rope") for one in CONDITIONS]
    for place, mean in means["mean"].items():
        parts = [means[name][place] for name in list(means)[1:]]
        assert mean == pytest.approx(sum(parts) / 3)
    for one in CONDITIONS:
        assert means["mean"]["rope", one] == pytest.approx(means["mean"]["rope", "correct"])
    changes = {(row["method"], row["setting"]): row for row in result["tests"]["mean"]["changes"]}
    assert changes["gray", "shuffled"]["metrics"]["points_rel"]["mean"] == pytest.approx(
        means["mean"]["gray", "shuffled"] - means["mean"]["gray", "correct"]
    )
    assert (tmp_path / "o" / "mean.png").is_file()


def test_calibration_estimated_on_datasets(study, datasets, few_views, tmp_path):
    options = {"networks": study, "data": (datasets,), "seeds": 1, "limit": 1, "scale": "paper"}
    CalibrationEstimated(
        tmp_path / "o", methods=("gray",), sources=("truth", "guess", "anycalib"), **options
    ).run()
    result = json.loads((tmp_path / "o" / "result.json").read_text())
    assert [(row["scene"], row["source"]) for row in result["accuracy"]] == [
        (name, "guess") for name in ("eth3d-fov", "scannetpp-undistorted", "pandaset", "mean")
    ]
    assert list(result["tests"]) == ["eth3d-fov", "scannetpp-undistorted", "pandaset", "scannetpp-mixed"]
    assert all(len(test["rows"]) == 2 for test in result["tests"].values())
    assert any("needs the package anycalib" in gap for gap in result["gaps"])


def test_ablation_on_datasets(study, datasets, tmp_path, monkeypatch):
    """The paper's two columns; the sets of two shares are those of the whole."""
    monkeypatch.setattr(ablation_tables, "PAPER_VIEWS", 2)
    table = ReconAblation(tmp_path, scale="paper", datasets=datasets, limit=2)
    scorer = table.build_study().scorer
    assert scorer.settings == ("scannetpp-undistorted", "eth3d-fov")
    network = find_networks(study)[0].load()
    whole = scorer.score_settings(network)
    assert all(list(scores) == list(METRICS) for scores in whole.values())
    assert all(len(values) == 2 for scores in whole.values() for values in scores.values())
    shares = [scorer.score_share(network, Shard(number, 2)) for number in (1, 2)]
    assert join_shares(shares) == whole
    (standing,) = scorer.score_references()
    assert all(row.metrics["rays_deg"] < 0.01 for rows in standing.rows.values() for row in rows)
    with pytest.raises(ValueError, match="--datasets and --no-registers belong to --scale paper"):
        ReconAblation(tmp_path, datasets=datasets).build_study()


def test_attention_on_datasets(study, datasets, tmp_path):
    options = {"networks": study, "data": (datasets,), "pairs": 2, "seeds": 1, "methods": ("gray",)}
    Attention(tmp_path / "o", scale="paper", protocols=("eth3d-fov", "pandaset"), **options).run()
    result = json.loads((tmp_path / "o" / "result.json").read_text())
    assert list(result["settings"]["pairs"]) == [
        f"{name} {where}" for name in ("eth3d-fov", "pandaset") for where in ("center", "anywhere")
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["calibration-noise", "--scale", "paper"], "--scale paper needs --data FOLDER"),
        (["attention"], "give --data FOLDER"),
        (["calibration-noise"], "--photos FOLDER"),
        (["calibration-noise", "--photos", ".", "--size", "100"], "--size 100: give a multiple of"),
        (["calibration-estimated"], "give --data FOLDER"),
        (["calibration-estimated", "--data", ".", "--sources", "magic"], "unknown source magic"),
        (["attention", "--networks", "nowhere/runs.x"], "no weights at"),
    ],
)
def test_mistakes_are_one_line(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", words[0], "--out", "o", *words[1:]]) != 0
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1
