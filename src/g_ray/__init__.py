"""G-ray: any camera becomes rays, rays become angles, angles become rotary phases.

Names below are imported when first used, so that `import g_ray` (and `g-ray --help`) costs no torch import.
"""

from importlib import import_module

__version__ = "0.1.0"

_HOME = {}

__all__ = ["__version__"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'g_ray' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
