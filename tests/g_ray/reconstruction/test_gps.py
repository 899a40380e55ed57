"""Scale, heading and level from GPS: intervals that hold, and what is said where GPS cannot tell."""

import json
import math
from dataclasses import replace

import pytest
import torch
from PIL import Image

from g_ray.cameras import Pinhole
from g_ray.export.georeference import write_georeference
from g_ray.export.reconstructed_view import ReconstructedView
from g_ray.formats.gps import read_place, read_places
from g_ray.geometry.geodesy import Place, compute_ecef, compute_utm, locate_enu
from g_ray.geometry.metric_scale import MetricScale
from g_ray.geometry.pose import Pose, rotation_from_quaternion
from g_ray.media.photos import Photo
from g_ray.media.view import View
from g_ray.predictors.predictor import ScenePrediction
from g_ray.reconstruction.gps_alignment import align_to_gps
from g_ray.reconstruction.inputs import KnownGeometry, collect_known
from g_ray.reconstruction.world import find_world

ORIGIN = Place(46.84, -91.99, 198.0)
CAMERA = Pinhole.from_fov(60.0, 24, 18)


def make_flight(count=12, noise_m=0.0, seed=0, line=False):
    """Camera centers in some world, and noisy GPS of them; three lines of flight, or one."""
    random = torch.Generator().manual_seed(seed)
    across = torch.zeros(count) if line else torch.arange(count) % 3 * 20.0
    enu = torch.stack([torch.arange(count) * 8.0, across, torch.zeros(count)], -1).double()
    enu = enu + 0.3 * torch.randn(count, 3, generator=random).double() * (0 if line else 1)
    turn = rotation_from_quaternion(torch.tensor([0.3, -0.5, 0.7, 0.4], dtype=torch.float64))
    centers = enu @ turn / 8.5 + torch.tensor([1.0, 2.0, 3.0])
    measured = enu + noise_m * torch.randn(count, 3, generator=random).double()
    return centers, [Place(*row) for row in locate_enu(measured, ORIGIN).tolist()], enu


def test_exact_positions_give_the_similarity():
    centers, places, enu = make_flight()
    found = align_to_gps(centers, places)
    assert float(found.similarity.scale) == pytest.approx(8.5, rel=1e-6) and found.gives_rotation
    moved = found.similarity.apply(centers)
    torch.testing.assert_close(torch.cdist(moved, moved), torch.cdist(enu, enu), atol=1e-4, rtol=0)
    rise = moved[:, 2] - enu[:, 2]
    assert float(rise.std()) < 1e-3  # up is up


@pytest.mark.parametrize("count", [5, 18])
def test_intervals_hold(count):
    """Of sixty noisy flights about 57 have the true scale and heading inside what is stated."""
    scale, heading, position = [], [], []
    for seed in range(60):
        centers, places, enu = make_flight(count, 0.8, seed)
        found = align_to_gps(centers, places)
        scale.append(abs(math.log(float(found.similarity.scale) / 8.5)) <= math.log1p(found.scale_error))
        moved = found.similarity.apply(centers)
        arm = torch.stack([moved[-1] - moved[0], enu[-1] - enu[0]])
        turn = torch.atan2(arm[:, 1], arm[:, 0])
        heading.append(abs(math.degrees(float(turn[0] - turn[1]))) <= found.heading_deg)
        position += ((moved - found.positions).norm(dim=-1) <= found.position_m).tolist()
    assert sum(scale) >= 52 and sum(heading) >= 52
    assert sum(position) / len(position) > 0.93


def test_wrong_positions_are_found_and_named():
    centers, places, _ = make_flight(12, 0.3)
    places[3] = replace(places[3], latitude_deg=places[3].latitude_deg + 0.001)
    found = align_to_gps(centers, places)
    assert found.list_wrong() == [3] and float(found.similarity.scale) == pytest.approx(8.5, rel=0.02)
    for index in range(0, 12, 2):
        places[index] = replace(places[index], altitude_m=places[index].altitude_m + 300 * index)
    with pytest.raises(ValueError, match=r"contradicts the photographs|cannot tell the scale"):
        align_to_gps(centers, places).to_scale()


def test_a_line_has_a_scale_but_no_level():
    centers, places, _ = make_flight(12, 0.1, line=True)
    found = align_to_gps(centers, places)
    assert found.gives_scale and not found.gives_rotation
    assert "cannot be told" in found.to_scale().describe()


def test_photographs_close_together_have_no_scale():
    centers, places, _ = make_flight(12, 100.0)
    with pytest.raises(ValueError, match=r"GPS cannot tell the scale|contradicts"):
        align_to_gps(centers, places).to_scale()
    with pytest.raises(ValueError, match="2 placed photographs cannot tell"):
        align_to_gps(centers, [*places[:2], *[None] * 10])
    with pytest.raises(ValueError, match="same place"):
        align_to_gps(centers, [places[0]] * 12)


def make_views(centers):
    depth = torch.ones(18, 24)
    poses = [Pose.from_parts(torch.eye(3).double(), center) for center in centers]
    return tuple(
        ReconstructedView(f"{number}.jpg", CAMERA, pose, depth, depth, depth > 0)
        for number, pose in enumerate(poses)
    )


def test_the_result_is_in_meters_and_turned():
    centers, places, enu = make_flight(12, 0.3)
    views = make_views(centers)
    world = find_world(views, ScenePrediction(views), KnownGeometry(places=places, georeference=True))
    assert world.unit == "metre" and "GPS of 12 photographs (scale ±" in world.scale.describe()
    moved = torch.stack([world.similarity.transform_pose(view.pose).translation for view in views])
    assert float((moved[:, 2] - moved[:, 2].mean() - enu[:, 2] + enu[:, 2].mean()).abs().max()) < 1
    assert world.origin is not None


def test_a_known_distance_is_believed_first_and_the_contradiction_reported():
    centers, places, enu = make_flight(12, 0.1)
    views = make_views(centers)
    true = float((enu[0] - enu[5]).norm())
    for length, notes in ((true, 0), (1.2 * true, 1)):
        world = find_world(
            views, ScenePrediction(views), KnownGeometry(distance=(0, 5, length), places=places)
        )
        assert world.scale.source == "the known distance" and len(world.notes) == notes
        moved = [world.similarity.transform_pose(views[number].pose).translation for number in (0, 5)]
        assert float((moved[0] - moved[1]).norm()) == pytest.approx(length)
        assert world.gps.gives_rotation and float(world.similarity.scale) == pytest.approx(
            length / true * 8.5, rel=1e-3
        )
    assert "scales contradict: GPS of 12 photographs" in world.notes[0] and "0.83" in world.notes[0]


@pytest.mark.parametrize("step", [5, 7])
def test_gps_of_other_photographs_is_one_line(step):
    """The places belong to the photographs in another order."""
    centers, places, _ = make_flight(12)
    views = make_views(centers)
    mixed = [places[number * step % 12] for number in range(12)]
    world = find_world(views, ScenePrediction(views), KnownGeometry(places=mixed))
    (note,) = world.notes
    assert world.unit == "unknown" and note.startswith("GPS c") and "\n" not in note


def test_known_poses_stay_where_they_are():
    centers, places, _ = make_flight(12, 0.1)
    views = make_views(centers)
    known = KnownGeometry([view.pose for view in views], places=places)
    prediction = ScenePrediction(views, keeps_poses=True)
    world = find_world(views, prediction, known)
    assert (
        world.unit == "unknown"
        and float(world.similarity.scale) == 1
        and "one unit of them is 8.5" in world.notes[0]
    )
    world = find_world(views, prediction, replace(known, metric=True))
    assert world.unit == "metre" and "scales contradict" in world.notes[0]
    guessed = find_world(views, prediction, replace(known, estimated=True))
    assert guessed.unit == "metre" and float(guessed.moved_poses.scale) == pytest.approx(8.5, rel=0.01)


def test_scales_that_agree_within_their_intervals():
    wide, narrow = MetricScale("a", 2.0, 0.8, 1.25), MetricScale("b", 2.3, 0.99, 1.01)
    assert not wide.contradicts(narrow) and MetricScale("c", 2.0).contradicts(narrow)
    assert "± 1 %" in narrow.describe() and "± 25 %" in wide.describe()


def test_the_files(tmp_path):
    centers, places, _ = make_flight(6)
    found = align_to_gps(centers, places)
    cameras = [
        View(view.name, CAMERA, found.similarity.transform_pose(view.pose)) for view in make_views(centers)
    ]
    (note,) = write_georeference(tmp_path, found.origin, cameras)
    content = json.loads((tmp_path / "scene.geo").read_text())
    assert content == json.loads((tmp_path / "colmap" / "scene.geo").read_text())
    assert content["crs"] == "EPSG:32615" and "UTM 15N" in note and content["utm_error_m"] < 0.01
    lines = (tmp_path / "geo.txt").read_text().splitlines()
    assert lines[0] == "EPSG:4326" and len(lines) == 7
    name, longitude, latitude, altitude = lines[3].split()
    assert (name, float(latitude)) == ("2.jpg", pytest.approx(places[2].latitude_deg, abs=1e-6))
    at = torch.cat([cameras[2].pose.translation, torch.ones(1)]).double()
    row = torch.tensor([[float(latitude), float(longitude), float(altitude)]], dtype=torch.float64)
    ecef, utm = (
        torch.tensor(content[key], dtype=torch.float64) @ at for key in ("ecef_from_world", "utm_from_world")
    )
    torch.testing.assert_close(ecef[:3], compute_ecef(row)[0], atol=0.05, rtol=0)
    torch.testing.assert_close(utm[:3], compute_utm(row, 32615)[0], atol=0.05, rtol=0)


# Photographs


def write_photo(path, latitude=(46.0, 50.0, 33.0), longitude=(91.0, 59.0, 40.0), altitude=198.5, west="W"):
    exif = Image.Exif()
    exif.get_ifd(0x8825).update({1: "N", 2: latitude, 3: west, 4: longitude, 5: b"\0", 6: altitude})
    Image.new("RGB", (48, 36)).save(path, exif=exif)
    return View(path.name, CAMERA, image=Photo.from_file(path, path.name))


def collect(views, **more):
    said: list[str] = []
    options = {"poses": "given", "metric": False, "distance": None, "truth": None, "report": said.append}
    return collect_known(views, **options, **more), said


def test_exif(tmp_path):
    place = read_place(write_photo(tmp_path / "a.jpg").image)
    assert place.latitude_deg == pytest.approx(46.8425) and place.longitude_deg == pytest.approx(
        -91.994444, abs=1e-6
    )
    assert place.altitude_m == pytest.approx(198.5)
    assert read_place(write_photo(tmp_path / "b.jpg", (0.0, 0.0, 0.0), (0.0, 0.0, 0.0)).image) is None
    Image.new("RGB", (48, 36)).save(tmp_path / "c.jpg")
    assert read_place(Photo.from_file(tmp_path / "c.jpg", "c.jpg")) is None


def test_bad_gps_is_one_line(tmp_path):
    seconds = [33.0, 33.5, 34.0, 34.5]
    flat = [write_photo(tmp_path / f"f{s}.jpg", (46.0, 50.0, s), altitude=0.0) for s in seconds]
    with pytest.raises(ValueError, match=r"--georeference: GPS has the altitude 0 in all photographs"):
        collect(flat, georeference=True)
    known, said = collect(flat)
    assert not known.places and "altitude 0" in said[-1] and "not used" in said[-1]
    far = [
        write_photo(tmp_path / f"g{s}.jpg", (46.0, 50.0, s), west=west)
        for s, west in zip(seconds, "WWEE", strict=True)
    ]
    with pytest.raises(ValueError, match="more than 50 km apart"):
        collect(far, georeference=True)
    good = [write_photo(tmp_path / f"h{s}.jpg", (46.0, 50.0, s)) for s in seconds]
    known, said = collect([*good, far[-1]], georeference=True)
    assert sum(place is not None for place in known.places) == 4 and "g34.5.jpg" in said[0]
    assert not collect(good, gps="ignore")[0].places
    with pytest.raises(ValueError, match="is in 0 of 2 photographs, and 3 are needed"):
        collect([View("a", CAMERA), View("b", CAMERA)], georeference=True)
    with pytest.raises(ValueError, match="is in 2 of 2 photographs, and 3 are needed"):
        collect(good[:2], georeference=True)
    assert collect([View("a", CAMERA), View("b", CAMERA)])[1] == []  # nothing to say


FLIGHT = (
    (-3.2541, 3.7236, -0.0091),
    (-3.0884, 2.1673, -0.0218),
    (-3.011, 0.5682, 0.0899),
    (-2.9708, -1.026, 0.1655),
    (-2.8537, -2.5991, 0.2497),
    (-2.761, -4.225, 0.398),
    (0.306, -3.78, 0.2265),
    (0.2403, -2.1857, 0.125),
    (0.1012, -0.6489, 0.0268),
    (-0.0312, 0.9307, -0.0391),
    (-0.1405, 2.49, -0.1234),
    (-0.2321, 4.0634, -0.1749),
    (2.6728, 3.9604, -0.3219),
    (2.8105, 2.4072, -0.2952),
    (2.8806, 0.865, -0.1911),
    (3.0001, -0.6877, -0.1128),
    (3.0773, -2.2913, -0.0077),
    (3.1634, -3.8937, 0.0917),
)
"""Positions of its cameras, in the unit of structure from motion."""


def test_a_drone(shared_data):
    """18 photographs of a drone: held-out GPS, with positions that structure from motion had found (in its unit)."""
    folder = shared_data / "drone_brighton" / "images"
    if not folder.is_dir():
        pytest.skip(f"no photographs at {folder}")
    files = sorted(folder.iterdir())
    said: list[str] = []
    places = read_places(
        [View(path.name, CAMERA, image=Photo.from_file(path, path.name)) for path in files], said.append
    )
    assert len(places) == 18 and all(places) and not said
    centers = torch.tensor(FLIGHT, dtype=torch.float64)
    off, inside = [], 0
    for index in range(18):
        found = align_to_gps(
            centers, [None if number == index else place for number, place in enumerate(places)]
        )
        expected = locate_enu(found.similarity.apply(centers[index : index + 1]), found.origin)
        gap = compute_ecef(expected) - compute_ecef(places[index].to_tensor()[None])
        off.append(float(gap.norm()))
        inside += off[-1] <= found.position_m
    print(
        f"held-out GPS: {sorted(off)[9]:.2f} m in the median, {max(off):.2f} m at most, {inside} of 18 inside"
    )
    assert sorted(off)[9] < 1.0 and inside >= 17
