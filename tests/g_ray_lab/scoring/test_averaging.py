"""Averages by hand: order, divisors, weights, and everything that is not in a mean by name."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from g_ray_lab.metrics.intervals import bootstrap
from g_ray_lab.scoring.averages import SetRow, average_datasets, average_rows
from g_ray_lab.scoring.evaluation_results import count_sets


def make_row(scene, name, metrics=None, status="scored", dataset="eth3d", given=4, empty=0) -> SetRow:
    counts = {"given": given, "empty": empty}
    return SetRow("p", dataset, scene, name, 4, status, **counts, metrics=metrics or {})


def make_rows(values: dict[str, list[float]], dataset: str = "eth3d") -> list[SetRow]:
    return [
        make_row(scene, f"{scene}-{number}", {"ate": value}, dataset=dataset)
        for scene, scores in values.items()
        for number, value in enumerate(scores)
    ]


def test_the_mean_is_flat_over_sets():
    """A scene with more scored sets counts more, as published."""
    average = average_rows(make_rows({"a": [1.0, 2.0, 3.0], "b": [10.0]}))["ate"]
    assert average.interval.mean == 4.0
    assert (average.sets, average.scenes) == (4, 2)


def test_video_depth_is_weighted_by_pixels():
    rows = [
        make_row("a", "a-0", {"abs_rel": 0.1, "valid_pixels": 300.0}),
        make_row("b", "b-0", {"abs_rel": 0.5, "valid_pixels": 100.0}),
    ]
    found = average_rows(rows, weight="valid_pixels")
    assert found["abs_rel"].interval.mean == pytest.approx(0.2)
    assert list(found) == ["abs_rel"]
    with pytest.raises(ValueError, match="set a-0 has no 'pixels'"):
        average_rows(rows, weight="pixels")


def test_what_is_not_in_the_mean_is_named():
    rows = [
        *make_rows({"a": [1.0, 3.0]}),
        make_row("a", "a-2", status="failed"),
        make_row("b", "b-0", status="unreadable"),
        make_row("c", "c-0", {"ate": math.nan, "rays_deg": 2.0}, given=1),
        make_row("c", "c-1", {"rays_deg": 4.0}, empty=3),
    ]
    found = average_rows(rows)
    assert found["ate"].interval.mean == 2.0 and found["ate"].sets == 2
    assert found["ate"].absent == ("c-0", "c-1")
    assert found["rays_deg"].interval.mean == 3.0
    counts = count_sets(rows, planned=8)
    assert (counts["scored"], counts["failed"], counts["unreadable"], counts["not_run"]) == (4, 1, 1, 2)
    assert counts["single_view"] == 1 and counts["empty_views"] == 3


def test_a_metric_that_no_set_has_is_left_out():
    found = average_rows([make_row("a", "a-0", {"ate": math.nan, "rays_deg": 1.0})])
    assert list(found) == ["rays_deg"]
    nothing = average_rows([make_row("a", "a-0", status="failed")])
    assert nothing == {}


def test_a_missing_scene_changes_the_divisor():
    whole = make_rows({"a": [1.0], "b": [2.0], "c": [6.0]})
    assert average_rows(whole)["ate"].interval.mean == 3.0
    assert average_rows(whole[:2])["ate"].interval.mean == 1.5


def test_intervals_are_over_scenes():
    """Ten equal sets per scene tell no more than one."""
    scenes = np.random.default_rng(0).normal(size=12)
    once = average_rows(make_rows({f"s{i}": [v] for i, v in enumerate(scenes)}))
    often = average_rows(make_rows({f"s{i}": [v] * 10 for i, v in enumerate(scenes)}))
    one, ten = (found["ate"].interval for found in (once, often))
    assert (one.low, one.high) == pytest.approx((ten.low, ten.high))
    plain = bootstrap(torch.from_numpy(scenes))
    assert (one.mean, one.low, one.high) == pytest.approx((plain.mean, plain.low, plain.high))


def test_a_single_scene_has_an_interval_over_its_sets():
    interval = average_rows(make_rows({"a": [1.0, 2.0, 3.0, 4.0]}))["ate"].interval
    assert interval.low < interval.mean == 2.5 < interval.high


@given(st.lists(st.lists(st.floats(-100, 100), min_size=1, max_size=4), min_size=1, max_size=6))
def test_any_division_into_scenes_has_the_flat_mean(scenes):
    rows = make_rows({f"s{i}": values for i, values in enumerate(scenes)})
    interval = average_rows(rows)["ate"].interval
    flat = [value for values in scenes for value in values]
    assert interval.mean == pytest.approx(sum(flat) / len(flat), abs=1e-9)
    assert interval.low - 1e-9 <= interval.high


def test_datasets_count_alike():
    large = average_rows(make_rows({"a": [1.0] * 9, "b": [1.0]}, "one"))
    small = average_rows(make_rows({"c": [3.0]}, "two"))
    overall = average_datasets({"one": large, "two": small})["ate"]
    assert overall.interval.mean == 2.0 and overall.absent == () and overall.sets == 11


def test_a_dataset_without_a_metric_is_named():
    one = average_rows(make_rows({"a": [1.0]}, "one"))
    two = average_rows([make_row("b", "b-0", {"rays_deg": 5.0}, dataset="two")])
    overall = average_datasets({"one": one, "two": two})
    assert overall["ate"].interval.mean == 1.0
    assert overall["ate"].absent == ("two",) and overall["rays_deg"].absent == ("one",)


def test_the_interval_over_datasets_narrows_with_their_number():
    """Errors of k independent datasets of one spread average to 1/√k of one."""
    rng = np.random.default_rng(1)
    parts = [
        average_rows(make_rows({f"s{i}": [v] for i, v in enumerate(rng.normal(size=40))}, f"d{k}"))
        for k in range(4)
    ]
    widths = [part["ate"].interval.high - part["ate"].interval.low for part in parts]
    overall = average_datasets({f"d{k}": part for k, part in enumerate(parts)})["ate"].interval
    wanted = math.sqrt(sum(width**2 for width in widths)) / 4
    assert overall.high - overall.low == pytest.approx(wanted, rel=0.05)


def test_what_cannot_be_averaged_is_refused():
    row = make_rows({"a": [1.0]})[0]
    with pytest.raises(ValueError, match="more than one row: a-0"):
        average_rows([row, row])
    with pytest.raises(ValueError, match="rows of 2 datasets"):
        average_rows([row, make_row("b", "b-0", dataset="other")])
    with pytest.raises(ValueError, match="rows of 0 datasets"):
        average_rows([])
