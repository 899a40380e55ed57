"""`g-ray view`: show a reconstruction in the browser."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class ViewResult:
    """Look at a reconstruction in the browser: points, cameras, and where attention goes from a clicked pixel."""

    folder: Annotated[Path, tyro.conf.Positional]
    """A folder written by g-ray reconstruct."""
    weights: str | None = None
    """Also show a network's own attention: a file, a folder, a Hugging Face id owner/name, or g-ray-rooms."""
    size: int | None = None
    """Long side of photographs as cut into patches; with --weights, by default that of the result or the weights."""
    host: str = "127.0.0.1"
    """Address to listen on; 127.0.0.1 serves this machine alone, 0.0.0.0 everyone who can reach it."""
    port: int = 8080
    """Port of the page; 0 takes a free one."""
    max_points: int = 600_000
    """Points in the scene, at most."""

    def run(self) -> None:
        from g_ray.viewer.reconstruction_view import open_view

        if self.max_points < 1:
            raise ValueError(f"--max-points must be at least 1, got {self.max_points}")
        view = open_view(
            self.folder,
            host=self.host,
            port=self.port,
            weights=self.weights,
            size=self.size,
            max_points=self.max_points,
        )
        with view:
            print(f"{self.folder}: open {view.address} in a browser; Ctrl-C stops it", flush=True)
            view.wait()
