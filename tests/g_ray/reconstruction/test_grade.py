"""Every limit makes a result partial and then poor, and is named when it is the worst."""

import pytest

from g_ray.reconstruction.grade import LIMITS, NO_CHECK, NO_LIMIT, grade_result

GOOD = {
    "views": 20,
    "placed": 20,
    "relative_error": 3e-4,
    "share_with_depth": 0.5,
    "expected_error": 0.01,
    "long_side_px": 1000.0,
    "pose_excess_px": 0.1,
    "lens": {"contradicts": False, "change": 0.5},
}
WORSE = {
    "placed": ({"placed": 15}, {"placed": 3}),
    "error": ({"relative_error": 2e-3}, {"relative_error": 1e-2}),
    "coverage": ({"share_with_depth": 0.1}, {"share_with_depth": 0.01}),
    "parallax": ({"expected_error": 0.06}, {"expected_error": 0.3}),
    "lens": ({"lens": {"contradicts": True, "change": 0.05}}, {"lens": {"contradicts": True, "change": 0.4}}),
    "unknown focal length": (
        {"lens": {"undecided": True, "spread": 1.2}},
        {"lens": {"undecided": True, "spread": 20.0}},
    ),
    "poses": ({"pose_excess_px": 2.0}, {"pose_excess_px": 30.0}),
}


def test_a_good_result_has_no_limit():
    assert grade_result(GOOD, True) == ("good", NO_LIMIT)
    assert grade_result(GOOD, False) == ("unverified", NO_CHECK)


@pytest.mark.parametrize(("name", "limit"), list(zip(WORSE, LIMITS, strict=True)), ids=list(WORSE))
def test_each_limit_is_named(name, limit):
    for grade, change in zip(("partial", "poor"), WORSE[name], strict=True):
        figures = GOOD | change
        assert grade_result(figures, True) == (grade, limit.describe(figures))


def test_the_worst_limit_is_named():
    figures = GOOD | {"placed": 3, "share_with_depth": 0.1}
    assert grade_result(figures, True) == ("poor", "Matching places 3 of 20 photographs.")


def test_no_triangulated_feature_is_poor():
    assert grade_result(GOOD | {"relative_error": float("inf")}, True)[0] == "poor"
    assert grade_result(GOOD | {"expected_error": float("nan")}, True)[0] != "good"
