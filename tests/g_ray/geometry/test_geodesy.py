"""Places on the earth, against pyproj where it is installed and against published values."""

import pytest
import torch

from g_ray.geometry.geodesy import (
    Place,
    compute_ecef,
    compute_enu,
    compute_utm,
    describe_utm,
    find_utm_epsg,
    locate_ecef,
    locate_enu,
)


def draw_places(count=100):
    share = torch.rand(count, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return share * torch.tensor([168.0, 360.0, 9000.0]) - torch.tensor([84.0, 180.0, 500.0])


def test_the_equator_the_pole_and_back():
    """Semi-axes of WGS 84: 6,378,137 m and 6,356,752.3142 m."""
    ends = torch.tensor([[0.0, 0.0, 0.0], [0.0, 90.0, 10.0], [90.0, 0.0, 0.0]], dtype=torch.float64)
    expected = torch.tensor([[6378137.0, 0, 0], [0, 6378147.0, 0], [0, 0, 6356752.3142]], dtype=torch.float64)
    torch.testing.assert_close(compute_ecef(ends), expected, atol=1e-4, rtol=0)
    places = draw_places()
    torch.testing.assert_close(locate_ecef(compute_ecef(places)), places, atol=1e-8, rtol=0)


def test_against_pyproj():
    pyproj = pytest.importorskip("pyproj")
    places = draw_places()
    to_ecef = pyproj.Transformer.from_crs(4979, 4978, always_xy=True)
    for latitude, longitude, altitude in places[:20].tolist():
        expected = torch.tensor(to_ecef.transform(longitude, latitude, altitude), dtype=torch.float64)
        found = compute_ecef(torch.tensor([[latitude, longitude, altitude]], dtype=torch.float64))[0]
        assert float((found - expected).norm()) < 1e-6
        epsg = find_utm_epsg(latitude, longitude)
        expected = pyproj.Transformer.from_crs(4326, epsg, always_xy=True).transform(longitude, latitude)
        found = compute_utm(torch.tensor([[latitude, longitude, altitude]], dtype=torch.float64), epsg)[0]
        assert found[:2].tolist() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("latitude", "longitude", "epsg", "name"),
    [
        (46.84, -91.99, 32615, "WGS84 UTM 15N"),
        (-33.9, 151.2, 32756, "WGS84 UTM 56S"),
        (60.4, 5.3, 32632, "WGS84 UTM 32N"),  # Bergen: zone 32 is widened
        (78.2, 15.6, 32633, "WGS84 UTM 33N"),  # Svalbard has four zones
        (10.0, 180.0, 32601, "WGS84 UTM 1N"),
    ],
)
def test_zones(latitude, longitude, epsg, name):
    assert find_utm_epsg(latitude, longitude) == epsg and describe_utm(epsg) == name


def test_the_local_frame_has_meters_east_north_and_up():
    origin = Place(46.84, -91.99, 200.0)
    points = torch.tensor([[100.0, 0, 0], [0, 100.0, 0], [0, 0, 100.0]], dtype=torch.float64)
    places = locate_enu(points, origin)
    assert float(places[0, 1]) > origin.longitude_deg and float(places[1, 0]) > origin.latitude_deg
    assert float(places[2, 2]) == pytest.approx(300.0)
    torch.testing.assert_close(compute_enu(places, origin), points, atol=1e-6, rtol=0)
    # A hundred meters on a meridian are 0.0009° of latitude: 111.2 km a degree at 47°.
    assert float(places[1, 0]) - origin.latitude_deg == pytest.approx(100 / 111_170, rel=1e-3)
