"""The operations of the console: a table of commands of `aerobee`, with their places in the API.

The API routes, the OpenAPI document and the pages are read from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

GET, POST, PATCH, DELETE = "GET", "POST", "PATCH", "DELETE"
MESSAGES_MAX: Final = 64
"""Messages of one answer: each may have 4 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A command of `aerobee`, and the request of the API that runs it."""

    name: str
    """The command, with dots between its words."""
    method: str
    path: str
    """Below /api/v1; `{name}` is an argument of the command."""
    asks: str = ""
    """The consequence of a change where the command itself does not ask."""
    dry_unless_yes: bool = False
    """Without --yes the command only says what it would do."""
    in_turn: bool = False
    """Whether a viewer does one such change after the other: each has the one producer of the
    viewer's client, and the next one knows what the one before has done.
    """
    leaves_out: frozenset[str] = frozenset()
    """Arguments that are not for the console."""
    most: tuple[tuple[str, int], ...] = ()
    """Arguments with a lower maximum, and the maximum."""

    @property
    def words(self) -> tuple[str, ...]:
        """The command."""
        return tuple(self.name.split("."))

    @property
    def changes(self) -> bool:
        """Whether it changes anything."""
        return self.method != GET


def table(*operations: Operation) -> Mapping[str, Operation]:
    """Operations by name."""
    return {operation.name: operation for operation in operations}


OPERATIONS: Final = table(
    # ── Topics ──
    Operation(name="topic.describe", method=GET, path="/topics/{name}"),
    Operation(
        name="topic.create",
        method=POST,
        path="/topics",
        asks="Topic {name} is created on every master, or gets these settings.",
    ),
    Operation(
        name="topic.alter",
        method=PATCH,
        path="/topics/{name}",
        asks="The settings of topic {name} change on every broker that has it.",
    ),
    Operation(name="topic.delete", method=DELETE, path="/topics/{name}"),
    # ── Groups ──
    Operation(name="group.describe", method=GET, path="/groups/{name}"),
    Operation(name="group.lag", method=GET, path="/groups/{name}/lag"),
    Operation(name="group.doctor", method=GET, path="/groups/{name}/doctor"),
    Operation(
        name="group.create",
        method=POST,
        path="/groups",
        asks="Group {name} is created on every master, or gets these settings.",
    ),
    Operation(name="group.pause", method=POST, path="/groups/{name}/pause"),
    Operation(
        name="group.resume",
        method=POST,
        path="/groups/{name}/resume",
        asks="Brokers give group {name} messages again, from where it was.",
    ),
    Operation(name="group.reset", method=POST, path="/groups/{name}/reset"),
    Operation(name="group.clone", method=POST, path="/groups/{source}/clone"),
    Operation(name="group.delete", method=DELETE, path="/groups/{name}"),
    # ── Messages ──
    Operation(
        name="message.find",
        method=GET,
        path="/topics/{topic}/messages",
        leaves_out=frozenset({"format"}),
        most=(("max", MESSAGES_MAX),),
    ),
    Operation(
        name="message.tail",
        method=GET,
        path="/topics/{topic}/tail",
        leaves_out=frozenset({"format", "follow"}),
        most=(("count", MESSAGES_MAX),),
    ),
    Operation(name="message.get", method=GET, path="/message"),
    Operation(name="why", method=GET, path="/why"),
    Operation(
        name="message.consume",
        method=POST,
        path="/message/consume",
        asks="A member of group {group} handles the message once more; no offset moves.",
    ),
    # ── Dead letters ──
    Operation(name="dlq.list", method=GET, path="/dlq/{group}", most=(("max", 1_000),)),
    Operation(
        name="dlq.redrive",
        method=POST,
        path="/dlq/{group}/redrive",
        dry_unless_yes=True,
        in_turn=True,
    ),
    Operation(
        name="dlq.drop",
        method=POST,
        path="/dlq/{group}/drop",
        dry_unless_yes=True,
        in_turn=True,
    ),
    Operation(
        name="dlq.edit",
        method=POST,
        path="/dlq/{group}/edit",
        in_turn=True,
        leaves_out=frozenset({"file"}),
    ),
    # ── Clients ──
    Operation(name="connections.close", method=DELETE, path="/clients/{client}"),
    # ── Brokers ──
    Operation(name="cluster.info", method=GET, path="/cluster"),
    Operation(name="ha.status", method=GET, path="/ha"),
    Operation(
        name="ha.switch",
        method=POST,
        path="/ha/switch",
        asks="The slave at {to} becomes the master of its group, and the old master its slave."
        " Sends are refused for a moment; no message is lost.",
    ),
    Operation(
        name="ha.promote",
        method=POST,
        path="/ha/promote",
        asks="The slave at {address} becomes the master of its group.",
    ),
    Operation(name="broker.config.get", method=GET, path="/brokers/settings"),
    Operation(
        name="broker.config.set",
        method=PATCH,
        path="/brokers/settings",
        asks="These settings change now and for later starts: {values}.",
    ),
    Operation(name="broker.clean", method=POST, path="/brokers/clean"),
    Operation(
        name="broker.write-permission",
        method=POST,
        path="/brokers/{broker}/write-permission",
        asks="Whether producers send to broker {broker} changes: {allowed}.",
    ),
    # ── Users ──
    Operation(name="users.list", method=GET, path="/users"),
    Operation(name="users.show", method=GET, path="/users/{name}"),
    Operation(
        name="users.create",
        method=POST,
        path="/users",
        asks="User {name} is created, enabled and without rights.",
        leaves_out=frozenset({"secret_file"}),
    ),
    Operation(
        name="users.update",
        method=PATCH,
        path="/users/{name}",
        asks="User {name} changes, and the user's open connections end.",
        leaves_out=frozenset({"secret_file"}),
    ),
    Operation(name="users.delete", method=DELETE, path="/users/{name}"),
    Operation(name="acl.list", method=GET, path="/acl"),
    Operation(name="acl.show", method=GET, path="/acl/{user}"),
    Operation(name="acl.check", method=GET, path="/acl/{user}/check"),
    Operation(
        name="acl.grant",
        method=POST,
        path="/acl/{user}/grant",
        asks="The entry of user {user} on {resource} is replaced: {actions}.",
    ),
    Operation(
        name="acl.revoke",
        method=POST,
        path="/acl/{user}/revoke",
        asks="User {user} loses the entry on {resource}.",
    ),
)
"""Every operation that is a command."""

SECRETS: Final = frozenset({"users.create", "users.update"})
"""Operations that take a `secret` in the body of the request."""
LISTS: Final[Mapping[str, str]] = {
    "topics": "Topics with their queues, messages, rates and groups.",
    "groups": "Consumer groups with members and lag, in messages and seconds.",
    "brokers": "The brokers of the cluster: rates, disk, and what those that tell nothing say.",
    "clients": "Connected consumers and producers.",
    "dlq": "Groups with dead letters.",
    "findings": "What is wrong now, why, and what to do.",
    "audit": "The newest changes by administrators: who, what, from where, and the result.",
    "settings": "Settings of this broker: value, source, default, whether they change live.",
}
"""Lists that are read from the snapshot or from tables: GET /api/v1/NAME."""
OBJECTS: Final[Mapping[str, str]] = {
    "overview": "The state of this broker.",
    "store": "The log, the disk, and the oldest message.",
    "me": "The viewer: name, rights, and the token for changes.",
}
"""Single objects: GET /api/v1/NAME."""
