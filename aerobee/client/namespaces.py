"""Namespaces of 4.x clients: in `ns`, `T` travels as `ns%T`, `%RETRY%G` as `%RETRY%ns%G`.

    fields and JSON of a request, names plain → Translation.request → names as brokers have them
    what arrives → Translation.arrived → plain names; of lists only what is in the namespace

So nothing inside a client knows of namespaces, but for what travels within texts that are not
looked into: records, and properties of messages. Names of the system are the same everywhere.
Source: client §5.8 (NamespaceUtil).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from aerobee.client.system_names import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_TOPICS
from aerobee.errors import ConfigurationError
from aerobee.remoting.errors import BodyError, HeaderError
from aerobee.remoting.wire import relaxed_json
from aerobee.remoting.wire.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.remoting.wire.command import Command

__all__ = ["INSTANCE_ID", "Translation", "check_plain", "plain", "wrapped"]

SEPARATOR = "%"
INSTANCE_ID = "INSTANCE_ID"
"""The property that names a message's namespace."""
SHARED_TOPICS = SYSTEM_TOPICS | {
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
    "RMQ_SYS_TRACE_TOPIC",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
}
SHARED_PREFIXES = ("rmq_sys_", "CID_RMQ_SYS_")


def wrapped(name: str, namespace: str | None) -> str:
    """A topic or group as brokers have it; one that bears the namespace already stays."""
    if not namespace or not name or shared(name):
        return name
    prefix, rest = divided(name)
    return name if in_namespace(rest, namespace) else f"{prefix}{namespace}{SEPARATOR}{rest}"


def plain(name: str, namespace: str | None) -> str:
    """A topic or group as users have it; one of another namespace stays."""
    if not namespace or shared(name):
        return name
    prefix, rest = divided(name)
    if not in_namespace(rest, namespace):
        return name
    return prefix + rest.removeprefix(f"{namespace}{SEPARATOR}")


def check_plain(kind: str, name: str, namespace: str | None) -> None:
    """Refuse a name that bears the client's namespace. Raises: ConfigurationError."""
    if (short := plain(name, namespace)) != name:
        raise ConfigurationError(
            f"{kind} {name}: a client in namespace {namespace} adds that by itself: write {short}"
        )


def shared(name: str) -> bool:
    """Whether a name is the system's, in all namespaces the same."""
    return name in SHARED_TOPICS or name.startswith(SHARED_PREFIXES)


def in_namespace(rest: str, namespace: str) -> bool:
    """Whether a name, its prefix taken off, bears the namespace."""
    return rest.startswith(f"{namespace}{SEPARATOR}")


def divided(name: str) -> tuple[str, str]:
    """`%RETRY%` or `%DLQ%`, if it begins with that, and the rest."""
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


# ── What travels ──

FIELDS = frozenset(
    ("topic", "originTopic", "group", "groupName", "consumerGroup", "producerGroup", "a", "b")
)
"""Header fields with names; `a` and `b` are group and topic of SEND_MESSAGE_V2."""
MEMBERS = frozenset(["topic", "group", "groupName", "consumerGroup", "t", "c"])
"""Members of JSON bodies with names; `t` and `c` are topic and group of acknowledgements."""
LISTS = frozenset(("topicList", "groupList"))
TABLES = frozenset(("subscriptionGroupTable", "data"))
"""Lists and tables of all that a broker has: of these a client sees its namespace."""
KEYED = frozenset(("subscriptionTable", "statusTable"))
"""Tables by topic."""
OPAQUE = frozenset(("properties", "attributes", "table"))
"""Tables of texts that mean nothing to a client."""
JSON_REQUESTS = frozenset(
    {
        RequestCode.HEART_BEAT,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.QUERY_ASSIGNMENT,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    }
)
"""Requests whose bodies are JSON with names; other bodies may be a user's JSON."""
JSON_BEGINS = (b"{", b"[")


@dataclass(frozen=True, slots=True)
class Translation:
    """The names of one namespace on all connections of a client."""

    namespace: str

    def request(
        self, code: int, fields: dict[str, str], body: bytes
    ) -> tuple[dict[str, str], bytes]:
        """The fields and the body of a request as brokers take them."""
        named = renamed_fields(fields, self._outward)
        return named, self._document(body, self._outward) if code in JSON_REQUESTS else body

    def answer(self, body: bytes) -> bytes:
        """The body of an answer of ours as brokers take it."""
        return self._document(body, self._outward)

    def arrived(self, command: Command) -> Command:
        """A request or an answer of a broker, with plain names."""
        if not command.is_response:
            try:
                command.ext = renamed_fields(command.ext_fields(), self._inward)
            except HeaderError:
                # Whoever reads the header says what is wrong with it.
                return command
        if command.is_response or command.code in JSON_REQUESTS:
            command.body = self._document(bytes(command.body), self._inward)
        return command

    def _outward(self, name: str) -> str | None:
        return wrapped(name, self.namespace)

    def _inward(self, name: str) -> str | None:
        """None for a name that is neither in the namespace nor the system's."""
        short = plain(name, self.namespace)
        return short if short != name or shared(name) else None

    def _document(self, body: bytes, rename: Rename) -> bytes:
        """A body, if it is JSON, with other names."""
        if not body.startswith(JSON_BEGINS):
            return body
        try:
            document = renamed(relaxed_json.decode(body), rename)
            return msgspec.json.encode(document, order="sorted")
        except (BodyError, OverflowError):
            # Whoever reads it says what is wrong with it.
            return body


if TYPE_CHECKING:
    Rename = Callable[[str], str | None]


def renamed_fields(fields: dict[str, str], rename: Rename) -> dict[str, str]:
    """Header fields with other names."""
    return {
        field: (rename(text) or text) if field in FIELDS else text for field, text in fields.items()
    }


def renamed(value: Any, rename: Rename) -> Any:
    """A JSON document with other names, wherever there are any."""
    if isinstance(value, list):
        return [renamed(one, rename) for one in value]
    if not isinstance(value, dict):
        return value
    made = {key: member(key, one, rename) for key, one in value.items()}
    if not any(key.startswith("{") for key in made):
        return made
    # Java wants queues as keys to be objects, not texts.
    entries = (
        b"%b:%b" % (msgspec.json.encode(renamed(relaxed_json.decode(key.encode()), rename)), item)
        for key, item in ((key, msgspec.json.encode(one)) for key, one in made.items())
    )
    return msgspec.Raw(b"{%b}" % b",".join(entries))


def member(key: str, value: Any, rename: Rename) -> Any:
    """What a member of a JSON object holds, with other names."""
    if key in MEMBERS and isinstance(value, str):
        return rename(value) or value
    if key in LISTS and isinstance(value, list):
        return [new for name in value if (new := rename(name)) is not None]
    if key in TABLES and isinstance(value, dict):
        found = {rename(name): renamed(one, rename) for name, one in value.items()}
        return {name: one for name, one in found.items() if name is not None}
    if key in KEYED and isinstance(value, dict):
        return {rename(name) or name: renamed(one, rename) for name, one in value.items()}
    return value if key in OPAQUE else renamed(value, rename)
