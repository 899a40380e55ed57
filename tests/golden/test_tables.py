"""Tables at a tiny size, made by command lines, against the results in data/tables (`make.py` writes them)."""

import json
import os

import golden_access as access
import golden_tables as tables
import pytest

SHOWN = 20
"""Differences in a message, at most."""

CHEAP = [name for name, table in tables.GOLDEN_TABLES.items() if not table.expensive]
EXPENSIVE = [name for name, table in tables.GOLDEN_TABLES.items() if table.expensive]


def check_table(name, tmp_path):
    if missing := tables.find_missing(tables.GOLDEN_TABLES[name]):
        pytest.skip(f"no {missing} here")
    found = json.loads(json.dumps(tables.record_table(name, tmp_path)))
    lines = tables.find_table_differences(tables.read_golden_table(name), found)
    assert not lines, "\n".join([f"{len(lines)} differences from the golden file:", *lines[:SHOWN]])


@pytest.mark.parametrize("name", CHEAP)
def test_table(name, tmp_path):
    check_table(name, tmp_path)


@pytest.mark.skipif(os.environ.get(tables.EVERYTHING) != "all", reason=f"{tables.EVERYTHING}=all runs it")
@pytest.mark.parametrize("name", EXPENSIVE)
def test_expensive_table(name, tmp_path):
    check_table(name, tmp_path)


def test_every_table_has_a_record():
    words = [table.commands[-1].split()[:2] for table in tables.GOLDEN_TABLES.values()]
    frozen = {name for command, name in words if command == "reproduce"}
    # recon-converged takes minutes with a single step; its parts have records of their own.
    assert set(access.list_subcommands(["reproduce"])) - {"recon-converged"} == frozen


def test_numbers_may_differ_in_their_last_place_only():
    assert tables.is_same_line("| gray | 1.226 ± 0.020 | 3 |", "| gray | 1.227 ± 0.020 | 3 |")
    assert not tables.is_same_line("| gray | 1.226 ± 0.020 | 3 |", "| gray | 1.228 ± 0.020 | 3 |")
    assert not tables.is_same_line("| gray | 1.226 | 3 |", "| gray | 1.226 | 4 |")
    assert not tables.is_same_line("| gray | 1.226 |", "| rope | 1.226 |")


def test_columns_of_times_are_left_out():
    lines = ["| model | CPU s per set | sets |", "|---|---|---|", "| a | 0.1 | 2 |", "", "0.1 seconds"]
    assert tables.drop_times(lines) == ["| model | sets |", "|---|---|", "| a | 2 |", "", "0.1 seconds"]
