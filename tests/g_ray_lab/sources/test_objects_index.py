"""The six protocols of the appendix as files: who is asked for what, frozen, refused where they do not belong."""

import hashlib
import json
import subprocess

import pytest

from g_ray.cli.main import main
from g_ray_lab.sources.nvs_settings import ObjectsData
from g_ray_lab.sources.object_index import (
    EVERY_VIEW,
    PROTOCOLS,
    assign_split,
    draw_context_pair,
    draw_contexts,
    read_index,
    read_released_contexts,
    write_indices,
)
from g_ray_lab.sources.objects_nvs import ObjectsNVS

TESTED = [f"object{i}" for i in range(200) if assign_split(f"object{i}") == "test"][:3]
TRAINED = [f"object{i}" for i in range(200) if assign_split(f"object{i}") == "train"][:2]


@pytest.fixture(scope="module")
def root(tmp_path_factory, write_objects):
    return write_objects(tmp_path_factory.mktemp("objects"), [*TRAINED, *TESTED], 8)


@pytest.fixture
def index(root, tmp_path):
    write_indices(root, tmp_path / "index", draw_contexts(root, 3))
    return tmp_path / "index"


# With views 2 and 5 given; copied from the appendix by hand.
OTHERS = (0, 1, 3, 4, 6, 7)
BY_HAND = {
    "fov": {"002_1", "005_1"},
    "novel": {f"00{i}_0" for i in OTHERS},
    "novel_fov": {f"00{i}_1" for i in OTHERS},
    "fov_dolly": {"002_1", "002_2", "005_1", "005_2"},
    "novel_fov_dolly": {f"00{i}_{k}" for i in OTHERS for k in (1, 2)},
    "mixed": {"002_1", "002_2", "005_1", "005_2", *(f"00{i}_0" for i in OTHERS)},
}


def test_the_target_sets_of_the_appendix():
    assert set(PROTOCOLS) == set(BY_HAND)
    for name, kinds in PROTOCOLS.items():
        targets = kinds.list_names((2, 5))
        assert len(targets) == len(set(targets)) == len(BY_HAND[name])
        assert set(targets) == {f"{target}.jpg" for target in BY_HAND[name]}
        assert set(kinds.list_names((5, 2))) == set(targets)
    counts = {name: len(kinds.list_names((0, 1))) for name, kinds in PROTOCOLS.items()}
    assert counts == {
        "fov": 2,
        "novel": 6,
        "novel_fov": 6,
        "fov_dolly": 4,
        "novel_fov_dolly": 12,
        "mixed": 10,
    }
    assert len(set(EVERY_VIEW.list_names((2, 5)))) == 22
    assert not {"002_0.jpg", "005_0.jpg"} & set(EVERY_VIEW.list_names((2, 5)))


def test_all_protocols_share_objects_and_contexts(root, index):
    read = {name: read_index(index, name, root) for name in PROTOCOLS}
    for name, protocol in read.items():
        assert list(protocol.entries) == sorted(TESTED)
        for uid, entry in protocol.entries.items():
            assert entry.contexts == read["fov"].entries[uid].contexts
            directions = (int(entry.contexts[0][:3]), int(entry.contexts[1][:3]))
            assert directions == draw_context_pair(uid, 3) and directions[0] != directions[1]
            assert entry.targets == PROTOCOLS[name].list_names(directions)


def test_files_are_as_described(index):
    document = json.loads((index / "mixed.json").read_text())
    for entry in document.values():
        assert set(entry) == {"context_view_files", "target_view_files", "partition", "cameras"}
        assert entry["partition"] == "test"
        assert all(name.endswith("_0.jpg") for name in entry["context_view_files"])
    done = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=index, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in index.iterdir()) == sorted(
        [*(f"{name}.json" for name in PROTOCOLS), "SHA256SUMS"]
    )


def test_the_same_again_and_another_seed_is_another_index(root, index, tmp_path):
    again = write_indices(root, tmp_path / "again", draw_contexts(root, 3))
    assert all(
        (index / f"{n}.json").read_bytes() == (tmp_path / "again" / f"{n}.json").read_bytes() for n in again
    )
    assert again == {n: hashlib.sha256((index / f"{n}.json").read_bytes()).hexdigest() for n in PROTOCOLS}
    assert write_indices(root, tmp_path / "other", draw_contexts(root, 4)) != again
    assert write_indices(root, index, draw_contexts(root, 3)) == again
    before = (index / "fov.json").read_bytes()
    with pytest.raises(ValueError, match="choose another folder"):
        write_indices(root, index, draw_contexts(root, 4))
    assert (index / "fov.json").read_bytes() == before


def test_objects_that_come_later_change_nothing_for_the_others(tmp_path, write_objects):
    root = write_objects(tmp_path / "objects", TESTED[:2], 8)
    write_indices(root, tmp_path / "few", draw_contexts(root, 3))
    write_objects(root, [TESTED[2], TRAINED[0]], 8)
    write_indices(root, tmp_path / "more", draw_contexts(root, 3))
    few, more = (read_index(tmp_path / name, "mixed", root).entries for name in ("few", "more"))
    assert set(few) < set(more) and all(more[uid] == few[uid] for uid in few)


def test_about_one_in_ten_is_tested():
    parts = [assign_split(f"{i:032x}") for i in range(5000)]
    assert 420 < parts.count("test") < 580


def test_no_object_to_test_is_an_error(tmp_path, write_objects):
    root = write_objects(tmp_path / "objects", TRAINED[:1], 8)
    with pytest.raises(ValueError, match="has 1 objects, and by their names none is for testing"):
        write_indices(root, tmp_path / "index", draw_contexts(root, 0))


MISSING = PROTOCOLS["novel_fov_dolly"].list_names(draw_context_pair(TESTED[1], 3))[4]


def missing_image(root, index):
    (root / TESTED[1] / "views" / MISSING).unlink()


def missing_object(root, index):
    (root / TESTED[1]).rename(root / "elsewhere")


def other_cameras(root, index):
    path = root / TESTED[1] / "cameras.json"
    document = json.loads(path.read_text())
    document["cameras"][7]["intrinsics"]["focal_length"][0] *= 1.001
    path.write_text(json.dumps(document))


def edited(root, index):
    text = (index / "novel_fov_dolly.json").read_text()
    (index / "novel_fov_dolly.json").write_text(text.replace("_1.jpg", "_2.jpg", 1))


def no_json(root, index):
    (index / "novel_fov_dolly.json").write_text("[1]")
    digest = hashlib.sha256(b"[1]").hexdigest()
    (index / "SHA256SUMS").write_text(f"{digest}  novel_fov_dolly.json\n")


def no_file(root, index):
    (index / "novel_fov_dolly.json").unlink()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (missing_image, f"{MISSING}: no such image"),
        (missing_object, "names an object that is not there"),
        (other_cameras, "made for other cameras"),
        (edited, "does not match SHA256SUMS next to it"),
        (no_json, "not an index of objects"),
        (no_file, r"novel_fov_dolly\.json"),
    ],
)
def test_what_does_not_belong_is_refused_in_one_line(tmp_path, write_objects, spoil, words):
    root, index = write_objects(tmp_path / "objects", TESTED, 8), tmp_path / "index"
    write_indices(root, index, draw_contexts(root, 3))
    spoil(root, index)
    with pytest.raises((ValueError, OSError), match=words) as caught:
        read_index(index, "novel_fov_dolly", root)
    assert "\n" not in str(caught.value)


# As released with RayRoPE: three of our six target sets, without a digest of the cameras.


RELEASED_ENTRY = {
    "context_view_files": ["002_0.jpg", "004_0.jpg"],
    "target_view_files": ["002_1.jpg", "002_2.jpg", "004_1.jpg", "004_2.jpg"],
    "partition": "000-155",
    "num_angles": 8,
    "total_views": 24,
    "include_orig_target": False,
    "include_radial_target": True,
}


def test_a_released_index_says_who_is_tested_and_what_is_given(root, tmp_path, capsys):
    released, out = tmp_path / "objaverse_index_test_context2_radial.json", tmp_path / "index"
    tested = [TRAINED[0], TESTED[1]]
    released.write_text(json.dumps(dict.fromkeys([*tested, "absent"], RELEASED_ENTRY)))
    words = ["data", "objects-index", str(root), "--out", str(out), "--released", str(released)]
    assert main([*words, "--write-released"]) == 0
    assert "2 of 3 objects" in capsys.readouterr().out
    entries = read_index(out, "novel_fov", root).entries
    assert list(entries) == tested
    assert all(entry.contexts == ("002_0.jpg", "004_0.jpg") for entry in entries.values())
    again = json.loads((out / "objaverse_index_test_context2_radial.json").read_text())
    assert again == {uid: {**RELEASED_ENTRY, "partition": "test"} for uid in tested}
    mixed = json.loads((out / "objaverse_index_test_context2_all.json").read_text())[TESTED[1]]
    assert mixed["target_view_files"] == [
        *("000_0.jpg", "001_0.jpg", "002_1.jpg", "002_2.jpg", "003_0.jpg"),
        *("004_1.jpg", "004_2.jpg", "005_0.jpg", "006_0.jpg", "007_0.jpg"),
    ]
    source = ObjectsNVS(ObjectsData(8, 8, 1, root, index=out))
    trained = {*source.training_names, *source.held_out_names}
    assert trained == {TRAINED[1], TESTED[0], TESTED[2]}


@pytest.mark.parametrize(
    "entry",
    [{}, {"context_view_files": ["002_0.jpg"]}, {"context_view_files": ["002_1.jpg", "004_0.jpg"]}, []],
)
def test_other_files_are_no_released_index(entry, tmp_path):
    (tmp_path / "index.json").write_text(json.dumps({"a": entry}))
    with pytest.raises(ValueError, match="not an index of objects with two native context views"):
        read_released_contexts(tmp_path / "index.json")
