"""Namespaces of 4.x clients: in `ns`, `T` is sent as `ns%T`, `%RETRY%G` as `%RETRY%ns%G`.

    fields and JSON of a request, plain names → Translation.request → names with the namespace
    received commands → Translation.arrived → plain names; lists only with names of the namespace

So the rest of a client needs no namespaces, except for data that is not parsed here: records, and
properties of messages. System names are the same in all namespaces.
Source: client §5.8 (NamespaceUtil).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from aerobee.client.system_names import SYSTEM_TOPICS
from aerobee.errors import ConfigurationError
from aerobee.remoting.errors import BodyError, HeaderError
from aerobee.remoting.wire import relaxed_json
from aerobee.remoting.wire.codes import RequestCode
from aerobee.store.format.system_names import (
    DLQ_PREFIX,
    HALF_TOPIC,
    OP_TOPIC,
    OWN_TOPIC_PREFIX,
    RETRY_PREFIX,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    SYSTEM_GROUP_PREFIX,
    TRACE_TOPIC,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.remoting.wire.command import Command

SEPARATOR = "%"
INSTANCE_ID = "INSTANCE_ID"
"""The property with a message's namespace."""
SHARED_TOPICS = SYSTEM_TOPICS | {
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    TRACE_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
}
SHARED_PREFIXES = (OWN_TOPIC_PREFIX, SYSTEM_GROUP_PREFIX)


def wrapped(name: str, namespace: str | None) -> str:
    """Add the namespace to a topic or group, unless the name has it already."""
    if not namespace or not name or shared(name):
        return name
    prefix, rest = divided(name)
    return name if in_namespace(rest, namespace) else f"{prefix}{namespace}{SEPARATOR}{rest}"


def plain(name: str, namespace: str | None) -> str:
    """Remove the namespace from a topic or group; a name of another namespace stays."""
    if not namespace or shared(name):
        return name
    prefix, rest = divided(name)
    if not in_namespace(rest, namespace):
        return name
    return prefix + rest.removeprefix(f"{namespace}{SEPARATOR}")


def check_plain(kind: str, name: str, namespace: str | None) -> None:
    """Check that a name does not contain the client's namespace. Raises: ConfigurationError."""
    if (short := plain(name, namespace)) != name:
        raise ConfigurationError(
            f"{kind} {name}: a client in namespace {namespace} adds that by itself: write {short}"
        )


def shared(name: str) -> bool:
    """Whether a name is a system name, the same in all namespaces."""
    return name in SHARED_TOPICS or name.startswith(SHARED_PREFIXES)


def in_namespace(rest: str, namespace: str) -> bool:
    """Whether a name, without its prefix, begins with the namespace."""
    return rest.startswith(f"{namespace}{SEPARATOR}")


def divided(name: str) -> tuple[str, str]:
    """Split a name into its prefix, `%RETRY%`, `%DLQ%` or empty, and the rest."""
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


# ── Translation of commands ──

FIELDS = frozenset(
    ("topic", "originTopic", "group", "groupName", "consumerGroup", "producerGroup", "a", "b")
)
"""Header fields that hold names; `a` and `b` are group and topic of SEND_MESSAGE_V2."""
MEMBERS = frozenset(["topic", "group", "groupName", "consumerGroup", "t", "c"])
"""Members of JSON bodies that hold names; `t` and `c` are topic and group of acknowledgements."""
LISTS = frozenset(("topicList", "groupList"))
TABLES = frozenset(("subscriptionGroupTable", "data"))
"""Lists and tables of everything on a broker: a client sees those of its namespace."""
KEYED = frozenset(("subscriptionTable", "statusTable"))
"""Tables whose keys are topics."""
OPAQUE = frozenset(("properties", "attributes", "table"))
"""Tables of texts that hold no names."""
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
"""Requests whose bodies are JSON with names; bodies of other requests may be a user's JSON."""
JSON_BEGINS = (b"{", b"[")


@dataclass(frozen=True, slots=True)
class Translation:
    """Translates names of one namespace, on all connections of a client."""

    namespace: str

    def request(
        self, code: int, fields: dict[str, str], body: bytes
    ) -> tuple[dict[str, str], bytes]:
        """The fields and the body of a request with the namespace."""
        named = renamed_fields(fields, self._outward)
        return named, self._document(body, self._outward) if code in JSON_REQUESTS else body

    def answer(self, body: bytes) -> bytes:
        """The body of this client's response with the namespace."""
        return self._document(body, self._outward)

    def arrived(self, command: Command) -> Command:
        """A received request or response with plain names."""
        if not command.is_response:
            try:
                command.ext = renamed_fields(command.ext_fields(), self._inward)
            except HeaderError:
                # The code that parses the header reports the error.
                return command
        if command.is_response or command.code in JSON_REQUESTS:
            command.body = self._document(bytes(command.body), self._inward)
        return command

    def _outward(self, name: str) -> str | None:
        return wrapped(name, self.namespace)

    def _inward(self, name: str) -> str | None:
        """The plain name; None for a name that is neither in the namespace nor a system name."""
        short = plain(name, self.namespace)
        return short if short != name or shared(name) else None

    def _document(self, body: bytes, rename: Rename) -> bytes:
        """A body with its names replaced, if it is JSON."""
        if not body.startswith(JSON_BEGINS):
            return body
        try:
            document = renamed(relaxed_json.decode(body), rename)
            return msgspec.json.encode(document, order="sorted")
        except (BodyError, OverflowError):
            # The code that parses the body reports the error.
            return body


if TYPE_CHECKING:
    Rename = Callable[[str], str | None]


def renamed_fields(fields: dict[str, str], rename: Rename) -> dict[str, str]:
    """Header fields with their names replaced."""
    return {
        field: (rename(text) or text) if field in FIELDS else text for field, text in fields.items()
    }


def renamed(value: Any, rename: Rename) -> Any:
    """A JSON document with all its names replaced."""
    if isinstance(value, list):
        return [renamed(item, rename) for item in value]
    if not isinstance(value, dict):
        return value
    made = {key: member(key, item, rename) for key, item in value.items()}
    if not any(key.startswith("{") for key in made):
        return made
    # Java expects queues as keys to be objects, not strings.
    entries = (
        b"%b:%b" % (msgspec.json.encode(renamed(relaxed_json.decode(key.encode()), rename)), item)
        for key, item in ((key, msgspec.json.encode(item)) for key, item in made.items())
    )
    return msgspec.Raw(b"{%b}" % b",".join(entries))


def member(key: str, value: Any, rename: Rename) -> Any:
    """The value of a JSON object's member with its names replaced."""
    if key in MEMBERS and isinstance(value, str):
        return rename(value) or value
    if key in LISTS and isinstance(value, list):
        return [new for name in value if (new := rename(name)) is not None]
    if key in TABLES and isinstance(value, dict):
        items = {rename(name): renamed(item, rename) for name, item in value.items()}
        return {name: item for name, item in items.items() if name is not None}
    if key in KEYED and isinstance(value, dict):
        return {rename(name) or name: renamed(item, rename) for name, item in value.items()}
    return value if key in OPAQUE else renamed(value, rename)
