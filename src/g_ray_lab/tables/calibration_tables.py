"""`g-ray reproduce calibration-noise` and `calibration-estimated`: what wrong and estimated calibrations cost."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from g_ray_lab.tables.paper_table import Measured, NetworkAnalysis, SharedTable, compare_with_first

if TYPE_CHECKING:
    from g_ray.models.reconstruction_network import ReconstructionModel
    from g_ray_lab.scoring.calibration_noise import ConditionedSets
    from g_ray_lab.scoring.comparison import Column
    from g_ray_lab.scoring.conditioned_comparison import ConditionedComparison
    from g_ray_lab.tables.dry_run import Part

SMALL_VIEWS, SMALL_SETS = 4, 24
"""Views of a set, and sets."""
PAPER_VIEWS = 16
AVERAGED = ("eth3d-fov", "scannetpp-undistorted", "pandaset")
"""Protocols whose mean the paper prints."""
MEAN, ROOMS = "mean", "rooms"


@dataclass(frozen=True)
class CalibrationTable(NetworkAnalysis, SharedTable):
    """Tables of methods and conditions by metrics."""

    data: tuple[Path, ...] = ()
    limit: int | None = None
    """Paper scale: sets of each scene; all by default."""
    jobs: int = 1
    """Paper scale: processes of this machine that share the work."""

    def measure_protocols(
        self, sources: Sequence[str], protocols: Sequence[str]
    ) -> "ConditionedComparison | None":
        """Score all networks with the calibrations of all sources on protocols of prepared datasets, 16 views a set.

        None if shares of other processes are missing.
        """
        from g_ray.runtime.progress import ProgressLine
        from g_ray_lab.scoring.conditioned_comparison import compare_conditions
        from g_ray_lab.scoring.store import Shard

        shard = Shard.parse(self.shard)
        options = {"jobs": self.jobs, "shard": shard, "report": print, "progress": ProgressLine()}
        columns = self.build_columns(protocols)
        found = compare_conditions(self.find_networks(), sources, columns, self.out, **options)
        return self.report_share(shard) if found.is_unfinished else found

    def build_columns(self, protocols: Sequence[str]) -> "dict[str, Column]":
        """Return protocols with the folders of prepared datasets."""
        from g_ray_lab.datasets.dataset_registry import DATASETS
        from g_ray_lab.scoring.comparison import Column
        from g_ray_lab.scoring.evaluation_plan import Limits
        from g_ray_lab.scoring.protocol_registry import PROTOCOLS

        if len(self.data) != 1:
            raise ValueError("--scale paper needs --data FOLDER, one with a folder for each dataset")
        limits = Limits(views=(PAPER_VIEWS,), sets=self.limit)
        return {
            name: Column(
                name, PROTOCOLS[name], self.data[0] / DATASETS[PROTOCOLS[name].dataset].download, limits
            )
            for name in protocols
        }

    @abstractmethod
    def list_conditions(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the sources of calibrations and the protocols of the paper's scale."""

    def list_parts(self) -> "Iterator[Part]":
        """Yield a set of every network with every calibration on every protocol."""
        from g_ray_lab.scoring.conditioned_comparison import list_conditions
        from g_ray_lab.tables.dry_run import list_cell_parts

        if self.scale == "small":
            raise ValueError("--dry-run is for --scale paper; --scale small takes minutes")
        sources, protocols = self.list_conditions()
        rows = list_conditions(self.find_networks(), sources)
        return list_cell_parts(
            {", ".join(place): row for place, row in rows.items()}, self.build_columns(protocols), self.out
        )

    def check_small(self) -> None:
        """Raise ValueError for options that belong to the paper's scale."""
        if self.shard is not None or self.cluster != "none":
            raise ValueError("--shard and --cluster belong to --scale paper; --scale small takes minutes")

    def draw(self, result: dict[str, Any]) -> None:
        """Write a figure per test with a panel per metric."""
        from g_ray.viewer.theme import LIGHT, write_png
        from g_ray_lab.figures import draw_conditions

        for name, test in result["tests"].items():
            write_png(draw_conditions(test, LIGHT), self.out / f"{name}.png")


@dataclass(frozen=True)
class CalibrationNoise(CalibrationTable):
    """What wrong focal lengths, principal points, distortions and exchanged calibrations cost, for all rows and stereo.
    Images and truth do not change."""

    data: tuple[Path, ...] = ()
    """Folders of test scenes with depth whose fields of view differ, e.g. levels-test-zoom; at paper scale the folder
    of prepared datasets: ETH3D with zooms, ScanNet++ undistorted and PandaSet."""
    photos: Path | None = None
    """A scene folder with depth and one camera, e.g. 7-Scenes: its photographs are cropped to different fields of
    view."""
    rooms: bool = False
    """Score procedural rooms of the test split, too: for networks that were trained on rooms, e.g. g-ray-rooms."""
    sets: int | None = None
    """Sets of views; 24 by default (small scale)."""
    size: int | None = None
    """Pixels per side that networks see; by default the size in their weights' card, e.g. 112 for the training of
    g-ray-photos instead of the 168 that it is used at."""
    stereo_sets: int = 4
    """Sets of each test that the stereo model reconstructs too, about a CPU minute a set; 0 leaves it out."""

    def list_conditions(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        from g_ray_lab.scoring.calibration_conditions import CONDITIONS

        return tuple(CONDITIONS), AVERAGED

    def measure(self) -> Measured | None:
        from g_ray.runtime.progress import ProgressLine
        from g_ray_lab.scoring.calibration_conditions import DISTORTION
        from g_ray_lab.scoring.calibration_noise import measure_noise
        from g_ray_lab.scoring.scored_runs import format_scores_csv
        from g_ray_lab.scoring.store import Store
        from g_ray_lab.scoring.table_writer import format_conditions

        if self.scale == "paper":
            found = self.measure_protocols(*self.list_conditions())
            if found is None:
                return None
            tests = {MEAN: found.average(AVERAGED), **found.make_tests()}
            result = {"name": "calibration-noise", "tests": tests, "gaps": found.gaps}
            return Measured(result, f"{format_conditions(tests)}\n\n{format_notes(found.gaps)}")
        self.check_small()
        networks = self.find_networks()
        tests = self.build_tests(networks[0].load())
        store, progress = Store(self.out / "parts"), ProgressLine()
        pairs, results, runs = compare_with_first(networks), {}, []
        for name, sets in tests.items():
            stereo_sets = (
                0 if name == ROOMS else self.stereo_sets
            )  # it does not match the few pixels of rooms
            given = (networks, pairs, stereo_sets, self.out, store, progress)
            results[name], scored = measure_noise(name, sets, *given)
            runs += scored
        settings = {name: describe_sets(sets) for name, sets in tests.items()}
        settings = {**settings, "k1_added": DISTORTION, "stereo_sets": self.stereo_sets}
        result = {"name": "calibration-noise", "tests": results, "settings": settings}
        return Measured(result, format_conditions(results), format_scores_csv(runs))

    def build_tests(self, model: "ReconstructionModel") -> "dict[str, ConditionedSets]":
        """Return the sets of textured scenes, of photographs and of rooms."""
        from g_ray_lab.scoring.calibration_conditions import CONDITIONS
        from g_ray_lab.scoring.calibration_noise import PHOTO_ZOOM, ConditionedFolders, ConditionedRooms

        if not self.data and self.photos is None and not self.rooms:
            raise ValueError(
                "calibration-noise needs views with depth: give --data FOLDER …, --photos FOLDER or --rooms"
            )
        side, patch = self.size or model.config.long_side, model.config.patch
        if side < patch or side % patch:
            raise ValueError(f"--size {side}: give a multiple of the patches of {patch} px")
        shape = (side, patch, CONDITIONS)
        options = {"views": SMALL_VIEWS, "sets": self.sets or SMALL_SETS}
        tests = {}
        if self.data:
            tests["scenes"] = ConditionedFolders.from_folders(self.data, *shape, **options)
        if self.photos is not None:
            tests["photos"] = ConditionedFolders.from_folders(
                (self.photos,), *shape, **options, zoom_max=PHOTO_ZOOM
            )
        if self.rooms:
            tests[ROOMS] = ConditionedRooms.from_side(*shape, **options)
        return tests


def describe_sets(sets: "ConditionedSets") -> dict[str, Any]:
    """Return the protocol of a test; folders by their names."""
    described = sets.describe()
    return {**described, "folders": list(described["folders"])} if "folders" in described else described


@dataclass(frozen=True)
class CalibrationEstimated(CalibrationTable):
    """Calibrations by estimators compared with the true ones: rays, focal length, principal point, and
    reconstruction."""

    data: tuple[Path, ...] = ()
    """Scene folders with true cameras and depth, or the points of a COLMAP model; at paper scale the folder of prepared
    datasets: ScanNet++ undistorted and mixed, and for the accuracy of cameras ETH3D with zooms and PandaSet too."""
    sources: tuple[str, ...] = ("truth", "guess", "colmap", "anycalib", "vggt")
    """truth, guess (a focal length of 1.2 long sides) and estimators; one that is not available is listed as such."""
    sets: int = 3
    """Sets of neighboring photographs per scene."""
    stereo: bool = True
    """Reconstruct by stereo too."""

    def list_conditions(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self.sources, (*AVERAGED, "scannetpp-mixed")

    def measure(self) -> Measured | None:
        from g_ray.runtime.progress import ProgressLine
        from g_ray_lab.scoring.estimated_calibration import CalibrationScene, estimate_all, measure_estimated
        from g_ray_lab.scoring.recalibrated_model import SOURCES
        from g_ray_lab.scoring.store import Store
        from g_ray_lab.scoring.table_writer import format_conditions

        unknown = [source for source in self.sources if source not in SOURCES]
        if unknown:
            raise ValueError(f"unknown source {', '.join(unknown)}: choose among {', '.join(SOURCES)}")
        if not self.data:
            raise ValueError(
                "calibration-estimated needs photographs with true cameras: give --data FOLDER …"
            )
        if self.scale == "paper":
            return self._measure_datasets()
        self.check_small()
        networks = self.find_networks()
        store, progress = Store(self.out / "parts"), ProgressLine()
        side = networks[0].load().config.long_side
        scenes = [CalibrationScene.read(folder, SMALL_VIEWS, self.sets) for folder in self.data]
        given = (networks, compare_with_first(networks), self.stereo, store, progress)
        accuracy, tests = [], {}
        for scene in scenes:
            cameras, rows = estimate_all(scene, self.sources, store, progress, side)
            accuracy += rows
            tests[scene.scene.folder.name] = measure_estimated(scene, cameras, *given)
        settings = {"scenes": [scene.describe() for scene in scenes]}
        result = {"name": "calibration-estimated", "accuracy": accuracy, "tests": tests, "settings": settings}
        return Measured(result, f"{format_accuracy(accuracy)}\n\n{format_conditions(tests)}")

    def _measure_datasets(self) -> Measured | None:
        """Make the paper's two tables: accuracy of cameras in pixels of the network's input, and reconstruction."""
        from g_ray_lab.scoring.table_writer import format_conditions

        found = self.measure_protocols(*self.list_conditions())
        if found is None:
            return None
        accuracy, tests = found.list_accuracy(AVERAGED), found.make_tests()
        result = {"name": "calibration-estimated", "accuracy": accuracy, "tests": tests, "gaps": found.gaps}
        parts = [format_accuracy(accuracy), format_conditions(tests), format_notes(found.gaps)]
        return Measured(result, "\n\n".join(parts))


def format_notes(notes: Sequence[str]) -> str:
    return "\n".join(f"- {note}" for note in notes)


def format_accuracy(rows: list[dict[str, Any]]) -> str:
    """Format the errors of estimated cameras, or why there are none."""
    from g_ray_lab.scoring.table_writer import format_grid

    lines = []
    for row in rows:
        cells, scores = [row["reason"], "–", "–"], row["scores"]
        if scores:
            focal = f"{100 * scores['focal_rel']:.1f}"
            cells = [f"{scores['rays_deg']:.2f}", focal, f"{scores['center_px']:.1f}"]
        lines.append([row["scene"], row["source"], *cells])
    return format_grid(["scene", "source", "rays, °", "focal length, %", "principal point, px"], lines)
