"""Ctrl-C and SIGTERM during training: the step is finished and everything is saved before they act."""

import signal
from types import FrameType, TracebackType
from typing import Any


class Interrupt:
    """While entered, the first SIGINT or SIGTERM only sets `received`; the next one acts as usual."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupt":
        self._before = {number: signal.signal(number, self._on_signal) for number in self.SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def reraise(self) -> None:
        """Do what the signal would have done, now that everything is saved."""
        if self.received == signal.SIGTERM:
            raise SystemExit(128 + signal.SIGTERM)
        raise KeyboardInterrupt
