"""Downloads become datasets: archives, folders, videos; what is wrong is named, and runs resume."""

import json
import shutil
import tarfile
import zipfile

import numpy as np
import pytest
import torch

from g_ray.cli.main import main
from g_ray.media.images import read_photo
from g_ray_lab import preparation
from g_ray_lab.datasets.dataset_registry import DATASETS, DOWNLOADS
from g_ray_lab.datasets.evaluation_scene import Framing
from g_ray_lab.miniatures import MINIATURES
from g_ray_lab.preparation import prepare_dataset

QUIET = lambda text: None  # noqa: E731


def zip_folder(folder, archive, prefix=""):
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                file.write(path, prefix + str(path.relative_to(folder)))


def test_every_dataset_has_a_miniature_and_every_download_one_description():
    assert list(MINIATURES) == list(DATASETS)
    assert {dataset.source for dataset in DATASETS.values()} == set(DOWNLOADS.values())


@pytest.mark.parametrize("name", DOWNLOADS)
def test_every_download_is_explained(name, capsys):
    assert main(["data", "prepare", name]) == 0
    text = capsys.readouterr().out
    assert text.strip() == DOWNLOADS[name].explain()
    assert DOWNLOADS[name].page in text
    assert DOWNLOADS[name].license in text


@pytest.mark.parametrize("name", ["eth3d", "sintel", "dtu", "nrgbd"])
def test_an_unpacked_download_is_linked_and_frozen(name, miniature_root, tmp_path):
    prepared = prepare_dataset(name, miniature_root(name), tmp_path / "out", QUIET)
    assert not prepared.broken
    assert prepared.indices
    for key, index in prepared.indices.items():
        stored = json.loads((tmp_path / "out" / "indices" / f"{key}.json").read_text())
        assert stored["sha256"] == index.digest
    assert any(path.is_symlink() for path in (tmp_path / "out").iterdir())


def test_nested_archives_of_7scenes(miniature_root, tmp_path):
    root, download = miniature_root("7scenes"), tmp_path / "download"
    inner = tmp_path / "inner"
    inner.mkdir()
    download.mkdir()
    zip_folder(root / "chess" / "seq-03", inner / "seq-03.zip", "seq-03/")
    (inner / "TestSplit.txt").write_text("sequence3\n")
    zip_folder(inner, download / "chess.zip", "chess/")
    prepared = prepare_dataset("7scenes", download, tmp_path / "out", QUIET)
    readers = ("7scenes", "7scenes-published")
    assert [(check.dataset, check.scene) for check in prepared.checks] == [
        (reader, "chess/seq-03") for reader in readers
    ]
    assert set(prepared.indices) == {
        f"7scenes-{kind}{ending}" for kind in ("sparse", "dense") for ending in ("", "-published")
    }
    assert not (download / "chess").exists()


def test_sequences_in_tar_files(miniature_root, tmp_path):
    root, download = miniature_root("tum"), tmp_path / "download"
    download.mkdir()
    (sequence,) = (path for path in root.iterdir() if path.is_dir())
    with tarfile.open(download / f"{sequence.name}.tgz", "w:gz") as file:
        file.add(sequence, sequence.name)
    prepared = prepare_dataset("tum", download, tmp_path / "out", QUIET)
    assert [check.scene for check in prepared.checks] == [sequence.name]


def test_a_second_run_does_not_unpack_again(miniature_root, tmp_path):
    download = tmp_path / "download"
    download.mkdir()
    zip_folder(miniature_root("dtu"), download / "dtu.zip")
    first, second = [], []
    prepare_dataset("dtu", download, tmp_path / "out", first.append)
    prepare_dataset("dtu", download, tmp_path / "out", second.append)
    assert first[0] == "unpacking dtu.zip"
    assert second == first[1:]


def test_a_run_that_was_stopped_resumes(miniature_root, tmp_path, monkeypatch):
    """The first archive stays unpacked, the second one is unpacked by the next run."""
    download, out = tmp_path / "download", tmp_path / "out"
    download.mkdir()
    for scan in ("scan1", "scan4"):
        zip_folder(miniature_root("dtu") / "scan1", download / f"dtu_{scan}.zip", f"{scan}/")
    move, calls = preparation._move_into, []

    def stop(scratch, target, root):
        calls.append(scratch)
        if len(calls) == 2:
            raise KeyboardInterrupt
        move(scratch, target, root)

    monkeypatch.setattr(preparation, "_move_into", stop)
    with pytest.raises(KeyboardInterrupt):
        prepare_dataset("dtu", download, out, QUIET)
    assert (out / "scan1").is_dir()
    assert not (out / "scan4").exists()
    monkeypatch.undo()
    lines = []
    prepared = prepare_dataset("dtu", download, out, lines.append)
    assert lines[0] == "unpacking dtu_scan4.zip"
    assert [check.scene for check in prepared.checks] == ["scan1", "scan4"]


def test_an_index_grows_with_the_dataset(miniature_root, tmp_path):
    download, out = tmp_path / "download", tmp_path / "out"
    shutil.copytree(miniature_root("dtu"), download)
    first = prepare_dataset("dtu", download, out, QUIET).indices["dtu"]
    shutil.copytree(download / "scan1", download / "scan4")
    second = prepare_dataset("dtu", download, out, QUIET).indices["dtu"]
    assert first.scenes["scan1"] == second.scenes["scan1"]
    assert len(first.missing) - len(second.missing) == 1


def test_a_changed_scene_does_not_replace_the_index(miniature_root, tmp_path):
    download, out = tmp_path / "download", tmp_path / "out"
    shutil.copytree(miniature_root("dtu"), download)
    prepare_dataset("dtu", download, out, QUIET)
    for folder in ("images", "depths", "binary_masks", "cams"):
        for path in (download / "scan1" / folder).glob("00000003*"):
            path.unlink()
    with pytest.raises(ValueError, match=r"dtu\.json is there with other views"):
        prepare_dataset("dtu", download, out, QUIET)


def test_the_four_datasets_of_da3_bench(miniature_root, tmp_path):
    download = tmp_path / "download"
    places = {
        "da3-eth3d": "eth3d",
        "da3-7scenes": "7scenes/7Scenes",
        "da3-scannetpp": "scannetpp",
        "da3-dtu": "dtu",
    }
    for name, place in places.items():
        (download / place).parent.mkdir(parents=True, exist_ok=True)
        (download / place).symlink_to(miniature_root(name))
    prepared = prepare_dataset("da3-bench", download, tmp_path / "out", QUIET)
    assert not prepared.broken
    assert set(prepared.indices) == set(places)


# What is wrong is named


def test_a_broken_scene_is_named_and_the_others_are_prepared(miniature_root, tmp_path, capsys):
    download = tmp_path / "download"
    for scan in ("scan1", "scan4"):
        shutil.copytree(miniature_root("dtu") / "scan1", download / scan)
    path = download / "scan4" / "depths" / "00000001.npy"
    path.write_bytes(path.read_bytes()[:-100])
    words = ["data", "prepare", "dtu", "--from", str(download), "--to", str(tmp_path / "out"), "--check", "0"]
    assert main(words) == 1
    text = capsys.readouterr().out
    assert "dtu, scan4: " in text
    assert "00000001.npy: cannot be read as numpy array" in text
    assert "dtu: 1 of 22 scenes" in text
    assert text.splitlines()[-1].endswith("1 of 2 scenes are sound, 1 protocols are frozen")


def test_missing_files_and_other_sizes_are_named(miniature_root, tmp_path):
    from PIL import Image

    download, lines = tmp_path / "download", []
    shutil.copytree(miniature_root("nrgbd"), download)
    (download / "breakfast_room" / "depth" / "depth1.png").unlink()
    prepare_dataset("nrgbd", download, tmp_path / "a", lines.append)
    assert "nrgbd, breakfast_room: 1 files are missing: " in lines[0]
    shutil.copyfile(
        miniature_root("nrgbd") / "breakfast_room" / "depth" / "depth1.png",
        download / "breakfast_room" / "depth" / "depth1.png",
    )
    Image.fromarray(np.zeros((9, 9, 3), np.uint8)).save(download / "breakfast_room" / "images" / "img2.png")
    lines.clear()
    prepare_dataset("nrgbd", download, tmp_path / "b", lines.append)
    assert "img2.png is 9×9 px, but its camera takes 120×90" in lines[0]


def test_a_folder_without_the_dataset_is_named(tmp_path, capsys):
    (tmp_path / "download").mkdir()
    words = ["--from", str(tmp_path / "download"), "--to", str(tmp_path / "out")]
    assert main(["data", "prepare", "eth3d", *words]) == 2
    assert "no scene of ETH3D" in capsys.readouterr().err
    assert main(["data", "prepare", "eth4d", *words]) == 2
    assert "unknown dataset 'eth4d'; known are pandaset, eth3d" in capsys.readouterr().err
    assert main(["data", "prepare", "eth3d", *words[:2]]) == 2
    assert "give both --from" in capsys.readouterr().err


def test_an_archive_that_leads_out_is_refused(tmp_path):
    (tmp_path / "download").mkdir()
    with zipfile.ZipFile(tmp_path / "download" / "dtu.zip", "w") as file:
        file.writestr("../evil.txt", "x")
    with pytest.raises(ValueError, match=r"dtu\.zip: path '\.\./evil\.txt' leads out of the archive"):
        prepare_dataset("dtu", tmp_path / "download", tmp_path / "out", QUIET)
    assert not (tmp_path / "evil.txt").exists()


def test_a_truncated_archive_is_named(miniature_root, tmp_path):
    (tmp_path / "download").mkdir()
    archive = tmp_path / "download" / "dtu.zip"
    zip_folder(miniature_root("dtu"), archive)
    archive.write_bytes(archive.read_bytes()[:2000])
    with pytest.raises(ValueError, match=r"dtu\.zip: cannot be unpacked .*; download it again"):
        prepare_dataset("dtu", tmp_path / "download", tmp_path / "out", QUIET)


def test_7z_archives_without_7_zip(tmp_path, monkeypatch):
    (tmp_path / "download").mkdir()
    (tmp_path / "download" / "courtyard_dslr_jpg.7z").write_bytes(b"7z")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ValueError, match="7-Zip is not installed"):
        prepare_dataset("eth3d", tmp_path / "download", tmp_path / "out", QUIET)


# ScanNet++'s videos


def write_video(path, frames):
    """Frames without loss, each ten times: about every tenth frame is registered."""
    av = pytest.importorskip("av")
    height, width = frames[0].shape[:2]
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=60)
        stream.width, stream.height, stream.pix_fmt = width, height, "bgr0"
        for pixels in frames:
            for _ in range(10):
                picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
                container.mux(stream.encode(picture))
        container.mux(stream.encode())


def test_frames_of_the_iphones_video_are_extracted(miniature_root, tmp_path):
    download, out = tmp_path / "download", tmp_path / "out"
    shutil.copytree(miniature_root("scannetpp-mixed"), download)
    place = download / "data" / "cc5237fd77" / "iphone"
    names = sorted(path.name for path in (place / "rgb").iterdir())
    stills = [read_photo(place / "rgb" / name) for name in names]
    write_video(place / "rgb.mkv", [(255 * still).round().byte().movedim(0, -1).numpy() for still in stills])
    shutil.rmtree(place / "rgb")
    # The reader takes frames of the video where none are extracted.
    scene = DATASETS["scannetpp-mixed"].read(download, "cc5237fd77")
    frame = scene["iphone/frame_000010.jpg"]
    before = frame.load_view(Framing.fit(frame.camera, 60, 40)).image
    lines = []
    prepare_dataset("scannetpp", download, out, lines.append, freeze=False)
    assert lines[0] == "cc5237fd77: extracting 4 frames of rgb.mkv"
    extracted = out / "iphone_frames" / "cc5237fd77"
    assert sorted(path.name for path in extracted.iterdir()) == names
    for name, still in zip(names, stills, strict=True):
        assert float((read_photo(extracted / name) - still).abs().mean()) < 0.01
    scene = DATASETS["scannetpp-mixed"].read(out, "cc5237fd77")
    after = scene["iphone/frame_000010.jpg"].load_view(Framing.fit(frame.camera, 60, 40)).image
    assert torch.allclose(before, after, atol=0.05)
    lines.clear()
    prepare_dataset("scannetpp", download, out, lines.append, freeze=False)
    assert not any("extracting" in line for line in lines)


def test_masks_of_the_iphones_video(miniature_root, tmp_path):
    """Pixels that are dark in rgb_mask.mkv are not scored, from the video as downloaded and after preparation."""
    download, out = tmp_path / "download", tmp_path / "out"
    shutil.copytree(miniature_root("scannetpp-mixed"), download)
    place = download / "data" / "cc5237fd77" / "iphone"
    masks = [np.full((90, 120, 3), 250, np.uint8) for _ in range(4)]
    masks[1][:, :60] = 4  # compression blurs the two values
    write_video(place / "rgb_mask.mkv", masks)
    lines = []
    prepare_dataset("scannetpp", download, out, lines.append, freeze=False)
    assert "cc5237fd77: extracting 4 masks of rgb_mask.mkv" in lines
    for root in (download, out):
        scene = DATASETS["scannetpp-mixed"].read(root, "cc5237fd77")
        for number, share in ((0, 0.0), (10, 0.5)):
            frame = scene[f"iphone/frame_{number:06d}.jpg"]
            valid = frame.load_view(Framing.fit(frame.camera, 60, 40)).valid
            assert float(valid[:, 33:].float().mean()) > 0.9
            assert (float(valid[:, :27].float().mean()) == 0) == (share > 0)
    assert (out / "iphone_masks" / "cc5237fd77" / "frame_000010.png").is_file()


def test_a_missing_list_of_frames_is_an_error(miniature_root, tmp_path, capsys):
    download = tmp_path / "download"
    shutil.copytree(miniature_root("scannetpp-mixed"), download)
    words = ["data", "prepare", "scannetpp", "--from", str(download), "--to"]
    assert main([*words, str(tmp_path / "whole")]) == 0
    (download / "scannetpp_mv-recon_seq-id-map.json").unlink()
    capsys.readouterr()
    assert main([*words, str(tmp_path / "without")]) == 1
    text = capsys.readouterr().out
    assert "no such list of frames; download it from github.com/jdk9405/Wid3R" in text
    assert "not or not whole: scannetpp-wid3r" in text


def test_a_video_that_ends_too_early_is_named(miniature_root, tmp_path):
    download = tmp_path / "download"
    shutil.copytree(miniature_root("scannetpp-mixed"), download)
    place = download / "data" / "cc5237fd77" / "iphone"
    shutil.rmtree(place / "rgb")
    write_video(place / "rgb.mkv", [np.zeros((90, 120, 3), np.uint8)] * 2)
    with pytest.raises(OSError, match=r"rgb\.mkv: 2 of 4 wanted frames are not in it"):
        prepare_dataset("scannetpp", download, tmp_path / "out", QUIET, freeze=False)


# Miniatures by command


def test_a_miniature_is_written_by_command(tmp_path, capsys):
    words = ["data", "miniature", "sintel", "--out", str(tmp_path / "m"), "--frames", "2", "--scenes", "2"]
    assert main(words) == 0
    assert "wrote alley_2, ambush_4 of MPI Sintel" in capsys.readouterr().out
    assert main(words) == 2
    assert "is not empty" in capsys.readouterr().err


def test_files_behind_a_link_are_not_overwritten(miniature_root, tmp_path):
    """An archive that completes a linked folder is unpacked next to links to the user's files, not over them."""
    source, out = tmp_path / "source", tmp_path / "out"
    shutil.copytree(miniature_root("pandaset"), source, symlinks=False)
    (source / "001" / "camera" / "keep.txt").write_text("mine")
    (source / "indices").mkdir()
    prepare_dataset("pandaset", source, out, QUIET)
    before = {path: path.read_bytes() for path in source.rglob("*") if path.is_file()}
    with zipfile.ZipFile(source / "001.zip", "w") as file:
        file.writestr("001/camera/keep.txt", "the archive's")
        file.writestr("001/camera/more/new.txt", "new")
    prepared = prepare_dataset("pandaset", source, out, QUIET)
    (source / "001.zip").unlink()
    assert {path: path.read_bytes() for path in source.rglob("*") if path.is_file()} == before
    assert (out / "001" / "camera" / "keep.txt").read_text() == "the archive's"
    assert (out / "001" / "camera" / "more" / "new.txt").read_text() == "new"
    assert not prepared.broken
    assert sorted(path.name for path in (out / "indices").iterdir())


def make_bad_zip(kind, path):
    """Write an archive that is corrupt, encrypted, of an unknown method, or larger than any disk when unpacked."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("001/camera/a.txt", "content " * 100)
    content = bytearray(path.read_bytes())
    directory = content.rindex(b"PK\x01\x02")
    if kind == "corrupt":
        start = content.index(b"a.txt") + len("a.txt")
        content[start : start + 8] = b"\xff" * 8
    elif kind == "encrypted":
        content[6] |= 1
        content[directory + 8] |= 1
    elif kind == "unknown method":
        content[8:10] = content[directory + 10 : directory + 12] = (93).to_bytes(2, "little")
    elif kind == "bomb":
        content[directory + 24 : directory + 28] = (2**32 - 2).to_bytes(4, "little")
    path.write_bytes(content)


@pytest.mark.parametrize("kind", ["corrupt", "encrypted", "unknown method", "bomb"])
def test_archives_that_cannot_be_unpacked_are_named(kind, tmp_path, monkeypatch, capsys):
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    make_bad_zip(kind, source / "001.zip")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=2**30))
    assert main(["data", "prepare", "pandaset", "--from", str(source), "--to", str(out)]) == 2
    text = capsys.readouterr().err
    assert "001.zip: " in text and "unexpected" not in text
    assert not list(out.glob("001*"))
