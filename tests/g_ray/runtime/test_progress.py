"""The bar on a terminal, lines elsewhere; throughput and time left."""

import io

import pytest

from g_ray.runtime import progress as module
from g_ray.runtime.progress import Progress, format_duration


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def time(monkeypatch):
    """A clock that is set by hand."""
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def advance(progress, time, steps, seconds):
    for step in range(1, steps + 1):
        time[0] += seconds
        progress.advance(step)


def test_lines_where_there_is_no_terminal(time):
    out = io.StringIO()
    progress = Progress(100, 0, 16, out)
    progress.report({"loss": 0.123456, "lr": 1e-3})
    advance(progress, time, 100, 0.5)
    lines = out.getvalue().splitlines()
    assert len(lines) == 5 and "\r" not in out.getvalue()
    assert lines[0] == "20/100 (20%)  2.00 steps/s  32.0 samples/s  0:40 left  loss 0.1235  lr 0.001"
    assert lines[-1].startswith("100/100 (100%)") and "0:00 left" in lines[-1]


def test_a_bar_on_a_terminal(time):
    out = Terminal()
    progress = Progress(10, 0, 1, out)
    advance(progress, time, 5, 1.0)
    progress.print_line("step 5: validation 1")
    progress.close()
    last = out.getvalue().split("\r")
    assert any(text.startswith("━" * 12 + "·" * 12 + " 5/10 (50%)") for text in last)
    assert "step 5: validation 1\n" in out.getvalue()


def test_pauses_do_not_count(time):
    progress = Progress(10, 0, 1, io.StringIO())
    advance(progress, time, 1, 1.0)
    time[0] += 1000
    progress.reset_timer()
    time[0] += 1.0
    progress.advance(2)
    assert progress.rate == pytest.approx(1.0)


def test_other_ranks_are_quiet(time):
    out = Terminal()
    progress = Progress(10, 0, 1, out, quiet=True)
    advance(progress, time, 10, 1.0)
    progress.print_line("x")
    progress.close()
    assert out.getvalue() == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(5.0, "0:05"), (75.0, "1:15"), (3675.4, "1:01:15"), (360_000.0, "100:00:00")]
)
def test_clock(seconds, text):
    assert format_duration(seconds) == text
