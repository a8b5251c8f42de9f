"""What is the matter with a group, for what cannot be waited for or brought about in a test."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from aerobee.admin import (
    GroupSubscription,
    QueueBounds,
    QueueLag,
    RunningInfo,
    RunningQueue,
    TopicConfig,
)
from aerobee.client.send_result import MessageQueue
from aerobee.client.steps.admin.group_findings import diagnosis_of
from aerobee.client.steps.admin.group_look import GroupLook
from aerobee.diagnosis import Severity
from aerobee.errors import BrokerError, PermissionDeniedError
from aerobee.remoting.wire.bodies.client import SubscriptionData
from aerobee.remoting.wire.bodies.statistics import Connection, ConsumerConnection

NOW_S = 1_700_000_000
TOPIC = "Orders"
QUEUES = [MessageQueue(TOPIC, "b", number) for number in range(2)]


def ago(seconds: float) -> datetime:
    return datetime.fromtimestamp(NOW_S - seconds, UTC)


def held(number: int, **changed: Any) -> RunningQueue:
    said: dict[str, Any] = {
        "queue": QUEUES[number],
        "commit_offset": 0,
        "cached_messages": 0,
        "cached_mib": 0,
        "locked": False,
        "dropped": False,
        "last_pulled_at": ago(1),
        "last_consumed_at": ago(1),
    }
    return RunningQueue(**{**said, **changed})


def account(client: str, queues: Sequence[RunningQueue], **properties: str) -> RunningInfo:
    return RunningInfo(
        group="g",
        client_id=client,
        properties=properties,
        subscriptions=[GroupSubscription(topic=TOPIC, expression="*")],
        queues=queues,
        topics=[],
        stacks=None,
    )


def looked(
    *accounts: RunningInfo, at: int = 5, first: int = 0, version: int = 493, perm: int = 6
) -> GroupLook:
    """A group at offset `at` of two queues with 10 messages each, and these members."""
    look = GroupLook("g", NOW_S * 1000)
    connections = [
        Connection(f"10.0.0.{number}:1", info.client_id, "JAVA", version - number)
        for number, info in enumerate(accounts)
    ]
    subscription = {TOPIC: SubscriptionData(topic=TOPIC)}
    look.connections["b"] = ConsumerConnection(
        connections, "CONSUME_FROM_LAST_OFFSET", "CONSUME_PASSIVELY", "CLUSTERING", subscription
    )
    look.infos = {info.client_id: info for info in accounts}
    look.topics = {TOPIC: [TopicConfig(broker="b", read_queues=2, write_queues=2, perm=perm)]}
    for queue in QUEUES:
        look.bounds[queue] = QueueBounds(queue=queue, first=first, end=10, last_stored_at=None)
        look.offsets[queue] = QueueLag(
            queue=queue, broker_offset=10, consumer_offset=at, in_flight=0, last_consumed_at=None
        )
    return look


def kinds(look: GroupLook) -> dict[str, Severity]:
    found = diagnosis_of(look, 30.0)
    assert all(one.text and one.advice for one in found.findings)
    return {one.kind: one.severity for one in found.findings}


def test_members_that_share_all_queues_and_pull_are_well() -> None:
    assert kinds(looked(account("a", [held(0)]), account("c", [held(1)]), version=493)) == {
        "versions_differ": Severity.NOTE
    }
    assert kinds(looked(account("a", [held(0), held(1)]))) == {}


@pytest.mark.parametrize(
    ("look", "kind", "severity"),
    [
        (
            looked(account("a", [held(0), held(1, last_pulled_at=ago(90))])),
            "not_pulling",
            Severity.ERROR,
        ),
        (
            looked(account("a", [held(0), held(1, cached_messages=5, last_consumed_at=ago(31))])),
            "slow_handler",
            Severity.ERROR,
        ),
        (looked(account("a", [held(0)])), "queue_without_owner", Severity.ERROR),
        (
            looked(account("a", [held(0)], PROP_CONSUMER_START_TIMESTAMP=f"{NOW_S - 5}000")),
            "rebalancing",
            Severity.WARNING,
        ),
        (
            looked(account("a", [held(0)], PROP_CONSUMEORDERLY="true")),
            "lock_not_granted",
            Severity.ERROR,
        ),
        (
            looked(account("a", [held(0), held(1)], PROP_CONSUMEORDERLY="true")),
            "lock_not_granted",
            Severity.ERROR,
        ),
        (
            looked(account("a", [held(0), held(1)]), account("c", [held(1)])),
            "queue_with_several_owners",
            Severity.WARNING,
        ),
        (
            looked(
                account("a", [held(0)], strategy="AVG"),
                account("c", [held(1)], allocateMessageQueueStrategy="x.y.ByRoom@1f"),
            ),
            "strategies_differ",
            Severity.ERROR,
        ),
        (
            looked(account("a", [held(0), held(1)]), at=11),
            "offset_beyond_end",
            Severity.ERROR,
        ),
        (
            looked(account("a", [held(0), held(1)]), at=5, first=8),
            "messages_expired",
            Severity.WARNING,
        ),
        (looked(account("a", [held(0), held(1)]), perm=2), "topic_not_readable", Severity.ERROR),
    ],
)
def test_what_is_wrong_is_found(look: GroupLook, kind: str, severity: Severity) -> None:
    assert kinds(look)[kind] is severity


def test_java_and_we_name_the_same_strategy_differently() -> None:
    java = "org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely@4f"
    look = looked(
        account("a", [held(0)], strategy="AVG"),
        account("c", [held(1)], allocateMessageQueueStrategy=java),
    )
    assert "strategies_differ" not in kinds(look)


def test_one_client_id_at_two_addresses_is_two_members_that_do_not_know_it() -> None:
    look = looked(account("a", [held(0), held(1)]))
    (one,) = look.connections["b"].connection_set
    look.connections["b"].connection_set.append(
        Connection("10.0.0.9:1", one.client_id, one.language, one.version)
    )
    assert kinds(look) == {"client_id_twice": Severity.ERROR}


def test_brokers_and_members_that_do_not_answer_are_found() -> None:
    look = looked(account("a", [held(0)]))
    look.silent["a"] = "timed out"
    look.unreachable["c"] = "nobody there"
    look.unreadable.append("b")
    look.forbidden.append((TOPIC, "b"))
    found = kinds(look)
    assert found.keys() >= {"member_silent", "broker_unreachable", "broker_not_readable"}
    assert found["topic_forbidden"] is Severity.ERROR
    assert "queue_without_owner" not in found, "its owner may be the one that did not answer"


def test_slaves_of_a_master_that_is_away_are_read_and_are_not_denied() -> None:
    look = looked()
    look.unreachable["c"] = "broker c has no master now"
    texts = [one.text for one in diagnosis_of(look, 30.0).findings]
    assert any("nothing is consumed from it, unless from a slave:" in text for text in texts)


def test_a_broker_that_refuses_is_not_said_to_be_silent() -> None:
    look = looked()
    look.connections.clear()
    look.refusing["b"] = PermissionDeniedError(16, "no right", "broker b", "10.0.0.1:10911", "ASK")
    look.refusing["c"] = BrokerError(1, "null pointer", "broker c", "10.0.0.2:10911", "ASK")
    found = kinds(look)
    assert found.keys() >= {"broker_forbidden", "broker_failing"}
    assert not found.keys() & {"broker_unreachable", "nobody_online", "topic_missing"}


def test_an_advice_is_one_command_whatever_the_name_of_the_group() -> None:
    look = looked(account("a", [held(0), held(1)]), at=11)
    look.group, look.dead_letters = "g|reboot", 3
    advice = " ".join(one.advice for one in diagnosis_of(look, 30.0).findings)
    assert advice.count("g|reboot") == advice.count(" 'g|reboot'") == 3
