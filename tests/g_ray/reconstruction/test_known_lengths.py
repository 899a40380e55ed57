"""Meters from a chessboard and from picked points: found through fisheyes, inside the stated interval, or refused."""

import math
import xml.etree.ElementTree as xml

import pytest
import torch

from g_ray.cameras import OpenCVFisheye, Pinhole
from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.geometry.pose import Pose, rotation_from_quaternion
from g_ray.media.chessboard import BoardSize, find_chessboard
from g_ray.media.images import read_photo
from g_ray.media.view import View
from g_ray.predictors.predictor import ScenePrediction
from g_ray.reconstruction.inputs import KnownGeometry, collect_known
from g_ray.reconstruction.known_lengths import (
    KnownBoard,
    PickedPoint,
    find_board,
    parse_end,
    scale_to_board,
    scale_to_length,
)
from g_ray.reconstruction.world import find_world

FINER = 4
SIZE = BoardSize(7, 5, 0.03)
FISHEYE = OpenCVFisheye.make(
    480, 360, fx=150, fy=150, cx=240, cy=180, k1=0.02, k2=-0.005, dtype=torch.float64
)
EYES = [(-0.05, 0.0, -0.25), (0.25, 0.02, -0.22), (0.1, -0.12, -0.28)]


def look(eye, roll=0.0):
    """A pose that looks at the board's middle, turned about its axis."""
    pose = Pose.look_at(eye=torch.tensor(eye), target=torch.tensor([0.09, 0.06, 0.0])).to(torch.float64)
    turn = rotation_from_quaternion(torch.tensor([0, 0, math.sin(roll / 2), math.cos(roll / 2)]).double())
    return Pose.from_parts(pose.rotation @ turn, pose.translation)


def draw(camera, pose, size=SIZE, markers=False):
    """A board on a speckled wall, FINER² points a pixel; with `markers`, bright squares have random cells."""
    fine = camera.resize(FINER * camera.width, FINER * camera.height)
    rays = pose.rotate(fine.unproject_grid()[0])
    reach = -pose.translation[2] / rays[..., 2]
    place = (pose.translation + rays * reach[..., None])[
        ..., :2
    ] / size.square_m + 1  # squares from the border
    cell = place.floor().long()
    random = torch.Generator().manual_seed(1)
    speckles = torch.rand(64, 64, generator=random)
    bits = torch.rand(64, 64, generator=random) < 0.5
    wall = (0.35 + 0.3 * speckles[(cell[..., 0] * 3) % 64, (cell[..., 1] * 5) % 64]).float()
    dark = cell.sum(-1) % 2 == 0
    if markers:
        inner = place - cell
        bit = (place * 8).floor().long() % 64
        marked = ((inner > 0.25) & (inner < 0.75)).all(-1) & ~dark
        dark = dark | (marked & bits[bit[..., 0], bit[..., 1]])
    squares = torch.where(dark, 0.1, 0.9)
    count = torch.tensor([size.columns + 1, size.rows + 1])
    inside = ((place >= 0) & (place < count)).all(-1)
    margin = ((place >= -1) & (place < count + 1)).all(-1)
    values = torch.where(inside, squares, torch.where(margin, 0.9, wall)).where(reach > 0, 0.5)
    gray = torch.nn.functional.avg_pool2d(values[None, None].float(), FINER)[0]
    return (gray + 0.01 * torch.randn(gray.shape, generator=random)).clamp(0, 1).expand(3, -1, -1)


def find_true(camera, pose, size=SIZE):
    pixels, valid = camera.project(pose.inverse().apply(size.list_points()))
    assert valid.all()
    return pixels


def make_view(number, camera, pose, depth=1.0, error=None):
    values = torch.full((camera.height, camera.width), depth)
    return ReconstructedView(
        f"{number}.jpg",
        camera,
        pose,
        values,
        values,
        values > 0,
        expected_error=None if error is None else values * error,
    )


@pytest.mark.parametrize("camera", [FISHEYE, Pinhole.from_fov(60.0, 400, 300).to(torch.float64)])
@pytest.mark.parametrize(
    ("eye", "roll", "markers"), [(EYES[0], 0.0, False), (EYES[1], 2.0, False), (EYES[2], 0.4, True)]
)
def test_corners_are_found_to_a_tenth_of_a_pixel(camera, eye, roll, markers):
    pose = look(eye, roll)
    found = find_chessboard(draw(camera, pose, markers=markers), SIZE)
    true = find_true(camera, pose)
    assert found is not None
    off = min(((found[order] - true).norm(dim=-1) for order in SIZE.list_labelings()), key=torch.median)
    assert float(off.median()) < 0.1 and float(off.max()) < 0.3


def test_only_a_whole_board_of_the_right_size_is_found():
    picture = draw(FISHEYE, look(EYES[0]))
    assert find_chessboard(picture, BoardSize(6, 5, 0.03)) is None
    assert find_chessboard(picture, BoardSize(8, 5, 0.03)) is None
    assert find_chessboard(picture, BoardSize(5, 7, 0.03)) is not None
    hidden = picture.clone()
    hidden[:, 180:, 240:] = 0.5
    assert find_chessboard(hidden, SIZE) is None


def test_the_scale_holds_in_any_world():
    """The world of the poses is turned and 1/3.7 as large as meters."""
    turn = rotation_from_quaternion(torch.tensor([0.3, -0.5, 0.7, 0.4], dtype=torch.float64))
    poses = [look(eye, roll) for eye, roll in zip(EYES, (0.0, 3.0, 0.5), strict=True)]
    views = [View(f"{number}.jpg", FISHEYE, image=draw(FISHEYE, pose)) for number, pose in enumerate(poses)]
    board = find_board(views, "7x5:0.03")
    moved = [Pose.from_parts(turn @ pose.rotation, turn @ pose.translation / 3.7 + 5) for pose in poses]
    placed = tuple(make_view(number, FISHEYE, pose) for number, pose in enumerate(moved))
    for rows in ([0, 1], [0, 1, 2]):
        known = KnownGeometry(board=board).select(rows)
        world = find_world([placed[row] for row in rows], ScenePrediction(placed), known)
        assert world.unit == "metre" and "the board (scale ±" in world.scale.describe()
        assert 1 / world.scale.low < 1.02
        assert world.scale.low <= 3.7 / world.scale.factor <= world.scale.high


def test_intervals_of_noisy_poses_hold():
    """Of thirty triples and pairs of noisy poses about 95 % have the true scale inside what is stated."""
    generator = torch.Generator().manual_seed(3)
    inside = []
    for number in range(30):
        views, corners = [], []
        for eye in EYES[: 2 + number % 2]:
            pose = look(eye)
            pixels = find_true(FISHEYE, pose) + 0.15 * torch.randn(35, 2, generator=generator).double()
            noise = 0.3 / 150 * torch.randn(3, generator=generator).double()
            turn = rotation_from_quaternion(torch.cat([noise / 2, torch.ones(1).double()]))
            views.append(
                make_view(len(views), FISHEYE, Pose.from_parts(pose.rotation @ turn, pose.translation))
            )
            corners.append(pixels)
        scale = scale_to_board(KnownBoard(SIZE, corners), views)
        inside.append(scale.low <= 1 / scale.factor <= scale.high)
    assert sum(inside) >= 26


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda corners, views: ([corners[0], None], views), "seen in 1 of the placed photographs"),
        (
            lambda corners, views: ([corners[0], corners[1] + 20], views),
            "not at one place in 0.jpg and 1.jpg",
        ),
    ],
)
def test_a_board_that_cannot_tell(change, message):
    poses = [look(eye) for eye in EYES[:2]]
    views = tuple(make_view(number, FISHEYE, pose) for number, pose in enumerate(poses))
    corners, views = change([find_true(FISHEYE, pose) for pose in poses], views)
    world = find_world(views, ScenePrediction(views), KnownGeometry(board=KnownBoard(SIZE, corners)))
    assert world.unit == "unknown" and len(world.notes) == 1 and message in world.notes[0]


def test_a_view_in_which_the_board_has_moved_is_left_out():
    poses = [look(eye) for eye in EYES]
    views = [make_view(number, FISHEYE, pose) for number, pose in enumerate(poses)]
    corners = [find_true(FISHEYE, pose) for pose in poses]
    scale = scale_to_board(KnownBoard(SIZE, [corners[0] + 15, *corners[1:]]), views)
    assert "seen by 2 photographs" in scale.detail and scale.factor == pytest.approx(1)


@pytest.mark.parametrize(
    ("board", "message"),
    [
        ("7x5", "inner corners along both sides"),
        ("7x5:-1", "length above 0"),
        ("2x2:0.1", "inner corners"),
        ("9x6:0.03", "none of 2 photographs"),
    ],
)
def test_refused_before_anything_is_computed(board, message):
    views = [
        View(f"{number}.jpg", FISHEYE, image=draw(FISHEYE, look(eye))) for number, eye in enumerate(EYES[:2])
    ]
    with pytest.raises(ValueError, match=message):
        collect_known(
            views, poses="ignore", metric=False, distance=None, truth=None, report=print, board=board
        )


def test_a_board_seen_once_is_refused():
    blank = torch.full((3, 360, 480), 0.5)
    views = [View("a.jpg", FISHEYE, image=draw(FISHEYE, look(EYES[0]))), View("b.jpg", FISHEYE, image=blank)]
    with pytest.raises(ValueError, match=r"seen in one of 2 photographs \(a.jpg\)"):
        find_board(views, "7x5:0.03")


def test_real_boards_through_a_fisheye(shared_data):
    """Both photographs of stereo pairs: corners as OpenCV's, found in every third of 34 pairs."""
    folder = next(iter(sorted(shared_data.glob("opencv_fisheye/**/object.xml"))), None)
    if folder is None:
        pytest.skip(f"no opencv_fisheye corners in {shared_data}")
    size = BoardSize(8, 6, 0.0244)
    for side in ("left", "right"):
        root = xml.parse(folder.with_name(f"{side}.xml")).getroot()
        for number in (0, 18, 21):
            theirs = torch.tensor([float(value) for value in (root[number].text or "").split()]).double()
            theirs = theirs.reshape(-1, 2) + 0.5  # OpenCV's pixel centers are integers
            found = find_chessboard(read_photo(folder.parent / side / f"stereo_pair_{number:03d}.jpg"), size)
            assert found is not None
            off = min((found[order] - theirs).norm(dim=-1).median() for order in size.list_labelings())
            assert float(off) < 0.2


# Points


def test_a_length_between_picked_points():
    """A wall at z = 0 that is seen straight on, 2 units away, with depths 1 % off in the median."""
    camera = Pinhole.from_fov(60.0, 48, 36).to(torch.float64)
    pose = Pose.from_parts(torch.eye(3).double(), torch.tensor([0.0, 0.0, -2.0]).double())
    rays = camera.unproject_grid()[0]
    depth = (2 / rays[..., 2]).float()
    view = ReconstructedView(
        "a.jpg",
        camera,
        pose,
        depth,
        depth,
        depth > 0,
        photo_camera=camera.resize(96, 72),
        expected_error=torch.full_like(depth, 0.01),
    )
    other = make_view(1, camera, Pose.from_parts(pose.rotation, pose.translation + torch.tensor([0.5, 0, 0])))
    true = [torch.tensor([x, 0.3, 0.0]).double() for x in (-0.5, 0.6)]
    picked = [view.original_camera.project(pose.inverse().apply(point))[0].tolist() for point in true]
    seen = [other.camera.project(other.pose.inverse().apply(point))[0].tolist() for point in true]
    names = ["a.jpg", "1.jpg"]
    for ends in (
        [f"a.jpg:{x:.4f},{y:.4f}" for x, y in picked],
        [f"a.jpg:{x:.4f},{y:.4f}+1.jpg:{u:.4f},{v:.4f}" for (x, y), (u, v) in zip(picked, seen, strict=True)],
    ):
        one, two = (parse_end(end, names) for end in ends)
        scale = scale_to_length(one, two, 2.2, [view, other])
        assert scale.factor == pytest.approx(2, rel=1e-3)
        assert 1.01 < scale.high < 1.2 and scale.low == pytest.approx(1 / scale.high)
    assert parse_end("a.jpg", names) == 0
    assert scale_to_length(0, 1, 1.0, [view, other]).low is None
    known = KnownGeometry(distance=(one, 1, 2.0)).select([1, 0])
    assert known.distance is not None and known.distance[0].pixels[0][0] == 1 and known.distance[1] == 0
    assert KnownGeometry(distance=(one, 1, 2.0)).select([1]).distance is None


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("c.jpg", "none of the photographs"),
        ("c.jpg:1,2", "none of the photographs"),
        ("a.jpg:1,2.3.4", "no pixel"),
        ("a.jpg:1,2+a.jpg:2,3", "two different ones"),
    ],
)
def test_ends_that_are_refused(end, message):
    with pytest.raises(ValueError, match=message):
        parse_end(end, ["a.jpg", "b.jpg"])


def test_points_without_depth_are_refused():
    camera = Pinhole.from_fov(60.0, 48, 36).to(torch.float64)
    views = [make_view(0, camera, look(EYES[0]), depth=0.0), make_view(1, camera, look(EYES[1]))]
    point = PickedPoint(((0, 20.0, 20.0),))
    with pytest.raises(ValueError, match=r"no depth at 20,20: pick another point"):
        scale_to_length(point, 1, 1.0, views)
    with pytest.raises(ValueError, match="outside of the image"):
        scale_to_length(PickedPoint(((0, 90.0, 20.0),)), 1, 1.0, views)
    with pytest.raises(ValueError, match="not of one point"):
        scale_to_length(PickedPoint(((0, 2.0, 2.0), (1, 40.0, 30.0))), 1, 1.0, views)
