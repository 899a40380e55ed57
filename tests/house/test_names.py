"""Names are unique: a class or a file that is looked up by its name is found in one place."""

import ast
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src"
FILES = sorted(SOURCE.rglob("*.py"))
COMMON = {"__init__.py", "__main__.py"}


def test_class_names_are_used_once():
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in FILES]
    names = Counter(node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    assert not [name for name, count in names.items() if count > 1 and not name.startswith("_")]


def test_file_names_are_used_once():
    names = Counter(path.name for path in FILES if path.name not in COMMON)
    assert not [name for name, count in names.items() if count > 1]
