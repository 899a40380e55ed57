"""Weights of VGGT and DINOv2 become ours, and ours survive their file; what does not fit is named."""

import json
from dataclasses import asdict

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from g_ray.cameras import Pinhole
from g_ray.cli.main import main
from g_ray.models.dinov2 import DINOV2_SIZES, DINOv2, DINOv2Config
from g_ray.models.foreign_weights import convert_checkpoint, load_encoder, read_foreign
from g_ray.models.reconstruction_config import ReconstructionConfig, ReconstructionNetwork
from g_ray.models.reconstruction_network import ReconstructionModel
from g_ray.models.weights import FILE, load_reconstruction, save_reconstruction
from g_ray.predictors.network_predictor import detect_model
from g_ray.rays.views import Views

TAPS = (0, 1, 2, 2)


@pytest.fixture(scope="module")
def vectors(shared_vectors):
    with np.load(shared_vectors / "vggt_small.npz") as file:
        return {name: torch.from_numpy(file[name]) for name in file.files}


@pytest.fixture
def vggt(vectors, tmp_path):
    """A checkpoint as released: their names, and parts that we have no place for."""
    state = {name: value for name, value in vectors.items() if "." in name}
    strange = {"camera_head.token_norm.weight": torch.ones(3), "track_head.x": torch.ones(2)}
    torch.save(state | strange, tmp_path / "vggt.pt")
    return tmp_path / "vggt.pt"


@torch.no_grad()
def test_a_converted_vggt_computes_what_vggt_computes(vectors, vggt, tmp_path):
    kind, report = convert_checkpoint(
        read_foreign(vggt), tmp_path / "ours.safetensors", method="rope", taps=TAPS
    )
    assert kind == "vggt"
    assert set(report.unused) == {"vggt.camera_head.token_norm.weight", "vggt.track_head.x"}
    assert {name.split(".")[0] for name in report.missing} == {"world_head", "pose_head"}
    model = load_reconstruction(tmp_path / "ours.safetensors")
    views = Views([Pinhole.from_fov(60.0, 56, 42)] * 3)
    out = model(vectors["images"], views)
    for found, wanted in ((out.camera_points, "points"), (out.camera_confidence, "confidence")):
        assert (found - vectors[wanted]).abs().max() < 1e-4 * vectors[wanted].abs().max()


def test_vggts_weights_fit_every_method_and_ray_angles_change_the_result(vggt, vectors, tmp_path):
    views = Views([Pinhole.from_fov(60.0, 56, 42)] * 3)
    points = {}
    for method in ("rope", "gray", "gray_camray"):
        _, report = convert_checkpoint(
            read_foreign(vggt), tmp_path / "m.safetensors", method=method, taps=TAPS
        )
        assert not any(name.startswith(("aggregator", "camera_head", "encoder")) for name in report.missing)
        with torch.no_grad():
            points[method] = load_reconstruction(tmp_path / "m.safetensors")(
                vectors["images"], views
            ).camera_points
    assert not torch.allclose(points["rope"], points["gray"], rtol=1e-3)


def small_model() -> ReconstructionModel:
    torch.manual_seed(0)
    config = ReconstructionConfig(
        "gray", "patch", 24, 1, 1, 7, (0, 0, 0, 0), 8, (4, 4, 8, 8), 12, encoding_options={"scale": 2.0}
    )
    return ReconstructionModel(config)


@pytest.mark.parametrize(("dtype", "error"), [(None, 0.0), (torch.float16, 1e-3)])
def test_our_file_brings_back_config_and_weights(tmp_path, dtype, error):
    model = small_model()
    save_reconstruction(model, tmp_path / FILE, dtype)
    for source in (tmp_path / FILE, str(tmp_path)):
        again = load_reconstruction(source)
        assert again.config == model.config and not again.training
        assert all(parameter.requires_grad for parameter in again.parameters())
        for (name, a), (other, b) in zip(model.state_dict().items(), again.state_dict().items(), strict=True):
            assert name == other and b.dtype == torch.float32
            assert (a - b).abs().max() <= error * max(1.0, a.abs().max().item())


def test_a_hub_id_is_downloaded(tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    save_reconstruction(small_model(), tmp_path / FILE)
    asked = []

    def download(repository, name, revision=None):
        asked.append((repository, name, revision))
        return str(tmp_path / name)

    monkeypatch.setattr(hub, "hf_hub_download", download)
    assert load_reconstruction("someone/rooms", revision="v1").config == small_model().config
    assert asked == [("someone/rooms", FILE, "v1")]


def test_files_that_do_not_fit_are_refused_with_names(tmp_path):
    save_reconstruction(small_model(), tmp_path / FILE)
    from safetensors import safe_open

    with safe_open(tmp_path / FILE, framework="pt") as file:
        metadata = file.metadata()
    state = load_file(tmp_path / FILE)
    state["surplus.weight"] = torch.ones(1)
    del state["pose_head.fc_t.bias"]
    save_file(state, tmp_path / "other.safetensors", metadata=metadata)
    with pytest.raises(ValueError, match=r"not in the file: pose_head \(1\); not used: surplus \(1\)"):
        load_reconstruction(tmp_path / "other.safetensors")
    save_file(state, tmp_path / "bare.safetensors")
    with pytest.raises(ValueError, match="holds no reconstruction config: convert it first"):
        load_reconstruction(tmp_path / "bare.safetensors")
    changed = metadata | {
        "reconstruction_config": metadata["reconstruction_config"].replace('"dim"', '"dimm"')
    }
    save_file(state, tmp_path / "new.safetensors", metadata=changed)
    with pytest.raises(ValueError, match="config has dimm, which this version does not know"):
        load_reconstruction(tmp_path / "new.safetensors")
    with pytest.raises(FileNotFoundError, match=r"no weights at .*absent\.pt"):
        load_reconstruction(tmp_path / "absent.pt")
    torch.save({"weight": torch.ones(1)}, tmp_path / "strange.pt")
    with pytest.raises(ValueError, match="neither VGGT, DINOv2 nor RayRoPE's LVSM: it has weight"):
        convert_checkpoint(read_foreign(tmp_path / "strange.pt"), tmp_path / "x.safetensors", method="gray")


def test_weights_as_training_leaves_them(tmp_path):
    """`g-ray train` stores the recipe instead of the config."""
    network = ReconstructionNetwork("gray_qk", size="tiny")
    model = ReconstructionModel(network.build_config())
    recipe = {"kind": "ReconstructionRecipe", "settings": {"model": asdict(network)}}
    path, state = tmp_path / FILE, model.state_dict()
    save_file(state, path, metadata={"recipe": json.dumps(recipe)})
    loaded = load_reconstruction(path)
    assert loaded.config == model.config and detect_model(str(path)) == "network"
    assert all(torch.equal(value, state[name]) for name, value in loaded.state_dict().items())
    for document, message in (
        ({"kind": "NVSRecipe"}, "weights of a NVSRecipe"),
        ({**recipe, "settings": []}, "no settings of a model"),
        ({**recipe, "settings": {"model": {"method": "gray"}}}, "config of another version"),
        ({**recipe, "settings": {"model": {"method": "magic", "size": "tiny"}}}, "magic"),
    ):
        save_file(state, path, metadata={"recipe": json.dumps(document)})
        with pytest.raises(ValueError, match=message):
            load_reconstruction(path)


class Evil:
    def __reduce__(self):
        return print, ("this code ran",)


def test_foreign_code_does_not_run(tmp_path, capsys):
    torch.save({"aggregator.camera_token": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(ValueError, match="holds more than tensors, or is damaged"):
        convert_checkpoint(read_foreign(tmp_path / "evil.pt"), tmp_path / "x.safetensors", method="gray")
    assert "this code ran" not in capsys.readouterr().out


@pytest.fixture
def mini(monkeypatch):
    """A DINOv2 of a size that fits into a test, in the place of ViT-S."""
    size = DINOv2Config(dim=24, layers=2, heads=2, patch=14, grid=3)
    monkeypatch.setitem(DINOV2_SIZES, "vits14", size)
    torch.manual_seed(3)
    return DINOv2(size)


@pytest.mark.parametrize("wrapped", [False, True])
def test_dinov2s_hub_checkpoint_loads_into_the_encoder(mini, tmp_path, wrapped):
    state = {name.replace("attn.out", "attn.proj"): v for name, v in mini.state_dict().items()}
    state["mask_token"] = torch.zeros(1, 24)
    torch.save({"model": state} if wrapped else state, tmp_path / "dino.pth")
    config = ReconstructionConfig("gray", "vits14", 24, 1, 1, 14, (0, 0, 0, 0), 8, (4, 4, 8, 8), 12)
    kind, report = convert_checkpoint(
        read_foreign(tmp_path / "dino.pth"), tmp_path / "encoder.safetensors", method="gray"
    )
    assert (kind, report.unused, report.missing) == ("dinov2", ("mask_token",), ())
    for source in ("dino.pth", "encoder.safetensors"):
        torch.manual_seed(0)
        model = ReconstructionModel(config)
        load_encoder(model, tmp_path / source)
        for name, value in mini.state_dict().items():
            assert torch.equal(model.encoder.state_dict()[name], value)
    del state["norm.weight"]
    torch.save(state, tmp_path / "half.pth")
    with pytest.raises(ValueError, match=r"not a whole encoder; not in the file: norm \(1\)"):
        load_encoder(model, tmp_path / "half.pth")


def test_an_encoder_without_dinov2_says_so(tmp_path):
    with pytest.raises(ValueError, match="encoder 'patch' takes no DINOv2 weights"):
        load_encoder(small_model(), tmp_path / "x.pth")


def test_the_command(vggt, tmp_path, capsys):
    out = tmp_path / "start.safetensors"
    assert main(["weights", "convert", str(vggt), "--out", str(out), "--taps", "0", "1", "2", "2"]) == 0
    said = capsys.readouterr().out
    assert "vggt weights" in said and "not used: vggt.camera_head (1), vggt.track_head (1)" in said
    assert "not in the file: world_head" in said
    assert main(["weights", "show", str(out)]) == 0
    assert "method: gray" in capsys.readouterr().out
    assert main(["weights", "convert", str(tmp_path / "no.pt"), "--out", str(tmp_path / "new")]) == 2
    assert "no weights at" in capsys.readouterr().err
