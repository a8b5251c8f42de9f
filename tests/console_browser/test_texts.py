"""Texts of the pages: all that a page says is there in Chinese, and nothing else is."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from aerobee.broker.console import pages
from aerobee.broker.console.pages import states
from aerobee.broker.console.pages.frame import NAVIGATION
from aerobee.broker.console.pages.rendering import Rendering

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(pages.__file__).parent
CHINESE: dict[str, str] = tomllib.loads((HERE / "chinese.toml").read_text("utf-8"))
STRING = r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\''
IN_TEMPLATES = re.compile(rf"\bt(_n)?\(\s*({STRING})(?:\s*,\s*({STRING}))?")
CHOICES = re.compile(rf"\(\s*{STRING}\s*,\s*t\(({STRING})\)")
FIELD = re.compile(r"\{(\w+)\}")


def said() -> set[str]:
    """Every text that a page can say."""
    texts = set(of_templates()) | set(of_modules())
    for table in (states.COPIES, states.PROGRESS):
        texts |= {state.word for state in table.values()}
    texts |= {*states.TRACES.values(), *states.LABELS.values(), *states.TITLES.values()}
    for entry in NAVIGATION:
        texts |= {entry.label, entry.part}
    return texts - {""}


def of_templates() -> Iterator[str]:
    for path in (HERE / "templates").glob("*.html"):
        for many, first, second in IN_TEMPLATES.findall(path.read_text("utf-8")):
            yield ast.literal_eval(first)
            if many:
                yield ast.literal_eval(second)


def of_modules() -> Iterator[str]:
    for path in HERE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call | ast.Dict):
                continue
            if isinstance(node, ast.Dict):
                pairs = zip(node.keys, node.values, strict=True)
                found = [value for key, value in pairs if is_text(key) == "verb"]
            elif isinstance(node.func, ast.Name) and node.func.id == "text":
                found = list(node.args[:1])
            elif isinstance(node.func, ast.Name) and node.func.id == "State":
                found = list(node.args[1:])
            else:
                continue
            yield from filter(None, map(is_text, found))


def is_text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


# Words of the snapshot that pages translate.
KINDS = {"normal", "retry", "dead", "system"}


def test_every_text_is_there_in_chinese() -> None:
    missing = said() - CHINESE.keys()
    assert not missing, sorted(missing)


def test_no_text_is_there_that_no_page_says() -> None:
    spare = CHINESE.keys() - said() - KINDS
    assert not spare, sorted(spare)


def test_both_languages_have_the_same_fields() -> None:
    wrong = [text for text, other in CHINESE.items() if fields(text) != fields(other)]
    assert not wrong


def fields(text: str) -> set[str]:
    return set(FIELD.findall(text))


def test_a_value_is_put_into_either_language() -> None:
    rendering = Rendering()
    assert rendering.translator("en")("{n} behind", n=3) == "3 behind"
    assert rendering.translator("zh")("{n} behind", n=3) == "堆积 3"
    # A value with brackets is no field.
    assert rendering.translator("en")("{n} behind", n="{x}") == "{x} behind"
