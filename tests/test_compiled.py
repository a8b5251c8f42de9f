"""What the compiler gets of our sources; `make test-compiled` runs the tests on what it makes."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from copy import copy
from pathlib import Path
from typing import Any

import pytest

from deploy.compiled import build
from deploy.compiled.build import described
from deploy.compiled.split import dotted, modules, split
from tests.conftest import NEEDS_PURE

ROOT = Path(__file__).parents[1]
PATHS = modules()
NAMES = {dotted(path) for path in PATHS}
SOURCE = """\
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from aerobee.store.other import Other

    Buffer = bytes | memoryview
else:
    Buffer = object

class Head(NamedTuple):
    size: i32

class Request(msgspec.Struct, gc=False):
    head: Head

def number(): return 14
"""
TUPLE = """\
from typing import NamedTuple

class Write(NamedTuple):
    '''ähnlich'''
    queue: Queue = None  # ≥ 1
"""
NATIVE = """\
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from collections.abc import Sequence

log = get_logger()
LIMIT = 4 << 10
OK = Status.OK
HEADS: dict[int, Head] = {
}
PAIR = pack(1), pack(2)

class MessageDraft(msgspec.Struct):
    '''A message.'''

    topic: str
    body: bytes
    flag: int = 0
    '''Its flags.'''

    def size(self): return len(self.body)
"""


def test_what_is_declared_comes_from_the_interpreted_copy() -> None:
    """Structs and rows go; types of compiled modules are imported; no line moves."""
    ready = split(SOURCE, "aerobee.store.one", {"aerobee.store.one", "aerobee.store.other"})
    assert ready.declared == ("Head", "Request")
    tree = ast.parse(ready.source)
    assert [node.name for node in tree.body if isinstance(node, ast.ClassDef)] == []
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    assert not block.orelse
    assert ready.source.splitlines()[0].endswith(
        "import aerobee.store.other; from aerobee.store.one_interpreted import Head, Request"
    )
    assert ready.source.index("number") > 0
    lines = [text.splitlines() for text in (SOURCE, ready.source)]
    assert lines[0].index("def number(): return 14") == lines[1].index("def number(): return 14")


def test_fields_of_other_tuples_are_annotated_in_quotes() -> None:
    ready = split(TUPLE, "aerobee.store.one", {"aerobee.store.one"})
    assert ready.declared == ()
    assert ready.source == TUPLE.replace("Queue =", '"Queue" =')


def test_a_native_struct_is_an_ordinary_class_with_the_same_parameters() -> None:
    ready = split(NATIVE, "aerobee.store.one", {"aerobee.store.one"})
    assert ready.declared == ()
    assert len(ready.source.splitlines()) == len(NATIVE.splitlines())
    (made,) = (one for one in ast.parse(ready.source).body if isinstance(one, ast.ClassDef))
    made.decorator_list = []
    found: dict[str, Any] = {}
    exec(f"from __future__ import annotations\n{ast.unparse(made)}", found)
    draft = found["MessageDraft"]("T", b"hello", flag=3)
    other = copy(draft)
    assert other == draft
    assert other.size() == 5
    other.flag = 4
    assert other != draft
    assert found["MessageDraft"]("T", b"").flag == 0


def test_constants_are_final_but_for_the_limits_that_tests_replace() -> None:
    lines = split(NATIVE, "aerobee.store.one", {"aerobee.store.one"}).source.splitlines()
    assert "log: Final = get_logger()" in lines
    assert "LIMIT = 4 << 10" in lines
    assert "OK: Final[Status] = Status.OK" in lines
    assert "HEADS: Final[dict[int, Head]] = {" in lines
    assert "PAIR = pack(1), pack(2)" in lines


@pytest.mark.parametrize("path", PATHS)
def test_every_listed_module_can_be_split(path: str) -> None:
    source = (ROOT / "aerobee" / path).read_text(encoding="utf-8")
    ready = split(source, dotted(path), NAMES)
    ast.parse(ready.source)
    assert len(ready.source.splitlines()) == len(source.splitlines())
    # Compiled code evaluates the annotations of its fields, which may be there for checkers only.
    assert "@dataclass" not in ready.source
    # Compiled code takes the index of bytes for a number: a slice in a variable raises there.
    assert not re.search(r"[^\w.]slice\(|: slice\b", source)


def test_the_list_is_in_order() -> None:
    assert sorted(NAMES) == [dotted(path) for path in PATHS]


def test_every_test_that_is_skipped_exists() -> None:
    for line in NEEDS_PURE.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            path, _, name = line.partition("::")
            assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")


def test_its_version_is_another_than_that_of_the_pure_build() -> None:
    """Or pip would take it for installed where that is, and say nothing."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    pure = tomllib.loads(project)
    compiled = tomllib.loads(described(project))
    assert compiled["project"].pop("version") == pure["project"].pop("version") + "+compiled"
    assert compiled["project"] == pure["project"]
    assert compiled["tool"]["hatch"]["build"]["targets"]["wheel"].pop("hooks")
    assert compiled == pure


@pytest.mark.parametrize(
    ("compiler", "said"),
    [
        ("no-such-compiler", "there is no C compiler, no-such-compiler: "),
        (" ", "CC=' ' is no command"),
        ('"', "CC='\"' is no command: No closing quotation"),
        ("/bin/false", "the C compiler, /bin/false, fails: exit code 1"),
    ],
)
def test_without_a_compiler_it_says_so_and_builds_nothing(
    compiler: str, said: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "deploy.compiled.build", "--wheel", str(tmp_path)],
        env={**os.environ, "CC": compiler},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"no compiled build: {said}" in done.stderr
    assert "The pure build needs nothing of it." in done.stderr
    assert [*tmp_path.iterdir()] == []


def test_a_build_that_fails_says_what_is_of_an_earlier_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "aerobee-0.1.0.whl"
    wheel.touch()

    def fails(_paths: list[str]) -> None:
        raise OSError("no room")

    monkeypatch.setattr(build, "missing", lambda: None)
    monkeypatch.setattr(build, "copy", lambda: None)
    monkeypatch.setattr(build, "prepare", fails)
    monkeypatch.setattr(sys, "argv", ["build", "--wheel", str(tmp_path)])
    with pytest.raises(OSError, match="no room"):
        build.main()
    assert f"{wheel} is of an earlier build.\n" in capsys.readouterr().err
