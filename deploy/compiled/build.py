"""A wheel of the same sources in which the modules of `modules.txt` are compiled by mypyc.

    python -m deploy.compiled.build [--wheel DIRECTORY]

Builds in `.cache/compiled/tree`, a copy of the sources. Needs a C compiler, the extra `compiled`,
and two minutes. The installed build needs none of them, and fits the version of the interpreter
that built it. The sources are in the wheel, too: remove the `.so` files, and it is the pure build.
The wheel is installed in an environment of its own, `.cache/compiled/venv`, which has the libraries
of this one: for tests and benches.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.compiled.split import INTERPRETED, dotted, modules, split

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
TREE = ROOT / ".cache" / "compiled" / "tree"
VENV = ROOT / ".cache" / "compiled" / "venv"
GROUP = "aerobee"
"""The compiled modules share one library, `aerobee__mypyc`, at the root of the wheel."""
SOURCES = ("aerobee", "broker", "remoting", "store", "pyproject.toml", "README.md", "LICENSE")
VERSION = re.compile(r'^(version = "[^"+]+)"$', re.MULTILINE)
LOCAL = "compiled"
"""The local part of its version: pip takes it for another one than the pure build's."""
HOOK = """
[tool.hatch.build.targets.wheel.hooks.custom]
path = "deploy/compiled/wheel_hook.py"
"""


def missing() -> str | None:
    """The tools for the build that this machine lacks, and where they are had."""
    try:
        import mypyc.build  # noqa: F401  # Looked for only.
        import setuptools  # noqa: F401
    except ImportError as error:
        return f"{error.name} is not there: pip install -e '.[compiled]', or make compiled"
    if lack := missing_compiler(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"):
        return lack
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.exists():
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return f"there is no {header}: on Debian, apt-get install {version}-dev"
    return None


def missing_compiler(given: str) -> str | None:
    """The error that keeps a command, as CC has it, from compiling an empty file."""
    try:
        command = shlex.split(given)
    except ValueError as error:
        return f"CC={given!r} is no command: {error}"
    if not command:
        return f"CC={given!r} is no command"
    if shutil.which(command[0]) is None:
        return f"there is no C compiler, {command[0]}: on Debian, apt-get install gcc"
    trial = [*command, "-x", "c", "-c", "-o", os.devnull, os.devnull]
    done = subprocess.run(trial, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip()[-500:] or f"exit code {done.returncode}"
        return f"the C compiler, {given}, fails: {said}"
    return None


@contextmanager
def telling_what_is_left(directory: Path) -> Iterator[None]:
    """Where a build fails, say what is still there of an earlier one."""
    before = sorted(directory.glob("*.whl"))
    try:
        yield
    except BaseException:
        for wheel in before:
            sys.stderr.write(f"{wheel} is of an earlier build.\n")
        if VENV.exists():
            sys.stderr.write(f"{VENV} may be of an earlier build.\n")
        raise


def copy() -> None:
    """Make the copy of the sources, without what is of another build."""
    shutil.rmtree(TREE, ignore_errors=True)
    TREE.mkdir(parents=True)
    ignore = shutil.ignore_patterns("__pycache__")
    for name in (*SOURCES, "deploy/compiled"):
        source, place = ROOT / name, TREE / name
        if source.is_dir():
            shutil.copytree(source, place, symlinks=True, ignore=ignore)
        else:
            shutil.copy(source, place)


def prepare(paths: list[str]) -> None:
    """Write what the compiler gets over the sources of the copy, and the interpreted copies."""
    names = {dotted(path) for path in paths}
    for path in paths:
        file = TREE / "aerobee" / path
        source = file.read_text(encoding="utf-8")
        ready = split(source, dotted(path), names)
        file.write_text(ready.source, encoding="utf-8")
        if ready.declared:
            file.with_stem(file.stem + INTERPRETED).write_text(source, encoding="utf-8")


def described(project: str) -> str:
    """The pyproject.toml of the compiled build, of that of the pure one."""
    marked, count = VERSION.subn(rf'\1+{LOCAL}"', project)
    assert count == 1
    return marked + HOOK


def compile_all(paths: list[str]) -> None:
    """Compile them in their places."""
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    os.chdir(TREE)
    # The modules that the compiled ones import are looked at, and told nothing about: not all of
    # them are there.
    options = ["--config-file=", "--explicit-package-bases", "--ignore-missing-imports"]
    options.append("--follow-imports=silent")
    extensions = mypycify(
        [*options, *(f"aerobee/{path}" for path in paths)],
        group_name=GROUP,
        multi_file=True,
        debug_level="0",
    )
    command = build_ext(Distribution({"name": GROUP, "ext_modules": extensions}))
    command.inplace = True
    command.parallel = os.cpu_count()
    command.ensure_finalized()
    command.run()
    shutil.rmtree("build")
    for path in paths:
        # For tracebacks, whose lines are the same, and for who removes the libraries.
        shutil.copy(ROOT / "aerobee" / path, TREE / "aerobee" / path)


def install(wheel: Path) -> None:
    """Install a wheel where tests and benches find it before the checkout."""
    venv.create(VENV, clear=True, symlinks=True)
    python = str(VENV / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([python, "-c", where], check=True, capture_output=True, text=True)
    # Paths alone: the .pth file of an editable install in there is not read.
    libraries = [entry for entry in sys.path if Path(entry).name == "site-packages"]
    lines = "\n".join([*libraries, str(ROOT)])
    Path(site.stdout.strip(), "libraries.pth").write_text(lines, encoding="utf-8")


def main() -> None:
    """Build, make a wheel of it, install that."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--wheel", type=Path, default=Path("dist"), help="where to put the wheel")
    directory = (ROOT / parser.parse_args().wheel).resolve()
    if lack := missing():
        sys.exit(f"no compiled build: {lack}\nThe pure build needs nothing of it.")
    with telling_what_is_left(directory):
        build(directory)


def build(directory: Path) -> None:
    """All of it, on a machine that lacks nothing."""
    paths = modules()
    copy()
    prepare(paths)
    compile_all(paths)
    project = TREE / "pyproject.toml"
    project.write_text(described(project.read_text(encoding="utf-8")), encoding="utf-8")
    hatchling = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(hatchling, check=True)
    install(max(directory.glob("*.whl"), key=lambda wheel: wheel.stat().st_mtime))


if __name__ == "__main__":
    main()
