"""Ctrl-C while trials are played: noted, and acted on between two runs, so that no trial is left half told.

A second Ctrl-C interrupts at once. In a thread or process that does not get signals, `also` may say so instead.
"""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class Interruption:
    """A context in which Ctrl-C waits until `check` is called."""

    def __init__(self, also: Callable[[], bool] = lambda: False) -> None:
        self._also = also
        self._is_noted = False
        self._before: Any = None

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._is_noted:
            raise KeyboardInterrupt
        self._is_noted = True

    def check(self) -> None:
        """KeyboardInterrupt if there was one."""
        if self._is_noted or self._also():
            raise KeyboardInterrupt
