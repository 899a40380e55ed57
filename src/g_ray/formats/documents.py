"""Parse calibration files once for all formats: JSON, YAML (with OpenCV's dialect), OpenCV's XML; check numbers."""

import json
import math
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

MAX_BYTES = 64 << 20
"""Largest calibration file in bytes."""


class ParsedFile:
    """A path and, if it is a text file, its content."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def document(self) -> dict[str, Any] | None:
        """The mapping in a JSON, YAML or XML file; None if the file is something else."""
        if not self.path.is_file() or self.path.suffix.lower() in (".npy", ".bin", ".npz"):
            return None
        if self.path.stat().st_size > MAX_BYTES:
            raise ValueError(f"{self.path}: larger than {MAX_BYTES >> 20} MiB, not a calibration file")
        try:
            text = self.path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError:
            raise ValueError(f"{self.path}: not a text file and no format that is known") from None
        if not text.strip():
            raise ValueError(f"{self.path}: an empty file, not a calibration")
        content = _parse(self.path, text)
        return content if isinstance(content, dict) else None


def _parse(path: Path, text: str) -> Any:
    start = text.lstrip()[:1]
    try:
        if start == "{":
            return _parse_json(text)
        return _parse_xml(text) if start == "<" else _parse_yaml(text)
    except (ValueError, RecursionError, ElementTree.ParseError) as error:
        kind = {"{": "JSON", "<": "OpenCV XML"}.get(start, "YAML")
        raise ValueError(
            f"{path}: not {kind} ({' '.join(str(error).split())[:120]}); export it again"
        ) from None


def _parse_json(text: str) -> Any:
    """Parse JSON; of JSON lines, the first."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data" and "\n" in text.strip():
            return json.loads(text.strip().splitlines()[0])
        raise


def _parse_yaml(text: str) -> Any:
    """Parse YAML, also OpenCV's, which starts with an invalid `%YAML:1.0` and has its own tags."""
    try:
        import yaml
    except ImportError:
        raise OSError("YAML files need PyYAML; pip install 'g-ray[calib]'") from None

    class Loader(yaml.SafeLoader):
        """A subclass, so that the tag is registered here only."""

    def mapping(loader: Any, suffix: str, node: Any) -> Any:
        if isinstance(node, yaml.MappingNode):
            return loader.construct_mapping(node, deep=True)
        return loader.construct_sequence(node, deep=True)

    Loader.add_multi_constructor("tag:yaml.org,2002:opencv-", mapping)
    try:
        return yaml.load(re.sub(r"\A%YAML:[^\n]*\n", "", text), Loader)  # a SafeLoader
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _parse_xml(text: str) -> Any:
    root = ElementTree.fromstring(text)
    if root.tag != "opencv_storage":
        raise ValueError(f"its root is <{root.tag}>, not <opencv_storage>")
    return {child.tag: _convert_element(child) for child in root}


def _convert_element(element: ElementTree.Element) -> Any:
    if len(element):
        return {child.tag: _convert_element(child) for child in element}
    words = (element.text or "").split()
    return words[0] if len(words) == 1 else " ".join(words)


def parse_number(value: Any, name: str) -> float:
    """Convert a value to a number (YAML reads 1e-5 as text, XML all values); ValueError unless it is finite."""
    try:
        result = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        result = math.nan
    if not math.isfinite(result):
        raise ValueError(f"{name} is {_shorten(value)}, not a number")
    return result


def parse_positive_int(value: Any, name: str) -> int:
    """Convert a value to a positive whole number; ValueError if it is none."""
    result = parse_number(value, name)
    if not result.is_integer() or result <= 0:
        raise ValueError(f"{name} is {_shorten(value)}, not a positive whole number")
    return int(result)


def parse_numbers(value: Any, name: str, counts: Sequence[int] = ()) -> list[float]:
    """Convert a list of numbers, nested or not, or an OpenCV matrix {rows, cols, data}, of one of the given lengths."""
    if isinstance(value, dict):
        if "data" not in value:
            raise ValueError(f"{name} has no data")
        data = parse_numbers(value["data"], name)
        if "rows" in value and "cols" in value:
            size = parse_positive_int(value["rows"], f"{name}.rows") * parse_positive_int(
                value["cols"], f"{name}.cols"
            )
            if size != len(data):
                raise ValueError(f"{name} says {size} values and has {len(data)}")
    elif isinstance(value, list):
        rows = [item if isinstance(item, list) else [item] for item in value]
        data = [parse_number(item, name) for row in rows for item in row]
    elif isinstance(value, str):
        data = [parse_number(item, name) for item in value.split()]
    else:
        raise ValueError(f"{name} is {_shorten(value)}, not a list of numbers")
    if counts and len(data) not in counts:
        wanted = " or ".join(map(str, counts))
        raise ValueError(f"{name} has {len(data)} values, not {wanted}")
    return data


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "…"
