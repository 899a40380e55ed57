"""Makes `training_runs` importable by name, here and in the processes that it starts."""

import importlib
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def runs():
    """The module with recipes, runs and processes for these tests."""
    folder = str(Path(__file__).parent)
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module("training_runs")
