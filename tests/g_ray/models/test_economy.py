"""Inference does no work twice and holds nothing that no head asks for."""

import pytest
import torch
import torch.nn.functional as F

from g_ray.cameras import Pinhole
from g_ray.cameras.camera import Camera
from g_ray.encodings.encoding_base import Encoding
from g_ray.geometry.pose import Pose
from g_ray.models.inference import run_inference
from g_ray.models.lvsm import LVSM
from g_ray.models.lvsm_config import METHODS, SIZES
from g_ray.models.reconstruction_config import RECONSTRUCTION_METHODS, RECONSTRUCTION_SIZES
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.nn.transformer import Block
from g_ray.rays.views import Views

SIDE, PATCH, VIEWS = 16, 4, 5
TOKENS = VIEWS * (SIDE // PATCH) ** 2 + VIEWS * 5


def network(method: str = "gray", **changes) -> ReconstructionModel:
    torch.manual_seed(0)
    return ReconstructionModel(RECONSTRUCTION_SIZES["tiny"](method, **changes)).eval()


def inputs() -> tuple[torch.Tensor, Views]:
    views = Views([Pinhole.from_fov(40.0 + 10 * view, SIDE, SIDE) for view in range(VIEWS)])
    return torch.rand(1, VIEWS, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1)), views


def test_the_trunk_keeps_the_taps_alone_and_stops_after_the_last():
    net, (_, views) = network(), inputs()
    ran = []
    for index, block in enumerate(net.aggregator.global_blocks):
        block.register_forward_hook(lambda *_, index=index: ran.append(index))
    tokens = views.tokens(PATCH, special=net.aggregator.special)
    patches = [torch.rand(1, (SIDE // PATCH) ** 2, net.config.dim) for _ in range(VIEWS)]
    with torch.no_grad():
        kept = net.aggregator(patches, tokens, (0, 2))
    assert list(kept) == [0, 2]
    assert ran == [0, 1, 2]


@pytest.mark.parametrize("method", RECONSTRUCTION_METHODS)
def test_phases_are_prepared_once_for_all_layers(method, monkeypatch):
    prepared, prepare = [], Encoding.prepare

    def counted(self, *tokens):
        prepared.append(self)
        return prepare(self, *tokens)

    monkeypatch.setattr(Encoding, "prepare", counted)
    net = network(method)
    with torch.no_grad():
        net(*inputs())
    assert len(prepared) == len({net.aggregator.frame, net.aggregator.across}) == len(set(prepared))


@pytest.fixture
def casts(monkeypatch) -> dict[str, list[Camera]]:
    """The cameras whose rays were cast for all pixels, and for places in patches."""
    cast: dict[str, list[Camera]] = {"pixels": [], "patches": []}
    grid, unproject = Camera.unproject_grid, Camera.unproject

    def cast_grid(camera):
        cast["pixels"].append(camera)
        with monkeypatch.context() as inside:
            inside.setattr(Camera, "unproject", unproject)
            return grid(camera)

    def cast_places(camera, places):
        cast["patches"].append(camera)
        return unproject(camera, places)

    monkeypatch.setattr(Camera, "unproject_grid", cast_grid)
    monkeypatch.setattr(Camera, "unproject", cast_places)
    return cast


@pytest.mark.parametrize("method", RECONSTRUCTION_METHODS)
def test_the_rays_of_a_camera_are_cast_once_per_reconstruction(method, casts):
    images, views = inputs()
    run_inference(network(method), list(images[0]), list(views.cameras), size=SIDE)
    assert len(casts["pixels"]) == len(set(casts["pixels"])) == VIEWS
    assert len(casts["patches"]) == len(set(casts["patches"])) == VIEWS


@pytest.mark.parametrize("method", METHODS)
def test_the_rays_of_a_camera_are_cast_once_per_synthesis(method, casts):
    conditioning, encoding = METHODS[method]
    model = LVSM(SIZES["tiny"](encoding, conditioning))
    shared = [Pinhole.from_fov(50.0, 18, 12), Pinhole.from_fov(60.0, 18, 12)]
    views = Views([*shared, *shared, shared[0]], Pose.identity(5))
    with torch.no_grad():
        model(torch.rand(1, 2, 3, 12, 18), views[:2], views[2:])
    assert len(casts["pixels"]) == len(set(casts["pixels"])) == 2
    # RayRoPE takes three corners of every patch, the key mask its centre.
    assert len(casts["patches"]) == (4 if "rayrope" in method else 2)


@pytest.mark.parametrize(("chunk", "calls"), [(2, [2, 2, 1]), (8, [5])])
def test_the_dense_head_sees_so_many_frames_at_a_time(chunk, calls):
    net, seen = network(frames_chunk=chunk), []
    net.camera_head.scratch.register_forward_pre_hook(lambda _, args: seen.append(len(args[0][0])))
    with torch.no_grad():
        net(*inputs())
    assert seen == calls


def test_global_attention_asks_so_many_queries_at_a_time(monkeypatch):
    sizes, plain = [], F.scaled_dot_product_attention

    def spied(q, k, v, **options):
        sizes.append((q.shape[-2], k.shape[-2]))
        return plain(q, k, v, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spied)
    net = network()
    with torch.no_grad():
        net(*inputs(), query_chunk=30)
    across = [queries for queries, keys in sizes if keys == TOKENS]
    assert across == [30, 30, 30, TOKENS - 90] * net.config.pairs
    assert {queries for queries, keys in sizes if keys != TOKENS} == {TOKENS // VIEWS}


@pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_bf16_only_on_request_and_never_in_the_heads(precision, dtype):
    net, (images, views) = network(), inputs()
    inside, heads = set(), set()
    for block in net.modules():
        if isinstance(block, Block):
            block.mlp.fc1.register_forward_hook(lambda _, args, out: inside.add(out.dtype))
    for head in (net.world_head.pixels, net.pose_head.project, net.camera_head.scratch):
        head.register_forward_hook(lambda _, args, out: heads.add(out.dtype))
    run_inference(net, list(images[0]), list(views.cameras), size=SIDE, precision=precision)
    assert inside == {dtype}
    assert heads == {torch.float32}
