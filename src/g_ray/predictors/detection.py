"""Which model weights belong to, from the names of their tensors."""

from collections.abc import Iterable
from pathlib import Path

from safetensors import SafetensorError, safe_open

from g_ray.models.foreign_weights import read_foreign
from g_ray.models.vggt import HUB_FILES, is_vggt
from g_ray.models.weights import CONFIG, FILE, RECIPE, find_file


def detect_model(weights: str) -> str:
    """Return "network" for weights of ours, "vggt" for VGGT's; ValueError for others."""
    path = find_file(weights, HUB_FILES.get(weights, FILE))
    names, is_ours = _read_names(path)
    if is_ours:
        return "network"
    if is_vggt(dict.fromkeys(names)):
        return "vggt"
    raise ValueError(
        f"{path} is neither a network of g-ray nor VGGT: say with --model which model it belongs to"
    )


def _read_names(path: Path) -> tuple[Iterable[str], bool]:
    """Return the names of the tensors, and whether the file holds a config or a recipe of ours."""
    if path.suffix != ".safetensors":
        return read_foreign(path), False
    try:
        with safe_open(path, framework="pt") as file:
            return list(file.keys()), bool({CONFIG, RECIPE} & (file.metadata() or {}).keys())
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file: {error}") from None
