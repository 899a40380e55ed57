"""Which tests `make quick` leaves out: those that took long when `make slow-tests` was last run.

`slow_tests.txt` is the list, and `conftest.py` marks its tests `slow`. A test that was renamed since is not in the list
any more; `conftest.py` lets an unlisted test fail if it takes very long, so the list cannot become useless unnoticed.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

LIST = Path(__file__).with_name("slow_tests.txt")
SLOWEST_S = 0.5
"""Seconds of a test, or of the slowest case of a parametrized one, from which on it is slow."""
TOTAL_S = 2.0
"""… or of all cases together."""


def read_slow_tests() -> frozenset[str]:
    return frozenset(LIST.read_text().splitlines())


def strip_case(name: str) -> str:
    """Return the name of a test without the case in brackets."""
    return re.sub(r"\[.*", "", name, flags=re.DOTALL)


def read_report(file: Path) -> dict[str, list[float]]:
    """Return the seconds of every case of every test in a JUnit report of pytest."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for case in ElementTree.parse(file).iter("testcase"):
        path = case.attrib["classname"].replace(".", "/") + ".py"
        seconds[f"{path}::{strip_case(case.attrib['name'])}"].append(float(case.attrib["time"]))
    return seconds


def write_slow_tests(seconds: Mapping[str, list[float]]) -> None:
    names = (name for name, times in seconds.items() if max(times) >= SLOWEST_S or sum(times) >= TOTAL_S)
    LIST.write_text("".join(f"{name}\n" for name in sorted(names)))


if __name__ == "__main__":
    write_slow_tests(read_report(Path(sys.argv[1])))
