"""The comparison of ray coordinates says what the conventions page says."""

from g_ray_lab.bench.bench_encodings import compare_coordinates


def test_all_are_good_in_front_and_tangent_breaks_beyond_180_degrees():
    rows = compare_coordinates((100.0, 220.0), scale=1.0, rays=300)["rows"]
    table = {(row["coordinate"], row["field_of_view_deg"]): row for row in rows}
    for name in ("tangent", "equidistant", "spherical"):
        assert table[name, 100.0]["rank_correlation"] > 0.95
        assert table[name, 100.0]["largest_jump"] < 0.01
    assert table["tangent", 220.0]["rank_correlation"] < table["equidistant", 220.0]["rank_correlation"]
    assert table["tangent", 220.0]["largest_jump"] > 10 * table["equidistant", 220.0]["largest_jump"]
