"""The rights matrix: every request code, every right held, names of others in every field.

The requests are made from the routes of broker and name server, so a new route, field or body fails
here until it is declared below what it names and which rights open it. What is declared is compared
with what the table of permissions and the authority decide together, for each request by itself. A
last test takes each check out of the table, one at a time, and wants the hole to be found.

What the gate cannot see, since the record has to be read first (the half of a transaction, a
message by its offset), is tested with the real process in `tests/faults/test_access.py`.
"""

from __future__ import annotations

import copy
import json
from functools import cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args

import msgspec
import pytest

from aerobee.broker.access.authority import AccessQuery
from aerobee.broker.access.permissions import PERMISSIONS, needs_of
from aerobee.broker.config.settings.auth import AuthConfig
from aerobee.broker.users.acls import Acls, checked
from aerobee.broker.users.directory import user_authority
from aerobee.broker.users.users import Users
from aerobee.remoting.server.routes import finished
from aerobee.remoting.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from aerobee.remoting.wire.codes import RequestCode
from tests.faults.bad_requests import DOCUMENTS, GROUP, TOPIC, Routed, routed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from aerobee.broker.access.authority import Authority
    from aerobee.broker.access.permissions import Row

RIGHTS: Final = {
    "P": "Pub", "S": "Sub", "C": "Create", "U": "Update", "D": "Delete", "G": "Get", "L": "List",
}  # fmt: skip
CLUSTER: Final = "C"
HERE: Final = ip_address("10.0.0.1")

NAMES_TOPIC: Final = frozenset({"topic", "b", "originTopic", "topicList", "topicName", "t"})
NAMES_GROUP: Final = frozenset(
    {"consumerGroup", "group", "groupName", "srcGroup", "destGroup", "c"}
)
NAMES_NOTHING: Final = {
    "__ZONE_NAME", "a", "accepted", "attemptId", "attributes", "bname", "boundaryType",
    "brokerAddr", "brokerName", "clientID", "clientId", "cluster", "clusterName",
    "consumeFromWhere",
    "consumeType", "dataVersion", "defaultTopic", "exp", "expType", "expressionType", "extraInfo",
    "filter", "haServerAddr", "i", "key", "masterAddress", "masterHaAddress",
    "messageModel", "mode", "msgId", "n", "namespace",
    "originMsgId", "policyType", "producerGroup", "properties", "proxyFrowardClientId", "r",
    "recallHandle", "resource", "resourceFilter", "statsKey", "statsName", "strategyName",
    "subject", "subjectFilter", "subscription", "subString", "topicFilterType", "transactionId",
    "type", "username", "value", "to", "master",
}  # fmt: skip
"""Fields that are texts and name neither a topic nor a group: producer groups are no resource, ids
and handles open nothing by themselves, and what is of a user or the cluster needs the cluster.
"""
OTHER_MEANING: Final = {
    (310, "c"), (320, "c"), (325, "c"),  # the topic whose settings a new one gets
    (200151, "b"), (200, "a"), (225, "a"),  # a bit set; an attribute
    (200, "topic"), (225, "topic"),  # what a tool thinks that the group subscribes to: not used
    (401, "topic"), (353, "topic"),  # a setting of the group for this topic gives no message
    (345, "topic"),  # what the group subscribes to of it
    (34, "producerDataSet"),
}  # fmt: skip
"""Code and field, or part of a body, where a name means something else."""

ON_NAMES: Final = {
    # Producers
    10: "P", 310: "P", 320: "P", 324: "P", 325: "P", 370: "P", 37: "P",
    # Consumers
    11: "S", 361: "S", 36: "S", 14: "SG", 15: "SU", 38: "SG", 41: "S", 42: "S", 200050: "S",
    200051: "S", 200151: "S", 200053: "S", 200052: "S", 200054: "S", 200055: "S", 400: "S",
    # All clients
    105: "PSG", 34: "S", 35: "S", 46: "S", 29: "SG", 30: "SG", 31: "SG", 32: "SG", 12: "SG",
    33: "SG",
    # Tools
    17: "C", 18: "C", 215: "D", 216: "D", 351: "G", 202: "G", 300: "G", 321: "G", 200: "C",
    225: "C", 207: "D", 352: "G", 353: "U", 401: "U", 222: "U", 314: "", 208: "G", 303: "G",
    343: "G", 345: "G", 203: "G", 307: "G", 309: "U",
}  # fmt: skip
"""Code → the rights of which one on every name in it is enough; "": it takes several at once."""
READ: Final = (
    21, 305, 204, 201, 43, 402, 328, 26, 28, 315, 317, 907, 45, 60, 61, 3004, 3005, 3009, 3010, 206,
    224, 304, 311, 312, 313, 901, 101, 219, 319, 1007,
)  # fmt: skip
CHANGE: Final = (
    25, 306, 316, 329, 3001, 3002, 3003, 3006, 3007, 3008, 100, 102, 318, 103, 104, 904, 322, 217,
    205, 327, 900001, 900002, 900003, 900004, 906, 908, 1008,
)  # fmt: skip
ON_CLUSTER: Final = {**dict.fromkeys(READ, "GL"), **dict.fromkeys(CHANGE, "U")}
"""Code → the rights of which one on the cluster is enough; no right on a name is."""
FREE: Final = {106}
"""Which brokers there are, for every account."""
UNNAMED: Final = {
    (37, "topic"): "the handler asks for the right on the half's own topic",
    (35, "consumerGroup"): "the connection leaves groups that it is in",
    (36, "originTopic"): "the handler wants the topic of the message to be one that was named",
    (14, "topic"): "no queue is found", (208, "topic"): "all topics that the group consumes",
    (208, "topicList"): "as without", (321, "consumerGroup"): "the queue alone",
    (309, "consumerGroup"): "there is no such group",
}  # fmt: skip
"""Code and name that may be absent, and why that opens nothing."""

THEIR_TOPICS: Final = (
    "theirs", f"{TOPIC} ", f"x{TOPIC}", TOPIC.upper(), f"%RETRY%{TOPIC}", "%RETRY%theirs",
    f"%RETRY%{GROUP}+theirs", f"%RETRY%theirs+{TOPIC}", f"%RETRY%{GROUP}_theirs",
    f"%RETRY%theirs_{TOPIC}", "%DLQ%theirs", f"%DLQ%{GROUP}", f"%LMQ%{TOPIC}", f"NS%{TOPIC}",
    "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC", "rmq_sys_wheel_timer", "rmq_sys_REVIVE_LOG_DefaultCluster",
    "RMQ_SYS_TRACE_TOPIC", "DefaultCluster_REPLY_TOPIC", "TBW102",
)  # fmt: skip
THEIR_GROUPS: Final = ("theirs", f"{GROUP} ", f"x{GROUP}", GROUP.upper(), f"{GROUP}_{TOPIC}", TOPIC)


class Place(NamedTuple):
    """Where a request names a topic or a group: a header field, or a path in its body."""

    field: str
    path: tuple[Any, ...] = ()

    @property
    def is_topic(self) -> bool:
        """Or a group."""
        return self.field in NAMES_TOPIC


class Request(NamedTuple):
    """One request as the gate gets it."""

    fields: Mapping[str, str]
    body: bytes


def names(rights: str) -> list[str]:
    return [RIGHTS[one] for one in rights]


@cache
def account(on_names: str, on_cluster: str) -> tuple[Authority, Any]:
    """A user with these rights on the own topic and group, and on the cluster."""
    users, acls = Users(lambda: 10), Acls(lambda: 100)
    users.create(UserInfo(username="ours", password="a-secret"))
    resources = [
        (resource, rights)
        for resource, rights in (
            (f"Topic:{TOPIC}", on_names),
            (f"Group:{GROUP}", on_names),
            (f"Cluster:{CLUSTER}", on_cluster),
        )
        if rights
    ]
    if resources:
        entries = [
            PolicyEntryInfo(
                resource=what, actions=[RIGHTS[one] for one in rights], decision="Allow"
            )
            for what, rights in resources
        ]
        policies = [PolicyInfo(policy_type="Custom", entries=entries)]
        wanted = AclInfo(subject="User:ours", policies=policies)
        acls.update("ours", finished(checked(wanted)))
    config = AuthConfig(authentication_enabled=True, authorization_enabled=True)
    authority = user_authority(users, acls, config)
    return authority, authority.account("ours")


ALL: Final = "".join(RIGHTS)


def is_served(code: int, row: Row, request: Request, on_names: str, on_cluster: str = "") -> bool:
    """Whether the gate lets a request of a user with these rights pass."""
    authority, user = account(on_names, on_cluster)
    needs = needs_of(row, request.fields, request.body, CLUSTER)
    return authority.objection(user, AccessQuery(code, needs, HERE)) is None


def leaves(kind: Any) -> Iterator[Any]:
    inner = get_args(kind)
    if not inner:
        yield kind
    for one in inner:
        yield from leaves(one)


def texts_of(one: Routed) -> list[str]:
    """The fields of its header that are texts."""
    fields = msgspec.structs.fields(one.kind)
    return [field.encode_name for field in fields if str in set(leaves(field.type))]


def texts_in(node: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of the named texts in a document."""
    keys: Any = node if isinstance(node, dict) else range(len(node))
    for key in keys:
        if isinstance(node[key], dict | list):
            yield from texts_in(node[key], (*above, key))
        elif isinstance(node[key], str) and isinstance(key, str):
            yield (*above, key)


def places_of(one: Routed) -> list[Place]:
    """Where it names topics and groups."""
    code = one.code
    found = [Place(field) for field in texts_of(one)]
    found += [Place(path[-1], path) for path in texts_in(DOCUMENTS.get(code, {}))]
    return [
        place
        for place in found
        if place.field in NAMES_TOPIC | NAMES_GROUP
        and not any((code, part) in OTHER_MEANING for part in (place.field, *place.path))
    ]


def request_of(one: Routed, place: Place | None = None, name: str | None = None) -> Request:
    """A request about the own topic and group, with another name, or none, at one place."""
    fields = {key: str(value) for key, value in one.fields.items()}
    if "topicList" in texts_of(one):
        fields["topicList"] = f"{TOPIC};"
    document = copy.deepcopy(DOCUMENTS.get(one.code))
    for path in texts_in(document or {}):
        own = TOPIC if path[-1] in NAMES_TOPIC else GROUP if path[-1] in NAMES_GROUP else None
        if own is not None:
            put(document, path, own)
    if place is not None and place.path:
        put(document, place.path, name)
    elif place is not None and name is None:
        fields.pop(place.field, None)
    elif place is not None:
        assert name is not None
        is_list = place.field == "topicList"
        fields[place.field] = f"{TOPIC};{name};" if is_list else name
    return Request(fields, one.body if document is None else json.dumps(document).encode())


def put(document: Any, path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        document = document[key]
    document[path[-1]] = value


def holes(one: Routed, row: Row) -> Iterator[str]:
    """What a request of this code may, with this row of the table, that it may not, or reversed."""
    code, own = one.code, request_of(one)
    if code in FREE:
        return
    on_names, on_cluster = ON_NAMES.get(code), ON_CLUSTER.get(code)
    for right in RIGHTS:
        if on_cluster is not None and is_served(code, row, own, "", right) != (right in on_cluster):
            yield f"{right} on the cluster"
        if on_names and is_served(code, row, own, right) != (right in on_names):
            yield f"{right} on the names"
    if is_served(code, row, own, ALL) != (on_names is not None):
        yield "all rights on the names"
    if is_served(code, row, own, ""):
        yield "no right"
    if on_names is None:
        return
    for place in places_of(one):
        for theirs in THEIR_TOPICS if place.is_topic else THEIR_GROUPS:
            if is_ours(one, place, theirs):
                continue
            if is_served(code, row, request_of(one, place, theirs), ALL):
                yield f"{theirs!r} at {place}"
        if not place.path and (code, place.field) not in UNNAMED:
            required = {field.encode_name for field in msgspec.structs.fields(one.kind)
                        if field.required}  # fmt: skip
            absent = place.field not in required
            if absent and is_served(code, row, request_of(one, place), ALL):
                yield f"no {place}"


def is_ours(one: Routed, place: Place, name: str) -> bool:
    """Whether a retry topic is that of the own group, or of the own group and topic in POP."""
    if one.code in (200051, 200053) and name == f"%RETRY%{GROUP}_{TOPIC}":
        return True
    return place.is_topic and name == f"%RETRY%{GROUP}"


@pytest.mark.parametrize("one", routed(), ids=lambda one: one.name)
def test_names_of_others_and_other_rights_open_nothing(one: Routed) -> None:
    assert not list(holes(one, PERMISSIONS[one.code]))


def test_every_route_and_every_text_is_declared() -> None:
    """S4: what is new fails here until somebody has said what it names and what opens it."""
    codes = {one.code for one in routed()}
    assert codes == ON_NAMES.keys() | ON_CLUSTER.keys() | FREE
    assert not ON_NAMES.keys() & ON_CLUSTER.keys()
    known = NAMES_TOPIC | NAMES_GROUP | NAMES_NOTHING
    for one in routed():
        named = set(texts_of(one)) | {path[-1] for path in texts_in(DOCUMENTS.get(one.code, {}))}
        unknown = {text for text in named - known if (one.code, text) not in OTHER_MEANING}
        assert not unknown, f"{one.name}: what does {unknown} name?"
        if PERMISSIONS[one.code].body is not None:
            assert one.code in DOCUMENTS, f"{one.name} has a body without an example"
    for code in ON_NAMES:
        assert any(places_of(one) for one in routed() if one.code == code), code


def without_one_check(row: Row) -> Iterator[tuple[str, Row]]:
    """The row with each of its checks left out, or weaker by itself."""
    for number, named in enumerate(row.named):
        rest = row.named[:number] + row.named[number + 1 :]
        yield named.field, row._replace(named=rest)
        if named.separator is not None:
            as_one = named._replace(separator=None, field="nothing")
            yield f"the list {named.field}", row._replace(named=(*rest, as_one))
    if row.body is not None:
        yield "body", row._replace(body=None)
    if row.cluster:
        yield "cluster", row._replace(cluster=frozenset())
    if row.unnamed:
        yield "unnamed", row._replace(unnamed=frozenset())


def test_each_check_that_is_left_out_is_a_hole_that_the_matrix_finds() -> None:
    """By mutation of the table: it does not pass whatever is checked."""
    checks = 0
    for one in routed():
        if one.code in FREE:
            continue
        for what, row in without_one_check(PERMISSIONS[one.code]):
            checks += 1
            assert any(True for _ in holes(one, row)), f"{RequestCode(one.code).name}: {what}"
    assert checks > len(PERMISSIONS)
