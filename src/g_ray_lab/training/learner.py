"""One gradient update, and all the state that it depends on."""

import json
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from g_ray.models.weights import load_weights, resolve_weights
from g_ray_lab.training.distributed import (
    World,
    compute_gradient_norm,
    distribute_model,
    get_optimizer_state,
    get_weights,
    iterate_blocks,
    restore_state,
    scale_gradients,
)
from g_ray_lab.training.recipe import OptimizerSettings, PrecisionName, Recipe, Run, Schedule
from g_ray_lab.training.task import Task


class TooManySkipped(ValueError):
    """Too many steps had to be skipped: the data or the training is broken."""


@dataclass
class SkipCounter:
    """Counts skipped steps. The counts are saved with each checkpoint, so stopping does not reset them."""

    max_total: int
    max_in_a_row: int
    total: int = 0
    in_a_row: int = 0
    recent: list[str] = field(default_factory=list)
    redrawn: int = 0
    """Sets that were drawn again, because a file of the first draw cannot be read."""

    REMEMBERED = 20
    STORED = ("total", "in_a_row", "redrawn", "recent")

    def record_success(self) -> None:
        self.in_a_row = 0

    def record_skip(self, step: int, reason: str) -> str:
        """Count a step and return the line to print."""
        self.total += 1
        self.in_a_row += 1
        line = f"step {step} skipped: {reason}"
        self.recent = [*self.recent, line][-self.REMEMBERED :]
        return f"{line} ({self.total} so far)"

    def check(self) -> None:
        """Raise TooManySkipped when there were too many."""
        if self.in_a_row >= self.max_in_a_row:
            how = f"{self.in_a_row} steps in a row"
        elif self.total >= self.max_total:
            how = f"{self.total} steps in all"
        else:
            return
        raise TooManySkipped(f"{how} had to be skipped, stopping; the last one: {self.recent[-1]}")

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.STORED}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in state:
            setattr(self, name, state[name])


# Means of logged scalars since the last entry.


@dataclass
class Meter:
    """Sums and counts per name; saved with checkpoints, so that a resumed run logs the same means."""

    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
            self.counts[name] = self.counts.get(name, 0) + 1

    def pop_means(self) -> dict[str, float]:
        """Return the means and start over."""
        means = {name: total / self.counts[name] for name, total in self.sums.items()}
        self.sums, self.counts = {}, {}
        return means

    def state_dict(self) -> dict[str, Any]:
        return {"sums": dict(self.sums), "counts": dict(self.counts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.sums, self.counts = dict(state["sums"]), dict(state["counts"])


# AdamW with weight decay on matrices only.


def build_optimizer(model: nn.Module, settings: OptimizerSettings, *, fused: bool = False) -> AdamW:
    """Build AdamW with weight decay for matrices, and none for vectors; `fused` updates all weights in one kernel.

    Deciding by the number of axes and not by name keeps decay away from biases as well as norms; the released NVS code
    looks for "norm" in the name and so pulls the bias of RayRoPE's depth predictor, which starts at 3, towards zero.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    return AdamW(groups, lr=0.0, betas=settings.betas, eps=settings.eps, fused=fused or None)


# Compilation, block by block: all blocks of a kind share one compiled form, and names of weights stay.


def compile_blocks(model: nn.Module, backend: str = "inductor") -> None:
    """Compile every entry of a ModuleList (a transformer's blocks) in place; whatever else there is stays eager.

    Numbers of views and rows change from step to step, so sizes are symbols from the start.
    """
    for block in iterate_blocks(model):
        block.compile(backend=backend, dynamic=True)


# Batches on a device.


def move_to_device(value: Any, device: torch.device) -> Any:
    """Return the same structure with every tensor, and everything else that has `.to`, on `device`."""
    if hasattr(value, "to"):
        # From page-locked memory the copy overlaps with work that was launched before it.
        return value.to(device, non_blocking=True) if device.type == "cuda" else value.to(device)
    if is_dataclass(value) and not isinstance(value, type):
        moved = {f.name: move_to_device(getattr(value, f.name), device) for f in fields(value) if f.init}
        return replace(value, **moved)
    if isinstance(value, dict):
        return {key: move_to_device(item, device) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(move_to_device(item, device) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(move_to_device(item, device) for item in value)
    return value


# Half precision: autocast for the arithmetic, a scaled loss for fp16.


DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast_to(precision: PrecisionName, device: torch.device) -> AbstractContextManager[object]:
    """Autocast to the named precision; weights stay in fp32."""
    if precision == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype=DTYPES[precision])


@dataclass
class LossScale:
    """Keeps fp16 gradients above underflow, by the rule and the numbers of torch.amp.GradScaler.

    The loss is multiplied by `scale`; after an overflow the scale is halved, after 2000 good steps it is doubled.
    Whether a step overflowed is read off the global gradient norm, which all ranks share under DDP and FSDP2 alike
    (GradScaler looks at local shards only).
    """

    scale: float = 65536.0
    good_steps: int = 0
    enabled: bool = True

    GROWTH_INTERVAL = 2000
    SMALLEST = 2.0**-10

    @classmethod
    def from_precision(cls, precision: PrecisionName) -> "LossScale":
        return cls() if precision == "fp16" else cls(scale=1.0, enabled=False)

    def update(self, finite: bool) -> None:
        if not self.enabled:
            return
        if not finite:
            self.scale, self.good_steps = self.scale * 0.5, 0
        else:
            self.good_steps += 1
            if self.good_steps == self.GROWTH_INTERVAL:
                self.scale, self.good_steps = self.scale * 2.0, 0

    def tolerates_overflow(self) -> bool:
        """Overflow is part of finding the scale, until the scale is so small that it cannot be the reason."""
        return self.enabled and self.scale > self.SMALLEST


# The learning rate is a pure function of the step: no state of a scheduler has to be saved.
#
# The released NVS code multiplies a warm-up and a cosine that both start at step 0, so its rate reaches zero 2,500
# steps early and rises again. Here the cosine begins where the warm-up ends and the last update still has a positive
# rate.


def compute_learning_rate(schedule: Schedule, step: int) -> float:
    """Return the rate of update number `step` = 0 … steps − 1."""
    # Update `warmup` is the first with the full rate.
    if step < schedule.warmup:
        return schedule.start + (schedule.lr - schedule.start) * step / schedule.warmup
    done = (step - schedule.warmup) / (schedule.steps - schedule.warmup)
    return schedule.final + (schedule.lr - schedule.final) * 0.5 * (1.0 + math.cos(math.pi * done))


# The update.


Result = TypeVar("Result")


class Learner:
    """Model, optimizer, loss scale, counters."""

    def __init__(self, task: Task, recipe: Recipe, run: Run, world: World) -> None:
        self.task, self.recipe, self.world = task, recipe, world
        model = task.build_model()
        if recipe.init is not None:
            load_weights(model, resolve_weights(recipe.init))
        if world.device.type == "cuda":
            torch.backends.cuda.matmul.allow_tf32 = recipe.tf32
        if recipe.compile:
            compile_blocks(model)
        self.model = distribute_model(model.to(world.device), world, run.parallel)
        self.optimizer = build_optimizer(self.model, recipe.optimizer, fused=world.device.type == "cuda")
        self.scale = LossScale.from_precision(recipe.precision)
        self.health = SkipCounter(run.max_skipped, run.max_skipped_in_a_row)
        self.meter = Meter()

    def update(self, batch: Any, step: int) -> str | None:
        """Do one update. Return None if it succeeded or an fp16 overflow was tolerated, otherwise what was wrong.

        The backward pass runs even when the loss is not a number: the ranks then stay in step with each other.
        """
        rate = compute_learning_rate(self.recipe.schedule, step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.model.train()
        with autocast_to(self.recipe.precision, self.world.device):
            loss, logged = self.task.compute_loss(self.model, move_to_device(batch, self.world.device))
        # Unscaled before the norm, so that clipping and the log see true gradients.
        (loss * self.scale.scale).backward()
        scale_gradients(self.model, 1.0 / self.scale.scale)
        value, norm = float(loss.detach()), float(compute_gradient_norm(self.model))
        # All ranks decide alike: an update on some of them would let their weights drift apart.
        (bad_loss,) = self.world.reduce_any(not math.isfinite(value))
        finite = not bad_loss and math.isfinite(norm)
        if finite:
            limit = self.recipe.optimizer.clip
            if limit is not None and norm > limit:
                scale_gradients(self.model, limit / norm)
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        tolerated = not bad_loss and self.scale.tolerates_overflow()
        self.scale.update(finite)
        if not finite:
            return None if tolerated else self._describe_failure(value, norm, bad_loss, batch)
        scalars = {name: float(scalar.detach()) for name, scalar in logged.items()}
        self.meter.add({"loss": value, **scalars, "gradient_norm": norm, "lr": rate})
        return None

    def _describe_failure(self, value: float, norm: float, bad_loss: bool, batch: Any) -> str:
        """Name this rank's batch if its own loss is not finite, or if the shared gradient alone is not.

        A loss that is not finite on one rank makes the gradient of all ranks so: the others' batches are not to blame.
        """
        if not math.isfinite(value):
            what = f"the loss is {value}"
        elif bad_loss:
            return ""
        else:
            what = f"the gradient is {norm}"
        names = self.task.describe_batch(batch)
        return f"{what} on {names}" if names else what

    def evaluate(self, function: Callable[[nn.Module], Result]) -> Result:
        """Call a function of the model in evaluation mode, without gradients."""
        self.model.eval()
        with torch.no_grad(), autocast_to(self.recipe.precision, self.world.device):
            return function(self.model)

    # State

    def get_weights(self) -> dict[str, Tensor]:
        return get_weights(self.model)

    def get_moments(self) -> dict[str, Any]:
        return get_optimizer_state(self.model, self.optimizer)

    def state_dict(self) -> dict[str, Any]:
        scale = {"scale": self.scale.scale, "good_steps": self.scale.good_steps}
        # Every rank has its own means since the last entry; JSON keeps all digits of a float.
        meters = [json.loads(text) for text in self.world.gather(json.dumps(self.meter.state_dict()))]
        return {"loss_scale": scale, "health": self.health.state_dict(), "meters": meters}

    def check_fit(self, shapes: Mapping[str, torch.Size], weights: Mapping[str, Tensor]) -> None:
        """Raise ValueError if stored weights are those of another model than the one with these shapes."""
        stored = {name: weight.shape for name, weight in weights.items()}
        for name in sorted(shapes.keys() | stored.keys()):
            if shapes.get(name) != stored.get(name):
                sizes = [
                    "nothing" if shape is None else "×".join(map(str, shape)) or "a number"
                    for shape in (stored.get(name), shapes.get(name))
                ]
                raise ValueError(
                    f"the stored weights are of another model than these settings describe: {name} was {sizes[0]} and "
                    f"is {sizes[1]}; keep the settings of the model, or start in another --out"
                )

    def restore(self, weights: dict[str, Tensor], moments: dict[str, Any], state: dict[str, Any]) -> None:
        restore_state(self.model, self.optimizer, weights, moments, self.world)
        self.scale.scale = state["loss_scale"]["scale"]
        self.scale.good_steps = state["loss_scale"]["good_steps"]
        self.health.load_state_dict(state["health"])
        # Checkpoints of earlier versions have the means of rank 0 alone.
        meters = state["meters"] if "meters" in state else [state["meter"]]
        if self.world.rank < len(meters):
            self.meter.load_state_dict(meters[self.world.rank])
