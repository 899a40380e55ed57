"""Quaternions: the same rotations as SciPy's, real part last and never negative."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from g_ray.geometry.pose import quaternion_from_rotation, rotation_from_quaternion

PART = st.floats(-1, 1, allow_subnormal=False)


@given(st.tuples(PART, PART, PART, PART).filter(lambda q: sum(x * x for x in q) > 1e-3))
def test_agrees_with_scipy_both_ways(parts):
    truth = Rotation.from_quat(parts)
    rotation = rotation_from_quaternion(torch.tensor(parts, dtype=torch.float64))
    assert torch.allclose(rotation, torch.from_numpy(truth.as_matrix()), atol=1e-12)
    back = quaternion_from_rotation(rotation)
    assert back[3] >= 0 and abs(back.norm() - 1) < 1e-12
    assert torch.allclose(rotation_from_quaternion(back), rotation, atol=1e-12)
    assert abs(abs((back * torch.from_numpy(truth.as_quat())).sum()) - 1) < 1e-12


@pytest.mark.parametrize(
    ("axis", "quaternion"),
    [((1.0, -1, -1), (1.0, 0, 0, 0)), ((-1.0, 1, -1), (0.0, 1, 0, 0)), ((-1.0, -1, 1), (0.0, 0, 1, 0))],
)
def test_half_turns(axis, quaternion):
    """Where the textbook formula divides by w = 0."""
    found = quaternion_from_rotation(torch.diag(torch.tensor(axis, dtype=torch.float64)))
    assert torch.equal(found, torch.tensor(quaternion, dtype=torch.float64))


def test_batches_and_gradients():
    quaternion = torch.randn(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rotation = rotation_from_quaternion(quaternion)
    assert rotation.shape == (2, 3, 3, 3)
    assert torch.allclose(rotation @ rotation.mT, torch.eye(3, dtype=torch.float64), atol=1e-12)
    quaternion.requires_grad_()
    assert torch.autograd.gradcheck(rotation_from_quaternion, quaternion)
    assert torch.autograd.gradcheck(quaternion_from_rotation, rotation.detach().requires_grad_())
