"""report.html: self-contained, and in a browser it turns."""

import json
import re
import subprocess
import sys
from base64 import b64decode
from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from html_page import Page
from PIL import Image

from g_ray.export.export_options import ExportOptions
from g_ray.export.points import collect_points
from g_ray.export.result import read_reconstruction
from g_ray.export.write_files import write_reconstruction
from g_ray.viewer.colors import NOTHING, map_to_heat
from g_ray.viewer.reconstruction_report import _select_points, write_report
from g_ray.viewer.ruler import Ruler
from g_ray.viewer.view_pictures import Scales, make_view_pictures


@pytest.fixture(scope="module")
def report(tmp_path_factory, room_results):
    """A page with one awkward name."""
    folder = tmp_path_factory.mktemp("page") / "a <b> & 'c'"
    views, images = room_results.mixed()
    views = (replace(views[0], name="</script><b>.png"), *views[1:])
    made = room_results.result(folder, views)
    made = replace(made, notes=("a <note>",))
    return write_reconstruction(made, images, ExportOptions(), page=write_report)


@pytest.fixture(scope="module")
def text(report):
    return (report.folder / "report.html").read_text(encoding="utf-8")


def test_the_page_needs_nothing_else(text):
    page = Page(text)
    assert page.open == []
    assert "Expected error</button>" not in text  # these views have none
    assert len(page.images) == 12 and all(link.startswith("data:image/jpeg") for link in page.links)
    assert not re.search(r"https?://|@import|url\(|\bfetch\(|XMLHttpRequest|importScripts", text)
    assert "${" not in text and len(text) < 15e6


def test_the_page_is_accessible(text):
    page = Page(text)
    assert 'lang="en"' in text and "prefers-color-scheme: dark" in text and 'name="viewport"' in text
    assert all(image.get("alt") for image in page.images)
    assert 'tabindex="0" role="application" aria-label=' in text and 'aria-live="polite"' in text


def test_it_says_what_is_known(text):
    said = " ".join(Page(text).words)
    for words in (
        "a <b> & 'c'", "</script><b>.png", "opencv_fisheye", "pinhole", "rendered", "points_rel", "0.031",
        "per view · a", "weights", "a <note>", "one camera model per file", "meters",
    ):  # fmt: skip
        assert words in said, words


def scene(text):
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1]
    )


def test_points_survive_16_bits(report, text):
    data = scene(text)
    cloud = collect_points(report, ExportOptions())
    assert sum(data["counts"]) == len(cloud)  # nothing here is far outside
    stored = np.frombuffer(b64decode(data["positions"]), "<u2").reshape(-1, 3)
    positions = np.array(data["low"]) + stored / 65535 * np.array(data["extent"])
    assert np.abs(positions - cloud.positions).max() < max(data["extent"]) / 65535
    assert np.array_equal(np.frombuffer(b64decode(data["colors"]), np.uint8).reshape(-1, 3), cloud.colors)
    sure = np.frombuffer(b64decode(data["confidence"]), np.uint8)
    assert sure[cloud.confidence.argmax()] == 255 and sure[cloud.confidence.argmin()] <= 1
    curved, flat = (len(data["views"][i]["lines"]) for i in (1, 0))
    assert curved > flat  # the fisheye's frustum has ribs


def test_many_points_and_pictures_stay_small(tmp_path, room_results, monkeypatch):
    from g_ray.viewer import reconstruction_report

    monkeypatch.setattr(reconstruction_report, "MAX_POINTS", 1000)
    monkeypatch.setattr(reconstruction_report, "BUDGET", 12_000)
    views, images = room_results.mixed()
    views = tuple(replace(view, expected_error=0.01 * view.valid.float()) for view in views)
    made = write_reconstruction(
        room_results.result(tmp_path, views), images, ExportOptions(), page=write_report
    )
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert sum(scene(text)["counts"]) == 1000 and "1\u202f000" not in text
    links = Page(text).links
    assert "Expected error</button>" in text
    assert len(links) == 16 and sum(map(len, links)) < 26_000
    scales = Scales.from_reconstruction(made)
    assert make_view_pictures(made, made.views[0], scales, 10**6).width == 70
    assert make_view_pictures(made, made.views[0], scales, 1000).width == 48


def test_near_is_bright_and_unknown_is_gray():
    colors = map_to_heat(np.array([0.0, 1.0, np.nan]))
    assert colors[2].tolist() == list(NOTHING) and int(colors[1].sum()) > int(colors[0].sum())
    scales = Scales(1.0, 4.0, 0.0, 1.0)
    assert scales.scale_depth(np.array([[1.0, 2.0, 4.0]])) == pytest.approx(np.array([[1.0, 0.5, 0.0]]))


def test_the_verdict_comes_first(stereo_folder):
    """Escaped, before the facts and the scene; a result without one has no empty box."""
    text = (stereo_folder / "report.html").read_text(encoding="utf-8")
    body = text[text.index("<body>") :]
    assert body.index('class="verdict partial"') < body.index('class="facts"') < body.index("<canvas")
    said = " ".join(Page(text).words)
    assert "3 of 4 photographs are placed; left out: <b>.jpg." in said and "left out: <b>" not in body
    assert "placed" in [word.strip() for word in Page(text).words]  # the figures are a table further down


def test_without_a_verdict_there_is_no_empty_box(text):
    assert 'class="verdict' not in text


def test_pictures_tell_missing_and_filled_depth_apart(stereo_folder, text):
    made = read_reconstruction(stereo_folder)
    scales = Scales.from_reconstruction(made)
    filled, measured = (
        make_view_pictures(made, made.views[number], scales, 10**7).depth for number in (0, 1)
    )
    one, other = _decode(filled), _decode(measured)
    assert one.shape == (144, 192, 3)
    for picture in (one, other):  # the hole: gray
        assert np.abs(picture[4:60, 4:40].astype(int) - NOTHING).max() < 12
    gray = [np.abs(picture[:, 134:].astype(int) - NOTHING).max(-1) < 40 for picture in (one, other)]
    assert 0.3 < gray[0].mean() < 0.7 and gray[1].mean() < 0.2, "stripes over what was filled in"
    assert "hatched" in (stereo_folder / "report.html").read_text(encoding="utf-8") and "hatched" not in text


def _decode(uri):
    with Image.open(BytesIO(b64decode(uri.split(",", 1)[1]))) as picture:
        return np.asarray(picture.convert("RGB"))


def test_views_of_one_lens_share_a_row(stereo_folder):
    text = (stereo_folder / "report.html").read_text(encoding="utf-8")
    table = text[text.index('id="calibration"') :]
    rows = re.findall(r'<th scope="row">(.*?)</th>', table[: table.index("</table>")])
    assert rows == ["00_pinhole.png, 01_pinhole.png", "02_opencv_fisheye.png"]


def stage(page):
    """The canvas without its rounded border, where the focus is shown."""
    return page.picture("#stage")[10:-10, 10:-10]


def different(one, other):
    """Share of pixels that changed visibly."""
    return (np.abs(one.astype(int) - other.astype(int)).max(-1) > 24).mean()


def test_in_a_browser_it_turns(report, browser_page):
    """From a file, without network: the canvas is not blank, dragging and keys change it, the theme follows."""
    page = browser_page
    page.open(report.folder / "report.html", width=480, height=400)
    before = stage(page)
    paper = before[2, before.shape[1] // 2]
    drawn = (np.abs(before.astype(int) - paper).max(-1) > 24).mean()
    assert 0.1 < drawn < 0.99
    page.drag("#stage", 90, 30)
    dragged = stage(page)
    assert different(before, dragged) > 0.05
    page.run("document.getElementById('stage').focus()")
    page.press("0")
    assert different(before, stage(page)) < 0.01
    page.press("]")
    assert page.run("document.getElementById('say').textContent") == "from </script><b>.png"
    page.run("document.querySelector('#show [data-show=depth]').click()")
    shown = "[...document.querySelectorAll('.view img')].filter(i => i.offsetParent).map(i => i.className)"
    assert page.run(f"[...new Set({shown})]") == ["depth"]
    page.dark(True)
    page.press("0")
    assert stage(page)[2, before.shape[1] // 2].max() < 60 < paper.min()
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    assert page.console == []
    assert page.requests == [(report.folder / "report.html").as_uri()]


def test_two_clicks_measure(tmp_path, room_results, browser_page):
    """The page's interval is that of `Ruler`; its link opens the same measurement, and the switch removes it."""
    views, images = room_results.mixed()
    views = tuple(replace(view, expected_error=0.01 * view.valid.float()) for view in views)
    made = replace(room_results.result(tmp_path, views), quality={"scale": {"low": 0.98, "high": 1.02}})
    made = write_reconstruction(made, images, ExportOptions(), page=write_report)
    page, path = browser_page, tmp_path / "report.html"
    page.open(path, width=480, height=400)
    before = stage(page)
    page.run("document.getElementById('measure').click()")
    said = "document.getElementById('say').textContent"
    assert page.run(said) == "click two points"
    page.click("#stage", 0.45, 0.6)
    assert page.run(said) == "click the second point"
    page.click("#stage", 0.6, 0.55)
    text, link = page.run(said), page.run("location.href")
    assert different(before, stage(page)) > 0.0005
    ends = [int(number) for number in link.split("#ruler=")[1].split(",")]
    cloud = _select_points(collect_points(made, ExportOptions()))
    assert (
        text == Ruler.make(made, cloud).measure(*ends).describe() and "± 0." in text and " m (95 %)" in text
    )
    page.click("#stage", 0.01, 0.01)  # nothing is there
    assert page.run(said) == text
    page.go(link + "&", 480, 400)  # another address, so that the browser loads the page
    page.go(link, 480, 400)
    page.wait(f"{said} !== ''")
    assert page.run(said) == text
    page.run("document.getElementById('measure').click()")
    assert page.run(said) == "" and "ruler" not in page.run("location.href")
    assert page.console == []


def test_lengths_say_what_is_known():
    """Two views that look at points across: depth counts along the ray, the angle of a pixel across it."""
    positions = np.array([[0.0, 0, 2], [0, 0, 4], [1, 0, 2], [0, 0, 3]])
    ruler = Ruler(
        positions,
        np.zeros(4, int),
        np.array([128, 128, 128, 0], np.uint8),
        np.zeros((1, 3)),
        np.array([0.001]),
        0.0,
        False,
    )
    along = ruler.measure(0, 1)  # both errors are 1 %, medians
    assert along.value == 2 and along.half == pytest.approx(1.96 * 0.01 / 0.67 * np.hypot(2, 4))
    assert along.describe() == "2.00 ± 0.13 (relative: the scale is unknown) (95 %)"
    assert ruler.measure(0, 2).half < along.half / 3
    assert ruler.measure(0, 3).describe() == "1 (relative: the scale is unknown), accuracy unknown"
    scaled = replace(ruler, scale_half=0.5, metric=True).measure(0, 1)
    assert scaled.half == pytest.approx(np.hypot(1.0, along.half)) and scaled.describe().endswith(" m (95 %)")
    eye, shown = np.array([0.0, 0, -1]), np.ones(4, bool)
    assert ruler.pick(eye, np.array([0.0, 0, 2]), shown) == 0
    assert ruler.pick(eye, np.array([0.0, 0, 2]), ~np.eye(4, dtype=bool)[0]) == 3
    assert ruler.pick(eye, np.array([0.0, 1, 0]), shown) is None


def test_the_report_needs_no_plotting_library():
    """`reconstruct` writes it, and matplotlib is an optional dependency."""
    code = "import sys, g_ray.viewer.reconstruction_report; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
