"""The installed package: version, license, lazy names."""

import ast
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points, metadata
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import g_ray
from g_ray.cli.commands import LAB
from g_ray.models import checkpoint

ROOT = Path(__file__).resolve().parents[2]


def read_project(folder: str) -> dict:
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]


def load_readme_hook():
    pytest.importorskip("hatchling")
    spec = spec_from_file_location("readme_hook", ROOT / "packaging" / "readme_hook.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


@pytest.mark.parametrize("package", ["g_ray", "g_ray_lab"])
def test_type_checkers_may_use_the_annotations(package):
    """PEP 561: the marker is next to the modules; `make package` checks that it is in the wheel."""
    assert (ROOT / "src" / package / "py.typed").is_file()


def test_distributions_have_one_version():
    lab, weights = (read_project(f"packaging/{name}") for name in ("lab", "weights"))
    assert lab["version"] == weights["version"] == g_ray.__version__
    assert read_project(".")["optional-dependencies"]["lab"] == [f"g-ray-lab=={g_ray.__version__}"]
    assert {line for line in lab["dependencies"] if line.startswith("g-ray")} == {
        f"g-ray[tool,view,depth,hub]=={g_ray.__version__}",
        f"g-ray-weights=={g_ray.__version__}",
    }


def test_every_entry_point_of_the_laboratory_loads():
    points = [
        point
        for group in ("commands", "converters", "scenes")
        for point in entry_points(group=f"g_ray.{group}")
    ]
    assert {point.name for point in points} >= {*LAB, "lvsm", "lab", "weights.ship"}
    assert all(point.load() is not None for point in points)


def test_links_of_the_readme_work_on_a_package_page():
    text = "[tour](docs/tour.md) ![a](docs/a.png) [out](https://example.org) [here](#install)"
    rewrite = load_readme_hook().rewrite_links
    assert rewrite(text, "") == "tour  [out](https://example.org) [here](#install)"
    assert rewrite(text, "https://example.org/g/") == (
        "[tour](https://example.org/g/blob/main/docs/tour.md) ![a](https://example.org/g/raw/main/docs/a.png) "
        "[out](https://example.org) [here](#install)"
    )
    page = rewrite((ROOT / "README.md").read_text(), "")
    assert "](docs/" not in page and "](examples/" not in page


def test_missing_weights_are_named(monkeypatch):
    monkeypatch.setattr(checkpoint, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="pip install g-ray-weights"):
        checkpoint.find_shipped("g-ray-rooms")
