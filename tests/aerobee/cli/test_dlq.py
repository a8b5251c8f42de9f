"""`aerobee dlq` against a real broker: what a group gave up is seen, and sent again once."""

from collections.abc import Iterator

import pytest

from tests.aerobee.cli.conftest import Call
from tests.conftest import AnyBroker
from tests.kit.raw_client import RawConnection
from tests.kit.waiting import eventually

pytestmark = pytest.mark.service

CONSUMER_SEND_MSG_BACK = 36
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


@pytest.fixture
def group(call: Call, connection: RawConnection, topic: str, space: str) -> str:
    """A group that gave up three messages."""
    group = f"g-{topic}"
    call("topic", "create", topic, "--queues", "1")
    call("group", "create", group)
    for number in range(3):
        call("produce", topic, f"{number}", "--tag", "A", "--header", f"n={number}")
    for number in range(3):
        (broker,) = call("cluster", "info", "--json").document
        place = f"{topic}/{broker['broker']}/0@{number}"
        found = call("message", "get", place, "--json").document
        offset = int(offset_of(call, place), 16)
        answer = connection.call(
            CONSUMER_SEND_MSG_BACK,
            {
                "group": f"{space}{group}",
                "offset": offset,
                "delayLevel": STRAIGHT_TO_THE_DEAD,
                "originMsgId": found["message_id"],
                "originTopic": f"{space}{topic}",
            },
        )
        assert answer.code == 0, answer.remark
    return group


def offset_of(call: Call, place: str) -> str:
    """The physical offset at the end of a message's offset id."""
    lines = call("message", "get", place).out.splitlines()
    return next(line.split()[2] for line in lines if line.startswith("offset id"))[-16:]


@pytest.mark.parametrize("space", ["", "dead%"], indirect=True)
def test_dead_letters_are_listed_and_sent_again_once(call: Call, topic: str, group: str) -> None:
    def three() -> bool:
        done = call("dlq", "list", "--json")
        return [r["letters"] for r in done.document if r["group"] == group] == [3]

    eventually(three, within_s=WITHIN_S, what="three dead letters")
    done = call("dlq", "list", group, "--json")
    assert done.code == 0, done.err
    assert [(row["origin"], row["tag"]) for row in done.document] == [(topic, "A")] * 3
    done = call("dlq", "redrive", group)
    assert done.out.endswith("3 letters would be sent again; --yes does it\n")
    assert call("message", "tail", topic, "--format", "body").out == "0\n1\n2\n"
    assert call("dlq", "redrive", group, "--max", "2", "--yes").out == "2 letters sent again\n"
    assert call("dlq", "redrive", group, "--yes").out == "1 letters sent again\n"
    assert call("dlq", "redrive", group, "--yes").out == "0 letters sent again\n"
    printed = call("message", "tail", topic, "--format", "{header.n}{body}").out
    assert sorted(printed.splitlines()) == ["00", "00", "11", "11", "22", "22"]
    other = f"{topic}-other"
    done = call("dlq", "redrive", group, "--again", "--to-topic", other, "--yes", "--json")
    assert done.document == {"sent": 3}
    assert len(call("message", "tail", other).out.splitlines()) == 3
    assert call("topic", "alter", f"%DLQ%{group}", "--perm", "w").code == 0
    done = call("dlq", "list", group)
    assert done.code == 1
    assert f"aerobee topic alter '%DLQ%{group}' --perm rw" in done.err


def test_a_group_without_letters_is_no_error_and_an_unknown_one_is(call: Call, topic: str) -> None:
    call("group", "create", f"g-{topic}")
    assert call("dlq", "list", f"g-{topic}", "--json").document == []
    assert call("dlq", "redrive", f"g-{topic}").out == f"group g-{topic} has no dead letters\n"
    for what in ("list", "redrive"):
        done = call("dlq", what, "nobody")
        assert (done.code, done.err) == (1, "aerobee: no broker knows group nobody\n")
