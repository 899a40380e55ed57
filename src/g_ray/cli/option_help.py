"""How the parser shows options: plain placeholders, defaults where there are any, and options in named groups."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import tyro
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec

PLACEHOLDERS: dict[Any, str] = {int: "N", float: "NUMBER", str: "TEXT", Path: "PATH"}


def make_placeholder(kind: Any) -> str | None:
    """Return what stands for a value of a type in help texts: `int | None` is N, `tuple[str, ...]` is TEXT ...

    None for types that the parser has words of its own for, such as flags.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return make_placeholder(parts[0])
    if origin is Literal:
        return "{" + ",".join(map(str, parts)) + "}"
    if origin in (Union, UnionType):
        shown = [make_placeholder(part) for part in parts if part is not NoneType]
        if bool in parts:  # a flag has no third value
            shown[shown.index(None)] = "{True,False}"
        return None if None in shown else "|".join(map(str, shown))
    if origin in (tuple, list):
        shown = [make_placeholder(part) for part in parts if part is not Ellipsis]
        more = " ..." if origin is list or Ellipsis in parts else ""
        return None if None in shown else " ".join(map(str, shown)) + more
    return "NAME VALUE ..." if origin in (dict, Mapping) else PLACEHOLDERS.get(kind)


def make_registry() -> ConstructorRegistry:
    """Make rules that read dataclasses as the parser does, and describe their fields in our words."""
    registry, inside = ConstructorRegistry(), False

    @registry.struct_rule
    def read_struct(info: Any) -> Any:
        nonlocal inside
        if inside:
            return None
        inside = True
        try:
            spec = ConstructorRegistry.get_struct_spec(info)
        finally:
            inside = False
        if not isinstance(spec, StructConstructorSpec):
            return spec
        return replace(spec, fields=tuple(_describe_field(field) for field in spec.fields))

    return registry


def group_options(text: str, groups: Mapping[str, Sequence[str]]) -> str:
    """Split the list of options of a help text into groups; options of no group stay where they are."""
    head, found, body = text.partition(" options ")
    if not groups or not found:
        return text
    rule, rows = re.split(r"(?<=-) *\n", body, maxsplit=1)
    blocks = re.split(r"^(?=  -)", rows, flags=re.MULTILINE)
    options = {re.split(r"[ ,\n]", block.strip())[0]: block.rstrip() + "\n" for block in blocks[1:]}
    parts = {title: [options.pop(f"--{name}", "") for name in names] for title, names in groups.items()}
    line = " " + "-" * rule.count("-")
    sections = [
        f" {title}\n{line}\n{''.join(rows)}"
        for title, rows in {**parts, "options": list(options.values())}.items()
    ]
    return head + "\n".join(sections)


def _describe_field(field: StructFieldSpec) -> StructFieldSpec:
    base, *marks = get_args(field.type) if get_origin(field.type) is Annotated else (field.type,)
    placeholder = make_placeholder(base)
    if _contains_dataclass(base):
        return field
    if any("Positional" in str(mark) for mark in marks):
        placeholder = field.name.upper() + (" ..." if placeholder and placeholder.endswith("...") else "")
    option = tyro.conf.arg(metavar=placeholder, help_behavior_hint=_format_default)
    return replace(field, type=Annotated[(base, option, *marks)], helptext=_reflow(field.helptext))


def _contains_dataclass(kind: Any) -> bool:
    """Return whether a type is a group of options or a choice of subcommands instead of an option.

    A sequence of dataclasses is an option: the registry of its command defines how it is written.
    """
    origin = get_origin(kind)
    inner = get_args(kind) if origin not in (tuple, list) else ()
    return is_dataclass(origin or kind) or any(map(_contains_dataclass, inner))


def _format_default(label: str) -> str:
    return "" if label in ("None", "", "False") else f"(default: {'on' if label == 'True' else label})"


def _reflow(text: str | Callable[[], str | None] | None) -> Any:
    """Join the lines of a docstring: the terminal has its own width."""
    if callable(text):
        return lambda: _reflow(text())
    return None if text is None else " ".join(text.split())
