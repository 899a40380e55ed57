"""Bars of a table whose settings are no axis: every method and reference is there, at its height."""

import pytest
from matplotlib.container import BarContainer

from g_ray.viewer.theme import LIGHT, encode_png
from g_ray_lab.figures import draw_bars

SETTINGS = ("fov", "novel", "mixed")


def row(method, setting, mean):
    return {
        "method": method,
        "setting": setting,
        "metrics": {"psnr": {"mean": mean, "low": mean - 0.2, "high": mean + 0.3}},
    }


def test_bars_and_references_stand_where_they_should():
    methods = {"gta": 18.0, "gta_gray": 20.0}
    result = {
        "rows": [row(m, s, mean + i) for m, mean in methods.items() for i, s in enumerate(SETTINGS)],
        "references": [row("mean_colour", s, 14.0) for s in SETTINGS],
    }
    figure = draw_bars(result, "psnr", LIGHT)
    (axes,) = figure.axes
    groups = [group for group in axes.containers if isinstance(group, BarContainer)]
    heights = [[bar.get_height() for bar in group] for group in groups]
    assert heights == [[18.0, 19.0, 20.0], [20.0, 21.0, 22.0]]
    assert [label.get_text() for label in axes.get_xticklabels()] == list(SETTINGS)
    assert {text.get_text() for text in axes.get_legend().get_texts()} == {*methods, "mean_colour"}
    low, high = axes.get_ylim()
    assert low == pytest.approx(13.8 - 0.08 * 8.5) and high > 22.3
    assert encode_png(figure).startswith(b"\x89PNG")


def test_settings_without_a_metric_are_left_out():
    rows = [row("gta", setting, 18.0 + place) for place, setting in enumerate(SETTINGS)]
    rows[1] = {**rows[1], "metrics": {"ssim": rows[1]["metrics"]["psnr"]}}
    (axes,) = draw_bars({"rows": rows}, "psnr", LIGHT).axes
    (bars,) = (group for group in axes.containers if isinstance(group, BarContainer))
    assert [(round(bar.get_x() + bar.get_width() / 2), bar.get_height()) for bar in bars] == [
        (0, 18.0),
        (1, 20.0),
    ]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["fov", "mixed"]
