"""`aerobee dlq` against a real broker: what a group gave up is seen, and sent again once."""

from collections.abc import Iterator
from typing import Any

import pytest

from aerobee.blocking import AdminClient
from aerobee.client.system_names import is_system_group
from aerobee.errors import PermissionDeniedError
from tests.aerobee.cli.conftest import Call
from tests.conftest import AnyBroker
from tests.kit.raw_client import RawConnection, properties_text, send_fields
from tests.kit.waiting import eventually

pytestmark = pytest.mark.service

CONSUMER_SEND_MSG_BACK = 36
SEND = 310
PACKED = 1
"""The sysFlag bit of a body that is compressed."""
STRAIGHT_TO_THE_DEAD = -1
WITHIN_S = 30


@pytest.fixture
def connection(broker: AnyBroker) -> Iterator[RawConnection]:
    with RawConnection(broker.address) as connection:
        yield connection


@pytest.fixture(params=[""])
def space(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What stands before names on the wire."""
    prefix: str = request.param
    monkeypatch.setenv("AEROBEE_NAMESPACE", prefix.rstrip("%"))
    return prefix


def three_letters(call: Call, group: str) -> list[dict[str, Any]]:
    """The letters of a group, once the broker has all three."""

    def three() -> bool:
        done = call("dlq", "list", "--json")
        return [r["letters"] for r in done.document if r["group"] == group] == [3]

    eventually(three, within_s=WITHIN_S, what="three dead letters")
    found: list[dict[str, Any]] = call("dlq", "list", group, "--json").document
    return found


@pytest.fixture
def group(call: Call, connection: RawConnection, topic: str, space: str) -> str:
    """A group that gave up three messages."""
    group = f"g-{topic}"
    call("topic", "create", topic, "--queues", "1")
    call("group", "create", group)
    for number in range(3):
        given = ["--tag", "A", "--header", f"n={number}", "--priority", f"{number}"]
        call("produce", topic, f"{number}", *given)
    for number in range(3):
        give_up(call, connection, topic, number, space)
    return group


def give_up(call: Call, connection: RawConnection, topic: str, number: int, space: str) -> None:
    """Have the group give up one message of its topic."""
    (broker,) = call("cluster", "info", "--json").document
    place = f"{topic}/{broker['broker']}/0@{number}"
    found = call("message", "get", place, "--json").document
    offset = int(offset_of(call, place), 16)
    answer = connection.call(
        CONSUMER_SEND_MSG_BACK,
        {
            "group": f"{space}g-{topic}",
            "offset": offset,
            "delayLevel": STRAIGHT_TO_THE_DEAD,
            "originMsgId": found["message_id"],
            "originTopic": f"{space}{topic}",
        },
    )
    assert answer.code == 0, answer.remark


def offset_of(call: Call, place: str) -> str:
    """The physical offset at the end of a message's offset id."""
    lines = call("message", "get", place).out.splitlines()
    return next(line.split()[2] for line in lines if line.startswith("offset id"))[-16:]


@pytest.mark.parametrize("space", ["", "dead%"], indirect=True)
def test_dead_letters_are_listed_and_sent_again_once(call: Call, topic: str, group: str) -> None:
    assert [(row["origin"], row["tag"], row["done"]) for row in three_letters(call, group)] == [
        (topic, "A", False)
    ] * 3
    done = call("dlq", "redrive", group)
    assert done.out.endswith("3 letters would be sent again; --yes does it\n")
    assert call("message", "tail", topic, "--format", "body").out == "0\n1\n2\n"
    assert call("dlq", "redrive", group, "--max", "2", "--yes").out == "2 letters sent again\n"
    assert call("dlq", "redrive", group, "--yes").out == "1 letter sent again\n"
    assert call("dlq", "redrive", group, "--yes").out == "0 letters sent again\n"
    printed = call("message", "tail", topic, "--format", "{header.n}{body}").out
    assert sorted(printed.splitlines()) == ["00", "00", "11", "11", "22", "22"]
    printed = call("message", "tail", topic, "--format", "{header._SYS_MSG_PRIORITY_}{body}").out
    assert sorted(printed.splitlines()) == ["00", "00", "11", "11", "22", "22"]
    assert {row["done"] for row in call("dlq", "list", group, "--json").document} == {True}
    assert call("dlq", "list", group, "--open", "--json").document == []
    other = f"{topic}-other"
    done = call("dlq", "redrive", group, "--again", "--to-topic", other, "--yes", "--json")
    assert (done.document["sent"], done.document["failed"]) == (3, 0)
    assert {(row["to"], row["problem"]) for row in done.document["letters"]} == {(other, None)}
    assert len(call("message", "tail", other).out.splitlines()) == 3
    assert call("topic", "alter", f"%DLQ%{group}", "--perm", "w").code == 0
    done = call("dlq", "list", group)
    assert done.code == 1
    assert f"aerobee topic alter %DLQ%{group} --perm rw" in done.err


def test_a_redrive_leaves_no_group_that_is_listed_or_alarms_and_none_to_delete(
    call: Call, group: str
) -> None:
    three_letters(call, group)
    before = {row["group"] for row in call("group", "list", "--json").document}
    assert call("dlq", "redrive", group, "--yes").out == "3 letters sent again\n"
    assert {row["group"] for row in call("group", "list", "--json").document} == before
    groups = call("top", "--json").document["groups"]
    assert {row["group"] for row in groups} == before
    keeper = f"CID_RMQ_SYS_REDRIVE_{group}"
    assert is_system_group(keeper), "alerts pass by what has is_system=true"
    done = call("group", "delete", keeper, "--yes")
    assert (done.code, "would send all of them again" in done.err) == (1, True)
    assert call("dlq", "redrive", group, "--yes").out == "0 letters sent again\n"


def test_what_a_former_version_has_sent_again_is_not_sent_once_more(call: Call, group: str) -> None:
    """Its offsets were those of a group that was listed; the next run takes them over."""
    three_letters(call, group)
    former = f"aerobee_redrive_{group}"
    call("group", "create", former)
    assert call("group", "reset", former, f"%DLQ%{group}", "--to", "offset:2", "--yes").code == 0
    assert call("dlq", "redrive", group, "--yes").out == "1 letter sent again\n"
    assert former not in [row["group"] for row in call("group", "list", "--json").document]
    assert call("dlq", "redrive", group, "--yes").out == "0 letters sent again\n"


@pytest.mark.parametrize("space", ["", "dead%"], indirect=True)
def test_letters_are_picked_out_edited_and_dropped_each_once(
    call: Call, topic: str, group: str
) -> None:
    first, second, third = three_letters(call, group)
    refused = call("dlq", "drop", group, "--yes")
    assert (refused.code, "--all" in refused.err) == (2, True)
    assert call("dlq", "drop", group, "--id", second["place"]).out.endswith(
        "1 letter would be dropped\n"
    )
    done = call("dlq", "drop", group, "--id", second["place"], "--yes", "--json")
    assert [(row["place"], row["dropped"]) for row in done.document] == [(second["place"], True)]
    changes = ("--body", "mended", "--tag", "B", "--header", "n=9", "--yes")
    assert call("dlq", "edit", group, third["id"], *changes).code == 0
    again = call("dlq", "edit", group, third["id"], "--body", "x", "--yes")
    assert (again.code, "not done with" in again.err) == (1, True)
    states = {row["place"]: row["done"] for row in call("dlq", "list", group, "--json").document}
    assert states == {first["place"]: False, second["place"]: True, third["place"]: True}
    assert call("dlq", "redrive", group, "--tag", "none", "--yes").out == "0 letters sent again\n"
    assert call("dlq", "redrive", group, "--yes").out == "1 letter sent again\n"
    assert call("dlq", "redrive", group, "--yes").out == "0 letters sent again\n"
    printed = call("message", "tail", topic, "--format", "{header.n}{body}{tag}").out
    assert sorted(printed.splitlines()) == ["00A", "00A", "11A", "22A", "9mendedB"]
    assert call("dlq", "drop", group, "--all").out.endswith("0 letters would be dropped\n")


def test_marks_of_letters_go_when_all_before_them_are_done(call: Call, group: str) -> None:
    first, second, _ = three_letters(call, group)

    def marks() -> int:
        kept = call("cluster", "kv", "list", "AEROBEE_DLQ", "--json").document
        return sum(row["key"].startswith(f"{group}/") for row in kept)

    for letter in (first, second):
        call("dlq", "drop", group, "--id", letter["id"], "--yes")
    assert marks() == 2
    assert call("dlq", "redrive", group, "--yes").out == "1 letter sent again\n"
    assert marks() == 0


def test_a_group_without_letters_is_no_error_and_an_unknown_one_is(call: Call, topic: str) -> None:
    call("group", "create", f"g-{topic}")
    assert call("dlq", "list", f"g-{topic}", "--json").document == []
    assert call("dlq", "redrive", f"g-{topic}").out == f"group g-{topic} has no dead letters\n"
    for what in ("list", "redrive"):
        done = call("dlq", what, "nobody")
        assert (done.code, done.err) == (1, "aerobee: no broker knows group nobody\n")


def test_a_letter_that_fails_stays_and_the_others_are_sent(
    call: Call, connection: RawConnection, topic: str, group: str
) -> None:
    """The fourth does not say where it came from: the fifth behind it does not pass it by."""
    three_letters(call, group)
    letters = f"%DLQ%{group}"
    assert call("produce", letters, "stray").code == 0
    give_up(call, connection, topic, 0, "")

    def five() -> bool:
        return len(call("dlq", "list", group, "--json").document) == 5

    eventually(five, within_s=WITHIN_S, what="five letters")
    done = call("dlq", "redrive", group, "--yes", "--json")
    assert done.code == 1
    assert (done.document["sent"], done.document["failed"]) == (4, 1)
    failed = [row for row in done.document["letters"] if row["problem"]]
    assert all("does not say where it came from" in row["problem"] for row in failed)
    open_ones = {row["place"] for row in call("dlq", "list", group, "--open", "--json").document}
    assert open_ones == {row["place"] for row in failed}
    again = call("dlq", "redrive", group, "--yes")
    assert (again.code, again.out) == (1, "0 letters sent again, 1 failed\n")
    assert failed[0]["place"] in again.err
    assert call("dlq", "redrive", group, "--to-topic", topic, "--yes").code == 0
    assert call("dlq", "list", group, "--open", "--json").document == []


@pytest.mark.parametrize("chosen", [("redrive", "--tag", "A"), ("edit", "--body", "new")])
def test_no_letter_is_sent_for_whose_mark_there_is_no_room(
    call: Call, topic: str, group: str, monkeypatch: pytest.MonkeyPatch, chosen: tuple[str, ...]
) -> None:
    """It would be sent by every run anew."""
    first, second, _ = (row["place"] for row in three_letters(call, group))
    monkeypatch.setattr("aerobee.cli.dead_letters.MARKS_MAX", 1)
    assert call("dlq", "redrive", group, "--id", first, "--yes").code == 0
    what, *options = chosen
    named = [second] if what == "edit" else []
    for _ in range(2):
        done = call("dlq", what, group, *named, *options, "--yes")
        assert done.code == 1
        assert "1 letters are marked one by one" in done.err
    assert len(call("message", "tail", topic, "--format", "body").out.splitlines()) == 4
    assert call("dlq", "redrive", group, "--yes").out == "2 letters sent again\n"


@pytest.mark.parametrize(("step", "sent"), [("create_group", 2), ("reset_offsets", 1)])
def test_a_letter_whose_mark_is_refused_is_not_sent_or_it_is_said(
    call: Call,
    topic: str,
    group: str,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    sent: int,
) -> None:
    """Where no offset can be kept, those behind the first are marked one by one."""
    first, *_ = (row["place"] for row in three_letters(call, group))

    def refuse(*_: object, **__: object) -> None:
        raise PermissionDeniedError(16, "not for this account", "broker", "127.0.0.1:1", "one")

    with monkeypatch.context() as patched:
        patched.setattr(AdminClient, step, refuse)
        done = call("dlq", "redrive", group, "--yes")
    assert done.code == 1
    assert "not for this account" in done.err
    told = f"the letter at {first} is sent, and is not marked as done"
    assert (told in done.err) == (step == "reset_offsets")
    bodies = call("message", "tail", topic, "--format", "body").out.splitlines()
    assert len(bodies) == 3 + sent


def test_a_letter_that_cannot_be_unpacked_keeps_none_of_the_others_waiting(
    call: Call, connection: RawConnection, topic: str, group: str
) -> None:
    """Its client said that the body is compressed, and it is not: so consumers gave it up."""
    three_letters(call, group)
    named = properties_text(UNIQ_KEY="IDraw", DLQ_ORIGIN_TOPIC=topic)
    fields = send_fields(f"%DLQ%{group}", 0, f=PACKED, i=named)
    assert connection.call(SEND, fields, b"not packed").code == 0
    give_up(call, connection, topic, 0, "")

    def five() -> bool:
        return len(call("dlq", "list", group, "--json").document) == 5

    eventually(five, within_s=WITHIN_S, what="five letters")
    done = call("dlq", "redrive", group, "--yes", "--json")
    assert (done.code, done.document["sent"], done.document["failed"]) == (1, 4, 1)
    (failed,) = [row for row in done.document["letters"] if row["problem"]]
    assert "does not unpack" in failed["problem"]
    (left,) = call("dlq", "list", group, "--open", "--json").document
    assert (left["place"], left["id"]) == (failed["place"], "IDraw")
    done = call("dlq", "edit", group, "IDraw", "--tag", "new", "--yes")
    assert done.code == 1
    assert "does not unpack" in done.err
    assert call("dlq", "edit", group, "IDraw", "--body", "mended", "--yes").code == 0
    bodies = call("message", "tail", topic, "--format", "body").out.splitlines()
    assert sorted(bodies) == ["0", "0", "0", "1", "1", "2", "2", "mended"]
    assert call("dlq", "list", group, "--open", "--json").document == []
