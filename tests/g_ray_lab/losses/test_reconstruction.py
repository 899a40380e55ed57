"""Reconstruction losses: values by hand, gradients, invariances, masks with nothing in them, half precision."""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from g_ray.geometry.pose import Pose, quaternion_from_rotation
from g_ray_lab.losses import ReconstructionWeights
from g_ray_lab.losses.view_losses import (
    camera_loss,
    compute_corner_normals,
    confidence_weighted_loss,
    find_valid_corners,
    mean_below_quantile,
    multi_scale_normal_loss,
    normal_loss,
    normalize_truth,
    pointmap_loss,
    reconstruction_loss,
)

SETTINGS = {"gamma": 1.0, "alpha": 0.2, "quantile": 0.98, "scales": 3}


@dataclass(frozen=True)
class Scene:
    """Truth and, with confidences, prediction."""

    world_points: Tensor
    camera_points: Tensor
    poses: Pose
    valid: Tensor


@dataclass(frozen=True)
class Guess:
    world_points: Tensor
    world_confidence: Tensor
    camera_points: Tensor
    camera_confidence: Tensor
    translation: Tensor
    quaternion: Tensor


def scene(sets=2, views=3, size=(12, 14), seed=0, dtype=torch.float64) -> Scene:
    generator = torch.Generator().manual_seed(seed)
    camera = torch.randn(sets, views, *size, 3, generator=generator, dtype=dtype) + torch.tensor([0, 0, 5.0])
    eyes = torch.randn(sets, views, 3, generator=generator, dtype=dtype)
    poses = Pose.look_at(eyes, eyes + torch.tensor([0.3, 0.1, 2.0], dtype=dtype))
    return Scene(
        poses.apply(camera.to(dtype)), camera.to(dtype), poses, torch.ones(sets, views, *size).bool()
    )


def perfect(truth: Scene) -> Guess:
    known = normalize_truth(truth)
    sure = torch.ones_like(known.world_points[..., 0])
    quaternion = quaternion_from_rotation(known.poses.rotation)
    return Guess(known.world_points, sure, known.camera_points, sure, known.poses.translation, quaternion)


# Truth


def test_truth_is_in_the_first_view_at_mean_distance_one():
    truth = scene()
    known = normalize_truth(truth)
    distance = known.world_points.norm(dim=-1).mean((1, 2, 3))
    assert torch.allclose(distance, torch.ones(2).double(), atol=1e-4)
    assert torch.allclose(known.poses.world_from_cam[:, 0], torch.eye(4).double().expand(2, 4, 4), atol=1e-12)
    assert torch.allclose(known.poses.apply(known.camera_points), known.world_points, atol=1e-9)
    assert torch.allclose(known.camera_points * known.scale[:, None, None, None, None], truth.camera_points)


@given(st.integers(0, 1000), st.floats(0.05, 20))
def test_frame_and_unit_of_the_truth_do_not_matter(seed, unit):
    truth = scene()
    motion = scene(1, 1, (1, 1), seed).poses[0, 0]
    world = unit * motion.apply(truth.world_points.flatten(0, -2)).reshape(truth.world_points.shape)
    other = Scene(world, unit * truth.camera_points, (motion @ truth.poses), truth.valid)
    matrices = other.poses.world_from_cam.clone()
    matrices[..., :3, 3] *= unit
    known, again = normalize_truth(truth), normalize_truth(replace(other, poses=Pose(matrices)))
    assert torch.allclose(known.world_points, again.world_points, atol=1e-8)
    assert torch.allclose(known.camera_points, again.camera_points, atol=1e-8)
    assert torch.allclose(known.poses.world_from_cam, again.poses.world_from_cam, atol=1e-8)


def test_the_scale_counts_valid_pixels_only_and_truth_is_finite():
    truth = scene(1)
    truth.valid[0, 0, 0, 0] = False
    dirty = replace(truth, world_points=truth.world_points.clone(), camera_points=truth.camera_points.clone())
    dirty.world_points[0, 0, 0, 0], dirty.camera_points[0, 0, 0, 0] = torch.nan, torch.inf
    known, clean = normalize_truth(dirty), normalize_truth(truth)
    assert torch.equal(known.scale, clean.scale)
    assert known.world_points.isfinite().all() and known.camera_points.isfinite().all()


def test_points_a_hundred_mean_distances_away_are_cut():
    truth = scene(1, 1, (40, 40))
    truth.world_points[0, 0, 0, 0] = truth.camera_points[0, 0, 0, 0] = torch.tensor([0.0, 0, 1e6])
    assert normalize_truth(truth).world_points.abs().max() == 100


def test_nothing_valid_leaves_a_finite_scale():
    truth = replace(scene(), valid=torch.zeros(2, 3, 12, 14).bool())
    known = normalize_truth(truth)
    assert (known.scale == 1e-6).all() and known.world_points.isfinite().all()


# Camera


def test_camera_loss_by_hand():
    truth = Pose.identity(2, 1, dtype=torch.float64)
    translation = torch.tensor([[[1.0, -2, 0]], [[0, 0, 300]]], dtype=torch.float64)
    quaternion = torch.tensor([[[0.0, 0, 0, 1]], [[0.4, 0, 0, 0.8]]], dtype=torch.float64)
    both = camera_loss(translation, quaternion, truth, torch.tensor([True, True]))
    assert both.translation.item() == pytest.approx((3 + 100) / 6)
    assert both.rotation.item() == pytest.approx((0.4 + 0.2) / 8)
    assert both.total == both.translation + both.rotation
    first = camera_loss(translation, quaternion, truth, torch.tensor([True, False]))
    assert (first.translation.item(), first.rotation.item()) == (1.0, 0.0)


def test_no_usable_set_is_zero_with_a_gradient():
    translation = torch.ones(2, 3, 3, requires_grad=True)
    terms = camera_loss(translation, torch.ones(2, 3, 4), Pose.identity(2, 3), torch.zeros(2).bool())
    assert terms.total.item() == 0
    terms.total.backward()
    assert torch.equal(translation.grad, torch.zeros_like(translation))


def test_camera_gradients():
    truth = scene(1).poses
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn(1, 3, n, dtype=torch.float64, generator=generator).requires_grad_() for n in (3, 4)]
    assert torch.autograd.gradcheck(lambda t, q: camera_loss(t, q, truth, torch.ones(1).bool()).total, inputs)


# Outliers


def test_few_values_are_clamped_but_not_filtered():
    values = torch.cat([torch.zeros(999), torch.tensor([1e6])])
    assert mean_below_quantile(values, 0.98).item() == pytest.approx(0.1)
    assert mean_below_quantile(torch.tensor([1.0, 3.0]), 0.98).item() == 2.0


@pytest.mark.parametrize("count", [500, 1000, 1001, 3000])
def test_a_far_value_weighs_alike_in_small_and_large_batches(count):
    values = torch.ones(count)
    values[: count // 100] = 1e6
    assert mean_below_quantile(values, 0.98).item() <= 2


def test_the_worst_two_per_cent_are_left_out():
    values = torch.arange(2001, dtype=torch.float64) / 1000
    kept = mean_below_quantile(values[torch.randperm(2001)], 0.98).item()
    assert kept == pytest.approx(sum(range(1960)) / 1960 / 1000)  # rank 1960 is the threshold itself


def test_a_filter_that_would_leave_too_few_is_not_applied():
    values = torch.full((1500,), 2.0)  # none below its own quantile
    assert mean_below_quantile(values, 0.98).item() == 2.0
    assert mean_below_quantile(500 * values, 0.98).item() == 100.0


def test_what_is_left_out_has_no_gradient():
    values = torch.linspace(0, 1, 2000, dtype=torch.float64, requires_grad=True)
    mean_below_quantile(values, 0.98).backward()
    assert (values.grad > 0).sum() == 1959 and values.grad[1959:].abs().max() == 0
    assert mean_below_quantile(torch.zeros(0), 0.98).item() == 0


# Normals


def plane(slope_x: float, slope_y: float, size=(8, 9), dtype=torch.float64) -> Tensor:
    y, x = torch.meshgrid(*(torch.arange(n, dtype=dtype) for n in size), indexing="ij")
    return torch.stack([x, y, slope_x * x + slope_y * y + 5], -1)[None]


def test_normals_of_a_plane():
    normals = torch.stack(compute_corner_normals(plane(0.5, -0.25)), -1)
    assert normals.shape == (2, 2, 1, 7, 8, 3)
    wanted = torch.tensor([0.5, -0.25, -1.0]).double()  # towards the camera
    assert torch.allclose(normals, wanted.expand_as(normals))


def test_normals_are_those_of_each_pixels_four_neighbours():
    """As the definition says it: cross products of adjacent neighbours around every pixel."""
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(1, 4, 5, 3, generator=generator, dtype=torch.float64)
    valid = torch.rand(1, 4, 5, generator=generator) < 0.8
    found = torch.stack(compute_corner_normals(points), -1)[find_valid_corners(valid)]
    around = [(-1, 0), (0, -1), (1, 0), (0, 1)]  # up, left, down, right
    wanted = []
    for row in range(4):
        for column in range(5):
            for (r1, c1), (r2, c2) in zip(around, around[1:] + around[:1], strict=True):
                places = [(row, column), (row + r1, column + c1), (row + r2, column + c2)]
                if all(0 <= r < 4 and 0 <= c < 5 and valid[0, r, c] for r, c in places):
                    centre, first, second = (points[0, r, c] for r, c in places)
                    wanted.append(torch.linalg.cross(first - centre, second - centre))
    wanted = torch.stack(wanted)
    assert len(found) == len(wanted)
    gaps = (found[:, None] - wanted).norm(dim=-1)
    assert gaps.amin(0).max() < 1e-12 and gaps.amin(1).max() < 1e-12


def test_the_angle_between_two_planes():
    flat, tilted = plane(0, 0, (16, 20)), plane(1, 0, (16, 20))  # 45°
    everywhere = torch.ones(1, 16, 20).bool()
    assert normal_loss(flat, tilted, everywhere).item() == pytest.approx(1 - math.cos(math.pi / 4))
    assert normal_loss(flat, flat * torch.tensor([1.0, -1, 1]), everywhere).item() == pytest.approx(2.0)
    assert multi_scale_normal_loss(flat, tilted, everywhere, scales=3).item() == pytest.approx(
        1 - math.cos(math.pi / 4)
    )


def test_scales_are_averaged():
    generator = torch.Generator().manual_seed(0)
    truth, predicted = torch.randn(2, 1, 16, 20, 3, generator=generator, dtype=torch.float64)
    valid = torch.rand(1, 16, 20, generator=generator) < 0.9
    each = [normal_loss(truth[:, ::s, ::s], predicted[:, ::s, ::s], valid[:, ::s, ::s]) for s in (1, 2, 4)]
    assert multi_scale_normal_loss(truth, predicted, valid, scales=3).item() == pytest.approx(
        torch.stack(each).mean().item()
    )


@given(st.floats(0.01, 100), st.floats(-5, 5))
def test_normals_do_not_see_scale_and_shift(scale, shift):
    truth, predicted = plane(0.1, 0.2), plane(-0.3, 0.4)
    everywhere = torch.ones(1, 8, 9).bool()
    base = normal_loss(truth, predicted, everywhere).item()
    assert normal_loss(truth, scale * predicted + shift, everywhere).item() == pytest.approx(base, abs=1e-6)


def test_too_few_normals_and_images_of_one_pixel():
    flat, tilted = plane(0, 0), plane(1, 0)
    few = torch.zeros(1, 8, 9).bool()
    few[0, :2, :3] = True  # two blocks: eight normals
    assert normal_loss(flat, tilted, few).item() == 0
    assert normal_loss(flat[:, :1, :1], tilted[:, :1, :1], few[:, :1, :1]).item() == 0


def test_gradients_of_normals():
    generator = torch.Generator().manual_seed(0)
    truth = torch.randn(1, 5, 6, 3, generator=generator, dtype=torch.float64)
    predicted = torch.randn(1, 5, 6, 3, generator=generator, dtype=torch.float64).requires_grad_()
    valid = torch.rand(1, 5, 6, generator=generator) < 0.9
    assert torch.autograd.gradcheck(lambda p: normal_loss(truth, p, valid), predicted)
    flat = torch.zeros(1, 5, 6, 3, requires_grad=True)  # a network that says nothing yet
    normal_loss(truth.float(), flat, valid).backward()
    assert flat.grad.isfinite().all()


# Points


def test_confidence_by_hand_and_where_it_is_smallest():
    error, confidence = torch.tensor([2.0, 0.5]), torch.tensor([1.0, math.e])
    value = confidence_weighted_loss(error, confidence, gamma=1.0, alpha=0.2)
    assert torch.allclose(value, torch.tensor([2.0, 0.5 * math.e - 0.2]))
    sure = torch.linspace(0.01, 3, 3000, dtype=torch.float64)
    best = sure[confidence_weighted_loss(torch.full_like(sure, 0.25), sure, gamma=1.0, alpha=0.2).argmin()]
    assert best.item() == pytest.approx(0.8, abs=2e-3)


def test_pointmap_loss_by_hand():
    truth = plane(0, 0, (10, 12))[None]
    predicted = truth + torch.tensor([0.0, 3.0, 4.0])
    confidence = torch.full((1, 1, 10, 12), 2.0).double()
    terms = pointmap_loss(truth, predicted, confidence, torch.ones(1, 1, 10, 12).bool(), **SETTINGS)
    assert terms.regression.item() == pytest.approx(5.0)
    assert terms.confidence.item() == pytest.approx(10 - 0.2 * math.log(2))
    assert terms.normals.item() == pytest.approx(0.0, abs=1e-12)
    assert terms.total.item() == pytest.approx(15 - 0.2 * math.log(2))


def test_outliers_of_the_whole_batch_are_left_out():
    truth = plane(0, 0, (40, 50))[None]
    predicted = truth.clone()
    predicted[..., 2] += 1e-3 * torch.rand(40, 50, dtype=torch.float64)
    predicted[0, 0, :2, :10] += 50  # 1 % of all pixels
    terms = pointmap_loss(
        truth, predicted, torch.ones(1, 1, 40, 50).double(), torch.ones(1, 1, 40, 50).bool(), **SETTINGS
    )
    assert terms.regression < 1e-3 and terms.confidence < 1e-3 and terms.normals > 0


def test_what_is_not_valid_does_not_count():
    truth = scene(1)
    guess = perfect(truth)
    valid = torch.rand(1, 3, 12, 14, generator=torch.Generator().manual_seed(0)) < 0.7
    disturbed = torch.where(valid[..., None], guess.world_points, 1e3).requires_grad_()
    terms = pointmap_loss(guess.world_points, disturbed, guess.world_confidence, valid, **SETTINGS)
    assert terms.total.item() == pytest.approx(0, abs=1e-9)
    terms.total.backward()
    assert disturbed.grad[~valid].abs().max() == 0


@pytest.mark.parametrize("count", [0, 99])
def test_too_few_valid_pixels_are_zero_with_a_gradient(count):
    truth = torch.rand(1, 1, 20, 20, 3)
    predicted = torch.rand(1, 1, 20, 20, 3, requires_grad=True)
    confidence = torch.ones(1, 1, 20, 20, requires_grad=True)
    valid = torch.zeros(1, 1, 400).bool()
    valid[..., :count] = True
    terms = pointmap_loss(truth, predicted, confidence, valid.view(1, 1, 20, 20), **SETTINGS)
    assert terms.total.item() == 0
    terms.total.backward()
    assert predicted.grad.abs().max() == 0 and confidence.grad.abs().max() == 0


def test_gradients_of_points_and_confidence():
    generator = torch.Generator().manual_seed(0)
    truth, predicted = torch.randn(2, 1, 1, 10, 12, 3, generator=generator, dtype=torch.float64)
    confidence = torch.rand(1, 1, 10, 12, generator=generator, dtype=torch.float64) + 1
    valid = torch.ones(1, 1, 10, 12).bool()
    assert torch.autograd.gradcheck(
        lambda p, c: pointmap_loss(truth, p, c, valid, **SETTINGS).total,
        (predicted.requires_grad_(), confidence.requires_grad_()),
    )


# The whole


def test_a_perfect_prediction_costs_nothing():
    truth = scene()
    loss = reconstruction_loss(perfect(truth), truth)
    assert loss.total.item() == pytest.approx(0, abs=1e-9)


def test_terms_have_names_and_weights():
    truth = scene()
    guess = perfect(truth)
    wrong = replace(guess, translation=guess.translation + 0.3, camera_points=guess.camera_points * 1.1)
    loss = reconstruction_loss(wrong, truth)
    named = loss.named_terms()
    points = [
        f"{where}_{term}" for where in ("camera", "world") for term in ("confidence", "regression", "normals")
    ]
    assert list(named) == ["translation", "rotation", *points, "total"]
    assert named["translation"].item() == pytest.approx(0.3) and named["world_regression"].item() < 1e-9
    summed = 5 * (named["translation"] + named["rotation"]) + sum(named[name] for name in points)
    assert loss.total.item() == pytest.approx(summed.item())
    other = reconstruction_loss(wrong, truth, ReconstructionWeights(camera=0.0))
    points_alone = loss.camera_points.total + loss.world_points.total
    assert other.total.item() == pytest.approx(points_alone.item())


def test_sets_with_little_to_see_in_the_first_view_teach_no_poses():
    truth = scene()
    truth.valid[1, 0] = False
    guess = perfect(truth)
    shift = torch.tensor([0.0, 1.0]).double()[:, None, None]
    loss = reconstruction_loss(replace(guess, translation=guess.translation + shift), truth)
    assert loss.camera.translation.item() == pytest.approx(0, abs=1e-9)


def test_nothing_valid_at_all_gives_zero_and_finite_gradients():
    truth = replace(scene(dtype=torch.float32), valid=torch.zeros(2, 3, 12, 14).bool())
    leaves = {name: value.clone().requires_grad_() for name, value in vars(perfect(truth)).items()}
    loss = reconstruction_loss(Guess(**leaves), truth)
    loss.total.backward()
    assert loss.total.item() == 0 and all(leaf.grad.isfinite().all() for leaf in leaves.values())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_lifted_to_float32(dtype):
    truth = scene(dtype=torch.float32)
    generator = torch.Generator().manual_seed(1)
    guess = {
        name: (value + 0.1 * torch.rand(value.shape, generator=generator)).to(dtype)
        for name, value in vars(perfect(truth)).items()
    }
    wanted = reconstruction_loss(Guess(**{name: value.float() for name, value in guess.items()}), truth)
    leaves = {name: value.requires_grad_() for name, value in guess.items()}
    with torch.autocast("cpu", dtype):
        loss = reconstruction_loss(Guess(**leaves), truth)
    assert loss.total.dtype == torch.float32
    assert torch.equal(loss.total, wanted.total)
    loss.total.backward()
    assert all(leaf.grad.isfinite().all() for leaf in leaves.values())


def test_a_prediction_that_is_not_a_number_is_not_hidden():
    truth = scene()
    guess = perfect(truth)
    guess.world_points[0, 0, 3, 3] = torch.nan
    assert not reconstruction_loss(guess, truth).total.isfinite()
