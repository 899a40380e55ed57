"""`g-ray reproduce calibration-noise` and `calibration-estimated`: what wrong and estimated calibrations cost."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from g_ray_lab.tables.attention_runtime import NetworkAnalysis, compare_with_first

if TYPE_CHECKING:
    from g_ray.cameras.camera import Camera
    from g_ray.models.reconstruction_network import ReconstructionModel
    from g_ray.predictors.predictor import Predictor
    from g_ray.runtime.parts import Parts
    from g_ray_lab.scoring.analysis.conditioned_sets import ConditionedSets
    from g_ray_lab.scoring.analysis.estimated_calibration import CalibrationScene
    from g_ray_lab.scoring.analysis.trained_networks import TrainedNetwork

NOISE_SETS = {"small": (4, 24), "paper": (16, 100)}
"""Views of a set, and sets."""
STEREO, CALIBRATION = "stereo", "calibration alone"
FINER = 3
"""Stereo sees images so many times larger than a network: it matches pixels."""


@dataclass(frozen=True)
class CalibrationNoise(NetworkAnalysis):
    """What wrong focal lengths, principal points, distortions and exchanged calibrations cost, for all rows and stereo.
    Images and truth do not change."""

    data: tuple[Path, ...] = ()
    """Folders of test scenes with depth whose fields of view differ, e.g. levels-test-zoom."""
    photos: Path | None = None
    """A scene folder with depth and one camera, e.g. 7-Scenes: its photographs are cropped to different fields of
    view."""
    sets: int | None = None
    """Sets of views; 24 by default, at paper scale 100."""
    size: int | None = None
    """Pixels per side that networks see; by default what their weights say, e.g. 112 for the training of g-ray-photos
    instead of the 168 that it is used at."""
    stereo_sets: int = 4
    """Sets of each test that the stereo model reconstructs too, about a CPU minute a set; 0 leaves it out."""

    def measure(self, parts: "Parts") -> dict[str, Any]:
        from g_ray_lab.scoring.analysis.perturbations import DISTORTION

        networks = self.find_networks()
        tests = self.build_tests(networks[0].load())
        results = {name: measure_test(name, sets, networks, self.out, parts) for name, sets in tests.items()}
        if self.stereo_sets:
            for name, sets in tests.items():
                stereo = measure_stereo(name, replace(sets, sets=self.stereo_sets), parts)
                results[name]["references"] += stereo["rows"]
                results[name]["changes"] += stereo["changes"]
        settings = {name: {**sets.describe(), "folders": list_folders(sets)} for name, sets in tests.items()}
        return {
            "name": "calibration-noise",
            "tests": results,
            "settings": {**settings, "k1_added": DISTORTION, "stereo_sets": self.stereo_sets},
        }

    def build_tests(self, model: "ReconstructionModel") -> "dict[str, ConditionedSets]":
        """Return the sets of textured scenes and of photographs."""
        from g_ray_lab.scoring.analysis.conditioned_sets import PHOTO_ZOOM, ConditionedSets
        from g_ray_lab.scoring.analysis.perturbations import CONDITIONS

        if not self.data and self.photos is None:
            raise ValueError(
                "calibration-noise needs views with depth: give --data FOLDER … or --photos FOLDER"
            )
        views, sets = NOISE_SETS[self.scale]
        side, patch = self.size or model.config.long_side, model.config.patch
        if side < patch or side % patch:
            raise ValueError(f"--size {side}: give a multiple of the patches of {patch} px")
        shape = (side, patch, CONDITIONS)
        options = {"views": views, "sets": self.sets or sets}
        tests = {}
        if self.data:
            tests["scenes"] = ConditionedSets.from_folders(self.data, *shape, **options)
        if self.photos is not None:
            tests["photos"] = ConditionedSets.from_folders(
                (self.photos,), *shape, **options, zoom_max=PHOTO_ZOOM
            )
        return tests

    def format_tables(self, result: dict[str, Any]) -> str:
        return format_tests(result)

    def draw(self, result: dict[str, Any]) -> None:
        draw_tests(result, self.out)


def list_folders(sets: "ConditionedSets") -> list[str]:
    """Return the names of the folders of a test."""
    return [folder.name for folder in sets.views.folders]


def measure_test(
    name: str, sets: "ConditionedSets", networks: "list[TrainedNetwork]", out: Path, parts: "Parts"
) -> dict[str, Any]:
    """Score all networks under all calibrations of one test, and the calibrations themselves."""
    from g_ray.cli.text import ProgressLine
    from g_ray_lab.scoring.analysis.conditioned_sets import compute_changes
    from g_ray_lab.scoring.reconstruction_scorer import make_predictor
    from g_ray_lab.scoring.study import ScoredRun, compute_differences, make_rows

    progress, protocol, runs = ProgressLine(), sets.describe(), []
    for network in networks:
        progress(f"{name}: {network.name}")
        scores = parts.measure(
            f"{name}-{network.name}",
            {"weights": network.digest, **protocol},
            lambda network=network: sets.score(make_predictor(load_with_features(network, out))),
        )
        runs.append(ScoredRun(network.method, network.seed, 0, 0.0, scores))
    progress(f"{name}: {CALIBRATION}")
    alone = parts.measure(f"{name}-calibration", protocol, sets.score_calibration)
    return {
        "rows": make_rows(runs),
        "references": make_rows([ScoredRun(CALIBRATION, 0, 0, 0.0, alone)]),
        "differences": compute_differences(runs, compare_with_first(networks)),
        "changes": compute_changes(runs),
    }


FEATURE_BYTES = 2 << 30


def load_with_features(network: "TrainedNetwork", out: Path) -> "ReconstructionModel":
    """Load a network whose encoder sees every image once: calibrations change nothing before the trunk."""
    from g_ray.models.dinov2 import DINOv2
    from g_ray.models.frozen_features import FrozenFeatures

    model = network.load()
    if isinstance(model.encoder, DINOv2):
        model.freeze_encoder(FrozenFeatures(out / "features", FEATURE_BYTES))
    return model


def measure_stereo(name: str, sets: "ConditionedSets", parts: "Parts") -> dict[str, list[dict[str, Any]]]:
    """Return rows of the stereo model and what wrong calibrations change in it, over the sets that it answers."""
    from dataclasses import asdict

    from g_ray.cli.text import ProgressLine
    from g_ray.predictors.stereo_predictor import StereoPredictor
    from g_ray_lab.scoring.analysis.predicted_sets import (
        PredictedRun,
        compare_conditions,
        score_predictor,
        summarize_predictions,
    )

    predictor = StereoPredictor()
    sets_by_condition: dict[str, list[Any]] = {condition: [] for condition in sets.conditions}
    for number in range(sets.sets):
        # A part for each set: an interrupted run loses a minute, and more sets can be added to finished ones.
        until = replace(sets, sets=number + 1)
        results = parts.measure(
            f"{name}-stereo-{number}",
            {**until.describe(), "first": number, "finer": FINER, **predictor.describe_settings()},
            lambda until=until, number=number: {
                condition: [asdict(result) for result in results]
                for condition, results in score_predictor(
                    until, predictor, FINER, ProgressLine(), number
                ).items()
            },
        )
        for condition, answers in results.items():
            sets_by_condition[condition] += answers
    runs = [PredictedRun(STEREO, 0, sets_by_condition)]
    return {"rows": summarize_predictions(runs), "changes": compare_conditions(runs)}


def format_tests(result: dict[str, Any]) -> str:
    """Format a table per test as the paper does: methods and conditions down, metrics across, differences below."""
    parts = []
    for name, test in result["tests"].items():
        metrics = list(test["rows"][0]["metrics"])
        lines = [[name, "condition", *metrics, "sets"], ["---"] * (len(metrics) + 3)]
        for row in [*test["rows"], *test["references"]]:
            cells = format_cells(row["metrics"], metrics, row.get("answered"))
            lines.append([row["method"], row["setting"], *cells, count_answers(row)])
        for row in test.get("changes", []):
            cells = format_cells(row["metrics"], metrics, row.get("answered"))
            lines.append([f"{row['method']}, change", row["setting"], *cells, ""])
        for row in test["differences"]:
            pair = f"{row['method']} − {row['minus']}"
            lines.append([pair, row["setting"], *format_cells(row, metrics), ""])
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join(parts)


def format_cells(cells: dict[str, Any], metrics: list[str], answered: int | None = None) -> list[str]:
    """Format a mean ± half the width of its interval for each metric; a single answered set has no interval."""
    from g_ray_lab.scoring.study import format_cell
    from g_ray_lab.tables.trained_table import choose_digits

    formatted = [format_cell(cells.get(metric), choose_digits(metric)) for metric in metrics]
    return [cell.partition(" ±")[0] for cell in formatted] if answered == 1 else formatted


def count_answers(row: dict[str, Any]) -> str:
    """Return how many sets a model answered, and at which share of their pixels, if it may leave some out."""
    if "answered" not in row:
        return ""
    return f"{row['answered']} of {row['sets']}, {100 * row['coverage']:.0f} % of pixels"


def draw_tests(result: dict[str, Any], out: Path) -> None:
    """Write a figure per test with a panel per metric."""
    from g_ray.viewer.theme import LIGHT, write_png
    from g_ray_lab.figures.table_figures import draw_conditions

    for name, test in result["tests"].items():
        write_png(draw_conditions(test, LIGHT), out / f"{name}.png")


# Estimated calibrations.


ESTIMATED_VIEWS = {"small": 4, "paper": 16}


@dataclass(frozen=True)
class CalibrationEstimated(NetworkAnalysis):
    """Calibrations by estimators beside the true ones: rays, focal length, principal point, and reconstruction."""

    data: tuple[Path, ...] = ()
    """Scene folders with true cameras and depth, or the points of a COLMAP model."""
    sources: tuple[str, ...] = ("truth", "guess", "colmap", "anycalib", "vggt")
    """truth, guess (a focal length of 1.2 long sides) and estimators; one that is not available is listed as such."""
    sets: int = 3
    """Sets of neighboring photographs per scene."""
    stereo: bool = True
    """Reconstruct by stereo too."""

    def measure(self, parts: "Parts") -> dict[str, Any]:
        from g_ray_lab.scoring.analysis.estimated_calibration import SOURCES, CalibrationScene

        unknown = [source for source in self.sources if source not in SOURCES]
        if unknown or not self.data:
            raise ValueError(
                f"unknown source {', '.join(unknown)}: choose among {', '.join(SOURCES)}"
                if unknown
                else "calibration-estimated needs photographs with true cameras: give --data FOLDER …"
            )
        networks = self.find_networks()
        scenes = [
            CalibrationScene.read(folder, ESTIMATED_VIEWS[self.scale], self.sets) for folder in self.data
        ]
        accuracy, tests = [], {}
        for scene in scenes:
            cameras, rows = estimate_all(scene, self.sources, parts)
            accuracy += rows
            tests[scene.scene.folder.name] = self.measure_scene(scene, cameras, networks, parts)
        return {
            "name": "calibration-estimated",
            "accuracy": accuracy,
            "tests": tests,
            "settings": {"scenes": [scene.describe() for scene in scenes]},
        }

    def measure_scene(
        self,
        scene: "CalibrationScene",
        cameras: "dict[str, list[Camera]]",
        networks: "list[TrainedNetwork]",
        parts: "Parts",
    ) -> dict[str, Any]:
        """Reconstruct the sets of a scene with all calibrations: a row per network, and stereo as a reference."""
        from g_ray.predictors.network_predictor import NetworkPredictor
        from g_ray.predictors.stereo_predictor import StereoPredictor
        from g_ray_lab.scoring.analysis.predicted_sets import (
            PredictedRun,
            compare_conditions,
            compare_methods,
            summarize_predictions,
        )

        def make_network(network: "TrainedNetwork") -> "Predictor":
            model = network.load()
            return NetworkPredictor(model, model.config.long_side)

        runs = []
        for network in networks:
            key = {"weights": network.digest}
            scores = reconstruct_all(
                scene, cameras, network.name, key, lambda network=network: make_network(network), parts
            )
            runs.append(PredictedRun(network.method, network.seed, scores))
        stereo = []
        if self.stereo:
            key = StereoPredictor().describe_settings()
            scores = reconstruct_all(scene, cameras, STEREO, key, StereoPredictor, parts)
            stereo.append(PredictedRun(STEREO, 0, scores))
        return {
            "rows": summarize_predictions(runs),
            "references": summarize_predictions(stereo),
            "differences": compare_methods(runs, compare_with_first(networks)),
            "changes": compare_conditions([*runs, *stereo]),
        }

    def format_tables(self, result: dict[str, Any]) -> str:
        lines = [
            "| scene | source | rays, ° | focal length, % | principal point, px |",
            "|---|---|---|---|---|",
        ]
        for row in result["accuracy"]:
            values = row["scores"]
            cells = (
                [
                    f"{values['rays_deg']:.2f}",
                    f"{100 * values['focal_rel']:.1f}",
                    f"{values['center_px']:.1f}",
                ]
                if values
                else [row["reason"], "–", "–"]
            )
            lines.append(f"| {row['scene']} | {row['source']} | {' | '.join(cells)} |")
        return "\n".join(lines) + "\n\n" + format_tests(result)

    def draw(self, result: dict[str, Any]) -> None:
        draw_tests(result, self.out)


def estimate_all(
    scene: "CalibrationScene", sources: tuple[str, ...], parts: "Parts"
) -> "tuple[dict[str, list[Camera]], list[dict[str, Any]]]":
    """Return the cameras of every source that has an answer, and a row with scores or the reason for every source."""
    from g_ray.cli.text import ProgressLine
    from g_ray_lab.scoring.analysis.estimated_calibration import (
        COLMAP_SIDE,
        camera_from_values,
        camera_to_values,
        estimate_cameras,
        score_calibration,
    )

    progress, folder = ProgressLine(), scene.scene.folder.name
    cameras, rows = {}, []
    for source in sources:
        progress(f"{folder}: calibration by {source}")
        key = {**scene.describe(), "source": source, "side": COLMAP_SIDE}
        row = {"scene": folder, "source": source, "scores": {}, "reason": None}
        try:
            stored = parts.measure(
                f"{folder}-{source}",
                key,
                lambda source=source: [
                    camera_to_values(camera) for camera in estimate_cameras(scene, source, progress)
                ],
            )
            cameras[source] = [camera_from_values(values) for values in stored]
            row["scores"] = score_calibration(scene, cameras[source])
        except OSError as error:
            # The package of an estimator is missing; installing it and running the command again adds its row.
            row["reason"] = f"not available ({' '.join(str(error).split())[:60]} …)"
        except ValueError as error:
            row["reason"] = " ".join(str(error).split())[:120]
        rows.append(row)
    return cameras, rows


def reconstruct_all(
    scene: "CalibrationScene",
    cameras: "dict[str, list[Camera]]",
    name: str,
    key: dict[str, Any],
    make: "Callable[[], Predictor]",
    parts: "Parts",
) -> dict[str, Any]:
    """Return the scores of a model with the cameras of each source; the model is made when it is first needed."""
    from functools import cache

    from g_ray.cli.text import ProgressLine
    from g_ray_lab.scoring.analysis.estimated_calibration import camera_to_values, score_reconstructions

    progress, folder, make_once, scores = ProgressLine(), scene.scene.folder.name, cache(make), {}
    for source, lenses in cameras.items():
        progress(f"{folder}: {name} with the calibration of {source}")
        values = [camera_to_values(camera) for camera in lenses]
        scores[source] = parts.measure(
            f"{folder}-{source}-{name}",
            {**scene.describe(), **key, "cameras": values},
            lambda lenses=lenses: score_reconstructions(scene, lenses, make_once()),
        )
    return scores
