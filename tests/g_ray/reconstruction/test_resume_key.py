"""A run resumes from parts that were made with the same rig, lenses and poses, and from no others."""

from dataclasses import replace

import pytest
import torch

from g_ray.calibration import assign_cameras, find_photos
from g_ray.geometry.pose import Pose
from g_ray.predictors.predictor import SceneInput
from g_ray.predictors.stereo_predictor import StereoPredictor
from g_ray.reconstruction.inputs import KnownGeometry
from g_ray.reconstruction.reconstruction_run import make_resume_key, open_work_folder
from g_ray.sfm.rig import Rig
from g_ray.stereo import StereoOptions


@pytest.fixture
def views(capture):
    photos = find_photos([str(capture / "photos")], note=print)
    return assign_cameras(photos, str(capture / "cameras.json"), report=print)


def make_rig(views, baseline):
    shift = torch.tensor([baseline, 0.0, 0.0], dtype=torch.float64)
    right = Pose.from_parts(torch.eye(3, dtype=torch.float64), shift)
    places = [("left" if index % 2 else "right", str(index // 2)) for index in range(len(views))]
    return Rig({"left": Pose.identity(dtype=torch.float64), "right": right}, tuple(places))


def test_a_changed_rig_or_image_circle_does_not_resume(views, tmp_path):
    key = lambda scene: make_resume_key(scene, KnownGeometry(), StereoPredictor())  # noqa: E731
    before = SceneInput(views, make_rig(views, 0.3))
    open_work_folder(tmp_path, key(before))
    open_work_folder(tmp_path, key(SceneInput(views, make_rig(views, 0.3))))
    with pytest.raises(ValueError, match="unfinished run with other rig:"):
        open_work_folder(tmp_path, key(SceneInput(views, make_rig(views, 0.6))))
    camera = views[0].camera
    narrower = [replace(views[0], camera=camera.limit_to_circle(0.4 * camera.width)), *views[1:]]
    with pytest.raises(ValueError, match="unfinished run with other calibration:"):
        open_work_folder(tmp_path, key(SceneInput(narrower, before.rig)))


def test_stored_depth_belongs_to_its_poses(views, tmp_path):
    """The work folder has depth for other poses of the same photographs: it is not taken."""
    predictor = StereoPredictor(stereo=StereoOptions(long_side=32, near=0.2, far=20.0))
    depths = []
    for factor in (1.0, 2.0):
        poses = [Pose.from_parts(v.get_pose().rotation, factor * v.get_pose().translation) for v in views]
        posed = [replace(view, pose=pose) for view, pose in zip(views, poses, strict=True)][:3]
        scene = SceneInput(posed)
        prediction = predictor.predict(scene, tmp_path)
        depths.append(torch.stack([view.ray_depth.mean() for view in prediction.views if view]))
    fresh = predictor.predict(scene)
    torch.testing.assert_close(depths[1], torch.stack([v.ray_depth.mean() for v in fresh.views if v]))
    assert not torch.allclose(depths[0], depths[1])
