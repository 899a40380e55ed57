"""Training of learned stereo: the loss prefers the truth, and a run is resumed to the same bits."""

from dataclasses import replace

import pytest
import torch

from g_ray.models.weights import read_weights
from g_ray_lab.recipes.stereo_recipes import rooms
from g_ray_lab.sources.stereo_settings import StereoData
from g_ray_lab.textured.stereo_rooms import TEXTURE_PX, TEXTURES
from g_ray_lab.training.engine import train
from g_ray_lab.training.recipe import Run, Schedule
from g_ray_lab.training.stereo_task import _run, compute_stereo_loss, measure_errors

SMALL = StereoData(sides=(32,), batch=1, views=3, sources=(2, 2), distinct=2)


@pytest.fixture(autouse=True)
def _plain_textures(monkeypatch):
    """Noise instead of drawn materials, which take seconds."""
    texels = torch.rand(TEXTURES * TEXTURE_PX**2, 3, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr("g_ray_lab.textured.stereo_views.draw_textures", lambda pool, pictures: texels)
    monkeypatch.setattr("g_ray_lab.textured.stereo_views.HELD_OUT_SETS", 1)


def build_task():
    torch.manual_seed(0)
    task = replace(rooms(), data=SMALL).build_task()
    return task, task.build_model()


def test_the_truth_costs_least():
    task, model = build_task()
    sets = task.make_batch(0, 0, 1).sets
    with torch.no_grad():
        estimate = _run(model, sets)
    truth = torch.stack([set_.compute_places() for set_ in sets])
    exact = replace(
        estimate,
        full=truth,
        fine=truth[:, ::2, ::2],
        start=truth[:, ::2, ::2],
        coarse=truth[:, 1::4, 1::4],
    )
    found, best = (compute_stereo_loss(each, sets) for each in (estimate, exact))
    for name in ("full", "fine", "start", "coarse"):
        assert float(best[name]) == 0 < float(found[name])
    assert float(measure_errors(truth[0], sets[0]).quantile(0.97)) < 1e-3


def test_sky_is_never_right():
    """With true distances everywhere the confidence is to rise, but to fall where the sky is."""
    task, model = build_task()
    set_ = task.make_batch(0, 0, 1).sets[0]
    sky = torch.zeros_like(set_.valid)
    sky[:16] = True
    set_ = replace(set_, ray_depth=torch.where(sky, torch.inf, set_.ray_depth), valid=set_.valid & ~sky)
    with torch.no_grad():
        estimate = _run(model, [set_])
    logits = torch.zeros_like(estimate.confidence_logits, requires_grad=True)
    exact = replace(estimate, full=set_.compute_places()[None], confidence_logits=logits)
    compute_stereo_loss(exact, [set_])["confidence"].backward()
    assert logits.grad is not None and bool((logits.grad[0, :8] > 0).all())
    known = set_.valid[16:].unflatten(0, (8, 2)).unflatten(2, (16, 2)).all(3).all(1)
    assert bool(known.any()) and float((logits.grad[0, 8:][known] < 0).float().mean()) > 0.95


def test_loss_falls():
    task, model = build_task()
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    batch, losses = task.make_batch(0, 0, 1), []
    for _ in range(5):
        loss, logged = task.compute_loss(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.95 * losses[0] and 0 <= float(logged["within"]) <= 1


def test_resumed_to_the_same_bits(tmp_path):
    recipe = replace(rooms(), data=SMALL, schedule=Schedule(lr=1e-3, steps=2))
    run = Run(save_every=1, sample_every=None, tensorboard=False)
    whole = train("stereo-rooms", recipe, replace(run, out=tmp_path / "whole"))
    with pytest.raises(KeyboardInterrupt):
        _train_until_first_checkpoint(recipe, replace(run, out=tmp_path / "parts"))
    parts = train("stereo-rooms", recipe, replace(run, out=tmp_path / "parts"))
    assert whole.validation == parts.validation and 0 < whole.validation <= 1
    first, second = (read_weights(outcome.weights) for outcome in (whole, parts))
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def _train_until_first_checkpoint(recipe, run):
    def interrupt(task, model):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("g_ray_lab.training.stereo_task.StereoTask.validate", interrupt)
        train("stereo-rooms", recipe, run)
