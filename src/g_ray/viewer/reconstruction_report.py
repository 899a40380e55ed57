"""Write report.html: points to turn around, a card per view with its pictures, metrics and settings, in one file."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from g_ray.export.frusta import Frustum, build_frustum, choose_frustum_size, measure_distance
from g_ray.export.points import PointCloud, subsample_indices
from g_ray.export.result import Reconstruction
from g_ray.media.view import View
from g_ray.runtime.files import write_atomically
from g_ray.viewer.colors import CAMERA_COLORS
from g_ray.viewer.embed import encode_array, encode_script_json, read_asset
from g_ray.viewer.ruler import Ruler
from g_ray.viewer.view_pictures import Scales, ViewPictures, make_view_pictures
from g_ray.viewer.viewpoint import compute_up, make_upright_basis

REPORT = "report.html"
BUDGET = 6_000_000
"""Bytes of all pictures together."""
MAX_POINTS = 200_000
MAX_PICTURED = 500
"""Largest number of views with pictures; evenly spread if there are more."""
REACH = 1.0
"""Points further outside of the middle 98 % than this many times their extent are not drawn."""

LENS_FIELDS = {"params", "width", "height", "circle"}
"""Fields that define a camera completely; ray maps have more."""


def write_report(reconstruction: Reconstruction, cloud: PointCloud) -> Path:
    """Write the report to the folder of a reconstruction, which has its photographs already."""
    cameras = reconstruction.cameras()
    drawn, measured = _select_points(cloud), cloud.select_measured()
    size = choose_frustum_size(reconstruction, measured)
    frusta = [
        build_frustum(view.camera, pose, size)
        for view, pose in zip(cameras, reconstruction.poses(), strict=True)
    ]
    scales = Scales.from_reconstruction(reconstruction)
    page = Template(read_asset("reconstruction_report.html")).substitute(
        style=read_asset("page.css"),
        script=read_asset("reconstruction_report.js"),
        title=escape(reconstruction.saved_folder.resolve().name),
        verdict=_format_verdict(reconstruction.quality),
        facts=_format_facts(reconstruction, cameras, cloud),
        cards="\n".join(_iterate_cards(reconstruction, cameras, scales)),
        error_button=_format_error_button(reconstruction),
        filled=_format_filled_legend(reconstruction),
        filled_points=_format_filled_switch(cloud),
        near=_format_value(scales.near),
        far=_format_value(scales.far),
        low=_format_value(scales.low),
        high=_format_value(scales.high),
        unit=" m" if reconstruction.unit == "metre" else "",
        calibration=_format_calibration(cameras),
        quality=_format_section("Quality", _flatten_pairs(_select_figures(reconstruction.quality)), ""),
        metrics=_format_section(
            "Metrics", _flatten_pairs(reconstruction.metrics), "Against what is known of this scene."
        ),
        notes=_format_notes(reconstruction.notes),
        settings=_fold("Settings", _flatten_pairs(reconstruction.settings)),
        data=encode_script_json(_build_scene(reconstruction, cameras, frusta, drawn, measured)),
    )
    path = reconstruction.saved_folder / REPORT
    write_atomically(path, page)
    return path


# The scene


def _select_points(cloud: PointCloud) -> PointCloud:
    """Select at most MAX_POINTS points, without far outliers, ordered by view."""
    if not len(cloud):
        return cloud
    measured = cloud.select_measured()
    low, high = np.quantile((measured if len(measured) else cloud).positions, (0.01, 0.99), axis=0)
    reach = REACH * (high - low).max()
    near = ((cloud.positions >= low - reach) & (cloud.positions <= high + reach)).all(1)
    cloud = cloud[np.nonzero(near)[0]]
    cloud = cloud[subsample_indices(len(cloud), MAX_POINTS)]
    return cloud[np.argsort(cloud.view, kind="stable")]


def _build_scene(
    reconstruction: Reconstruction,
    cameras: Sequence[View],
    frusta: Sequence[Frustum],
    cloud: PointCloud,
    measured: PointCloud,
) -> dict[str, Any]:
    """Encode the scene for the page: positions as 16-bit fractions of a box, confidence as its rank in 255 steps."""
    centers = np.stack([pose.translation.double().numpy(force=True) for pose in reconstruction.poses()])
    box = cloud.positions if len(cloud) else centers
    low, high = box.min(0), box.max(0)
    extent = np.maximum(high - low, 1e-9)
    rank = np.searchsorted(np.sort(cloud.confidence), cloud.confidence, side="right") / max(1, len(cloud))
    counts = np.bincount(cloud.view, minlength=len(cameras))
    distance = measure_distance(reconstruction, measured)
    ruler = Ruler.make(reconstruction, cloud)
    return {
        "errors": encode_array(ruler.codes),
        "metric": ruler.metric,
        "scale": ruler.scale_half,
        "low": low.tolist(),
        "extent": extent.tolist(),
        "positions": encode_array(((cloud.positions - low) / extent * 65535).round().astype(np.uint16)),
        "colors": encode_array(cloud.colors),
        "confidence": encode_array((255 * rank).round().astype(np.uint8)),
        "filled": None if cloud.filled is None else encode_array(cloud.filled.astype(np.uint8)),
        "counts": counts.tolist(),
        "depth": distance,
        "basis": make_upright_basis(compute_up(reconstruction.poses())).T.round(6).tolist(),
        "views": [
            {
                "name": view.name,
                "color": CAMERA_COLORS[number % len(CAMERA_COLORS)],
                "pose": pose.world_from_cam[:3].double().numpy(force=True).round(6).tolist(),
                "fov": math.radians(min(float(view.camera.fov().vertical_deg), 100.0)),
                "pixel": float(ruler.pixel_rad[number]),
                "lines": shape.segments().numpy(force=True).round(5).flatten().tolist(),
            }
            for number, (view, pose, shape) in enumerate(
                zip(cameras, reconstruction.poses(), frusta, strict=True)
            )
        ],
    }


# The page's parts

GRADES = ("good", "partial", "poor", "unverified")
"""Grades of `g_ray.reconstruction.grade`, each with a color."""


def _format_verdict(quality: dict[str, Any]) -> str:
    """Format the grade and the sentences of the verdict; nothing for a result without one."""
    sentences = [str(sentence) for sentence in quality.get("verdict", ())]
    if not sentences:
        return ""
    grade = str(quality.get("grade", "unverified"))
    kind = grade if grade in GRADES else "unverified"
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return (
        f'<section class="verdict {kind}" aria-label="Verdict"><p><strong>{escape(grade)}</strong> '
        f"{escape(str(quality.get('limit', '')))}</p><ul>{items}</ul></section>"
    )


HIDDEN_FIGURES = ("grade", "limit", "verdict", "points", "fused_points")
"""Said above the table already; the page counts the points of points.ply, not those of steps on the way."""


def _select_figures(quality: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in quality.items() if name not in HIDDEN_FIGURES}


def _format_filled_legend(reconstruction: Reconstruction) -> str:
    """Format the legend of hatched pixels, if any view has some."""
    if not any(
        view.filled is not None and bool((view.filled & view.valid).any()) for view in reconstruction.views
    ):
        return ""
    return '<span class="filled"><i></i> hatched: filled in, not measured</span>'


def _format_filled_switch(cloud: PointCloud) -> str:
    """Format the switch of points that were filled in, if there are some."""
    if cloud.filled is None or not cloud.filled.any():
        return ""
    return (
        '<label><input type="checkbox" id="filled" checked> points filled in, not measured (grayish)</label>'
    )


def _format_error_button(reconstruction: Reconstruction) -> str:
    """Format the button that shows expected errors, if any view has them."""
    if all(view.expected_error is None for view in reconstruction.views):
        return ""
    return '<button type="button" data-show="error" aria-pressed="false">Expected error</button>'


def _format_facts(reconstruction: Reconstruction, cameras: Sequence[View], cloud: PointCloud) -> str:
    models = Counter(view.camera.NAME for view in cameras)
    widest = max(float(view.camera.fov().diagonal_deg) for view in cameras)
    lenses = ", ".join(f"{count} {name}" for name, count in models.most_common())
    meters = "meters" if reconstruction.unit == "metre" else "no unit"
    scale = "known scale" if reconstruction.unit == "metre" else "scale unknown: distances are relative"
    facts = [
        (str(len(cameras)), f"views: {lenses}"),
        (_format_count(len(cloud)), _describe_points(cloud)),
        (f"{widest:.0f}°", "widest field of view, corner to corner"),
        (meters, scale),
    ]
    return "".join(f"<li><b>{escape(value)}</b>{escape(text)}</li>" for value, text in facts)


def _describe_points(cloud: PointCloud) -> str:
    filled = len(cloud) - len(cloud.select_measured())
    return f"points, {_format_count(filled)} of them filled in" if filled else "points"


def _iterate_cards(reconstruction: Reconstruction, cameras: Sequence[View], scales: Scales) -> Iterator[str]:
    pictured = set(subsample_indices(len(cameras), MAX_PICTURED).tolist())
    budget = BUDGET // max(1, len(pictured))
    for number, view in enumerate(cameras):
        pictures = None
        if number in pictured:
            pictures = make_view_pictures(reconstruction, reconstruction.views[number], scales, budget)
        yield _format_card(number, view, pictures)


def _format_card(number: int, view: View, pictures: ViewPictures | None) -> str:
    name, camera = escape(view.name), view.camera
    images = ""
    if pictures is not None:
        images = "".join(
            f'<img class="{kind}" src="{uri}" width="{pictures.width}" height="{pictures.height}" '
            f'loading="lazy" alt="{what} of {name}">'
            for kind, uri, what in (
                ("photo", pictures.photo, "Photograph"),
                ("depth", pictures.depth, "Depth"),
                ("sure", pictures.confidence, "Confidence"),
                ("error", pictures.error, "Expected error"),
            )
            if uri is not None
        )
    color = CAMERA_COLORS[number % len(CAMERA_COLORS)]
    return (
        f'<div class="view" style="--own: {color}">{images}<h3>{name}</h3>'
        f"<p>{camera.width}×{camera.height} · {escape(camera.NAME)} · {_format_fov(view)}</p>"
        f'<p><button type="button" data-look="{number}">Look from here</button> '
        f'<label><input type="checkbox" data-points="{number}" checked> points</label></p></div>'
    )


def _format_calibration(cameras: Sequence[View]) -> str:
    """Format one row per lens: views of the same camera and source share it."""
    lenses: dict[tuple[object, ...], list[View]] = {}
    for view in cameras:
        lenses.setdefault(_identify_lens(view), []).append(view)
    rows = [
        (
            _format_names([view.name for view in group]),
            f"{group[0].camera.width}×{group[0].camera.height}",
            group[0].camera.NAME,
            _format_fov(group[0]),
            f"{float(group[0].camera.fov().diagonal_deg):.1f}°",
            group[0].source or "unknown",
        )
        for group in lenses.values()
    ]
    return _format_table(("views", "size", "model", "FoV h × v", "diagonal", "calibration from"), rows)


def _identify_lens(view: View) -> tuple[object, ...]:
    """Return what two views of the same lens have in common; a camera with tables of its own is like no other."""
    camera = view.camera
    tensors = (camera.params, camera.circle)
    values = tuple(None if x is None else tuple(x.flatten().tolist()) for x in tensors)
    own = view.name if {field.name for field in fields(camera)} - LENS_FIELDS else ""
    return camera.NAME, camera.width, camera.height, values, view.source, own


def _format_names(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 2 else f"{names[0]}, …, {names[-1]} ({len(names)})"


def _format_fov(view: View) -> str:
    fov = view.camera.fov()
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


def _fold(title: str, rows: Sequence[Sequence[str]]) -> str:
    """Format a table that opens on a click."""
    if not rows:
        return ""
    table = _format_table(("name", "value"), rows)
    return f'<details><summary><h2>{title}</h2></summary><div class="card scroll">{table}</div></details>'


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
