"""`make` finds out whether its Python will do before it makes an environment of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTHON = """#!{real}
import sys
if "-V" in sys.argv:
    print("Python %d.%d.2" % {version})
elif "-c" in sys.argv:
    sys.version_info = {version}
    exec(sys.argv[2])
else:
    print("asked:", *sys.argv[1:])
"""


def made(tmp_path: Path, version: tuple[int, int]) -> subprocess.CompletedProcess[str]:
    """`make` with a Python of that version, over an environment of another one, as far as pip."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    binaries = tmp_path / ".venv" / "bin"
    binaries.mkdir(parents=True)
    python = tmp_path / "python"
    for path, of in ((python, version), (binaries / "python", (3, 12))):
        path.write_text(PYTHON.format(real=sys.executable, version=of))
        path.chmod(0o755)
    (binaries / "pip").symlink_to("/bin/true")
    return subprocess.run(
        ["make", "-C", str(tmp_path), ".venv/.broker", f"PYTHON={python}"],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("version", [(2, 7), (3, 10)])
def test_a_python_that_is_too_old_is_refused_before_anything_is_made(
    tmp_path: Path, version: tuple[int, int]
) -> None:
    done = made(tmp_path, version)
    assert done.returncode == 2
    text = f"Aerobee needs Python 3.11 or later, and {tmp_path}/python is {version[0]}.{version[1]}"
    assert text in done.stderr
    assert "asked" not in done.stdout
    assert not (tmp_path / ".venv" / ".broker").exists()


def test_an_environment_of_another_python_is_made_afresh_and_its_own_is_kept(
    tmp_path: Path,
) -> None:
    for version, asked in (((3, 13), True), ((3, 12), False)):
        root = tmp_path / str(version[1])
        root.mkdir()
        done = made(root, version)
        assert (root / ".venv" / ".broker").exists(), done
        assert ("asked: -m venv --clear .venv" in done.stdout) == asked
