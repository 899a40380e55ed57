"""Whole graphs from cameras to attention: torch.compile without a break, torch.export, ONNX. Same numbers."""

import numpy as np
import pytest
import torch
from small_hosts import list_tensors, make_example
from torch import Tensor, nn

from g_ray import Pinhole, Pose, Views, adapt, attention, encoding
from g_ray.encodings import ENCODINGS
from g_ray.encodings.expected_rotation import PerCamera
from g_ray.nn.transformer import Block

DIM, PATCH, SIZE = 24, 16, 32


class FromCameras(nn.Module):
    """Prepares the encoding inside of the graph, from intrinsics and poses that are inputs."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.encoding = encoding(name, DIM)

    def forward(self, qkv: Tensor, depth: Tensor, intrinsics: Tensor, poses: Tensor) -> Tensor:
        cameras = [Pinhole(params, SIZE, SIZE) for params in intrinsics.unbind(0)]
        position = self.encoding.prepare(Views(cameras, Pose(poses)).tokens(PATCH, special=1))
        if isinstance(position, PerCamera):
            position = position.with_depth(depth)
        q, k, v = qkv.unbind(0)
        return attention(q, k, v, position)


def make_inputs(seed: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    intrinsics = torch.stack([Pinhole.from_fov(fov + 5 * seed, SIZE, SIZE).params for fov in (70.0, 45.0)])
    eyes, targets = torch.randn(2, 2, 3, generator=generator)
    poses = Pose.look_at(eyes, targets + torch.tensor([0.0, 0.0, 4.0])).world_from_cam
    tokens = 2 * (1 + (SIZE // PATCH) ** 2)
    qkv = torch.randn(3, 1, 2, tokens, DIM, generator=generator)
    return qkv, torch.randn(1, tokens, 2, generator=generator) * 0.3, intrinsics, poses


def check(traced, module) -> None:
    for seed in (0, 1):  # the second has other cameras than those of the trace
        inputs = make_inputs(seed)
        expected = module(*inputs)
        assert (traced(*inputs) - expected).abs().max() < 2e-6
    assert (module(*make_inputs(0)) - expected).abs().max() > 0.1


@pytest.mark.parametrize("name", ENCODINGS)
def test_compile_without_a_break(name):
    torch._dynamo.reset()
    module = FromCameras(name)
    check(torch.compile(module, fullgraph=True, backend="eager"), module)


@pytest.mark.parametrize("name", ENCODINGS)
def test_export(name):
    module = FromCameras(name)
    check(torch.export.export(module, make_inputs(0)).module(), module)


@pytest.mark.parametrize("name", ["vggt", "pi3x", "da3", "dust3r", "dinov3", "wan"])
def test_export_of_released_networks(name):
    """LVSM takes cameras, which are no inputs of a graph; DINOv2 makes a mask while it is traced."""
    example = make_example(name)
    adapted = adapt(example.model, "gray")
    bound = adapted.bind(Views(example.cameras), example.args, example.kwargs)
    program = torch.export.export(bound, example.args, example.kwargs, strict=False).module()
    found = list_tensors(program(*example.args, **example.kwargs))
    wanted = list_tensors(adapted(*example.args, **example.kwargs, cameras=example.cameras))
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=5e-6)


class BlockFromCameras(nn.Module):
    """A transformer block with ray angles; an image's patches and intrinsics in, features out."""

    def __init__(self) -> None:
        super().__init__()
        self.encoding = encoding("gray", DIM)
        self.block = Block(2 * DIM, self.encoding, qk_norm=True)

    def forward(self, x: Tensor, intrinsics: Tensor) -> Tensor:
        tokens = Views([Pinhole(intrinsics, SIZE, SIZE)]).tokens(PATCH, special=1)
        return self.block(x, self.encoding.prepare(tokens))


@pytest.mark.slow
def test_onnx_runtime_answers_alike(tmp_path):
    import onnxruntime

    module = BlockFromCameras().eval()
    tokens = 1 + (SIZE // PATCH) ** 2
    path = tmp_path / "block.onnx"
    example = (torch.randn(1, tokens, 2 * DIM), Pinhole.from_fov(70.0, SIZE, SIZE).params)
    torch.onnx.export(module, example, path, dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    outputs = []
    for fov in (70.0, 100.0):
        inputs = (example[0], Pinhole.from_fov(fov, SIZE, SIZE).params)
        (answer,) = session.run(None, dict(zip(names, (part.numpy() for part in inputs), strict=True)))
        with torch.no_grad():
            expected = module(*inputs).numpy()
        assert np.abs(answer - expected).max() < 1e-5
        outputs.append(answer)
    assert np.abs(outputs[0] - outputs[1]).max() > 1e-2  # the camera is an input of the exported block
