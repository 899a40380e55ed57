"""Averages by hand: order, divisors, weights, and everything that is not in a mean by name."""

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from g_ray_lab.metrics.intervals import bootstrap
from g_ray_lab.scoring.averaging import average_dataset, average_datasets


@dataclass(frozen=True)
class Row:
    scene: str
    set: str
    metrics: dict[str, float] = field(default_factory=dict)
    status: str = "scored"
    dataset: str = "eth3d"
    given: int = 4
    empty: int = 0


def make_rows(values: dict[str, list[float]], dataset: str = "eth3d") -> list[Row]:
    return [
        Row(scene, f"{scene}-{number}", {"ate": value}, dataset=dataset)
        for scene, scores in values.items()
        for number, value in enumerate(scores)
    ]


def test_the_mean_is_flat_over_sets():
    """A scene with more scored sets counts more, as published."""
    average = average_dataset(make_rows({"a": [1.0, 2.0, 3.0], "b": [10.0]})).metrics["ate"]
    assert average.interval.mean == 4.0
    assert (average.sets, average.scenes) == (4, 2)


def test_video_depth_is_weighted_by_pixels():
    rows = [
        Row("a", "a-0", {"abs_rel": 0.1, "valid_pixels": 300.0}),
        Row("b", "b-0", {"abs_rel": 0.5, "valid_pixels": 100.0}),
    ]
    found = average_dataset(rows, weight="valid_pixels")
    assert found.metrics["abs_rel"].interval.mean == pytest.approx(0.2)
    assert list(found.metrics) == ["abs_rel"]
    with pytest.raises(ValueError, match="set a-0 has no 'pixels'"):
        average_dataset(rows, weight="pixels")


def test_what_is_not_in_the_mean_is_named():
    rows = [
        *make_rows({"a": [1.0, 3.0]}),
        Row("a", "a-2", status="failed"),
        Row("b", "b-0", status="unreadable"),
        Row("c", "c-0", {"ate": math.nan, "rays_deg": 2.0}, given=1),
        Row("c", "c-1", {"rays_deg": 4.0}, empty=3),
    ]
    found = average_dataset(rows, planned_scenes=("a", "b", "c", "d"))
    assert found.metrics["ate"].interval.mean == 2.0 and found.metrics["ate"].sets == 2
    assert found.metrics["ate"].absent == ("c-0", "c-1")
    assert found.metrics["rays_deg"].interval.mean == 3.0
    assert found.failed == ("a-2", "b-0")
    assert found.missing_scenes == ("b", "d"), "one that failed and one that was never there"
    assert found.single_views == ("c-0",) and found.empty_views == 3
    gaps = " ".join(found.list_gaps())
    for named in (
        "2 scenes have no scored set",
        "b, d",
        "2 sets failed",
        "a-2, b-0",
        "no ate: c-0, c-1",
        "3 views",
    ):
        assert named in gaps


def test_a_metric_that_no_set_has_is_left_out():
    found = average_dataset([Row("a", "a-0", {"ate": math.nan, "rays_deg": 1.0})])
    assert list(found.metrics) == ["rays_deg"]
    nothing = average_dataset([Row("a", "a-0", status="failed")])
    assert nothing.metrics == {} and nothing.missing_scenes == ("a",) and nothing.scored == 0


def test_a_missing_scene_changes_the_divisor():
    whole = make_rows({"a": [1.0], "b": [2.0], "c": [6.0]})
    assert average_dataset(whole).metrics["ate"].interval.mean == 3.0
    part = average_dataset(whole[:2], planned_scenes=("a", "b", "c"))
    assert part.metrics["ate"].interval.mean == 1.5 and part.missing_scenes == ("c",)


def test_intervals_are_over_scenes():
    """Ten equal sets per scene tell no more than one."""
    scenes = np.random.default_rng(0).normal(size=12)
    once = average_dataset(make_rows({f"s{i}": [v] for i, v in enumerate(scenes)}))
    often = average_dataset(make_rows({f"s{i}": [v] * 10 for i, v in enumerate(scenes)}))
    one, ten = (found.metrics["ate"].interval for found in (once, often))
    assert (one.low, one.high) == pytest.approx((ten.low, ten.high))
    plain = bootstrap(torch.from_numpy(scenes))
    assert (one.mean, one.low, one.high) == pytest.approx((plain.mean, plain.low, plain.high))


def test_a_single_scene_has_an_interval_over_its_sets():
    interval = average_dataset(make_rows({"a": [1.0, 2.0, 3.0, 4.0]})).metrics["ate"].interval
    assert interval.low < interval.mean == 2.5 < interval.high


@given(st.lists(st.lists(st.floats(-100, 100), min_size=1, max_size=4), min_size=1, max_size=6))
def test_any_division_into_scenes_has_the_flat_mean(scenes):
    rows = make_rows({f"s{i}": values for i, values in enumerate(scenes)})
    interval = average_dataset(rows).metrics["ate"].interval
    flat = [value for values in scenes for value in values]
    assert interval.mean == pytest.approx(sum(flat) / len(flat), abs=1e-9)
    assert interval.low - 1e-9 <= interval.high


def test_datasets_count_alike():
    large = average_dataset(make_rows({"a": [1.0] * 9, "b": [1.0]}, "one"))
    small = average_dataset(make_rows({"c": [3.0]}, "two"))
    overall = average_datasets([large, small], planned_datasets=("one", "two", "three"))
    assert overall.metrics["ate"].mean == 2.0
    assert overall.missing == ("three",) and overall.absent == {}
    assert "three" in " ".join(overall.list_gaps())


def test_a_dataset_without_a_metric_is_named():
    one = average_dataset(make_rows({"a": [1.0]}, "one"))
    two = average_dataset([Row("b", "b-0", {"rays_deg": 5.0}, dataset="two")])
    overall = average_datasets([one, two])
    assert overall.metrics["ate"].mean == 1.0
    assert overall.absent == {"ate": ("two",), "rays_deg": ("one",)}


def test_the_interval_over_datasets_narrows_with_their_number():
    """Errors of k independent datasets of one spread average to 1/√k of one."""
    rng = np.random.default_rng(1)
    parts = [
        average_dataset(make_rows({f"s{i}": [v] for i, v in enumerate(rng.normal(size=40))}, f"d{k}"))
        for k in range(4)
    ]
    widths = [part.metrics["ate"].interval.high - part.metrics["ate"].interval.low for part in parts]
    overall = average_datasets(parts).metrics["ate"]
    wanted = math.sqrt(sum(width**2 for width in widths)) / 4
    assert overall.high - overall.low == pytest.approx(wanted, rel=0.05)


def test_what_cannot_be_averaged_is_refused():
    row = make_rows({"a": [1.0]})[0]
    with pytest.raises(ValueError, match="more than one row: a-0"):
        average_dataset([row, row])
    with pytest.raises(ValueError, match="rows of 2 datasets"):
        average_dataset([row, Row("b", "b-0", dataset="other")])
    with pytest.raises(ValueError, match="rows of 0 datasets"):
        average_dataset([])
    with pytest.raises(ValueError, match="no dataset"):
        average_datasets([])
