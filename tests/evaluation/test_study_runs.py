"""A whole table in miniature: trained, scored, interrupted, continued, drawn."""

import json
from dataclasses import replace

import pytest

from g_ray.evaluation.nvs import FovProtocol, NVSScorer, WhoZoomsProtocol
from g_ray.evaluation.study import format_markdown
from g_ray.evaluation.study_runs import Study, load_network, run_study
from g_ray.recipes.nvs import tiny
from g_ray.training.recipe import Schedule
from g_ray.viewer.table_figures import draw_contact_sheet, draw_curves
from g_ray.viewer.theme import LIGHT, encode_png

PROTOCOL = FovProtocol(24, 24, scenes=4, zooms=(1.0, 2.0), at_once=4)


def miniature(method: str):
    recipe = tiny(method)
    return replace(
        recipe,
        model=replace(recipe.model, dim=48, layers=2, heads=1, ffn=48),
        data=replace(recipe.data, width=24, height=24, batch=2),
        schedule=Schedule(lr=1e-3, steps=3),
    )


STUDY = Study("nvs-fov", "miniature", {m: miniature(m) for m in ("gta", "gta_gray")}, NVSScorer(PROTOCOL))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("study")
    lines: list[str] = []
    return out, run_study(STUDY, out, seeds=2, jobs=2, progress=lines.append), lines


def test_the_result_has_a_row_per_method_and_setting(finished):
    _, result, lines = finished
    assert (result["name"], result["scale"]) == ("nvs-fov", "miniature")
    assert [(row["method"], row["setting"]) for row in result["rows"]] == [
        (method, setting) for method in ("gta", "gta_gray") for setting in ("z1.0", "z2.0")
    ]
    for row in result["rows"]:
        assert set(row["metrics"]) == {"psnr", "ssim"}
        assert set(row["metrics"]["psnr"]) == {"mean", "low", "high"}
        assert (row["seeds"], row["steps"]) == (2, 3)
        assert row["cpu_seconds"] > 0
    assert {row["method"] for row in result["references"]} == {"mean_colour", "copy_context", "rotation_warp"}
    assert lines[-1] == "scoring references"
    json.dumps(result)


def test_finished_networks_and_scores_are_used_again(finished):
    out, result, _ = finished
    files = [out / "runs" / "gta-seed1" / name for name in ("model.safetensors", "scores.json")]
    before = [path.stat().st_mtime_ns for path in files[1:]]
    again = run_study(STUDY, out, seeds=2, jobs=1)
    assert again["rows"] == result["rows"]
    assert [path.stat().st_mtime_ns for path in files[1:]] == before


def test_networks_of_another_table_are_scored_and_left_alone(finished, tmp_path):
    out, _, _ = finished
    theirs = out / "runs" / "gta-seed0" / "scores.json"
    before = theirs.read_bytes()
    other = replace(STUDY, scorer=NVSScorer(WhoZoomsProtocol(24, 24, scenes=4)), networks=out)
    rows = run_study(other, tmp_path, seeds=1, jobs=1)["rows"]
    native = {row["method"]: row["metrics"]["psnr"]["mean"] for row in rows if row["setting"] == "none"}
    expected = json.loads(before)["scores"]["z1.0"]["psnr"]
    assert native["gta"] == pytest.approx(sum(expected) / len(expected))
    assert theirs.read_bytes() == before
    assert not (tmp_path / "runs").exists()


def test_another_protocol_is_scored_anew(finished):
    out, result, _ = finished
    other = replace(STUDY, scorer=NVSScorer(replace(PROTOCOL, scenes=3)))
    assert run_study(other, out, seeds=1, jobs=1)["rows"] != result["rows"]


def test_pictures_and_table(finished):
    out, result, _ = finished
    batch = next(PROTOCOL.make_batches("z2.0"))
    network = load_network(STUDY.methods["gta"], out / "runs" / "gta-seed0" / "model.safetensors")
    predicted = network(batch.context_images, batch.contexts, batch.targets).detach()
    columns = [("truth", batch.target_images[:2, 0]), ("gta", predicted[:2, 0])]
    for figure in (
        draw_curves(result, "psnr", LIGHT),
        draw_contact_sheet(columns, {"gta": ["1 dB", "2 dB"]}, LIGHT),
    ):
        assert encode_png(figure).startswith(b"\x89PNG")
    assert "| gta_gray |" in format_markdown(result)


def test_nonsense_is_refused(tmp_path):
    with pytest.raises(ValueError, match="must be at least 1"):
        run_study(STUDY, tmp_path, seeds=0)
