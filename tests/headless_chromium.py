"""A headless Chromium to open pages in, spoken to over a pipe; for tests. Needs no package."""

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

FLAGS = (
    "--headless", "--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--remote-debugging-pipe",
    "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--force-device-scale-factor=1", "--hide-scrollbars",
)  # fmt: skip
PATIENCE_S = 120


def find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Page:
    """One tab. `console` collects errors, `requests` what was asked of the network."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write, self._number, self._rest = read, write, 0, b""
        self._session: str | None = None
        self.console: list[str] = []
        self.requests: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def open(self, path: Path, width: int = 1000, height: int = 800, dark: bool = False) -> None:
        self.go(path.resolve().as_uri(), width, height, dark)
        self.settle()

    def go(self, address: str, width: int = 1000, height: int = 800, dark: bool = False) -> None:
        """The same for any address on this machine."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.dark(dark)
        self._call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && location.protocol !== 'about:'")

    def dark(self, dark: bool) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])

    def run(self, script: str) -> Any:
        answer = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while not self.run(condition):
            assert time.monotonic() < until, f"waited in vain for {condition}"
            time.sleep(0.1)

    def settle(self) -> None:
        """Two frames have been drawn."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def box(self, selector: str, place: str = "start") -> dict[str, float]:
        self.run(
            f"document.querySelector({selector!r}).scrollIntoView({{block: '{place}', behavior: 'instant'}})"
        )
        rectangle = f"document.querySelector({selector!r}).getBoundingClientRect()"
        return self.run(f"(r => ({{x: r.x, y: r.y, width: r.width, height: r.height}}))({rectangle})")

    def picture(self, selector: str | None = None) -> np.ndarray:
        """What is seen, [h, w, 3]; all of the window or an element scrolled into it."""
        clip = {} if selector is None else {"clip": {**self.box(selector), "scale": 1}}
        if selector is not None:
            clip["clip"]["y"] += self.run("scrollY")
        self.settle()
        shot = self._call(
            "Page.captureScreenshot", format="png", captureBeyondViewport=selector is not None, **clip
        )
        with Image.open(BytesIO(base64.b64decode(shot["data"]))) as image:
            return np.asarray(image.convert("RGB"))

    def drag(self, selector: str, dx: float, dy: float) -> None:
        box = self.box(selector)
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        moves = [
            ("mouseMoved", 0.0),
            ("mousePressed", 0.0),
            ("mouseMoved", 0.5),
            ("mouseMoved", 1.0),
            ("mouseReleased", 1.0),
        ]
        for kind, share in moves:
            held = (
                {}
                if kind == "mouseMoved" and share == 0
                else {"button": "left", "buttons": 1, "clickCount": 1}
            )
            self._call("Input.dispatchMouseEvent", type=kind, x=x + share * dx, y=y + share * dy, **held)
        self.settle()

    def click(self, selector: str, across: float = 0.5, down: float = 0.5) -> None:
        """At a share of an element's width and height."""
        box = self.box(selector, "center")
        x, y = box["x"] + across * box["width"], box["y"] + down * box["height"]
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._hear(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], PATIENCE_S)
            assert ready, "Chromium says nothing"
            piece = os.read(self._read, 1 << 20)
            assert piece, "Chromium has ended"
            self._rest += piece
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)

    def _hear(self, event: dict[str, Any]) -> None:
        what, more = event.get("method"), event.get("params", {})
        if what == "Runtime.exceptionThrown":
            self.console.append(json.dumps(more["exceptionDetails"])[:500])
        elif what == "Log.entryAdded" and more["entry"]["level"] == "error":
            self.console.append(more["entry"]["text"])
        elif what == "Runtime.consoleAPICalled" and more["type"] in ("error", "assert"):
            self.console.append(json.dumps(more["args"])[:500])
        elif what == "Network.requestWillBeSent" and not more["request"]["url"].startswith("data:"):
            self.requests.append(more["request"]["url"])


@contextlib.contextmanager
def chromium(executable: str, profile: Path) -> Iterator[Page]:
    """A browser of its own, ended with all its processes."""
    (to_browser, ours_out), (ours_in, from_browser) = os.pipe(), os.pipe()

    def hand_over() -> None:  # Chromium listens on descriptor 3 and answers on 4
        os.setsid()
        a, b = os.dup(to_browser), os.dup(from_browser)
        os.dup2(a, 3)
        os.dup2(b, 4)

    command = [executable, *FLAGS, f"--user-data-dir={profile}"]
    process = subprocess.Popen(
        command, preexec_fn=hand_over, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield Page(ours_in, ours_out)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(ours_in)
        os.close(ours_out)
