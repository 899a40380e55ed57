"""Recordings of the Waymo Open Dataset, written by Google's own protocol buffers and projected by OpenCV."""

import io
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.spatial.transform import Rotation

from g_ray.formats import read_scene
from g_ray_lab.cli.data_command import Waymo
from g_ray_lab.datasets.waymo import compute_checksum, unpack_waymo

descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
cv2 = pytest.importorskip("cv2")

WIDTH, HEIGHT, ROWS, COLUMNS = 96, 64, 6, 90
# Fields of dataset.proto: name, number, type, repeated.
MESSAGES = {
    "MatrixShape": [("dims", 1, "int32", True)],
    "MatrixFloat": [("data", 1, "packed float", True), ("shape", 2, "MatrixShape", False)],
    "MatrixInt32": [("data", 1, "packed int32", True), ("shape", 2, "MatrixShape", False)],
    "Transform": [("transform", 1, "double", True)],
    "CameraCalibration": [
        ("name", 1, "int32", False),
        ("intrinsic", 2, "double", True),
        ("extrinsic", 3, "Transform", False),
        ("width", 4, "int32", False),
        ("height", 5, "int32", False),
    ],
    "LaserCalibration": [
        ("name", 1, "int32", False),
        ("beam_inclinations", 2, "double", True),
        ("beam_inclination_min", 3, "double", False),
        ("beam_inclination_max", 4, "double", False),
        ("extrinsic", 5, "Transform", False),
    ],
    "Context": [
        ("name", 1, "string", False),
        ("camera_calibrations", 2, "CameraCalibration", True),
        ("laser_calibrations", 3, "LaserCalibration", True),
    ],
    "RangeImage": [
        ("range_image_compressed", 2, "bytes", False),
        ("camera_projection_compressed", 3, "bytes", False),
        ("range_image_pose_compressed", 4, "bytes", False),
    ],
    "CameraImage": [
        ("name", 1, "int32", False),
        ("image", 2, "bytes", False),
        ("pose", 3, "Transform", False),
        ("pose_timestamp", 5, "double", False),
    ],
    "Laser": [("name", 1, "int32", False), ("ri_return1", 2, "RangeImage", False)],
    "Frame": [
        ("context", 1, "Context", False),
        ("timestamp_micros", 2, "int64", False),
        ("pose", 3, "Transform", False),
        ("images", 4, "CameraImage", True),
        ("lasers", 5, "Laser", True),
    ],
}


@pytest.fixture(scope="module")
def proto():
    """The messages above as classes."""
    from google.protobuf import descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="waymo.proto", package="waymo", syntax="proto2")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, repeated in fields:
            packed, kind = kind.startswith("packed "), kind.removeprefix("packed ")
            label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            entry = message.field.add(name=field, number=number, label=label)
            if kind in MESSAGES:
                entry.type, entry.type_name = kinds.TYPE_MESSAGE, f".waymo.{kind}"
            else:
                entry.type = getattr(kinds, f"TYPE_{kind.upper()}")
            entry.options.packed = packed
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = {name: pool.FindMessageTypeByName(f"waymo.{name}") for name in MESSAGES}
    return {name: message_factory.GetMessageClass(found) for name, found in names.items()}


def make_transform(angles, position):
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = Rotation.from_euler("ZYX", angles).as_matrix(), position
    return matrix


# A camera looks forward, another one to the left; their frames have x along the optical axis and z up.
LENSES = {
    1: (80.0, 82.0, 50.0, 31.0, -0.05, 0.01, 0.001, -0.002, 0.003),
    4: (70.0, 70.0, 47.0, 33.0, *[0.0] * 5),
}
MOUNTS = {
    1: make_transform((0.02, 0.01, 0.0), (1.5, 0.1, 2.1)),
    4: make_transform((np.pi / 2, 0.03, 0.01), (1.4, 0.3, 2.0)),
}
LIDARS = {
    1: (make_transform((0.7, 0.01, -0.02), (1.4, 0.0, 2.2)), np.linspace(-0.3, 0.05, ROWS)),
    2: (make_transform((0.1, 0.0, 0.0), (4.0, 0.0, 0.7)), None),
}
LOW, HIGH = -0.2, 0.3


def place_measurements(number, distance):
    """Points of a range image on the vehicle, one by one."""
    extrinsic, beams = LIDARS[number]
    if beams is None:
        beams = [LOW + (row + 0.5) / ROWS * (HIGH - LOW) for row in range(ROWS)]
    points = np.zeros((ROWS, COLUMNS, 3))
    for row in range(ROWS):
        for column in range(COLUMNS):
            turn = Rotation.from_matrix(extrinsic[:3, :3]).as_euler("ZYX")[0]
            azimuth = (2 * (COLUMNS - column - 0.5) / COLUMNS - 1) * np.pi - turn
            ray = Rotation.from_euler("ZY", [azimuth, -beams[ROWS - 1 - row]]).apply([1.0, 0.0, 0.0])
            points[row, column] = extrinsic[:3, :3] @ (distance[row, column] * ray) + extrinsic[:3, 3]
    return points


def project(number, world_from_vehicle, points):
    """Pixels and depth of world points, with OpenCV; its axes are x right, y down, z forward."""
    in_camera = np.linalg.inv(world_from_vehicle @ MOUNTS[number])
    x, y, z = (points @ in_camera[:3, :3].T + in_camera[:3, 3]).T
    points = np.stack([-y, -z, x], -1)
    fx, fy, cx, cy, *distortion = LENSES[number]
    matrix = np.array([[fx, 0, cx], [0, fy, cy], [0, 0, 1.0]])
    pixels, _ = cv2.projectPoints(points, np.zeros(3), np.zeros(3), matrix, np.array(distortion))
    return pixels[:, 0], points[:, 2]


def compress(proto, kind, array):
    matrix = proto[kind](data=array.ravel().tolist())
    matrix.shape.dims.extend(array.shape)
    return zlib.compress(matrix.SerializeToString())


def write_recording(path, proto):
    """Two frames; returns the measurements of each camera and frame: pixels, depth, world points."""
    random, records, seen = np.random.default_rng(0), [], {}
    for time in range(2):
        vehicle = make_transform((0.3 + 0.1 * time, 0.01, 0.02), (1000.0 + 2 * time, -500.0, 30.0))
        frame = proto["Frame"](timestamp_micros=time)
        frame.pose.transform.extend(vehicle.ravel())
        frame.context.name = "segment"
        for number, lens in LENSES.items():
            calibration = frame.context.camera_calibrations.add(name=number, width=WIDTH, height=HEIGHT)
            calibration.intrinsic.extend(lens)
            calibration.extrinsic.transform.extend(MOUNTS[number].ravel())
            buffer = io.BytesIO()
            Image.new("RGB", (WIDTH, HEIGHT), (40 * number, 90, 30)).save(buffer, "jpeg")
            image = frame.images.add(name=number, image=buffer.getvalue())
            image.pose.transform.extend(vehicle.ravel())
        for number, (extrinsic, beams) in LIDARS.items():
            calibration = frame.context.laser_calibrations.add(name=number)
            calibration.extrinsic.transform.extend(extrinsic.ravel())
            if beams is None:
                calibration.beam_inclination_min, calibration.beam_inclination_max = LOW, HIGH
            else:
                calibration.beam_inclinations.extend(beams)
            distance = random.uniform(5, 40, (ROWS, COLUMNS)).astype(np.float32)
            distance[random.random((ROWS, COLUMNS)) < 0.2] = -1.0
            # The upper LiDAR has a pose per measurement: roll, pitch, yaw and position.
            poses = np.tile([0.02, 0.01, 0.3 + 0.1 * time, *vehicle[:3, 3]], (ROWS, COLUMNS, 1))
            poses[..., 3] += 0.01 * np.arange(COLUMNS)
            poses = poses.astype(np.float32)
            points = place_measurements(number, distance)
            for row in range(ROWS):
                for column in range(COLUMNS):
                    pose = vehicle
                    if number == 1:
                        roll, pitch, yaw, *position = poses[row, column].tolist()
                        pose = make_transform((yaw, pitch, roll), position)
                    points[row, column] = pose[:3, :3] @ points[row, column] + pose[:3, 3]
            places = np.zeros((ROWS, COLUMNS, 6), np.int32)
            for camera in LENSES:
                pixels, depth = project(camera, vehicle, points.reshape(-1, 3))
                pixels, depth = pixels.reshape(ROWS, COLUMNS, 2), depth.reshape(ROWS, COLUMNS)
                inside = (
                    (distance > 0)
                    & (depth > 0.5)
                    & (pixels >= 0).all(-1)
                    & (pixels < [WIDTH, HEIGHT]).all(-1)
                )
                first = np.where(places[..., :1] == 0, 0, 3)
                for row, column in np.argwhere(inside):
                    at = int(first[row, column, 0])
                    places[row, column, at : at + 3] = camera, *np.floor(pixels[row, column])
                    place = (camera, time)
                    seen.setdefault(place, []).append(
                        (pixels[row, column], depth[row, column], points[row, column])
                    )
            laser = frame.lasers.add(name=number)
            channels = np.stack([distance, *[np.zeros_like(distance)] * 3], -1)
            laser.ri_return1.range_image_compressed = compress(proto, "MatrixFloat", channels)
            laser.ri_return1.camera_projection_compressed = compress(proto, "MatrixInt32", places)
            if number == 1:
                laser.ri_return1.range_image_pose_compressed = compress(proto, "MatrixFloat", poses)
        records.append(frame.SerializeToString())
    path.write_bytes(b"".join(map(pack_record, records)))
    return seen


def pack_record(data):
    size = struct.pack("<Q", len(data))
    sums = [struct.pack("<I", compute_checksum(part)) for part in (size, data)]
    return size + sums[0] + data + sums[1]


@pytest.mark.parametrize(
    ("data", "crc"),  # RFC 3720, B.4
    [(bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (bytes(range(32)), 0x46DD794E), (b"", 0)],
)
def test_checksums_are_those_of_the_standard(data, crc):
    masked = compute_checksum(data)
    turned = (masked - 0xA282EAD8) & 0xFFFFFFFF
    assert ((turned >> 17) | (turned << 15)) & 0xFFFFFFFF == crc
    # Parts of long data advance side by side: one bit at any place changes the sum.
    long = bytearray(np.random.default_rng(0).integers(0, 256, 5000, dtype=np.uint8).tobytes())
    sums = {compute_checksum(bytes(long))}
    for place in (0, 1, 2499, 4999):
        long[place] ^= 1
        sums.add(compute_checksum(bytes(long)))
    assert len(sums) == 5


def test_measurements_are_where_they_were(tmp_path, proto):
    path = tmp_path / "segment-1.tfrecord"
    seen = write_recording(path, proto)
    assert Waymo((tmp_path,), tmp_path / "out").run() == 0
    scene = read_scene(tmp_path / "out" / "segment-1")
    assert scene.names == tuple(
        f"images/{name}/{n:06d}.jpg" for name in ("front", "side_left") for n in (0, 1)
    )
    world = None
    for view, (time, number) in enumerate([(0, 1), (1, 1), (0, 4), (1, 4)]):
        pixels, depths, points = (np.array(part) for part in zip(*seen[number, time], strict=True))
        assert len(points) > 20
        vehicle = make_transform((0.3 + 0.1 * time, 0.01, 0.02), (1000.0 + 2 * time, -500.0, 30.0))
        if world is None:  # the camera of the first view, with OpenCV's axes
            axes = np.array([[0.0, 0, 1, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]])
            world = np.linalg.inv(vehicle @ MOUNTS[1] @ axes)
        ours = scene.poses[view].inverse().apply(torch.from_numpy(points @ world[:3, :3].T + world[:3, 3]))
        again, valid = scene.cameras[view].project(ours)
        assert valid.all()
        np.testing.assert_allclose(again.numpy(), pixels, atol=1e-6)
        file = scene.depth[view]
        assert file is not None and file.convention == "z"
        depth = file.read().numpy()
        nearest = {}
        for (u, v), z in zip(pixels, depths, strict=True):
            nearest[int(v), int(u)] = min(z, nearest.get((int(v), int(u)), np.inf))
        assert (depth > 0).sum() == len(nearest)
        rows, columns = np.array(list(nearest)).T
        # Poses of single measurements are float32: 1000 m is known to 0.06 mm; depth is stored in 2 mm.
        np.testing.assert_allclose(depth[rows, columns], list(nearest.values()), atol=1.2e-3)


def test_broken_recordings_are_one_line(tmp_path, proto, capsys):
    path = tmp_path / "segment-1.tfrecord"
    write_recording(path, proto)
    whole = path.read_bytes()
    record = b"\x0a\x03abc"
    flipped = whole[:2000] + bytes([whole[2000] ^ 1]) + whole[2001:]
    for content in (b"nonsense", whole[:-9], pack_record(record), flipped, b""):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="download it again") as caught:
            unpack_waymo(path, tmp_path / "scene")
        assert "\n" not in str(caught.value) and "segment-1" in str(caught.value)
    assert not (tmp_path / "scene" / "transforms.json").exists()
    assert Waymo((path,), tmp_path / "out").run() == 1
    assert "1 skipped" in capsys.readouterr().out
    with pytest.raises(ValueError, match="no recording"):
        Waymo((tmp_path / "absent",), tmp_path / "out").run()
