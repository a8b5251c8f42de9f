"""`aerobee message` against a real broker."""

import json
import tracemalloc
from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from aerobee.blocking import (
    AdminClient,
    ConsumeFrom,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
)
from aerobee.broker.console.commands import run
from aerobee.broker.console.looks.viewers import Outcome
from aerobee.broker.console.operations import OPERATIONS
from aerobee.cli.connection import Connection
from tests.aerobee.cli.conftest import Call
from tests.conftest import AnyBroker
from tests.kit.process import Child
from tests.kit.raw_client import RawConnection, properties_text, send_fields
from tests.kit.waiting import eventually

pytestmark = pytest.mark.service

WITHIN_S = 30
SEND, PACKED = 310, 1
MIB = 1024 * 1024


def test_a_message_is_shown_by_each_of_its_names(call: Call, topic: str) -> None:
    call("topic", "create", topic, "--queues", "1")
    sent = call(
        *("produce", topic, "body\x1b[31m", "--tag", "A", "--key", "k", "--header", "region=north"),
        "--json",
    ).document
    place = f"{topic}/{sent['broker']}/{sent['queue_id']}@{sent['queue_offset']}"
    for words in ((place,), (sent["offset_message_id"],)):
        done = call("message", "get", *words, "--json")
        assert (done.code, done.document["body"]) == (0, "body\x1b[31m")
        assert done.document["properties"]["region"] == "north"
    shown = call("message", "get", place).out
    assert "\x1b" not in shown
    assert "body\\x1b[31m" in shown

    def found() -> bool:
        return call("message", "get", sent["message_id"], "--topic", topic).code == 0

    eventually(found, within_s=WITHIN_S, what="the index has the message")
    assert call("message", "get", "nonsense").code == 2
    assert call("message", "get", place.replace("@0", "@7")).code == 1


def test_messages_are_found_by_key_and_time(call: Call, topic: str) -> None:
    call("topic", "create", topic, "--queues", "2")
    for number in range(4):
        call("produce", topic, f"{number}", "--key", f"k{number % 2}", "--tag", "A")

    def by_key() -> bool:
        done = call("message", "find", topic, "--key", "k1", "--format", "body")
        return done.out == "1\n3\n"

    eventually(by_key, within_s=WITHIN_S, what="the index has the messages")
    assert call("message", "find", topic, "--since", "1h ago", "--format", "raw").out == "0123"
    none = call("message", "find", topic, "--until", "1h ago")
    swapped = call("message", "find", topic, "--since", "1h ago", "--until", "2h ago")
    assert (swapped.code, "--since 1h ago is after --until 2h ago" in swapped.err) == (2, True)
    assert (none.out, none.err) == ("", "no message was found\n")
    assert call("message", "find", topic, "--tag", "B").out == ""
    assert call("message", "find", topic, "--max", "1", "--format", "{tag}:{body}").out == "A:0\n"
    assert len(call("message", "find", topic, "--json").document) == 4
    assert call("message", "find", topic, "--format", "{nothing}").code == 2
    assert call("message", "tail", topic, "-c", "2", "--format", "body").out == "2\n3\n"
    rows = [json.loads(line) for line in call("message", "tail", topic, "--jsonl").out.splitlines()]
    assert [row["body"] for row in rows] == ["0", "1", "2", "3"]


def test_a_body_that_cannot_be_unpacked_is_printed_as_it_is_stored(
    call: Call, broker: AnyBroker, topic: str
) -> None:
    """Its client said that the body is compressed, and it is not."""
    call("topic", "create", topic, "--queues", "1")
    with RawConnection(broker.address) as connection:
        for number, flag in enumerate((0, PACKED, 0)):
            named = properties_text(UNIQ_KEY=f"ID{topic}{number}", KEYS="k")
            fields = send_fields(topic, 0, f=flag, i=named)
            assert connection.call(SEND, fields, f"body {number}".encode()).code == 0

    def by_key() -> bool:
        return len(call("message", "find", topic, "--key", "k").out.splitlines()) == 3

    eventually(by_key, within_s=WITHIN_S, what="the index has the messages")
    for words in (
        ("message", "tail", topic),
        ("message", "find", topic),
        ("message", "find", topic, "--key", "k"),
        ("consume", topic, "--no-follow"),
        ("consume", topic, "--no-follow", "--group", f"g-{topic}"),
    ):
        done = call(*words, "--format", "body")
        assert (done.code, done.out) == (0, "body 0\nbody 1\nbody 2\n"), words
        (line,) = done.err.splitlines()
        assert "/0@1 is as it is stored: the body does not unpack as zlib" in line
    assert call("consume", topic, "--no-follow", "--group", f"g-{topic}").out == "", "committed"
    rows = call("message", "tail", topic, "--json").document
    assert [row.get("body") for row in rows] == ["body 0", None, "body 2"]
    assert b64decode(rows[1]["body_base64"]) == b"body 1"
    assert "does not unpack" in rows[1]["unreadable"]
    place = f"{topic}/{rows[1]['broker']}/0@1"
    assert "does not unpack" in call("message", "get", place).out
    assert call("why", place, "--json").document["copies"][0]["message"]["unreadable"]


def test_a_search_goes_on_behind_what_it_has_found(call: Call, topic: str) -> None:
    """By time alone it would not: the messages of a batch are stored at one time."""
    call("topic", "create", topic, "--queues", "1")
    call("produce", topic, "x", "--count", "7", "--batch", "7")
    found: list[int] = []
    behind: tuple[str, ...] = ()
    for _ in range(3):
        rows = call("message", "find", topic, "--max", "3", *behind, "--json").document
        found += [row["queue_offset"] for row in rows]
        place = f"{topic}/{rows[-1]['broker']}/0@{rows[-1]['queue_offset']}"
        behind = ("--after", place)
    assert found == list(range(7))
    assert call("message", "find", topic, *behind, "--json").document == []
    assert call("message", "find", topic, "--after", f"other{place}").code != 0
    for words in (("--after", "nonsense"), ("--after", place, "--key", "k")):
        assert call("message", "find", topic, *words).code == 2, words


def test_no_more_messages_are_kept_than_are_shown(
    call: Call, topic: str, broker: AnyBroker
) -> None:
    # The console of a broker runs these commands, too: its memory is that of the broker.
    call("topic", "create", topic, "--queues", "16")
    with Producer(broker.namesrv_address) as producer:
        for _ in range(32):
            producer.send(Message(topic, bytes(MIB)))
    tracemalloc.start()
    try:
        for command, most in (("find", "--max"), ("tail", "--count")):
            tracemalloc.reset_peak()
            done = call("message", command, topic, most, "2", "--format", "{id}")
            assert len(done.out.split()) == 2
            assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()


def test_a_member_handles_one_message_once_more(call: Call, topic: str, broker: AnyBroker) -> None:
    group, seen = f"g-{topic}", list[bytes]()
    call("topic", "create", topic, "--queues", "1")
    call("produce", topic, "again")
    (found,) = call("message", "find", topic, "--json").document
    place = f"{topic}/{found['broker']}/0@0"
    done = call("message", "consume", place, "--group", group)
    assert (done.code, "no member of group" in done.err) == (1, True)

    def handle(messages: Sequence[ReceivedMessage]) -> None:
        seen.append(messages[0].body)
        if len(seen) > 2:
            raise ValueError("not again")

    consumer = PushConsumer(group, broker.namesrv_address, start_from=ConsumeFrom.FIRST)
    consumer.subscribe(topic, handler=handle)
    with consumer:
        eventually(lambda: seen, within_s=WITHIN_S, what="it is consumed")
        answer = call("message", "consume", place, "--group", group, "--json").document
        assert answer["result"] == "CR_SUCCESS"
        done = call("message", "consume", place, "--group", group, "--json")
    assert (done.code, done.document["result"]) == (1, "CR_THROW_EXCEPTION")
    assert done.document["remark"] == "ValueError: not again"
    assert seen == [b"again"] * 3


def test_the_bodies_of_one_answer_to_a_program_fit_into_its_room(
    topic: str, broker: AnyBroker
) -> None:
    with AdminClient(broker.namesrv_address) as admin:
        admin.create_topic(topic, queues=2)
    with Producer(broker.namesrv_address) as producer:
        for number in range(40):
            producer.send(Message(topic, b"x" * MIB, keys=("k",), tag=str(number)))
    newest = [str(number) for number in range(40)]

    def asked(name: str, **more: Any) -> Outcome:
        connection = Connection(broker.namesrv_address)
        return run(OPERATIONS[name], {"topic": topic, **more}, connection)

    eventually(
        lambda: asked("message.find", key="k").value, within_s=WITHIN_S, what="there is an index"
    )
    tracemalloc.start()
    try:
        found, tail = asked("message.find", max=64), asked("message.tail", count=40)
        # Eight of 1 MiB as bodies, as records and as JSON; all of them were 40 times each.
        assert tracemalloc.get_traced_memory()[1] < 48 * MIB
    finally:
        tracemalloc.stop()
    assert [row["tag"] for row in found.value] == newest[:8]
    assert "there may be more" in found.notes[0]
    assert [row["tag"] for row in tail.value] == newest[-8:]
    assert asked("message.find", max=4).notes == []


def test_a_tail_that_goes_on_is_one_object_per_line(
    start: Callable[..., Child], call: Call, topic: str
) -> None:
    call("produce", topic, "before")
    with start("message", "tail", topic, "-f", "--json") as child:
        assert json.loads(child.read_line(within_s=60))["body"] == "before"
        call("produce", topic, "behind")
        assert json.loads(child.read_line(within_s=60))["body"] == "behind"
