"""Scores by field of view: perfect for the truth, on the right pixels; both tables in miniature."""

import json
from dataclasses import replace

import pytest
import torch

from g_ray.cli.main import main
from g_ray.reconstruction.set_metrics import METRICS, SetGeometry
from g_ray_lab.scoring import reconstruction_scorer
from g_ray_lab.scoring.reconstruction_scorer import BEHIND, LENS_TESTS, LensScorer, score_batch
from g_ray_lab.sources.reconstruction_settings import RoomsLenses
from g_ray_lab.sources.rooms_reconstruction import LensedRooms
from g_ray_lab.tables import coordinate_tables as reproduce_coordinates
from g_ray_lab.tables.coordinate_tables import ALPHAS, COORDINATE_ROWS, CoordinatesTable, FrequencyRecon

ROOMS = LensedRooms(RoomsLenses(24, 24), patch=4, split="test")
SCORER = LensScorer(ROOMS, 2, 2)


@pytest.mark.parametrize("setting", SCORER.settings)
def test_the_truth_is_perfect(setting):
    batch = next(SCORER.make_batches(setting))
    truth = SetGeometry(batch.world_points, batch.camera_points, batch.rays().directions, batch.poses)
    rows = score_batch(batch, truth, "ray", SCORER.select_pixels(batch, setting)).rows()
    assert float(rows["points_rel"].max()) < 1e-5 and float(rows["pose_ate"].max()) < 1e-5
    assert float(rows["rays_deg"].max()) < 0.05 and float(rows["points_inlier"].min()) == 1.0


def test_only_pixels_behind_the_camera_count_there():
    batch = next(SCORER.make_batches("panorama"))
    rays = batch.rays().directions
    wrong_in_front = torch.where(rays[..., 2:] > 0, -rays, rays)
    predicted = SetGeometry(batch.world_points, batch.camera_points, wrong_in_front, batch.poses)
    errors = {
        setting: float(
            score_batch(batch, predicted, "ray", SCORER.select_pixels(batch, setting))
            .rows()["rays_deg"]
            .mean()
        )
        for setting in ("panorama", "panorama_behind")
    }
    assert errors["panorama"] == pytest.approx(90, abs=0.1) and errors["panorama_behind"] < 0.05


def test_columns_differ_in_lenses_alone():
    batches = [next(SCORER.make_batches(setting)) for setting in LENS_TESTS]
    assert all(torch.equal(b.poses.world_from_cam, batches[0].poses.world_from_cam) for b in batches)
    assert [camera.NAME for camera in batches[-1].views.cameras] == [
        "pinhole",
        "opencv_fisheye",
        "equirectangular",
        "opencv_fisheye",
    ]


def shrink(study):
    """The study on one test set, with batches of one set."""
    scorer = replace(study.scorer, sets=1, at_once=1)
    methods = {
        name: replace(recipe, data=replace(recipe.data, batch=1)) for name, recipe in study.methods.items()
    }
    return replace(study, scorer=scorer, methods=methods)


@pytest.mark.parametrize(
    ("table", "rows", "settings"),
    [
        (CoordinatesTable, ("tangent",), ["pinhole_60", "panorama", "panorama_behind"]),
        (FrequencyRecon, ("alpha_4",), ["pinhole", "zoom", "mixed", "fisheye"]),
    ],
)
def test_a_table_in_miniature(tmp_path, monkeypatch, table, rows, settings):
    for name, columns in {"LENS_TESTS": LENS_TESTS, "BEHIND": BEHIND}.items():
        kept = {key: value for key, value in columns.items() if key in settings}
        monkeypatch.setattr(reconstruction_scorer, name, kept)
    command = table(tmp_path / "o", seeds=1, steps=2, jobs=1, methods=rows)
    study = shrink(command.build_study())
    monkeypatch.setattr(table, "build_study", lambda self: study)
    command.run()
    result = json.loads((tmp_path / "o" / "result.json").read_text())
    assert [(row["method"], row["setting"]) for row in result["rows"]] == [
        (row, setting) for row in rows for setting in settings
    ]
    assert set(result["rows"][0]["metrics"]) == set(METRICS)
    assert (tmp_path / "o" / "rays_deg.png").is_file() and (tmp_path / "o" / "table.md").is_file()


def test_rows_differ_in_their_encodings_alone(tmp_path):
    coordinates = {
        name: recipe.build_task().build_model().aggregator
        for name, recipe in CoordinatesTable(tmp_path).build_study().methods.items()
    }
    assert set(coordinates) == set(COORDINATE_ROWS)
    used = {name: (model.frame.coordinate, model.across.coordinate) for name, model in coordinates.items()}
    for name in ("tangent", "equidistant", "spherical"):
        assert used[name] == (name, name)
    assert used["camray_tangent"] == ("tangent",) * 2 and used["camray"] == ("grid_from_one",) * 2
    recipes = FrequencyRecon(tmp_path).build_study().methods
    scales = [recipe.build_task().build_model().aggregator.across.scale for recipe in recipes.values()]
    assert scales == [float(alpha) for alpha in ALPHAS]


def test_the_paper_scale_builds(tmp_path):
    study = CoordinatesTable(tmp_path, scale="paper").build_study()
    recipe = study.methods["equidistant"]
    assert (recipe.model.size, recipe.data.width) == ("small", 224)
    assert recipe.model.build_config().encoding_options == {"coordinate": "equidistant"}
    assert recipe.schedule.steps > reproduce_coordinates.STEPS


def test_an_unknown_row_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "coordinates", "--out", "o", "--methods", "gnomonic"]) == 2
    said = capsys.readouterr().err
    assert "no row gnomonic" in said and said.count("\n") == 1
