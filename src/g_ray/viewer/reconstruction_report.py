"""Write report.html: points to turn around, a card per view with its pictures, metrics and settings, in one file."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, UInt8
from PIL import Image

from g_ray.export.frusta import Frustum, build_frustum, choose_frustum_size
from g_ray.export.points import PointCloud, subsample_indices
from g_ray.export.reconstruction import ReconstructedView, Reconstruction
from g_ray.formats.calibration import CalibratedView
from g_ray.formats.images import read_photo
from g_ray.runtime.files import write_atomically
from g_ray.viewer.colors import CAMERA_COLORS, map_to_heat
from g_ray.viewer.embed import encode_array, encode_jpeg, encode_script_json, make_data_uri, read_asset

SIDE = 480
"""Of a picture, at most."""
MIN_SIDE = 48
BUDGET = 6_000_000
"""Bytes of all pictures together."""
SAMPLES = 5_000
"""Pixels of a view that scales are estimated from."""


@dataclass(frozen=True)
class Scales:
    """Ranges of depth and confidence, the same for all views, without the outermost 2 %."""

    near: float
    far: float
    low: float
    high: float

    @staticmethod
    def from_reconstruction(reconstruction: Reconstruction) -> "Scales":
        depth, confidence = [], []
        for view in reconstruction.views:
            step = max(1, int(view.valid.sum()) // SAMPLES)
            depth.append(view.ray_depth[view.valid][::step].numpy(force=True))
            confidence.append(view.confidence[view.valid][::step].numpy(force=True))
        depths, sureness = np.concatenate(depth), np.concatenate(confidence)
        if not len(depths):
            return Scales(1.0, 2.0, 0.0, 1.0)
        near, far = np.quantile(depths, (0.02, 0.98))
        low, high = np.quantile(sureness, (0.02, 0.98))
        return Scales(*(float(x) for x in (near, far, low, high)))

    def scale_depth(self, depth: Float[np.ndarray, "h w"]) -> Float[np.ndarray, "h w"]:
        """Map near to 1 and far to 0, by the logarithm: halving the distance is an even step."""
        near, far = np.log([max(self.near, 1e-9), max(self.far, 2e-9)])
        return (far - np.log(np.maximum(depth, 1e-9))) / max(far - near, 1e-9)

    def scale_confidence(self, confidence: Float[np.ndarray, "h w"]) -> Float[np.ndarray, "h w"]:
        return (confidence - self.low) / max(self.high - self.low, 1e-9)


@dataclass(frozen=True)
class ViewPictures:
    """Data URIs of one size."""

    width: int
    height: int
    photo: str
    depth: str
    confidence: str


def make_view_pictures(
    reconstruction: Reconstruction, view: ReconstructedView, scales: Scales, budget: int
) -> ViewPictures:
    """Make three pictures of at most `budget` bytes, smaller ones if needed."""
    photo = (
        (read_photo(reconstruction.get_image_path(view.name)).movedim(0, -1).numpy() * 255)
        .round()
        .astype(np.uint8)
    )
    depth, confidence, valid = (x.numpy(force=True) for x in (view.ray_depth, view.confidence, view.valid))
    side = SIDE
    while True:
        width, height = _compute_size(photo.shape[1], photo.shape[0], side)
        rows, columns = _sample_indices(depth.shape[0], height), _sample_indices(depth.shape[1], width)
        at = np.ix_(rows, columns)
        pictures = (
            np.asarray(Image.fromarray(photo).resize((width, height), Image.Resampling.BOX)),
            map_to_heat(_mask_invalid(scales.scale_depth(depth[at]), valid[at])),
            map_to_heat(_mask_invalid(scales.scale_confidence(confidence[at]), valid[at])),
        )
        encoded = [_encode(picture) for picture in pictures]
        if sum(map(len, encoded)) <= budget or side <= MIN_SIDE:
            return ViewPictures(width, height, *encoded)
        side = max(MIN_SIDE, int(side * 0.75))


def _encode(picture: UInt8[np.ndarray, "h w 3"]) -> str:
    return make_data_uri(encode_jpeg(picture, quality=82), "jpeg")


def _compute_size(width: int, height: int, side: int) -> tuple[int, int]:
    scale = min(1.0, side / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))


def _sample_indices(count: int, wanted: int) -> np.ndarray:
    """Return pixels in the middle of equal parts, so that depth is never averaged across edges."""
    return ((np.arange(wanted) + 0.5) * count / wanted).astype(np.int64)


def _mask_invalid(
    values: Float[np.ndarray, "h w"], valid: Bool[np.ndarray, "h w"]
) -> Float[np.ndarray, "h w"]:
    return np.where(valid, values, np.nan)


# report.html: a reconstruction as one page that needs no network: points to turn around, views, tables.


REPORT = "report.html"
MAX_POINTS = 200_000
MAX_PICTURED = 500
"""Views with pictures; of more, evenly spread ones."""
REACH = 1.0
"""Points further outside of the middle 98 % than this many times their extent are not drawn."""


def write_report(reconstruction: Reconstruction, cloud: PointCloud) -> Path:
    """Write the report to the folder of a reconstruction, which has its photographs already."""
    cameras = reconstruction.cameras()
    drawn = _select_points(cloud)
    frusta = [
        build_frustum(named.camera, pose, choose_frustum_size(reconstruction, cloud))
        for named, pose in zip(cameras, reconstruction.poses(), strict=True)
    ]
    scales = Scales.from_reconstruction(reconstruction)
    page = Template(read_asset("reconstruction_report.html")).substitute(
        style=read_asset("page.css"),
        script=read_asset("reconstruction_report.js"),
        title=escape(reconstruction.saved_folder.resolve().name),
        facts=_format_facts(reconstruction, cameras, drawn, cloud),
        cards="\n".join(_iterate_cards(reconstruction, cameras, scales)),
        near=_format_value(scales.near),
        far=_format_value(scales.far),
        low=_format_value(scales.low),
        high=_format_value(scales.high),
        unit=" m" if reconstruction.unit == "metre" else "",
        calibration=_format_calibration(cameras),
        metrics=_format_section(
            "Metrics", _flatten_pairs(reconstruction.metrics), "Against what is known of this scene."
        ),
        notes=_format_notes(reconstruction.notes),
        settings=_format_section("Settings", _flatten_pairs(reconstruction.settings), ""),
        data=encode_script_json(_build_scene(reconstruction, cameras, frusta, drawn)),
    )
    path = reconstruction.saved_folder / REPORT
    write_atomically(path, page)
    return path


# The scene


def _select_points(cloud: PointCloud) -> PointCloud:
    """Select at most MAX_POINTS points, without far outliers, ordered by view."""
    low, high = np.quantile(cloud.positions, (0.01, 0.99), axis=0)
    reach = REACH * (high - low).max()
    near = ((cloud.positions >= low - reach) & (cloud.positions <= high + reach)).all(1)
    cloud = cloud[np.nonzero(near)[0]]
    cloud = cloud[subsample_indices(len(cloud), MAX_POINTS)]
    return cloud[np.argsort(cloud.view, kind="stable")]


def _build_scene(
    reconstruction: Reconstruction,
    cameras: Sequence[CalibratedView],
    frusta: Sequence[Frustum],
    cloud: PointCloud,
) -> dict[str, Any]:
    """Encode the scene for the page: positions as 16-bit fractions of a box, confidence as its rank in 255 steps."""
    low, high = cloud.positions.min(0), cloud.positions.max(0)
    extent = np.maximum(high - low, 1e-9)
    rank = np.searchsorted(np.sort(cloud.confidence), cloud.confidence, side="right") / len(cloud)
    counts = np.bincount(cloud.view, minlength=len(cameras))
    distance = _compute_median_distance(reconstruction, cloud)
    return {
        "low": low.tolist(),
        "extent": extent.tolist(),
        "positions": encode_array(((cloud.positions - low) / extent * 65535).round().astype(np.uint16)),
        "colours": encode_array(cloud.colors),
        "confidence": encode_array((255 * rank).round().astype(np.uint8)),
        "counts": counts.tolist(),
        "depth": distance,
        "middle": np.median(cloud.positions, axis=0).tolist(),
        "views": [
            {
                "name": named.name,
                "colour": CAMERA_COLORS[number % len(CAMERA_COLORS)],
                "pose": pose.world_from_cam[:3].double().numpy(force=True).round(6).tolist(),
                "fov": math.radians(min(float(named.camera.fov().vertical_deg), 100.0)),
                "lines": shape.segments().numpy(force=True).round(5).flatten().tolist(),
            }
            for number, (named, pose, shape) in enumerate(
                zip(cameras, reconstruction.poses(), frusta, strict=True)
            )
        ],
    }


def _compute_median_distance(reconstruction: Reconstruction, cloud: PointCloud) -> float:
    centers = np.stack([pose.translation.double().numpy(force=True) for pose in reconstruction.poses()])
    return float(np.median(np.linalg.norm(cloud.positions - centers[cloud.view], axis=1)))


# The page's parts


def _format_facts(
    reconstruction: Reconstruction, cameras: Sequence[CalibratedView], drawn: PointCloud, cloud: PointCloud
) -> str:
    models = Counter(named.camera.NAME for named in cameras)
    widest = max(float(named.camera.fov().diagonal_deg) for named in cameras)
    lenses = ", ".join(f"{count} {name}" for name, count in models.most_common())
    shown = (
        f"points, {_format_count(len(drawn))} of them on this page" if len(drawn) < len(cloud) else "points"
    )
    metres = "metres" if reconstruction.unit == "metre" else "no unit"
    scale = "known scale" if reconstruction.unit == "metre" else "scale unknown: distances are relative"
    facts = [
        (str(len(cameras)), f"views: {lenses}"),
        (_format_count(len(cloud)), shown),
        (f"{widest:.0f}°", "widest field of view, corner to corner"),
        (metres, scale),
    ]
    return "".join(f"<li><b>{escape(value)}</b>{escape(text)}</li>" for value, text in facts)


def _iterate_cards(
    reconstruction: Reconstruction, cameras: Sequence[CalibratedView], scales: Scales
) -> Iterator[str]:
    pictured = set(subsample_indices(len(cameras), MAX_PICTURED).tolist())
    budget = BUDGET // max(1, len(pictured))
    for number, named in enumerate(cameras):
        pictures = None
        if number in pictured:
            pictures = make_view_pictures(reconstruction, reconstruction.views[number], scales, budget)
        yield _format_card(number, named, pictures)


def _format_card(number: int, named: CalibratedView, pictures: ViewPictures | None) -> str:
    name, camera = escape(named.name), named.camera
    shown = ""
    if pictures is not None:
        shown = "".join(
            f'<img class="{kind}" src="{uri}" width="{pictures.width}" height="{pictures.height}" '
            f'loading="lazy" alt="{what} of {name}">'
            for kind, uri, what in (
                ("photo", pictures.photo, "Photograph"),
                ("depth", pictures.depth, "Depth"),
                ("sure", pictures.confidence, "Confidence"),
            )
        )
    color = CAMERA_COLORS[number % len(CAMERA_COLORS)]
    return (
        f'<div class="view" style="--own: {color}">{shown}<h3>{name}</h3>'
        f"<p>{camera.width}×{camera.height} · {escape(camera.NAME)} · {_format_fov(named)}</p>"
        f'<p><button type="button" data-look="{number}">Look from here</button> '
        f'<label><input type="checkbox" data-points="{number}" checked> points</label></p></div>'
    )


def _format_calibration(cameras: Sequence[CalibratedView]) -> str:
    rows = [
        (
            named.name,
            f"{named.camera.width}×{named.camera.height}",
            named.camera.NAME,
            _format_fov(named),
            f"{float(named.camera.fov().diagonal_deg):.1f}°",
            named.source or "unknown",
        )
        for named in cameras
    ]
    return _format_table(("view", "size", "model", "FoV h × v", "diagonal", "calibration from"), rows)


def _format_fov(named: CalibratedView) -> str:
    fov = named.camera.fov()
    return f"{float(fov.horizontal_deg):.1f}° × {float(fov.vertical_deg):.1f}°"


def _format_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _format_section(title: str, rows: Sequence[Sequence[str]], text: str) -> str:
    if not rows:
        return ""
    lead = f'<p class="text">{escape(text)}</p>' if text else ""
    table = _format_table(("name", "value"), rows)
    return (
        f"<section><h2>{title}</h2>{lead}"
        f'<div class="card scroll" tabindex="0" role="region" aria-label="{title}">{table}</div></section>'
    )


def _format_notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    return (
        "<section><h2>Notes</h2><ul>"
        + "".join(f"<li>{escape(note)}</li>" for note in notes)
        + "</ul></section>"
    )


def _flatten_pairs(values: dict[str, Any], above: str = "") -> list[tuple[str, str]]:
    """Flatten nested dictionaries to rows "outer · inner"."""
    rows = []
    for key, value in values.items():
        name = f"{above} · {key}" if above else str(key)
        if isinstance(value, dict):
            rows += _flatten_pairs(value, name)
        else:
            rows.append((name, _format_value(value)))
    return rows


def _format_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}".replace("-", "−")
    return "–" if value is None else str(value)


def _format_count(count: int) -> str:
    return f"{count:,}".replace(",", "\u202f")
