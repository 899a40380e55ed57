"""Photos: found, named, ordered, and read as red, green and blue whatever is in the file."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from g_ray.media import photos as photos_module
from g_ray.media.images import read_photo, rotate_upright
from g_ray.media.photos import find_photos, natural_sort_key
from g_ray.media.video import _rotate_upright, choose_frames


def names(photos):
    return [photo.name for photo in photos]


def test_a_folder_with_all_below_it_in_natural_order(tmp_path, shoot):
    for name in ("b/a10.jpg", "b/a2.jpg", "b/A1.PNG", "a.tif", ".hidden/c.jpg"):
        shoot(name)
    (tmp_path / "photos" / "notes.txt").write_text("not a photo")
    assert names(find_photos([tmp_path / "photos"])) == ["a.tif", "b/A1.PNG", "b/a2.jpg", "b/a10.jpg"]


def test_names_are_relative_to_the_common_folder(tmp_path, shoot):
    one, other = shoot("dslr/x/a.jpg"), shoot("phone/a.jpg")
    assert names(find_photos([one, other])) == ["dslr/x/a.jpg", "phone/a.jpg"]
    assert names(find_photos([one])) == ["a.jpg"]
    assert names(find_photos([str(tmp_path / "photos" / "*" / "*.jpg"), one])) == [
        "dslr/x/a.jpg",
        "phone/a.jpg",
    ]
    assert names(find_photos([str(tmp_path / "photos" / "**" / "*.jpg")])) == ["dslr/x/a.jpg", "phone/a.jpg"]


def test_a_file_may_have_any_suffix_and_brackets_in_its_name(tmp_path, shoot):
    path = shoot("a[1].png")
    odd = path.rename(path.with_name("frame[1].0001"))
    assert names(find_photos([str(odd)])) == ["frame[1].0001"]


def test_natural_order_is_total():
    given = ["a10", "a2", "A2", "a02", "b", "a", "10", "9"]
    assert len({tuple(natural_sort_key(name)) for name in given}) == len(given)
    assert sorted(["IMG_10.jpg", "IMG_9.jpg"], key=natural_sort_key) == ["IMG_9.jpg", "IMG_10.jpg"]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_photos_come_upright_as_pillow_turns_them(shoot, orientation):
    path = shoot("a.png", (64, 48), {274: orientation})
    (photo,) = find_photos([path])
    with Image.open(path) as image:
        expected = np.asarray(ImageOps.exif_transpose(image))
    pixels = photo.load()
    assert (photo.height, photo.width) == tuple(pixels.shape[1:]) == expected.shape[:2]
    assert np.array_equal((pixels * 255).round().byte().movedim(0, -1).numpy(), expected)
    (stored,) = find_photos([path], upright=False)
    assert (stored.width, stored.height) == (64, 48) and stored.load().shape == (3, 48, 64)
    assert torch.equal(rotate_upright(stored.load(), orientation), pixels)


def test_sixteen_bits_grey_alpha_palette_and_floats(tmp_path):
    grey = np.linspace(0, 65535, 48 * 64).round().reshape(48, 64)
    expected = torch.from_numpy(grey / 65535).float().expand(3, -1, -1)
    kinds = {
        "sixteen.png": (Image.fromarray(grey.astype(np.uint16)), 1e-5),
        "sixteen.tif": (Image.fromarray(grey.astype(np.uint16)), 1e-5),
        "float.tif": (Image.fromarray((grey / 65535).astype(np.float32)), 1e-6),
        "grey.png": (Image.fromarray((grey / 257).round().astype(np.uint8)), 2.1e-3),
        "int.tif": (Image.fromarray(grey.astype(np.int32)), 1e-4),
    }
    for name, (image, tolerance) in kinds.items():
        image.save(tmp_path / name)
        pixels = read_photo(tmp_path / name)
        assert pixels.dtype == torch.float32 and pixels.shape == (3, 48, 64)
        assert torch.allclose(pixels, expected, atol=tolerance), name
    colour = np.random.default_rng(0).integers(0, 255, (48, 64, 4), dtype=np.uint8)
    Image.fromarray(colour).save(tmp_path / "alpha.png")
    Image.fromarray(colour[..., :3]).quantize(16).save(tmp_path / "palette.png")
    seen = (read_photo(tmp_path / "alpha.png") * 255).round().byte().movedim(0, -1)
    assert np.array_equal(seen.numpy(), colour[..., :3])
    assert read_photo(tmp_path / "palette.png").shape == (3, 48, 64)


@pytest.fixture
def film(tmp_path):
    """Forty frames, frame i of grey 6·i."""
    av = pytest.importorskip("av")
    with av.open(str(tmp_path / "walk.mp4"), "w") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.options = {"crf": "1", "g": "12"}
        for i in range(40):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 6 * i, dtype=np.uint8), format="rgb24")
            for packet in stream.encode(frame):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return tmp_path / "walk.mp4"


@pytest.mark.parametrize(
    ("options", "frames"),
    [
        ({"every": 15}, [0, 15, 30]),
        ({"frames": 4}, [0, 13, 26, 39]),
        ({"frames": 1}, [0]),
        ({"frames": 99}, list(range(40))),
    ],
)
def test_frames_of_a_video(film, options, frames):
    photos = find_photos([film], **options)
    assert names(photos) == [f"walk/frame_{i:06d}.png" for i in frames]
    for photo, i in list(zip(photos, frames, strict=True))[:6]:
        assert (photo.width, photo.height) == (64, 48)
        assert abs(photo.load().mean().item() * 255 - 6 * i) < 3


def test_a_video_beside_photos(film, shoot):
    photos = find_photos([film, shoot("a.jpg")])
    assert len(photos) == 33 and names(photos)[:2] == ["photos/a.jpg", "walk/frame_000000.png"]
    assert photos[1].place.parts[-2:] == ("walk", "frame_000000.png")


def test_frames_of_a_phone_are_turned():
    class Frame:
        rotation = -90

        def to_ndarray(self, format):
            return np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)

    expected = np.rot90(Frame().to_ndarray("rgb24"), -1)
    assert np.array_equal((_rotate_upright(Frame()) * 255).round().byte().movedim(0, -1).numpy(), expected)


def test_frames_are_spread_from_the_first_to_the_last():
    for count in (5, 17, 100):
        for frames in (2, 3, 5):
            picked = choose_frames(count, None, frames)
            assert picked[0] == 0 and picked[-1] == count - 1 and len(set(picked)) == frames


# Refusals


def test_what_cannot_be_used_is_named(tmp_path, shoot, film):
    good = shoot("good.jpg")
    cut = tmp_path / "cut.jpg"
    shoot("large.jpg", (640, 480))
    cut.write_bytes((tmp_path / "photos" / "large.jpg").read_bytes()[:3000])
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "text.jpg").write_text("this is no image")
    (tmp_path / "broken.mp4").write_bytes(b"no video" * 100)
    (tmp_path / "films").mkdir()
    film.rename(tmp_path / "films" / "walk.mp4")
    (tmp_path / "bare").mkdir()
    Image.fromarray(np.full((48, 64), 3.0, dtype=np.float32)).save(tmp_path / "bright.tif")
    cases = [
        (["nothing.jpg"], {}, OSError, "nothing.jpg: no such image"),
        ([], {}, ValueError, "no photos"),
        ([""], {}, ValueError, "empty path"),
        (["empty.jpg"], {}, OSError, "empty.jpg: an empty file"),
        (["text.jpg"], {}, OSError, "text.jpg: cannot be read as an image"),
        (["bare"], {}, ValueError, "bare: no images in this folder"),
        (["films"], {}, ValueError, "walk.mp4"),
        (["*.exr"], {}, ValueError, "no file matches"),
        ([str(good), str(good)], {}, ValueError, "good.jpg is given twice"),
        ([str(good), str(good.parent)], {}, ValueError, "good.jpg is given twice"),
        (["broken.mp4"], {}, OSError, "broken.mp4: cannot be read as a video"),
        (["gone.mov"], {}, OSError, "gone.mov: no such video"),
        ([str(good)], {"every": 3}, ValueError, "there is none among the photos"),
        (["films/walk.mp4"], {"every": 0}, ValueError, "every is 0"),
        (["films/walk.mp4"], {"every": 2, "frames": 3}, ValueError, "give one of them"),
        ([str(shoot("small.png", (20, 200)))], {}, ValueError, "20×200 px is too small"),
    ]
    for patterns, options, kind, text in cases:
        here = [
            pattern if pattern.startswith("/") or not pattern else str(tmp_path / pattern)
            for pattern in patterns
        ]
        with pytest.raises(kind, match=text) as raised:
            find_photos(here, **options)
        assert "\n" not in str(raised.value)
    for name, text in (("cut.jpg", "cut.jpg: cannot be read"), ("bright.tif", "from 3 to 3")):
        (photo,) = find_photos([tmp_path / name])
        with pytest.raises(OSError, match=text):
            photo.load()


def test_a_frame_and_a_photo_of_one_name(tmp_path, film):
    (tmp_path / "walk").mkdir()
    Image.new("RGB", (64, 48)).save(tmp_path / "walk" / "frame_000000.png")
    with pytest.raises(ValueError, match=r"walk/frame_000000.png is the name of two photos"):
        find_photos([film, tmp_path / "walk"])


def test_photographs_and_videos_that_are_left_out_of_a_folder_are_named(tmp_path, shoot):
    folder = shoot("a.png").parent
    for name in ("b.JXL", "c.dng", "film.mp4", "notes.txt"):
        (folder / name).write_bytes(b"no image")
    notes = []
    assert names(find_photos([folder], note=notes.append)) == ["a.png"]
    assert (
        len(notes) == 2 and "b.JXL, c.dng: convert them" in notes[0] and "film.mp4: give videos" in notes[1]
    )
    with pytest.raises(OSError, match=r"b\.JXL: cannot be read as an image of JPEG, .*; convert it"):
        find_photos([folder / "b.JXL"])
    (folder / "a.png").unlink()
    with pytest.raises(ValueError, match=r"no images in this folder; convert b\.JXL and others"):
        find_photos([folder])


@pytest.mark.parametrize("name", ["b.HEIC", "b.jpg"])
def test_a_damaged_photograph_in_a_folder_is_refused(shoot, name):
    """It is meant to be used: to go on without it would hide the loss."""
    folder = shoot("a.png").parent
    (folder / name).write_bytes(b"no image")
    with pytest.raises(
        OSError, match=rf"{name}: cannot be read as an image of JPEG, .*; convert it, or leave it out"
    ):
        find_photos([folder])


@pytest.mark.parametrize("mark", ["result.json", "unfinished/settings.json", ".g-ray.json"])
def test_results_inside_of_the_folder_are_no_photographs(shoot, mark):
    """`--out photos/out` must not make its copies photographs of the next run."""
    folder = shoot("a.png").parent
    out = shoot("out/images/a.png").parent.parent
    assert len(find_photos([folder])) == 2
    (out / mark).parent.mkdir(exist_ok=True)
    (out / mark).write_text('{"format": "g-ray-result"}')
    notes = []
    assert names(find_photos([folder], note=notes.append)) == ["a.png"] and "wrote into out" in notes[0]
    assert names(find_photos([out / "images"])) == ["a.png"]


def test_links_to_folders_are_named(tmp_path, shoot):
    folder = shoot("a.png").parent
    (folder / "more").symlink_to(shoot("elsewhere/b.png").parent.rename(tmp_path / "elsewhere"))
    notes = []
    assert names(find_photos([folder], note=notes.append)) == ["a.png"]
    assert "links to folders are not followed (more)" in notes[0]


def test_depth_maps_of_seven_scenes_are_no_photographs(tmp_path, shoot):
    for name in ("frame-000000.color.png", "frame-000000.depth.png", "frame-000000.depth.proj.png"):
        shoot(name)
    folder, notes = tmp_path / "photos", []
    for given in (folder, folder / "*.png"):
        assert names(find_photos([given], note=notes.append)) == ["frame-000000.color.png"]
    assert all("2 depth maps (*.depth.png) are not taken for photographs" in note for note in notes)
    assert len(notes) == 2
    assert names(find_photos([folder / "frame-000000.depth.png"])) == ["frame-000000.depth.png"], (
        "named itself"
    )
    (folder / "frame-000000.color.png").unlink()
    with pytest.raises(ValueError, match="only depth maps"):
        find_photos([folder])


def test_a_whole_disk_is_refused(tmp_path, shoot, monkeypatch):
    shoot("a.png")
    shoot("b/c.png")
    assert len(find_photos([tmp_path])) == 2
    monkeypatch.setattr(photos_module, "MAX_FILES", 3)
    with pytest.raises(ValueError, match="more than 3 files below it: give the folder of the photographs"):
        find_photos([tmp_path])
