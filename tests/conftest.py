"""What every test shares: run-time shape checks, where shared data lies, one thread, a hypothesis profile."""

import os
import random
import signal
import zlib
from pathlib import Path

import numpy as np
import pytest
import slow_tests
import torch
from hypothesis import settings

# Before anything imports g_ray: every jaxtyping signature is then checked by beartype at each call.
# G_RAY_TYPECHECK=0 switches it off (torch.compile cannot trace through the checks).
TYPECHECK = os.environ.get("G_RAY_TYPECHECK", "1") != "0"
if TYPECHECK:
    import shape_checks

    shape_checks.install(["g_ray", "g_ray_lab"])

# What users meet: torch.compile, and our own one-line errors instead of beartype's. Run with G_RAY_TYPECHECK=0.
collect_ignore = ["unchecked"] if TYPECHECK else []

# The command line turns unexpected exceptions into one line; tests want to see them.
os.environ.setdefault("G_RAY_TRACEBACK", "1")

ROOT = Path(__file__).resolve().parents[1]

# Shells make what they start in the background deaf to Ctrl-C, and children inherit that; tests of Ctrl-C need ears.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

torch.set_num_threads(1)
# The same examples in every run, so that a commit passes or fails for good; HYPOTHESIS_PROFILE=explore draws new ones.
settings.register_profile("repeat", deadline=None, max_examples=50, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=200)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))


# Tests that run in parallel must not share a stream of random numbers: each begins with a seed made of its own name.
# G_RAY_TEST_SEED=1, 2, … draws other numbers, to find tests that pass by luck.
BASE_SEED = int(os.environ.get("G_RAY_TEST_SEED", "0"))

MAX_UNMARKED_CPU_S = 5.0
"""A test that takes longer must be in slow_tests.txt, so that `make quick` stays quick."""


def pytest_addoption(parser):
    parser.addoption("--costs", type=Path, help="append the CPU seconds of every test to this file")


def pytest_configure(config):
    if file := config.getoption("--costs"):
        config.pluginmanager.register(slow_tests.CostMeter(file.resolve()))


def pytest_collection_modifyitems(items):
    slow = slow_tests.read_slow_tests()
    for item in items:
        if slow_tests.strip_case(item.nodeid) in slow:
            item.add_marker("slow")


def seed_random_numbers(name: str) -> None:
    """Seed every global generator by a name, the same in every process."""
    seed = zlib.crc32(name.encode()) + BASE_SEED
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def name_test(item) -> str:
    """Return the name of a test without its folder, so that moving a file does not change its random numbers."""
    return item.nodeid.rsplit("/", 1)[-1]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    seed_random_numbers(name_test(item))


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef):
    # A fixture of several tests is made by whichever of them comes first.
    if fixturedef.scope != "function":
        seed_random_numbers(fixturedef.argname)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    seed_random_numbers(f"{name_test(item)} itself")  # fixtures have drawn other numbers
    before = slow_tests.read_cpu_seconds()
    result = yield
    seconds = slow_tests.read_cpu_seconds() - before
    if seconds > MAX_UNMARKED_CPU_S and item.get_closest_marker("slow") is None:
        pytest.fail(f"{seconds:.1f} CPU seconds: make it faster, or add it to tests/slow_tests.txt")
    return result


def shared_data_path() -> Path:
    return Path(os.environ.get("G_RAY_SHARED_DATA", ROOT.parent / "shared" / "data"))


def existing(path: Path, what: str) -> Path:
    if not path.is_dir():
        pytest.skip(f"no {what} at {path}; set G_RAY_SHARED_DATA to the folder of real data")
    return path


@pytest.fixture(scope="session")
def repo_root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data, or a skip."""
    return existing(shared_data_path(), "real data")


@pytest.fixture(scope="session")
def shared_vectors() -> Path:
    """The folder of reference vectors beside the real data, or a skip."""
    return existing(shared_data_path().parent / "vectors", "reference vectors")


@pytest.fixture(scope="session")
def shared_paper() -> Path:
    """The folder with the paper's source beside the real data, or a skip."""
    return existing(shared_data_path().parent / "paper", "paper source")


@pytest.fixture(scope="session")
def mixed_views():
    """Builds `Views` that mix lenses and sizes: a function of (lenses, batch, dtype, seed, poses)."""
    from g_ray.cameras import OpenCVFisheye, Pinhole, RayMapCamera
    from g_ray.geometry.pose import Pose
    from g_ray.rays.ray_map import RayMap
    from g_ray.rays.views import Views

    def camera(lens: str, dtype: torch.dtype):
        if lens == "wide":
            return Pinhole.from_fov(90.0, 48, 32).to(dtype=dtype)
        if lens == "tele":
            return Pinhole.make(32, 32, fx=70.0, fy=66.0, cx=15.0, cy=17.0, dtype=dtype)
        fisheye = OpenCVFisheye.make(
            48, 48, fx=26.0, fy=27.0, cx=23.0, cy=24.5, k1=0.02, k2=-0.004, dtype=dtype
        )
        if lens == "fisheye":
            return fisheye
        rays = RayMap.from_camera(fisheye)
        return RayMapCamera.from_rays(rays.directions, rays.valid)

    def build(
        lenses=("wide", "tele", "fisheye", "ray_map"), batch=2, dtype=torch.float64, seed=0, poses=True
    ):
        generator = torch.Generator().manual_seed(seed)
        cameras = [camera(lens, dtype) for lens in lenses]
        if not poses:
            return Views(cameras)
        eyes = torch.randn(batch, len(lenses), 3, generator=generator, dtype=dtype)
        targets = torch.randn(batch, len(lenses), 3, generator=generator, dtype=dtype) + eyes.new_tensor(
            [0, 0, 4.0]
        )
        return Views(cameras, Pose.look_at(eyes, targets))

    return build


@pytest.fixture(scope="session")
def write_objects():
    """`write_objects(root, names, size)`: rendered objects on disk, in the released format."""
    import importlib
    import sys

    if str(ROOT / "tests") not in sys.path:
        sys.path.append(str(ROOT / "tests"))
    return importlib.import_module("rendered_objects").write_objects


@pytest.fixture(scope="session")
def room_results():
    """The module that makes results of reconstruction from rooms, with exact depth and poses."""
    import importlib
    import sys

    if str(ROOT / "tests") not in sys.path:
        sys.path.append(str(ROOT / "tests"))
    return importlib.import_module("room_results")


@pytest.fixture
def browser_page(tmp_path):
    """A tab of a headless Chromium (see headless_chromium.py), or a skip where there is none.

    Each test has a browser of its own, which ends with it: a 3D page that is left open draws on, without a GPU on the
    cores that later tests need.
    """
    import importlib
    import sys

    if str(ROOT / "tests") not in sys.path:
        sys.path.append(str(ROOT / "tests"))
    headless = importlib.import_module("headless_chromium")
    executable = headless.find_chromium()
    if executable is None:
        pytest.skip("no Chromium here; on Debian: apt-get install chromium")
    with headless.chromium(executable, tmp_path / "chromium") as page:
        yield page


@pytest.fixture(scope="session")
def room_scenes():
    """The module that writes photographs of a room to disk, with cameras in every format that is read."""
    import importlib
    import sys

    if str(ROOT / "tests") not in sys.path:
        sys.path.append(str(ROOT / "tests"))
    return importlib.import_module("room_scenes")
