"""A whole table in miniature: trained, scored, interrupted, continued, drawn."""

import json
import multiprocessing
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from g_ray.viewer.theme import LIGHT, draw_contact_sheet, encode_png
from g_ray_lab.figures import draw_curves, draw_training
from g_ray_lab.recipes.nvs_recipes import tiny
from g_ray_lab.scoring import study as study_jobs
from g_ray_lab.scoring.nvs_protocols import FovProtocol, WhoZoomsProtocol, make_shapes
from g_ray_lab.scoring.nvs_scorer import NVSScorer, predict_mean_color
from g_ray_lab.scoring.scored_runs import join_shares
from g_ray_lab.scoring.store import Shard
from g_ray_lab.scoring.study import Effort, Study, run_study
from g_ray_lab.scoring.study_job import Job, load_network
from g_ray_lab.scoring.table_writer import SCORES, format_methods
from g_ray_lab.training.recipe import Schedule

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
    return out, run_study(STUDY, out, 2, Effort(jobs=2), lines.append), lines


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
    again = run_study(STUDY, out, seeds=2)
    assert again["rows"] == result["rows"]
    assert [path.stat().st_mtime_ns for path in files[1:]] == before


def test_networks_of_another_table_are_scored_and_left_alone(finished, tmp_path):
    out, _, _ = finished
    theirs = out / "runs" / "gta-seed0" / "scores.json"
    before = theirs.read_bytes()
    other = replace(STUDY, scorer=NVSScorer(WhoZoomsProtocol(24, 24, scenes=4)), networks=out)
    rows = run_study(other, tmp_path, seeds=1)["rows"]
    native = {row["method"]: row["metrics"]["psnr"]["mean"] for row in rows if row["setting"] == "none"}
    expected = json.loads(before)["value"]["z1.0"]["psnr"]
    assert native["gta"] == pytest.approx(sum(expected) / len(expected))
    assert theirs.read_bytes() == before
    assert not (tmp_path / "runs").exists()


def test_another_protocol_is_scored_anew(finished):
    out, result, _ = finished
    other = replace(STUDY, scorer=NVSScorer(replace(PROTOCOL, scenes=3)))
    assert run_study(other, out, seeds=1)["rows"] != result["rows"]


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
    assert "| gta_gray |" in format_methods(result, "psnr")


def test_curves_of_training(finished):
    _, result, _ = finished
    rows = result["rows"]
    early = [{**row, "steps": 1, "metrics": rows[-1]["metrics"]} for row in rows]
    panel = draw_training({"early": [{"steps": 1, "rows": early}], "rows": rows}, LIGHT).axes[0]
    assert {line.get_label() for line in panel.lines} == {row["method"] for row in rows}
    first = panel.lines[0]
    assert list(first.get_xdata()) == [1, rows[0]["steps"]]
    assert list(first.get_ydata()) == [rows[number]["metrics"]["psnr"]["mean"] for number in (-1, 0)]


def test_references_are_scored_once(finished, tmp_path, monkeypatch):
    out, _, _ = finished
    study = replace(STUDY, networks=out)
    first = run_study(study, tmp_path, seeds=1)
    monkeypatch.setattr(NVSScorer, "score_reference_shares", lambda *given: pytest.fail("scored again"))
    assert run_study(study, tmp_path, seeds=1)["references"] == first["references"]


def test_given_networks_are_scored_as_they_are(finished, tmp_path):
    out, result, _ = finished
    given = replace(STUDY, methods={"mine": STUDY.methods["gta"]})
    given = replace(given, weights={"mine": out / "runs" / "gta-seed0" / "model.safetensors"})
    rows = run_study(given, tmp_path, seeds=1)["rows"]
    assert rows[0]["per_seed"]["psnr"] == result["rows"][0]["per_seed"]["psnr"][:1]
    assert not (tmp_path / "runs").exists()
    with pytest.raises(ValueError, match="no such file; give a file of weights"):
        run_study(replace(given, weights={"mine": tmp_path / "absent.safetensors"}), tmp_path / "2", seeds=1)


def test_shares_make_the_whole(finished, tmp_path):
    """Scored by two processes, whichever ends last: the numbers of one, in the order of one."""
    out, _, _ = finished
    protocol = replace(PROTOCOL, scenes=3, at_once=1, zooms=(2.0,))
    study = replace(STUDY, scorer=NVSScorer(protocol), networks=out, methods={"gta": STUDY.methods["gta"]})
    assert run_study(study, tmp_path / "shares", 1, Effort(shard=Shard(2, 2))) is None
    assert not (tmp_path / "shares" / SCORES).exists()
    shared = run_study(study, tmp_path / "shares", 1, Effort(shard=Shard(1, 2)))
    whole = run_study(study, tmp_path / "whole", 1)
    assert shared["rows"] == whole["rows"] and shared["references"] == whole["references"]
    assert (tmp_path / "shares" / SCORES).read_bytes() == (tmp_path / "whole" / SCORES).read_bytes()
    with pytest.raises(ValueError, match="do not belong together"):
        join_shares([{"z": [{"psnr": [1.0]}]}, {"z": [{"psnr": [1.0]}, {"psnr": [2.0]}]}])


def test_shares_need_finished_networks(tmp_path):
    with pytest.raises(ValueError, match="train it first, with --no-score"):
        run_study(STUDY, tmp_path, 1, Effort(shard=Shard(1, 2)))


def test_networks_can_be_trained_without_scores(finished, tmp_path):
    assert (
        run_study(replace(STUDY, methods={"gta": miniature("gta")}), tmp_path, 1, Effort(score=False)) is None
    )
    assert (tmp_path / "runs" / "gta-seed0" / "model.safetensors").is_file()
    assert not list(tmp_path.rglob("scores*"))


def test_scores_during_training_come_in_shares_too(tmp_path):
    """Trained first, with checkpoints on the way, then scored by two processes or by one: the same numbers."""
    scorer = NVSScorer(replace(PROTOCOL, scenes=2, at_once=1, zooms=(2.0,)))
    study = replace(STUDY, scorer=scorer, methods={"gta": miniature("gta")}, early=(1,))
    trained = tmp_path / "trained"
    assert run_study(study, trained, 1, Effort(score=False)) is None
    assert not list(trained.rglob("scores*"))
    study = replace(study, networks=trained)
    assert run_study(study, tmp_path / "shares", 1, Effort(shard=Shard(1, 2))) is None
    shared = run_study(study, tmp_path / "shares", 1, Effort(shard=Shard(2, 2)))
    whole = run_study(study, tmp_path / "whole", 1)
    assert shared["early"] == whole["early"] and shared["rows"] == whole["rows"]
    assert whole["early"][0]["rows"][0]["metrics"] != whole["rows"][0]["metrics"]
    assert (whole["early"][0]["rows"][0]["steps"], whole["rows"][0]["steps"]) == (1, 3)


def test_given_networks_have_no_scores_during_training(tmp_path):
    given = replace(STUDY, weights={"gta": tmp_path / "model.safetensors"}, early=(1,))
    with pytest.raises(ValueError, match="gta is a given network"):
        run_study(given, tmp_path / "o", seeds=1)


def test_fewer_scenes_are_the_first_ones_and_another_protocol():
    few = replace(PROTOCOL, limit=3)
    assert few.digest != PROTOCOL.digest and few.describe_settings()["limit"] == 3
    assert torch.equal(
        few.score(predict_mean_color, "z2.0", None).psnr,
        PROTOCOL.score(predict_mean_color, "z2.0", None).psnr[:3],
    )


def test_a_share_is_no_other_protocol():
    grouped = make_shapes(FovProtocol(36, 36, 4, at_once=2), 6)
    for whole in (PROTOCOL, grouped):
        assert whole.select(Shard(2, 3)).digest == whole.digest != whole.limit_scenes(1).digest
    setting = grouped.settings[0]
    assert [len(batch) for batch in grouped.make_batches(setting)] == [2, 2]
    assert [len(batch) for batch in grouped.select(Shard(2, 2)).make_batches(setting)] == [2]
    assert [len(batch) for batch in grouped.limit_scenes(1).make_batches(setting)] == [1]


def test_effort_divides_the_machine(monkeypatch):
    monkeypatch.setattr(study_jobs, "count_local", lambda: (16, 1))
    job = Job("gta", miniature("gta"), STUDY.scorer, Path("run"), Path("run/scores.json"))
    gpus = Effort(4, ("cuda:0", "cuda:1", "cuda:2", "cuda:3"), save_every=2500)
    assert gpus.make_run(job, "cuda:1").workers == 3 and gpus.count_threads() == 4
    assert gpus.make_run(job, "cuda:1").save_every == 2500
    assert Effort(2).make_run(job, "cpu").workers == 0 and Effort(2).count_threads() == 1
    assert Effort(1, workers=5).make_run(job, "cpu").workers == 5


def test_a_killed_process_ends_the_study_in_one_line(tmp_path):
    endless = {
        name: replace(recipe, schedule=Schedule(lr=1e-3, steps=100_000))
        for name, recipe in STUDY.methods.items()
    }

    def kill_one(state: str) -> None:
        for child in multiprocessing.active_children()[:1]:
            child.kill()

    with pytest.raises(OSError, match="process of a network was killed") as caught:
        run_study(replace(STUDY, methods=endless), tmp_path, 1, Effort(jobs=2), kill_one)
    assert "\n" not in str(caught.value)


def lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="needs Linux")
def test_no_process_outlives_a_killed_study(tmp_path):
    """Processes that went on training would hold the folders that the repeated command needs."""
    endless = {
        name: replace(recipe, schedule=Schedule(lr=1e-3, steps=100_000))
        for name, recipe in STUDY.methods.items()
    }
    reading, writing = os.pipe()

    def kill_this_process(state: str) -> None:
        os.write(writing, json.dumps([child.pid for child in multiprocessing.active_children()]).encode())
        os.kill(os.getpid(), signal.SIGKILL)

    killed = os.fork()
    if killed == 0:
        run_study(replace(STUDY, methods=endless), tmp_path, 1, Effort(jobs=2), kill_this_process)
    os.waitpid(killed, 0)
    workers = json.loads(os.read(reading, 4096))
    assert len(workers) == 2
    for _ in range(600):
        if not any(map(lives, workers)):
            break
        time.sleep(0.1)
    assert not any(map(lives, workers))


def test_nonsense_is_refused(tmp_path):
    with pytest.raises(ValueError, match="must be at least 1"):
        run_study(STUDY, tmp_path, seeds=0)
    with pytest.raises(ValueError, match="--jobs 0"):
        Effort(jobs=0)
