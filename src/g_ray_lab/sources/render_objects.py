"""From meshes to a folder of rendered objects, 24 views each: in parallel processes or on a cluster, resumable."""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import log, radians, tan
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from g_ray.cameras.pinhole import Pinhole
from g_ray.geometry.pose import Pose
from g_ray.runtime.files import write_json
from g_ray.runtime.out_folder import check_out
from g_ray.runtime.parallel import run_in_processes
from g_ray_lab.cluster import Cluster, ClusterJob, get_result
from g_ray_lab.datasets.objaverse import DIRECTIONS, ObjectCameras, is_finished, write_object
from g_ray_lab.meshes.mesh_files import Mesh, UnreadableMesh, find_meshes, read_meshes, scale_to_unit_size
from g_ray_lab.meshes.textured_scene import MeshScene
from g_ray_lab.sources.draws import make_object_random
from g_ray_lab.sources.procedural_meshes import make_random_object

# The folder of a data set that is made here: it keeps its settings, and refuses others

DATASET = "dataset.json"


def claim_folder(root: Path, settings: Any) -> None:
    """Note the settings (a dataclass) in the folder, or refuse it if it was made with others."""
    path = root / DATASET
    wanted = json.loads(json.dumps(asdict(settings)))  # as the file has it: lists, not tuples
    if not path.exists():
        check_out(root)
        write_json(path, wanted)
        return
    try:
        stored = dict(json.loads(path.read_text()))
    except ValueError:
        raise ValueError(f"{path} is not the settings file of a data set; choose another --out") from None
    others = [
        f"{key} {stored.get(key)} instead of {value}"
        for key, value in wanted.items()
        if stored.get(key) != value
    ]
    if others:
        raise ValueError(f"{root} was made with {', '.join(others)}; use the same settings, or another --out")


# The 24 cameras around an object of unit size: eight directions, each native, with another focal length, and from
# another distance (appendix "Objaverse Target-View Definitions").
#
# The numbers are those of the released renders, with two differences. Those restart their random numbers at every
# object, so that all 80,000 objects have the same 24 cameras, which a network can learn by heart; here every object
# has its own. And no camera comes closer than `NEAREST`: the released rule lets a dolly variant with a wide lens
# enter the corners of the object's bounding box, and see it from inside.
#
# The focal variant keeps the released range, 6.5° to 124.5°, although native lenses have 20° to 80°: it is there to
# leave what context views show, and the paper's numbers are measured on it.


FOV_DEG = (20.0, 80.0)  # vertical, of native lenses; their focal lengths are uniform in the logarithm
ELEVATION_DEG = (-10.0, 30.0)
FILL = 0.6
"""A cube of size 1 in the plane of the object's center spans this share of a native image's height."""

NATIVE_DISTANCE = (0.9, 1.1)  # factors of the distance at which FILL holds
DOLLY_DISTANCE = (0.8, 1.2)  # … of the dolly variant
FOCAL_EXPONENT = (0.8, 1.2)  # f ← f^e, f in pixels of an image that is UNIT_PX pixels high
UNIT_PX = 100.0

NEAREST = 0.88
"""An object of unit extent lies within √3/2 = 0.866 of the origin; native cameras stay beyond 0.893 anyway."""


def sample_cameras(uid: str, seed: int, size: int) -> ObjectCameras:
    """Draw the cameras of an object, in the order of NAMES. World: z up, the object's center at the origin."""
    random = make_object_random(uid, seed, "cameras")
    azimuth = np.deg2rad(45.0 * np.arange(DIRECTIONS) + random.uniform(-22.5, 22.5, DIRECTIONS))
    elevation = np.deg2rad(random.uniform(*ELEVATION_DEG, DIRECTIONS))
    focal = np.exp(
        random.uniform(log(compute_focal_px(FOV_DEG[1])), log(compute_focal_px(FOV_DEG[0])), DIRECTIONS)
    )
    distance = focal / UNIT_PX / FILL  # (1 / FILL) / (2 tan(fov / 2))
    native = distance * random.uniform(*NATIVE_DISTANCE, DIRECTIONS)
    dolly = distance * random.uniform(*DOLLY_DISTANCE, DIRECTIONS)
    zoomed = focal ** random.uniform(*FOCAL_EXPONENT, DIRECTIONS)
    # Rows are directions; columns native, focal, dolly.
    focals = np.stack([focal, zoomed, focal], -1) * size / UNIT_PX
    distances = np.stack([native, native, dolly], -1).clip(min=NEAREST)
    lengths = torch.from_numpy(focals.ravel())
    cameras = Pinhole.make(size, size, fx=lengths, fy=lengths, cx=size / 2, cy=size / 2)
    return ObjectCameras(cameras, _make_poses(azimuth, elevation, distances))


def compute_focal_px(fov_deg: float) -> float:
    """Focal length in pixels of an image that is UNIT_PX pixels high."""
    return UNIT_PX / 2 / tan(radians(fov_deg) / 2)


def _make_poses(
    azimuth_rad: Float[np.ndarray, "direction"],
    elevation_rad: Float[np.ndarray, "direction"],
    distances: Float[np.ndarray, "direction kind"],
) -> Pose:
    """Looking at the origin, upright."""
    level = np.cos(elevation_rad)
    towards = [level * np.cos(azimuth_rad), level * np.sin(azimuth_rad), np.sin(elevation_rad)]
    eyes = torch.from_numpy(distances[..., None] * np.stack(towards, -1)[:, None]).flatten(0, 1)
    return Pose.look_at(eyes, torch.zeros_like(eyes), down=(0.0, 0.0, -1.0))


# From meshes to folders.


PROCEDURAL = "procedural"


@dataclass(frozen=True)
class ObjectSettings:
    """All that decides the images of an object, apart from its mesh. Kept in dataset.json."""

    meshes: str = PROCEDURAL  # or the name of their folder
    seed: int = 0
    size: int = 256  # pixels, square
    antialias: int = 2  # rays per pixel and axis
    light: bool = True
    depth: bool = False
    up: str | None = None  # "y" or "z"; None is the habit of each file format
    version: int = 1  # of cameras, light and shapes; raised when the same settings give other images

    def __post_init__(self) -> None:
        if not (8 <= self.size <= 8192 and 1 <= self.antialias <= 16 and self.seed >= 0):
            raise ValueError(
                f"size {self.size}, antialias {self.antialias}, seed {self.seed}: give 8 to 8192 pixels, 1 to 16 rays "
                "per pixel and axis, and a seed of 0 or more"
            )


@dataclass(frozen=True)
class ObjectJob:
    """An object by its name; without a file it is made by `make_random_object`."""

    name: str
    file: Path | None = None


def list_object_jobs(meshes: Path | None, count: int | None, seed: int) -> list[ObjectJob]:
    """List what to render. A count below all takes a sample, in a random but fixed order: a larger count only adds."""
    if count is not None and count < 1:
        raise ValueError(f"{count} objects: give 1 or more")
    if meshes is None:
        if count is None:
            raise ValueError("how many objects? --count N (there are as many procedural meshes as you like)")
        return [ObjectJob(f"{PROCEDURAL}_{number:06d}") for number in range(count)]
    files = find_meshes(meshes)
    order = sorted(files, key=lambda name: make_object_random(name, seed, "order").random())
    return [ObjectJob(name, files[name]) for name in order[:count]]


def find_unfinished(root: Path, jobs: Iterable[ObjectJob]) -> list[ObjectJob]:
    return [job for job in jobs if not is_finished(root, job.name)]


def render_object(root: Path, job: ObjectJob, settings: ObjectSettings) -> None:
    """Read or make the mesh, render it through its 24 cameras, and write everything."""
    scene = MeshScene(load_mesh(job, settings), settings.light)
    views = sample_cameras(job.name, settings.seed, settings.size)
    images = scene.render_color(views.cameras, views.poses, settings.antialias)
    depth = scene.render(views.cameras, views.poses).z_depth if settings.depth else None
    write_object(root, job.name, views, images, depth)


def load_mesh(job: ObjectJob, settings: ObjectSettings) -> tuple[Mesh, ...]:
    """Read or make the mesh of an object, scaled to unit size."""
    if job.file is None:
        return scale_to_unit_size(make_random_object(make_object_random(job.name, settings.seed, "mesh")))
    parts = read_meshes(job.file, settings.up)
    try:
        return scale_to_unit_size(parts)
    except ValueError as error:
        raise UnreadableMesh(f"{job.file}: {error}") from None


# Many of them


@dataclass(frozen=True)
class RenderOutcome:
    name: str
    refused: str | None = None  # why there is no such object


def render_objects(
    root: Path, jobs: Sequence[ObjectJob], settings: ObjectSettings, workers: int = 1
) -> Iterator[RenderOutcome]:
    """Render what is not there yet, in `workers` processes; yield an outcome as each is done, in any order.

    A mesh that cannot be read is an outcome, any other error ends the run. Leaving the iteration (Ctrl-C) lets the
    objects that are under way finish and starts no more.
    """
    todo = find_unfinished(root, jobs)
    render = partial(_try_render, root, settings=settings)
    yield from run_in_processes(render, todo, workers, lambda job: job.name)


def _try_render(root: Path, job: ObjectJob, settings: ObjectSettings) -> RenderOutcome:
    try:
        render_object(root, job, settings)
    except UnreadableMesh as error:
        return RenderOutcome(job.name, str(error))
    return RenderOutcome(job.name)


# Rendering objects on a cluster: each job renders its share with the same function.


def render_share(
    root: Path, share: Sequence[ObjectJob], settings: ObjectSettings, workers: int
) -> list[RenderOutcome]:
    """What one job does. The outcomes are returned and not only yielded: they travel back as a file."""
    return list(render_objects(root, share, settings, workers))


def render_on_cluster(
    root: Path, jobs: Sequence[ObjectJob], settings: ObjectSettings, cluster: Cluster, pause_s: float = 2.0
) -> Iterator[RenderOutcome]:
    """As `render_objects`, on a cluster. Finished objects are seen on disk, refused ones when their job is done."""
    todo = find_unfinished(root, jobs)
    if not todo:
        return
    shares = [todo[start :: cluster.jobs] for start in range(min(cluster.jobs, len(todo)))]
    tasks = [partial(render_share, root, share, settings, cluster.workers) for share in shares]
    with cluster.start(tasks, root) as started:
        yield from _watch_jobs(root, todo, started, pause_s)


def _watch_jobs(
    root: Path, todo: list[ObjectJob], started: list[ClusterJob], pause_s: float
) -> Iterator[RenderOutcome]:
    missing = {job.name for job in todo}
    while missing:
        over = all(job.done() for job in started)  # checked first: what is missing afterwards never comes
        done = {name for name in missing if is_finished(root, name)}
        missing -= done
        yield from (RenderOutcome(name) for name in sorted(done))
        if over:
            break
        time.sleep(pause_s)
    for job in started:
        for outcome in get_result(job, root):
            if outcome.name in missing:
                yield outcome
