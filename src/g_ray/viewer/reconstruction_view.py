"""Show a reconstruction in the browser: the scene in 3D, and the attention explorer next to it."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from errno import EADDRINUSE
from functools import partial
from io import StringIO
from ipaddress import ip_address
from pathlib import Path
from threading import Event
from types import TracebackType

import viser
from websockets.asyncio import server as websocket_server

from g_ray.export.result import Reconstruction, read_reconstruction
from g_ray.models.weights import load_reconstruction
from g_ray.viewer.explorer import Explorer, ExplorerPanel
from g_ray.viewer.scene_view import MAX_POINTS, SceneView

LOCAL_PAGE = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?")


class ReconstructionView:
    """A viser server with the scene and the explorer, for this machine alone unless `host` is another address.

    Use it as a context, or call `close`.
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
        check_address(host, port)
        self.host = host
        model = None if weights is None else load_reconstruction(weights)
        if size is None and model is not None:
            size = _get_network_size(reconstruction, model.config.patch)
        self.explorer = Explorer(reconstruction, model, size)
        with redirect_stdout(StringIO()), accept_local_pages(host):  # viser prints a banner
            self.viser = viser.ViserServer(host, port, label="G-ray", verbose=False)
        try:
            self.scene = SceneView(self.viser, reconstruction, max_points)
            self.panel = ExplorerPanel(
                self.viser,
                self.explorer,
                self.scene.thumbnails,
                lambda answer: self.scene.mark_point(None if answer.point is None else answer.point.numpy()),
            )
            self.scene.on_pixel = self.panel.select
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        shown = "127.0.0.1" if self.host in ("", "0.0.0.0") else self.host
        return f"http://{shown}:{self.viser.get_port()}"

    def wait(self) -> None:
        """Block until Ctrl-C."""
        Event().wait()

    def close(self) -> None:
        with redirect_stdout(StringIO()), suppress(RuntimeError):  # its event loop may be gone already
            self.viser.stop()

    def __enter__(self) -> "ReconstructionView":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_view(folder: str | Path, **options: object) -> ReconstructionView:
    """Open the view of a folder that `g-ray reconstruct` has written; options as of `ReconstructionView`."""
    return ReconstructionView(read_reconstruction(folder), **options)  # pyright: ignore[reportArgumentType]


def check_address(host: str, port: int) -> None:
    """Raise ValueError if a server cannot listen there: viser would try other ports, or wait forever."""
    try:
        socket.create_server((host, port)).close()
    except OverflowError:
        raise ValueError(f"port {port}: give a number from 0 to 65535") from None
    except OSError as error:
        if error.errno == EADDRINUSE:
            raise ValueError(f"port {port} on {host} is taken: choose another with --port") from None
        raise ValueError(
            f"cannot listen on {host}:{port} ({error.strerror}): give --host 127.0.0.1 for this machine only, "
            "0.0.0.0 for all that reach it, and a --port above 1023"
        ) from None


@contextmanager
def accept_local_pages(host: str) -> Iterator[None]:
    """Let a server that starts here on a loopback address refuse pages of other sites.

    A browser lets any site open a WebSocket to this machine, and read photographs through it; viser has no option
    for the origins that it accepts.
    """
    original = websocket_server.serve
    try:
        if host == "localhost" or ip_address(host).is_loopback:
            websocket_server.serve = partial(original, origins=[LOCAL_PAGE, None])  # pyright: ignore[reportAttributeAccessIssue]
        yield
    finally:
        websocket_server.serve = original


def _get_network_size(reconstruction: Reconstruction, patch: int) -> int | None:
    """Return the long side at which a network made the result; None if none did, or one with other patches."""
    size = reconstruction.settings.get("size")
    return size if isinstance(size, int) and size > 0 and size % patch == 0 else None
