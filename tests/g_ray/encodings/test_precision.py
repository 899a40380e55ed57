"""Rounding errors in docs/parts.md are those that are measured: one stage in a small type, all others in float64."""

import re
from functools import cache
from pathlib import Path

import pytest
import torch

from g_ray.cameras import OpenCVFisheye, Pinhole
from g_ray.coordinates import tangent
from g_ray.encodings.rotary import make_geometric_frequencies

PAGE = Path(__file__).resolve().parents[3] / "docs" / "parts.md"
DIM, PATCHES, PATCH = 64, 32, 16
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.float8_e4m3fn}
STAGES = ("rays", "angles", "phases", "cos and sin", "rotated q and k")


def make_rays(lens):
    side = PATCHES * PATCH
    if lens == "pinhole":
        camera = Pinhole.from_fov(90.0, side, side, dtype=torch.float64)
    else:
        focal = side / 2 / torch.pi * 180 / 85
        camera = OpenCVFisheye.make(
            side, side, fx=focal, fy=focal, cx=side / 2, cy=side / 2, dtype=torch.float64
        )
    places = (torch.arange(PATCHES, dtype=torch.float64) + 0.5) * PATCH
    return camera.unproject(torch.cartesian_prod(places, places).flip(-1))[0]


def attend(stage, dtype, scale, lens):
    """Return phases, and scores of queries and keys with scores of deviation 1; one stage is rounded to a type."""

    def at(name, x):
        return x.to(dtype).double() if name == stage else x

    angles = at("angles", tangent(at("rays", make_rays(lens))))
    phases = at("phases", (angles[..., None] * make_geometric_frequencies(DIM // 4, scale)).flatten(1))
    cos, sin = at("cos and sin", phases.cos()), at("cos and sin", phases.sin())
    generator = torch.Generator().manual_seed(0)
    rotated = []
    for x in torch.randn(2, PATCHES**2, DIM, dtype=torch.float64, generator=generator):
        first, second = x.chunk(2, -1)
        turned = torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
        rotated.append(at("rotated q and k", turned))
    return torch.atan2(sin, cos), rotated[0] @ rotated[1].mT / DIM**0.5


@cache
def measure(stage, dtype, scale, lens="pinhole"):
    """Return the largest error of a phase, and of a score."""
    (phase, score), (true_phase, true_score) = (attend(name, dtype, scale, lens) for name in (stage, None))
    turn = (phase - true_phase + torch.pi).remainder(2 * torch.pi) - torch.pi
    return turn.abs().max().item(), (score - true_score).abs().max().item()


def read_table():
    """Return (phase, score) errors by stage, type and α; "–" is left out."""
    found = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] not in STAGES:
            continue
        for column, cell in enumerate(cells[1:]):
            numbers = map(float, re.findall(r"[\d.]+", cell))
            for scale, number in zip((1.0, 10.0), numbers, strict=False):
                found[cells[0], (*TYPES, *TYPES)[column], scale, column // len(TYPES)] = number
    return found


def test_errors_are_those_of_the_table():
    """Phases do not depend on chance; scores are the largest of a million, of random queries and keys."""
    table = read_table()
    assert len(table) == 2 * (4 * 6 + 3)
    for (stage, kind, scale, what), number in table.items():
        wanted = measure(stage, TYPES[kind], scale)[what]
        assert wanted / number == pytest.approx(1.0, rel=0.9 if what else 0.25), (stage, kind, scale, what)


def test_errors_grow_with_the_field_of_view():
    """As the text says of a 170° fisheye at α = 10."""
    assert measure("angles", torch.bfloat16, 10.0, "fisheye")[0] == pytest.approx(0.07, rel=0.1)
    assert measure("angles", torch.float8_e4m3fn, 10.0, "fisheye")[0] == pytest.approx(1.2, rel=0.1)


def test_float32_is_enough():
    worst = [measure(stage, torch.float32, scale) for stage in STAGES for scale in (1.0, 10.0)]
    assert max(max(errors) for errors in worst) < 2e-6
