"""`g-ray reproduce recon-ablation`: what attention should know of cameras, for reconstruction."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from g_ray.cli.table import Table

if TYPE_CHECKING:
    from g_ray.evaluation.study_runs import Study

PAIRS = (("gray", "rope"), ("gray", "rope_vo"), ("gray_qk", "rope"), ("gray_camray", "camray"))
TEST_SETS = 128


@dataclass(frozen=True)
class ReconAblation(Table):
    """Eight ways to tell a reconstruction network about cameras: trained on pinholes, tested on other lenses too."""

    def study(self) -> "Study":
        from g_ray.data.rooms_reconstruction import RoomsReconstruction
        from g_ray.evaluation.reconstruction_scorer import RoomsScorer
        from g_ray.evaluation.study_runs import Study
        from g_ray.recipes import reconstruction

        make = {"small": reconstruction.tiny, "paper": reconstruction.ablation}[self.scale]
        recipes = {method: make(method) for method in reconstruction.METHODS}
        first = recipes["gray"]
        rooms = first.data.source(0, first.model.config().patch)
        assert isinstance(rooms, RoomsReconstruction)
        scorer = RoomsScorer.of_training(rooms, TEST_SETS)
        return Study("recon-ablation", self.scale, recipes, scorer, PAIRS)

    def draw(self, study: "Study", result: dict[str, Any]) -> None:
        from g_ray.cli.reconstruction_pictures import draw

        draw(study, result, self.out)
