"""Official LVSM of RayRoPE and ours with the same random weights, converted by `g-ray weights convert`.

    PYTHONPATH=folder/with/RayRoPE python benchmarks/parity_lvsm.py --json out/parity_lvsm.json

Needs a checkout of Lucas-707/RayRoPE on the path; nothing of it is part of g-ray. All parameters are random, gains
and the depth predictors too, which start at zero. Official code computes the norms of queries and keys in float32
whatever it is given; it is made to use float64 here, so that the comparison is as sharp as ours. Numbers are the
largest difference between predicted images, which are in [0, 1]. `--vectors FILE` stores what official code makes of a
tiny network, for the tests.
"""

import argparse
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # official code compiles a function of its own

import numpy as np
import torch
from torch import Tensor

from g_ray.cameras.pinhole import Pinhole
from g_ray.cli.weights_command import Convert
from g_ray.geometry.pose import Pose
from g_ray.rays.views import Views
from g_ray.runtime.provenance import collect_provenance
from g_ray.synthesis.synthesizer import load_network


@dataclass(frozen=True)
class Case:
    """Official settings, and the method to convert with; None lets the converter find out."""

    pos_enc: str
    method: str | None
    ray_encoding: str = "camray"
    denc_type: str = "d"
    dim: int = 96
    heads: int = 2
    layers: int = 3
    ffn: int = 80
    patch: int = 8
    size: tuple[int, int] = (32, 24)  # width, height in pixels

    @property
    def depth_type(self) -> str:
        return "predict_dsig" if "d_pj" in self.pos_enc else "none"


RAYROPE = "d_pj+0_3d"
CASES = {
    "rayrope": Case(RAYROPE, None),
    "rayrope, inverse depth": Case(RAYROPE, "rayrope", denc_type="inv_d"),
    "rayrope, asinh depth": Case(RAYROPE, "rayrope", denc_type="asinh_d"),
    "rayrope, four layers, heads of 48, patch 4": Case(
        RAYROPE, None, dim=192, heads=4, layers=4, ffn=64, patch=4
    ),
    "rayrope, released size at 64×64 px": Case(
        RAYROPE, None, dim=1152, heads=8, layers=6, ffn=1024, size=(64, 64)
    ),
    "gta": Case("gta", "gta"),
    "prope": Case("prope", "prope"),
    "plucker": Case("none", "plucker+none", ray_encoding="plucker"),
    "ray map": Case("none", "raymap+none", ray_encoding="raymap"),
}
VECTORS = Case(RAYROPE, None, dim=48, heads=2, layers=2, ffn=32, patch=4, size=(12, 8))
DEPTHS: dict[str, Any] = {"d": "depth", "inv_d": "inverse", "asinh_d": "asinh"}


def build_official(case: Case) -> Any:
    """Build their network in float64 with random weights."""
    import nvs.lvsm as official  # pyright: ignore[reportMissingImports]
    from pos_enc.utils import rayrope_mha  # pyright: ignore[reportMissingImports]

    def normalize(self: Any, x: Tensor) -> Tensor:
        return self._norm(x) * self.weight

    rayrope_mha.RMSNorm.forward = normalize
    width, height = case.size
    config = official.LVSMDecoderOnlyModelConfig(
        ref_views=2,
        img_shape=(height, width, 3),
        cam_shape=(height, width, 6),
        patch_size=case.patch,
        ray_encoding=case.ray_encoding,
        pos_enc=case.pos_enc,
        depth_type=case.depth_type,
        denc_type=case.denc_type,
    )
    config.encoder.num_layers = case.layers
    layer = config.encoder.layer
    layer.d_model, layer.nhead, layer.dim_feedforward, layer.qk_norm = case.dim, case.heads, case.ffn, True
    network = official.LVSMDecoderOnlyModel(config).double()
    with torch.no_grad():
        for name, value in network.state_dict().items():
            value.copy_(draw_weights(name, tuple(value.shape)))
    return network.eval()


def draw_weights(name: str, shape: tuple[int, ...]) -> Tensor:
    """Draw a parameter by its official name, the same on every machine, in numbers that float32 can hold.

    All parts matter: gains are near 1, depth intervals differ from token to token.
    """
    noise = torch.from_numpy(np.random.RandomState(crc32(name.encode())).standard_normal(shape))
    if name.endswith("d_proj_bias"):
        noise = torch.tensor([0.0, 1.0]) + 0.3 * noise
    elif name.endswith("d_proj_weight"):
        noise = 0.5 * noise / shape[-1] ** 0.5
    elif len(shape) == 1:
        noise = 1 + 0.2 * noise
    else:
        noise = 1.5 * noise / shape[-1] ** 0.5
    return noise.float().double()


def make_scene(case: Case) -> tuple[Tensor, Tensor, Tensor]:
    """Make images [batch view 3 h w] of two contexts, intrinsics and poses of four views; all cameras differ."""
    random = np.random.RandomState(1)
    width, height = case.size
    images = torch.from_numpy(random.uniform(size=(2, 2, 3, height, width)))
    focal = torch.from_numpy(width * random.uniform(0.7, 1.7, size=(2, 4)))
    params = torch.stack([focal, 1.1 * focal, 0 * focal + width / 2 + 0.4, 0 * focal + height / 2], -1)
    eyes, aims = 0.5 * random.standard_normal((2, 4, 3)), 0.3 * random.standard_normal((2, 4, 3))
    poses = Pose.look_at(torch.from_numpy(eyes), torch.from_numpy(aims + np.array([0.0, 0.0, 4.0])))
    return images, params, poses.world_from_cam


@torch.no_grad()
def predict_official(network: Any, case: Case, images: Tensor, params: Tensor, poses: Tensor) -> Tensor:
    from pos_enc.utils.functional import Camera  # pyright: ignore[reportMissingImports]

    matrices = torch.zeros(*params.shape[:2], 3, 3, dtype=torch.float64)
    matrices[..., 0, 0], matrices[..., 1, 1], matrices[..., 0, 2], matrices[..., 1, 2] = params.unbind(-1)
    matrices[..., 2, 2] = 1
    known, asked = (
        Camera(matrices[:, views], poses[:, views], *case.size) for views in (slice(2), slice(2, None))
    )
    # Their trainer, not their network, ends with the sigmoid.
    return network(images.movedim(2, -1), known, asked).sigmoid().movedim(-1, 2)


@torch.no_grad()
def predict_ours(weights: Path, case: Case, images: Tensor, params: Tensor, poses: Tensor) -> Tensor:
    model = load_network(weights).model.double()
    width, height = case.size
    cameras = [
        Pinhole.make(width, height, fx=fx, fy=fy, cx=cx, cy=cy)
        for fx, fy, cx, cy in (params[:, view].unbind(-1) for view in range(params.shape[1]))
    ]
    views = Views(cameras, Pose(poses))
    return model(images, views[:2], views[2:])


def compare(case: Case) -> float:
    """Return the largest difference of a pixel."""
    torch.set_default_dtype(torch.float64)  # official code allocates matrices in it
    official = build_official(case)
    scene = make_scene(case)
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "step-000080000.pt", Path(folder) / "ours.safetensors"
        torch.save({"step": 80_000, "model": official.state_dict(), "optimizer": {}}, source)
        Convert(str(source), out, method=case.method, depth=DEPTHS[case.denc_type]).run()
        torch.set_default_dtype(torch.float32)
        found = predict_ours(out, case, *scene)
    torch.set_default_dtype(torch.float64)
    wanted = predict_official(official, case, *scene)
    torch.set_default_dtype(torch.float32)
    assert wanted.std() > 0.05, "the images are flat and show nothing"
    return float((found - wanted).abs().max())


def store_vectors(path: Path) -> None:
    """Store a scene and what official code makes of it with weights drawn by name, for the tests."""
    torch.set_default_dtype(torch.float64)
    case = VECTORS
    images, params, poses = make_scene(case)
    wanted = predict_official(build_official(case), case, images, params, poses)
    arrays = {"images": images, "params": params, "poses": poses, "predicted": wanted}
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **{name: value.numpy() for name, value in arrays.items()})
    print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--vectors", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.vectors:
        store_vectors(asked.vectors)
        return
    differences = {name: compare(case) for name, case in CASES.items()}
    for name, value in differences.items():
        print(f"{name}: {value:.1e}")
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        document = {**collect_provenance(), "largest difference of a pixel": differences}
        asked.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
