"""Coordinates: rays (or, for the hosts, the image plane) become positions of tokens."""

from g_ray.coordinates.base import Axis, Coordinate, Coordinates, RayCoordinate
from g_ray.coordinates.image_plane import Grid, NormalizedGrid, Projected, project_directions
from g_ray.coordinates.ray_angles import EQUIDISTANT, SPHERICAL, TANGENT, equidistant, spherical, tangent

__all__ = [
    "COORDINATES",
    "Axis",
    "Coordinate",
    "Coordinates",
    "RayCoordinate",
    "equidistant",
    "get_coordinate",
    "project_directions",
    "spherical",
    "tangent",
]

COORDINATES: dict[str, Coordinate] = {
    "tangent": TANGENT,
    "equidistant": EQUIDISTANT,
    "spherical": SPHERICAL,
    "grid": Grid(),
    "grid_from_one": Grid(start=1),
    "normalised_grid": NormalizedGrid(),
    "projected": Projected(),
}


def get_coordinate(name: str) -> Coordinate:
    """The coordinate of that name; the paper's is `tangent`."""
    if name not in COORDINATES:
        raise ValueError(f"unknown coordinate {name!r}: choose one of {', '.join(COORDINATES)}")
    return COORDINATES[name]
