"""One line about where figures were taken: they mean nothing without it."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version

__all__ = ["describe"]


def describe() -> str:
    """CPU count and model, memory, kernel, Python, and the libraries the hot path runs on."""
    libraries = " ".join(f"{name} {version(name)}" for name in ("trio", "msgspec"))
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return (
        f"{os.cpu_count()} cores ({_model()}), {memory_gib:.0f} GiB, "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}, {libraries}"
    )


def _model() -> str:
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as info:
        for line in info:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()
