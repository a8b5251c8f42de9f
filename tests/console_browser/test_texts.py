"""Texts of the pages: all that a page says is there in Chinese, and nothing else is."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from aerobee.broker.console import console, pages
from aerobee.broker.console.console import NO_ACCOUNT, NOBODY_CHANGES
from aerobee.broker.console.pages import states
from aerobee.broker.console.pages.frame import NAVIGATION
from aerobee.broker.console.pages.rendering import Rendering

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(pages.__file__).parent
CHINESE: dict[str, str] = tomllib.loads((HERE / "chinese.toml").read_text("utf-8"))
CONSOLE = HERE.parent
STRING = r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\''
IN_TEMPLATES = re.compile(rf"\bt(_n)?\(\s*({STRING})(?:\s*,\s*({STRING}))?")
FIELD = re.compile(r"\{(\w+)\}")
OF_TABLES = {
    "content.kind": states.CONTENT_KINDS,
    "entry.label": [entry.label for entry in NAVIGATION],
    "entry.part": [entry.part for entry in NAVIGATION],
    "figures.role": states.ROLES.values(),
    "finding.label": states.LABELS.values(),
    "finding.title": states.TITLES.values(),
    "group.label": [state.word for state in states.PROGRESS.values()],
    "read_only": [NOBODY_CHANGES, NO_ACCOUNT],
    "row.standing.word": [state.word for state in states.BROKER_STATES.values()],
    "row.word": [
        *states.ROLES.values(),
        *(state.word for state in states.BROKER_STATES.values()),
    ],
    "step.text": [*states.TRACES.values(), *(state.word for state in states.COPIES.values())],
    "topic.kind": ["normal", "retry", "dead", "system"],
}
"""What templates translate that is no text of theirs, and what it may be."""
WORDS_OF_TEMPLATES = {"finding.verb", "state", "group.state", "group.word"}
"""Those that modules say, where `of_modules` finds them."""
FAILING = ("console.py", "lists.py", "pages/*.py")
"""Modules whose failures pages show."""
OF_QUESTIONS = {"title", "question", "verb", "done"}
"""The texts of a row in the table of questions."""
NAMES = {"Aerobee", "English"}
"""What is the same in every language."""


def said() -> set[str]:
    """Every text that a page can say."""
    texts = set(of_templates()) | set(of_modules())
    for table in OF_TABLES.values():
        texts |= set(table)
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
            elif isinstance(node.func, ast.Call) or name_of(node.func) == "text":
                # `translator(request)("…")` as well as `text("…")`.
                found = list(node.args[:1])
            elif name_of(node.func) == "text_n":
                found = list(node.args[:2])
            elif name_of(node.func) == "State":
                found = list(node.args[1:])
            elif name_of(node.func) == "Question":
                found = [given.value for given in node.keywords if given.arg in OF_QUESTIONS]
            else:
                continue
            yield from filter(None, map(is_text, found))


def is_text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def name_of(node: ast.expr) -> str:
    return getattr(node, "id", "") or getattr(node, "attr", "")


def failures() -> Iterator[tuple[str, ast.expr]]:
    """Where a failure that pages show gets its text."""
    for pattern in FAILING:
        for path in CONSOLE.glob(pattern):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Call) and name_of(node.func) == "Failure":
                    yield f"{path.name}:{node.lineno}", node.args[2]


OF_OTHERS = {"str(error)", "self.readable", "' '.join(outcome.notes)"}
"""What readers of forms say, the reasons in `read_only`, and the remarks of commands."""
IN_API_ALONE = re.compile(
    r"^there is no operation |^name or secret is wrong|^this broker has no users"
)
CONSTANTS = {
    name: value
    for name, value in vars(console).items()
    if name.isupper() and isinstance(value, str)
}


def failing_texts() -> Iterator[tuple[str, str]]:
    """Place and text of each failure; a text that is put together there is empty."""
    for place, node in failures():
        if ast.unparse(node) in OF_OTHERS:
            continue
        text = CONSTANTS.get(node.id, "") if isinstance(node, ast.Name) else is_text(node)
        if not IN_API_ALONE.match(text or ast.unparse(node).strip("f'\"")):
            yield place, text


def test_every_failure_of_a_page_is_there_in_chinese() -> None:
    wrong = [(place, text) for place, text in failing_texts() if text not in CHINESE]
    assert not wrong


def test_templates_translate_nothing_but_what_these_tests_know() -> None:
    called = re.compile(r"\bt\(\s*([a-z_][\w.]*)\s*[,)]")
    for path in (HERE / "templates").glob("*.html"):
        for name in called.findall(path.read_text("utf-8")):
            assert name in OF_TABLES.keys() | WORDS_OF_TEMPLATES, (path.name, name)


def test_templates_say_nothing_that_they_do_not_translate() -> None:
    code = re.compile(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}", re.DOTALL)
    tag = re.compile(r"<[^>]*>", re.DOTALL)
    spoken = re.compile(r"\b(?:aria-label|title|alt)=\"([^\"]*)\"")
    for path in (HERE / "templates").glob("*.html"):
        html = code.sub("", path.read_text("utf-8"))
        for text in (tag.sub(" ", html), *spoken.findall(html)):
            assert not set(re.findall(r"[A-Za-z]{2,}", text)) - NAMES, path.name


def test_every_text_is_there_in_chinese() -> None:
    missing = said() - CHINESE.keys()
    assert not missing, sorted(missing)


def test_no_text_is_there_that_no_page_says() -> None:
    spare = CHINESE.keys() - said() - {text for _, text in failing_texts()}
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
