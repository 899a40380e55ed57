"""Weights as files: those of the distribution g-ray-weights, and any reconstruction network as one safetensors file.

`NAME.safetensors` has a card (`NAME.json`) and a training log next to it. Files of others are read in
`foreign_weights`.
"""

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from g_ray.models.reconstruction_config import ReconstructionConfig, ReconstructionNetwork
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.runtime.files import atomic_path

Settings = TypeVar("Settings")

DISTRIBUTION = "g-ray-weights"
"""What has the weights that `g-ray` uses by name; a distribution of its own, since they are forty times its code."""


def find_weights_folder() -> Path:
    """Find the folder of the weights' distribution; raise FileNotFoundError naming what to install if it is missing."""
    spec = find_spec(DISTRIBUTION.replace("-", "_"))
    if spec is None or spec.origin is None:
        raise FileNotFoundError(
            f"the weights of g-ray are not installed: pip install {DISTRIBUTION} (in a clone: pip install -e "
            "packaging/weights)"
        )
    return Path(spec.origin).parent


def list_shipped(folder: Path | None = None) -> list[str]:
    return sorted(path.stem for path in (folder or find_weights_folder()).glob("*.safetensors"))


def find_shipped(name: str, folder: Path | None = None) -> Path:
    """Find the file of shipped weights of that name, and compare its digest with its card's."""
    path = (folder or find_weights_folder()) / f"{name}.safetensors"
    if not path.is_file():
        known = ", ".join(list_shipped(folder)) or "none"
        raise FileNotFoundError(
            f"no weights named {name!r} come with g-ray (there are: {known}), nor is it a file"
        )
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != read_card(name, folder)["sha256"]:
        raise OSError(f"{path} is not the file that was shipped (its SHA-256 differs): install g-ray again")
    return path


def read_card(name: str, folder: Path | None = None) -> dict[str, Any]:
    """Read what shipped weights are: recipe, command, scores, digest."""
    return json.loads(((folder or find_weights_folder()) / f"{name}.json").read_text(encoding="utf-8"))


def resolve_weights(weights: Path) -> Path:
    """Return a file as it is; look for a bare name that is not a file among the shipped weights."""
    if weights.exists() or weights.suffix or len(weights.parts) != 1:
        return weights
    return find_shipped(weights.name)


class CheckpointError(OSError):
    """A checkpoint could not be written or read; the message names the file and what is still there, in one line."""


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a safetensors file."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read as safetensors: {error}") from None


def load_weights(model: nn.Module, path: Path, tensors: Mapping[str, Tensor] | None = None) -> None:
    """Load weights into a model; raise CheckpointError in one line if they belong to another model."""
    try:
        model.load_state_dict(read_weights(path) if tensors is None else tensors)
    except RuntimeError as error:
        reason = " ".join(str(error).split("\n\t")[-1].split())
        raise CheckpointError(f"{path} does not fit the model of this recipe: {reason}") from None


def read_recipe_document(path: Path) -> dict[str, Any]:
    """Read the recipe from the metadata of weights that `g-ray train` has written, as plain JSON."""
    metadata = _read_metadata(path)
    if RECIPE not in metadata:
        raise ValueError(f"{path} has no recipe in its metadata: use weights from g-ray train")
    try:
        return parse_stored_json(metadata[RECIPE])
    except ValueError as error:
        raise ValueError(
            f"{path}: its recipe cannot be used ({error}): use weights from g-ray train"
        ) from None


def _read_metadata(path: Path) -> dict[str, str]:
    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file: {error}") from None


# Our weights as one file: safetensors with the config inside, from a path, the package or the Hugging Face hub.


FILE = "model.safetensors"
"""What a repository on the hub calls it."""
CONFIG, UNTRAINED = "reconstruction_config", "untrained"
RECIPE = "recipe"
"""What `g-ray train` stores instead of a config."""


def save_reconstruction(
    model: ReconstructionModel,
    path: Path,
    dtype: torch.dtype | None = None,
    untrained: Sequence[str] = (),
) -> None:
    """Write weights (in `dtype`, e.g. float16 to halve the file) and config, atomically.

    `untrained` names parts that still have random weights; `read_untrained` finds them in the file.
    """
    if model.is_quantized:
        raise ValueError("a network in int8 is not stored: save it before model.quantize()")
    weights = {
        name: value.detach().to("cpu", dtype).contiguous() for name, value in model.state_dict().items()
    }
    metadata = {"format": "pt", CONFIG: json.dumps(dataclasses.asdict(model.config))}
    if untrained:
        metadata[UNTRAINED] = json.dumps(sorted(untrained))
    with atomic_path(path) as scratch:
        save_file(weights, scratch, metadata=metadata)


def read_untrained(source: str | Path) -> list[str]:
    """Read which parts of a network in a file still have random weights."""
    return json.loads(_read_metadata(find_file(source)).get(UNTRAINED, "[]"))


def load_reconstruction(source: str | Path, *, revision: str | None = None) -> ReconstructionModel:
    """Load a model in float32, prepared for inference (`model.train()` undoes that).

    `source` is a file, also one that `g-ray train` wrote, a folder with model.safetensors, a Hugging Face id
    "owner/name" or the name of shipped weights.
    """
    path = find_file(source, revision=revision)
    config, state = _read(path)
    try:
        with torch.device("meta"):
            model = ReconstructionModel(config)
        check_shapes(model.state_dict(), state)
        empty = {name: torch.empty_like(value, device="cpu") for name, value in model.state_dict().items()}
        model.load_state_dict(empty, assign=True)
        report = load_matching(model, state)
    except (ValueError, RuntimeError, TypeError, LookupError, ArithmeticError) as error:
        raise ValueError(f"{path}: {_shorten(error)}") from None
    if report.missing or report.unused:
        raise ValueError(f"{path} does not fit its own config; {'; '.join(report.format_lines()[1:])}")
    return model.requires_grad_().eval()


def find_file(source: str | Path, name: str = FILE, *, revision: str | None = None) -> Path:
    """Find a local file or folder, what comes with the package, or else a file in a repository on the hub."""
    path = resolve_weights(Path(source))
    if path.is_dir():
        path = path / name
    if path.is_file():
        return path
    if path.is_absolute() or path.suffix or len(path.parts) != 2:
        raise FileNotFoundError(
            f"no weights at {path}: give a file, a folder with {name} or an id owner/name"
        )
    return _download(str(source), name, revision)


def _download(source: str, name: str, revision: str | None) -> Path:
    """Download a file of a repository on the hub, or find it in the cache; OSError in one line if that fails."""
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError:
        raise OSError(f"{source} is on the hub, which needs a package: pip install 'g-ray[hub]'") from None
    try:
        return Path(hf_hub_download(source, name, revision=revision))
    except (OSError, HfHubHTTPError) as error:
        # Gated repositories and missing files are answers of the server, no connection is an OSError.
        reason = " ".join(str(error).split())[:160]
        raise OSError(
            f"cannot download {name} of {source} ({reason} …): accept its license on the hub and log in (hf auth "
            "login), or download the file elsewhere and give its path"
        ) from None


def _read(path: Path) -> tuple[ReconstructionConfig, dict[str, Tensor]]:
    metadata = _read_metadata(path)
    if CONFIG not in metadata and RECIPE not in metadata:
        raise ValueError(
            f"{path} holds no reconstruction config: convert it first with g-ray weights convert"
        )
    try:
        config = _parse_config(metadata[CONFIG]) if CONFIG in metadata else _parse_recipe(metadata[RECIPE])
        state = read_weights(path)
        check_config(config, state)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{path}: {_shorten(error)}") from None
    return config, state


def _parse_config(text: str) -> ReconstructionConfig:
    settings = parse_stored_json(text)
    unknown = sorted(set(settings) - {field.name for field in dataclasses.fields(ReconstructionConfig)})
    if unknown:
        raise ValueError(f"config has {', '.join(unknown)}, which this version does not know: update g-ray")
    return validate_settings(ReconstructionConfig, settings)


def _parse_recipe(text: str) -> ReconstructionConfig:
    """Build the config of weights as `g-ray train` leaves them: their recipe names the size of the network."""
    recipe = parse_stored_json(text)
    if recipe.get("kind") != "ReconstructionRecipe":
        raise ValueError(f"weights of a {str(recipe.get('kind'))[:40]}, not of a reconstruction network")
    settings = recipe.get("settings")
    if not isinstance(settings, dict) or not isinstance(settings.get("model"), dict):
        raise ValueError("its recipe has no settings of a model: download or train it again")
    return validate_settings(ReconstructionNetwork, settings["model"]).build_config()


def validate_settings(kind: type[Settings], settings: dict[str, Any]) -> Settings:
    from pydantic import TypeAdapter, ValidationError

    try:
        return TypeAdapter(kind).validate_python(settings)
    except ValidationError as error:
        raise ValueError(f"config of another version: {error.errors()[0]['msg']}") from None


def _shorten(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


# Configs in files: that of a damaged or malicious file may have 10⁹ layers, which takes hours and all memory to
# build. It is checked against the tensors of the file first.


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
    """Raise ValueError if a config (a dataclass) has larger numbers, or more layers, than its file can have."""
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


# Tensors of a file and of a network: which find each other.


@dataclass(frozen=True)
class LoadReport:
    """Which tensors found each other, and which did not."""

    loaded: tuple[str, ...]
    missing: tuple[str, ...]
    """Ours that the file does not have: they keep the values they had."""
    unused: tuple[str, ...]
    """The file's that we have no place for."""

    def format_lines(self) -> list[str]:
        """Format for display: tensors counted by the part they belong to."""
        groups = {"loaded": self.loaded, "not in the file": self.missing, "not used": self.unused}
        return [f"{what}: {_format_counts(names)}" for what, names in groups.items() if names]


def load_matching(module: nn.Module, state: Mapping[str, Tensor]) -> LoadReport:
    """Copy tensors of equal names; unequal shapes are refused, all other differences reported."""
    own = module.state_dict()
    check_shapes(own, state)
    shared = [name for name in own if name in state]
    module.load_state_dict({name: state[name] for name in shared}, strict=False)
    missing = tuple(name for name in own if name not in state)
    return LoadReport(tuple(shared), missing, tuple(name for name in state if name not in own))


def check_shapes(own: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Raise ValueError if tensors of equal names have other shapes, or no names are equal."""
    shared = [name for name in own if name in state]
    wrong = [name for name in shared if own[name].shape != state[name].shape]
    if wrong:
        name = wrong[0]
        raise ValueError(
            f"{len(wrong)} tensors have other shapes, e.g. {name}: {list(state[name].shape)} in the file, "
            f"{list(own[name].shape)} in the network; choose the size that the file was trained at"
        )
    if not shared:
        raise ValueError("no tensor of the file belongs to this network: wrong file or wrong size?")


def _format_counts(names: Iterable[str]) -> str:
    def part(name: str) -> str:
        pieces = name.split(".")
        return ".".join(pieces[: 2 if pieces[0] in ("vggt", "aggregator") else 1])

    counts = Counter(part(name) for name in names)
    return ", ".join(f"{name} ({count})" for name, count in counts.items())
