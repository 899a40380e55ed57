"""Every coordinate of the registry: finite, differentiable, and right where its formula is known."""

import pytest
import torch
from torch.autograd import gradcheck

from g_ray.coordinates import (
    COORDINATES,
    RayCoordinate,
    equidistant,
    get_coordinate,
    project_directions,
    spherical,
    tangent,
)
from g_ray.rays.views import CORNERS, Views

every_coordinate = pytest.mark.parametrize("name", COORDINATES)
ray_coordinates = [name for name, kind in COORDINATES.items() if isinstance(kind, RayCoordinate)]


def unit(*components: float) -> torch.Tensor:
    ray = torch.tensor(components, dtype=torch.float64)
    return ray / ray.norm()


@every_coordinate
@pytest.mark.parametrize("samples", [((0.5, 0.5),), CORNERS])
def test_values_are_finite_and_zero_for_special_tokens(name, samples, mixed_views):
    tokens = mixed_views().tokens(16, special=2, trailing=1)
    where = get_coordinate(name)(tokens, samples)
    assert where.values.shape == (2, len(tokens), len(samples), len(where.axes))
    assert where.values.isfinite().all()
    assert (where.values[:, ~tokens.layout.get_patch_mask()] == 0).all()
    assert not where.valid[:, ~tokens.layout.get_patch_mask()].any()


@every_coordinate
def test_autocast_does_not_reach_coordinates(name, mixed_views):
    tokens = mixed_views(dtype=torch.float32).tokens(16)
    plain = get_coordinate(name)(tokens).values
    with torch.autocast("cpu", torch.bfloat16):
        half = get_coordinate(name)(mixed_views(dtype=torch.float32).tokens(16)).values
    assert plain.dtype == half.dtype == torch.float32
    assert torch.equal(plain, half)


def test_tangent_is_the_pinhole_arctangent():
    """θx = atan2(u − cx, fx) for zero skew (paper, after eq:thetay)."""
    from g_ray.cameras import Pinhole

    camera = Pinhole.make(64, 48, fx=50.0, fy=40.0, cx=30.0, cy=20.0, dtype=torch.float64)
    pixel = torch.tensor([11.0, 33.0], dtype=torch.float64)
    expected = torch.atan2(pixel - torch.tensor([30.0, 20.0]), torch.tensor([50.0, 40.0]).double())
    assert torch.allclose(tangent(camera.unproject(pixel)[0]), expected)


def test_branches_of_atan2():
    behind = tangent(unit(1e-9, 0.0, -1.0))
    assert torch.allclose(behind[0], torch.tensor(torch.pi).double())
    assert torch.allclose(tangent(unit(1.0, 0.0, 0.0))[0], torch.tensor(torch.pi / 2).double())
    # The paper's pair jumps at 90°: θy of a ray slightly below the horizon, just before and just behind.
    before, after = tangent(unit(1.0, 1e-6, 1e-4)), tangent(unit(1.0, 1e-6, -1e-4))
    assert (before - after).abs()[1] > 3.0
    # The others do not.
    for smooth in (equidistant, spherical):
        assert (smooth(unit(1.0, 1e-6, 1e-4)) - smooth(unit(1.0, 1e-6, -1e-4))).abs().max() < 1e-3


def test_equidistant_is_the_polar_angle_along_its_direction():
    ray = unit(0.3, -0.4, 0.2)
    value = equidistant(ray)
    assert torch.allclose(value.norm(), torch.acos(ray[2]))
    assert torch.allclose(value / value.norm(), ray[:2] / ray[:2].norm())


def test_spherical_is_azimuth_and_elevation():
    azimuth, elevation = torch.tensor(2.5).double(), torch.tensor(-0.7).double()
    ray = torch.stack([elevation.cos() * azimuth.sin(), elevation.sin(), elevation.cos() * azimuth.cos()])
    assert torch.allclose(spherical(ray), torch.stack([azimuth, elevation]))


def test_projected_is_the_warped_unit_direction():
    intrinsics = torch.tensor([[0.8, 0.0, 0.1], [0.0, 1.1, -0.05], [0.0, 0.0, 1.0]]).double()
    ray = unit(0.2, 0.1, 1.0)
    warped = intrinsics @ ray
    assert torch.allclose(project_directions(ray, intrinsics), warped[:2] / warped.norm(), atol=1e-5)


@pytest.mark.parametrize("name", ray_coordinates)
def test_gradients_exist_everywhere_that_rays_go(name):
    kind = COORDINATES[name]
    assert isinstance(kind, RayCoordinate)
    rays = torch.nn.functional.normalize(torch.randn(20, 3, dtype=torch.float64), dim=-1).requires_grad_()
    assert gradcheck(kind.compute_for_directions, (rays,))
    special = torch.stack([unit(0, 0, 1), unit(1, 0, 0), unit(0, 1, 0), unit(0, 0, -1)]).requires_grad_()
    (gradient,) = torch.autograd.grad(kind.compute_for_directions(special).sum(), special)
    assert gradient.isfinite().all()


def test_grid_is_column_and_row(mixed_views):
    tokens = mixed_views(lenses=("wide",)).tokens(16)
    values = get_coordinate("grid")(tokens).values[0, :, 0]
    assert values.tolist() == [[0, 0], [1, 0], [2, 0], [0, 1], [1, 1], [2, 1]]
    normalized = get_coordinate("normalized_grid")(tokens).values[0, :, 0]
    assert torch.allclose(normalized, (values + 0.5) / torch.tensor([3.0, 2.0]).double() - 0.5)


def test_unknown_name():
    with pytest.raises(ValueError, match="unknown coordinate 'polar': choose one of tangent"):
        get_coordinate("polar")


def test_coordinates_need_no_pose(mixed_views):
    views = mixed_views(poses=False)
    for name in COORDINATES:
        assert get_coordinate(name)(Views(views.cameras).tokens(16)).values.isfinite().all()
