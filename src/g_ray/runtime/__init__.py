"""Services that every package uses: output folders, atomic files, progress, provenance, lazily imported names."""

from collections.abc import Callable, Mapping
from importlib import import_module


def make_getattr(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return a module-level `__getattr__`; `homes` has the module of every name.

    Assign it unless TYPE_CHECKING: it would make every wrong name look right to a type checker.
    """

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return get
