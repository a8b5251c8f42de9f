"""The table of permissions: a row for each route, and what each kind of request needs."""

from pathlib import Path
from typing import Any

import pytest

from aerobee.broker.access.permissions import PERMISSIONS, Action, Kind, Need, needs_of
from aerobee.broker.broker import Broker
from aerobee.remoting.errors import BodyError
from aerobee.remoting.wire.codes import RequestCode
from aerobee.remoting.wire.header import names_of
from aerobee.store.files.disk import Disk
from tests.broker.desk import broker_config
from tests.broker.peers import HandClock
from tests.rights import PAGE, page_with_table

SUB = frozenset({Action.SUB})


def test_the_page_has_the_table() -> None:
    assert PAGE.read_text("utf-8") == page_with_table(), "python -m tests.rights --write"


def test_each_route_of_broker_and_name_server_has_a_row(tmp_path: Path) -> None:
    """S4: a code without a row is refused, and this says which one was forgotten."""
    config = broker_config(tmp_path)
    routes = Broker(config, disk=Disk(), clock=HandClock()).routes
    headers = {int(route.header.code): route.header for route in routes}
    assert headers.keys() == PERMISSIONS.keys()
    for code, row in PERMISSIONS.items():
        wrong = {named.field for named in row.named} - set(names_of(headers[code]))
        assert not wrong, f"{RequestCode(code).name} has no fields {wrong}"
        asks = row.named or row.body or row.cluster
        assert asks or code == RequestCode.GET_BROKER_CLUSTER_INFO, "others ask for something"


def needs(code: RequestCode, fields: dict[str, str], body: bytes = b"") -> list[Any]:
    found = needs_of(PERMISSIONS[code], fields, body, "C")
    return [(need.kind.value, need.name, sorted(need.actions)) for need in found]


@pytest.mark.parametrize(
    ("code", "fields", "expected"),
    [
        (RequestCode.SEND_MESSAGE_V2, {"b": "t", "topic": "other"}, [("Topic", "t", ["Pub"])]),
        (RequestCode.SEND_MESSAGE, {"topic": "%RETRY%g"}, [("Group", "g", ["Sub"])]),
        (
            RequestCode.PULL_MESSAGE,
            {"topic": "%RETRY%h", "consumerGroup": "g"},
            [("Group", "h", ["Sub"]), ("Group", "g", ["Sub"])],
        ),
        (
            RequestCode.ACK_MESSAGE,
            {"topic": "%RETRY%g_t", "consumerGroup": "g"},
            [("Topic", "t", ["Sub"]), ("Group", "g", ["Sub"])],
        ),
        (
            RequestCode.ACK_MESSAGE,
            {"topic": "%RETRY%g+t", "consumerGroup": "g"},
            [("Topic", "t", ["Sub"]), ("Group", "g", ["Sub"]), ("Group", "g", ["Sub"])],
        ),
        (
            RequestCode.PULL_MESSAGE,
            {"topic": "%RETRY%g+t", "consumerGroup": "mine"},
            [("Topic", "t", ["Sub"]), ("Group", "g", ["Sub"]), ("Group", "mine", ["Sub"])],
        ),
        (
            RequestCode.PULL_MESSAGE,
            {"topic": "%RETRY%g_t", "consumerGroup": "g"},
            [("Group", "g_t", ["Sub"]), ("Group", "g", ["Sub"])],
        ),
        (
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            {"topic": "%RETRY%g"},
            [("Group", "g", ["Get", "Sub"])],
        ),
        (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "%RETRY%g"}, [("Group", "g", ["Delete"])]),
        (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "1"}, [("Cluster", "C", ["Get"])]),
        (RequestCode.VIEW_MESSAGE_BY_ID, {"topic": "t"}, [("Topic", "t", ["Get", "Sub"])]),
        (
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            {"consumerGroup": "g"},
            [("Group", "g", ["Update"]), ("Cluster", "C", ["Update"])],
        ),
        (
            RequestCode.PULL_MESSAGE,
            {"topic": "SCHEDULE_TOPIC_XXXX", "consumerGroup": "g"},
            [
                ("Topic", "SCHEDULE_TOPIC_XXXX", ["Sub"]),
                ("Group", "g", ["Sub"]),
                ("Cluster", "C", ["Get", "List"]),
            ],
        ),
        (RequestCode.UNREGISTER_CLIENT, {"producerGroup": "p"}, []),
        (RequestCode.UPDATE_BROKER_CONFIG, {}, [("Cluster", "C", ["Update"])]),
    ],
)
def test_fields_name_what_is_needed(
    code: RequestCode, fields: dict[str, str], expected: list[Any]
) -> None:
    assert needs(code, fields) == expected


def test_a_heartbeat_needs_each_group_and_each_topic() -> None:
    body = (
        b'{"clientID":"c","producerDataSet":[{"groupName":"p"}],"consumerDataSet":[{"groupName":'
        b'"g","subscriptionDataSet":[{"topic":"t"},{"topic":"%RETRY%g"}]},{"groupName":"h"}]}'
    )
    assert needs_of(PERMISSIONS[RequestCode.HEART_BEAT], {}, body, "C") == [
        Need(Kind.GROUP, "g", SUB),
        Need(Kind.TOPIC, "t", SUB),
        Need(Kind.GROUP, "g", SUB),
        Need(Kind.GROUP, "h", SUB),
    ]
    with pytest.raises(BodyError):
        needs_of(PERMISSIONS[RequestCode.HEART_BEAT], {}, b"[]", "C")


@pytest.mark.parametrize(
    ("code", "body", "expected"),
    [
        (
            RequestCode.LOCK_BATCH_MQ,
            b'{"clientId":"c","consumerGroup":"g","mqSet":'
            b'[{"brokerName":"b","queueId":0,"topic":"t"},{"brokerName":"b","queueId":1,"topic":"t"}]}',
            ["Group:g", "Topic:t"],
        ),
        (
            RequestCode.BATCH_ACK_MESSAGE,
            b'{"acks":[{"b":"","c":"g","it":1,"pt":1,"q":0,"rq":0,"so":0,"t":"t"}]}',
            ["Group:g", "Topic:t"],
        ),
        (
            RequestCode.QUERY_ASSIGNMENT,
            b'{"clientId":"c","consumerGroup":"g","topic":"t"}',
            ["Group:g", "Topic:t"],
        ),
        (
            RequestCode.CHECK_CLIENT_CONFIG,
            b'{"group":"g","subscriptionData":{"topic":"t"}}',
            ["Group:g", "Topic:t"],
        ),
        (
            RequestCode.SET_MESSAGE_REQUEST_MODE,
            b'{"consumerGroup":"g","topic":"t"}',
            ["Group:g"],
        ),
        (
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
            b'{"topicConfigList":[{"topicName":"t"},{"topicName":"u"}]}',
            ["Topic:t", "Topic:u"],
        ),
        (
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            b'{"groupName":"g"}',
            ["Group:g"],
        ),
        (
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
            b'{"groupConfigList":[{"groupName":"g"},{"groupName":"h"}]}',
            ["Group:g", "Group:h"],
        ),
    ],
)
def test_bodies_name_what_is_needed(code: RequestCode, body: bytes, expected: list[str]) -> None:
    assert [f"{kind}:{name}" for kind, name, _ in needs(code, {}, body)] == expected
