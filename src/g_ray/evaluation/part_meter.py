"""What each part of a network takes: CPU seconds and resident memory, of parts inside of parts too."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
KILOBYTE = 1024


class ResidentMemory:
    """Bytes of this process in memory, now and at most since the last reset; Linux only."""

    @staticmethod
    def is_available() -> bool:
        try:
            CLEAR.write_text("5")
            return "VmHWM" in STATUS.read_text()
        except OSError:
            return False

    def read_current(self) -> int:
        return self._read("VmRSS:")

    def read_peak(self) -> int:
        return self._read("VmHWM:")

    def reset(self) -> None:
        CLEAR.write_text("5")  # the kernel's word for: the peak is what is resident now

    def _read(self, name: str) -> int:
        (line,) = [line for line in STATUS.read_text().splitlines() if line.startswith(name)]
        return int(line.split()[1]) * KILOBYTE


class PartMeter:
    """CPU seconds that each part took without the parts inside it, and its peak of resident memory with them.

    Memory is counted from where it stood when the outermost part began.
    """

    def __init__(self, memory: ResidentMemory | None = None) -> None:
        self.memory = memory
        self.seconds: dict[str, float] = {}
        self.peaks: dict[str, int] = {}
        self._open: list[str] = []
        self._last, self._base = 0.0, 0

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        self.enter(name)
        try:
            yield
        finally:
            self.leave()

    def enter(self, name: str) -> None:
        self._account()
        if not self._open and self.memory is not None:
            self._base = self.memory.read_current()
        self._open.append(name)
        self.seconds.setdefault(name, 0.0)

    def leave(self) -> None:
        self._account()
        self._open.pop()

    def watch_module(self, name: str, module: nn.Module) -> None:
        """Every call of the module is this part."""

        def before(*_: object) -> None:
            self.enter(name)

        def after(*_: object) -> None:
            self.leave()

        module.register_forward_pre_hook(before)
        module.register_forward_hook(after, always_call=True)

    def wrap_call(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, as this part."""

        def measured(*args: Any, **kwargs: Any) -> Any:
            with self.measure(name):
                return call(*args, **kwargs)

        return measured

    def _account(self) -> None:
        """What has passed since the last event belongs to the innermost part; a peak, to all that are open."""
        now = time.process_time()
        if self._open:
            self.seconds[self._open[-1]] += now - self._last
        if self.memory is not None:
            for name in self._open:
                self.peaks[name] = max(self.peaks.get(name, 0), self.memory.read_peak() - self._base)
            self.memory.reset()
        self._last = time.process_time()
