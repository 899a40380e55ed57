"""Tables: what is averaged, with which interval, and how it is written."""

from dataclasses import replace
from math import nan

import pytest

from g_ray.runtime.files import write_json
from g_ray_lab.scoring.scored_runs import (
    ScoredRun,
    compute_changes,
    compute_differences,
    format_scores_csv,
    make_rows,
)
from g_ray_lab.scoring.table_writer import (
    describe_limits,
    format_changes,
    format_differences,
    format_methods,
    split_groups,
)


def run(method: str, seed: int, *values: float) -> ScoredRun:
    scores = {"z1.0": {"psnr": list(values)}, "z2.0": {"psnr": [v - 1 for v in values]}}
    return ScoredRun.from_scores(method, seed, scores, 100, 10.0 + seed)


def compare(runs: list[ScoredRun]) -> dict[str, float]:
    return compute_differences(runs, [("gta_gray", "gta")])[0]["psnr"]


RUNS = [
    run("gta", 0, 20.0, 22.0),
    run("gta", 1, 21.0, 23.0),
    run("gta_gray", 0, 24.0, 25.0),
    run("gta_gray", 1, 25.0, 26.0),
]


def test_rows_average_scenes_and_seeds():
    table = {(row["method"], row["setting"]): row for row in make_rows(RUNS)}
    row = table["gta", "z1.0"]
    assert row["metrics"]["psnr"]["mean"] == 21.5
    assert row["metrics"]["psnr"]["low"] <= 21.5 <= row["metrics"]["psnr"]["high"]
    assert row["per_seed"]["psnr"] == [21.0, 22.0]
    assert (row["seeds"], row["steps"], row["cpu_seconds"]) == (2, 100, 10.5)
    assert table["gta_gray", "z2.0"]["metrics"]["psnr"]["mean"] == 24.0


def test_scenes_without_a_score_are_left_out_and_counted():
    """A set of views without a valid pixel has no score in any row; a score that one row alone lacks is an error."""
    runs = [
        run("gta", 0, 20.0, nan, 22.0),
        run("gta", 1, 21.0, nan, 23.0),
        run("gta_gray", 0, 24.0, nan, 25.0),
    ]
    row = make_rows(runs)[0]
    assert row["metrics"]["psnr"]["mean"] == 21.5 and row["per_seed"]["psnr"] == [21.0, 22.0]
    assert row["unscored"] == {"psnr": 1} and "unscored" not in make_rows(RUNS)[0]
    assert compare(runs)["mean"] == 3.5
    assert "not in the means: z1.0 (1), z2.0 (1)." in describe_limits(
        {"rows": make_rows(runs), "settings": {}}
    )
    with pytest.raises(ValueError, match="some not finite"):
        make_rows([run("gta", 0, 20.0, 21.0), run("gta", 1, nan, 23.0)])


def test_paired_difference_is_narrower_than_the_rows():
    gain = compare(RUNS)
    assert gain["mean"] == 3.5
    assert 3.0 <= gain["low"] <= gain["high"] <= 4.0


def test_differences_of_pairs_whose_rows_are_there():
    listed = compute_differences(RUNS, [("gta_gray", "gta"), ("rayrope_gray", "rayrope")])
    assert [(row["method"], row["minus"], row["setting"]) for row in listed] == [
        ("gta_gray", "gta", setting) for setting in RUNS[0].rows
    ]
    assert listed[0]["psnr"]["mean"] == 3.5
    text = format_differences({"differences": listed}, "psnr")
    assert text.splitlines()[2].startswith("| gta_gray − gta | 3.50 ± ")


def test_differences_pair_seeds_by_their_number():
    shuffled = [*reversed(RUNS)]
    assert compare(shuffled)["mean"] == 3.5


def test_changes_are_paired_by_scene():
    """Every scene loses 1 dB, so that the loss is exact although scenes and seeds differ."""
    listed = compute_changes(RUNS)
    assert [(row["method"], row["from"], row["setting"]) for row in listed] == [
        (method, "z1.0", "z2.0") for method in ("gta", "gta_gray")
    ]
    assert listed[0]["metrics"]["psnr"] == {"mean": -1.0, "low": -1.0, "high": -1.0}
    text = format_changes({"changes": listed}, "psnr", "wide")
    assert text.splitlines()[0] == "| psnr, change from z1.0, wide | z2.0 |"
    assert text.splitlines()[2] == "| gta | -1.00 ± 0.00 |"


def test_groups_of_columns():
    grouped = [
        replace(run, rows={f"{shape}/{s}": m for shape in ("wide", "square") for s, m in run.rows.items()})
        for run in RUNS
    ]
    differences = compute_differences(grouped, [("gta_gray", "gta")])
    changes = compute_changes(grouped)
    parts = split_groups({"rows": make_rows(grouped), "differences": differences, "changes": changes})
    assert list(parts) == ["wide", "square"]
    wide = parts["wide"]
    assert [row["setting"] for row in wide["rows"]] == ["z1.0", "z2.0"] * 2
    assert [row["setting"] for row in wide["differences"]] == ["z1.0", "z2.0"]
    assert [row["setting"] for row in wide["changes"]] == ["z2.0"] * 2 and wide["references"] == []
    assert format_methods(wide, "psnr", "wide").startswith("| psnr, wide | z1.0 | z2.0 |")


def test_scores_are_listed_scene_by_scene():
    text = format_scores_csv(RUNS)
    lines = text.splitlines()
    assert lines[0] == "method,seed,setting,metric,scene,value"
    values = sum(len(row.metrics) for r in RUNS for rows in r.rows.values() for row in rows)
    assert len(lines) == 1 + values
    assert lines[1].split(",")[:5] == [RUNS[0].method, str(RUNS[0].seed), *lines[1].split(",")[2:4], "0"]


def test_markdown_and_json(tmp_path):
    result = {"rows": make_rows(RUNS), "references": make_rows([run("mean_colour", 0, 14.0, 15.0)])}
    text = format_methods(result, "psnr")
    assert text.splitlines()[0] == "| psnr | z1.0 | z2.0 |"
    assert "| gta | 21.50 ± " in text
    assert text.splitlines()[-1].startswith("| mean_colour | 14.50 ± ")
    write_json(tmp_path / "deep" / "result.json", result)
    assert list((tmp_path / "deep").iterdir()) == [tmp_path / "deep" / "result.json"]
