"""Places on the earth: latitude, longitude and altitude, a local east-north-up frame in meters, and UTM.

All on the WGS 84 ellipsoid. Angles of places are in degrees, as receivers and files give them; altitudes are meters
above the ellipsoid. (Photographs often have meters above the sea, up to 100 m off: differences are the same.)
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

SEMI_MAJOR_M = 6378137.0
FLATTENING = 1 / 298.257223563
ECCENTRICITY_SQUARED = FLATTENING * (2 - FLATTENING)
UTM_SCALE, UTM_EAST_M, UTM_SOUTH_M = 0.9996, 500_000.0, 10_000_000.0


@dataclass(frozen=True)
class Place:
    """A place on the earth (WGS 84)."""

    latitude_deg: float
    longitude_deg: float
    altitude_m: float

    def to_tensor(self) -> Float[Tensor, "3"]:
        return torch.tensor([self.latitude_deg, self.longitude_deg, self.altitude_m], dtype=torch.float64)


def compute_ecef(places: Float[Tensor, "n 3"]) -> Float[Tensor, "n 3"]:
    """Return earth-centered, earth-fixed meters of latitudes, longitudes and altitudes."""
    latitude, longitude = places[:, :2].double().deg2rad().unbind(-1)
    altitude = places[:, 2].double()
    # Radius of curvature across the meridian.
    radius = SEMI_MAJOR_M / (1 - ECCENTRICITY_SQUARED * latitude.sin().square()).sqrt()
    across = (radius + altitude) * latitude.cos()
    height = (radius * (1 - ECCENTRICITY_SQUARED) + altitude) * latitude.sin()
    return torch.stack([across * longitude.cos(), across * longitude.sin(), height], -1)


def locate_ecef(points: Float[Tensor, "n 3"]) -> Float[Tensor, "n 3"]:
    """Return latitudes, longitudes and altitudes of earth-centered points; inverse of `compute_ecef`."""
    x, y, z = points.double().unbind(-1)
    across = torch.hypot(x, y)
    latitude = torch.atan2(z, across * (1 - ECCENTRICITY_SQUARED))
    for _ in range(6):  # each round is about 1/e² = 150 times nearer
        radius = SEMI_MAJOR_M / (1 - ECCENTRICITY_SQUARED * latitude.sin().square()).sqrt()
        latitude = torch.atan2(z + ECCENTRICITY_SQUARED * radius * latitude.sin(), across)
    sine, cosine = latitude.sin(), latitude.cos()
    radius = SEMI_MAJOR_M / (1 - ECCENTRICITY_SQUARED * sine.square()).sqrt()
    # Both components of the way from the ellipsoid: accurate at the poles and at the equator.
    altitude = (across - radius * cosine) * cosine + (z - radius * (1 - ECCENTRICITY_SQUARED) * sine) * sine
    return torch.stack([latitude.rad2deg(), torch.atan2(y, x).rad2deg(), altitude], -1)


def make_ecef_from_enu(origin: Place) -> Float[Tensor, "4 4"]:
    """Return the matrix from meters east, north and up of a place to earth-centered meters."""
    latitude, longitude = math.radians(origin.latitude_deg), math.radians(origin.longitude_deg)
    (sp, cp), (sl, cl) = ((math.sin(a), math.cos(a)) for a in (latitude, longitude))
    matrix = torch.eye(4, dtype=torch.float64)
    matrix[:3, :3] = torch.tensor(
        [[-sl, -sp * cl, cp * cl], [cl, -sp * sl, cp * sl], [0.0, cp, sp]], dtype=torch.float64
    )
    matrix[:3, 3] = compute_ecef(origin.to_tensor()[None])[0]
    return matrix


def compute_enu(places: Float[Tensor, "n 3"], origin: Place) -> Float[Tensor, "n 3"]:
    """Return meters east, north and up of an origin."""
    frame = make_ecef_from_enu(origin)
    return (compute_ecef(places) - frame[:3, 3]) @ frame[:3, :3]


def locate_enu(points: Float[Tensor, "n 3"], origin: Place) -> Float[Tensor, "n 3"]:
    """Return latitudes, longitudes and altitudes of points in the frame of an origin; inverse of `compute_enu`."""
    frame = make_ecef_from_enu(origin)
    return locate_ecef(points.double() @ frame[:3, :3].mT + frame[:3, 3])


def find_utm_epsg(latitude_deg: float, longitude_deg: float) -> int:
    """Return the EPSG code of the UTM zone of a place, with the exceptions of Norway and Svalbard."""
    zone = int((longitude_deg + 180) // 6) % 60 + 1
    if 56 <= latitude_deg < 64 and 3 <= longitude_deg < 12:
        zone = 32
    elif 72 <= latitude_deg <= 84 and 0 <= longitude_deg < 42:
        zone = 31 + 2 * int((longitude_deg + 3) // 12)
    return (32600 if latitude_deg >= 0 else 32700) + zone


def describe_utm(epsg: int) -> str:
    """Return the name of a UTM zone, e.g. "WGS84 UTM 15N"."""
    return f"WGS84 UTM {epsg % 100}{'N' if epsg < 32700 else 'S'}"


def compute_utm(places: Float[Tensor, "n 3"], epsg: int) -> Float[Tensor, "n 3"]:
    """Return easting, northing and altitude in the UTM zone of an EPSG code, in meters.

    Krüger's series for the transverse Mercator projection in the third flattening n, to n⁴: exact to a millimeter
    within a zone and far beyond.
    """
    latitude, longitude = places[:, :2].double().deg2rad().unbind(-1)
    east_of_middle = longitude - math.radians(6 * (epsg % 100) - 183)
    n = FLATTENING / (2 - FLATTENING)
    eccentricity = math.sqrt(ECCENTRICITY_SQUARED)
    # Latitude on the sphere with the same angles (conformal latitude), then the transverse Mercator projection of it.
    tangent = (latitude.sin().atanh() - eccentricity * (eccentricity * latitude.sin()).atanh()).sinh()
    north = torch.atan2(tangent, east_of_middle.cos())
    east = (east_of_middle.sin() / torch.hypot(tangent, east_of_middle.cos())).asinh()
    terms = (
        n / 2 - 2 / 3 * n**2 + 5 / 16 * n**3 + 41 / 180 * n**4,
        13 / 48 * n**2 - 3 / 5 * n**3 + 557 / 1440 * n**4,
        61 / 240 * n**3 - 103 / 140 * n**4,
        49561 / 161280 * n**4,
    )
    northing, easting = north.clone(), east.clone()
    for order, term in zip((2, 4, 6, 8), terms, strict=True):
        northing += term * (order * north).sin() * (order * east).cosh()
        easting += term * (order * north).cos() * (order * east).sinh()
    radius = UTM_SCALE * SEMI_MAJOR_M / (1 + n) * (1 + n**2 / 4 + n**4 / 64)
    shift = UTM_SOUTH_M if epsg >= 32700 else 0.0
    return torch.stack([UTM_EAST_M + radius * easting, shift + radius * northing, places[:, 2].double()], -1)
