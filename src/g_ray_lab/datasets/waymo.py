"""Unpack recordings of the Waymo Open Dataset (perception, version 1): five cameras and the depth of five LiDARs.

A `segment-….tfrecord` holds a Frame per tenth of a second, as dataset.proto of waymo-research/waymo-open-dataset
defines it. Images lie in it as JPEG files, so it is unpacked to a scene folder with a transforms.json:

images/front/000000.jpg     as recorded
depth/front/000000.png      z-depth, 16 bits, 2 mm; 0 where no LiDAR has measured

Vehicle: x forward, y left, z up; cameras too, x along the optical axis. Lenses are OpenCV's with k1 k2 p1 p2 k3, pixels
count from the left edge of the first. A range image has a row per beam, the highest first, and a column per azimuth,
from the rear over the left; the upper LiDAR turns while the vehicle moves and has a pose per pixel. Which pixel of
which camera sees a measurement is in the recording, with the rolling shutter considered; poses here are those of the
image. The world is the camera of the first view. Cars and people move.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Float64, Int, Int64, UInt16, UInt32
from PIL import Image

from g_ray.cameras.opencv import OpenCV
from g_ray.formats.frames import camera_to_frame, pose_to_frame
from g_ray.formats.nerfstudio import DEPTH_UNIT, TRANSFORMS
from g_ray.formats.recordings import make_pose_from_matrix
from g_ray.geometry.pose import Pose
from g_ray.runtime.files import atomic_path, write_atomically, write_json

# TFRecord files and protocol buffers without their libraries: the few parts that recordings need
#
# A TFRecord is a length of 8 bytes, its checksum of 4, as many bytes, and their checksum of 4. A message is a row of
# fields: a key, which is a variable-length integer of field number and kind, then a variable-length integer (kind 0), 8
# bytes (1), a length and as many bytes (2), or 4 bytes (5).

MAX_RECORD_BYTES = 1 << 28

Fields = dict[int, list[int | bytes]]
"""Values by field number, in the order of the file: integers of kind 0, the bytes of all others."""


def iterate_records(path: Path) -> Iterator[bytes]:
    """Yield the records of a TFRecord file; ValueError if it is none, ends early or is damaged."""
    with path.open("rb") as file:
        while head := file.read(12):
            size = struct.unpack("<Q", head[:8])[0] if len(head) == 12 else MAX_RECORD_BYTES + 1
            body = file.read(size + 4) if size <= MAX_RECORD_BYTES else b""
            if len(body) != size + 4:
                raise ValueError(f"{path}: not a TFRecord, or cut off; download it again")
            for data, stored in ((head[:8], head[8:]), (body[:-4], body[-4:])):
                if compute_checksum(data) != struct.unpack("<I", stored)[0]:
                    raise ValueError(f"{path}: a record contradicts its checksum; download it again")
            yield body[:-4]


LANES = 1024
CRC_STEP = np.arange(256, dtype=np.uint32)
"""CRC-32C (Castagnoli, reflected) of single bytes."""
for _ in range(8):
    CRC_STEP = (CRC_STEP >> 1) ^ np.where(CRC_STEP & 1, np.uint32(0x82F63B78), np.uint32(0))


def compute_checksum(data: bytes) -> int:
    """Compute a TFRecord's masked CRC-32C: ((crc >> 15) | (crc << 17)) + 0xa282ead8.

    The register is linear over bits: r(a ‖ b) = shift(r(a), |b|) ⊕ r(b), and zeros before the data leave it zero. So
    equal parts of the data advance side by side, a byte at a time, and pairs of neighbors are then joined.
    """
    width = -(-len(data) // LANES)
    padded = np.zeros(LANES * width, np.uint8)
    padded[LANES * width - len(data) :] = np.frombuffer(data, np.uint8)
    state = np.zeros(LANES, np.uint32)
    for column in padded.reshape(LANES, width).T:
        state = CRC_STEP[(state ^ column) & 255] ^ (state >> 8)
    shift = _compute_shift(width)
    while len(state) > 1:
        state = _multiply_bits(shift, state[0::2]) ^ state[1::2]
        shift = _multiply_bits(shift, shift)
    start = _multiply_bits(_compute_shift(len(data)), np.array([0xFFFFFFFF], np.uint32))
    crc = int(state[0] ^ start[0]) ^ 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _compute_shift(count: int) -> UInt32[np.ndarray, "32"]:
    """Compute what as many zero bytes do to a register, as images of its 32 bits."""
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    total, power = bits, CRC_STEP[bits & 255] ^ (bits >> 8)
    while count:
        total = _multiply_bits(power, total) if count & 1 else total
        power, count = _multiply_bits(power, power), count >> 1
    return total


def _multiply_bits(
    images: UInt32[np.ndarray, "32"], values: UInt32[np.ndarray, "n"]
) -> UInt32[np.ndarray, "n"]:
    """Apply a linear map over bits, given by the images of single bits."""
    chosen = (values[:, None] >> np.arange(32, dtype=np.uint32)) & 1
    return np.bitwise_xor.reduce(np.where(chosen == 1, images, np.uint32(0)), axis=1)


def parse_message(data: bytes) -> Fields:
    """Parse the fields of a message; ValueError if it is none."""
    fields: Fields = {}
    place = 0
    while place < len(data):
        key, place = _parse_varint(data, place)
        kind = key & 7
        if kind == 0:
            value, place = _parse_varint(data, place)
        elif kind in (1, 2, 5):
            size = {1: 8, 5: 4}.get(kind)
            if size is None:
                size, place = _parse_varint(data, place)
            value, place = data[place : place + size], place + size
            if place > len(data):
                raise ValueError("a field is cut off")
        else:
            raise ValueError(f"a field of kind {kind}")
        fields.setdefault(key >> 3, []).append(value)
    return fields


def get_bytes(fields: Fields, number: int) -> bytes:
    """Return the last value of a field, as protocol buffers define it; empty bytes if it is not there."""
    value = fields.get(number, [b""])[-1]
    if not isinstance(value, bytes):
        raise ValueError(f"field {number} is an integer")
    return value


def get_int(fields: Fields, number: int) -> int:
    """Return the last value of a field, 0 if it is not there."""
    value = fields.get(number, [0])[-1]
    if not isinstance(value, int):
        raise ValueError(f"field {number} is no integer")
    return value


def get_messages(fields: Fields, number: int) -> list[Fields]:
    """Parse all values of a field as messages."""
    values = fields.get(number, [])
    if not all(isinstance(value, bytes) for value in values):
        raise ValueError(f"field {number} holds no messages")
    return [parse_message(value) for value in values if isinstance(value, bytes)]


def get_floats(fields: Fields, number: int, kind: str = "<f8") -> Float64[np.ndarray, "n"]:
    """Return a repeated field of floating numbers, packed or not."""
    values = fields.get(number, [])
    data = b"".join(value for value in values if isinstance(value, bytes))
    return np.frombuffer(data, kind).astype(np.float64)


def get_ints(fields: Fields, number: int) -> Int64[np.ndarray, "n"]:
    """Return a repeated field of integers, packed or not."""
    values = fields.get(number, [])
    parts = [
        _unpack_varints(value) if isinstance(value, bytes) else np.array([value], np.uint64).view(np.int64)
        for value in values
    ]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _parse_varint(data: bytes, place: int) -> tuple[int, int]:
    """Parse an integer, seven bits per byte, the lowest first; return it and the place behind it."""
    value = shift = 0
    while place < len(data) and shift < 70:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value & (1 << 64) - 1, place
    raise ValueError("an integer is cut off")


def _unpack_varints(data: bytes) -> Int64[np.ndarray, "n"]:
    """Parse a row of integers at once: images hold a million of them."""
    octets = np.frombuffer(data, np.uint8)
    last = np.flatnonzero(octets < 0x80)
    if not len(octets):
        return np.zeros(0, np.int64)
    if not len(last) or last[-1] != len(octets) - 1:
        raise ValueError("an integer is cut off")
    first = np.concatenate([[0], last[:-1] + 1])
    lengths = last - first + 1
    values = np.zeros(len(last), np.uint64)
    for byte in range(int(lengths.max())):
        some = lengths > byte
        part = octets[first[some] + byte].astype(np.uint64) & np.uint64(0x7F)
        values[some] |= part << np.uint64(7 * byte)
    return values.view(np.int64)


# Messages of the dataset

CAMERAS = {1: "front", 2: "front_left", 3: "front_right", 4: "side_left", 5: "side_right"}
TOP_LIDAR = 1
UNIT_M = 0.002
VEHICLE_FROM_OPENCV = np.array([[0.0, 0, 1, 0], [-1, 0, 0, 0], [0, -1, 0, 0], [0, 0, 0, 1]])
"""From x right, y down, z forward to x forward, y left, z up."""


@dataclass(frozen=True, eq=False)
class WaymoView:
    """An image of a camera, with the depth that LiDARs have measured in it."""

    name: str
    camera: OpenCV
    pose: Pose
    """world_from_cam, in the dataset's own world."""
    jpeg: bytes
    depth: UInt16[np.ndarray, "h w"]


@dataclass(frozen=True, eq=False)
class _Points:
    """Measurements of all LiDARs of a frame."""

    world: Float[np.ndarray, "n 3"]
    places: Int[np.ndarray, "n 6"]
    """Camera, column and row of the first, and of the second camera that sees a point; camera 0 if none does."""


def read_waymo(path: Path, every: int = 1) -> Iterator[list[WaymoView]]:
    """Yield the views of every n-th frame of a recording; ValueError, in one line with the file, if it is none."""
    for number, record in enumerate(iterate_records(path)):
        if number % every:
            continue
        try:
            views = _read_frame(parse_message(record))
        except (ValueError, IndexError, zlib.error, OverflowError) as error:
            raise ValueError(
                f"{path}: frame {number} is none of the Waymo Open Dataset ({error}); download it again"
            ) from None
        yield views


def unpack_waymo(path: Path, folder: Path, every: int = 1) -> int:
    """Write the scene folder of a recording; return the number of images. transforms.json is written last."""
    frames, world = [], None
    for number, views in enumerate(read_waymo(path, every)):
        for view in views:
            world = view.pose.inverse() if world is None else world
            image, depth = f"images/{view.name}/{number:06d}.jpg", f"depth/{view.name}/{number:06d}.png"
            write_atomically(folder / image, view.jpeg)
            with atomic_path(folder / depth) as scratch:
                Image.fromarray(view.depth).save(scratch)
            frames.append(
                {
                    "file_path": image,
                    "depth_file_path": depth,
                    **camera_to_frame(view.camera),
                    **pose_to_frame(world @ view.pose),
                }
            )
    if not frames:
        raise ValueError(f"{path}: no frame in it; download it again")
    write_json(folder / TRANSFORMS, {DEPTH_UNIT: UNIT_M, "frames": frames})
    return len(frames)


def _read_frame(frame: Fields) -> list[WaymoView]:
    (context,) = get_messages(frame, 1)
    calibrations = {get_int(entry, 1): entry for entry in get_messages(context, 2)}
    points = _read_points(frame, context)
    views = []
    for image in sorted(get_messages(frame, 4), key=lambda image: get_int(image, 1)):
        number = get_int(image, 1)
        if number not in CAMERAS or number not in calibrations:
            raise ValueError(f"camera {number} has no calibration")
        calibration = calibrations[number]
        camera = _build_camera(calibration)
        matrix = _read_transform(image, 3) @ _read_transform(calibration, 3) @ VEHICLE_FROM_OPENCV
        pose = make_pose_from_matrix(f"the pose of camera {number}", matrix)
        depth = _draw_depth(points, number, camera, np.linalg.inv(matrix))
        views.append(WaymoView(CAMERAS[number], camera, pose, get_bytes(image, 2), depth))
    return views


def _build_camera(calibration: Fields) -> OpenCV:
    names = ("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2", "k3")
    values = dict(zip(names, get_floats(calibration, 2).tolist(), strict=True))
    width, height = get_int(calibration, 4), get_int(calibration, 5)
    return OpenCV.make(width, height, **values, dtype=torch.float64)


def _read_transform(fields: Fields, number: int) -> Float[np.ndarray, "4 4"]:
    return get_floats(parse_message(get_bytes(fields, number)), 1).reshape(4, 4)


def _read_matrix(data: bytes, whole: bool = False) -> np.ndarray:
    """Read a compressed matrix of floats, or of whole numbers."""
    fields = parse_message(zlib.decompress(data))
    values = get_ints(fields, 1) if whole else get_floats(fields, 1, "<f4")
    return values.reshape(get_ints(parse_message(get_bytes(fields, 2)), 1))


def _read_points(frame: Fields, context: Fields) -> _Points:
    """Read the first returns of all LiDARs."""
    calibrations = {get_int(entry, 1): entry for entry in get_messages(context, 3)}
    world_from_vehicle = _read_transform(frame, 3)
    world, places = [np.zeros((0, 3))], [np.zeros((0, 6), np.int64)]
    for laser in get_messages(frame, 5):
        returns = parse_message(get_bytes(laser, 2))
        distance = _read_matrix(get_bytes(returns, 2))[..., 0]
        points = _place_points(calibrations[get_int(laser, 1)], distance)
        if get_int(laser, 1) == TOP_LIDAR:
            points = _move_points(points, _read_matrix(get_bytes(returns, 4)))
        else:
            points = points @ world_from_vehicle[:3, :3].T + world_from_vehicle[:3, 3]
        measured = distance > 0
        world.append(points[measured])
        places.append(_read_matrix(get_bytes(returns, 3), whole=True)[measured])
    return _Points(np.concatenate(world), np.concatenate(places))


def _place_points(calibration: Fields, distance: Float[np.ndarray, "h w"]) -> Float[np.ndarray, "h w 3"]:
    """Compute the points of a range image in the frame of the vehicle."""
    height, width = distance.shape
    inclination = get_floats(calibration, 2)
    if not len(inclination):
        low, high = (float(get_floats(calibration, number)[0]) for number in (3, 4))
        inclination = low + (np.arange(height) + 0.5) / height * (high - low)
    extrinsic = _read_transform(calibration, 5)
    # Columns count azimuths of the vehicle; beams are given from the lowest, rows from the highest.
    turn = np.arctan2(extrinsic[1, 0], extrinsic[0, 0])
    azimuth = np.pi - (np.arange(width) + 0.5) * (2 * np.pi / width) - turn
    inclination = inclination[::-1, None]
    directions = np.stack(
        np.broadcast_arrays(
            np.cos(azimuth) * np.cos(inclination), np.sin(azimuth) * np.cos(inclination), np.sin(inclination)
        ),
        -1,
    )
    return (distance[..., None] * directions) @ extrinsic[:3, :3].T + extrinsic[:3, 3]


def _move_points(
    points: Float[np.ndarray, "h w 3"], poses: Float[np.ndarray, "h w 6"]
) -> Float[np.ndarray, "h w 3"]:
    """Move points of the vehicle to the world by poses of roll, pitch, yaw, x, y, z: yaw · pitch · roll."""
    x, y, z = np.moveaxis(points, -1, 0)
    (sin_roll, sin_pitch, sin_yaw), (cos_roll, cos_pitch, cos_yaw) = (
        np.moveaxis(part(poses[..., :3]), -1, 0) for part in (np.sin, np.cos)
    )
    y, z = cos_roll * y - sin_roll * z, sin_roll * y + cos_roll * z
    x, z = cos_pitch * x + sin_pitch * z, cos_pitch * z - sin_pitch * x
    x, y = cos_yaw * x - sin_yaw * y, sin_yaw * x + cos_yaw * y
    return np.stack([x, y, z], -1) + poses[..., 3:]


def _draw_depth(
    points: _Points, number: int, camera: OpenCV, cam_from_world: Float[np.ndarray, "4 4"]
) -> UInt16[np.ndarray, "h w"]:
    """Write the z-depth of the points that a camera sees, the nearest where several fall on a pixel."""
    z = points.world @ cam_from_world[2, :3] + cam_from_world[2, 3]
    depth = np.full((camera.height, camera.width), np.inf)
    for first in (0, 3):
        seen, column, row = points.places[:, first : first + 3].T
        inside = (column >= 0) & (column < camera.width) & (row >= 0) & (row < camera.height)
        some = (seen == number) & inside & (z > 0)
        np.minimum.at(depth, (row[some], column[some]), z[some])
    units = np.round(depth / UNIT_M)
    return np.where(units <= np.iinfo(np.uint16).max, units, 0).astype(np.uint16)
