"""The pages of the documentation are written in sentences that can be read aloud."""

from pathlib import Path
from typing import Final

import pytest

from tests.kit.prose import sentences, words
from tests.kit.source_tree import ROOT

WORDS_MAX: Final = 30
REFERENCE: Final = "docs/reference/"
"""Not looked at: the facts of RocketMQ, in lists."""
DESIGN_WORDS: Final = 2_500


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
