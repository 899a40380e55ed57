"""The docs are correct: their code runs, the names and paths in them exist, and their tables name what the code has."""

import ast
import importlib
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import small_hosts

import g_ray

from .generated_text import load_registry

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
# Pages that describe the present state; the log is about the past.
CURRENT = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(page for page in PAGES if page.name != "log.md")]


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture
def released_networks(monkeypatch):
    """Modules of networks whose packages cannot be installed, with small networks of the same names and calls."""
    for kind in (small_hosts.VGGT, small_hosts.AsymmetricCroCo3DStereo):
        parts = kind.__module__.split(".")
        for end in range(1, len(parts) + 1):
            monkeypatch.setitem(sys.modules, ".".join(parts[:end]), ModuleType(".".join(parts[:end])))
        members = {
            "__module__": kind.__module__,
            "from_pretrained": classmethod(lambda cls, name: cls().eval()),
        }
        setattr(sys.modules[kind.__module__], kind.__name__, type(kind.__name__, (kind,), members))


@pytest.mark.usefixtures("released_networks")
@pytest.mark.parametrize("page", [page for page in PAGES if python_blocks(page)], ids=lambda page: page.stem)
def test_the_code_of_a_page_runs_from_top_to_bottom(page):
    scope: dict[str, object] = {}
    for number, block in enumerate(python_blocks(page)):
        exec(compile(block, f"{page.name}, block {number}", "exec"), scope)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.stem)
def test_code_that_is_not_run_compiles_and_imports_what_exists(page):
    """Blocks marked `py` need data or a browser, and are not run."""
    for block in re.findall(r"^```py\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    assert resolve(f"{node.module}.{alias.name}") is not None


# Tables with a sentence per entry are written by hand: their names are checked. docs/registries.md lists all names.
TABLES = {
    ("conventions", "Coordinates"): "coordinates",
    ("conventions", "Frequency banks"): "encodings",
    ("calibration", "Estimators"): "calibration estimators",
    ("hosts", "Networks"): "networks that are adapted",
    ("synthesis-network", "Model"): "synthesis methods",
    ("reconstruction-network", "Methods"): "reconstruction methods",
}


@pytest.mark.parametrize(("page", "heading"), TABLES)
def test_tables_name_entries_of_their_registry(page, heading):
    section = (ROOT / "docs" / f"{page}.md").read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    names = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert names
    assert names <= set(load_registry(TABLES[page, heading]))


def test_pixel_centers_of_calibration_sources():
    section = (ROOT / "docs" / "calibration.md").read_text().split("\n## Sources\n")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| ([^|]+) \| [^|]+ \| (0|0\.5) \|", section, re.MULTILINE))
    centers = {source.TITLE: f"{source.CENTER:g}" for source in load_registry("calibration sources").values()}
    assert len(rows) > 5
    assert rows == {title: centers[title] for title in rows}


def resolve(dotted: str) -> object:
    parts = dotted.split(".")
    for split in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for name in parts[split:]:
            found = getattr(found, name)
        return found
    raise ModuleNotFoundError(dotted)


def test_the_reference_has_an_example_of_every_public_name():
    """Blocks of the page are run above."""
    reference = (ROOT / "docs" / "api.md").read_text()
    examples = "\n".join(python_blocks(ROOT / "docs" / "api.md"))
    for name in set(g_ray.__all__) - {"__version__"}:
        assert re.search(rf"^(::: g_ray\.[\w.]+\.|### ){name}$", reference, re.MULTILINE), (
            f"{name} has no entry"
        )
        assert re.search(rf"\b{name}\b", examples), f"{name} has no example"


PAPER_MAP = (ROOT / "docs" / "paper-map.md").read_text()
NAMES = sorted(set(re.findall(r"`(g_ray(?:_lab)?\.[\w.]+)`", PAPER_MAP)))


@pytest.mark.parametrize("name", NAMES)
def test_the_paper_map_names_code_that_exists(name):
    assert callable(resolve(name))


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: page.stem)
def test_every_dotted_name_exists(page):
    """In prose and in code."""
    for name in set(re.findall(r"(?<![\w./-])g_ray(?:_lab)?(?:\.[A-Za-z_]\w*)+", page.read_text())):
        assert resolve(name) is not None, name


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: page.stem)
def test_every_path_exists(page):
    """A file called `my_…` is one that the reader writes: its folder exists."""
    paths = re.findall(
        r"(?<![\w./-])(?:src|tests|benchmarks|examples|packaging)/[\w./-]*\w", page.read_text()
    )
    for path in {ROOT / path for path in paths}:
        assert (path.parent if path.name.startswith("my_") else path).exists(), path


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: page.stem)
def test_every_extra_exists(page):
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.findall(r"g-ray\[([\w,]+)\]", page.read_text())
    assert {extra for extras in named for extra in extras.split(",")} <= set(known)


def test_every_labelled_equation_of_the_method_has_its_row(shared_paper):
    source = (shared_paper / "g-ray.tex").read_text()
    method = source.split("\\label{sec:method}")[1].split("\n\\section{")[0]
    appendix = source.split("\\label{app:method_details}")[1].split("\n\\section{")[0]
    labels = re.findall(r"\\label\{(eq:\w+)\}", method + appendix)
    rows = dict(re.findall(r"^\| `(eq:\w+)` \| .*? \| (.*) \|$", PAPER_MAP, re.MULTILINE))
    assert len(labels) > 20
    assert sorted(set(labels) - set(rows)) == [], "equations without a row"
    assert sorted(set(rows) - set(labels)) == [], "rows without an equation"
    assert all("`g_ray." in code for code in rows.values())


def test_every_equation_named_in_the_source_is_in_the_paper(shared_paper):
    labels = set(re.findall(r"\\label\{(eq:\w+)\}", (shared_paper / "g-ray.tex").read_text()))
    for path in (ROOT / "src").rglob("*.py"):
        assert set(re.findall(r"\beq:\w+", path.read_text())) <= labels, path


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert all(page.name in navigation for page in PAGES)


@pytest.mark.parametrize(
    "path", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda path: path.name
)
def test_relative_links_lead_somewhere(path):
    prose = re.sub(r"^ *```.*?^ *```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", prose):
        assert (path.parent / target).exists(), target
