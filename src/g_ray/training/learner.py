"""A model that learns: one gradient update, and all the state that an update depends on."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from g_ray.models.shipped import resolve_weights
from g_ray.training.checkpoint import load_weights
from g_ray.training.distributed import World
from g_ray.training.health import SkipCounter
from g_ray.training.meter import Meter
from g_ray.training.optimiser import build_optimizer
from g_ray.training.parallel import (
    compute_gradient_norm,
    distribute_model,
    get_optimizer_state,
    get_weights,
    restore_state,
    scale_gradients,
)
from g_ray.training.placement import move_to_device
from g_ray.training.precision import LossScale, autocast_to
from g_ray.training.recipe import Recipe
from g_ray.training.run import Run
from g_ray.training.schedule import compute_learning_rate, set_learning_rate
from g_ray.training.task import Task

Result = TypeVar("Result")


class Learner:
    """Model, optimiser, loss scale, counters."""

    def __init__(self, task: Task, recipe: Recipe, run: Run, world: World) -> None:
        self.task, self.recipe, self.world = task, recipe, world
        model = task.build_model()
        if recipe.init is not None:
            load_weights(model, resolve_weights(recipe.init))
        self.model = distribute_model(model.to(world.device), world, run.parallel)
        self.optimiser = build_optimizer(self.model, recipe.optimiser)
        self.scale = LossScale.from_precision(recipe.precision)
        self.health = SkipCounter(run.max_skipped, run.max_skipped_in_a_row)
        self.meter = Meter()

    def update(self, batch: Any, step: int) -> str | None:
        """One update. None if it went well or an fp16 overflow was forgiven; otherwise what was wrong.

        The backward pass runs even when the loss is not a number: the ranks then stay in step with each other.
        """
        rate = compute_learning_rate(self.recipe.schedule, step)
        set_learning_rate(self.optimiser, rate)
        loss, logged = self._forward(move_to_device(batch, self.world.device))
        (loss * self.scale.scale).backward()
        scale_gradients(self.model, 1.0 / self.scale.scale)
        value, norm = float(loss.detach()), float(compute_gradient_norm(self.model))
        (bad_loss,) = self.world.reduce_any(not math.isfinite(value))
        finite = not bad_loss and math.isfinite(norm)
        if finite:
            self._clip(norm)
            self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        forgiven = not bad_loss and self.scale.tolerates_overflow()
        self.scale.update(finite)
        if not finite:
            return None if forgiven else self._describe_failure(value, norm, batch)
        scalars = {name: float(scalar.detach()) for name, scalar in logged.items()}
        self.meter.add({"loss": value, **scalars, "gradient_norm": norm, "lr": rate})
        return None

    def _forward(self, batch: Any) -> tuple[Tensor, dict[str, Tensor]]:
        self.model.train()
        with autocast_to(self.recipe.precision, self.world.device):
            return self.task.compute_loss(self.model, batch)

    def _clip(self, norm: float) -> None:
        limit = self.recipe.optimiser.clip
        if limit is not None and norm > limit:
            scale_gradients(self.model, limit / norm)

    def _describe_failure(self, value: float, norm: float, batch: Any) -> str:
        """Names this rank's batch if its own loss is to blame, or if nobody's is."""
        if not math.isfinite(value):
            what = f"the loss is {value}"
        elif not math.isfinite(norm):
            what = f"the gradient is {norm}"
        else:
            return ""
        names = self.task.describe_batch(batch)
        return f"{what} on {names}" if names else what

    def evaluate(self, function: Callable[[nn.Module], Result]) -> Result:
        """Call something of the task that only looks at the model."""
        self.model.eval()
        with torch.no_grad(), autocast_to(self.recipe.precision, self.world.device):
            return function(self.model)

    # State

    def get_weights(self) -> dict[str, Tensor]:
        return get_weights(self.model)

    def get_moments(self) -> dict[str, Any]:
        return get_optimizer_state(self.model, self.optimiser)

    def state_dict(self) -> dict[str, Any]:
        scale = {"scale": self.scale.scale, "good_steps": self.scale.good_steps}
        return {"loss_scale": scale, "health": self.health.state_dict(), "meter": self.meter.state_dict()}

    def restore(self, weights: dict[str, Tensor], moments: dict[str, Any], state: dict[str, Any]) -> None:
        restore_state(self.model, self.optimiser, weights, moments, self.world)
        self.scale.scale = state["loss_scale"]["scale"]
        self.scale.good_steps = state["loss_scale"]["good_steps"]
        self.health.load_state_dict(state["health"])
        self.meter.load_state_dict(state["meter"])
