"""Where, when and with what a number was measured."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import torch

PACKAGE = Path(__file__).resolve().parents[1]


def collect_provenance() -> dict[str, object]:
    return {
        "hardware": f"{read_processor()}, {os.cpu_count()} cores, {read_memory_gib()} GiB",
        "system": platform.platform(terse=True),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": read_commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def read_processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def read_memory_gib() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)


def read_commit(package: Path = PACKAGE) -> str:
    """Commit of the checkout that this package runs from, `-dirty` with local changes; `unknown` if installed.

    `ls-files` first: an installed package may lie inside somebody else's repository.
    """
    if _run_git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return "unknown"
    head = _run_git(package, "rev-parse", "HEAD") or "unknown"
    return head + "-dirty" * bool(_run_git(package, "status", "--porcelain", "--untracked-files=no"))


def _run_git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
