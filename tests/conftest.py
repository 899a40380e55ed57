"""What every test shares: run-time shape checks, where shared data lies, one thread, a hypothesis profile."""

import os
from pathlib import Path

import pytest

# Before anything imports g_ray: every jaxtyping signature is then checked by beartype at each call.
# G_RAY_TYPECHECK=0 switches it off (torch.compile cannot trace through the checks).
if os.environ.get("G_RAY_TYPECHECK", "1") != "0":
    from jaxtyping import install_import_hook

    install_import_hook("g_ray", "beartype.beartype")

import torch
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]

torch.set_num_threads(1)
settings.register_profile("here", deadline=None, max_examples=50)
settings.register_profile("ci", deadline=None, max_examples=50, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")


def shared_data_path() -> Path:
    return Path(os.environ.get("G_RAY_SHARED_DATA", ROOT.parent / "shared" / "data"))


def existing(path: Path, what: str) -> Path:
    if not path.is_dir():
        pytest.skip(f"no {what} at {path}; set G_RAY_SHARED_DATA to the folder of real data")
    return path


@pytest.fixture(scope="session")
def repo_root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data, or a skip."""
    return existing(shared_data_path(), "real data")


@pytest.fixture(scope="session")
def shared_vectors() -> Path:
    """The folder of reference vectors beside the real data, or a skip."""
    return existing(shared_data_path().parent / "vectors", "reference vectors")


@pytest.fixture(scope="session")
def shared_paper() -> Path:
    """The folder with the paper's source beside the real data, or a skip."""
    return existing(shared_data_path().parent / "paper", "paper source")
