"""Serve the page of the attention explorer: photographs, and an answer per click."""

import json
from collections.abc import Callable
from errno import EADDRINUSE
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from ipaddress import ip_address
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

from g_ray.media.images import open_photo
from g_ray.viewer.colors import HEAT
from g_ray.viewer.embed import read_asset
from g_ray.viewer.explorer import Answer, Explorer
from g_ray.viewer.scene_view import get_view_color

LONG_SIDE = 720
"""Of photographs in the page, in pixels at most."""
LOCAL = ("localhost", "127.0.0.1", "::1")


class ExplorerServer(ThreadingHTTPServer):
    """One page and three kinds of answers: /views, /image/NUMBER, /maps?view=…&u=…&v=…&pair=…"""

    daemon_threads = True

    def __init__(
        self,
        explorer: Explorer,
        host: str,
        port: int,
        *,
        scene_port: Callable[[], int | None] = lambda: None,
        on_answer: Callable[[Answer], None] = lambda answer: None,
    ) -> None:
        self.explorer, self.scene_port, self.on_answer = explorer, scene_port, on_answer
        self.host, self.lock = host, Lock()
        try:
            super().__init__((host, port), Handler)
        except OverflowError:
            raise ValueError(f"port {port}: give a number from 0 to 65535") from None
        except OSError as error:
            if error.errno == EADDRINUSE:
                raise ValueError(f"port {port} on {host} is taken: choose another with --port") from None
            raise ValueError(
                f"cannot listen on {host}:{port} ({error.strerror}): give --host 127.0.0.1 for this machine only, "
                "0.0.0.0 for all that reach it, and a --port above 1023"
            ) from None

    @property
    def address(self) -> str:
        shown = "127.0.0.1" if self.host in ("", "0.0.0.0") else self.host
        return f"http://{shown}:{self.server_port}"

    def is_allowed_host(self, host: str | None) -> bool:
        """Return whether a Host header names this machine, so that pages of other sites cannot read photographs."""
        try:
            alone = self.host in LOCAL or ip_address(self.host).is_loopback
        except ValueError:
            alone = False
        return not alone or urlsplit(f"//{host}").hostname in (*LOCAL, self.host)

    def describe(self) -> dict[str, Any]:
        """Return what the page needs before the first click."""
        explorer = self.explorer
        return {
            "scene_port": self.scene_port(),
            "heat": HEAT.tolist(),
            "pairs": explorer.pairs,
            "titles": {name: bank.title for name, bank in explorer.banks.items()},
            "views": [
                {
                    "name": view.name,
                    "width": view.camera.width,
                    "height": view.camera.height,
                    "model": view.camera.NAME,
                    "fov_deg": float(view.camera.fov().horizontal_deg),
                    "source": view.source,
                    "color": "#" + "".join(f"{part:02x}" for part in get_view_color(number)),
                }
                for number, view in enumerate(explorer.views)
            ],
        }

    def encode_image(self, view: int) -> bytes:
        """Encode a photograph, no larger than the page needs it."""
        if not 0 <= view < len(self.explorer.views):
            raise ValueError(f"no view {view}")
        with open_photo(self.explorer.reconstruction.get_image_path(self.explorer.views[view].name)) as photo:
            small = photo.convert("RGB")
        small.thumbnail((LONG_SIDE, LONG_SIDE))
        buffer = BytesIO()
        small.save(buffer, format="JPEG", quality=88)
        return buffer.getvalue()

    def answer(self, query: dict[str, list[str]]) -> dict[str, Any]:
        view, u, v = int(query["view"][0]), float(query["u"][0]), float(query["v"][0])
        pair = int(query["pair"][0]) if "pair" in query else None
        with self.lock:  # one network, one click at a time
            answer = self.explorer.probe(view, u, v, pair)
            self.on_answer(answer)
        return answer.to_document()


class Handler(BaseHTTPRequestHandler):
    """Reads only; whatever a request gets wrong is one line of text."""

    server: ExplorerServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        if not self.server.is_allowed_host(self.headers.get("Host")):
            return self._send(
                b"this page is for the machine that it runs on", "text/plain", HTTPStatus.FORBIDDEN
            )
        address = urlsplit(self.path)
        try:
            content, kind = self._respond(address.path, parse_qs(address.query))
        except (ValueError, KeyError, OSError) as error:
            message = " ".join(str(error).split())
            return self._send(message.encode(), "text/plain; charset=utf-8", HTTPStatus.BAD_REQUEST)
        if content is None:
            return self._send(b"no such page", "text/plain", HTTPStatus.NOT_FOUND)
        return self._send(content, kind, HTTPStatus.OK)

    def _respond(self, path: str, query: dict[str, list[str]]) -> tuple[bytes | None, str]:
        match path.strip("/").split("/"):
            case [""]:
                return read_asset("explorer.html").encode(), "text/html; charset=utf-8"
            case ["page.css"]:
                return read_asset("page.css").encode(), "text/css; charset=utf-8"
            case ["views"]:
                return json.dumps(self.server.describe()).encode(), "application/json"
            case ["image", number]:
                return self.server.encode_image(int(number)), "image/jpeg"
            case ["maps"]:
                return json.dumps(self.server.answer(query)).encode(), "application/json"
        return None, ""

    def _send(self, content: bytes, kind: str, status: HTTPStatus) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the terminal is for the user."""
