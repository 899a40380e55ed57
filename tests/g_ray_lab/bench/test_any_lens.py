"""The benchmark of stereo through any lenses: its scenes are exact, and it scores methods, also a stranger's."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from g_ray_lab.bench import any_lens_scenes, bench_any_lens
from g_ray_lab.bench.any_lens_scenes import LENSES, export_set, hash_set, list_plans, make_lens, render_set
from g_ray_lab.bench.bench_any_lens import benchmark_any_lens, load_method, read_depths, score_set

EXAMPLE = Path(__file__).parents[3] / "docs" / "benchmarks.md"


def read_example():
    """Return the method that the documentation shows."""
    (example,) = [
        part.split("```")[0] for part in EXAMPLE.read_text().split("```python\n") if "def estimate(" in part
    ]
    return example


@pytest.fixture(scope="module")
def mixed():
    """A set through five lenses, in small images."""
    side, any_lens_scenes.SIDE = any_lens_scenes.SIDE, 48
    try:
        yield render_set(list_plans()[9])
    finally:
        any_lens_scenes.SIDE = side


def test_every_lens_is_used_alike():
    plans = list_plans()
    count = {lens: sum(plan.lenses.count(lens) for plan in plans) for lens in LENSES}
    assert set(count.values()) == {10} and len({plan.name for plan in plans}) == 24
    assert sum(plan.kind == "objects" for plan in plans) == 12


@pytest.mark.parametrize("name", LENSES)
def test_lenses_have_their_field_of_view(name):
    camera = make_lens(name)
    assert float(camera.fov().horizontal_deg) == pytest.approx(LENSES[name][1], abs=0.01)


def test_true_depths_of_different_lenses_agree(mixed):
    """The points of one view, projected into another, have its depth, but for occluded ones."""
    first, second = mixed.views[:2]
    rays = first.camera.unproject_grid()[0]
    distance = first.load_ray_depth().double()
    points = first.get_pose().apply((rays * distance[..., None])[distance > 0])
    local = second.get_pose().inverse().apply(points)
    pixels, seen = second.camera.project(local)
    seen &= second.camera.contains(pixels)
    column, row = pixels[seen].long().clamp(max=47).unbind(-1)
    true = second.load_ray_depth()[row, column]
    error = (local[seen].norm(dim=-1) / true - 1).abs()
    assert int(seen.sum()) > 200 and float((error < 0.05).float().mean()) > 0.7


def test_scenes_repeat(mixed):
    digest = hash_set(mixed)
    side, any_lens_scenes.SIDE = any_lens_scenes.SIDE, 48
    try:
        assert hash_set(render_set(list_plans()[9])) == digest
    finally:
        any_lens_scenes.SIDE = side
    changed = replace(mixed.views[0], image=1 - mixed.views[0].load_image())
    assert hash_set(replace(mixed, views=[changed, *mixed.views[1:]])) != digest


def test_scores(mixed):
    truth = [view.load_ray_depth() for view in mixed.views]
    right = score_set(mixed, "exact", truth, 5.0)
    assert all(row["within_3"] == row["kept"] == 1 and row["error"] == 0 for row in right)
    off = score_set(mixed, "off", [1.05 * depth for depth in truth], 5.0)
    assert all(row["within_3"] == 0 and row["within_10"] == 1 for row in off)
    half = [torch.where(torch.rand_like(depth) < 0.5, depth, 0.0) for depth in truth]
    assert score_set(mixed, "half", half, 5.0)[0]["within_3"] == pytest.approx(0.5, abs=0.1)
    assert score_set(mixed, "none", [0 * depth for depth in truth], 5.0)[0]["error"] is None
    with pytest.raises(ValueError, match="one distance per pixel"):
        score_set(mixed, "small", [depth[::2] for depth in truth], 5.0)


def test_a_stranger_is_scored_and_rows_are_kept(tmp_path, monkeypatch, mixed):
    monkeypatch.setattr(bench_any_lens, "render_set", lambda plan: mixed)
    monkeypatch.setattr(bench_any_lens, "list_plans", lambda: list_plans()[9:10])
    (tmp_path / "theirs.py").write_text(read_example())
    assert len(read_example().splitlines()) <= 30
    text = benchmark_any_lens(tmp_path, {"theirs": load_method(tmp_path / "theirs.py")}, None, None, print)
    assert "theirs" in text and "1 sets, hash" in text
    rows = (tmp_path / "rows.jsonl").read_text()
    assert len(rows.splitlines()) == 5 and json.loads(rows.splitlines()[0])["method"] == "theirs"
    # The example answers with one distance wherever there is a ray.
    truth = torch.cat([view.load_ray_depth()[view.load_ray_depth() > 0] for view in mixed.views])
    within = ((mixed.near * mixed.far) ** 0.5 / truth - 1).abs() <= 0.1
    found = sum(json.loads(row)["within_10"] for row in rows.splitlines()) / 5
    assert found == pytest.approx(float(within.float().mean()), abs=0.1)

    def fail(scene):
        raise AssertionError("was computed again")

    benchmark_any_lens(tmp_path, {"theirs": fail}, None, None, print)
    assert (tmp_path / "rows.jsonl").read_text() == rows


def test_depths_of_a_folder(tmp_path, mixed):
    export_set(mixed, tmp_path)
    written = sorted(path.name for path in (tmp_path / mixed.name).iterdir())
    assert written == [*(f"{i}.png" for i in range(5)), "cameras.json", "range.json"]
    with pytest.raises(ValueError, match=r"0\.npy"):
        read_depths(tmp_path, mixed)
    for index, view in enumerate(mixed.views):
        np.save(tmp_path / mixed.name / f"{index}.npy", view.load_ray_depth().numpy())
    assert score_set(mixed, "folder", read_depths(tmp_path, mixed), 0.0)[0]["within_3"] == 1


def test_a_file_without_the_function_is_refused(tmp_path):
    (tmp_path / "empty.py").write_text("")
    for name in ("empty.py", "missing.py"):
        with pytest.raises(ValueError, match="estimate"):
            load_method(tmp_path / name)
