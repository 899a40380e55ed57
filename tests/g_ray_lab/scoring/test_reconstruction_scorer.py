"""Scores of reconstruction: perfect for the truth, chance for cameras that stand still, a table in miniature."""

import json
from dataclasses import replace

import pytest

from g_ray.cli.main import main
from g_ray.reconstruction.set_metrics import METRICS, SetGeometry
from g_ray_lab.recipes import reconstruction_recipes
from g_ray_lab.scoring import reconstruction_scorer
from g_ray_lab.scoring.reconstruction_scorer import LENSES, PhotosScorer, RoomsScorer, score_batch
from g_ray_lab.scoring.study import Study, run_study
from g_ray_lab.sources.reconstruction_settings import RoomsViews
from g_ray_lab.sources.rooms_reconstruction import RoomsReconstruction
from g_ray_lab.tables.trained_table import format_early_tables
from g_ray_lab.training.recipe import Schedule

ROOMS = RoomsReconstruction(RoomsViews(24, 24), patch=4, split="test")


def truth(batch):
    return SetGeometry(batch.world_points, batch.camera_points, batch.rays().directions, batch.poses)


@pytest.mark.parametrize("setting", LENSES)
def test_the_truth_is_perfect(setting):
    batch = next(RoomsScorer(ROOMS, 3, 3).make_batches(setting))
    rows = score_batch(batch, truth(batch), "ray").rows()
    assert float(rows["points_rel"].max()) < 1e-5 and float(rows["pose_ate"].max()) < 1e-5
    assert float(rows["rays_deg"].max()) < 0.05 and float(rows["points_inlier"].min()) == 1.0


def test_settings_differ_in_lenses_alone():
    scorer = RoomsScorer(ROOMS, 2, 2)
    batches = {setting: next(scorer.make_batches(setting)) for setting in scorer.settings}
    poses = [batch.poses.world_from_cam for batch in batches.values()]
    assert all((pose == poses[0]).all() for pose in poses)
    names = {setting: [camera.NAME for camera in batch.views.cameras] for setting, batch in batches.items()}
    assert names["mixed"] == ["pinhole", "opencv_fisheye"] * 2 and set(names["fisheye"]) == {"opencv_fisheye"}
    assert set(names["zoom"]) == {"pinhole"}


def test_cameras_that_stand_still_are_the_reference():
    (run,) = RoomsScorer(ROOMS, 8, 8).score_references()
    for setting in LENSES:
        rows = run.rows[setting]
        means = {metric: sum(row.metrics[metric] for row in rows) / len(rows) for metric in METRICS}
        assert set(means) == set(METRICS)
        assert means["rays_deg"] < 0.05 and 0.08 < means["pose_ate"] < 0.2 and means["points_rel"] > 0.2


def test_training_rooms_are_not_test_rooms():
    recipe = reconstruction_recipes.stage1("gray")
    rooms = recipe.data.build_source(0, 14)
    assert isinstance(rooms, RoomsReconstruction)
    scorer = RoomsScorer.from_training(rooms, 4)
    assert (
        scorer.rooms.split == "test"
        and scorer.rooms.settings.views == (4, 4)
        and not scorer.rooms.settings.color
    )


def miniature(method):
    recipe = reconstruction_recipes.tiny(method)
    return replace(recipe, data=replace(recipe.data, batch=1), schedule=Schedule(lr=1e-3, steps=2))


def test_a_table_in_miniature(tmp_path):
    study = Study(
        "recon-ablation",
        "miniature",
        {method: miniature(method) for method in ("gray", "rope")},
        RoomsScorer(ROOMS, 3, 3),
        (("gray", "rope"),),
    )
    result = run_study(study, tmp_path, seeds=1)
    assert [(row["method"], row["setting"]) for row in result["rows"]] == [
        (method, setting) for method in ("gray", "rope") for setting in LENSES
    ]
    assert set(result["rows"][0]["metrics"]) == set(METRICS)
    assert set(result["differences"][0]) == {"method", "minus", "setting", *METRICS}
    json.dumps(result)
    again = run_study(study, tmp_path, seeds=1)
    assert again["rows"] == result["rows"]

    from g_ray_lab.result_pictures import draw_reconstructions

    draw_reconstructions(study, result, tmp_path)
    assert (tmp_path / "depth_mixed.png").is_file() and (tmp_path / "rays_deg.png").is_file()


def test_networks_are_scored_during_their_training_too(tmp_path, monkeypatch):
    # Another dict: deleting from it and restoring it would change the order of columns for later tests.
    monkeypatch.setattr(reconstruction_scorer, "LENSES", {"pinhole": LENSES["pinhole"]})
    recipe = replace(miniature("gray"), schedule=Schedule(lr=1e-4, steps=3))
    study = Study("recon-ablation", "miniature", {"gray": recipe}, RoomsScorer(ROOMS, 1, 1), early=(1, 2))
    result = run_study(study, tmp_path / "a", seeds=1)
    assert [part["steps"] for part in result["early"]] == [1, 2]
    errors = [part["rows"][0]["metrics"]["points_rel"]["mean"] for part in (*result["early"], result)]
    assert len(set(errors)) == 3
    # Checkpoints on the way change nothing in the end, and finished networks are not trained again.
    plain = run_study(replace(study, early=()), tmp_path / "b", seeds=1)
    assert plain["rows"][0]["metrics"] == result["rows"][0]["metrics"] and "early" not in plain
    assert run_study(study, tmp_path / "a", seeds=1)["early"] == result["early"]
    assert "### After 2 steps" in format_early_tables(result)
    with pytest.raises(ValueError, match="has kept no checkpoint of step 1"):
        run_study(study, tmp_path / "b", seeds=1)
    with pytest.raises(ValueError, match="steps from 1 to 2"):
        run_study(replace(study, early=(3,)), tmp_path / "c", seeds=1)


def test_photographs_as_fisheyes(shared_data):
    scorer = PhotosScorer(shared_data / "7scenes_redkitchen100", 24, 4, sets=2, at_once=2)
    plain, bent = (next(scorer.make_batches(setting)) for setting in ("pinhole", "fisheye"))
    assert plain.images.shape == bent.images.shape == (2, 4, 3, 24, 24)
    assert {camera.NAME for camera in bent.views.cameras} == {"opencv_fisheye"}
    assert (plain.poses.world_from_cam == bent.poses.world_from_cam).all()
    assert float(score_batch(bent, truth(bent), "ray").points_rel.max()) < 1e-5
    assert len(scorer.key["protocol"]) == 16


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["recon-photos", "--out", "o"], "--data FOLDER"),
        (["recon-photos", "--out", "o", "--scale", "paper", "--data", "."], "--scale small"),
        (["recon-ablation", "--out", "o", "--methods", "magic"], "no row magic"),
        (["recon-ablation", "--out", "o", "--seeds", "0"], "at least 1"),
    ],
)
def test_mistakes_are_one_line(tmp_path, monkeypatch, capsys, more, message):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *more]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1
