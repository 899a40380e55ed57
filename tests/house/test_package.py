"""The installed package: version, license, lazy names."""

import ast
import subprocess
import sys
import tomllib
from importlib.metadata import metadata
from pathlib import Path

import pytest

import g_ray


def test_version_is_the_distribution_version():
    assert metadata("g-ray")["Version"] == g_ray.__version__


def test_importing_the_package_does_not_import_torch():
    code = "import sys, g_ray; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_every_public_name_resolves():
    for name in g_ray.__all__:
        assert getattr(g_ray, name) is not None


def test_type_checkers_and_python_see_the_same_names():
    tree = ast.parse(Path(g_ray.__file__).read_text())
    static = {
        alias.name: node.module
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert static == g_ray._HOME


def test_a_wrong_name_is_refused():
    with pytest.raises(AttributeError, match="no attribute 'Wiews'"):
        g_ray.Wiews  # noqa: B018
    assert set(g_ray.__all__) == set(dir(g_ray))


def test_type_checkers_may_use_the_annotations():
    """PEP 561: the marker is next to the modules, so hatchling, which packs the folder, puts it into the wheel."""
    assert (Path(g_ray.__file__).parent / "py.typed").is_file()
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert pyproject["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["src/g_ray"]
