"""Refuse implausible calibrations, each with its likely cause.

A camera model accepts any parameters that make mathematical sense. These checks know what lenses are like.
"""

import torch

from g_ray.cameras.camera import Camera
from g_ray.cameras.distortion import polar_angle
from g_ray.cameras.equirectangular import Equirectangular
from g_ray.cameras.ray_map_camera import RayMapCamera

FOCAL_RANGE = (0.05, 60.0)
"""Focal length over the longer side: a circular 250° fisheye has 0.2, an 800 mm lens on film 22."""
MAX_ASPECT = 2.0
MAX_TANGENTIAL = 0.05
"""A lens whose elements are centered to within a degree stays below 0.01."""
MIN_VALID = 0.9
"""Smallest share of pixels with a ray of a perspective lens; a fisheye may have black corners."""
DISTORTED = ("opencv", "opencv_fisheye", "thin_prism_fisheye", "fisheye624")
STRENGTH = (0.5, 2.0)
"""Angle of the rays at the edges over their angle without distortion; real lenses stay within 0.7 and 1.5."""
_GRID = 33


def check_plausible(camera: Camera) -> None:
    """Check a camera; ValueError in one line, without the file's name, if no lens is like that."""
    if isinstance(camera, RayMapCamera):
        _check_ray_map(camera)
        return
    values = dict(zip(camera.PARAMETERS, camera.params.tolist(), strict=True))
    _check_focal(camera, values)
    _check_principal_point(camera, values)
    _check_order(values)
    _check_coverage(camera)
    _check_strength(camera, values)


def _check_focal(camera: Camera, values: dict[str, float]) -> None:
    fx, fy, longer = values["fx"], values["fy"], max(camera.width, camera.height)
    if isinstance(camera, Equirectangular):
        return
    for name in ("fx", "fy"):
        share = values[name] / longer
        if share < FOCAL_RANGE[0]:
            raise ValueError(
                f"{name} = {values[name]:g} px is too short for an image of {longer} px: "
                "is it in millimeters or normalized? Focal lengths are in pixels"
            )
        if share > FOCAL_RANGE[1]:
            raise ValueError(
                f"{name} = {values[name]:g} px is too long for an image of {longer} px: "
                "was it calibrated at another size, or are values in another order?"
            )
    if max(fx, fy) > MAX_ASPECT * min(fx, fy):
        raise ValueError(f"fx = {fx:g} and fy = {fy:g} differ by more than a factor of 2: check their order")


def _check_principal_point(camera: Camera, values: dict[str, float]) -> None:
    for name, size in (("cx", camera.width), ("cy", camera.height)):
        if not 0 <= values[name] <= size:
            raise ValueError(
                f"{name} = {values[name]:g} lies outside of the {camera.width}×{camera.height} image: "
                "was it calibrated at another size, or are cx and cy exchanged?"
            )


def _check_order(values: dict[str, float]) -> None:
    for name in ("p1", "p2"):
        if abs(values.get(name, 0.0)) > MAX_TANGENTIAL:
            raise ValueError(
                f"tangential distortion {name} = {values[name]:g} is larger than any lens has: "
                "check the order of the coefficients (OpenCV writes k1 k2 p1 p2 k3)"
            )


def _check_coverage(camera: Camera) -> None:
    """Check that the distortion is monotonic inside the image, and that the view spans at most 360°."""
    share, ends = _compute_valid_share(camera), _has_valid_edge(camera)
    if not ends and float(camera.fov().horizontal_deg) > 359:
        raise ValueError(
            f"its rays end inside of the image after a full turn: fx = {camera.params[0].item():g} px "
            "is too short (more than 360° across); was it calibrated at another size?"
        )
    perspective = camera.NAME in ("opencv", "pinhole")
    if perspective and share < MIN_VALID:
        raise ValueError(
            f"the distortion turns back inside of the image ({1 - share:.0%} of the pixels have no ray): "
            "check the order and signs of the coefficients, or whether they are a fisheye's"
        )
    if share < 0.2:
        raise ValueError(
            f"only {share:.0%} of the pixels have a ray: check the focal length and the order of the coefficients"
        )


def _check_strength(camera: Camera, values: dict[str, float]) -> None:
    """Check that distortion bends the rays at the edges of the image, and does not decide where they go."""
    affine = {name: values[name] for name in ("fx", "fy", "cx", "cy")}
    if camera.NAME not in DISTORTED or not any(value for name, value in values.items() if name not in affine):
        return
    ideal = type(camera).make(camera.width, camera.height, dtype=camera.dtype, **affine)
    edges = _list_edges(camera)
    angles, valid = zip(*(_compute_angles(lens, edges) for lens in (camera, ideal)), strict=True)
    ratio = (angles[0] / angles[1].clamp_min(1e-6))[valid[0] & valid[1]]
    if len(ratio) and not STRENGTH[0] <= float(ratio.median()) <= STRENGTH[1]:
        raise ValueError(
            f"its distortion changes the angle of view by a factor of {float(ratio.median()):.2g}, more than any lens: "
            "check the coefficients and their order"
        )


def _compute_angles(camera: Camera, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rays, valid = camera.unproject(pixels)
    return polar_angle(rays), valid


def _list_edges(camera: Camera) -> torch.Tensor:
    """Return the middles of the four edges."""
    w, h = float(camera.width), float(camera.height)
    edges = [[0.5, h / 2], [w - 0.5, h / 2], [w / 2, 0.5], [w / 2, h - 0.5]]
    return torch.tensor(edges, dtype=camera.dtype)


def _compute_valid_share(camera: Camera) -> float:
    u = (torch.arange(_GRID, dtype=camera.dtype) + 0.5) / _GRID
    grid = torch.stack(torch.meshgrid(u * camera.width, u * camera.height, indexing="xy"), -1)
    return float(camera.unproject(grid)[1].double().mean())


def _has_valid_edge(camera: Camera) -> bool:
    """Return whether the middle of any edge has a ray; a circular image may be black at the other edges."""
    edges = _list_edges(camera)
    return bool(camera.unproject(edges[:2] if isinstance(camera, Equirectangular) else edges)[1].any())


def _check_ray_map(camera: RayMapCamera) -> None:
    """Check that x of rays grows to the right, and y downwards."""
    valid, rays = camera.table_valid, camera.table
    share = float(valid.double().mean())
    if share < 0.2:
        raise ValueError(f"only {share:.0%} of the rays are usable: zeros and NaN mean that there is none")
    for axis, dim, name in ((0, 1, "x does not grow to the right"), (1, 0, "y does not grow downwards")):
        near, far = (rays.narrow(dim, i, rays.shape[dim] - 1)[..., axis] for i in (0, 1))
        both = valid.narrow(dim, 0, valid.shape[dim] - 1) & valid.narrow(dim, 1, valid.shape[dim] - 1)
        forward = both & (rays.narrow(dim, 0, rays.shape[dim] - 1)[..., 2] > 0)
        if float((far > near)[forward].double().mean() if bool(forward.any()) else 0.0) < 0.5:
            raise ValueError(
                f"its {name}: rays are in the camera's frame with OpenCV axes "
                "(x right, y down, z forward), [height, width, 3]"
            )
