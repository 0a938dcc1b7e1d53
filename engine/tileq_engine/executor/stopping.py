"""SIGINT and SIGTERM of a real run: drain what is in the system, or save and stop."""

from __future__ import annotations

__all__ = ["StopSwitch"]

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Literal

StopRule = Literal["drain", "save"]


class StopSwitch:
    """Inside `with`, the first signal asks for what `rule` says; a second one asks for "save", whatever it says.

    "drain": nobody else is let in and who is in the system is served to the end. "save": the run ends with the
    iteration that is running. Both leave a complete record. Outside the main thread signals are not touched.
    """

    def __init__(self, rule: StopRule = "drain") -> None:
        self.rule = rule
        self.asked: StopRule | None = None
        self._before: dict[int, Any] = {}

    def ask(self, rule: StopRule | None = None) -> None:
        """Ask for a stop, as a signal does."""
        self.asked = "save" if self.asked is not None else (rule or self.rule)

    def __call__(self) -> bool:
        """Return whether a stop was asked for."""
        return self.asked is not None

    def _answer(self, number: int, frame: FrameType | None) -> None:
        self.ask()

    def __enter__(self) -> StopSwitch:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._answer)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()
