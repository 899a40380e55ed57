"""Rows of several networks, and paired differences, by hand."""

import pytest

from g_ray_lab.scoring.averages import PIXELS, SetRow, average_seeds, subtract_rows


def make_row(name, status="scored", placed=4, **metrics):
    return SetRow("p", "d", "scene", name, 4, status, placed=placed, cpu_seconds=2.0, metrics=metrics)


def test_sets_are_averaged_over_networks():
    first = [make_row("a", error=1.0), make_row("b", error=3.0, placed=2)]
    second = [make_row("b", error=5.0), make_row("a", error=2.0)]
    averaged = average_seeds([first, second])
    assert [(row.set, row.metrics) for row in averaged] == [("a", {"error": 1.5}), ("b", {"error": 4.0})]
    assert [row.placed for row in averaged] == [4, 2]


def test_a_set_that_one_network_fails_on_has_no_score():
    averaged = average_seeds([[make_row("a", error=1.0)], [make_row("a", "failed")]])
    assert [row.status for row in averaged] == ["failed"]


def test_a_metric_that_one_network_lacks_is_left_out():
    (row,) = average_seeds([[make_row("a", error=1.0, ate=2.0)], [make_row("a", error=2.0)]])
    assert row.metrics == {"error": 1.5}


def test_differences_are_of_sets_that_both_have():
    rows = [make_row("a", error=1.0, **{PIXELS: 50.0}), make_row("b", error=2.0), make_row("c", "failed")]
    others = [make_row("c", error=9.0), make_row("a", error=0.25, **{PIXELS: 40.0})]
    (difference,) = subtract_rows(rows, others)
    assert difference.set == "a" and difference.metrics == {"error": pytest.approx(0.75), PIXELS: 50.0}
