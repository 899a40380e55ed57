"""Every host: its own coordinates give its own numbers, ray angles those of the naive operator; nothing is touched."""

import ast
import copy
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from naive_attention import naive_attention
from small_hosts import (
    EXAMPLES,
    HEIGHT,
    WIDTH,
    LVSMDecoderOnlyModel,
    list_tensors,
    make_cameras,
    make_dust3r,
    make_example,
    make_lvsm,
    make_poses,
    make_timm_eva,
)
from torch import nn

import g_ray
from g_ray import Fisheye624, OpenCV, Pinhole, Views
from g_ray.encodings import ENCODINGS
from g_ray.hosts import HOSTS, adapt, host_base, lvsm_host

POSE_FREE = ("none", "rope", "gray")


def run(network, example, **inputs):
    """Return outputs, and gradients of a sum over them."""
    outputs = list_tensors(network(*example.args, **example.kwargs, **inputs))
    parameters = [part for part in example.model.parameters() if part.requires_grad]
    total = sum(part.square().mean() for part in outputs)
    gradients = torch.autograd.grad(total, parameters, allow_unused=True)
    return outputs, [gradient for gradient in gradients if gradient is not None]


def difference(found, wanted):
    """Largest difference, relative to the largest number."""
    assert len(found) == len(wanted) > 0
    largest = max(part.abs().max() for part in wanted)
    return max((a - b).abs().max() / largest for a, b in zip(found, wanted, strict=True)).item()


@pytest.mark.parametrize("name", EXAMPLES)
def test_own_coordinates_give_the_network_itself(name):
    example = make_example(name)
    adapted = adapt(example.model, example.own)
    wanted, wanted_gradients = run(example.model, example)
    found, gradients = run(adapted, example, cameras=example.cameras)
    assert difference(found, wanted) < 1e-6
    assert difference(gradients, wanted_gradients) < 1e-6


@pytest.mark.parametrize("name", EXAMPLES)
def test_ray_angles_give_what_the_naive_operator_does(name, monkeypatch):
    example = make_example(name)
    adapted = adapt(example.model, "gray")
    found, gradients = run(adapted, example, cameras=example.cameras)
    monkeypatch.setattr(host_base, "attention", naive_attention)
    monkeypatch.setattr(lvsm_host, "attention", naive_attention)
    wanted, wanted_gradients = run(adapted, example, cameras=example.cameras)
    assert difference(found, wanted) < 1e-6
    assert difference(gradients, wanted_gradients) < 1e-6
    assert difference(found, run(example.model, example)[0]) > 1e-3


@pytest.mark.parametrize("name", EXAMPLES)
def test_lenses_with_the_same_rays_give_the_same(name):
    example = make_example(name)
    adapted = adapt(example.model, "gray")
    others = []
    for camera in example.cameras:
        fx, fy, cx, cy, *rest = camera.params.tolist()
        size, center = (camera.width, camera.height), {"fx": fx, "fy": fy, "cx": cx, "cy": cy}
        # Distortion that both models write alike: none, and one term in the angle.
        plain = isinstance(camera, Pinhole)
        others.append(OpenCV.make(*size, **center) if plain else Fisheye624.make(*size, **center, k1=rest[0]))
    found = list_tensors(adapted(*example.args, **example.kwargs, cameras=others))
    wanted = list_tensors(adapted(*example.args, **example.kwargs, cameras=example.cameras))
    assert difference(found, wanted) < 1e-5
    wider = [Pinhole.from_fov(100.0, camera.width, camera.height) for camera in example.cameras]
    assert difference(list_tensors(adapted(*example.args, **example.kwargs, cameras=wider)), wanted) > 1e-3


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_model_is_untouched(name):
    example = make_example(name)
    model = example.model
    before = {key: value.clone() for key, value in model.state_dict().items()}
    modules = {key: (value, dict(value.__dict__)) for key, value in model.named_modules()}
    adapted = adapt(model, "gray")
    adapted(*example.args, **example.kwargs, cameras=example.cameras)
    assert adapted.original is model
    for key, value in model.named_modules():
        assert value is modules[key][0] and value.__dict__.keys() == modules[key][1].keys()
        assert not hasattr(value, "position")
    assert {key: value.data_ptr() for key, value in adapted.state_dict().items()} == {
        key: value.data_ptr() for key, value in model.state_dict().items()
    }
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert [key for key, _ in adapted.named_parameters()] == [key for key, _ in model.named_parameters()]


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_encoding_runs_or_is_refused_in_one_line(name):
    example = make_example(name)
    poses = make_poses(len(example.cameras))
    taken = []
    for encoding in ENCODINGS:
        try:
            adapted = adapt(example.model, encoding)
        except ValueError as error:
            assert "\n" not in str(error)
            continue
        if encoding not in POSE_FREE:
            with pytest.raises(ValueError, match="pass poses=… beside the cameras"):
                adapted(*example.args, **example.kwargs, cameras=example.cameras)
        outputs = list_tensors(adapted(*example.args, **example.kwargs, cameras=example.cameras, poses=poses))
        assert all(part.isfinite().all() for part in outputs)
        taken.append(encoding)
    assert set(POSE_FREE) <= set(taken)
    assert "gta_gray" in taken or name == "wan"


SWITCHES = ("gradient_checkpointing_enable", "enable_gradient_checkpointing", "set_grad_checkpointing")


@pytest.mark.parametrize("name", EXAMPLES)
def test_checkpointing_keeps_the_cameras_of_its_call(name):
    """Layers run again in backward, after the network was called with other cameras."""
    example = make_example(name)
    switch = next((getattr(example.model, one) for one in SWITCHES if hasattr(example.model, one)), None)
    if switch is None and name not in ("vggt", "aggregator"):  # which do so in training
        pytest.skip("this network has no checkpointing")
    adapted = adapt(example.model, "gray")
    _, wanted = run(adapted, example, cameras=example.cameras)
    if switch is not None:
        switch()
    adapted.train()
    assert example.model.training
    outputs = list_tensors(adapted(*example.args, **example.kwargs, cameras=example.cameras))
    adapted(*example.args, **example.kwargs, cameras=example.cameras[::-1])
    parameters = [part for part in example.model.parameters() if part.requires_grad]
    total = sum(part.square().mean() for part in outputs)
    gradients = torch.autograd.grad(total, parameters, allow_unused=True)
    assert difference([part for part in gradients if part is not None], wanted) < 1e-6


def test_threads_call_one_network_with_different_cameras():
    example = make_example("vggt")
    adapted = adapt(example.model, "gray")
    sets = [[Pinhole.from_fov(20.0 + 10 * index, WIDTH, HEIGHT)] * 3 for index in range(4)]
    with torch.no_grad():
        wanted = [adapted(*example.args, cameras=cameras)["depth"] for cameras in sets]
    found = {}

    @torch.no_grad()
    def work(index):
        for _ in range(3):
            found[index] = adapted(*example.args, cameras=sets[index])["depth"]

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(found[index], wanted[index]) for index in range(4))


@pytest.mark.parametrize("name", EXAMPLES)
def test_autocast_rotates_in_float32(name):
    """Errors are those of bf16 attention, not of phases in bf16 (large coordinates would lose all digits)."""
    example = make_example(name)
    adapted = adapt(example.model, example.own)
    exact = list_tensors(example.model(*example.args, **example.kwargs))
    with torch.autocast("cpu", torch.bfloat16):
        found = list_tensors(adapted(*example.args, **example.kwargs, cameras=example.cameras))
    assert difference([part.float() for part in found], exact) < 0.03


@pytest.mark.parametrize(("blocks", "count"), [("frame_blocks", 3), ("global_blocks", 9)])
def test_special_tokens_are_not_rotated(blocks, count):
    """Three before the patches of each of three views."""
    example = make_example("vggt")
    bound = adapt(example.model, "gray").bind(Views(example.cameras), example.args, {})
    position = getattr(bound.aggregator, blocks)[0].attn.position
    special = ~position.queries.get_patch_mask()
    assert special.sum() == count
    assert (position.query.cos[:, :, special] == 1).all() and (position.query.sin[:, :, special] == 0).all()
    assert (position.query.sin[:, :, ~special] != 0).any()


@pytest.mark.parametrize("name", ["gray", "gta_gray", "prope", "prope_token"])
def test_views_as_samples_attend_as_in_windows(name):
    """Positions inside views come from those across views, for the samples of a batch that share them."""
    cameras = [Pinhole.from_fov(fov, WIDTH, HEIGHT) for fov in (70.0, 50.0, 30.0)]
    tokens = Views(cameras, make_poses(3)).tokens(14, special=2)
    across = g_ray.encoding(name, 16).prepare(tokens)
    q, k, v = torch.randn(3, 2, 4, len(tokens), 16)
    windows = [span for _, span in tokens.layout.find_runs()]
    wanted = g_ray.attention(q, k, v, across, windows=windows)
    inside = host_base.fold_views(across, 3, 2)
    q, k, v = (part.unflatten(2, (3, -1)).transpose(1, 2).flatten(0, 1) for part in (q, k, v))
    found = g_ray.attention(q, k, v, inside)
    torch.testing.assert_close(found.unflatten(0, (2, 3)).transpose(1, 2).flatten(2, 3), wanted)


def test_pairs_in_both_orders_have_the_cameras_of_their_own_images():
    """DUSt3R encodes every second pair of such a batch; cameras have a batch axis then."""
    torch.manual_seed(0)
    example = make_dust3r(both_orders=True)
    adapted = adapt(example.model, "gray")
    wide, narrow = Pinhole.from_fov(80.0, WIDTH, HEIGHT), Pinhole.from_fov(30.0, WIDTH, HEIGHT)
    cameras = [Pinhole.stack([wide, narrow]), Pinhole.stack([narrow, wide])]
    found = adapted(*example.args, cameras=cameras)
    plain = [{**view, "symmetrized": False} for view in example.args]
    wanted = adapted(*plain, cameras=cameras)
    assert difference(list_tensors(found), list_tensors(wanted)) < 1e-6


def test_a_portrait_image_that_lies_on_its_side_has_a_portrait_camera():
    example = make_dust3r()
    upright = [{**view, "true_shape": torch.tensor([[WIDTH, HEIGHT]] * 2)} for view in example.args]
    with pytest.raises(ValueError, match="its images 42×56: resize and crop"):
        adapt(example.model, "gray")(*upright, cameras=example.cameras)


def test_targets_of_lvsm_are_sequences_of_their_own():
    example = make_example("lvsm")
    adapted = adapt(example.model, "gta_gray")
    poses = make_poses(4)
    together = adapted(*example.args, cameras=example.cameras, poses=poses)
    images, context, target = example.args
    for index in (0, 1):
        one = copy.copy(target)
        one.camtoworld = target.camtoworld[:, index : index + 1]
        views = [0, 1, 2 + index]
        cameras = [example.cameras[view] for view in views]
        alone = adapted(images, context, one, cameras=cameras, poses=poses[views])
        torch.testing.assert_close(alone[0], together[index])


def test_depths_that_lvsm_predicts_reach_rayrope():
    torch.manual_seed(0)
    example = make_lvsm(depths=True)
    example = replace(example, args=(*example.args[:2], copy.copy(example.args[2])))
    adapted = adapt(example.model, "rayrope_gray", along="ray")
    out = adapted(*example.args, cameras=example.cameras, poses=make_poses(4))
    out.square().sum().backward()
    assert example.model.encoder.depth.weight.grad.abs().max() > 0
    with pytest.raises(ValueError, match="needs layers that predict depths"):
        adapt(LVSMDecoderOnlyModel(), "rayrope_gray")


def test_one_camera_or_one_per_image():
    example = make_example("dinov3")
    adapted = adapt(example.model, "gray")
    camera = example.cameras[1]
    one = adapted(*example.args, cameras=[camera]).last_hidden_state
    each = adapted(*example.args, cameras=[camera] * 3).last_hidden_state
    torch.testing.assert_close(one, each, atol=1e-5, rtol=1e-5)


def test_a_zoom_changes_the_frames_of_a_video():
    example = make_example("wan")
    adapted = adapt(example.model, "gray")
    still = adapted(*example.args, **example.kwargs, cameras=[example.cameras[0]] * 3)[0]
    zoom = [Pinhole.from_fov(fov, 64, 48) for fov in (70.0, 50.0, 30.0)]
    assert difference([adapted(*example.args, **example.kwargs, cameras=zoom)[0]], [still]) > 1e-3


def test_views_leave_the_name_poses_to_the_network():
    example = make_example("pi3x")
    given = torch.eye(4).expand(2, 3, 4, 4)
    out = adapt(example.model, "gray")(*example.args, cameras=Views(example.cameras), poses=given)
    assert out["poses"] is given


def test_copies_move_and_load_as_one_network():
    example = make_example("vggt")
    adapted = copy.deepcopy(adapt(example.model, "gray"))
    assert adapted.original is not example.model
    adapted.double()
    assert adapted.original.head.weight.dtype == torch.float64
    adapted.load_state_dict(example.model.state_dict())
    adapted.original.head.weight.data.zero_()
    assert adapted.state_dict()["head.weight"].abs().sum() == 0


def test_all_hosts_have_an_example():
    """The checks above run over examples: none of the hosts is left out."""
    found = set()
    for name in EXAMPLES:
        try:
            found.add(g_ray.hosts.find_host(make_example(name).model))
        except pytest.skip.Exception:  # its package is not installed
            found |= {host for key, host in HOSTS.items() if name.startswith(key)}
    assert found == set(HOSTS.values())


@pytest.mark.parametrize("name", EXAMPLES)
def test_heads_that_do_not_divide_are_refused_in_one_line(name):
    """Seven samples per patch need 14 blocks of pairs: no head here has a multiple of 28 channels."""
    example = make_example(name)
    samples = tuple((place / 8, 0.5) for place in range(1, 8))
    with pytest.raises(ValueError, match=r"head dimension|do not split") as refusal:
        adapt(example.model, "gray", samples=samples)
    assert "\n" not in str(refusal.value)


MIXED = {"rope_type": "mixed"}
DYNAMIC = {"rope_type": "cat", "ref_feat_shape": (3, 3), "dynamic_img_size": True}


@pytest.mark.parametrize(("settings", "message"), [(MIXED, "no such form"), (DYNAMIC, "dynamic_img_size")])
def test_rotations_of_timm_without_such_coordinates_are_refused(settings, message):
    """Frequencies are learned, or the grid of patches is not known before the call; ray angles need neither."""
    example = make_timm_eva(**settings)
    with pytest.raises(ValueError, match=message) as refusal:
        adapt(example.model, "rope")
    assert "\n" not in str(refusal.value)
    assert adapt(example.model, "gray")(*example.args, cameras=example.cameras).isfinite().all()


def test_prefix_tokens_of_timm_keep_the_identity():
    example = make_example("timm_dinov3")
    bound = adapt(example.model, "gray").bind(Views(example.cameras), example.args, {})
    position = bound.blocks[0].attn.position
    special = ~position.queries.get_patch_mask()
    assert special.sum() == example.model.num_prefix_tokens == 5
    assert (position.query.cos[:, :, special] == 1).all() and (position.query.sin[:, :, special] == 0).all()
    assert (position.query.sin[:, :, ~special] != 0).any()


@pytest.mark.parametrize("name", ["vggt", "dinov3", "timm_vit", "wan"])
def test_hooks_see_what_projections_return(name):
    """Without gradients and hooks these outputs are overwritten by the rotated ones."""
    example = make_example(name)
    layer = next(
        part for path, part in example.model.named_modules() if path.endswith(("qkv", "k_proj", "to_k"))
    )
    seen = []
    layer.register_forward_hook(lambda module, inputs, output: seen.append((inputs[0].clone(), output)))
    with torch.no_grad():
        found = list_tensors(
            adapt(example.model, "gray")(*example.args, **example.kwargs, cameras=example.cameras)
        )
        torch.testing.assert_close(seen[0][1], nn.functional.linear(seen[0][0], layer.weight, layer.bias))
        layer._forward_hooks.clear()
        without = adapt(example.model, "gray")(*example.args, **example.kwargs, cameras=example.cameras)
    assert difference(list_tensors(without), found) < 1e-6


def test_subclasses_and_vendored_copies_are_found():
    base = type("VGGT", (nn.Module,), {"__module__": "third_party.vggt.models.vggt"})
    child = type("Mine", (base,), {"__module__": "mine"})
    assert g_ray.hosts.find_host(child()) is HOSTS["vggt"]
    stranger = type("VGGT", (nn.Module,), {"__module__": "mine"})
    with pytest.raises(ValueError, match="no adapter for VGGT: there are adapters for VGGT, π³"):
        adapt(stranger())


WRONG = {
    "one camera too few": (lambda cameras: cameras[:2], "3 images, but 2 cameras: give one camera per image"),
    "another size": (
        lambda cameras: [*cameras[:2], Pinhole.from_fov(60.0, 64, 48)],
        "camera 2 is 64×48 px, but its image 56×42: resize and crop image and camera together",
    ),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("name", ["vggt", "pi3x", "da3", "dinov3"])
def test_cameras_that_do_not_fit_are_refused(name, case):
    example = make_example(name)
    change, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        adapt(example.model, "gray")(*example.args, **example.kwargs, cameras=change(example.cameras))


def test_what_a_network_cannot_take_is_refused():
    vggt, wan, da3 = (make_example(name) for name in ("vggt", "wan", "da3"))
    with pytest.raises(
        ValueError, match="VGGT cannot take encoding 'rayrope': choose one of none, rope, gray"
    ):
        adapt(vggt.model, "rayrope")
    with pytest.raises(ValueError, match="unknown encoding 'ropes'"):
        adapt(vggt.model, "ropes")
    with pytest.raises(ValueError, match="head dimension 8 cannot be split"):
        adapt(vggt.model, "gray", samples=((0.2, 0.5), (0.5, 0.5), (0.8, 0.5)))
    with pytest.raises(ValueError, match="3 frames of latents, but 2 cameras"):
        adapt(wan.model)(*wan.args, cameras=wan.cameras[:2])
    with pytest.raises(ValueError, match="no multiple of the latents' 8×6"):
        adapt(wan.model)(*wan.args, cameras=make_cameras(3, 60, 48))
    with pytest.raises(ValueError, match=r"would reorder 3 views .* pass ref_view_strategy='first'"):
        adapt(da3.model)(*da3.args, cameras=da3.cameras)
    vggt.model.train().aggregator.frame_blocks[0].attn.attn_drop.p = 0.1
    with pytest.raises(ValueError, match="dropout of attention weights"):
        adapt(vggt.model)(*vggt.args, cameras=vggt.cameras)


def test_own_coordinates_of_da3_do_not_care_about_the_order_of_views():
    example = make_example("da3")
    found = adapt(example.model, "rope")(*example.args, cameras=example.cameras)
    assert difference(list_tensors(found), list_tensors(example.model(*example.args))) < 1e-6


def test_adapters_import_no_network():
    imported = set()
    for path in Path(host_base.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").split(".")[0])
    assert imported - set(sys.stdlib_module_names) == {"g_ray", "jaxtyping", "torch"}
