"""Training with several processes: their ranks, what they exchange, and models under DDP or FSDP2."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import HashStore
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

from g_ray.runtime.device import choose_device

GRACE_S = 0.1
"""A gloo thread may still hold the last tensor and then needs Python's lock to let go of it. Whoever destroys the group
while keeping that lock waits for the thread forever; sleeping releases the lock."""


@dataclass(frozen=True)
class World:
    """This process among `size` processes. Alone, every exchange is the identity."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_leader(self) -> bool:
        """Rank 0 writes files and talks to the user."""
        return self.rank == 0

    def reduce_any(self, *flags: bool) -> list[bool]:
        """Per flag: is it set on any rank? Everyone gets the same answer."""
        if self.size == 1:
            return list(flags)
        reduced = torch.tensor(flags, dtype=torch.int32)
        dist.all_reduce(reduced, dist.ReduceOp.MAX)
        return [bool(flag) for flag in reduced.tolist()]

    def reduce_mean(self, values: Sequence[float]) -> list[float]:
        if self.size == 1 or not values:
            return list(values)
        reduced = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(reduced)
        return [value / self.size for value in reduced.tolist()]

    def gather(self, text: str) -> list[str]:
        """Return the texts of all ranks, in order."""
        if self.size == 1:
            return [text]
        texts: list[str] = [""] * self.size
        dist.all_gather_object(texts, text)
        return texts

    def broadcast(self, value: Any) -> Any:
        """Return the value that rank 0 passes, on every rank; those of the others are ignored."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    @contextmanager
    def fail_together(self) -> Iterator[None]:
        """End all ranks if one fails inside: it raises its own error, the others exit silently."""
        error: Exception | None = None
        try:
            yield
        except (ValueError, OSError) as caught:
            error = caught
        (failed,) = self.reduce_any(error is not None)
        if error is not None:
            raise error
        if failed:
            raise SystemExit(2)


@contextmanager
def join_world(device: str, group_of_one: bool = False) -> Iterator[World]:
    """Return the processes that torchrun describes in the environment, or this process alone."""
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    place = choose_device(device)
    if size == 1 and not group_of_one:
        yield World(0, 1, place)
        return
    # Flags and texts are small and stay on the CPU; only gradients travel by NCCL.
    backend = "cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo"
    if size == 1:
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    else:
        dist.init_process_group(backend)
    try:
        yield World(rank, size, place)
    except RuntimeError as error:
        if not (isinstance(error, dist.DistError) or "gloo" in str(error)):
            raise
        raise ValueError(
            f"process {rank} of {size} lost another one ({' '.join(str(error).split())[:120]}): "
            "see what ended that one; the same command resumes from the last checkpoint"
        ) from None
    finally:
        time.sleep(GRACE_S)
        dist.destroy_process_group()


# One model on many devices: DDP or FSDP2, and the same checkpoint from either.


FULL = StateDictOptions(full_state_dict=True, cpu_offload=True)


def iterate_blocks(model: nn.Module) -> Iterator[nn.Module]:
    """Yield every entry of a ModuleList: a transformer's blocks."""
    return (block for holder in model.modules() if isinstance(holder, nn.ModuleList) for block in holder)


def distribute_model(model: nn.Module, world: World, parallel: str) -> nn.Module:
    """Wrap the model for the training step."""
    if not dist.is_initialized():
        return model
    return shard_model(model, world) if parallel == "fsdp" else replicate_model(model, world)


def replicate_model(model: nn.Module, world: World) -> DistributedDataParallel:
    """DDP. After its first step it would sort gradients into other buckets; three and more processes on the CPU then
    sum in another order, with other last bits, and a continued run does so at another step than an uninterrupted
    one. Looking for unused parameters switches the sorting off. The sum of two has no order.
    """
    keep_buckets = world.device.type == "cpu" and world.size > 2
    # Gradients live in the buckets that are sent: one copy of them less in memory.
    return DistributedDataParallel(model, find_unused_parameters=keep_buckets, gradient_as_bucket_view=True)


def shard_model(model: nn.Module, world: World) -> nn.Module:
    """FSDP2: each entry of a ModuleList (a transformer's blocks) is gathered by itself, the rest with the root.

    Autocast decides the arithmetic as without sharding, so the policy of mixed precision stays empty. Frozen parameters
    stay whole: a rank that has the features of its images on disk does not run the encoder, so nothing may be gathered
    for it.
    """
    mesh = init_device_mesh(world.device.type, (world.size,))
    for block in list(iterate_blocks(model)):
        if any(parameter.requires_grad for parameter in block.parameters()):
            fully_shard(block, mesh=mesh)
    frozen = {parameter for parameter in model.parameters() if not parameter.requires_grad}
    fully_shard(model, mesh=mesh, ignored_params=frozen)
    return model


def get_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return all weights by their plain names, unsharded, on the CPU; nothing on ranks above 0 of a sharded model."""
    return cast(dict[str, Tensor], get_model_state_dict(model, options=FULL))


def get_optimizer_state(model: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    """Moments by parameter name: a run may go on with another kind of parallelism."""
    return get_optimizer_state_dict(model, optimizer, options=FULL)


def restore_state(
    model: nn.Module, optimizer: Optimizer, weights: dict[str, Tensor], moments: dict[str, Any], world: World
) -> None:
    """Whole state dicts back into a plain, replicated or sharded model; only rank 0 needs to have them."""
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=world.size > 1)
    # The optimizer first: making room for its moments is a step of length zero, and −0.0 + 0.0 is +0.0.
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
