"""`g-ray synthesize`: render new views of a scene from photographs with known cameras."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from g_ray.runtime.out_folder import check_out_file, claim_out

if TYPE_CHECKING:
    from torch import Tensor

    from g_ray.cameras.camera import Camera
    from g_ray.formats.posed_scene import PosedScene
    from g_ray.geometry.pose import Pose
    from g_ray.media.view import View
    from g_ray.synthesis.synthesizer import Synthesizer

FRAMES, FPS = 60, 24


MAX_FRAMES = 10_000
"""Largest number of frames of a path."""


@dataclass(frozen=True)
class Synthesize:
    """Render new views of a scene from photographs with known cameras: single pictures, or a path as a video."""

    context: tuple[str, ...]
    """Photographs to start from; with --scene, names of its images."""
    out: Path
    """A .png or a folder for pictures (one per target); .mp4 or .gif for a path."""
    cameras: Path | None = None
    """Cameras and poses of the photographs: a cameras.json, by file name or in order, or any other calibration."""
    scene: Path | None = None
    """Instead of --cameras: a scene folder (nerfstudio, COLMAP, WAI, 7-Scenes)."""
    as_stored: bool = False
    """With --cameras: take pixels as they are stored instead of turning them upright by EXIF."""
    target: str | None = None
    """A cameras.json with poses: what to render. With --scene also the name of an image; with --path only the lens."""
    path: Literal["interpolate", "orbit", "zoom"] | None = None
    """Video from context to context, around what they look at, or zooming in from the first one."""
    extent: float | None = None
    """Degrees of an orbit (30), or factor of a zoom (2.5)."""
    frames: int | None = None
    """Frames of a path (60)."""
    fps: int | None = None
    """Frames per second (24)."""
    weights: Path = Path("nvs-rooms")
    """A file written by g-ray train, or the name of weights that come with g-ray."""
    baseline: float | None = None
    """Scale poses so that the farthest context is this far from the first; if not given, as in the training."""
    full_size: bool = False
    """Enlarge pictures from the network's size to the target camera's own."""
    device: str = "auto"
    """cpu, cuda, cuda:1, …; auto takes a GPU where there is one."""

    def run(self) -> None:
        self._check()
        print("g-ray synthesize: loading torch", flush=True)
        import torch

        from g_ray.geometry.pose import Pose
        from g_ray.reconstruction.inputs import choose_lens, read_contexts, read_targets
        from g_ray.runtime.device import choose_device
        from g_ray.synthesis.synthesizer import Synthesizer, load_network

        network = load_network(self.weights, choose_device(self.device))
        scene = self._read_scene()
        contexts = read_contexts(self.context, self.cameras, scene, print, upright=not self.as_stored)
        lenses = [view.camera for view in contexts]
        poses = Pose(torch.stack([view.pose.world_from_cam for view in contexts if view.pose is not None]))
        photos = [view.load_image() for view in contexts]
        stage = Synthesizer(network, photos, lenses, poses, self.baseline)
        trained = "{}×{}".format(*network.size)
        print(f"network: {self.weights} ({network.encoding}), patch {network.patch}, trained at {trained} px")
        print(f"contexts: {len(contexts)} at {stage.size[0]}×{stage.size[1]} px, cropped in their middle")
        print(f"poses: {self._describe_unit(stage)}")
        if self.path is None:
            self._write_pictures(stage, read_targets(str(self.target), scene))
        else:
            self._write_path(stage, poses, choose_lens(self.target, scene, lenses[0]))

    # Validation

    def _check(self) -> None:
        """Refuse what is wrong with the options alone, before anything is loaded."""
        if (self.cameras is None) == (self.scene is None):
            raise ValueError("give the contexts' cameras: either --cameras FILE or --scene FOLDER")
        if self.as_stored and self.scene is not None:
            raise ValueError(
                "--as-stored goes with --cameras: cameras of a scene folder are of stored pixels"
            )
        if not self.context:
            raise ValueError("no contexts: give one or more photographs with --context")
        if self.target is None and self.path is None:
            raise ValueError("nothing to render: give --target FILE or --path interpolate, orbit or zoom")
        for name in ("frames", "fps", "extent", "baseline"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"--{name} must be positive and finite, got {value}")
            if value is not None and name != "baseline" and self.path is None:
                raise ValueError(f"--{name} needs --path: add it, or leave out the option")
        if self.frames is not None and self.frames > MAX_FRAMES:
            raise ValueError(f"--frames {self.frames}: a path has {MAX_FRAMES} frames at most")
        if self.path == "interpolate" and self.extent is not None:
            raise ValueError("--extent goes with --path orbit and zoom; interpolate ends at the last context")
        self._check_out()

    def _check_out(self) -> None:
        wanted = (".mp4", ".gif") if self.path is not None else (".png", "")
        if self.out.suffix not in wanted:
            kinds = "a .mp4 or .gif file" if self.path is not None else "a .png file or a folder"
            raise ValueError(f"--out {self.out}: give {kinds}")
        if self.out.suffix == ".mp4":
            import av  # noqa: F401 (fails now if it is not installed, not after rendering)
        if self.out.suffix:
            check_out_file(self.out)
        else:
            claim_out(self.out, "synthesize")

    def _read_scene(self) -> "PosedScene | None":
        if self.scene is None:
            return None
        from g_ray.formats import read_scene

        scene = read_scene(self.scene)
        for line in (scene.summary, *scene.notes):
            print(line)
        return scene

    def _describe_unit(self, stage: "Synthesizer") -> str:
        baseline = stage.network.baseline if self.baseline is None else self.baseline
        if baseline is None:
            return "as given, in meters as the network was trained (--baseline scales them)"
        if stage.scale == 1.0:
            return "as given"
        return f"scaled by {stage.scale:.4g}, so that contexts are up to {baseline:g} apart"

    # Output

    def _write_pictures(self, stage: "Synthesizer", targets: "list[View]") -> None:
        from g_ray.cli.text import make_file_name
        from g_ray.synthesis.synthesizer import describe_size
        from g_ray.viewer.animation import save_picture

        if self.out.suffix and len(targets) > 1:
            raise ValueError(
                f"--out {self.out} is one picture, but there are {len(targets)} targets: give a folder"
            )
        names = [make_file_name(Path(target.name).stem if target.name else "target") for target in targets]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"two targets would both be written as {twice}.png: give them other names")
        for name, target in zip(names, targets, strict=True):
            assert target.pose is not None
            picture = stage.render(target.camera, target.pose, full_size=self.full_size)
            path = self.out if self.out.suffix else self.out / f"{name}.png"
            save_picture(path, picture)
            enlarged = f", enlarged to {target.camera.width}×{target.camera.height}" if self.full_size else ""
            print(
                f"wrote {path}: {describe_size(target.camera, stage.choose_target_size(target.camera))}{enlarged}"
            )

    def _write_path(self, stage: "Synthesizer", poses: "Pose", lens: "Camera") -> None:
        from g_ray.synthesis.synthesizer import describe_size
        from g_ray.synthesis.trajectories import PATHS
        from g_ray.viewer.animation import save_animation

        kind, count = PATHS[str(self.path)], self.frames or FRAMES
        extent = kind.extent if self.extent is None else self.extent
        shots = list(kind.frames(poses, lens, count, extent or 0.0))

        def render_frames() -> "Iterator[Tensor]":
            from g_ray.runtime.progress import ProgressLine

            line = ProgressLine()
            for number, (camera, pose) in enumerate(shots, 1):
                yield stage.render(camera, pose, full_size=self.full_size)
                line(f"frames: {100 * number // count // 10 * 10} %")
            print()

        save_animation(self.out, render_frames(), self.fps or FPS)
        print(
            f"wrote {self.out}: {count} frames, {self.path}, {describe_size(lens, stage.choose_target_size(lens))}"
        )
