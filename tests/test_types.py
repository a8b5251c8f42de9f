"""The types of the public names, as applications see them with pyright."""

import ast
import os
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.test_wheel import installed
from tests.test_wheel import wheel as wheel

PROGRAM = Path(__file__).with_name("typed_program.py")
STRICT = '{"typeCheckingMode": "strict", "pythonVersion": "3.11"}'
WITHIN_S = 120
WITHOUT_TYPES = {"arrow", "arrow_reader"}
"""What they give back is of pyarrow, which has none."""


def test_the_typed_program_uses_every_public_name() -> None:
    used = {
        node.attr
        for node in ast.walk(ast.parse(PROGRAM.read_text()))
        if isinstance(node, ast.Attribute)
    }
    classes = {
        name
        for module in (
            "aerobee",
            "aerobee.blocking",
            "aerobee.admin",
            "aerobee.hooks",
            "aerobee.testing",
        )
        for name in import_module(module).__all__
    }
    assert classes - WITHOUT_TYPES <= used


def test_pyright_in_its_strict_mode_knows_every_type(wheel: Path, tmp_path: Path) -> None:
    if shutil.which("node") is None or find_spec("pyright") is None:
        pytest.skip("pyright needs Node and the package pyright")
    python = installed(wheel, tmp_path / "environment")
    shutil.copy(PROGRAM, tmp_path)
    (tmp_path / "pyrightconfig.json").write_text(STRICT)
    check = [sys.executable, "-m", "pyright", "--pythonpath", str(python), PROGRAM.name]
    environment = os.environ | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    done = subprocess.run(
        check,
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
        cwd=tmp_path,
        env=environment,
    )
    if not done.stdout.strip():
        pytest.skip(f"pyright cannot be fetched: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stdout
