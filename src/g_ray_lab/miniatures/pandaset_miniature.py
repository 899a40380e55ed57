"""A miniature of PandaSet: six cameras with the nominal intrinsics, scaled; LiDAR tables as pandas 1.0 wrote them."""

import gzip
import pickle
from math import pi
from pathlib import Path

import numpy as np
import torch

from g_ray.geometry.pose import Pose, quaternion_from_rotation
from g_ray.runtime.files import write_atomically, write_json
from g_ray_lab.datasets.stored_frames import make_pinhole
from g_ray_lab.miniatures.miniature_room import MiniatureSize, scan_room, take_shot, write_image

SIZE = (1920, 1080)
RIG: dict[str, tuple[tuple[float, float, float, float], float, tuple[float, float, float]]] = {
    "front": ((1970.0131, 1970.0091, 970.0002, 483.2988), 0.0, (0.0, 0.0, 0.0)),
    "front_left": ((929.8429, 930.0592, 972.1794, 508.0057), -55.0, (-0.12, 0.02, -0.05)),
    "front_right": ((930.0407, 930.0324, 965.0525, 463.4161), 55.0, (0.12, 0.02, -0.05)),
    "left": ((930.4514, 930.0891, 991.6883, 541.6057), -95.0, (-0.15, 0.01, -0.12)),
    "right": ((922.5465, 922.4229, 945.0570, 517.5750), 95.0, (0.15, 0.01, -0.12)),
    "back": ((933.4667, 934.6754, 896.4692, 507.3557), 180.0, (0.0, 0.03, -0.25)),
}
"""fx fy cx cy at 1920×1080, heading in degrees to the right, place on the rig in meters."""
LIDAR_ABOVE_M = 0.3
INTERVAL_S = 0.1
PANDASET_START_S = 1557539924.5


def write_pandaset(root: Path, size: MiniatureSize) -> None:
    """Write sequences in PandaSet's layout."""
    height = round(size.width * SIZE[1] / SIZE[0])
    for scene in range(size.scenes):
        room, folder = size.make_room(scene), root / f"{scene + 1:03d}"
        rig = [_place_rig(instant) for instant in range(size.frames)]
        for name, (numbers, yaw_deg, offset) in RIG.items():
            fx, fy, cx, cy = (value * size.width / SIZE[0] for value in numbers)
            # The file counts pixels as OpenCV does: centers at whole numbers.
            camera = make_pinhole((size.width, height), fx, fy, cx, cy, center=0)
            poses = [place @ _mount(yaw_deg, offset) for place in rig]
            place = folder / "camera" / f"{name}_camera"
            for instant, pose in enumerate(poses):
                write_image(place / f"{instant:02d}.jpg", take_shot(room, camera, pose).pixels)
            write_json(place / "intrinsics.json", {"fx": fx, "fy": fy, "cx": cx, "cy": cy})
            write_json(place / "poses.json", [_to_document(pose) for pose in poses])
            write_json(place / "timestamps.json", _list_times(size.frames))
        for instant, place in enumerate(rig):
            position = place.apply(torch.tensor([0.0, -LIDAR_ABOVE_M, -0.1], dtype=torch.float64))
            write_sweep(
                folder / "lidar" / f"{instant:02d}.pkl.gz", scan_room(room, position), PANDASET_START_S
            )
        write_json(folder / "lidar" / "poses.json", [_to_document(pose) for pose in rig])
        write_json(folder / "lidar" / "timestamps.json", _list_times(size.frames))
        write_json(folder / "meta" / "timestamps.json", _list_times(size.frames))


def _place_rig(instant: int) -> Pose:
    """Drive slowly around the middle of the room."""
    angle = torch.tensor(0.12 * instant, dtype=torch.float64)
    eye = torch.stack([0.5 * angle.sin(), torch.tensor(-0.3, dtype=torch.float64), 0.5 * angle.cos()])
    ahead = torch.stack([angle.cos(), torch.zeros_like(angle), -angle.sin()])
    return Pose.look_at(eye, eye + ahead)


def _mount(yaw_deg: float, offset: tuple[float, float, float]) -> Pose:
    yaw = torch.tensor(yaw_deg * pi / 180, dtype=torch.float64)
    ahead = torch.stack([yaw.sin(), torch.zeros_like(yaw), yaw.cos()])
    place = torch.tensor(offset, dtype=torch.float64)
    return Pose.look_at(place, place + ahead)


def _to_document(pose: Pose) -> dict[str, dict[str, float]]:
    x, y, z, w = quaternion_from_rotation(pose.rotation).tolist()
    position = dict(zip("xyz", pose.translation.tolist(), strict=True))
    return {"position": position, "heading": {"w": w, "x": x, "y": y, "z": z}}


def _list_times(count: int) -> list[float]:
    return [PANDASET_START_S + INTERVAL_S * number for number in range(count)]


# A pickled DataFrame, assembled from opcodes: only arrays and plain values go through Python's pickler.


def write_sweep(path: Path, points: np.ndarray, time_s: float) -> None:
    """Write a LiDAR sweep as pandas 1.0 pickles a table with columns x y z i t (float64) and d (int64)."""
    count = len(points)
    floats = np.stack([*points.T, np.full(count, 17.0), np.full(count, time_s)])
    sensor = np.zeros((1, count), dtype=np.int64)
    names = np.array(list("xyzitd"), dtype=object)
    write_atomically(
        path, gzip.compress(_pickle_table(names, [(floats, (0, 5)), (sensor, (5, 6))], count), 1)
    )


def _pickle_table(names: np.ndarray, blocks: list[tuple[np.ndarray, tuple[int, int]]], rows: int) -> bytes:
    axes = _list(
        _index("base", "Index", data=names), _index("range", "RangeIndex", start=0, stop=rows, step=1)
    )
    items = [_index("base", "Index", data=names[first:stop]) for _, (first, stop) in blocks]
    stored = []
    for values, (first, stop) in blocks:
        place = _call("builtins", "slice", _value(first) + _value(stop) + _value(1))
        stored.append(_dict(("values", _value(values)), ("mgr_locs", place)))
    state = _dict(("0.14.1", _dict(("axes", axes), ("blocks", _list(*stored)))))
    arrays = _list(*(_value(values) for values, _ in blocks))
    manager_state = b"(" + axes + arrays + _list(*items) + state + b"t"
    manager = _new("pandas.core.internals.managers", "BlockManager") + manager_state + b"b"
    frame_state = _dict(("_data", manager), ("_typ", _value("dataframe")), ("_metadata", _value([])))
    return b"\x80\x03" + _new("pandas.core.frame", "DataFrame") + frame_state + b"b."


def _index(module: str, name: str, **values: object) -> bytes:
    """Pickle an index as pandas does: a call of _new_Index with its class and its values."""
    known = _global(f"pandas.core.indexes.{module}", name) + _value({"name": None, **values})
    return _call("pandas.core.indexes.base", "_new_Index", known)


def _value(value: object) -> bytes:
    """Pickle a plain value without header and end; protocol 3 has no frames, so that pieces can be joined."""
    return pickle.dumps(value, protocol=3)[2:-1]


def _global(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def _new(module: str, name: str) -> bytes:
    return _global(module, name) + b")\x81"


def _call(module: str, name: str, arguments: bytes) -> bytes:
    return _global(module, name) + b"(" + arguments + b"tR"


def _list(*items: bytes) -> bytes:
    return b"](" + b"".join(items) + b"e"


def _dict(*items: tuple[str, bytes]) -> bytes:
    return b"}(" + b"".join(_value(key) + value for key, value in items) + b"u"
