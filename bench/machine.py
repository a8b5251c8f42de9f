"""One line about where figures were taken: they mean nothing without it.

    python -m bench.machine

prints what this interpreter is, which `interpreter_of` asks of another one.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sysconfig
import timeit
from importlib.metadata import version

from bench.arguments import program
from tests.kit.broker_process import is_compiled

LIBRARIES = ("trio", "msgspec")
CALLS = 20_000
REPEATS = 40


def describe(python: str = "") -> str:
    """CPU count and model, memory, kernel, and this interpreter or the one that is named."""
    runs = interpreter_of(python) if python else interpreter()
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return (
        f"{os.cpu_count()} cores ({_model()}), {memory_gib:.0f} GiB, "
        f"{platform.system()} {platform.release()}, {runs}"
    )


def interpreter() -> str:
    """Version, how it was built, what a call costs, and the libraries the hot path runs on."""
    libraries = " ".join(f"{name} {version(name)}" for name in LIBRARIES)
    return (
        f"Python {platform.python_version()} ({build()}; "
        f"{call_ns():.0f} ns for an empty call at best), {libraries}"
    )


def interpreter_of(python: str) -> str:
    """The same of another interpreter, from its executable, and whether a compiled build is
    installed for it. Raises: CalledProcessError.
    """
    command = [python, "-m", "bench.machine"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip() + (", Aerobee compiled" if is_compiled(python) else "")


def build() -> str:
    """Whether profile and link-time optimisation were asked for, as far as it is written down.

    Distributions write down how the shared library was built and ship a program without it.
    """
    options = sysconfig.get_config_var("CONFIG_ARGS") or ""
    found = [name for name in ("--enable-optimizations", "--with-lto") if name in options]
    if found:
        return " ".join(found)
    if sysconfig.get_config_var("Py_ENABLE_SHARED") and not _uses("libpython"):
        return "a distribution's program, its optimisations not written down"
    return "without --enable-optimizations"


def call_ns() -> float:
    """Nanoseconds of a call of an empty function and the loop around it, the best of many."""
    best_s = min(timeit.repeat("f()", "def f(): pass", number=CALLS, repeat=REPEATS))
    return best_s / CALLS * 1e9


def _uses(library: str) -> bool:
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return any(f"/{library}" in line for line in maps)


def _model() -> str:
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as info:
        for line in info:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


@program
def main() -> None:
    """Print one line."""
    argparse.ArgumentParser(prog="python -m bench.machine").parse_args()
    print(interpreter())


if __name__ == "__main__":
    main()
