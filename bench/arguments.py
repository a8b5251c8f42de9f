"""Functions that the command lines of the benches share: types of their arguments, and how they are
stopped.

A word that is none of the type is told with exit code 2, before a broker is started or a file of
results is written. SIGTERM and SIGHUP end a bench as Ctrl-C does: it ends its brokers and load
generators, and removes what they wrote.
"""

from __future__ import annotations

import json
import math
import shutil
import signal
import subprocess
import sys
from argparse import ArgumentTypeError
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType

LIBRARIES = "import msgspec, structlog, trio"
"""Some of what the broker needs of an interpreter."""


def program(main: Callable[[], None]) -> Callable[[], None]:
    """A `main` whose process leaves nothing behind when it is told to stop."""

    @wraps(main)
    def run() -> None:
        # A shell's job in the background ignores it, and trio then has no part in how it ends.
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, interrupt)
        stopped = False
        try:
            main()
        except* KeyboardInterrupt:
            stopped = True
        if stopped:
            sys.exit("stopped")

    return run


def interrupt(_number: int, frame: FrameType | None) -> None:
    """Do what Ctrl-C does now, which trio and asyncio change while they run."""
    handler = signal.getsignal(signal.SIGINT)
    assert callable(handler)
    handler(signal.SIGINT, frame)


def chosen(only: str, names: Iterable[str]) -> list[str]:
    """The names with this word in them. Raises: SystemExit with all names where none has it."""
    known = list(names)
    found = [name for name in known if only in name]
    if not found:
        rows = "\n".join(f"  {name}" for name in known)
        print(f"--only {only}: no row has this in its name. There are:\n{rows}", file=sys.stderr)
        sys.exit(2)
    return found


# ── Types ──


def whole(text: str) -> int:
    """A whole number from 1 on."""
    return _whole(text, 1)


def whole_or_0(text: str) -> int:
    """A whole number from 0 on; 0 leaves something out."""
    return _whole(text, 0)


def positive(text: str) -> float:
    """A number above 0."""
    number = positive_or_0(text)
    if not number:
        raise ArgumentTypeError(f"{text} is not above 0")
    return number


def positive_or_0(text: str) -> float:
    """A number from 0 on; `nan` and `inf` are none."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise ArgumentTypeError(f"{text} is no number from 0 on")
    return number


def existing_directory(text: str) -> Path:
    """A directory that exists."""
    path = Path(text)
    if not path.is_dir():
        raise ArgumentTypeError(f"{text} is no directory")
    return path


def setting(text: str) -> tuple[str, str]:
    """A key of the broker's settings and its value."""
    key, sign, value = text.partition("=")
    if not (key and sign):
        raise ArgumentTypeError(f"{text} is not KEY=VALUE")
    return key, value


def interpreter(text: str) -> str:
    """A Python that has the broker's libraries."""
    if shutil.which(text) is None:
        raise ArgumentTypeError(f"{text} is no program")
    done = subprocess.run([text, "-c", LIBRARIES], capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it failed"])[-1]
        raise ArgumentTypeError(f"{text} does not have the broker's libraries: {said}")
    return text


def results(text: str) -> dict[str, Any]:
    """A file of results of `bench.beside_java`, read."""
    try:
        document = json.loads(Path(text).read_text(encoding="utf-8"))
    except OSError as error:
        raise ArgumentTypeError(f"{text}: {error.strerror}") from None
    except ValueError:
        raise ArgumentTypeError(f"{text} is no JSON") from None
    if not (isinstance(document, dict) and document.get("rows") and document.get("facts")):
        raise ArgumentTypeError(f"{text} has no rows of bench.beside_java")
    return document


def _whole(text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ArgumentTypeError(f"{text} is no whole number") from None
    if number < least:
        raise ArgumentTypeError(f"{text} is below {least}")
    return number
