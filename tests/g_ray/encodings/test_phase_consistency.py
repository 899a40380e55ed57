"""The paper's claim: the same pair of rays has the same relative phase through every projection."""

from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from g_ray.cameras import CAMERAS, OpenCVFisheye, Pinhole, RayMapCamera
from g_ray.coordinates import COORDINATES, RayCoordinate, get_coordinate, tangent
from g_ray.encodings import encoding
from g_ray.encodings.rotary import make_geometric_frequencies
from g_ray.encodings.rotation import position_score, probe_score
from g_ray.nn.attention import attention
from g_ray.rays.ray_map import RayMap
from g_ray.rays.views import Views

SIZE, PATCH = 512, 16


@cache
def lenses() -> dict:
    fisheye = OpenCVFisheye.make(
        SIZE, SIZE, fx=200.0, fy=201.0, cx=250.0, cy=259.0, k1=0.01, k2=-0.002, dtype=torch.float64
    )
    rays = RayMap.from_camera(fisheye)
    return {
        "wide": Pinhole.from_fov(100.0, SIZE, SIZE).to(dtype=torch.float64),
        "tele": Pinhole.make(SIZE, SIZE, fx=900.0, fy=905.0, cx=240.0, cy=270.0, dtype=torch.float64),
        "fisheye": fisheye,
        "ray_map": RayMapCamera.from_rays(rays.directions, rays.valid),
    }


def rays_in_all_views(seed: int, count: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    slopes = (torch.rand(count, 2, generator=generator, dtype=torch.float64) - 0.5) * 0.4
    rays = torch.cat([slopes, torch.ones(count, 1, dtype=torch.float64)], -1)
    return rays / rays.norm(dim=-1, keepdim=True)


def relative_phases(camera, rays, name: str) -> torch.Tensor:
    """Phase difference of two rays as tokens centred on their pixels would get it: [frequency, axis]."""
    pixels, valid = camera.project(rays)
    assert valid.all()
    if name == "grid":
        positions = pixels / PATCH
    else:
        directions, seen = camera.unproject(pixels)
        assert seen.all()
        kind = get_coordinate(name)
        assert isinstance(kind, RayCoordinate)
        positions = kind.compute_for_directions(directions)
    return make_geometric_frequencies(16)[:, None] * (positions[1] - positions[0])


@given(st.integers(0, 10_000))
def test_same_ray_pair_same_phase(seed):
    rays = rays_in_all_views(seed)
    angular = {lens: relative_phases(camera, rays, "tangent") for lens, camera in lenses().items()}
    grid = {lens: relative_phases(camera, rays, "grid") for lens, camera in lenses().items()}
    for lens in ("tele", "fisheye", "ray_map"):
        assert (angular[lens] - angular["wide"]).abs().max() < 1e-6
    apart = (rays[1] - rays[0])[:2].abs().max()
    assert (grid["tele"] - grid["wide"]).abs().max() > 10 * apart


@pytest.mark.parametrize("name", [n for n, kind in COORDINATES.items() if isinstance(kind, RayCoordinate)])
@pytest.mark.parametrize("model", CAMERAS)
def test_a_token_of_any_camera_gets_the_phase_of_its_ray(name, model):
    """Through the whole path: camera, tokens, rays, coordinate, rotation."""
    camera = CAMERAS[model].example(3, 64, 48)
    tokens = Views([camera]).tokens(8)
    kind = get_coordinate(name)
    assert isinstance(kind, RayCoordinate)
    rays = tokens.rays()
    pixels, valid = camera.project(rays.directions[0, :, 0])
    centres = (torch.cartesian_prod(torch.arange(6), torch.arange(8)).flip(-1) * 8.0 + 4.0).to(pixels)
    seen = rays.valid[0, :, 0]
    assert seen.any()
    assert (valid | ~seen).all()
    assert (pixels - centres)[seen].abs().max() < 1e-5
    values = get_coordinate(name)(tokens).values[0, :, 0]
    assert (values - kind.compute_for_directions(rays.directions[0, :, 0]))[seen].abs().max() < 1e-12


def test_attention_sees_the_shared_rays_alike():
    """Crop a wide view so that its rays are a subset: G-ray scores of shared patches are equal, grid RoPE's are not."""
    wide = Pinhole.from_fov(80.0, 128, 128).to(dtype=torch.float64)
    crop = wide.crop(32, 48, 64, 64)
    tokens, cropped = Views([wide]).tokens(16), Views([crop]).tokens(16)
    shared = torch.cartesian_prod(torch.arange(3, 7), torch.arange(2, 6)) @ torch.tensor([8, 1])
    q, k, v = (torch.randn(1, 2, 16, 32, dtype=torch.float64) for _ in range(3))
    whole = [torch.zeros(1, 2, 64, 32, dtype=torch.float64).index_copy(2, shared, x) for x in (q, k, v)]
    mask = torch.zeros(1, 64, dtype=torch.bool).index_fill(1, shared, True)
    differences = {}
    for name, scale in (("gray", 10.0), ("rope", 1.0)):
        kind = encoding(name, 32, scale=scale)
        alone = attention(q, k, v, kind.prepare(cropped))
        within = attention(*whole, kind.prepare(tokens), key_mask=mask)[:, :, shared]
        differences[name] = (alone - within).abs().max().item()
    assert differences["gray"] < 1e-10
    # A crop on patch boundaries only shifts grid indices, and RoPE is relative too…
    assert differences["rope"] < 1e-10
    # …but a crop that is resized back to the full grid is another matter.
    zoomed = Views([crop.resize(128, 128)]).tokens(32)
    kind = encoding("gray", 32, scale=10.0)
    assert (
        attention(q, k, v, kind.prepare(zoomed)) - attention(q, k, v, kind.prepare(cropped))
    ).abs().max() < 1e-10


def test_content_free_score():
    """eq:app_score: q = k = 1 through the rotations gives Σ 2 cos(ω Δξ), largest for identical rays."""
    tokens = Views([lenses()["fisheye"].resize(64, 64)]).tokens(8)
    rotation = encoding("gray", 32, scale=3.0).prepare(tokens).query
    angles = get_coordinate("tangent")(tokens).values[0, :, 0]
    score = position_score(angles, angles, make_geometric_frequencies(8, 3.0))
    assert (probe_score(rotation, rotation)[0, 0] - score).abs().max() < 1e-10
    assert torch.allclose(score.diagonal(), torch.tensor(32.0).double())
    assert (score <= 32 + 1e-9).all()


def test_zoom_changes_no_phase():
    """RE10K protocol: 256×144, patch 8, a 32 × 18 grid; zooming about the centre moves rays, not their phases."""
    camera = Pinhole.make(256, 144, fx=200.0, fy=200.0, cx=128.0, cy=72.0, dtype=torch.float64)
    zoomed = camera.crop(64, 36, 128, 72).resize(256, 144)
    assert len(Views([zoomed]).tokens(8)) == 32 * 18
    ray = torch.tensor([0.05, -0.02, 1.0], dtype=torch.float64)
    for view in (camera, zoomed):
        pixel, _ = view.project(ray)
        direction, _ = view.unproject(pixel)
        assert (tangent(direction) - tangent(ray)).abs().max() < 1e-12
    assert (zoomed.project(ray)[0] - camera.project(ray)[0]).abs().max() > 5
