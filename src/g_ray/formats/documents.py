"""Parse calibration files once for all formats: JSON and YAML (with OpenCV's dialects), XML, .npz; check numbers.

Files come from anywhere. Keys that are there twice are refused, since parsers would silently drop one of the values;
numbers are finite and bounded; messages quote foreign data only in short (`describe`).
"""

import gzip
import json
import math
import re
import zipfile
from collections import Counter
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

MAX_BYTES = 64 << 20
"""Largest calibration file in bytes, unpacked."""
MAX_NUMBER = 1e12
"""Largest number in a file. Nothing in a calibration is larger, and squares of it stay finite in float32."""
MAX_SIDE = 1 << 20
"""Largest side of an image in pixels."""
BASE64 = "$base64$"
"""How OpenCV begins encoded numbers in JSON."""
MAX_VALUES = 4096
"""Numbers of the largest array of a .npz that may belong to a lens; others are points, images or maps."""
NUMBERS_START = "#polynomial coefficients"
"""How OCamCalib's files begin."""
BINARY = (".npy", ".bin", ".vrs")


class ParsedFile:
    """A path and, if it is a text file, its content."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def document(self) -> dict[str, Any] | None:
        """The mapping in a JSON, YAML or XML file; None if the file is something else."""
        content = self.content
        return content if isinstance(content, dict) else None

    @cached_property
    def text(self) -> str:
        """The characters of a text file."""
        return _decode(self.path, _read_bytes(self.path))

    @cached_property
    def is_list_of_numbers(self) -> bool:
        """Whether it is a text file of bare numbers under comments, which no parser of documents reads."""
        if not self.path.is_file() or self.path.suffix.lower() in (*BINARY, ".npz", ".gz"):
            return False
        with self.path.open("rb") as file:
            return file.read(len(NUMBERS_START)) == NUMBERS_START.encode()

    @cached_property
    def content(self) -> Any:
        """What a JSON, YAML, XML or .npz file holds; None if it is something else."""
        if not self.path.is_file() or self.path.suffix.lower() in BINARY or self.is_list_of_numbers:
            return None
        if self.path.suffix.lower() == ".npz":
            return _read_arrays(self.path)
        if not self.text.strip():
            raise ValueError(f"{self.path}: an empty file, not a calibration")
        return _parse(self.path, self.text)

    @property
    def xml_root(self) -> ElementTree.Element | None:
        """The root of an XML file that is not OpenCV's."""
        return self.content if isinstance(self.content, ElementTree.Element) else None


def read_json_object(path: Path, what: str) -> dict[str, Any]:
    """Read the JSON object in a file; ValueError names the file, and what was expected, if there is none."""
    try:
        text = _decode(path, _read_bytes(path))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        content = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON ({_shorten_reason(error)}); export it again") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: it must be an object with {what}")
    return content


def _read_bytes(path: Path) -> bytes:
    """Read a file, unpacked if it is compressed, up to a bound."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError(f"{path}: a pipe or a device, not a file")  # reading it may never end
    size_error = ValueError(f"{path}: larger than {MAX_BYTES >> 20} MiB, not a calibration file")
    if path.stat().st_size > MAX_BYTES:
        raise size_error
    if path.suffix.lower() != ".gz":
        return path.read_bytes()
    try:
        with gzip.open(path) as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, EOFError, ValueError) as error:
        raise ValueError(f"{path}: cannot be unpacked ({_shorten_reason(error)}); copy it again") from None
    if len(content) > MAX_BYTES:
        raise size_error
    return content


def _decode(path: Path, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: neither text in UTF-8 nor a format that is known") from None


def _read_arrays(path: Path) -> dict[str, Any]:
    """Return the arrays that numpy.savez has written, as lists; None for objects, which only pickle could read."""
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {entry.filename.removesuffix(".npy"): entry.file_size for entry in archive.infolist()}
            if sum(sizes.values()) > MAX_BYTES:
                raise ValueError(f"larger than {MAX_BYTES >> 20} MiB")
            return {name[:80]: _read_small_array(archive, name) for name in sizes}
    except Exception as error:  # damaged archives make numpy, zipfile and zlib raise many kinds
        raise ValueError(
            f"{path}: cannot be read as .npz ({_shorten_reason(error)}); save it again"
        ) from None


def _read_small_array(archive: zipfile.ZipFile, name: str) -> Any:
    with archive.open(f"{name}.npy") as file:
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        # The header is read first: it may claim any size.
        shape, _, dtype = read_header[np.lib.format.read_magic(file)](file)
        if dtype.hasobject or not 0 <= math.prod(shape) <= MAX_VALUES:
            return None
    with archive.open(f"{name}.npy") as file:
        return np.lib.format.read_array(file, allow_pickle=False).tolist()


def _parse(path: Path, text: str) -> Any:
    start = text.lstrip()[:1]
    try:
        if start == "{":
            return parse_json(text)
        return _parse_xml(text) if start == "<" else parse_yaml(text)
    except (ValueError, RecursionError, ElementTree.ParseError) as error:
        kind = {"{": "JSON", "<": "XML"}.get(start, "YAML")
        raise ValueError(f"{path}: not {kind} ({_shorten_reason(error)}); export it again") from None


def _shorten_reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return " ".join(str(error).split())[:120]


def parse_json(text: str) -> Any:
    """Parse JSON; of JSON lines, the first. ValueError if a key is there twice, RecursionError if nested too deeply."""
    try:
        return json.loads(text, object_pairs_hook=_make_object)
    except json.JSONDecodeError as error:
        if re.search(r"^\s*//", text, re.MULTILINE):
            # OpenCV writes comments, on lines of their own.
            return parse_json(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
        if error.msg == "Extra data" and "\n" in text.strip():
            return json.loads(text.strip().splitlines()[0], object_pairs_hook=_make_object)
        raise


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {next(key for key in keys if keys.count(key) > 1)[:40]!r} is there twice")
    return result


def _parse_xml(text: str) -> Any:
    """Return OpenCV's storage as a mapping, and any other XML as its root."""
    root = ElementTree.fromstring(text)
    return _convert_children(root) if root.tag == "opencv_storage" else root


def _convert_children(element: ElementTree.Element) -> dict[str, Any]:
    return _make_object([(child.tag, _convert_element(child)) for child in element])


def _convert_element(element: ElementTree.Element) -> Any:
    if len(element):
        # A list has nameless entries, <_>…</_>.
        if all(child.tag == "_" for child in element):
            return [_convert_element(child) for child in element]
        return _convert_children(element)
    if element.get("type_id") == "binary":
        return f"{BASE64}{(element.text or '').strip()}"
    words = (element.text or "").split()
    return words[0] if len(words) == 1 else " ".join(words)


# Checked numbers


def parse_number(value: Any, name: str) -> float:
    """Convert a value to a number (YAML reads 1e-5 as text, XML all values); ValueError unless finite and bounded."""
    if value is None:
        raise ValueError(f"{name} is missing")
    try:
        is_number = isinstance(value, int | float | str) and not isinstance(value, bool)
        result = float(value) if is_number and "_" not in str(value)[:400] else math.nan
    except (ValueError, OverflowError):
        result = math.nan
    if not abs(result) <= MAX_NUMBER:
        bound = f" up to {MAX_NUMBER:.0e}" if abs(result) > MAX_NUMBER else ""
        raise ValueError(f"{name} is {describe(value)}, not a number{bound}")
    return result


def parse_positive_int(value: Any, name: str, limit: int = MAX_SIDE) -> int:
    """Convert a value to a positive whole number, e.g. of pixels; ValueError if it is none or beyond the limit."""
    result = parse_number(value, name)
    if not result.is_integer() or not 0 < result <= limit:
        raise ValueError(f"{name} is {describe(value)}, not a positive whole number up to {limit}")
    return int(result)


def parse_numbers(value: Any, name: str, counts: Sequence[int] = ()) -> list[float]:
    """Convert a list of numbers, nested or not, or an OpenCV matrix {rows, cols, data}, of one of the given lengths."""
    if isinstance(value, dict):
        if "data" not in value:
            raise ValueError(f"{name} has no data")
        data = parse_numbers(value["data"], name)
        if "rows" in value and "cols" in value:
            rows, columns = (parse_number(value[key], f"{name}.{key}") for key in ("rows", "cols"))
            if rows * columns != len(data):
                raise ValueError(f"{name} declares {rows:g}×{columns:g} values but has {len(data)}")
    elif isinstance(value, list):
        rows = [item if isinstance(item, list) else [item] for item in value]
        data = [parse_number(item, name) for row in rows for item in row]
    elif isinstance(value, bytes) or (isinstance(value, str) and value.startswith(BASE64)):
        raise ValueError(f"{name} is in base64: write the file without OpenCV's FILE_STORAGE_WRITE_BASE64")
    elif isinstance(value, str):
        data = [parse_number(item, name) for item in value.split()]
    elif value is None:
        raise ValueError(f"{name} is missing")
    else:
        raise ValueError(f"{name} is {describe(value)}, not a list of numbers")
    if counts and len(data) not in counts:
        wanted = " or ".join(map(str, counts))
        raise ValueError(f"{name} has {len(data)} values, not {wanted}")
    return data


def describe(value: Any) -> str:
    """Describe a value of a foreign file in a few characters, whatever its size: lists and objects by their kind."""
    if value is None:
        return "missing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) or (isinstance(value, int) and abs(value) < 1 << 53):
        return f"{value:g}" if isinstance(value, float) else str(value)
    if isinstance(value, str):
        short = "".join(character if character.isprintable() else "�" for character in value[:40])
        return repr(short if len(value) <= 40 else short[:37] + "…")
    kinds = {int: "an integer of many digits", list: "a list", dict: "an object", tuple: "a list"}
    return kinds.get(type(value), "something else")


# Arrays


def load_array(path: Path, *, in_memory: bool = True) -> np.ndarray:
    """Load an array, or map it; ValueError, without the file's name, if the file is damaged or no array."""
    try:
        return np.load(path, mmap_mode=None if in_memory else "r", allow_pickle=False)
    except Exception:  # numpy parses headers as Python code, and raises whatever its parser does
        raise ValueError("cannot be read as .npy; save it again with numpy.save") from None


# YAML without its surprises


MAX_ALIASED_NODES = 10_000
"""Values that aliases may stand for in one file. Ten lines of aliases to aliases would otherwise stand for billions."""


def parse_yaml(text: str) -> Any:
    """Parse YAML; ValueError if it is none. OpenCV's starts with an invalid `%YAML:1.0` and has its own tags."""
    try:
        import yaml
    except ImportError:
        raise OSError("YAML files need PyYAML; pip install 'g-ray[calib]'") from None
    try:
        documents = [one for one in yaml.load_all(_to_standard(text), _make_loader()) if one is not None]
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    if any(_drop_header(one) != _drop_header(documents[0]) for one in documents[1:]):
        raise ValueError("several documents that differ; keep one")
    return documents[0] if documents else None


def _to_standard(text: str) -> str:
    """Return OpenCV's dialect as YAML: without its first line, and with a space between a key and a list."""
    if not text.startswith("%YAML:"):
        return text
    return re.sub(r"^(\s*[\w.]+:)\[", r"\1 [", text.partition("\n")[2], flags=re.MULTILINE)


def _drop_header(document: Any) -> Any:
    """Leave out the time stamp of a ROS message: `ros2 topic echo` prints the same calibration again and again."""
    return (
        {key: value for key, value in document.items() if key != "header"}
        if isinstance(document, dict)
        else document
    )


def _make_loader() -> Any:
    """Make a subclass of SafeLoader; PyYAML is imported only where there is a YAML file."""
    import yaml

    class Loader(yaml.SafeLoader):
        """A subclass, so that the tag is registered here only."""

        def __init__(self, text: str) -> None:
            super().__init__(text)
            self.sizes: dict[int, int] = {}
            self.aliased = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            """Compose a node, counting what aliases stand for."""
            is_alias = self.check_event(yaml.AliasEvent)
            node = super().compose_node(parent, index)
            if is_alias:
                if id(node) not in self.sizes:
                    raise ValueError("an alias that contains itself")
                self.aliased += self.sizes[id(node)]
                if self.aliased > MAX_ALIASED_NODES:
                    raise ValueError(f"aliases that stand for more than {MAX_ALIASED_NODES} values")
            else:
                self.sizes[id(node)] = 1 + sum(self.sizes[id(child)] for child in _list_children(node))
            return node

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            """Build a mapping; a key that is there twice would silently hide its first value."""
            if isinstance(node, yaml.MappingNode):
                keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
                twice = [key for key, count in Counter(keys).items() if count > 1 and key != "<<"]
                if twice:
                    raise ValueError(f"key {twice[0][:40]!r} is there twice")
            return super().construct_mapping(node, deep)

    def construct_tagged(loader: Any, suffix: str, node: Any) -> Any:
        if isinstance(node, yaml.MappingNode):
            return loader.construct_mapping(node, deep=True)
        return loader.construct_sequence(node, deep=True)

    Loader.add_multi_constructor("tag:yaml.org,2002:opencv-", construct_tagged)
    return Loader


def _list_children(node: Any) -> list[Any]:
    if not isinstance(node.value, list):
        return []
    # Pairs of a mapping, or items of a sequence.
    return [part for item in node.value for part in (item if isinstance(item, tuple) else (item,))]


# Names of lens parameters


_LENS = re.compile(
    r"dist(?!ance)|lens|fisheye|omni|equirect|panorama|is\w*(fisheye|omni|equi|pano)|xi\d?$|skew|shear|tilt|tau[xy]?$"
    r"|ftheta|camera(model|type)|projection(type|model)|[kpsb]\d+$"
)


@lru_cache(maxsize=4096)
def names_lens(key: str) -> bool:
    """Return whether a key is called like distortion, a coefficient of it, or a camera model, in any spelling."""
    return _LENS.match(re.sub(r"[^a-z0-9]", "", key[:80].lower())) is not None
