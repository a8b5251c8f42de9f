"""What POP writes, byte for byte as Java does, and the receipt handle."""

from __future__ import annotations

import json

import pytest

from aerobee.broker.pop.pop_records import (
    Ack,
    CheckPoint,
    PopKey,
    Receipt,
    receipt_of,
    retry_topic_v1,
)
from aerobee.remoting.errors import BodyError

KEY = PopKey("T", "g", 2, 100, 1_700_000_000_000, "broker-a")


def check_point() -> CheckPoint:
    return CheckPoint(
        start_offset=100,
        pop_time=KEY.pop_time,
        invisible_time=60_000,
        count=3,
        queue_id=2,
        topic="T",
        group="g",
        diffs=[0, 1, 4],
        broker="broker-a",
        revive_time=KEY.pop_time + 60_000,
    )


def test_a_check_point_has_javas_members() -> None:
    assert json.loads(check_point().to_bytes()) == {
        "so": 100,
        "pt": 1_700_000_000_000,
        "it": 60_000,
        "bm": 0,
        "n": 3,
        "q": 2,
        "t": "T",
        "c": "g",
        "ro": 0,
        "d": [0, 1, 4],
        "bn": "broker-a",
        "reviveTime": 1_700_000_060_000,
    }
    assert CheckPoint.from_bytes(check_point().to_bytes()) == check_point()


def test_a_check_point_names_its_pop() -> None:
    found = check_point()
    assert found.key == KEY
    assert found.unique_key == "T@2@100@g@1700000000000@broker-a@ck"
    assert found.offsets() == [100, 101, 104]
    assert found.due_ms == 1_700_000_060_000


def test_without_differences_the_messages_lie_side_by_side() -> None:
    old = CheckPoint.from_bytes(b'{"so":5,"pt":1,"it":2,"n":3,"q":0,"t":"T","c":"g"}')
    assert old.offsets() == [5, 6, 7]


def test_an_ack_has_javas_members() -> None:
    ack = Ack.of(KEY, [104])
    assert json.loads(ack.to_bytes()) == {
        "ao": 104,
        "so": 100,
        "c": "g",
        "t": "T",
        "q": 2,
        "pt": 1_700_000_000_000,
        "bn": "broker-a",
    }
    assert (ack.tag, ack.unique_key) == ("ack", "T@2@104@g@1700000000000@broker-a@ack")
    assert (ack.key, ack.all_offsets()) == (KEY, [104])


def test_acks_of_one_pop_travel_together() -> None:
    ack = Ack.of(KEY, [100, 104])
    document = json.loads(ack.to_bytes())
    assert (document["ao"], document["aol"]) == (-1, [100, 104])
    assert (ack.tag, ack.all_offsets()) == ("bAck", [100, 104])
    assert Ack.from_bytes(ack.to_bytes()) == ack


def test_a_receipt_handle_is_eight_parts() -> None:
    text = "100 1700000000000 60000 3 0 broker-a 2 104"
    receipt = receipt_of(text)
    assert receipt == Receipt(100, 1_700_000_000_000, 60_000, 3, "0", "broker-a", 2, 104)
    assert receipt.text() == text
    assert not receipt.in_order
    assert receipt_of("100 1 2 999 0 b 2 104").in_order


def test_seven_parts_take_the_offset_of_the_request() -> None:
    assert receipt_of("100 1 2 3 0 b 2", 104).offset == 104


@pytest.mark.parametrize("added", [" 52428800", " 104 52428800"])
def test_what_the_proxy_of_rocketmq_adds_is_left_out(added: str) -> None:
    text = "100 1700000000000 60000 3 0 broker-a 2 104"
    assert receipt_of(text + added) == receipt_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 2 3",
        "a 1 2 3 0 b 2 104",
        f"{10**18} 1 2 3 0 b 2 104",
        "0 1 1_0 3 0 b 2 104",
        "1 2 3 4 5 6 7 8 9 10 11",
        "x" * 999,
    ],
)
def test_what_is_no_receipt_handle_is_refused(text: str) -> None:
    with pytest.raises(BodyError, match="receipt handle"):
        receipt_of(text)


def test_a_retry_topic_is_of_group_and_topic() -> None:
    assert retry_topic_v1("T", "g") == "%RETRY%g_T"
