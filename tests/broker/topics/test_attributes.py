import pytest

from aerobee.broker.errors import AttributesIllegal
from aerobee.broker.topics.attributes import (
    edited,
    edited_of_group,
    factor_of,
    limit_of,
    parse_edits,
)
from aerobee.remoting.wire.bodies.topic import MAX_RATE


def test_an_edit_line_adds_and_removes() -> None:
    edits = parse_edits("+message.type=FIFO,-reserve.time")
    assert edits == {"+message.type": "FIFO", "-reserve.time": ""}


@pytest.mark.parametrize("line", [None, "", " , "])
def test_no_line_is_no_edit(line: str | None) -> None:
    assert parse_edits(line) == {}


@pytest.mark.parametrize(
    "line", ["message.type=FIFO", "+message.type", "-message.type=FIFO", "+", "-", "message.type"]
)
def test_an_edit_is_signed_and_only_additions_have_a_value(line: str) -> None:
    with pytest.raises(AttributesIllegal, match="neither"):
        parse_edits(line)


def test_a_key_stands_once_in_an_edit() -> None:
    with pytest.raises(AttributesIllegal, match="twice"):
        parse_edits("+message.type=FIFO,-message.type")


def test_a_new_topic_takes_additions_only() -> None:
    assert edited({}, {"+queue.type": "SimpleCQ"}, creating=True) == {"queue.type": "SimpleCQ"}
    with pytest.raises(AttributesIllegal):
        edited({}, {"-message.type": ""}, creating=True)


def test_the_message_type_can_change_and_go() -> None:
    before = {"message.type": "NORMAL"}
    assert edited(before, {"+message.type": "FIFO"}, creating=False) == {"message.type": "FIFO"}
    kind = {"message.type": "PRIORITY"}
    assert edited(before, {"+message.type": "PRIORITY"}, creating=False) == kind
    assert edited(before, {"-message.type": ""}, creating=False) == {}
    assert before == {"message.type": "NORMAL"}


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        ({"+queue.type": "SimpleCQ"}, "cannot be changed"),
        ({"-cleanup.policy": ""}, "cannot be changed"),
        ({"-message.type": ""}, "no attribute"),
        ({"+colour": "red"}, "does not exist"),
        ({"-colour": ""}, "does not exist"),
        ({"+message.type": "LOUD"}, "only one of"),
        ({"+reserve.time": "1"}, "not supported"),
    ],
)
def test_what_cannot_be_applied_is_refused_with_the_reason(edit: dict[str, str], text: str) -> None:
    with pytest.raises(AttributesIllegal, match=text) as caught:
        edited({}, edit, creating=False)
    assert caught.value.code == 1


@pytest.mark.parametrize("edit", [("queue.type", "BatchCQ"), ("cleanup.policy", "COMPACTION")])
def test_kinds_of_topics_that_are_never_served_are_refused_by_name(edit: tuple[str, str]) -> None:
    key, value = edit
    with pytest.raises(AttributesIllegal, match=f"{key}={value} is not supported"):
        edited({}, {f"+{key}": value}, creating=True)


def test_limits_are_numbers_and_none_removes_one() -> None:
    before = edited({}, {"+aerobee.max.rate": "1000"}, creating=True)
    assert before == {"aerobee.max.rate": "1000"}
    assert limit_of(before, MAX_RATE) == 1_000
    assert edited(before, {"+aerobee.max.rate": "0"}, creating=False) == {}
    assert edited(before, {"-aerobee.max.rate": ""}, creating=False) == {}
    assert limit_of({}, MAX_RATE) == 0


@pytest.mark.parametrize("text", ["", "-1", "1.5", "1k", "²", str((1 << 40) + 1)])
def test_a_limit_that_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(AttributesIllegal, match="only a number from 0 to"):
        edited({}, {"+aerobee.max.bytes": text}, creating=False)


def test_an_update_of_a_group_edits_its_attributes_and_without_any_leaves_them() -> None:
    limited = edited_of_group({"theirs": "1"}, {"+aerobee.max.rate": "5"})
    assert limited == {"theirs": "1", "aerobee.max.rate": "5"}
    assert edited_of_group(limited, {}) == limited
    assert edited_of_group(limited, {"+aerobee.max.rate": "0"}) == {"theirs": "1"}
    assert edited_of_group(limited, {"-aerobee.max.rate": ""}) == {"theirs": "1"}
    assert edited_of_group(limited, {"theirs": "2"}) == {"theirs": "2"}, "as they come"


@pytest.mark.parametrize(
    "edit", [{"+message.type": "FIFO"}, {"-aerobee.max.rate": ""}, {"+aerobee.max.rate": "fast"}]
)
def test_what_is_no_attribute_of_a_group_is_refused(edit: dict[str, str]) -> None:
    with pytest.raises(AttributesIllegal):
        edited_of_group({}, edit)


def test_a_group_has_a_share_of_pops_by_priority() -> None:
    assert factor_of({}) == 100
    some = edited_of_group({}, {"+priority.factor": "50"})
    assert (some, factor_of(some)) == ({"priority.factor": "50"}, 50)
    none = edited_of_group(some, {"+priority.factor": "0"})
    assert (none, factor_of(none)) == ({"priority.factor": "0"}, 0), "0 says something"
    assert edited_of_group(none, {"-priority.factor": ""}) == {}


@pytest.mark.parametrize("text", ["101", "-1", "half", "", "5.0", "9" * 30])
def test_a_share_is_one_of_a_hundred(text: str) -> None:
    with pytest.raises(AttributesIllegal, match="only a number from 0 to 100"):
        edited_of_group({}, {"+priority.factor": text})


def test_a_share_that_another_broker_kept_is_any_text() -> None:
    shares = {text: factor_of({"priority.factor": text}) for text in ("-7", "+7", "x", "9" * 30)}
    assert shares == {"-7": -7, "+7": 7, "x": 100, "9" * 30: 100}
