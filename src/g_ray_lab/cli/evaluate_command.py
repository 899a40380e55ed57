"""`g-ray evaluate`: score a model on a protocol of the paper."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from g_ray.predictors.model_settings import ModelSettings
from g_ray.runtime.progress import CountBar


@dataclass(frozen=True)
class Evaluate:
    """Score a model on an evaluation protocol: predict, score the predictions, write the table.

    The same command resumes after an interruption. Several processes, on several machines, may share the work: start
    each with another --shard, or all with torchrun; the last one writes the whole table. Exit code 1 if a set has no
    score or a scene cannot be read; under torchrun only of the process that ends last.
    """

    protocol: tyro.conf.Positional[str] = "list"
    """E.g. eth3d-fov; list names all of them."""
    data: Path | None = None
    """Folder of the dataset, as `g-ray data prepare` makes it."""
    out: Path | None = None
    """Folder for rows.csv, result.json and table.md."""
    model: str | None = None
    """As for `g-ray reconstruct`; or truth (every error must be 0), standing (constant depth, cameras do not move), or
    colmap (poses and sparse points of pycolmap). By default stereo, or the model of --weights. network is
    scored alone, by its heads; with --place-by matches as `g-ray reconstruct` uses it."""
    poses: bool = False
    """Give the model the true poses."""
    scenes: tuple[str, ...] = ()
    """Only these scenes. The table states it, as for the next three options."""
    views: tuple[int, ...] = ()
    """Only sets with these numbers of views."""
    limit: int | None = None
    """Number of sets of each scene and number of views; all by default."""
    width: int | None = None
    """Width of the images in pixels, instead of the protocol's."""
    jobs: int = 1
    """Processes that share the work on this machine."""
    shard: str | None = None
    """Share of the work, e.g. 2/8. By default all, or the share that torchrun assigns."""
    keep_predictions: bool = False
    """Keep predictions too (16 bits, compressed), so that they can be scored again without the model."""
    settings: Annotated[ModelSettings, tyro.conf.arg(name="")] = field(default_factory=ModelSettings)

    def run(self) -> int:
        from g_ray_lab.scoring.protocol_registry import PROTOCOLS

        if self.protocol == "list":
            print("\n".join(f"{name:22} {protocol.title}" for name, protocol in PROTOCOLS.items()))
            return 0
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"unknown protocol {self.protocol!r}; known are {', '.join(PROTOCOLS)}")
        if self.data is None or self.out is None:
            raise ValueError("give --data, the folder of the dataset, and --out, a folder for the results")
        for option, value in (("--limit", self.limit), ("--width", self.width), ("--jobs", self.jobs)):
            if value is not None and value < 1:
                raise ValueError(f"{option} {value}: give 1 or more")
        return self._evaluate(self.data, self.out)

    def _evaluate(self, data: Path, out: Path) -> int:
        from g_ray_lab.scoring.evaluation_plan import Limits
        from g_ray_lab.scoring.evaluation_results import write_report
        from g_ray_lab.scoring.evaluation_run import Evaluation, run_evaluation
        from g_ray_lab.scoring.protocol_registry import PROTOCOLS
        from g_ray_lab.scoring.store import Shard

        shard = Shard.parse(self.shard)
        evaluation = Evaluation(
            self.protocol,
            PROTOCOLS[self.protocol],
            data,
            out,
            self.model,
            self.settings,
            self.poses,
            Limits(self.scenes, self.views, self.limit, self.width),
            self.keep_predictions,
        )
        progress = SetProgress()
        try:
            plan, model = run_evaluation(
                evaluation, jobs=self.jobs, shard=shard, report=progress.report, advance=progress.advance
            )
        finally:
            progress.close()
        result, table = write_report(plan, model, out)
        print(f"{table}\n\n{out / 'result.json'}, table.md and rows.csv")
        # torchrun ends all processes as soon as one fails: only the last one may fail because a set has no score.
        others_work = self.shard is None and shard.count > 1 and result["sets"]["not_run"] > 0
        has_problems = result["problems"] or result["unreadable_scenes"]
        return 1 if has_problems and not others_work else 0


class SetProgress:
    """A bar over the sets, from when their number is known, and lines above it."""

    def __init__(self) -> None:
        self._bar: CountBar | None = None

    def advance(self, done: int, total: int) -> None:
        if self._bar is None:
            self._bar = CountBar(total, 0, "sets")
        self._bar.advance(done)

    def report(self, line: str) -> None:
        if self._bar is None:
            print(line, flush=True)
        else:
            self._bar.print_line(line)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
