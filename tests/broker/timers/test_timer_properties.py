from __future__ import annotations

from typing import Any

import pytest

from aerobee.broker.delay.delay_levels import delay_hook
from aerobee.broker.errors import Refusal
from aerobee.broker.timers.timer_properties import (
    RecallHandle,
    TimerHook,
    TimerProperties,
    come_back,
    delete_keys,
    handle_of,
    read_handle,
)
from aerobee.store.format.properties import decode, encode
from aerobee.store.format.record import MessageDraft
from aerobee.store.format.system_names import SCHEDULE_TOPIC, WHEEL_TOPIC
from aerobee.store.format.unit import DelayLevels

NOW_MS = 1_735_689_590_000
HOST = bytes(8)
HANDLE = "djEgVG9waWNUIGJyb2tlci1hIDE3MzU2ODk2MDAwMDEgN0YwMDAwMDEwQTFCMThCNEFBQzIwMDAwMDAwMDAwMDE="


def turn(hook: TimerHook = TimerHook(), topic: str = "t", **given: Any) -> dict[str, str] | None:  # noqa: B008  (a tuple)
    """The properties of what waits in the wheel; None: it goes to its topic."""
    properties = {name: str(value) for name, value in given.items()}
    draft = MessageDraft(topic, 3, b"x", b"", HOST, HOST)
    hook(draft, properties, NOW_MS)
    if draft.topic == topic:
        assert "TIMER_OUT_MS" not in properties or "TIMER_OUT_MS" in given
        return None
    assert (draft.topic, draft.queue_id) == (WHEEL_TOPIC, 0)
    return properties


@pytest.mark.parametrize(
    ("given", "out_ms"),
    [
        ({"TIMER_DELIVER_MS": 1_735_689_600_000}, 1_735_689_599_000),
        ({"TIMER_DELIVER_MS": 1_735_689_600_500}, 1_735_689_600_000),
        ({"TIMER_DELIVER_MS": 1_735_689_600_001}, 1_735_689_600_000),
        ({"TIMER_DELAY_SEC": 10}, NOW_MS + 9_000),
        ({"TIMER_DELAY_MS": 10_001}, NOW_MS + 10_000),
        ({"TIMER_DELAY_SEC": 10, "TIMER_DELAY_MS": 99_000}, NOW_MS + 9_000),
        ({"TIMER_DELAY_MS": 1, "TIMER_DELIVER_MS": "soon"}, NOW_MS),
        ({"TIMER_DELAY_SEC": 3_456_000}, NOW_MS + 3_456_000_000 - 1_000),
        ({"DELAY": 0, "TIMER_DELAY_SEC": 10}, NOW_MS + 9_000),
    ],
    ids=str,
)
def test_the_slot_is_the_last_one_that_is_over_at_the_time(
    given: dict[str, Any], out_ms: int
) -> None:
    waits = turn(**given)
    assert waits is not None
    assert waits["TIMER_OUT_MS"] == str(out_ms)
    assert (waits["REAL_TOPIC"], waits["REAL_QID"]) == ("t", "3")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"TIMER_DELIVER_MS": NOW_MS},
        {"TIMER_DELAY_SEC": 0},
        {"TIMER_DELAY_SEC": -7},
        {"TIMER_DELAY_SEC": 5, "TIMER_OUT_MS": "1"},
        {"__STARTDELIVERTIME": NOW_MS + 5_000},
    ],
    ids=str,
)
def test_what_is_due_or_timed_already_is_an_ordinary_message(given: dict[str, Any]) -> None:
    assert turn(**given) is None


@pytest.mark.parametrize(
    "given",
    [
        {"TIMER_DELIVER_MS": "soon"},
        {"TIMER_DELAY_SEC": "1e3"},
        {"TIMER_DELAY_SEC": "９"},
        {"TIMER_DELAY_MS": "9" * 30},
        {"TIMER_DELAY_SEC": 3_456_001},
        {"TIMER_DELIVER_MS": NOW_MS, "TIMER_DEL_UNIQKEY": "k"},
    ],
    ids=str,
)
def test_what_is_no_time_or_too_far_is_illegal(given: dict[str, Any]) -> None:
    with pytest.raises(Refusal, match="timer message illegal") as refused:
        turn(**given)
    assert refused.value.code == 13


def test_without_the_wheel_the_remark_names_the_key() -> None:
    with pytest.raises(Refusal, match="timerWheelEnable") as refused:
        turn(TimerHook(enabled=False), TIMER_DELAY_SEC=1)
    assert refused.value.code == 1


def test_a_delay_level_wins_and_takes_the_time_away() -> None:
    properties = {"DELAY": "3", "TIMER_DELAY_SEC": "5", "TIMER_DELIVER_MS": "soon"}
    draft = MessageDraft("t", 0, b"x", b"", HOST, HOST)
    TimerHook()(draft, properties, NOW_MS)
    assert (draft.topic, properties) == ("t", {"DELAY": "3"})


def test_the_property_of_cloud_clients_counts_when_asked_for() -> None:
    hook = TimerHook(start_deliver_time=True)
    waits = turn(hook, __STARTDELIVERTIME=NOW_MS + 5_000)
    assert waits is not None
    assert waits["TIMER_OUT_MS"] == str(NOW_MS + 4_000)


@pytest.mark.parametrize("order", [1, -1])
def test_a_record_of_the_wheel_is_read_in_any_order(order: int) -> None:
    given = {
        "a": "b",
        "TIMER_OUT_MS": "5000",
        "REAL_TOPIC": "T",
        "REAL_QID": "7",
        "TIMER_DEL_UNIQKEY": "k",
    }
    properties = encode(dict(list(given.items())[::order])).encode()
    assert TimerProperties.of(properties) == TimerProperties(5000, "T", 7, True)


@pytest.mark.parametrize("missing", ["TIMER_OUT_MS", "REAL_TOPIC", "REAL_QID"])
@pytest.mark.parametrize("value", ["", "x y"])
def test_a_record_without_time_or_target_is_none(missing: str, value: str) -> None:
    given = {"a": "b", "TIMER_OUT_MS": "5000", "REAL_TOPIC": "T", "REAL_QID": "7"}
    found = TimerProperties.of(encode({**given, missing: value}).encode())
    assert found is None or (missing == "REAL_TOPIC" and found.topic == value)


def test_what_comes_back_keeps_its_string_and_says_when_it_was_where() -> None:
    before = b"a\x01b\x02TIMER_OUT_MS\x0199\x02"
    after = before + b"TIMER_ENQUEUE_MS\x015\x02TIMER_DEQUEUE_MS\x019\x02"
    assert come_back(before, 5, 9) == after
    assert come_back(before[:-1], 5, 9) == after
    rolled = decode(come_back(before, 5, 9, roll=True))
    assert rolled["TIMER_ROLL_TIMES"] == "1"
    again = decode(come_back(encode(rolled).encode(), 15, 19, roll=True))
    assert (again["TIMER_ROLL_TIMES"], again["TIMER_ENQUEUE_MS"]) == ("2", "15")
    at_last = come_back(encode(again).encode(), 25, 29)
    assert at_last.count(b"TIMER_ENQUEUE_MS") == 1
    assert decode(at_last)["TIMER_DEQUEUE_MS"] == "29"


def test_both_forms_of_a_recall_name_the_timer() -> None:
    for text in ("K", "T+K"):
        keys = delete_keys(f"TIMER_DEL_UNIQKEY\x01{text}\x02".encode(), "T")
        assert ("T", "K") in keys
    assert delete_keys(b"a\x01b\x02", "T") == set()


def test_a_handle_has_the_bytes_of_the_java_broker() -> None:
    properties = {
        "TIMER_OUT_MS": "1735689600000",
        "REAL_TOPIC": "TopicT",
        "UNIQ_KEY": "7F0000010A1B18B4AAC2000000000001",
    }
    assert handle_of(properties, "broker-a") == HANDLE
    named = RecallHandle("TopicT", "broker-a", 1_735_689_600_001, properties["UNIQ_KEY"])
    assert read_handle(HANDLE) == read_handle(HANDLE.rstrip("=")) == named
    assert handle_of({**properties, "REAL_TOPIC": "%RETRY%g"}, "broker-a") is None
    assert handle_of({"TIMER_OUT_MS": "5"}, "broker-a") is None


@pytest.mark.parametrize("text", ["", "!", "djE", "djIgYSBiIDEgYw==", "djEgYSBiIHggYw==", "é"])
def test_anything_else_is_no_handle(text: str) -> None:
    with pytest.raises(Refusal, match="recall handle") as refused:
        read_handle(text)
    assert refused.value.code == 604


@pytest.mark.parametrize("level", ["1", " 1 ", "+1", "0_1", "\u0661", "9" * 20])
def test_both_hooks_read_a_level_alike_however_it_is_written(level: str) -> None:
    properties = {"DELAY": level, "TIMER_DELAY_SEC": "10"}
    draft = MessageDraft("t", 3, b"x", b"", HOST, HOST)
    TimerHook()(draft, properties, NOW_MS)
    delay_hook(DelayLevels())(draft, properties, NOW_MS, False)
    assert (draft.topic, properties["REAL_TOPIC"]) == (SCHEDULE_TOPIC, "t")
