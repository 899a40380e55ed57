"""Our weights as one file: safetensors with the config inside, from a path, the package or the Hugging Face hub."""

import dataclasses
import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from g_ray.files import atomic_path
from g_ray.models.foreign import load_matching
from g_ray.models.reconstruction import ReconstructionModel
from g_ray.models.reconstruction_config import ReconstructionConfig
from g_ray.models.shipped import resolve_weights

FILE = "model.safetensors"
"""What a repository on the hub calls it."""
CONFIG = "reconstruction_config"


def save_reconstruction(model: ReconstructionModel, path: Path, dtype: torch.dtype | None = None) -> None:
    """Weights (in `dtype`, e.g. float16 to halve the file) and config, whole or not at all."""
    weights = {
        name: value.detach().to("cpu", dtype).contiguous() for name, value in model.state_dict().items()
    }
    metadata = {"format": "pt", CONFIG: json.dumps(dataclasses.asdict(model.config))}
    with atomic_path(path) as scratch:
        save_file(weights, scratch, metadata=metadata)


def load_reconstruction(source: str | Path, *, revision: str | None = None) -> ReconstructionModel:
    """The model of a file, of a folder with model.safetensors, of a Hugging Face id "owner/name", or that comes with
    the package under this name; in float32."""
    path = find_file(source, revision=revision)
    config, state = _read(path)
    with torch.device("meta"):
        model = ReconstructionModel(config)
    empty = {name: torch.empty_like(value, device="cpu") for name, value in model.state_dict().items()}
    model.load_state_dict(empty, assign=True)
    try:
        report = load_matching(model, state)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if report.missing or report.unused:
        raise ValueError(f"{path} does not fit its own config; {'; '.join(report.format_lines()[1:])}")
    return model.requires_grad_().eval()


def find_file(source: str | Path, name: str = FILE, *, revision: str | None = None) -> Path:
    """A local file or folder, what comes with the package, or else a file of that name in a repository on the hub."""
    path = resolve_weights(Path(source))
    if path.is_dir():
        path = path / name
    if path.is_file():
        return path
    if path.is_absolute() or path.suffix or len(path.parts) != 2:
        raise FileNotFoundError(
            f"no weights at {path}: give a file, a folder with {name} or an id owner/name"
        )
    from huggingface_hub import hf_hub_download

    return Path(hf_hub_download(str(source), name, revision=revision))


def _read(path: Path) -> tuple[ReconstructionConfig, dict[str, Tensor]]:
    from pydantic import TypeAdapter, ValidationError

    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file: {error}") from None
    if CONFIG not in metadata:
        raise ValueError(
            f"{path} holds no reconstruction config: convert it first with g-ray weights convert"
        )
    settings = json.loads(metadata[CONFIG])
    unknown = sorted(set(settings) - {field.name for field in dataclasses.fields(ReconstructionConfig)})
    if unknown:
        raise ValueError(
            f"{path}: config has {', '.join(unknown)}, which this version does not know: update g-ray"
        )
    try:
        config = TypeAdapter(ReconstructionConfig).validate_python(settings)
    except ValidationError as error:
        raise ValueError(f"{path}: config of another version: {error.errors()[0]['msg']}") from None
    return config, state
