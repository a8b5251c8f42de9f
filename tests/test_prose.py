"""Pages, docstrings and comments are written in sentences that can be read aloud."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.kit.prose import remarks, sentences, together, words
from tests.kit.source_tree import ROOT, Module, packages

WORDS_MAX: Final = 30
REFERENCE: Final = "docs/reference/"
"""Not looked at: the facts of RocketMQ, in lists."""
DESIGN_WORDS: Final = 2_500
BESIDE: Final = ("bench", "deploy", "examples")
"""Folders with code beside the four packages."""
PALE: Final = re.compile(
    r"[\"`(]*(What|Whatever|Who|Whoever|Those"
    r"|One (after|before|behind|beyond|by|for|from|has|in|is|may|more|of|past|per|that|to"
    r"|which|who|whose|with|without))\b"
)
"""They stand for a noun that the reader has to look for: a record, and not what was found."""


def pages() -> list[str]:
    found = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "SECURITY.md"]
    found += [*(ROOT / "bench").glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    names = sorted(str(page.relative_to(ROOT)) for page in found)
    return [name for name in names if not name.startswith(REFERENCE)]


@pytest.mark.parametrize("page", pages())
def test_no_sentence_of_a_page_has_more_than_thirty_words(page: str) -> None:
    found = [one for one in sentences((ROOT / page).read_text("utf-8")) if words(one) > WORDS_MAX]
    assert not found, "\n\n".join(f"{words(one)}: {one}" for one in found)


def test_the_page_of_the_design_is_read_in_ten_minutes() -> None:
    page = Path(ROOT / "docs" / "design.md").read_text("utf-8")
    assert len(page.split()) <= DESIGN_WORDS


def test_sentences_are_found_in_paragraphs_and_lists_and_not_in_code_or_tables() -> None:
    page = (
        "# A heading. Not read\n\nOne `a. b` is\na span. Two (`x.y`) is [a link. Here](there.md).\n"
        "- Three is an item\n  of two lines\n- Four\n\n| five | not. Read |\n```\nNo. Code.\n```\n"
        "1. Six, e.g. with a short form? Seven!\n"
    )
    assert list(sentences(page)) == [
        "One CODE is a span.",
        "Two (CODE) is a link.",
        "Here.",
        "Three is an item of two lines",
        "Four",
        "Six, e.g with a short form?",
        "Seven!",
    ]
    assert words("One – two · `three`, §4") == 4


def modules() -> list[Module]:
    beside = [path for folder in BESIDE for path in sorted((ROOT / folder).rglob("*.py"))]
    return [*packages().values(), *(Module(path.stem, path) for path in beside)]


def pale(text: str) -> bool:
    """Whether a sentence of the source has no noun as its subject. Questions need none."""
    return PALE.match(text) is not None and not text.endswith("?")


def test_sentences_of_the_source_have_a_noun_as_their_subject() -> None:
    wrong = [
        f"{module.place}:{remark.line} {sentence}"
        for module in modules()
        for remark in remarks(module)
        for number, sentence in enumerate(remark.sentences)
        if pale(sentence) or (number == 0 and sentence.startswith("It "))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "sentence",
    ["What was found.", "`Who` asks.", "Those of a run.", "One that is late.", "(One of many.)"],
)
def test_a_relative_clause_and_a_number_are_no_subject(sentence: str) -> None:
    assert pale(sentence)


@pytest.mark.parametrize("sentence", ["One queue of a topic.", "What is this?", "Whole records."])
def test_a_number_before_a_noun_and_a_question_are_left_alone(sentence: str) -> None:
    assert not pale(sentence)


def test_comments_of_neighbouring_lines_are_one_text() -> None:
    assert list(together([(1, "# A long"), (2, "# sentence."), (4, "#: Another.")])) == [
        (1, "A long sentence."),
        (4, "Another."),
    ]
