"""Blocks of the README and the docs that are generated from code and data are up to date."""

import json
import re

import pytest

from . import generated_text
from .generated_text import BLOCKS, ROOT, find_dirty_tables, replace_block


@pytest.mark.parametrize(("file", "name"), BLOCKS, ids=lambda part: part)
def test_generated_block_is_up_to_date(file, name):
    text = (ROOT / file).read_text()
    assert replace_block(text, name, BLOCKS[file, name]()) == text, "run `make generated`"


def test_every_marked_block_has_a_generator():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    marked = {
        (str(page.relative_to(ROOT)), name)
        for page in pages
        for name in re.findall(r"<!-- generated: (.*?) -->", page.read_text())
    }
    assert marked == set(BLOCKS)


def test_tables_are_made_from_a_commit(monkeypatch, tmp_path):
    assert find_dirty_tables() == []
    for name, commit in (
        ("clean", "a1b2"),
        ("mine", "a1b2-dirty"),
        (generated_text.TO_REPEAT[0], "a1b2-dirty"),
    ):
        (tmp_path / "results" / name).mkdir(parents=True)
        document = {"provenance": {"commit": commit}}
        (tmp_path / "results" / name / "result.json").write_text(json.dumps(document))
    monkeypatch.setattr(generated_text, "ROOT", tmp_path)
    monkeypatch.setattr(generated_text, "BLOCKS", {})
    with pytest.raises(SystemExit, match="made with local changes: mine; commit them"):
        generated_text.main()
