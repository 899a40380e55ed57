"""Formats of recordings: association by time, erosion, what other tools say about the same files."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from g_ray.cameras import Pinhole
from g_ray.rays.ray_map import RayMap
from g_ray_lab.datasets.dataset_registry import DATASETS, open_scene
from g_ray_lab.datasets.dtu import ErodedMask
from g_ray_lab.datasets.evaluation_scene import Framing
from g_ray_lab.datasets.stored_frames import StoredMask
from g_ray_lab.datasets.tum import associate, read_stamped_lines

TIMES = st.lists(st.integers(0, 400), min_size=1, max_size=25, unique=True)


@given(TIMES, TIMES)
def test_association_is_greedy_and_one_to_one(first, second):
    """Compared with a search over all pairs."""
    first, second = [t / 1000 for t in first], [t / 1000 for t in second]
    pairs = associate(first, second)
    assert len({i for i, _ in pairs}) == len({j for _, j in pairs}) == len(pairs)
    free = {(i, j) for i in range(len(first)) for j in range(len(second))}
    expected = set()
    while free:
        i, j = min(free, key=lambda pair: (abs(first[pair[0]] - second[pair[1]]), pair))
        if abs(first[i] - second[j]) >= 0.02:
            break
        expected.add((i, j))
        free = {pair for pair in free if pair[0] != i and pair[1] != j}
    assert set(pairs) == expected
    assert [first[i] for i, _ in pairs] == sorted(first[i] for i, _ in pairs)


def test_the_trajectory_is_what_evo_reads(miniature):
    file_interface = pytest.importorskip("evo.tools.file_interface")
    root, _, scene = miniature("tum")
    theirs = file_interface.read_tum_trajectory_file(str(root / scene.name / "groundtruth.txt"))
    for frame in scene.frames:
        nearest = int(np.abs(theirs.timestamps - frame.time_s).argmin())
        assert np.allclose(theirs.poses_se3[nearest], frame.pose.world_from_cam, atol=1e-6)


def test_comments_and_empty_lines_are_skipped(tmp_path):
    (tmp_path / "rgb.txt").write_text("# stamps\n\n1.5 rgb/1.5.png\n")
    assert read_stamped_lines(tmp_path / "rgb.txt", 1) == [(1.5, ("rgb/1.5.png",))]


def test_masks_are_eroded_as_opencv_does(tmp_path):
    cv2 = pytest.importorskip("cv2")
    mask = np.random.default_rng(0).random((40, 50)) < 0.995

    path = tmp_path / "mask.png"
    Image.fromarray(255 * mask.astype(np.uint8)).save(path)
    camera = Pinhole.make(50, 40, fx=30.0, fy=30.0, cx=25.0, cy=20.0)
    theirs = cv2.erode(mask.astype(np.uint8), np.ones((10, 10), np.uint8), iterations=1)
    assert np.array_equal(ErodedMask(StoredMask(path), 10).load(camera).numpy(), theirs > 0)


def test_frames_of_the_real_red_kitchen_agree(shared_data, tmp_path):
    """Depth and poses of 7-Scenes itself: points of one frame lie on the surface that another one sees."""
    (tmp_path / "redkitchen").mkdir()
    (tmp_path / "redkitchen" / "seq-03").symlink_to(shared_data / "7scenes_redkitchen100")
    assert DATASETS["7scenes"].list_scenes(tmp_path) == ["redkitchen/seq-03"]
    scene = open_scene("7scenes", tmp_path, "redkitchen/seq-03")
    assert len(scene) == 100
    first, other = scene.frames[20], scene.frames[30]
    views = [frame.load_view(Framing.fit(frame.camera, 160, 120)) for frame in (first, other)]
    points = views[0].ray_depth[..., None] * RayMap.from_camera(views[0].camera).directions
    local = (other.get_pose().inverse() @ first.get_pose()).apply(points[views[0].valid].double()).float()
    pixels, imaged = views[1].camera.project(local)
    column, row = pixels.floor().long().unbind(-1)
    inside = imaged & (column >= 0) & (column < 160) & (row >= 0) & (row < 120)
    found = views[1].ray_depth[row[inside], column[inside]]
    ratio = (local[inside].norm(dim=-1) / found)[found > 0]
    assert len(ratio) > 5000
    assert float((ratio - 1).abs().median()) < 0.015
