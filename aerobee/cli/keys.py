"""Reads keys while a command draws on the terminal."""

from __future__ import annotations

import os
import re
import select
import sys
from contextlib import contextmanager
from time import sleep
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ONE_KEY = re.compile(r"\x1b\[[A-D]|.", re.DOTALL)
READ_BYTES = 64


@contextmanager
def keys_pressed() -> Iterator[Callable[[float], list[str]]]:
    """A function that waits so many seconds for keys, one by one and unseen; Ctrl-C stays Ctrl-C.

    Without a terminal for input it just waits. The terminal's mode is restored.
    """
    if not sys.stdin.isatty():
        yield _wait
        return
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield _read
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _wait(seconds: float) -> list[str]:
    sleep(seconds)
    return []


def _read(seconds: float) -> list[str]:
    terminal = sys.stdin.fileno()
    if not select.select([terminal], [], [], seconds)[0]:
        return []
    return ONE_KEY.findall(os.read(terminal, READ_BYTES).decode(errors="replace"))
