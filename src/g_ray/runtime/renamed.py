"""Names of settings and methods that had another spelling in earlier versions and are still accepted, and settings
that earlier versions did not have.

They occur on command lines, in the recipes of stored runs and in the metadata of weights.
"""

from typing import Any

SETTINGS = {"optimiser": "optimizer", "colour": "color", "off_centre": "off_center"}
"""Fields of recipes, and the options that set them: old name → name."""

METHODS = {"rope_normalised": "rope_normalized"}
"""Values of `method`."""

ADDED: dict[str, Any] = {
    "freeze_encoder": False,
    "trained_blocks": 0,
    "stored_shape": False,
    "masks": None,
    "tf32": False,
    "compile": False,
    "per_folder": [],
    "distinct": None,
    "pose_frame": "first_context",
    "encoding_options": {},
    "registers": None,
}
"""Settings that runs of earlier versions lack, and what these did."""


def rename_settings(settings: Any) -> Any:
    """Return nested settings as the current version names them."""
    if isinstance(settings, dict):
        renamed = {SETTINGS.get(key, key): rename_settings(value) for key, value in settings.items()}
        if isinstance(method := renamed.get("method"), str):
            renamed["method"] = METHODS.get(method, method)
        return renamed
    return [rename_settings(value) for value in settings] if isinstance(settings, list) else settings


def drop_added_settings(settings: Any) -> Any:
    """Return nested settings without those that change nothing against earlier versions."""
    if isinstance(settings, dict):
        kept = {key: value for key, value in settings.items() if key not in ADDED or value != ADDED[key]}
        return {key: drop_added_settings(value) for key, value in kept.items()}
    return settings


def rename_option(word: str) -> str:
    """Return a word of a command line with its option renamed: `--data.no-off-centre=1` → `--data.no-off-center=1`."""
    if not word.startswith("--"):
        return word
    option, assignment, value = word.removeprefix("--").partition("=")
    parts = [_rename_part(part) for part in option.split(".")]
    return f"--{'.'.join(parts)}{assignment}{value}"


def _rename_part(part: str) -> str:
    prefix = "no-" if part.startswith("no-") else ""
    name = part.removeprefix(prefix).replace("-", "_")
    return f"{prefix}{SETTINGS[name].replace('_', '-')}" if name in SETTINGS else part
