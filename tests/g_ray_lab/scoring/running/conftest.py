"""Runs of `g-ray evaluate` on miniatures."""

import json

import pytest

from g_ray.cli.main import main
from g_ray_lab.scoring.protocol_registry import PROTOCOLS


@pytest.fixture
def evaluate(miniature_root, tmp_path):
    """`evaluate(protocol, *options)`: run the command on a small miniature; returns the exit code and result.json."""

    def run(name, *options, data=None, out="out"):
        root = data or miniature_root(PROTOCOLS[name].dataset)
        words = ["evaluate", name, "--data", str(root), "--out", str(tmp_path / out), *map(str, options)]
        if "--width" not in words:
            words += ["--width", "98"]
        code = main(words)
        result = tmp_path / out / "result.json"
        return code, json.loads(result.read_text()) if result.is_file() else None

    return run
