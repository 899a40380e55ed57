"""Read 7-Scenes by sequence: ROOT/chess/seq-03/frame-000000.{color.png,depth.png,pose.txt}.

Depth is moved to the color camera (`g_ray.formats.seven_scenes`), unless SimpleRecon's frame-….depth.proj.png has it
there already. `7scenes-published` takes the poses, which are the depth camera's, for the color camera's, as π³'s
evaluation does: every view is off by 2.5 cm. A sequence that is still packed (seq-03.zip) is not read; `g-ray data
prepare` unpacks it.
"""

from functools import partial
from pathlib import Path

from g_ray.formats.seven_scenes import is_seven_scenes, read_seven_scenes
from g_ray_lab.datasets.evaluation_scene import Dataset, Download, EvaluationScene
from g_ray_lab.datasets.stored_frames import convert_scene

LIMITS_M = (1e-3, 10.0)
TEST_SEQUENCES: dict[str, tuple[int, ...]] = {
    "chess": (3, 5),
    "fire": (3, 4),
    "heads": (1,),
    "office": (2, 6, 7, 9),
    "pumpkin": (1, 7),
    "redkitchen": (3, 4, 6, 12, 14),
    "stairs": (1, 4),
}
TEST_SCENES = tuple(
    f"{scene}/seq-{number:02d}" for scene, numbers in TEST_SEQUENCES.items() for number in numbers
)
"""The 18 test sequences by name."""
DOWNLOAD = Download(
    "7scenes",
    "7-Scenes",
    "https://www.microsoft.com/en-us/research/project/rgb-d-dataset-7-scenes",
    "Microsoft Research license: non-commercial",
    (", ".join(f"{scene}.zip" for scene in TEST_SEQUENCES),),
    ("chess/seq-03/frame-000000.color.png", "chess/seq-03/frame-000000.pose.txt"),
    archives=tuple(f"{scene}.zip" for scene in TEST_SEQUENCES),
    nested=("*/seq-*.zip",),
    real_levels=1,
)


def list_seven_scenes(root: Path) -> list[str]:
    """List the sequences that are there, as chess/seq-03."""
    folders = sorted(path for path in root.glob("*/seq-*") if path.is_dir() and is_seven_scenes(path))
    return [f"{path.parent.name}/{path.name}" for path in folders]


def read_sequence(
    root: Path, name: str, dataset: str = "7scenes", move_poses: bool = True
) -> EvaluationScene:
    """Read a sequence; its mesh is ROOT/meshes/chess.ply, as DA3-BENCH has it."""
    mesh = root / "meshes" / f"{Path(name).parent}.ply"
    scene = read_seven_scenes(root / name, check=False, move_poses=move_poses)
    return convert_scene(scene, name, dataset, LIMITS_M, mesh if mesh.is_file() else None)


PUBLISHED = "7scenes-published"
DATASETS = {
    "7scenes": Dataset("7-Scenes", DOWNLOAD, list_seven_scenes, read_sequence),
    PUBLISHED: Dataset(
        "7-Scenes with the depth camera's poses, as published",
        DOWNLOAD,
        list_seven_scenes,
        partial(read_sequence, dataset=PUBLISHED, move_poses=False),
    ),
}
