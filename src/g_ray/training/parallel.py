"""One model on many devices: DDP or FSDP2, and the same checkpoint from either."""

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from g_ray.training.distributed import World

FULL = StateDictOptions(full_state_dict=True, cpu_offload=True)


def distribute_model(model: nn.Module, world: World, parallel: str) -> nn.Module:
    """The model as the training step calls it."""
    if not dist.is_initialized():
        return model
    return shard_model(model, world) if parallel == "fsdp" else replicate_model(model, world)


def replicate_model(model: nn.Module, world: World) -> DistributedDataParallel:
    """DDP. After its first step it would sort gradients into other buckets; three and more processes on the CPU then
    sum in another order, with other last bits, and a continued run does so at another step than an uninterrupted
    one. Looking for unused parameters switches the sorting off. The sum of two has no order.
    """
    keep_buckets = world.device.type == "cpu" and world.size > 2
    return DistributedDataParallel(model, find_unused_parameters=keep_buckets)


def shard_model(model: nn.Module, world: World) -> nn.Module:
    """FSDP2: each entry of a ModuleList (a transformer's blocks) is gathered by itself, the rest with the root.

    Autocast decides the arithmetic as without sharding, so the policy of mixed precision stays empty.
    """
    mesh = init_device_mesh(world.device.type, (world.size,))
    for holder in model.modules():
        if isinstance(holder, nn.ModuleList):
            for block in holder:
                fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def get_weights(model: nn.Module) -> dict[str, Tensor]:
    """All weights by their plain names, whole and on the CPU; empty on ranks above 0 of a sharded model."""
    return cast(dict[str, Tensor], get_model_state_dict(model, options=FULL))


def get_optimizer_state(model: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    """Moments by parameter name: a run may go on with another kind of parallelism."""
    return get_optimizer_state_dict(model, optimizer, options=FULL)


def restore_state(
    model: nn.Module, optimizer: Optimizer, weights: dict[str, Tensor], moments: dict[str, Any], world: World
) -> None:
    """Whole state dicts back into a plain, replicated or sharded model; only rank 0 needs to have them."""
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=world.size > 1)
    # The optimiser first: making room for its moments is a step of length zero, and −0.0 + 0.0 is +0.0.
    set_optimizer_state_dict(model, optimizer, moments, options=options)
    set_model_state_dict(model, cast(dict[str, Any], weights), options=options)


def compute_gradient_norm(model: nn.Module) -> Tensor:
    """Norm of the whole gradient, the same on every rank."""
    norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def scale_gradients(model: nn.Module, factor: float) -> None:
    if factor == 1.0:
        return
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.mul_(factor)
