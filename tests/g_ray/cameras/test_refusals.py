"""Bad input: one line that says what was wrong, where, and what to do."""

import math
import subprocess
import sys

import pytest
import torch

from g_ray.cameras import (
    CAMERAS,
    EUCM,
    UCM,
    DoubleSphere,
    Fisheye624,
    OpenCV,
    OpenCVFisheye,
    Pinhole,
    ThinPrismFisheye,
)

FRAME = {"fx": 300.0, "fy": 300.0, "cx": 320.0, "cy": 240.0}
PARAMETRIC = [name for name in CAMERAS if name != "ray_map"]


def refusal(make) -> str:
    with pytest.raises(ValueError) as caught:
        make()
    message = str(caught.value)
    assert "\n" not in message and (";" in message or "between" in message)
    return message


@pytest.mark.parametrize("value", [0.0, -5.0, math.nan, math.inf])
@pytest.mark.parametrize("name", PARAMETRIC)
def test_focal(name, value):
    message = refusal(lambda: CAMERAS[name].make(640, 480, **{**FRAME, "fy": value}))
    assert name in message and "fy" in message


@pytest.mark.parametrize("name", PARAMETRIC)
def test_names_sizes_and_counts(name):
    model = CAMERAS[name]
    assert "k9" in refusal(lambda: model.make(640, 480, **FRAME, k9=1.0))
    assert "cx" in refusal(lambda: model.make(640, 480, fx=1.0, fy=1.0, cy=1.0))
    assert "0x480" in refusal(lambda: model.make(0, 480, **FRAME))
    assert str(len(model.PARAMETERS)) in refusal(lambda: model(torch.ones(3), 640, 480))


def test_which_batch_element():
    params = Pinhole.from_fov(60.0, 64, 48).params.repeat(2, 3, 1)
    params[1, 2, 0] = -1
    assert "(1, 2)" in refusal(lambda: Pinhole(params, 64, 48))


@pytest.mark.parametrize("model", [OpenCVFisheye, ThinPrismFisheye, Fisheye624])
def test_a_fisheye_that_folds_inside_the_image(model):
    message = refusal(lambda: model.make(640, 480, **FRAME, k1=-0.3))
    assert "60.4°" in message and "88%" in message
    model.make(
        400, 300, **{**FRAME, "cx": 200.0, "cy": 150.0}, k1=-0.3
    )  # the fold lies outside this smaller image
    model.make(640, 480, **{**FRAME, "fx": 100.0, "fy": 100.0}, k1=-0.1)  # a circular image, fold past 90°
    model(model.pack(**FRAME, k1=-0.3), 640, 480, check=False)


def test_a_radial_distortion_that_folds_inside_the_image():
    assert "folds back" in refusal(lambda: OpenCV.make(640, 480, **FRAME, k1=-0.9))
    OpenCV.make(640, 480, **FRAME, k1=-0.2)


def test_shapes_of_the_unified_models():
    assert "alpha" in refusal(lambda: UCM.make(640, 480, **FRAME, alpha=1.2))
    assert "beta" in refusal(lambda: EUCM.make(640, 480, **FRAME, alpha=0.5, beta=0.0))
    assert "xi" in refusal(lambda: DoubleSphere.make(640, 480, **FRAME, xi=-1.0, alpha=0.5))
    assert float(EUCM.make(640, 480, **FRAME).parameter("beta")) == 1


def test_image_operations():
    camera = Pinhole.from_fov(60.0, 64, 48)
    assert "leaves the 64x48 image" in refusal(lambda: camera.crop(10, 0, 60, 48))
    assert "use crop" in refusal(lambda: camera.pad(-1, 0, 0, 0))
    assert "0x10" in refusal(lambda: camera.resize(0, 10))
    assert "180" in refusal(lambda: Pinhole.from_fov(180.0, 64, 48))
    assert "one model and one size" in refusal(lambda: Pinhole.stack([camera, camera.resize(32, 24)]))
    assert "batch shape" in refusal(lambda: Pinhole.stack([camera, camera]).project(torch.ones(3, 3)))


def test_wrong_types_and_shapes_where_shapes_are_not_checked_by_the_test_run():
    """The test run's own shape checks come first, so these are asked of a fresh interpreter."""
    script = """
from dataclasses import replace
import torch
from g_ray.cameras import Pinhole, RayMapCamera
from g_ray.geometry.pose import Pose
from g_ray.rays.ray_map import RayMap
camera = Pinhole.from_fov(60, 64, 48)
for make in (
    lambda: camera.project(torch.ones(5, 2)),
    lambda: camera.unproject(torch.ones(5, 3)),
    lambda: Pinhole(torch.ones(5).long(), 64, 48),
    lambda: Pinhole(torch.ones(5), 64.0, 48),
    lambda: RayMapCamera.from_rays(torch.ones(4, 4)),
    lambda: replace(RayMapCamera.from_rays(torch.ones(4, 4, 3)), table_valid=torch.ones(3, 3) > 0),
    lambda: Pose(torch.zeros(3, 4)),
    lambda: RayMap(torch.zeros(4, 3), torch.ones(5, dtype=torch.bool)),
):
    try:
        make()
        print("accepted")
    except ValueError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 8 and "accepted" not in lines
