"""Tables of finished models on miniatures: made from one command, with what is missing named."""

import gzip
import json

import pytest
import torch

from g_ray.cli.main import main
from g_ray.models.reconstruction_config import RECONSTRUCTION_SIZES
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.models.weights import save_reconstruction
from g_ray_lab.tables import dataset_tables, evaluation_table
from g_ray_lab.tables import stress_tables as reproduce_stress


@pytest.fixture
def reproduce(tmp_path, monkeypatch):
    """`reproduce(table, *options)`: make a table on a tiny miniature; returns result.json and table.md."""
    for name, value in (("WIDTH", 48), ("SCENES", 1), ("FRAMES", 3), ("SETS", 1)):
        monkeypatch.setattr(evaluation_table, f"SMALL_{name}", value)
    monkeypatch.setattr(dataset_tables, "SMALL_VIEWS", (2,))

    def run(table, *options):
        assert main(["reproduce", table, "--out", str(tmp_path / "out"), *options]) == 0
        return json.loads((tmp_path / "out" / "result.json").read_text()), (
            tmp_path / "out" / "table.md"
        ).read_text()

    return run


def test_heterogeneous_with_a_model_that_is_not_installed(reproduce, tmp_path, monkeypatch):
    monkeypatch.setattr(dataset_tables, "HETEROGENEOUS", ("eth3d-fov",))
    result, table = reproduce("recon-heterogeneous", "--models", "truth", "standing", "mapanything")
    assert [(row["method"], row["views"]) for row in result["rows"]] == [("truth", 2), ("standing", 2)]
    truth, standing = (row["metrics"]["points_rel"]["mean"] for row in result["rows"])
    assert truth < 1e-5 < 0.01 < standing
    assert "mapanything on eth3d-fov: not run:" in table and "pip install" in table
    assert "### eth3d-fov, 2 views" in table
    assert {"points_rel.png", "eth3d-fov_points_rel.png"} <= {
        path.name for path in (tmp_path / "out").iterdir()
    }


def test_homogeneous(reproduce, monkeypatch):
    monkeypatch.setattr(dataset_tables, "SMALL_HOMOGENEOUS", ("sintel-pose", "sintel-depth"))
    result, _ = reproduce("recon-homogeneous", "--models", "truth")
    poses, depth = (row["metrics"] for row in result["rows"])
    assert poses["ate"]["mean"] < 1e-6 and depth["delta_1.25"]["mean"] == 1


def test_resolution_and_rows_of_weights(reproduce, tmp_path, monkeypatch):
    """Rows of several networks are means over them, in units of their own training size, and are compared."""
    monkeypatch.setattr(reproduce_stress, "FACTORS", (1.0, 1.75))
    seeds = [tmp_path / f"{seed}.safetensors" for seed in (0, 1)]
    for seed, file in enumerate(seeds):
        torch.manual_seed(seed)
        save_reconstruction(ReconstructionModel(RECONSTRUCTION_SIZES["tiny"](method="gray")), file)
    weights = [f"mine={seeds[0]}", f"mine={seeds[1]}", f"other={seeds[1]}"]
    result, table = reproduce("resolution", "--models", "truth", "--weights", *weights)
    places = [f"{kind} {factor}" for kind in ("native", "zoomed") for factor in (1, 1.75)]
    assert [row["setting"] for row in result["rows"]] == [place for place in places for _ in range(3)]
    assert result["seeds"] == {"truth": 1, "mine": 2, "other": 1}
    _, mine, other = (row for row in result["rows"] if row["setting"] == "zoomed 1.75")
    assert mine["per_seed"]["depth_rel"][1] == other["metrics"]["depth_rel"]["mean"]
    assert mine["metrics"]["depth_rel"]["mean"] == pytest.approx(sum(mine["per_seed"]["depth_rel"]) / 2)
    apart = abs(mine["per_seed"]["depth_rel"][0] - mine["per_seed"]["depth_rel"][1])
    interval = mine["metrics"][
        "depth_rel"
    ]  # Student's over two networks: t = 12.706 with one degree of freedom
    assert interval["high"] - interval["low"] == pytest.approx(12.706 * apart, rel=1e-4)
    difference = result["differences"][-1]
    assert difference["metrics"]["depth_rel"]["mean"] == pytest.approx(
        mine["metrics"]["depth_rel"]["mean"] - other["metrics"]["depth_rel"]["mean"]
    )
    assert "| mine − other |" in table and "mine (2)" in table
    assert "| depth rel ↓ | native 1 | native 1.75 | zoomed 1 | zoomed 1.75 |" in table
    sizes = {
        place: json.loads((tmp_path / "out" / "runs" / "mine" / place / "result.json").read_text())[
            "settings"
        ]["settings"]["size"]
        for place in places
    }
    # 42 px are no whole number of patches of 4 px.
    assert sizes == {place: 40 if place.endswith("1.75") else 24 for place in places}
    scores = gzip.decompress((tmp_path / "out" / "scores.csv.gz").read_bytes()).decode().splitlines()
    assert scores[0].startswith("row,column,seed,protocol") and len(scores) == 1 + 4 * 4
    assert {"native_rays_deg.png", "zoomed_rays_deg.png", "zoomed_difference_rays_deg.png"} <= {
        path.name for path in (tmp_path / "out").iterdir()
    }


def test_fov_stress(reproduce, monkeypatch, tmp_path):
    monkeypatch.setattr(reproduce_stress, "ZOOMS", (1, 5))
    result, _ = reproduce("fov-stress", "--models", "truth")
    assert [row["setting"] for row in result["rows"]] == ["1", "5"]
    assert all(row["metrics"]["rays_deg"]["mean"] < 1e-4 for row in result["rows"])
    assert (tmp_path / "out" / "rays_deg.png").is_file()


def test_networks_are_rows_alone_and_placed_by_matches(tmp_path):
    rows = dataset_tables.RealSmall(tmp_path, models=("network", "network+matches")).build_rows()
    places = {name: row.settings[0].place_by for name, row in rows.items()}
    assert places == {"g-ray-photos": None, "g-ray-rooms": None, "g-ray-photos+matches": "matches"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--scale", "paper"), "--scale paper needs --data"),
        (("--data", "."), "--data belongs to --scale paper"),
        (("--weights", "a"), "--weights a: give NAME=FILE"),
        (("--weights", "a=nothing"), "--weights a=nothing: no such file"),
        (("--weights", f"stereo={__file__}"), "there is a row stereo; give another name"),
        (("--weights", *2 * (f"a={__file__}",)), "each file once"),
    ],
)
def test_wrong_options_are_one_line(options, message, tmp_path, capsys):
    assert main(["reproduce", "recon-homogeneous", "--out", str(tmp_path / "out"), *options]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_real_photographs(shared_data, tmp_path):
    """The three kinds of truth are read: every row of the truth is without error."""
    out = tmp_path / "out"
    words = [
        "reproduce",
        "real-small",
        "--out",
        str(out),
        "--data",
        str(shared_data),
        "--models",
        "truth",
        "--limit",
        "1",
    ]
    assert main(words) == 0
    result = json.loads((out / "result.json").read_text())
    assert [row["setting"] for row in result["rows"]] == ["kitchen", "sceaux", "pairs"]
    assert [row["sets"] for row in result["rows"]] == [1, 1, 9]
    for row in result["rows"]:
        assert row["metrics"]["depth_rel"]["mean"] < 1e-5 and row["metrics"]["depth_inlier"]["mean"] == 1
