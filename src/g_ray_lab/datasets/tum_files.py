"""Files of the TUM RGB-D benchmark: lists of stamped files, trajectories, and what belongs together by time.

rgb.txt            1341845688.538082 rgb/1341845688.538082.png
groundtruth.txt    1341845688.5380 tx ty tz qx qy qz qw        (world_from_cam of the color camera, meters)

Lines that begin with # are comments.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

MAX_DIFFERENCE_S = 0.02
"""As the benchmark's own tool associates."""


def read_stamped_lines(path: Path, values: int) -> list[tuple[float, tuple[str, ...]]]:
    """Read lines of a time in seconds and a number of further words; ValueError names a line with other ones."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise ValueError(f"{path}: no such file; unpack the sequence again") from None
    stamped = []
    for number, line in enumerate(lines, 1):
        words = line.replace(",", " ").split()
        if not words or words[0].startswith("#"):
            continue
        try:
            time_s = float(words[0])
        except ValueError:
            time_s = float("nan")
        if len(words) != values + 1 or not np.isfinite(time_s):
            raise ValueError(f"{path}, line {number}: not a time and {values} values: {line[:60]!r}")
        stamped.append((time_s, tuple(words[1:])))
    if not stamped:
        raise ValueError(f"{path}: no lines in it; unpack the sequence again")
    return stamped


def associate(
    first: Sequence[float], second: Sequence[float], max_difference_s: float = MAX_DIFFERENCE_S
) -> list[tuple[int, int]]:
    """Pair times of two lists, the nearest pairs first and each time at most once; sorted by the first list's times."""
    times, others = np.asarray(first), np.asarray(second)
    order = np.argsort(others, kind="stable")
    low = np.searchsorted(others[order], times - max_difference_s)
    high = np.searchsorted(others[order], times + max_difference_s, side="right")
    candidates = [
        (abs(float(times[i] - others[j])), i, int(j))
        for i in range(len(times))
        for j in order[low[i] : high[i]]
    ]
    used_first, used_second, pairs = set[int](), set[int](), []
    for difference, i, j in sorted(candidates):
        if difference < max_difference_s and i not in used_first and j not in used_second:
            used_first.add(i)
            used_second.add(j)
            pairs.append((i, j))
    return sorted(pairs, key=lambda pair: (times[pair[0]], pair))
