"""Every registered source: recognised by its content alone, its camera found, its conventions kept."""

import shutil
from dataclasses import replace

import pytest
import torch

from g_ray.calibration.assign import assign_cameras
from g_ray.formats import CALIBRATIONS, open_calibration
from g_ray.formats.calibration_source import format_calibration_table
from g_ray.formats.documents import ParsedFile
from g_ray.media.photos import find_photos


@pytest.fixture(params=CALIBRATIONS, ids=str)
def sample(request, tmp_path, imagine):
    """Source class, example, and the photo that it calibrates."""
    source = CALIBRATIONS[request.param]
    example = source.example(tmp_path / "files")
    size = (example.camera.width, example.camera.height)
    photo = imagine(example.photo, size)
    if request.param == "exif":
        photo = replace(photo, path=tmp_path / "files" / example.photo)
    return source, example, photo


def test_it_is_registered_under_its_name(sample):
    source, _, _ = sample
    assert CALIBRATIONS[source.NAME] is source and source.CENTER in (0.0, 0.5)


def test_it_is_recognised_and_gives_its_camera(sample):
    source, example, photo = sample
    opened = open_calibration(example.path)
    assert type(opened) is source
    view = opened.find_camera(photo)
    assert view is not None and view.name == photo.name and view.image == photo
    assert (view.camera.NAME, view.camera.width, view.camera.height) == (
        example.camera.NAME,
        example.camera.width,
        example.camera.height,
    )
    assert torch.allclose(view.camera.params.double(), example.camera.params.double(), rtol=1e-12)
    grid = torch.rand(50, 2, dtype=example.camera.dtype) * torch.tensor([photo.width, photo.height])
    ours, theirs = view.camera.unproject(grid), example.camera.unproject(grid)
    assert torch.equal(ours[1], theirs[1]) and torch.allclose(ours[0], theirs[0])
    assert source.TITLE in view.source


def test_a_files_suffix_and_name_do_not_matter(sample, tmp_path):
    source, example, _ = sample
    if not example.path.is_file() or source.NAME == "ray_maps":
        pytest.skip("a folder, a keyword, or binary")
    renamed = tmp_path / "renamed.data"
    shutil.copy(example.path, renamed)
    assert type(open_calibration(renamed)) is source


def test_nobody_else_claims_it_first(sample):
    source, example, _ = sample
    claims = [name for name, other in CALIBRATIONS.items() if other.recognizes(ParsedFile(example.path))]
    assert claims[0] == source.NAME


def test_it_says_which_photos_it_does_not_know(sample, shoot, imagine):
    source, example, photo = sample
    other = imagine("zzz.png", (photo.width, photo.height))
    if source.NAME == "exif":
        (bare,) = find_photos([shoot("zzz.png")])
        with pytest.raises(ValueError, match=r"zzz.png: its EXIF has no focal length"):
            assign_cameras([bare], str(example.path))
    elif source.PER_PHOTO and source.NAME != "cameras_json":
        with pytest.raises(ValueError, match=r"no calibration for zzz.png"):
            assign_cameras([other], str(example.path))


def test_another_size_is_refused_or_scaled_when_asked(sample, imagine):
    source, example, photo = sample
    if source.NAME == "exif":
        pytest.skip("every photo has its own")
    small = imagine(example.photo, (photo.width // 2, photo.height // 2))
    with pytest.raises(ValueError, match=r"--resize-calibration|records 2880×2880 and"):
        assign_cameras([small], str(example.path))
    if source.NAME == "aria":
        return  # it has two sizes itself, and does not guess
    (view,) = assign_cameras([small], str(example.path), resize=True)
    assert (view.camera.width, view.camera.height) == (small.width, small.height)
    pixel = torch.tensor([[8.3, 9.1]], dtype=view.camera.dtype)
    ratio = torch.tensor([photo.width / small.width, photo.height / small.height], dtype=view.camera.dtype)
    expected = example.camera.unproject(pixel * ratio)[0]
    assert torch.allclose(view.camera.unproject(pixel)[0], expected, atol=1e-6)


def test_the_table_has_it_all(sample):
    _, example, photo = sample
    table = format_calibration_table(assign_cameras([photo], str(example.path)))
    head, rule, row = table.splitlines()
    assert head.split()[:3] == ["photo", "size", "model"] and set(rule) <= {"─", " "}
    fov = f"{example.camera.fov().horizontal_deg.item():.1f}°"
    for part in (photo.name, f"{photo.width}×{photo.height}", example.camera.NAME, fov):
        assert part in row


def test_garbage_after_a_good_start_is_one_line(sample, tmp_path):
    source, example, photo = sample
    if not example.path.is_file() or source.NAME == "ray_maps":
        pytest.skip("a folder, a keyword, or binary")
    text = example.path.read_text()
    for cut in range(1, len(text), max(1, len(text) // 40)):
        (tmp_path / "cut").write_text(text[:cut])
        try:
            open_calibration(tmp_path / "cut").find_camera(photo)
        except ValueError as error:
            assert "\n" not in str(error) and "cut" in str(error)
