"""Parse YAML of unknown origin, also OpenCV's dialect: plain data only, no repeated keys, bounded aliases."""

import re
from collections import Counter
from typing import Any

MAX_ALIASED_NODES = 10_000
"""Values that aliases may stand for in one file. Ten lines of aliases to aliases would otherwise stand for billions."""


def parse_yaml(text: str) -> Any:
    """Parse YAML; ValueError if it is none. OpenCV's starts with an invalid `%YAML:1.0` and has its own tags."""
    try:
        import yaml
    except ImportError:
        raise OSError("YAML files need PyYAML; pip install 'g-ray[tool]'") from None
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
