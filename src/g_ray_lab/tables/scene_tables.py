"""`g-ray reproduce recon-ablation-dino` and `recon-photos`: networks trained and tested on scene folders."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from g_ray_lab.tables.trained_table import TrainedTable

if TYPE_CHECKING:
    from g_ray_lab.scoring.reconstruction_scorer import FoldersScorer
    from g_ray_lab.scoring.study import Study
    from g_ray_lab.training.recipe import Recipe

PAPER_ROWS = ("gray", "gray_qk", "rope", "camray")
DINO_PAIRS = (("gray", "rope"), ("gray", "gray_qk"), ("gray", "camray"), ("gray", "gray_random"))
DINO_STEPS = 700
TEXTURED_TESTS = ("pinhole", "zoom", "mixed", "fisheye")
TEXTURED_SETS = 48
TRAINED = 0.6
"""Share of the frames of a scene that may be trained on."""


@dataclass(frozen=True)
class ReconAblationDino(TrainedTable):
    """The paper's ablation on frozen DINOv2 ViT-S/14 features of textured scenes, and a row on a random encoder."""

    data: Path | None = None
    """Folder with NAME-train-pinhole and NAME-test-pinhole, -zoom, -mixed, -fisheye, as `g-ray data levels` and `g-ray
    data textured-rooms` make them."""
    encoder: Path | None = None
    """Weights of DINOv2 ViT-S/14 without registers."""
    photos: Path | None = None
    """A scene folder with depth, e.g. 7-Scenes: its last 40 % of frames are two more columns."""

    def build_study(self) -> "Study":
        from g_ray.models.reconstruction_config import RANDOM_ENCODER
        from g_ray_lab.recipes import reconstruction_recipes as reconstruction
        from g_ray_lab.scoring.study import Study

        if self.scale != "small":
            raise ValueError("recon-ablation-dino has a small scale only; recon-ablation has the paper's")
        if self.data is None or self.encoder is None:
            raise ValueError("recon-ablation-dino needs --data FOLDER of textured scenes and --encoder FILE")
        recipes = {}
        for method in PAPER_ROWS:
            recipe = reconstruction.dino_small(method)
            recipes[method] = replace(
                recipe,
                model=replace(recipe.model, encoder=self.encoder),
                data=replace(recipe.data, folders=find_textured(self.data, "train-pinhole")),
                schedule=replace(recipe.schedule, steps=DINO_STEPS, warmup=DINO_STEPS // 20),
            )
        # What the encoder has learned is worth the difference to one that has learned nothing.
        gray = recipes["gray"]
        recipes["gray_random"] = replace(gray, model=replace(gray.model, encoder=RANDOM_ENCODER))
        scorer = build_folders_scorer(gray, self.data, self.photos)
        features = self.out / "features"
        return Study("recon-ablation-dino", self.scale, recipes, scorer, DINO_PAIRS, features=features)


def build_folders_scorer(
    recipe: "Recipe", data: Path, photos: Path | None, sets: int = TEXTURED_SETS
) -> "FoldersScorer":
    """Return the tests of a network trained on scene folders: NAME-test-KIND below `data`, and photographs."""
    from g_ray_lab.recipes.reconstruction_recipes import ReconstructionRecipe
    from g_ray_lab.scoring.reconstruction_scorer import FoldersScorer, PhotosScorer

    if not isinstance(recipe, ReconstructionRecipe):
        raise ValueError("--tests are for reconstruction networks")
    side, patch = recipe.data.width, recipe.model.build_config().patch
    frames = None if photos is None else PhotosScorer(photos, side, patch, (TRAINED, 1.0), sets)
    folders = {kind: find_textured(data, f"test-{kind}") for kind in TEXTURED_TESTS}
    return FoldersScorer(folders, side, patch, frames, sets)


def find_textured(root: Path, ending: str) -> tuple[Path, ...]:
    """Return the folders NAME-ending below a folder, or raise ValueError if there is none."""
    folders = tuple(sorted(path for path in root.glob(f"*-{ending}") if path.is_dir()))
    if not folders:
        raise ValueError(f"{root}: no folder named *-{ending}; make it with g-ray data levels")
    return folders


@dataclass(frozen=True)
class ReconPhotos(TrainedTable):
    """G-ray on real photographs with depth, as they are and as fisheyes: trained on rooms, and on photographs too."""

    data: Path | None = None
    """A scene folder with depth, e.g. 7-Scenes: its first 60 % of frames train the second row, the others test both."""

    def build_study(self) -> "Study":
        from g_ray_lab.recipes import reconstruction_recipes as reconstruction
        from g_ray_lab.scoring.reconstruction_scorer import PhotosScorer
        from g_ray_lab.scoring.study import Study

        if self.scale != "small":
            raise ValueError("recon-photos has a small scale only: --scale small")
        if self.data is None or not self.data.is_dir():
            raise ValueError("recon-photos needs photographs with depth: give --data FOLDER")
        rooms = reconstruction.tiny("gray")
        both = reconstruction.scenes_and_rooms(self.data, (0.0, TRAINED))
        scorer = PhotosScorer(self.data, rooms.data.width, rooms.model.build_config().patch, (TRAINED, 1.0))
        pairs = (("rooms_and_photos", "rooms"),)
        return Study("recon-photos", self.scale, {"rooms": rooms, "rooms_and_photos": both}, scorer, pairs)
