"""Weights that come with the package: `weights/NAME.safetensors`, with a card and a training log beside each."""

import hashlib
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "weights"


def list_shipped(folder: Path | None = None) -> list[str]:
    return sorted(path.stem for path in (folder or FOLDER).glob("*.safetensors"))


def find_shipped(name: str, folder: Path | None = None) -> Path:
    """The file of weights of that name, after its digest was compared with its card's."""
    path = (folder or FOLDER) / f"{name}.safetensors"
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
    """What they are: recipe, command, scores, digest."""
    return json.loads(((folder or FOLDER) / f"{name}.json").read_text(encoding="utf-8"))


def resolve_weights(weights: Path) -> Path:
    """A file as it is; a bare name that is no file is looked for among the shipped weights."""
    if weights.exists() or weights.suffix or len(weights.parts) != 1:
        return weights
    return find_shipped(weights.name)
