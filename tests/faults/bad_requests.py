"""Bad requests, made from the declared headers of all routes: a new code is swept by itself.

One field at a time is left out or holds what it cannot, is absurd or looks like a path; bodies are
no JSON, of another shape, deep, doubled or absurd at one place. Pure: headers in, requests out.
"""

from __future__ import annotations

import copy
import json
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args

import msgspec

from aerobee.broker.broker import Broker
from aerobee.remoting.wire.headers.admin import CloseClient
from aerobee.store.files.disk import Disk
from aerobee.store.files.system_clock import SystemClock
from tests.broker.desk import broker_config
from tests.faults.fuzz_values import changed_fields, changed_json
from tests.kit.raw_client import batch_body

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from aerobee.remoting.wire.header import Header

TOPIC, GROUP = "swept", "sweepers"
NEVER_MADE: Final = Path("never-made")
DIGITS: Final = re.compile(r"-?[0-9]+")

GOOD: Final[dict[str, object]] = {
    "topic": TOPIC, "b": TOPIC, "originTopic": TOPIC, "consumerGroup": GROUP, "group": GROUP,
    "groupName": GROUP, "srcGroup": GROUP, "destGroup": GROUP, "producerGroup": "makers",
    "a": "makers", "clientID": "c", "clientId": "c", "defaultTopic": "TBW102", "c": "TBW102",
    "defaultTopicQueueNums": 4, "d": 4, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6,
    "topicFilterType": "SINGLE_TAG", "maxMsgNums": 32, "sysFlag": 4, "subscription": "*",
    "invisibleTime": 10_000, "brokerName": "foreign", "brokerAddr": "10.0.0.1:1", "brokerId": 0,
    "clusterName": "foreign", "cluster": "foreign", "haServerAddr": "10.0.0.1:2", "key": "k",
    "namespace": "swept", "value": "v", "count": 1, "statsName": "TOPIC_PUT_NUMS", "f": 0,
    "commitOrRollback": 8,
}  # fmt: skip
"""By the name of a field; others are 0, false or a letter."""

NOT_NUMBERS: Final = ("x", "1.5", "", " ", "0x10", "--1", "9" * 400, "1\0", "1\n")
NUMBERS: Final = (-1, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, 2**63, -(2**63) - 1)
NOT_BOOLEANS: Final = ("maybe", "", "2", "x" * 1_000, "\0")
TEXTS: Final = (
    "", " ", "no-such", "../../x", "/etc/x", "..", "a/b", "a\\b", "a\0b", "a\nb", "a\x1b[2Jb",
    "thème", "\U0001f980", "\ud800", "x" * 300, "t;" * 30_000, "%RETRY%", "%RETRY%../x", "%DLQ%",
    "TBW102", "RMQ_SYS_TRANS_HALF_TOPIC", "$(touch x)", "{}", "null", "-1",
)  # fmt: skip
ABSURD: Final[tuple[Any, ...]] = (
    None, True, -1, 2**31, 2**63, 10**30, 1.5, 1e300, "", "x", "../../x", "a\0b", "\ud800",
    "x" * 300, [], [1], {}, {"a": 1}, {"$ref": "$"},
)  # fmt: skip

BODIES: Final[dict[str, bytes]] = {
    "none": b"",
    "no JSON": b"not JSON",
    "half of it": b'{"groupName":"sweep',
    "no UTF-8": b'{"groupName":"\xff\xfe"}',
    "a list": b"[]",
    "a number": b"5",
    "null": b"null",
    "a text": b'"text"',
    "deep": b"[" * 20_000,
    "deep and closed": b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
    "references": b'{"a":[{"$ref":"$"},{"$ref":"$.b"}],"b":{"$ref":"$.a[1]"}}',
    "a reference": b'{"groupName":{"$ref":"$"},"topic":{"$ref":"$.groupName"}}',
    "doubled keys": b'{"groupName":"a","groupName":"b","topic":"a","topic":5,"clientID":"a"}',
    "a huge number": b'{"groupName":"sweepers","retryMaxTimes":' + b"9" * 5_000 + b"}",
    "no number": b'{"groupName":"sweepers","retryMaxTimes":NaN,"brokerId":Infinity}',
    "odd keys": b'{{"a":1}:2,3:4,null:5,"groupName":"sweepers"}',
    "NUL": bytes(1_000),
    "properties": b"filterServerNums=1\nrocketmqHome=-c $@|sh . echo x;\nconfigStorePath=/x\n",
}  # fmt: skip

_CONFIG: Final = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicSysFlag": 0}
_TOPIC: Final = {
    "topicName": "made", "order": False, "topicFilterType": "SINGLE_TAG", "attributes": {},
    **_CONFIG,
}  # fmt: skip
_GROUP: Final = {
    "groupName": "made", "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16,
    "brokerId": 0, "whichBrokerWhenConsumeSlowly": 1, "consumeTimeoutMinute": 15, "groupSysFlag": 0,
    "groupRetryPolicy": {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1_000]}},
    "subscriptionDataSet": [{"topic": TOPIC}], "attributes": {"a": "b"},
}  # fmt: skip
_QUEUE: Final = {"brokerName": "b", "topic": TOPIC, "queueId": 0}
_CONSUMER: Final = {
    "groupName": GROUP, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False,
    "subscriptionDataSet": [{"topic": TOPIC, "subString": "A", "tagsSet": ["A"], "codeSet": [65],
                             "subVersion": 1, "expressionType": "TAG", "classFilterMode": False}],
}  # fmt: skip
DOCUMENTS: Final[dict[int, Any]] = {
    18: {"topicConfigList": [_TOPIC]},
    34: {"clientID": "c", "consumerDataSet": [_CONSUMER], "heartbeatFingerprint": 0,
         "producerDataSet": [{"groupName": "makers"}]},
    41: {"clientId": "c", "consumerGroup": GROUP, "mqSet": [_QUEUE]},
    42: {"clientId": "c", "consumerGroup": GROUP, "mqSet": [_QUEUE]},
    46: {"clientId": "c", "group": GROUP, "namespace": "",
         "subscriptionData": {"topic": TOPIC, "subString": "a > 1", "expressionType": "SQL92"}},
    103: {"filterServerList": [], "topicConfigSerializeWrapper": {
        "dataVersion": {"timestamp": 1, "counter": 1, "stateVersion": 0},
        "topicConfigTable": {"foreign": {**_TOPIC, "topicName": "foreign"}}}},
    200: _GROUP,
    225: {"groupConfigList": [_GROUP]},
    322: {"timestamp": 1, "counter": 1, "stateVersion": 0},
    400: {"topic": TOPIC, "consumerGroup": GROUP, "clientId": "c", "strategyName": "AVG",
          "messageModel": "CLUSTERING"},
    401: {"topic": TOPIC, "consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 0},
    200151: {"brokerName": "b", "acks": [{"c": GROUP, "t": TOPIC, "r": "0", "so": 0, "q": 0,
                                          "rq": 0, "pt": 1, "it": 1_000, "b": "AQ=="}]},
}  # fmt: skip
"""A good body of codes that take one; a new code has those of `BODIES` until it has a line here."""


class BadRequest(NamedTuple):
    """One request. `refused`: the field that a remark of SYSTEM_ERROR must name, or nothing.

    `closes`: its header is longer than any header may be.
    """

    what: str
    to_name_server: bool
    code: int
    fields: dict[str, object]
    body: bytes = b""
    refused: str = ""
    closes: bool = False


class Routed(NamedTuple):
    """A header of a route, the port it is asked on, and fields and body that are good."""

    kind: type[Header]
    to_name_server: bool
    fields: dict[str, object]
    body: bytes

    @property
    def code(self) -> int:
        """On the wire."""
        return int(self.kind.code)

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.code} {self.kind.__name__}{' at the name server' * self.to_name_server}"


@cache
def routed() -> tuple[Routed, ...]:
    """Every route of the broker's port, then of the name server's."""
    broker = Broker(broker_config(NEVER_MADE), disk=Disk(), clock=SystemClock())
    kinds = [(route.header, False) for route in broker.routes]
    kinds += [(route.header, True) for route in broker.namesrv.routes]
    return tuple(
        Routed(kind, to_name_server, good_fields(kind), good_body(int(kind.code)))
        for kind, to_name_server in kinds
    )


def good_fields(kind: type[Header]) -> dict[str, object]:
    """A value for each field that is required, or that `GOOD` has."""
    fields = {
        field.encode_name: GOOD.get(field.encode_name, plain(field.type))
        for field in msgspec.structs.fields(kind)
        if field.required or field.encode_name in GOOD
    }
    # A heartbeat of the sweep may have made its own connection that of the client "c".
    return fields | {"clientId": "nobody"} if kind is CloseClient else fields


def plain(kind: Any) -> object:
    """0, false or a letter."""
    leaves = set(_leaves(kind))
    return False if bool in leaves else 0 if int in leaves else "T"


def good_body(code: int) -> bytes:
    """What a body of that code may be."""
    if code == 320:
        return batch_body({b"one": "", b"two": ""})
    return json.dumps(DOCUMENTS[code]).encode() if code in DOCUMENTS else b"x"


def _leaves(kind: Any) -> Iterator[Any]:
    inner = get_args(kind)
    if not inner:
        yield kind
    for one in inner:
        yield from _leaves(one)


def every() -> Iterator[BadRequest]:
    """One fault at a time."""
    for one in routed():
        yield from _bad_fields(one)
        for what, body in BODIES.items():
            yield BadRequest(
                f"{one.name}: body {what}", one.to_name_server, one.code, one.fields, body
            )
        for path, document in _bad_documents(DOCUMENTS.get(one.code)):
            body = json.dumps(document).encode()
            what = f"{one.name}: body {path}"
            yield BadRequest(what, one.to_name_server, one.code, one.fields, body)


def _bad_fields(one: Routed) -> Iterator[BadRequest]:
    for field in msgspec.structs.fields(one.kind):
        name, leaves = field.encode_name, set(_leaves(field.type))
        without = {key: value for key, value in one.fields.items() if key != name}
        missing = name if field.required else ""
        yield _bad(one, f"no {name}", without, missing)
        if bool in leaves:
            for text in NOT_BOOLEANS:
                yield _bad(one, f"{name}={text[:20]!r}", {**one.fields, name: text})
        elif int in leaves:
            for value in (*map(str, NUMBERS), *NOT_NUMBERS):
                wrong = name if value.strip() and not _fits(field.type, value) else ""
                yield _bad(one, f"{name}={value[:20]!r}", {**one.fields, name: value}, wrong)
        else:
            for text in TEXTS:
                yield _bad(one, f"{name}={text[:20]!r}", {**one.fields, name: text})
            far_too_long = {**one.fields, name: "x" * (1 << 20)}
            yield _bad(one, f"{name} of a MiB", far_too_long)._replace(closes=True)


def _bad(one: Routed, what: str, fields: dict[str, object], refused: str = "") -> BadRequest:
    request = f"{one.name}: {what}"
    return BadRequest(request, one.to_name_server, one.code, fields, one.body, refused)


def _fits(kind: Any, text: str) -> bool:
    """Whether a number field takes it."""
    try:
        return bool(DIGITS.fullmatch(text)) and msgspec.convert(int(text), kind) is not None
    except (ValueError, msgspec.ValidationError):
        return False


def _bad_documents(document: Any) -> Iterator[tuple[str, Any]]:
    """The same document with one thing in it absurd, or gone, at each place."""
    for path in _paths(document):
        for value in ABSURD:
            new = copy.deepcopy(document)
            _node(new, path)[path[-1]] = value
            yield f"{path}={value!r:.30}", new
        new = copy.deepcopy(document)
        del _node(new, path)[path[-1]]
        yield f"{path} gone", new


def _paths(node: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    keys = (
        list(node) if isinstance(node, dict) else range(len(node) if isinstance(node, list) else 0)
    )
    for key in keys:
        yield (*above, key)
        yield from _paths(node[key], (*above, key))


def _node(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path[:-1]:
        document = document[key]
    return document


def any_of(rng: random.Random) -> BadRequest:
    """Several faults at once, in any request."""
    one = rng.choice(routed())
    fields = changed_fields(rng, one.fields) if rng.random() < 0.8 else one.fields
    body = rng.choice([one.body, rng.choice(list(BODIES.values()))])
    if one.code in DOCUMENTS and rng.random() < 0.8:
        body = changed_json(rng, DOCUMENTS[one.code])
    return BadRequest(f"{one.name}: anything", one.to_name_server, one.code, fields, body)
