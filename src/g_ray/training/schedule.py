"""The learning rate as a pure function of the step: there is no scheduler whose state could be lost.

The released NVS code multiplies a warm-up and a cosine that both start at step 0, so its rate reaches zero 2,500 steps
early and rises again. Here the cosine begins where the warm-up ends and the last update still has a positive rate.
"""

import math

from torch.optim import Optimizer

from g_ray.training.recipe import Schedule


def compute_learning_rate(schedule: Schedule, step: int) -> float:
    """The rate of update number `step` = 0 … steps − 1."""
    if step < schedule.warmup:
        return schedule.start + (schedule.lr - schedule.start) * step / schedule.warmup
    done = (step - schedule.warmup) / (schedule.steps - schedule.warmup)
    return schedule.final + (schedule.lr - schedule.final) * 0.5 * (1.0 + math.cos(math.pi * done))


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate
