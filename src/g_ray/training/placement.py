"""Moves whatever a batch is made of to a device."""

from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch


def move_to_device(value: Any, device: torch.device) -> Any:
    """The same structure with every tensor, and everything that has `.to`, on `device`; the rest as it is."""
    if hasattr(value, "to"):
        return value.to(device)
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
