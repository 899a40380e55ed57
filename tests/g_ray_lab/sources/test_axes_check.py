"""Rays meet under the right convention and under no other: exact points, rendered rooms, real photographs."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from g_ray.cameras import OpenCV, OpenCVFisheye, Pinhole
from g_ray.demo.room import make_random_room
from g_ray.geometry.pose import Pose
from g_ray_lab.sources.axes_check import (
    DECLARED,
    READINGS,
    MatchedViews,
    check_axes,
    compute_miss_rad,
    match_images,
    validate_axes,
)

TURNED, INVERSE, BOTH, FORWARD = list(READINGS)[1:]
TURN = torch.diag(torch.tensor([1.0, -1.0, -1.0, 1.0], dtype=torch.float64))


def photo(path, smaller=1):
    with Image.open(path) as image:
        small = image.convert("RGB").resize((image.width // smaller, image.height // smaller))
        return torch.from_numpy(np.array(small)).permute(2, 0, 1) / 255


def misread(pairs, how):
    """The same pairs with poses as a wrong loader would give them."""
    ways = {
        "opencv": lambda pose: pose,
        "blender": lambda pose: Pose(pose.world_from_cam @ TURN),
        "inverse": lambda pose: pose.inverse(),
        "inverse blender": lambda pose: Pose(pose.world_from_cam @ TURN).inverse(),
    }
    return [replace(pair, poses=ways[how](pair.poses.to(torch.float64))) for pair in pairs]


EXPECTED = {"opencv": None, "blender": TURNED, "inverse": INVERSE, "inverse blender": BOTH}


# Exact points


def seen(points, poses, camera, noise_px=0.0, seed=0):
    """Pixels of world points in two views."""
    pixels = torch.stack(
        [camera.project(Pose(m).inverse().apply(points))[0] for m in poses.world_from_cam]
    ).double()
    noise = torch.randn(pixels.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return MatchedViews(pixels + noise_px * noise, (camera, camera), poses)


def world(seed, count=200):
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(count, 3, generator=generator, dtype=torch.float64) * 4 - 2
    eyes = torch.randn(2, 3, generator=generator, dtype=torch.float64) * 0.4 - torch.tensor([0, 0, 5.0])
    aims = torch.randn(2, 3, generator=generator, dtype=torch.float64) * 0.3
    return points, Pose.look_at(eyes.double(), aims)


@given(st.integers(0, 10_000))
def test_rays_to_the_same_point_meet_exactly(seed):
    points, poses = world(seed)
    pair = seen(points, poses, Pinhole.from_fov(70.0, 640, 360).to(torch.float64))
    assert compute_miss_rad(pair.rays(), poses).max() < 1e-9
    report = check_axes([pair])
    assert report.meeting[DECLARED] == 1.0 and report.better is None


@given(st.integers(0, 10_000))
def test_a_miss_is_the_angle_by_which_a_ray_was_turned(seed):
    """A ray is turned out of the plane of both cameras and the point: it misses by that angle."""
    points, poses = world(seed, 20)
    pair = seen(points, poses, Pinhole.from_fov(70.0, 640, 360).to(torch.float64))
    rays = pair.rays()
    local = Pose(poses.world_from_cam[1]).inverse()
    baseline = local.apply(poses.translation[:1])[0]
    out = torch.nn.functional.normalize(torch.linalg.cross(baseline.expand_as(rays[1]), rays[1]), dim=-1)
    angle = 0.01
    turned = torch.stack([rays[0], math.cos(angle) * rays[1] + math.sin(angle) * out])
    miss = compute_miss_rad(turned, poses)
    assert (miss >= angle - 1e-9).all()
    assert torch.allclose(compute_miss_rad(turned.roll(1, 0), Pose(poses.world_from_cam.flip(0))), miss)


def test_points_behind_a_camera_do_not_meet():
    """Lines would cross there; rays do not."""
    rays = torch.tensor([[[0.0, 0, 1.0]], [[0.6, 0, 0.8]]], dtype=torch.float64)
    poses = Pose.from_parts(torch.eye(3).expand(2, 3, 3), torch.tensor([[0.0, 0, 0], [1.0, 0, 0]])).to(
        torch.float64
    )
    assert compute_miss_rad(rays, poses) > 0.6


@pytest.mark.parametrize("camera", ["pinhole", "fisheye"])
@pytest.mark.parametrize("how", EXPECTED)
def test_noisy_points_tell_the_convention(camera, how):
    lens = {
        "pinhole": Pinhole.from_fov(70.0, 640, 360),
        "fisheye": OpenCVFisheye.make(640, 480, fx=220.0, fy=220.0, cx=320.0, cy=240.0, k1=0.02),
    }[camera].to(torch.float64)
    pairs = [seen(*world(seed), lens, noise_px=0.7, seed=seed) for seed in range(3)]
    report = check_axes(misread(pairs, how))
    assert report.better == EXPECTED[how]
    assert report.certain == (how == "opencv")


def test_a_third_of_wrong_matches_does_no_harm():
    points, poses = world(1, 300)
    pair = seen(points, poses, Pinhole.from_fov(70.0, 640, 360).to(torch.float64), 0.5)
    pixels = pair.pixels.clone()
    pixels[1, :100] = pixels[1, torch.randperm(100, generator=torch.Generator().manual_seed(0))]
    assert check_axes([replace(pair, pixels=pixels)]).certain
    (wrong,) = misread([replace(pair, pixels=pixels)], "blender")
    assert check_axes([wrong]).better == TURNED


def test_sideways_motion_is_undecided_and_said_to_be():
    """Along x without rotation, OpenCV and Blender axes give the same rays up to a turn of the world."""
    points, _ = world(2)
    poses = Pose.from_parts(
        torch.eye(3, dtype=torch.float64).expand(2, 3, 3),
        torch.tensor([[0.0, 0, -5], [0.5, 0, -5]], dtype=torch.float64),
    )
    pairs = [seen(points, poses, Pinhole.from_fov(70.0, 640, 360).to(torch.float64), 0.5)]
    report = check_axes(pairs)
    assert report.better is None and not report.certain and "too simple" in report.verdict
    assert not check_axes(misread(pairs, "blender")).certain


def test_a_refusal_is_one_line_that_names_the_convention():
    pairs = misread([seen(*world(3), Pinhole.from_fov(70.0, 640, 360).to(torch.float64))], "blender")
    with pytest.raises(ValueError, match=r"my data: .*100% with camera axes turned .*Blender") as refused:
        validate_axes(pairs, "my data")
    assert "\n" not in str(refused.value)
    with pytest.raises(ValueError, match="no pair of views"):
        check_axes([])


def test_no_matches_decide_nothing():
    _, poses = world(4)
    camera = Pinhole.from_fov(70.0, 64, 48)
    report = check_axes([MatchedViews(torch.empty(2, 0, 2), (camera, camera), poses)])
    assert report.matches == 0 and report.better is None and not report.certain


# Rendered rooms, matched as photographs


@pytest.fixture(scope="module")
def room_views():
    """Two pairs of views of textured rooms."""
    camera = Pinhole.from_fov(65.0, 320, 240)
    found = []
    for seed in (1, 2):
        room = replace(make_random_room(seed, coarse=False), shadows=False)
        eyes = torch.tensor([[-0.8, -0.4, -2.0], [-0.4, -0.6, -1.7]])
        poses = Pose.look_at(eyes, torch.tensor([[0.1, 0.3, 1.0], [0.3, 0.3, 1.0]]))
        images = [room.render(camera, pose).rgb.movedim(-1, 0) for pose in (poses[0], poses[1])]
        found.append((camera, poses, images))
    return found


def sift(first, second):
    """OpenCV's matches, as an oracle. Its pixel centres are at integers."""
    cv2 = pytest.importorskip("cv2")
    detector = cv2.SIFT_create(1500)
    grey = [(image.mean(0).numpy() * 255).astype(np.uint8) for image in (first, second)]
    (one, a), (two, b) = (detector.detectAndCompute(image, None) for image in grey)
    near = [m for m, n in cv2.BFMatcher().knnMatch(a, b, k=2) if m.distance < 0.75 * n.distance]
    return 0.5 + torch.tensor([[one[m.queryIdx].pt for m in near], [two[m.trainIdx].pt for m in near]])


@pytest.mark.parametrize("matcher", [match_images, sift])
@pytest.mark.parametrize("how", EXPECTED)
def test_rendered_rooms_tell_the_convention(room_views, matcher, how):
    pairs = [MatchedViews(matcher(*images), (camera,) * 2, poses) for camera, poses, images in room_views]
    report = check_axes(misread(pairs, how))
    assert report.matches > 100
    assert report.better == EXPECTED[how], report.verdict
    if how == "opencv":
        assert report.certain and report.meeting[DECLARED] > 0.6, report.verdict  # bricks look alike


def test_matches_are_where_the_same_point_is(room_views):
    """Against depth: most matches lie within a pixel of the true one."""
    camera, poses, (first, second) = room_views[0]
    pixels = match_images(first, second)
    room = replace(make_random_room(1, coarse=False), shadows=False)
    points = room.render(camera, poses[0]).points
    column, row = pixels[0].floor().long().unbind(-1)
    truth, _ = camera.project(poses[1].inverse().apply(points[row, column]))
    assert ((truth - pixels[1]).norm(dim=-1) < 1.5).float().mean() > 0.7


def test_an_image_without_corners_has_no_matches():
    flat = torch.full((3, 40, 60), 0.5)
    assert match_images(flat, flat).shape == (2, 0, 2)


# Real photographs


@pytest.fixture(scope="module", params=[15, 30])
def kitchen(shared_data, request):
    """Frames of a hand-held video, so many apart, at half their size."""
    folder = shared_data / "7scenes_redkitchen100"
    camera = Pinhole.make(
        320, 240, fx=262.5, fy=262.5, cx=160.0, cy=120.0
    )  # 525 px at full size: the colour camera
    pairs = []
    for start in (0, 100, 200):
        names = [folder / f"frame-{number:06d}" for number in (start, start + request.param)]
        poses = Pose(torch.stack([torch.tensor(np.loadtxt(f"{name}.pose.txt")) for name in names]))
        images = [photo(f"{name}.color.jpg", 2) for name in names]
        pairs.append(MatchedViews(match_images(*images), (camera, camera), poses))
    return pairs


@pytest.fixture(scope="module")
def castle(shared_data):
    """Photographs far apart, with lens distortion, and COLMAP's own poses."""
    pycolmap = pytest.importorskip("pycolmap")
    model = pycolmap.Reconstruction(shared_data / "sceaux" / "sparse")
    images = sorted(model.images.values(), key=lambda image: image.name)[1:4]
    lens = model.cameras[images[0].camera_id]
    f, cx, cy, k = lens.params
    camera = OpenCV.make(lens.width, lens.height, fx=f, fy=f, cx=cx, cy=cy, k1=k)
    camera = camera.resize(lens.width // 6, lens.height // 6)
    bottom = torch.tensor([[0.0, 0, 0, 1]], dtype=torch.float64)
    matrices = [torch.cat([torch.tensor(view.cam_from_world().matrix()), bottom]) for view in images]
    poses = Pose(torch.stack(matrices)).inverse().world_from_cam
    photos = [photo(shared_data / "sceaux" / "images" / view.name, 6) for view in images]
    return [
        MatchedViews(match_images(*photos[i : i + 2]), (camera, camera), Pose(poses[i : i + 2]))
        for i in range(len(images) - 1)
    ]


@pytest.mark.parametrize("how", EXPECTED)
def test_a_kitchen_tells_the_convention(kitchen, how):
    report = check_axes(misread(kitchen, how))
    assert report.better == EXPECTED[how], report.verdict
    assert report.certain == (how == "opencv"), report.verdict


@pytest.mark.parametrize("how", EXPECTED)
def test_a_castle_tells_the_convention(castle, how):
    report = check_axes(misread(castle, how))
    assert report.better == EXPECTED[how], report.verdict
    assert report.certain == (how == "opencv"), report.verdict
