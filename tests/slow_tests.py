"""Which tests `make quick` leaves out: those that `make slow-tests` has found to be slow.

`slow_tests.txt` is the list, and `conftest.py` marks its tests `slow`. A test that was renamed since is not in the list
any more; `conftest.py` lets an unlisted test fail if it takes very long, so the list cannot become useless unnoticed.
Times are CPU times, which depend on the load of the machine much less than times on the clock.
"""

import os
import re
import sys
from collections import defaultdict
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

LIST = Path(__file__).with_name("slow_tests.txt")
SLOWEST_S = 0.3
"""CPU seconds of a test, or of the slowest case of a parametrized one, from which on it is slow."""
TOTAL_S = 1.0
"""… or of all cases together."""


def read_slow_tests() -> frozenset[str]:
    return frozenset(LIST.read_text().splitlines())


def strip_case(name: str) -> str:
    """Return the name of a test without the case in brackets."""
    return re.sub(r"\[.*", "", name, flags=re.DOTALL)


def read_cpu_seconds() -> float:
    """Return the CPU time of this process and of its finished children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class CostMeter:
    """pytest plugin that appends a line to a file for every test: its CPU seconds and its name.

    Fixtures that several tests share are counted for each of them: without the first test, another one pays.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.fixtures: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        before = read_cpu_seconds()
        result = yield
        self.fixtures[fixturedef.argname] = read_cpu_seconds() - before
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: Any) -> Generator[None, Any, Any]:
        before = read_cpu_seconds()
        try:
            return (yield)
        finally:
            shared = sum(self.fixtures.get(name, 0.0) for name in item.fixturenames)
            with self.file.open("a") as lines:
                lines.write(f"{read_cpu_seconds() - before + shared:.3f} {item.nodeid}\n")


def read_costs(file: Path) -> dict[str, list[float]]:
    """Return the seconds of every case of every test, as `CostMeter` has written them."""
    costs: dict[str, list[float]] = defaultdict(list)
    for seconds, name in re.findall(r"^(\d+\.\d+) (tests/.*)$", file.read_text(), re.MULTILINE):
        costs[strip_case(name)].append(float(seconds))
    return costs


def write_slow_tests(costs: Mapping[str, list[float]]) -> None:
    slow = (name for name, times in costs.items() if max(times) >= SLOWEST_S or sum(times) >= TOTAL_S)
    LIST.write_text("".join(f"{name}\n" for name in sorted(slow)))


if __name__ == "__main__":
    write_slow_tests(read_costs(Path(sys.argv[1])))
