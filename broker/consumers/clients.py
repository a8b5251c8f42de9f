"""Connected producers and consumers by group, and the subscriptions of each group.

Memory only. A group's subscriptions, type and model are those of its last heartbeat, whichever
member sent it. The table decides and returns; its callers notify and close. A consumer group and
its subscriptions are removed with its last connection. `now_ms` is a monotonic clock. Source:
semantics §2.2–2.3 (ConsumerManager, ConsumerGroupInfo, ProducerManager).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Final, Protocol

from aerobee.broker.errors import LimitReached, NoPermission
from aerobee.broker.filters.subscription import is_tag_type
from aerobee.store.format.tags import TagFilter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from aerobee.remoting.wire.bodies.client import SubscriptionData
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header

BROADCASTING: Final = "BROADCASTING"
CLUSTERING: Final = "CLUSTERING"
SHOWN_CHARACTERS: Final = 100
NOTHING: Final = TagFilter(())
"""The filter of an expression with separators only."""


class Origin(Protocol):
    """Where requests come from: what its accounts may do is asked."""

    @property
    def host(self) -> bytes: ...
    @property
    def accounts(self) -> frozenset[str]: ...


class ClientConnection(Origin, Protocol):
    """A client's connection. The table only reads its identity; callers call, notify and close."""

    @property
    def id(self) -> int: ...
    @property
    def address(self) -> str: ...
    @property
    def paused(self) -> bool: ...
    @property
    def requests(self) -> int: ...
    def notify(self, code: int, header: Header | None, body: bytes = b"") -> None: ...
    async def call(
        self, code: int, header: Header | None, body: bytes, timeout_s: float
    ) -> Command: ...
    def close(self, reason: str) -> None: ...


@dataclass(slots=True)
class Client:
    """One connection in one group, as of its last heartbeat."""

    connection: ClientConnection
    client_id: str
    language: str
    version: int
    last_update_ms: int


@dataclass(frozen=True, slots=True)
class Subscription:
    """A group's subscription to one topic. `tag_filter` is None for another language than tags."""

    data: SubscriptionData
    sub_version: int
    tag_filter: TagFilter | None

    @property
    def topic(self) -> str:
        """The topic of the subscription."""
        return self.data.topic


@dataclass(slots=True)
class ConsumerGroup:
    """The members of a consumer group, by connection id, and their common settings."""

    name: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = CLUSTERING
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    clients: dict[int, Client] = field(default_factory=dict)
    """Ordered by the time of the last heartbeat, oldest first. Written by `enter` and `leave`
    alone."""
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    subscribed: bool = False
    """Whether any heartbeat has had the subscriptions yet, an empty set included."""
    fingerprint: int = 0
    ids: list[str] = field(default_factory=list)
    """The client id of each connection, sorted; a reconnected client may be in it twice."""
    list_body: bytes = b""
    """The cached answer with the members, until one comes or goes; used by the processor."""

    def enter(self, client: Client) -> bool:
        """Add or refresh one connection; whether it is new."""
        known = refresh(self.clients, client)
        if known is None or known.client_id != client.client_id:
            if known is not None:
                del self.ids[bisect_left(self.ids, known.client_id)]
            insort(self.ids, client.client_id)
            self.list_body = b""
        return known is None

    def leave(self, connection_id: int) -> bool:
        """Remove one connection; whether it was in the group."""
        client = self.clients.pop(connection_id, None)
        if client is None:
            return False
        del self.ids[bisect_left(self.ids, client.client_id)]
        self.list_body = b""
        return True

    def subscribe(self, subscriptions: Iterable[Subscription]) -> bool:
        """Replace the subscriptions; whether the set of topics changed.

        A subscription is replaced only by a higher version, and that does not count as a change.
        """
        wanted = {subscription.topic: subscription for subscription in subscriptions}
        changed = wanted.keys() != self.subscriptions.keys()
        for topic, subscription in wanted.items():
            known = self.subscriptions.get(topic)
            if known is not None and known.sub_version >= subscription.sub_version:
                wanted[topic] = known
        self.subscriptions = wanted
        self.subscribed = True
        return changed

    def client_ids(self) -> list[str]:
        """Each member once, sorted: after a reconnect a client may have two connections for a
        while.
        """
        return list(dict.fromkeys(self.ids))

    def connections(self) -> list[ClientConnection]:
        """Every member's connection."""
        return [client.connection for client in self.clients.values()]


class ClientTable:
    """Producer groups and consumer groups.

    Invariant: a group in the table has at least one client; a client id in it at least one
    connection in a group.
    """

    def __init__(
        self,
        *,
        max_groups: int = 10_000,
        max_subscriptions: int = 1_024,
        max_memberships: int = 1_024,
    ) -> None:
        self.consumers: dict[str, ConsumerGroup] = {}
        self.producers: dict[str, dict[int, Client]] = {}
        self.groups_of: dict[int, set[tuple[str, bool]]] = {}
        self.holders: dict[str, dict[int, Client]] = {}
        """Client id → its connections that are in a group, by connection id."""
        self.id_of: dict[int, str] = {}
        """Connection id → the client id of its last heartbeat."""
        self.max_groups = max_groups
        self.max_subscriptions = max_subscriptions
        self.max_memberships = max_memberships
        """The most groups of one connection, as consumer and as producer."""

    def group(self, name: str) -> ConsumerGroup | None:
        """The consumer group, if it has members."""
        return self.consumers.get(name)

    def knows(self, connection_id: int) -> bool:
        """Whether a connection is in any group."""
        return connection_id in self.groups_of

    # ── Arriving ──

    def register_consumer(
        self,
        group: str,
        client: Client,
        *,
        consume_type: str,
        message_model: str,
        consume_from_where: str,
        subscriptions: Sequence[Subscription] | None,
    ) -> bool:
        """Register a heartbeat; whether a member was added or the set of topics changed.

        `subscriptions` None leaves the stored ones as they are. Raises: LimitReached.
        """
        if subscriptions is not None:
            self.check_subscriptions(group, len(subscriptions))
        entry = self.consumers.get(group)
        if entry is None:
            if len(self.consumers) >= self.max_groups:
                raise self._too_many("consumer")
            entry = self.consumers[group] = ConsumerGroup(group)
        entry.consume_type = consume_type
        entry.message_model = message_model
        entry.consume_from_where = consume_from_where
        joined = entry.enter(client)
        self.identify(client)
        self.groups_of.setdefault(client.connection.id, set()).add((group, True))
        resubscribed = subscriptions is not None and entry.subscribe(subscriptions)
        return joined or resubscribed

    def consumes(self, connection_id: int, group: str) -> bool:
        """Whether a connection is that of a consumer in this group."""
        return (group, True) in self.groups_of.get(connection_id, ())

    def check_subscriptions(self, group: str, count: int) -> None:
        """Refuse more subscriptions than a group may have. Raises: LimitReached."""
        if count > self.max_subscriptions:
            what = f"subscription of group {group[:120]}"
            raise LimitReached(what, self.max_subscriptions, key="maxSubscriptionsOfGroup")

    def _too_many(self, what: str) -> LimitReached:
        return LimitReached(f"connected {what} group", self.max_groups, key="maxConsumerGroups")

    def check_memberships(
        self,
        connection_id: int,
        beside: Iterable[int],
        consumers: Iterable[str],
        producers: Iterable[str],
    ) -> set[tuple[str, bool]]:
        """Check that a connection may be in these groups, too, with others that share its limit.

        Returns: the groups. Raises: LimitReached.
        """
        wanted = {(group, True) for group in consumers} | {(group, False) for group in producers}
        own = self.groups_of.get(connection_id, set())
        count = sum(len(self.groups_of.get(at, ())) for at in beside if at != connection_id)
        if not wanted <= own and count + len(wanted | own) > self.max_memberships:
            raise LimitReached("group of one connection", self.max_memberships)
        return wanted

    def check_room(
        self, connection_id: int, consumers: Iterable[str], producers: Iterable[str]
    ) -> None:
        """Check that one connection can be in all of these groups. Raises: LimitReached."""
        wanted = self.check_memberships(connection_id, (), consumers, producers)
        for what, entries, consume in (
            ("consumer", self.consumers, True),
            ("producer", self.producers, False),
        ):
            new = sum(group not in entries for group, consumes in wanted if consumes is consume)
            if len(entries) + new > self.max_groups:
                raise self._too_many(what)

    def register_producer(self, group: str, client: Client) -> None:
        """Register a producer's heartbeat. Raises: LimitReached."""
        entry = self.producers.get(group)
        if entry is None:
            if len(self.producers) >= self.max_groups:
                raise self._too_many("producer")
            entry = self.producers[group] = {}
        refresh(entry, client)
        self.identify(client)
        self.groups_of.setdefault(client.connection.id, set()).add((group, False))

    def check_id(self, client_id: str, connection: Origin, consumer_groups: Iterable[str]) -> None:
        """Check that in none of these groups a client id is that of another account's connection:
        queue locks and requests of the broker go by it there. A member of a group has a right to
        it; elsewhere anybody may have the id. Raises: NoPermission.
        """
        others = [
            number
            for number, client in self.holders.get(client_id, {}).items()
            if are_strangers(connection, client.connection)
        ]
        if not others:
            return
        for group in consumer_groups:
            if any((group, True) in self.groups_of[number] for number in others):
                raise NoPermission(
                    f"client id {client_id[:SHOWN_CHARACTERS]} is that of an open connection of"
                    " another account: give this client another instance name"
                )

    def identify(self, client: Client) -> None:
        """A connection has the client id of its last heartbeat, and no other."""
        number = client.connection.id
        if self.id_of.get(number, client.client_id) != client.client_id:
            self.forget_id(number)
        self.id_of[number] = client.client_id
        self.holders.setdefault(client.client_id, {})[number] = client

    def forget_id(self, connection_id: int) -> None:
        """A connection has not the client id any more that it had."""
        client_id = self.id_of.pop(connection_id)
        connections = self.holders[client_id]
        del connections[connection_id]
        if not connections:
            del self.holders[client_id]

    def fingerprint_differs(self, group: str, fingerprint: int) -> bool:
        """Store the fingerprint of a group's heartbeat; whether another one was stored."""
        entry = self.consumers.get(group)
        if entry is None:
            return False
        known, entry.fingerprint = entry.fingerprint, fingerprint
        return known not in (0, fingerprint)

    # ── Leaving ──

    def leave_consumers(self, connection_id: int, group: str) -> bool:
        """Take one connection out of a consumer group; whether it was in it."""
        entry = self.consumers.get(group)
        if entry is None or not entry.leave(connection_id):
            return False
        if not entry.clients:
            del self.consumers[group]
        self.forget(connection_id, (group, True))
        return True

    def leave_producers(self, connection_id: int, group: str) -> bool:
        """Take one connection out of a producer group; whether it was in it."""
        entry = self.producers.get(group, {})
        if entry.pop(connection_id, None) is None:
            return False
        if not entry:
            del self.producers[group]
        self.forget(connection_id, (group, False))
        return True

    def leave_all(self, connection_id: int) -> list[str]:
        """Take a closed connection out of every group; the consumer groups it was in."""
        left = []
        for group, consumes in sorted(self.groups_of.get(connection_id, ())):
            if not consumes:
                self.leave_producers(connection_id, group)
            elif self.leave_consumers(connection_id, group):
                left.append(group)
        return left

    def forget(self, connection_id: int, membership: tuple[str, bool]) -> None:
        """One membership less for a connection."""
        memberships = self.groups_of[connection_id]
        memberships.discard(membership)
        if not memberships:
            del self.groups_of[connection_id]
            self.forget_id(connection_id)

    def expired(self, now_ms: int, timeout_ms: int) -> Iterator[ClientConnection | None]:
        """Connections with a membership that no heartbeat renewed in time; nothing is removed.

        Between groups it yields None, so that others can run.
        """
        limit_ms = now_ms - timeout_ms
        named: set[int] = set()
        for clients in [
            *(group.clients for group in self.consumers.values()),
            *self.producers.values(),
        ]:
            # The oldest heartbeats come first.
            old = takewhile(lambda client: client.last_update_ms < limit_ms, clients.values())
            for connection in [client.connection for client in old]:
                if connection.id not in named:
                    named.add(connection.id)
                    yield connection
            yield None

    # ── Questions ──

    def producer(self, client_id: str) -> Client | None:
        """Where a reply is pushed to: the newest connection whose producer has this client id, of
        the account that has had it for the longest. Anybody may register as a producer.
        """
        connections = [
            client
            for number, client in self.holders.get(client_id, {}).items()
            if not all(consumes for _, consumes in self.groups_of[number])
        ]
        for client in reversed(connections):
            if not are_strangers(client.connection, connections[0].connection):
                return client
        return None


def are_strangers(connection: Origin, other: Origin) -> bool:
    """Whether two connections have no account in common. Without accounts they are all alike."""
    return connection.accounts != other.accounts and connection.accounts.isdisjoint(other.accounts)


def refresh(clients: dict[int, Client], client: Client) -> Client | None:
    """Move a client to the end, as the one seen last; returns its previous entry."""
    number = client.connection.id
    known = clients.pop(number, None)
    clients[number] = client
    return known


def subscription_of(data: SubscriptionData) -> Subscription:
    """A heartbeat's subscription, with the filter worked out from its text.

    The codes that came along are not trusted: some clients hash other bytes than the broker does.
    """
    tag_filter: TagFilter | None = None
    if is_tag_type(data.expression_type):
        try:
            tag_filter = TagFilter.parse(data.sub_string)
        except ValueError:
            tag_filter = NOTHING
    return Subscription(data, data.sub_version, tag_filter)
