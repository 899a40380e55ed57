"""torch.compile(fullgraph=True): no graph break in any encoding, same numbers, forward and backward."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from small_hosts import EXAMPLES, list_tensors, make_example
from torch._dynamo.testing import CompileCounterWithBackend

import g_ray
from g_ray.encodings import ENCODINGS, encoding
from g_ray.encodings.expected_rotation import PerCamera
from g_ray.models.lvsm import LVSM
from g_ray.models.lvsm_config import METHODS, LVSMConfig
from g_ray.nn.attention import attention
from g_ray.nn.transformer import MultiHeadAttention
from g_ray_lab.recipes.reconstruction_recipes import tiny
from g_ray_lab.sources.arc_views import RoomsNVS
from g_ray_lab.sources.nvs_settings import RoomsData
from g_ray_lab.training.engine import train
from g_ray_lab.training.learner import compile_blocks
from g_ray_lab.training.recipe import Run

DIM, PATCH = 24, 16


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, torch.float32) for name in ENCODINGS] + [("gray", torch.bfloat16), ("rayrope", torch.bfloat16)],
)
def test_no_graph_break(name, dtype, mixed_views):
    """Traced through autograd; without code generation, which takes most of the time."""
    tokens = mixed_views(lenses=("wide", "fisheye"), dtype=torch.float32).tokens(PATCH, special=1)
    position = encoding(name, DIM).prepare(tokens)
    run(
        name, position, tokens, dtype, backend="aot_eager", tolerance=1e-5 if dtype == torch.float32 else 3e-2
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gray", "rayrope_gray"])
def test_generated_code_computes_the_same(name, mixed_views):
    tokens = mixed_views(lenses=("wide", "tele"), dtype=torch.float32).tokens(PATCH)
    run(name, encoding(name, DIM).prepare(tokens), tokens, torch.float32, backend="inductor", tolerance=1e-4)


def run(name, position, tokens, dtype, backend, tolerance):
    torch._dynamo.reset()
    torch.manual_seed(0)
    inputs = [torch.randn(2, 2, len(tokens), DIM, dtype=dtype, requires_grad=True) for _ in range(3)]
    raw = (torch.randn(2, len(tokens), 2) * 0.3).requires_grad_()

    def compute(q, k, v, depths):
        complete = position.with_depth(depths) if isinstance(position, PerCamera) else position
        return attention(q, k, v, complete)

    results = []
    for function in (compute, torch.compile(compute, fullgraph=True, backend=backend)):
        out = function(*inputs, raw)
        gradients = torch.autograd.grad(out.float().square().sum(), inputs)
        results.append((out, *gradients))
    for eager, compiled in zip(*results, strict=True):
        assert (eager - compiled).abs().max() < tolerance * eager.abs().max().clamp(min=1.0)


def test_a_whole_block_compiles(mixed_views):
    torch._dynamo.reset()
    tokens = mixed_views(lenses=("wide", "tele"), dtype=torch.float32).tokens(PATCH)
    kind = encoding("gray", DIM)
    block = MultiHeadAttention(2 * DIM, kind, qk_norm=True)
    position = kind.prepare(tokens)
    x = torch.randn(2, len(tokens), 2 * DIM)
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(x, position), block(x, position), atol=1e-5)


def test_blocks_of_a_synthesis_network_compile():
    """As `g-ray reproduce --compile` does it; the last block has fewer queries than the others."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    conditioning, name = METHODS["gta_gray"]
    network = LVSM(LVSMConfig(48, 2, 2, 64, 6, conditioning, name))
    batch = RoomsNVS(RoomsData(12, 12, batch=1)).make_batch(0)
    views = (batch.context_images, batch.contexts, batch.targets)
    eager = network(*views)
    compile_blocks(network, backend="aot_eager")
    assert torch.allclose(network(*views), eager, atol=1e-5)
    assert not any("_orig_mod" in key for key in network.state_dict())


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++ on a CPU")
def test_training_a_reconstruction_network_with_generated_code(tmp_path):
    """`g-ray train recon-tiny --compile`: the losses of its first steps are those without it."""
    torch._dynamo.reset()
    recipe = tiny("gray")
    recipe = replace(
        recipe,
        data=replace(recipe.data, batch=1, views=(2, 2)),
        schedule=replace(recipe.schedule, steps=2, warmup=1),
    )
    losses = []
    for compiled in (False, True):
        run = Run(out=tmp_path / str(compiled), log_every=1, sample_every=None, tensorboard=False)
        train("tiny", replace(recipe, compile=compiled), run)
        lines = (tmp_path / str(compiled) / "metrics.jsonl").read_text().splitlines()
        losses.append([entry["loss"] for entry in map(json.loads, lines) if "loss" in entry])
    assert len(losses[0]) == 2
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_an_adapted_network_is_compiled_once():
    """Positions are inputs of the compiled code: other cameras of the same kinds need no other code."""
    torch._dynamo.reset()
    example = make_example("aggregator")
    adapted = g_ray.adapt(example.model, "gray")
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(adapted, backend=counter)
    wider = [replace(camera, params=0.8 * camera.params) for camera in example.cameras]
    counts = []
    for cameras in (example.cameras, wider):
        wanted = list_tensors(adapted(*example.args, cameras=cameras))
        found = list_tensors(compiled(*example.args, cameras=cameras))
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
        counts.append(counter.frame_count)
    assert counts == [1, 1]


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "aggregator"])
def test_adapted_networks_compile(name):
    torch._dynamo.reset()
    example = make_example(name)
    adapted = g_ray.adapt(example.model, "gray")
    compiled = torch.compile(adapted, backend="eager")
    options = {"cameras": example.cameras, **example.kwargs}
    wanted, found = (list_tensors(run(*example.args, **options)) for run in (adapted, compiled))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
