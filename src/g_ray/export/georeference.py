"""Where on the earth a result is: scene.geo beside points.ply and in colmap/, and geo.txt with the photographs' places.

scene.geo is JSON:

    crs              EPSG code of the UTM zone of the origin (WGS 84), e.g. "EPSG:32615"
    origin           latitude_deg, longitude_deg and altitude_m of the world's origin
    ecef_from_world  4×4 matrix to earth-centered meters (EPSG:4978), exact
    utm_from_world   4×4 matrix to easting, northing and altitude in `crs`, exact at the origin (UTM is curved)
    utm_error_m      largest error of that matrix at a camera

The world has x east, y north and z up at the origin, in meters. geo.txt has the line EPSG:4326 and for every photograph
its name, longitude, latitude and altitude, as OpenDroneMap reads them.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from g_ray.geometry.geodesy import (
    Place,
    compute_utm,
    describe_utm,
    find_utm_epsg,
    locate_enu,
    make_ecef_from_enu,
)
from g_ray.media.view import View
from g_ray.runtime.files import write_atomically, write_json

GEO, PLACES = "scene.geo", "geo.txt"
FORMAT, VERSION = "g-ray-geo", 1
STEP_M = 100.0
"""Distance over which the projection is made linear."""


def write_georeference(folder: Path, origin: Place, cameras: Sequence[View]) -> list[str]:
    """Write scene.geo, twice, and geo.txt; returns a note that names them."""
    centers = torch.stack([view.pose.translation.double() for view in cameras if view.pose is not None])
    epsg = find_utm_epsg(origin.latitude_deg, origin.longitude_deg)
    utm_from_world = make_utm_from_enu(origin, epsg)
    moved = centers @ utm_from_world[:3, :3].mT + utm_from_world[:3, 3]
    off = moved - compute_utm(locate_enu(centers, origin), epsg)
    content = {
        "format": FORMAT,
        "version": VERSION,
        "crs": f"EPSG:{epsg}",
        "origin": vars(origin),
        "ecef_from_world": make_ecef_from_enu(origin).tolist(),
        "utm_from_world": utm_from_world.tolist(),
        "utm_error_m": float(off.norm(dim=-1).max()),
    }
    for path in (folder / GEO, folder / "colmap" / GEO):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, content)
    lines = [
        f"{view.name} {longitude:.9f} {latitude:.9f} {altitude:.3f}"
        for view, (latitude, longitude, altitude) in zip(
            cameras, locate_enu(centers, origin).tolist(), strict=True
        )
    ]
    write_atomically(folder / PLACES, "\n".join(["EPSG:4326", *lines, ""]))
    return [
        f"{GEO} says where the result is on the earth: EPSG:{epsg} ({describe_utm(epsg)}), origin at latitude "
        f"{origin.latitude_deg:.6f}°, longitude {origin.longitude_deg:.6f}°, {origin.altitude_m:.1f} m"
    ]


def make_utm_from_enu(origin: Place, epsg: int) -> Float[Tensor, "4 4"]:
    """Return the matrix from meters east, north and up to UTM that is exact at the origin."""
    ends = torch.cat([torch.zeros(1, 3), torch.eye(3), -torch.eye(3)]).double() * STEP_M
    middle, ahead, behind = compute_utm(locate_enu(ends, origin), epsg).split([1, 3, 3])
    matrix = torch.eye(4, dtype=torch.float64)
    matrix[:3, :3] = ((ahead - behind) / (2 * STEP_M)).mT
    matrix[:3, 3] = middle[0]
    return matrix
