"""The network that comes with the package has learned what its card says, also for lenses it has never seen."""

import pytest

from g_ray.models.weights import read_card
from g_ray.predictors.model_settings import ROOMS_WEIGHTS
from g_ray.reconstruction.reconstruct import load_network
from g_ray_lab.recipes import get_recipe
from g_ray_lab.recipes.stored_recipe import parse_recipe
from g_ray_lab.scoring.reconstruction_scorer import LENSES, RoomsScorer
from g_ray_lab.sources.reconstruction_settings import RoomsViews
from g_ray_lab.sources.rooms_reconstruction import RoomsReconstruction

ROOMS = 16
REPEATS = 1e-4
"""Relative change of a mean over these rooms on another machine; one and two threads of one machine differ by 2e-8."""
CHANCE = 1.5
"""Lengths of the card's interval (of 128 rooms, ± 2 deviations) that the mean of 16 of them may lie beyond its ends."""
SMALL_IS_GOOD = {"points_rel", "depth_rel", "pose_ate"}


@pytest.fixture(scope="module")
def scorer() -> RoomsScorer:
    """The card's protocol, over fewer rooms."""
    recipe = parse_recipe(read_card(ROOMS_WEIGHTS)["recipe"])
    side = recipe.data.width
    rooms = RoomsReconstruction(RoomsViews(side, side), patch=recipe.model.build_config().patch)
    return RoomsScorer.from_training(rooms, ROOMS)


@pytest.fixture(scope="module")
def standing(scorer):
    (run,) = scorer.score_references()
    return {
        setting: {metric: [row.metrics[metric] for row in rows] for metric in rows[0].metrics}
        for setting, rows in run.rows.items()
    }


@pytest.fixture(scope="module")
def network():
    return load_network(ROOMS_WEIGHTS, "cpu")


def test_it_comes_from_a_recipe_that_sees_pinholes_alone():
    known = read_card(ROOMS_WEIGHTS)
    recipe = parse_recipe(known["recipe"])
    assert recipe == get_recipe(known["recipe"]["name"])
    assert isinstance(recipe.data, RoomsViews)  # which has no other lens
    assert known["recipe"]["name"] in known["command"] and known["step"] == recipe.schedule.steps


@pytest.mark.parametrize("setting", LENSES)
def test_it_scores_as_its_card_says_and_better_than_calibration_alone(setting, scorer, standing, network):
    found = scorer.score_network(network, setting)
    told = read_card(ROOMS_WEIGHTS)["scores"]
    assert told["first"]["sets"] == ROOMS
    for metric in told[setting]:
        mean = sum(found[metric]) / ROOMS
        assert mean == pytest.approx(told["first"][setting][metric], rel=REPEATS), metric
        # All 128 rooms of the card differ from these by chance alone.
        low, high = (told[setting][metric][end] for end in ("low", "high"))
        reach = CHANCE * (high - low)
        assert low - reach < mean < high + reach, metric
        none = sum(standing[setting][metric]) / ROOMS
        if metric != "rays_deg":  # which calibration knows
            assert (mean < none) == (metric in SMALL_IS_GOOD), metric
