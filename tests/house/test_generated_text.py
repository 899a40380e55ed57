"""Blocks of the README and the docs that are generated from code and data are up to date."""

import re

import pytest

from .generated_text import BLOCKS, ROOT, replace_block


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
