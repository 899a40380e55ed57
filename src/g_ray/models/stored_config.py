"""Check the config in a file of weights against its tensors before a network is built from it.

The config of a damaged or malicious file may ask for 10⁹ layers, which takes hours and all memory to build.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from torch import Tensor

MAX_SIZE = 1 << 20
"""Largest number in a config."""


def parse_stored_json(text: str) -> dict[str, Any]:
    """Parse an object from the metadata of a file; ValueError if it is none."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("its config is not JSON: download it again") from None
    if not isinstance(content, dict):
        raise ValueError("its config is not an object: download it again")
    return content


def check_config(config: Any, tensors: Mapping[str, Tensor]) -> None:
    """Raise ValueError if a config (a dataclass) asks for larger numbers, or more layers, than its file can have."""
    settings = dataclasses.asdict(config)
    largest = max((_find_largest(value) for value in settings.values()), default=0.0)
    if largest > MAX_SIZE:
        raise ValueError("its config asks for sizes that no network has")
    for name in ("pairs", "layers"):
        # Every layer has several tensors.
        if settings.get(name, 0) > len(tensors):
            raise ValueError(
                f"its config asks for {settings[name]} {name}, but it has {len(tensors)} tensors"
            )


def _find_largest(value: Any) -> float:
    if isinstance(value, dict):
        return _find_largest(list(value.values()))
    if isinstance(value, list | tuple):
        return max(map(_find_largest, value), default=0.0)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    # Not float(value), which fails for huge integers; NaN counts as too large.
    return float(abs(value)) if abs(value) <= MAX_SIZE else 2.0 * MAX_SIZE
