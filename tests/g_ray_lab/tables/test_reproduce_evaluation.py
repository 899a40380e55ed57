"""Tables of finished models on miniatures: made from one command, with what is missing named."""

import gzip
import json
import pickle
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from g_ray.cli.main import main
from g_ray.models.reconstruction_config import RECONSTRUCTION_SIZES
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.models.weights import save_reconstruction
from g_ray.predictors import ModelSettings
from g_ray_lab import result_pictures
from g_ray_lab.cluster import EXECUTORS
from g_ray_lab.scoring.comparison import scale_network
from g_ray_lab.scoring.protocol_registry import PROTOCOLS
from g_ray_lab.tables import dataset_tables, evaluation_table, qualitative_figure
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


def strip(result):
    """A result without what every run has of its own."""
    result = {key: value for key, value in result.items() if key != "provenance"}
    return {**result, "rows": [{**row, "cpu_seconds": 0} for row in result["rows"]]}


def test_shares_make_the_same_table(reproduce, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(dataset_tables, "HETEROGENEOUS", ("eth3d-fov",))
    monkeypatch.setattr(dataset_tables, "SMALL_VIEWS", (2, 4))
    monkeypatch.setattr(dataset_tables.Heterogeneous, "draw", lambda table, result: None)
    options = ("--models", "truth", "standing")
    alone, _ = reproduce("recon-heterogeneous", *options)
    shared = ["reproduce", "recon-heterogeneous", "--out", str(tmp_path / "shared"), *options, "--shard"]
    assert main([*shared, "2/2"]) == 0
    assert "share 2 of 2 is scored: the last process writes the table" in capsys.readouterr().out
    assert not (tmp_path / "shared" / "result.json").exists()
    assert main([*shared, "1/2"]) == 0
    both = json.loads((tmp_path / "shared" / "result.json").read_text())
    assert strip(both) == strip(alone)
    # Rows are kept, predictions are not.
    assert list((tmp_path / "shared").rglob("rows/*.json")) and not list(tmp_path.rglob("*.npz"))


def test_jobs_of_a_cluster_make_the_same_table(reproduce, tmp_path, monkeypatch):
    """Tasks travel as bytes; instead of on a cluster they run here."""
    monkeypatch.setattr(dataset_tables, "HETEROGENEOUS", ("eth3d-fov",))
    monkeypatch.setattr(dataset_tables.Heterogeneous, "draw", lambda table, result: None)
    alone, _ = reproduce("recon-heterogeneous", "--models", "standing")
    started = []

    def start_here(where, tasks, logs):
        started.extend(pickle.loads(pickle.dumps(task)) for task in tasks)
        return [SimpleNamespace(done=lambda: True, result=task, cancel=print) for task in started]

    monkeypatch.setitem(EXECUTORS, "slurm", start_here)
    words = ["reproduce", "recon-heterogeneous", "--out", str(tmp_path / "cluster"), "--models", "standing"]
    assert main([*words, "--cluster", "slurm", "--cluster-jobs", "2"]) == 0
    assert len(started) == 2
    assert strip(json.loads((tmp_path / "cluster" / "result.json").read_text())) == strip(alone)


def test_groups_of_rows_and_their_means(reproduce, tmp_path, monkeypatch):
    """Rows with and without calibration, one of which estimates it, and means over datasets with equal weight."""
    monkeypatch.setattr(dataset_tables, "HETEROGENEOUS", ("eth3d-fov", "pandaset"))
    monkeypatch.setitem(sys.modules, "anycalib", make_anycalib(focal=40.0))
    file = tmp_path / "tiny.safetensors"
    save_reconstruction(ReconstructionModel(RECONSTRUCTION_SIZES["tiny"](method="gray")), file)
    models = ("gray+anycalib", "gray", "standing")
    result, table = reproduce("recon-heterogeneous", "--models", *models, "--weights", f"gray={file}")
    assert result["groups"] == {"gray+anycalib": "none", "gray": "given", "standing": "given"}
    rows = {(row["method"], row["setting"]): row["metrics"] for row in result["rows"]}
    for method in models:
        parts = [rows[method, name]["points_rel"]["mean"] for name in ("eth3d-fov", "pandaset")]
        assert rows[method, "mean"]["points_rel"]["mean"] == pytest.approx(sum(parts) / 2)
    assert rows["gray", "mean"]["points_rel"] != rows["gray+anycalib", "mean"]["points_rel"]
    assert rows["gray+anycalib", "mean"]["focal_rel"]["mean"] > 0
    lines = table.split("### mean, 2 views")[1].splitlines()[2:7]
    assert lines[0].startswith("| model | calibration | points rel ↓ |")
    assert [line.split(" | ")[:2] for line in lines[2:]] == [
        ["| gray", "given"],
        ["| standing", "given"],
        ["| gray+anycalib", "none"],
    ]
    assert (tmp_path / "out" / "mean_points_rel.png").is_file()


def make_anycalib(focal):
    """A module with AnyCalib's documented interface that finds one focal length everywhere."""

    class AnyCalib:
        def __init__(self, model_id):
            pass

        def eval(self):
            return self

        def predict(self, image, cam_id):
            height, width = image.shape[-2:]
            return {"intrinsics": torch.tensor([focal, focal, width / 2, height / 2])}

    module = ModuleType("anycalib")
    module.AnyCalib = AnyCalib
    return module


def test_qualitative_figure(reproduce, tmp_path, monkeypatch):
    """A column for each model; one that is not installed is named and has an empty field."""
    monkeypatch.setattr(qualitative_figure, "HETEROGENEOUS", ("eth3d-fov",))
    monkeypatch.setitem(qualitative_figure.VIEWS, "small", 2)
    rows = []
    draw = result_pictures.draw_point_clouds
    monkeypatch.setattr(
        result_pictures, "draw_point_clouds", lambda made, theme: rows.extend(made) or draw(made, theme)
    )
    result, _ = reproduce("recon-qualitative", "--models", "standing", "mapanything")
    assert (tmp_path / "out" / "qualitative.png").stat().st_size > 10_000
    (row,) = rows
    assert list(row.clouds) == ["truth", "standing", "mapanything"]
    assert row.clouds["mapanything"] is None and "pip install" in result["gaps"][0]
    drawn = (row.clouds["standing"] < 1).any(-1).mean()
    assert drawn > 0.001 and result["rows"][0]["views"] == 2


def test_names_of_rows(tmp_path):
    models = ("mapanything", "mapanything+images", "vggt", "da3", "da3+poses", "gray", "gray+anycalib")
    rows = dataset_tables.RealSmall(tmp_path, models=models).build_rows()
    assert list(rows) == list(models)
    assert {name: row.group for name, row in rows.items()} == {
        "mapanything": "given",
        "mapanything+images": "none",
        "vggt": "none",
        "da3": "none",
        "da3+poses": "given",
        "gray": "given",
        "gray+anycalib": "none",
    }
    assert rows["vggt"].settings[0].lenses == "predicted" and rows["da3+poses"].poses
    for model, message in (("gray+magic", "give one of poses, "), ("stereo+images", "needs a calibration")):
        with pytest.raises(ValueError, match=message):
            dataset_tables.RealSmall(tmp_path, models=(model,)).build_rows()


def test_homogeneous(reproduce, monkeypatch):
    monkeypatch.setattr(dataset_tables, "SMALL_HOMOGENEOUS", ("tum-pose", "sintel-pose", "sintel-depth"))
    result, table = reproduce("recon-homogeneous", "--models", "truth")
    _, poses, depth, mean = (row["metrics"] for row in result["rows"])
    assert poses["ate"]["mean"] < 1e-6 and depth["delta_1.25"]["mean"] > 0.99
    assert list(mean) == ["ate"] and "### mean of poses" in table
    assert "| abs rel ↓ | sq rel ↓ | RMSE ↓ | δ < 1.25 % ↑ |" in table


def test_peers_change_their_size():
    """Factors of the resolution figure are in units of a peer's own input."""
    sizes = [scale_network(ModelSettings(), model, 1.5).size for model in ("mapanything", "vggt-omega")]
    assert sizes == [777, 768]
    assert scale_network(ModelSettings(), "mapanything", 1.0).size is None


def test_kitti_in_windows_for_mapanything():
    protocol = PROTOCOLS["kitti-depth"]
    assert protocol.limit_windows("mapanything", ModelSettings()).at_once == 64
    assert protocol.limit_windows("mapanything", ModelSettings(at_once=20)).at_once == 20
    assert protocol.limit_windows("vggt", ModelSettings()).at_once is None


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
