"""Both layouts give back what was filmed; damaged and hostile files are refused in one line."""

import json
import os
import pickle
import shutil

import pytest
import torch

from g_ray.geometry.pose import Pose
from g_ray_lab.datasets import re10k
from g_ray_lab.datasets.re10k import ChunkClips, open_clips, read_chunk
from g_ray_lab.datasets.re10k_index import read_clip_index
from g_ray_lab.datasets.torch_archive import read_layout

LAYOUTS = ("chunks", "folders")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_clip_is_what_was_filmed(miniature, layout):
    clips = open_clips(miniature.root(layout), "train")
    assert clips.keys == ("0f0f0f", "5hort0", "a1b2c3")
    assert sorted(clips.order_by_file()) == list(clips.keys)
    for key in clips.keys:
        film, clip = miniature.films[key], clips.get_clip(key)
        assert clip.key == key and len(clip) == len(film.images)
        assert torch.allclose(clip.poses.world_from_cam, film.poses.world_from_cam, atol=1e-6)
        for number in (0, len(clip) - 1):
            frame = clip.frame(number)
            truth = torch.from_numpy(film.images[number]).permute(2, 0, 1) / 255
            assert (frame.image - truth).abs().mean() < (0.02 if layout == "chunks" else 1e-7)
            assert (frame.camera.width, frame.camera.height) == (160, 90)
            expected = film.normalised * torch.tensor([160, 90, 160, 90])
            assert torch.allclose(frame.camera.params[:4].double(), expected, rtol=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_blender_axes_are_turned_into_ours(miniature, layout):
    """A camera that looks along −z with y up, stored as such, is the same camera."""
    turn = torch.diag(torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64))
    blender = open_clips(miniature.root(layout), "train", "blender").get_clip("a1b2c3")
    stored = miniature.films["a1b2c3"].poses.world_from_cam
    assert torch.allclose(blender.poses.world_from_cam, stored @ turn, atol=1e-6)


def test_layouts_of_chunks_are_remembered_but_not_for_ever(miniature, tmp_path, monkeypatch):
    monkeypatch.setattr(re10k, "KEPT", 2)
    for number in range(4):
        shutil.copy(miniature.chunks / "train" / "000000.torch", tmp_path / f"{number}.torch")
    first = min(read_chunk(tmp_path / "0.torch"))
    (tmp_path / "index.json").write_text(json.dumps({first: "0.torch"}))
    clips = ChunkClips(tmp_path)
    for number in range(4):
        clips.chunks[first] = f"{number}.torch"
        assert len(clips.get_clip(first)) == 32
    assert list(clips._tables) == ["2.torch", "3.torch"]
    monkeypatch.setattr(re10k, "read_chunk", lambda path: pytest.fail("read again"))
    assert clips.get_clip(first).frame(3).image.shape[0] == 3


def test_the_layout_is_what_torch_loads(tmp_path):
    """Every tensor at its place: slices, other types, strides of single elements, names with dots."""
    base = torch.arange(60, dtype=torch.float32).reshape(5, 12)
    content = [
        {"key": "a", "part": base[1:3], "bytes": torch.arange(7, dtype=torch.uint8), "n": [1, "x", None]}
    ]
    torch.save(content, tmp_path / "my.chunk.torch")
    (found,) = read_layout(tmp_path / "my.chunk.torch")
    assert found["n"] == [1, "x", None] and found["part"].shape == (2, 12)
    assert torch.equal(found["part"].load(tmp_path / "my.chunk.torch"), base[1:3])
    assert found["bytes"].read_bytes(tmp_path / "my.chunk.torch") == bytes(range(7))
    torch.save([base.T], tmp_path / "turned.torch")
    with pytest.raises(pickle.UnpicklingError, match="not contiguous"):
        read_layout(tmp_path / "turned.torch")


def test_a_source_travels_without_its_open_chunks(miniature):
    clips = open_clips(miniature.chunks, "train")
    clips.get_clip("a1b2c3").frame(0)
    packed = pickle.dumps(clips)
    assert len(packed) < 1000
    assert pickle.loads(packed).keys == clips.keys


class Attack:
    def __reduce__(self):
        return os.mkdir, ("pwned",)


def test_a_chunk_cannot_run_code(miniature, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save([{"key": "a", "cameras": Attack(), "images": []}], tmp_path / "evil.torch")
    with pytest.raises(ValueError, match=r"evil\.torch holds more than tensors") as refused:
        read_chunk(tmp_path / "evil.torch")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "pwned").exists()


def chunk(**changes):
    cameras = torch.zeros(3, 18)
    cameras[:, :4] = torch.tensor([0.6, 1.0, 0.5, 0.5])
    cameras[:, 6:] = torch.eye(4)[:3].flatten()
    entry = {"key": "a", "cameras": cameras, "images": [torch.zeros(9, dtype=torch.uint8)] * 3}
    return [{**entry, **changes}]


def nan_pose():
    cameras = chunk()[0]["cameras"].clone()
    cameras[2, 9] = torch.nan
    return cameras


DAMAGED = {
    "not a list": ({"key": "a"}, "is not a chunk of RealEstate10K"),
    "other clip": (chunk(key="b"), r"has no clip a, although index\.json lists it"),
    "no cameras": (chunk(cameras=None), r"cameras must be a tensor \[frame, 18\]"),
    "short cameras": (chunk(cameras=torch.zeros(3, 16)), r"cameras must be a tensor \[frame, 18\]"),
    "one picture short": (chunk(images=[torch.zeros(9, dtype=torch.uint8)]), "1 pictures but 3 cameras"),
    "floats": (chunk(images=[torch.zeros(9)] * 3), "images must be a list of byte tensors"),
    "zero rotation": (chunk(cameras=torch.zeros(3, 18)), "frame 0: the pose is no rotation"),
    "not a number": (chunk(cameras=nan_pose()), "frame 2: the pose is no rotation"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_chunk_is_named(tmp_path, case):
    content, message = DAMAGED[case]
    (tmp_path / "index.json").write_text('{"a": "x.torch"}')
    torch.save(content, tmp_path / "x.torch")
    with pytest.raises(ValueError, match=message) as refused:
        ChunkClips(tmp_path).get_clip("a")
    assert "x.torch" in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("keep", [0, 10, 5000])
def test_a_truncated_chunk_is_named(miniature, tmp_path, keep):
    whole = (miniature.chunks / "train" / "000000.torch").read_bytes()
    (tmp_path / "x.torch").write_bytes(whole[:keep])
    with pytest.raises(ValueError, match=r"x\.torch"):
        read_chunk(tmp_path / "x.torch")


def test_an_old_chunk_that_is_no_zip_says_what_to_do(tmp_path):
    torch.save(chunk(), tmp_path / "x.torch", _use_new_zipfile_serialization=False)
    with pytest.raises(ValueError, match=r"older than torch 1\.6 .* load and save it with torch"):
        read_chunk(tmp_path / "x.torch")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_corrupt_picture_is_named_with_clip_and_frame(miniature, tmp_path, layout):
    root = tmp_path / "copy"
    shutil.copytree(miniature.root(layout) / "train", root)
    if layout == "folders":
        (root / "images" / "a1b2c3" / "00007.png").write_bytes(b"no picture")
    else:
        entries = torch.load(root / "000000.torch", weights_only=True)
        entries[0]["images"][7] = entries[0]["images"][7][:100]
        torch.save(entries, root / "000000.torch")
    clip = open_clips(tmp_path, "copy").get_clip("a1b2c3")
    clip.frame(6)
    with pytest.raises(ValueError, match="the picture cannot be read") as refused:
        clip.frame(7)
    assert "a1b2c3" in str(refused.value) and (
        "frame 7" in str(refused.value) or "00007" in str(refused.value)
    )


ESCAPES = ["../secret.torch", "/etc/passwd", "deep/../../x.torch", ""]


@pytest.mark.parametrize("name", ESCAPES)
def test_an_index_cannot_lead_out_of_its_folder(tmp_path, name):
    (tmp_path / "index.json").write_text(json.dumps({"a": name}))
    with pytest.raises(ValueError, match="is not inside"):
        ChunkClips(tmp_path).get_clip("a")


@pytest.mark.parametrize(
    ("image_path", "ok"),
    [
        ("/mnt/other/images/a1b2c3/00003.png", True),
        ("images/a1b2c3/00003.png", True),
        ("00003.png", True),
        ("C:\\re10k\\images\\a1b2c3\\00003.png", True),
        ("../../00003.png", False),
        ("/mnt/images/../../00003.png", False),
    ],
)
def test_paths_of_another_machine_are_found_and_escapes_refused(miniature, tmp_path, image_path, ok):
    root = tmp_path / "copy"
    shutil.copytree(miniature.folders / "train", root)
    file = root / "metadata" / "a1b2c3.json"
    document = json.loads(file.read_text())
    document["frames"][3]["image_path"] = image_path
    file.write_text(json.dumps(document))
    clip = open_clips(tmp_path, "copy").get_clip("a1b2c3")
    if ok:
        truth = torch.from_numpy(miniature.films["a1b2c3"].images[3]).permute(2, 0, 1) / 255
        assert torch.equal(clip.frame(3).image, truth)
    else:
        with pytest.raises(ValueError, match="is not inside"):
            clip.frame(3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not the metadata of a clip"),
        ('{"clips": []}', "'frames' is missing"),
        ('{"frames": []}', "has no frames"),
        ('{"frames": [{"w2c": [[1]], "fxfycxcy": [1, 1, 1, 1], "image_path": "a"}]}', "frame 0 needs"),
        ('{"frames": [{"fxfycxcy": [1, 1, 1, 1], "image_path": "a"}]}', "'w2c' is missing"),
    ],
)
def test_damaged_metadata_is_named(tmp_path, text, message):
    (tmp_path / "train" / "metadata").mkdir(parents=True)
    (tmp_path / "train" / "metadata" / "a.json").write_text(text)
    with pytest.raises(ValueError, match=message) as refused:
        open_clips(tmp_path, "train").get_clip("a")
    assert "a.json" in str(refused.value)


def test_intrinsics_of_another_size_are_refused(miniature, tmp_path):
    """640×360 intrinsics beside pictures of 160×90."""
    root = tmp_path / "copy"
    shutil.copytree(miniature.folders / "train", root)
    file = root / "metadata" / "a1b2c3.json"
    document = json.loads(file.read_text())
    for frame in document["frames"]:
        frame["fxfycxcy"] = [4 * value for value in frame["fxfycxcy"]]
    file.write_text(json.dumps(document))
    with pytest.raises(ValueError, match="do not belong to a picture of 160×90 px"):
        open_clips(tmp_path, "copy").get_clip("a1b2c3").frame(0)


def test_only_listed_clips_count(miniature, tmp_path):
    root = tmp_path / "copy"
    shutil.copytree(miniature.folders / "train", root)
    (root / "full_list.txt").write_text("/elsewhere/metadata/a1b2c3.json\n/elsewhere/metadata/gone.json\n")
    assert open_clips(tmp_path, "copy").keys == ("a1b2c3",)
    (root / "full_list.txt").unlink()
    assert len(open_clips(tmp_path, "copy").keys) == 3


def test_a_missing_root_says_what_is_expected(tmp_path):
    with pytest.raises(
        ValueError, match=r"no RealEstate10K at .*train/index\.json .*train/metadata"
    ) as refused:
        open_clips(tmp_path / "nowhere", "train")
    assert "\n" not in str(refused.value)


# The evaluation index


def test_the_index_counts_what_it_leaves_out(miniature):
    index = read_clip_index(miniature.index)
    assert [scene.key for scene in index.scenes] == ["7e57aa", "7e57bb", "abcdef"]
    assert (index.without, index.missing) == (1, 0)
    found = index.select_available(open_clips(miniature.chunks, "test").keys)
    assert [scene.key for scene in found.scenes] == ["7e57aa", "7e57bb"]
    assert found.missing == 1 and found.scenes[0].target == (8, 15, 22)
    expected = "2 of 3 indexed scenes are on disk, 1 are missing; 1 further entries have no frames"
    assert found.coverage == expected


@pytest.mark.parametrize(
    "text",
    ["[]", "{", '{"a": {"context": [0, 1]}}', '{"a": {"context": [0, -1], "target": [1]}}', '{"a": 3}'],
)
def test_a_wrong_index_is_refused(tmp_path, text):
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(ValueError, match=r"index\.json"):
        read_clip_index(tmp_path / "index.json")


def test_poses_in_the_files_are_cam_from_world(miniature):
    """What the files hold, inverted, is what the reader gives: the camera centre is the last column."""
    entry = read_chunk(miniature.chunks / "train" / "000000.torch")["a1b2c3"]
    cameras = entry["cameras"].load(miniature.chunks / "train" / "000000.torch")
    stored = cameras[4, 6:].reshape(3, 4).double()
    clip = open_clips(miniature.chunks, "train").get_clip("a1b2c3")
    centre = -stored[:, :3].T @ stored[:, 3]
    assert torch.allclose(Pose(clip.poses.world_from_cam[4]).translation, centre, atol=1e-6)
