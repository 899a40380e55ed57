"""Names of earlier versions: settings, methods and options."""

import pytest

from g_ray.models import ReconstructionConfig
from g_ray.models.reconstruction_config import RECONSTRUCTION_SIZES
from g_ray.runtime.renamed import drop_added_settings, rename_option, rename_settings


def test_settings_are_renamed_at_every_level():
    old = {
        "optimiser": {"clip": 1},
        "data": {"colour": True, "kinds": [{"off_centre": 0.1}]},
        "colours": "colour",
    }
    new = {
        "optimizer": {"clip": 1},
        "data": {"color": True, "kinds": [{"off_center": 0.1}]},
        "colours": "colour",
    }
    assert rename_settings(old) == new == rename_settings(new)


def test_methods_are_renamed_where_they_are_methods():
    old = {"model": {"method": "rope_normalised"}, "note": "rope_normalised"}
    assert rename_settings(old) == {"model": {"method": "rope_normalized"}, "note": "rope_normalised"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--optimiser.betas", "--optimizer.betas"),
        ("--data.off-centre", "--data.off-center"),
        ("--data.off_centre=0.1", "--data.off-center=0.1"),
        ("--data.no-colour", "--data.no-color"),
        ("--out=colour", "--out=colour"),
        ("colour", "colour"),
        ("--data.colours", "--data.colours"),
        ("--no-tensorboard", "--no-tensorboard"),
    ],
)
def test_options_are_renamed(old, new):
    assert rename_option(old) == new == rename_option(new)


def test_configs_of_earlier_weights_keep_their_method():
    config = RECONSTRUCTION_SIZES["tiny"]("rope_normalised")
    assert isinstance(config, ReconstructionConfig)
    assert config == RECONSTRUCTION_SIZES["tiny"]("rope_normalized")


def test_settings_that_came_later_matter_only_where_they_change_something():
    old = {"model": {"size": "tiny"}, "data": {"width": 24}}
    now = {"model": {"size": "tiny", "freeze_encoder": False, "trained_blocks": 0}, "data": {"width": 24}}
    assert drop_added_settings(now) == old == drop_added_settings(old)
    frozen = {"model": {"size": "tiny", "freeze_encoder": True}, "data": {"width": 24}}
    assert drop_added_settings(frozen) == frozen
