"""`g-ray reproduce recon-ablation | recon-photos`: reconstruction in rooms, and from photographs."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from g_ray.cli.table import Table

if TYPE_CHECKING:
    from g_ray.evaluation.study_runs import Study

PAIRS = (("gray", "rope"), ("gray", "rope_vo"), ("gray_qk", "rope"), ("gray_camray", "camray"))
TEST_SETS = 128
TRAINED = 0.6


@dataclass(frozen=True)
class ReconAblation(Table):
    """Eight ways to tell a reconstruction network about cameras: trained on pinholes, tested on other lenses too."""

    def build_study(self) -> "Study":
        from g_ray.data.rooms.reconstruction import RoomsReconstruction
        from g_ray.evaluation.reconstruction_scorer import RoomsScorer
        from g_ray.evaluation.study_runs import Study
        from g_ray.recipes import reconstruction

        make = {"small": reconstruction.tiny, "paper": reconstruction.ablation}[self.scale]
        recipes = {method: make(method) for method in reconstruction.METHODS}
        first = recipes["gray"]
        rooms = first.data.build_source(0, first.model.build_config().patch)
        assert isinstance(rooms, RoomsReconstruction)
        scorer = RoomsScorer.from_training(rooms, TEST_SETS)
        return Study("recon-ablation", self.scale, recipes, scorer, PAIRS)

    def draw(self, study: "Study", result: dict[str, Any]) -> None:
        from g_ray.cli.reconstruction_pictures import draw_pictures

        draw_pictures(study, result, self.out)


@dataclass(frozen=True)
class ReconPhotos(Table):
    """G-ray on real photographs with depth, as they are and as fisheyes: trained on rooms, and on photographs too."""

    data: Path | None = None
    """A scene folder with depth, e.g. 7-Scenes: its first 60 % of frames train the second row, the others test both."""

    def build_study(self) -> "Study":
        from g_ray.evaluation.photos_scorer import PhotosScorer
        from g_ray.evaluation.study_runs import Study
        from g_ray.recipes import reconstruction, reconstruction_scenes

        if self.scale != "small":
            raise ValueError("recon-photos has a small scale only: --scale small")
        if self.data is None or not self.data.is_dir():
            raise ValueError("recon-photos needs photographs with depth: give --data FOLDER")
        rooms = reconstruction.tiny("gray")
        both = reconstruction_scenes.mixed(self.data, (0.0, TRAINED))
        scorer = PhotosScorer(self.data, rooms.data.width, rooms.model.build_config().patch, (TRAINED, 1.0))
        pairs = (("rooms_and_photos", "rooms"),)
        return Study("recon-photos", self.scale, {"rooms": rooms, "rooms_and_photos": both}, scorer, pairs)

    def draw(self, study: "Study", result: dict[str, Any]) -> None:
        from g_ray.cli.reconstruction_pictures import draw_metrics

        draw_metrics(result, self.out)
