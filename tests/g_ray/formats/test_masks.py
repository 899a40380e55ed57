"""Masks: found by COLMAP's and nerfstudio's names, turned and sized as their photographs, refused by name."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from g_ray.cameras import OpenCVFisheye, Pinhole
from g_ray.formats.masks import find_masks, valid_pixels
from g_ray.formats.nerfstudio import NerfstudioSource
from g_ray.media.images import rotate_upright
from g_ray.media.photos import find_photos


def write_mask(path, size=(64, 48), mode="L", used=255, exif=None):
    """The upper left quarter may not be used."""
    values = np.full((size[1], size[0]), used, dtype=np.uint8)
    values[: size[1] // 2, : size[0] // 2] = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).convert(mode).save(path, **({} if exif is None else {"exif": exif}))
    return torch.from_numpy(values != 0)


@pytest.fixture
def masks(tmp_path):
    folder = tmp_path / "masks"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    "name", ["dslr/a.jpg.png", "dslr/a.png", "a.jpg.png", "a.png", "dslr/a.tif"], ids=lambda name: name
)
def test_names_of_colmap_and_nerfstudio(tmp_path, shoot, masks, name):
    shoot("dslr/a.jpg"), shoot("phone/b.jpg")
    photos = find_photos([tmp_path / "photos"])
    expected, notes = write_mask(masks / name), []
    found, missing = find_masks(masks, photos, notes.append)
    assert torch.equal(found.load(), expected)
    assert missing is None
    assert len(notes) == 1 and "no mask for phone/b.jpg: all pixels are used" in notes[0]


def test_the_longer_path_and_colmaps_name_come_first(tmp_path, shoot, masks):
    shoot("dslr/a.jpg"), shoot("phone/b.jpg")
    for name in ("a.png", "a.jpg.png", "dslr/a.png", "dslr/a.jpg.png"):
        write_mask(masks / name)
    notes = []
    first, _ = find_masks(masks, find_photos([tmp_path / "photos"]), notes.append)
    assert first.path == masks / "dslr" / "a.jpg.png"
    assert any("no photograph for" in note for note in notes)


def test_nerfstudios_masks_come_with_its_cameras(tmp_path, shoot):
    from g_ray.reconstruction.inputs import PhotoOptions, read_views

    example = NerfstudioSource.example(tmp_path)
    document = json.loads(example.path.read_text())
    (frame,) = document["frames"]
    expected = write_mask(tmp_path / "masks" / "a.png", (640, 480))
    document["frames"] = [frame | {"mask_path": "masks/a.png"}, frame | {"file_path": "images/b.jpg"}]
    example.path.write_text(json.dumps(document))
    photos = [str(shoot(name, (640, 480))) for name in ("images/a.jpg", "images/b.jpg")]
    said = []
    first, second = read_views(photos, [str(example.path)], PhotoOptions(), said.append)
    assert torch.equal(first.load_mask(), expected) and second.mask is None
    assert any("1 photographs have masks that their calibration names" in line for line in said)


def test_masks_beside_png_photographs(tmp_path, shoot):
    """A PNG is not its own mask."""
    shoot("a.png"), shoot("b.png")
    photos = find_photos([tmp_path / "photos" / "a.png", tmp_path / "photos" / "b.png"])
    write_mask(tmp_path / "photos" / "a.png.png")
    notes = []
    first, second = find_masks(tmp_path / "photos", photos, notes.append)
    assert first.path.name == "a.png.png" and second is None
    assert not any("no photograph" in note for note in notes)


def test_mask_paths_of_transforms(tmp_path, shoot, masks):
    shoot("a.jpg"), shoot("b.jpg")
    expected = write_mask(masks / "odd" / "name.png")
    frames = [{"file_path": "images/a.jpg", "mask_path": "odd/name.png"}, {"file_path": "images/b.jpg"}]
    frames = [{**frame, "transform_matrix": np.eye(4).tolist()} for frame in frames]
    (masks / "transforms.json").write_text(json.dumps({"frames": frames}))
    photos = find_photos([tmp_path / "photos"])
    for place in (masks, masks / "transforms.json"):
        first, second = find_masks(place, photos)
        assert torch.equal(first.load(), expected) and second is None
    (masks / "odd" / "name.png").unlink()
    with pytest.raises(ValueError, match=r"name.png: no such mask; images/a.jpg names it"):
        find_masks(masks, photos)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "1", "P", "I;16", "LA"])
@pytest.mark.parametrize("used", [1, 255])
def test_anything_that_is_not_zero_is_used(tmp_path, shoot, masks, mode, used):
    if mode == "1" and used == 1:
        pytest.skip("Pillow rounds 1 of 255 to 0 in a bitmap")
    shoot("a.jpg")
    expected = write_mask(masks / "a.png", mode=mode, used=used)
    (found,) = find_masks(masks, find_photos([tmp_path / "photos"]))
    assert torch.equal(found.load(), expected)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_masks_turn_with_their_photographs(tmp_path, shoot, masks, orientation):
    """Drawn on stored pixels, drawn on upright pixels, or with an orientation of its own."""
    shoot("a.jpg", (64, 48), {274: orientation})
    stored = write_mask(masks / "a.png")
    upright = rotate_upright(stored[None], orientation)[0]
    (photo,), (as_stored,) = (
        find_photos([tmp_path / "photos"]),
        find_photos([tmp_path / "photos"], upright=False),
    )
    assert torch.equal(find_masks(masks, [photo])[0].load(), upright)
    assert torch.equal(find_masks(masks, [as_stored])[0].load(), stored)
    tags = Image.Exif()
    tags[274] = orientation
    write_mask(masks / "a.png", exif=tags)
    assert torch.equal(find_masks(masks, [photo])[0].load(), upright)
    if orientation >= 5:  # only one way fits
        drawn = write_mask(masks / "a.png", size=(48, 64))
        assert torch.equal(find_masks(masks, [photo])[0].load(), drawn)


def test_masks_of_another_size_are_resized_and_said(tmp_path, shoot, masks):
    shoot("a.jpg", (128, 96))
    small, notes = write_mask(masks / "a.png", size=(64, 48)), []
    (found,) = find_masks(masks, find_photos([tmp_path / "photos"]), notes.append)
    assert torch.equal(found.load(), small.repeat_interleave(2, 0).repeat_interleave(2, 1))
    assert "resized to the photograph's size, without interpolation: a.png" in notes[0]


def test_refusals(tmp_path, shoot, masks):
    shoot("x/a.jpg"), shoot("y/a.jpg")
    photos = find_photos([tmp_path / "photos"])
    with pytest.raises(
        ValueError, match=r"no mask for any of the 2 photographs; the mask of x/a.jpg is a.jpg.png or a.png"
    ):
        find_masks(masks, photos)
    with pytest.raises(ValueError, match="no such folder of masks"):
        find_masks(masks / "nowhere", photos)
    write_mask(masks / "a.png")
    with pytest.raises(ValueError, match=r"a.png would be the mask of x/a.jpg and of y/a.jpg"):
        find_masks(masks, photos)
    write_mask(masks / "a.png", size=(64, 50))
    with pytest.raises(ValueError, match=r"a.png is 64×50 px, x/a.jpg 64×48: not of one shape"):
        find_masks(masks, photos[:1])
    write_mask(masks / "a.png", used=0)
    with pytest.raises(ValueError, match=r"a.png: this mask hides the whole photograph"):
        find_masks(masks, photos[:1])
    (masks / "a.png").unlink()
    write_mask(masks / "a.jpg")
    with pytest.raises(ValueError, match=r"a.jpg: a mask as JPEG .* save it as PNG"):
        find_masks(masks, photos[:1])


def test_valid_pixels_are_those_of_lens_and_mask():
    lens = OpenCVFisheye.make(80, 60, fx=20.0, fy=20.0, cx=40.0, cy=30.0, dtype=torch.float64)
    lens = lens.limit_to_circle(25)
    mask = torch.ones(60, 80, dtype=torch.bool)
    mask[:, :40] = False
    valid = valid_pixels(lens, mask)
    v, u = torch.meshgrid(torch.arange(60) + 0.5, torch.arange(80) + 0.5, indexing="ij")
    assert torch.equal(valid, ((u - 40) ** 2 + (v - 30) ** 2 <= 25**2) & (u > 40))
    assert valid_pixels(Pinhole.from_fov(60, 8, 8)).all()
    with pytest.raises(ValueError, match="leaves no pixel"):
        valid_pixels(lens, (u - 40) ** 2 + (v - 30) ** 2 > 30**2)
