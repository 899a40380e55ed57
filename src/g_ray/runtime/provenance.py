"""Collect where, when and with which versions a number was measured, for files of results."""

import hashlib
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import torch

PACKAGE = Path(__file__).resolve().parents[1]


def collect_provenance() -> dict[str, object]:
    """Return hardware, operating system, UTC date, commit, and the versions of Python and torch."""
    return {
        "hardware": f"{read_processor()}, {os.cpu_count()} cores, {read_memory_gib()} GiB",
        "system": platform.platform(terse=True),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": read_commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def read_processor() -> str:
    """Return the model name of the CPU, or its architecture where the system does not name it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def read_memory_gib() -> int:
    """Return the installed memory in GiB, rounded."""
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)


def read_commit(package: Path = PACKAGE) -> str:
    """Return the commit of the checkout that this package runs from, with `-dirty` if it has local changes.

    An installed package or a copy without git returns its release and a digest of its source, even if it lies inside
    some other repository: only a checkout that tracks the package's own files counts.
    """
    head = None
    if _run_git(package, "ls-files", "--error-unmatch", "__init__.py") is not None:
        head = _run_git(package, "rev-parse", "HEAD")
    if head is None:
        return f"release {read_release()}, source {hash_source(package)}"
    return head + "-dirty" * bool(_run_git(package, "status", "--porcelain", "--untracked-files=no"))


def read_release() -> str:
    """Return the version of the installed package, or `none` for a copy that is not installed."""
    try:
        return metadata.version("g-ray")
    except metadata.PackageNotFoundError:
        return "none"


def hash_source(package: Path = PACKAGE) -> str:
    """Return a digest of all Python files of a package and their names."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def _run_git(folder: Path, *arguments: str) -> str | None:
    """Return the output of a git command in `folder`, or None if it fails or git is missing."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
