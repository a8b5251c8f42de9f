"""The table of pages that ask before they change something."""

import re

import pytest

from aerobee.broker.console.commands import parameters_of
from aerobee.broker.console.operations import OPERATIONS
from aerobee.broker.console.pages.frame import NAVIGATION
from aerobee.broker.console.pages.questions import QUESTIONS, Question

FIELD = re.compile(r"\{(\w+)\}")


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.path)
def test_a_question_fills_its_texts_and_its_command_from_its_fields(question: Question) -> None:
    for text in (question.title, question.done, question.verb):
        assert set(FIELD.findall(text)) <= question.arguments.keys(), text
    known = parameters_of(OPERATIONS[question.command])
    assert set(question.arguments.values()) <= known.keys()
    assert question.here in {entry.path for entry in NAVIGATION}


def test_no_page_asks_two_questions() -> None:
    assert len({question.path for question in QUESTIONS}) == len(QUESTIONS)
