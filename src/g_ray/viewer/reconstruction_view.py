"""Show a reconstruction in the browser: the scene in 3D, and the attention explorer next to it."""

from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from threading import Thread
from types import TracebackType

import numpy as np
import viser

from g_ray.export.result import Reconstruction, read_reconstruction
from g_ray.models.weights import load_reconstruction
from g_ray.viewer.explorer import Answer, Explorer
from g_ray.viewer.explorer_server import ExplorerServer
from g_ray.viewer.scene_view import MAX_POINTS, SceneView


class ReconstructionView:
    """Two servers: ours with the page at `port`, and viser's, which the page frames, at the next free one.

    Both listen to this machine alone unless `host` says otherwise. Use it as a context, or call `close`.
    """

    def __init__(
        self,
        reconstruction: Reconstruction,
        *,
        host: str = "127.0.0.1",
        port: int = 8080,
        weights: str | Path | None = None,
        size: int | None = None,
        max_points: int = MAX_POINTS,
    ) -> None:
        model = None if weights is None else load_reconstruction(weights)
        self.scene: SceneView | None = None
        if size is None and model is not None:
            size = _get_network_size(reconstruction, model.config.patch)
        self.explorer = Explorer(reconstruction, model, size)
        self.page = ExplorerServer(
            self.explorer, host, port, scene_port=self._choose_scene_port, on_answer=self._show_point
        )
        try:
            near = self.page.server_port + 1 if port else 0
            with redirect_stdout(StringIO()):  # it would tell its own address, which is not the page's
                self.viser = viser.ViserServer(host, near, label="G-ray", verbose=False)
            self.scene = SceneView(self.viser, reconstruction, max_points)
        except BaseException:
            self.close()
            raise
        self._thread = Thread(target=self.page.serve_forever, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return self.page.address

    def wait(self) -> None:
        """Block until Ctrl-C."""
        while self._thread.is_alive():
            self._thread.join(1.0)

    def close(self) -> None:
        if hasattr(self, "_thread"):
            self.page.shutdown()
        self.page.server_close()
        if hasattr(self, "viser"):
            with redirect_stdout(StringIO()), suppress(RuntimeError):  # its event loop may be gone already
                self.viser.stop()

    def __enter__(self) -> "ReconstructionView":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _choose_scene_port(self) -> int:
        return self.viser.get_port()

    def _show_point(self, answer: Answer) -> None:
        if self.scene is not None:
            self.scene.mark_point(None if answer.point is None else np.array(answer.point))


def open_view(folder: str | Path, **options: object) -> ReconstructionView:
    """Open the view of a folder that `g-ray reconstruct` has written; options as of `ReconstructionView`."""
    return ReconstructionView(read_reconstruction(folder), **options)  # pyright: ignore[reportArgumentType]


def _get_network_size(reconstruction: Reconstruction, patch: int) -> int | None:
    """Return the long side at which a network made the result; None if none did, or one with other patches."""
    size = reconstruction.settings.get("size")
    return size if isinstance(size, int) and size > 0 and size % patch == 0 else None
