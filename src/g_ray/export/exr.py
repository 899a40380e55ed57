"""depth/NAME.exr: channels Z (z depth), ray_depth and confidence as 32-bit floats."""

from pathlib import Path

from g_ray.export.result import ResultView
from g_ray.runtime.files import atomic_path


def check_exr() -> None:
    """Before anything long begins: ValueError if the package is not there."""
    try:
        import OpenEXR  # noqa: F401
    except ImportError:
        raise ValueError(
            'EXR files need the package OpenEXR; pip install "g-ray[depth]", or write npz only'
        ) from None


def write_exr(path: Path, view: ResultView) -> None:
    check_exr()
    import OpenEXR

    maps = {"Z": view.z_depth(), "ray_depth": view.ray_depth, "confidence": view.confidence}
    channels = {name: values.float().numpy(force=True) for name, values in maps.items()}
    header = {"compression": OpenEXR.ZIP_COMPRESSION, "type": OpenEXR.scanlineimage}
    with atomic_path(path) as scratch:
        OpenEXR.File(header, channels).write(str(scratch))
