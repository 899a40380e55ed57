"""The installed package: version, licence, lazy names."""

import subprocess
import sys
from importlib.metadata import metadata

import g_ray


def test_version_is_the_distribution_version():
    assert metadata("g-ray")["Version"] == g_ray.__version__


def test_importing_the_package_does_not_import_torch():
    code = "import sys, g_ray; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_every_public_name_resolves():
    for name in g_ray.__all__:
        assert getattr(g_ray, name) is not None
