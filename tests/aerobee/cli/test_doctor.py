"""`aerobee group doctor` of groups that stand still, each for a reason of its own."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from aerobee.blocking import ConsumeFrom, MessageModel, PushConsumer
from aerobee.client.steps.admin.clients import SILENT_MAX
from tests.aerobee.cli.conftest import Call, Done, environment
from tests.conftest import AnyBroker
from tests.kit.crowd import HEART_BEAT, Member, heartbeat_body
from tests.kit.process import Child
from tests.kit.raw_client import RawConnection
from tests.kit.waiting import eventually

pytestmark = pytest.mark.service

WITHIN_S = 20.0
IN_ORDER = """
import sys, threading
from aerobee.blocking import ConsumeFrom, PushConsumer
consumer = PushConsumer(sys.argv[1], orderly=True, start_from=ConsumeFrom.FIRST)
consumer.subscribe(sys.argv[2], handler=lambda messages: print("has it", flush=True))
consumer.start()
threading.Event().wait()
"""


@pytest.fixture
def group(call: Call, topic: str) -> str:
    """A group without members, and its topic with 3 messages in one queue."""
    done = call("topic", "create", topic, "--queues", "1")
    assert done.code == 0, done.err
    call("group", "create", f"g-{topic}")
    call("produce", topic, "x", "--count", "3")
    return f"g-{topic}"


@pytest.fixture
def consume(broker: AnyBroker) -> Iterator[Callable[..., PushConsumer]]:
    """Start a member of a group."""
    started: list[PushConsumer] = []

    def consume(
        group: str, topic: str, handler: Any = None, expression: str = "*", **options: Any
    ) -> PushConsumer:
        consumer = PushConsumer(
            group,
            broker.namesrv_address,
            start_from=ConsumeFrom.FIRST,
            drain_timeout=0.1,
            **{"heartbeat_interval": 1.0, **options},
        )
        consumer.subscribe(topic, expression, handler=handler or len)
        consumer.start()
        started.append(consumer)
        return consumer

    yield consume
    for one in started:
        one.close()


def found(done: Done) -> dict[str, dict[str, Any]]:
    """The findings by kind."""
    return {one["kind"]: one for one in done.document["findings"]}


def until_found(call: Call, kind: str, *arguments: str) -> Done:
    """Ask the doctor until it names that kind."""

    def ask() -> Done | None:
        done = call("group", "doctor", *arguments, "--json")
        # A group whose first member has not registered yet is none.
        return done if done.out and kind in found(done) else None

    answer = eventually(ask, within_s=WITHIN_S, what=kind)
    assert answer is not None
    return answer


def test_a_group_that_nobody_consumes_stands_still(call: Call, topic: str, group: str) -> None:
    call("group", "reset", group, topic, "--to", "offset:1", "--yes")
    done = call("group", "doctor", group, "--json")
    assert (done.code, done.document["lag"], done.document["moves"]) == (1, 2, False)
    assert found(done)["nobody_online"]["severity"] == "error"
    text = call("group", "doctor", group).out
    assert "no member of the group is connected, and 2 messages wait" in text
    assert "to do: start a consumer" in text
    done = call("group", "doctor", "g-of-nobody")
    assert (done.code, done.err) == (1, "aerobee: no broker knows group g-of-nobody\n")


def test_a_group_that_has_consumed_everything_is_well(
    call: Call, topic: str, group: str, consume: Callable[..., PushConsumer]
) -> None:
    consume(group, topic, commit_interval=1.0)

    def well() -> Done | None:
        done = call("group", "doctor", group, "--json")
        return done if done.document["queues"] and not done.document["lag"] else None

    done = eventually(well, within_s=WITHIN_S, what="all is consumed")
    assert done is not None
    assert (done.code, found(done)) == (0, {})
    (queue,) = [one for one in done.document["queues"] if one["queue"]["topic"] == topic]
    (member,) = done.document["members"]
    assert (queue["owners"], queue["consumer_offset"]) == ([member["client_id"]], 3)
    assert queue["pulled_at"] is not None
    assert "nothing is wrong" in call("group", "doctor", group).out


def test_members_that_hang_are_waited_for_a_few_times_only(
    call: Call, topic: str, group: str, broker: AnyBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are registered and answer nothing, as a process does that is stopped."""
    monkeypatch.setattr("aerobee.client.steps.admin.group_look.MEMBER_S", 0.2)
    with ExitStack() as connected:
        for number in range(SILENT_MAX + 2):
            client = connected.enter_context(RawConnection(broker.address))
            member = Member(f"hung-{number}", group, topic)
            assert client.call(HEART_BEAT, {}, heartbeat_body(member)).code == 0
        done = call("group", "doctor", group, "--json")
    assert "2 members were not asked" in str(done.document), done.document


def test_a_stuck_handler_is_named_with_what_its_threads_do(
    call: Call, topic: str, group: str, consume: Callable[..., PushConsumer]
) -> None:
    free = threading.Event()
    try:
        consume(group, topic, lambda _: free.wait(WITHIN_S), concurrency=1)
        done = until_found(call, "slow_handler", group, "--slow-after", "0.3")
        assert done.code == 1
        slow = found(done)["slow_handler"]
        assert slow["severity"] == "error"
        assert (
            slow["queues"] == [{"topic": topic, "broker_name": "broker-a", "queue_id": 0}]
            or (slow["queues"])
        )
        assert "holds 3 messages" in slow["text"]
        text = call("group", "doctor", group, "--slow-after", "0.3", "--stacks").out
        assert "free.wait(WITHIN_S)" in text
    finally:
        free.set()


def test_a_lock_that_a_crashed_member_left_behind_is_found(
    call: Call,
    topic: str,
    group: str,
    broker: AnyBroker,
    consume: Callable[..., PushConsumer],
    tmp_path: Path,
) -> None:
    crashed = Child(
        [sys.executable, "-c", IN_ORDER, group, topic],
        log=tmp_path / "crashed",
        env=environment(broker.namesrv_address),
    )
    crashed.read_until("has it", within_s=WITHIN_S)
    crashed.kill()
    call("produce", topic, "more")
    consume(group, topic, orderly=True)
    done = until_found(call, "lock_not_granted", group)
    assert done.code == 1
    assert (
        "consumes in order, and no member has the lock" in found(done)["lock_not_granted"]["text"]
    )
    assert any("who holds the lock" in one for one in done.document["unknown"])


def test_members_that_want_different_things_are_found(
    call: Call, topic: str, group: str, consume: Callable[..., PushConsumer]
) -> None:
    consume(group, topic, expression="paid")
    consume(group, topic, expression="sent")
    done = until_found(call, "subscriptions_differ", group)
    finding = found(done)["subscriptions_differ"]
    assert done.code == 1
    assert finding["severity"] == "error"
    assert sorted(finding["members"]) == [one["client_id"] for one in done.document["members"]]
    assert "'paid'" in finding["text"]
    assert "'sent'" in finding["text"]


def test_what_settings_forbid_is_found(
    call: Call, topic: str, group: str, consume: Callable[..., PushConsumer]
) -> None:
    call("topic", "alter", topic, "--perm", "w", "--yes")
    call("group", "create", group, "--disabled")
    call("group", "reset", group, topic, "--to", "offset:1", "--yes")
    consume(group, topic)
    done = until_found(call, "topic_not_readable", group)
    assert {"consumption_disabled", "topic_not_readable"} <= found(done).keys()
    call("group", "create", group)


def test_dead_letters_and_broadcasting_are_found_and_stop_nothing(
    call: Call, topic: str, group: str, consume: Callable[..., PushConsumer]
) -> None:
    def reject(_: object) -> None:
        raise ValueError("no")

    consume(group, topic, reject, max_reconsume=0)
    done = until_found(call, "dead_letters", group)
    assert found(done)["dead_letters"]["severity"] == "warning"
    consume(f"{group}-all", topic, model=MessageModel.BROADCASTING)
    done = until_found(call, "broadcasting", f"{group}-all")
    assert done.code == 0
