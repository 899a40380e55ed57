"""Is this the run that the folder holds? Continuing with another recipe must be said aloud."""

from collections.abc import Mapping
from typing import Any


def flatten_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted keys: {"optimiser": {"clip": 1.0}} → {"optimiser.clip": 1.0}."""
    flattened: dict[str, Any] = {}
    for key, value in settings.items():
        nested = isinstance(value, Mapping) and value
        flattened |= flatten_settings(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return flattened


def list_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """`key: old → new` for every setting that differs."""
    old, new = flatten_settings(before), flatten_settings(now)
    missing = "(not set)"
    return [
        f"{key}: {old.get(key, missing)} → {new.get(key, missing)}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key, missing) != new.get(key, missing)
    ]


def check_same(before: Mapping[str, Any], now: Mapping[str, Any], where: object, allow: bool) -> list[str]:
    """The differences if they are allowed, a `ValueError` that names them otherwise. The name is only a label."""
    changed = list_differences(_select_decisive(before), _select_decisive(now))
    if changed and not allow:
        raise ValueError(
            f"{where} was started differently ({'; '.join(changed)}): use the same settings, another --out, "
            "or --allow-changes True to continue all the same"
        )
    return changed


def _select_decisive(identity: Mapping[str, Any]) -> dict[str, Any]:
    return {**identity["settings"], "kind": identity["kind"], "processes": identity["processes"]}
