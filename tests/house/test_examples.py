"""The examples run, and the plain ViT is what it says it is."""

import runpy
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

from .notebook import QUICKSTART, list_code, read_notebook, run_notebook

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "plain_vit.py"


def test_the_example_runs():
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "tokens" in done.stdout


def test_without_a_position_it_is_the_plain_vit_and_with_one_it_is_not():
    example = runpy.run_path(str(EXAMPLE))
    torch.manual_seed(0)
    block, x = example["Block"](64, 2), torch.randn(1, 16, 64)
    q, k, v = block.qkv(block.norm1(x)).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
    before = x + block.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
    before = before + block.mlp(block.norm2(before))
    assert torch.allclose(block(x), before, atol=1e-6)

    tokens = example["Views"]([example["Pinhole"].from_fov(70.0, 64, 64)]).tokens(16)
    position = example["encoding"]("gray", head_dim=32).prepare(tokens)
    assert not torch.allclose(block(x, position), before, atol=1e-3)


def test_the_swap_is_one_line_and_one_line_that_prepares():
    text = EXAMPLE.read_text()
    assert text.count("attention(q, k, v, position)") == 1
    assert text.count(".prepare(") == 1
    assert not any(word in text for word in ("register_buffer", "self.position", "self.camera"))


def describe_outputs(outputs: list[dict]) -> list[str]:
    """Return what cells print, to the second digit, and that they draw; pixels depend on the version of matplotlib."""
    return ["".join(one["text"]) if one["output_type"] == "stream" else "picture" for one in outputs]


def test_the_notebook_runs_and_prints_what_is_stored_in_it():
    notebook = read_notebook(QUICKSTART)
    for cell, outputs in zip(list_code(notebook), run_notebook(notebook, QUICKSTART.parent), strict=True):
        assert describe_outputs(outputs) == describe_outputs(cell["outputs"]), "".join(cell["source"])
    pictures = [
        one["data"]["image/png"] for cell in list_code(notebook) for one in cell["outputs"] if "data" in one
    ]
    assert len(pictures) == 4 and all(len(picture) > 5_000 for picture in pictures)
    assert len(QUICKSTART.read_bytes()) < 600_000
