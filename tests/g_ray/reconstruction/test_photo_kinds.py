"""Every kind of photograph in every EXIF orientation, through the real pipeline to the last file."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from PIL import Image, features

from g_ray.export.export_options import ExportOptions
from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.export.result import read_reconstruction
from g_ray.geometry.pose import Pose
from g_ray.media.images import read_photo, rotate_upright
from g_ray.predictors.predictor import Cost, SceneInput, ScenePrediction
from g_ray.reconstruction.inputs import KnownGeometry, PhotoOptions, read_views
from g_ray.reconstruction.reconstruction_run import run_reconstruction

TURNED = (5, 6, 7, 8)
WIDTH, HEIGHT = 48, 36
KINDS = {
    # file: (suffix, mode)
    **{
        f"{mode}.png".replace(";", ""): (".png", mode)
        for mode in ("RGB", "RGBA", "L", "LA", "P", "1", "I;16")
    },
    **{f"{mode}.jpg": (".jpg", mode) for mode in ("RGB", "L", "CMYK")},
    **{f"{mode}.tif".replace(";", ""): (".tif", mode) for mode in ("RGB", "I;16", "F")},
    "RGB.webp": (".webp", "RGB"),
    "L.webp": (".webp", "L"),
    **({"RGB.avif": (".avif", "RGB")} if features.check("avif") else {}),
}
PLAIN = {
    "RGB.bmp": (".bmp", "RGB"),
    "1.bmp": (".bmp", "1"),
    "RGB.ppm": (".ppm", "RGB"),
    "L.pgm": (".pgm", "L"),
}
"""Without EXIF."""


@dataclass(frozen=True)
class FlatWall:
    """A model that costs nothing: all cameras in one place, before a wall one unit away."""

    NAME: ClassVar[str] = "wall"
    USES: ClassVar[frozenset] = frozenset()

    def estimate_cost(self, scene: SceneInput) -> Cost:
        return Cost(0.0, 0, "nothing")

    def describe_settings(self) -> dict[str, Any]:
        return {}

    def load_finished(self, scene: SceneInput, work: Path) -> ScenePrediction | None:
        return None

    def predict(self, scene, work=None, progress=lambda stage, share: None) -> ScenePrediction:
        views = []
        for number, view in enumerate(scene.views):
            shape = view.load_image().shape[1:]
            assert shape == (view.camera.height, view.camera.width)
            pose = Pose.from_parts(torch.eye(3).double(), torch.tensor([0.1 * number, 0.0, 0.0]).double())
            maps = torch.ones(shape), torch.ones(shape), torch.ones(shape, dtype=torch.bool)
            views.append(ReconstructedView(view.name, view.camera, pose, *maps))
        return ScenePrediction(tuple(views), (None,) * len(views))


RAMP = np.linspace(0, 1, WIDTH * HEIGHT, dtype=np.float32).reshape(HEIGHT, WIDTH)


def draw_photo(mode: str) -> torch.Tensor:
    """Return what all photographs of a mode show, as stored."""
    values = np.asarray(Image.fromarray((255 * RAMP).astype(np.uint8)).convert("1")) if mode == "1" else RAMP
    return torch.from_numpy(values.astype(np.float32)).expand(3, -1, -1)


def write_photo(path: Path, mode: str, orientation: int | None) -> None:
    ramp = RAMP
    if mode == "I;16":
        image = Image.fromarray((65535 * ramp).astype(np.uint16))
    elif mode == "F":
        image = Image.fromarray(ramp)
    else:
        image = Image.fromarray((255 * ramp).astype(np.uint8)).convert(mode)
    exif = Image.Exif()
    if orientation is not None:
        exif[274] = orientation
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **({} if orientation is None else {"exif": exif}))


LENS = """{label}:
  camera_model: pinhole
  intrinsics: [40, 40, {cx}, {cy}]
  distortion_model: none
  distortion_coeffs: []
  resolution: [{width}, {height}]
"""
"""One lens for each size: photographs share it, which makes hundreds of them quick."""


def run(folder, out, as_stored):
    """Reconstruct all photographs of a folder; the size of a photograph tells which way up it was calibrated."""
    lenses = out.parent / "lenses.yaml"
    sizes = {"wide": (WIDTH, HEIGHT), "high": (HEIGHT, WIDTH)}
    lenses.write_text(
        "".join(
            LENS.format(label=label, cx=width / 2, cy=height / 2, width=width, height=height)
            for label, (width, height) in sizes.items()
        )
    )
    views = read_views([str(folder)], [str(lenses)], PhotoOptions(upright=not as_stored), print)
    (result,) = run_reconstruction(
        SceneInput(views),
        KnownGeometry(),
        FlatWall(),
        out,
        ExportOptions(max_points=1000),
        report=print,
        progress=lambda stage, share: None,
    )
    return result


@pytest.mark.parametrize(
    ("orientation", "as_stored"),
    [(None, False), *((number, number % 2 == 1) for number in range(10)), (6, True), (3, False)],
)
def test_all_kinds(tmp_path, orientation, as_stored):
    kinds = KINDS if orientation is not None else {**KINDS, **PLAIN}
    for name, (_, mode) in kinds.items():
        write_photo(tmp_path / "photos" / name, mode, orientation)
    run(tmp_path / "photos", tmp_path / "out", as_stored)
    result = read_reconstruction(tmp_path / "out")
    assert result.finished and len(result.views) == len(kinds)
    assert (tmp_path / "out" / "report.html").is_file()
    turn = orientation if orientation in range(1, 9) and not as_stored else 1
    swapped = turn in TURNED
    for camera in result.cameras():
        stored = read_photo(result.get_image_path(camera.name))
        expected = rotate_upright(draw_photo(KINDS.get(camera.name, PLAIN.get(camera.name))[1]), turn)
        assert stored.shape == expected.shape == (3, *((WIDTH, HEIGHT) if swapped else (HEIGHT, WIDTH)))
        lossy = camera.name.endswith((".jpg", ".webp", ".avif"))
        assert float((stored - expected).abs().mean()) <= (0.02 if lossy else 1 / 255), camera.name


def fail(*given, **named):
    raise AssertionError("something was computed")


@pytest.mark.parametrize("name", ["12:30.png", "a:b.png", "ü b'&<.png", "x" * 237 + ".png"])
def test_unusual_names(tmp_path, name):
    for one in (name, "other.png"):
        write_photo(tmp_path / "photos" / one, "RGB", None)
    result = run(tmp_path / "photos", tmp_path / "out", as_stored=False)
    assert result.finished and {view.name for view in result.cameras()} == {name, "other.png"}


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


def pretend_eps(path: Path) -> None:
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 64 64\n%%EndComments\nshowpage\n")


def dangle(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "nothing.jpg")


def make_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate, "b.jpg: cannot be read"),
        (pretend_eps, "b.jpg: cannot be read"),
        (dangle, "b.jpg: a link to nothing"),
        (make_pipe, "b.jpg: a pipe"),
        (lambda path: path.rename(path.with_name("x" * 242 + ".jpg")), "too long to be stored"),
        (lambda path: path.rename(path.with_name("a.ppm.png")), "both be stored as a.ppm.png"),
        (
            lambda path: path.rename(os.fsdecode(os.fsencode(path.parent) + b"/\xff.jpg")),
            "cannot be the name",
        ),
    ],
)
def test_bad_photographs_are_noticed_before_anything_is_computed(tmp_path, monkeypatch, damage, message):
    for name in ("a.ppm", "b.jpg"):
        write_photo(tmp_path / "photos" / name, "RGB", None)
    damage(tmp_path / "photos" / "b.jpg")
    lens = {"name": "lens", "model": "pinhole", "width": WIDTH, "height": HEIGHT}
    params = {"fx": 40.0, "fy": 40.0, "cx": 24.0, "cy": 18.0}
    document = {"format": "g-ray-cameras", "version": 1, "cameras": [{**lens, "params": params}]}
    (tmp_path / "lens.json").write_text(json.dumps(document))
    monkeypatch.setattr(FlatWall, "predict", fail)
    with pytest.raises((ValueError, OSError), match=message):
        views = read_views([str(tmp_path / "photos")], [str(tmp_path / "lens.json")], PhotoOptions(), print)
        options = {"report": print, "progress": print}
        run_reconstruction(
            SceneInput(views), KnownGeometry(), FlatWall(), tmp_path / "out", ExportOptions(), **options
        )
    assert not (tmp_path / "out").exists()
