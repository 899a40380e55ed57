"""The commands of `g-ray`: those of the tool, and those that other distributions add by entry points.

A command is a dataclass with `run()`. An entry point of the group `g_ray.commands` named `NAME` adds a command, one
named `NAME.SUB` a subcommand. Only the chosen command is imported.
"""

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

GROUP = "g_ray.commands"
CONVERTERS = "g_ray.converters"
"""Functions that convert weights of other projects, by kind: see `models.foreign.detect_kind`."""

TOOL = {
    "reconstruct": "g_ray.cli.reconstruct_command:Reconstruct",
    "view": "g_ray.cli.view_command:ViewResult",
    "rays": "g_ray.cli.rays_command:Rays",
    "synthesize": "g_ray.cli.synthesize_command:Synthesize",
    "demo": "g_ray.cli.demo_command:Demo",
    "weights": "g_ray.cli.weights_command:Weights",
}
"""Commands of the tool, in the order in which users need them."""

LAB = ("train", "evaluate", "reproduce", "data", "bench")
"""Commands that `pip install 'g-ray[lab]'` adds, in the order of the help."""


def find_added() -> dict[str, EntryPoint]:
    """Return the entry points of installed distributions by the name of their command."""
    return {point.name: point for point in entry_points(group=GROUP)}


def list_commands() -> list[str]:
    """Return the names of all commands that are installed, in the order of the help."""
    added = [name for name in find_added() if "." not in name]
    known = [name for name in LAB if name in added]
    return [*TOOL, *known, *sorted(set(added) - set(known))]


def load_command(name: str) -> Any:
    """Import a command; ValueError in one line if it is not installed."""
    if name in TOOL:
        module, _, attribute = TOOL[name].partition(":")
        return getattr(import_module(module), attribute)
    return _load_added(name)


def load_subcommands(name: str) -> dict[str, Any]:
    """Import the subcommands that installed distributions add to a command."""
    return {
        point.removeprefix(f"{name}."): _load_added(point)
        for point in find_added()
        if point.startswith(f"{name}.")
    }


def load_converter(kind: str) -> Any:
    """Import the function that converts foreign weights of a kind; ValueError if none is installed."""
    for point in entry_points(group=CONVERTERS, name=kind):
        return point.load()
    raise ValueError(f"weights of {kind} belong to the laboratory: install it with pip install 'g-ray[lab]'")


def _load_added(name: str) -> Any:
    point = find_added().get(name)
    if point is None:
        raise ValueError(
            f"g-ray {name.replace('.', ' ')} belongs to the laboratory: install it with pip install 'g-ray[lab]'"
        )
    return point.load()
