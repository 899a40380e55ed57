"""RealEstate10K: the paper's synthesis trainings on it, and rooms seen along its camera paths."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from g_ray.recipes import nvs

if TYPE_CHECKING:
    from g_ray.data.nvs import NVSSource

PATHS = Path("re10k_cameras") / "re10k_test_600.npz"


@dataclass(frozen=True)
class RE10KData(nvs.NVSData):
    """Stretches of clips: contexts at both ends, targets between."""

    KIND = "re10k"

    root: Path = Path("data/re10k")
    """Folder with train/ and test/, as pixelSplat's chunks or in LVSM's layout; which of both is found out."""
    axes: Literal["opencv", "blender"] = "opencv"
    """Camera axes of the poses in the files; pixelSplat's and LVSM's are OpenCV's."""
    check: int = 4
    """Clips whose poses are checked against their pictures before training; 0 trusts `axes`."""
    contexts: int = 2
    """Views that are given."""
    targets: int = 1
    """Views that are asked for."""
    zoom_max: float = 1.0
    """Views but the first context are zoomed by z ~ U[1, zoom_max]."""
    gap: tuple[int, int] = (25, 100)
    """Frames between the first and the last context, drawn between these."""

    def build_source(self, seed: int) -> "NVSSource":
        from g_ray.data.checks.axes import validate_axes
        from g_ray.data.re10k import RE10KNVS, match_clips
        from g_ray.formats.re10k import open_clips

        clips = open_clips(self.root, "train", self.axes)
        if self.check:
            validate_axes(match_clips(clips, self.check), f"{self.root} with --data.axes {self.axes}")
        return RE10KNVS(
            clips,
            seed=seed,
            batch_size=self.batch,
            width=self.width,
            height=self.height,
            contexts=self.contexts,
            targets=self.targets,
            zoom_max=self.zoom_max,
            gap=self.gap,
        )


@dataclass(frozen=True)
class PathsData(nvs.NVSData):
    """Rooms made on the fly, seen along the paths and through the lenses of real cameras."""

    KIND = "paths"

    paths: Path | None = None
    """File of camera paths (.npz); looked for among the shared data if not given."""
    contexts: int = 2
    """Views that are given."""
    targets: int = 1
    """Views that are asked for."""
    zoom_max: float = 1.0
    """Views but the first context are zoomed by z ~ U[1, zoom_max]."""
    gap: tuple[int, int] = (25, 100)
    """Frames between the first and the last context, drawn between these."""
    solids: int = 5
    """Pieces of furniture."""
    antialias: int = 1
    """Rays per pixel and axis."""

    def build_source(self, seed: int) -> "NVSSource":
        from g_ray.data.rooms.path_nvs import PathRoomsNVS

        file = find_shared_paths() if self.paths is None else self.paths
        if not file.is_file():
            raise ValueError(
                f"no camera paths at {file}: give a file with --data.paths, or set G_RAY_SHARED_DATA to the folder "
                f"that holds {PATHS}"
            )
        settings = {name: value for name, value in vars(self).items() if name not in ("batch", "paths")}
        return PathRoomsNVS(file, seed=seed, batch_size=self.batch, **settings)


def find_shared_paths() -> Path:
    """Beside the checkout, or where G_RAY_SHARED_DATA says."""
    from g_ray.runtime.files import find_shared_data

    return find_shared_data() / PATHS


def paper(method: str) -> nvs.NVSRecipe:
    """The paper's training on RealEstate10K: square 256×256 crops without zoom; it is evaluated at 256×144."""
    return replace(nvs.paper(method), data=RE10KData(width=256, height=256, batch=4))


def paths_tiny(method: str) -> nvs.NVSRecipe:
    """The tiny recipe in rooms seen along real camera paths."""
    return replace(nvs.tiny(method), data=PathsData(width=36, height=36, batch=16))
