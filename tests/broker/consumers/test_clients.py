from collections.abc import Sequence

import pytest

from aerobee.broker.consumers.clients import (
    Client,
    ClientConnection,
    ClientTable,
    Subscription,
    subscription_of,
)
from aerobee.broker.errors import LimitReached
from aerobee.broker.filters.subscription import is_tag_type
from aerobee.remoting.wire.bodies.client import SubscriptionData
from aerobee.store.format.tags import tags_code
from tests.broker.peers import Peer


def subscription(topic: str, version: int = 1, expression: str = "*") -> Subscription:
    data = SubscriptionData(topic=topic, sub_string=expression, sub_version=version)
    return subscription_of(data)


def client(peer: Peer, client_id: str = "c", now_ms: int = 0) -> Client:
    return Client(peer, client_id, "JAVA", 479, now_ms)


def silent_of(clients: ClientTable, now_ms: int) -> list[ClientConnection]:
    return [one for one in clients.expired(now_ms, 120_000) if one is not None]


def join(
    clients: ClientTable,
    group: str,
    member: Client,
    subscriptions: Sequence[Subscription] | None = (),
    model: str = "CLUSTERING",
) -> bool:
    return clients.register_consumer(
        group,
        member,
        consume_type="CONSUME_PASSIVELY",
        message_model=model,
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscriptions=subscriptions,
    )


def test_a_new_connection_changes_its_group_and_its_next_heartbeat_does_not() -> None:
    clients = ClientTable()
    first, second = Peer(), Peer()
    assert join(clients, "g", client(first))
    assert not join(clients, "g", client(first))
    assert join(clients, "g", client(second))


def test_a_new_topic_and_a_missing_topic_change_the_group() -> None:
    clients = ClientTable()
    member = client(Peer())
    join(clients, "g", member, [subscription("a")])
    assert join(clients, "g", member, [subscription("a"), subscription("b")])
    assert join(clients, "g", member, [subscription("b")])
    entry = clients.group("g")
    assert entry is not None
    assert set(entry.subscriptions) == {"b"}


def test_a_higher_version_replaces_a_subscription_without_being_a_change() -> None:
    clients = ClientTable()
    member = client(Peer())
    join(clients, "g", member, [subscription("a", 5, "x")])
    assert not join(clients, "g", member, [subscription("a", 6, "y")])
    entry = clients.group("g")
    assert entry is not None
    assert entry.subscriptions["a"].data.sub_string == "y"
    assert not join(clients, "g", member, [subscription("a", 6, "z")])
    assert not join(clients, "g", member, [subscription("a", 4, "z")])
    assert entry.subscriptions["a"].data.sub_string == "y"


def test_the_last_heartbeat_decides_how_a_group_consumes() -> None:
    clients = ClientTable()
    join(clients, "g", client(Peer()))
    join(clients, "g", client(Peer()), model="BROADCASTING")
    entry = clients.group("g")
    assert entry is not None
    assert entry.message_model == "BROADCASTING"


def test_a_heartbeat_without_subscriptions_leaves_the_stored_ones() -> None:
    clients = ClientTable()
    member = client(Peer())
    join(clients, "g", member, None)
    entry = clients.group("g")
    assert entry is not None
    assert not entry.subscribed
    join(clients, "g", member, [subscription("a")])
    assert not join(clients, "g", member, None)
    assert set(entry.subscriptions) == {"a"}
    assert entry.subscribed


def test_each_client_id_is_listed_once_and_in_order() -> None:
    clients = ClientTable()
    for client_id in ("b", "a", "b"):
        join(clients, "g", client(Peer(), client_id))
    entry = clients.group("g")
    assert entry is not None
    assert entry.client_ids() == ["a", "b"]
    assert len(entry.connections()) == 3


def test_a_group_goes_with_its_last_connection() -> None:
    clients = ClientTable()
    first, second = Peer(), Peer()
    join(clients, "g", client(first), [subscription("a")])
    join(clients, "g", client(second), [subscription("a")])
    assert clients.leave_consumers(first.id, "g")
    assert clients.group("g") is not None
    assert clients.leave_consumers(second.id, "g")
    assert clients.group("g") is None
    assert clients.groups_of == {}


def test_only_the_connection_that_is_in_a_group_can_leave_it() -> None:
    clients = ClientTable()
    first, other = Peer(), Peer()
    join(clients, "g", client(first))
    assert not clients.leave_consumers(other.id, "g")
    assert not clients.leave_consumers(first.id, "h")
    assert not clients.leave_producers(first.id, "g")
    assert clients.group("g") is not None


def test_a_closed_connection_leaves_everything_at_once() -> None:
    clients = ClientTable()
    peer, other = Peer(), Peer()
    for group in ("g", "h"):
        join(clients, group, client(peer))
    join(clients, "h", client(other))
    clients.register_producer("p", client(peer))
    assert clients.leave_all(peer.id) == ["g", "h"]
    assert clients.leave_all(peer.id) == []
    assert set(clients.consumers) == {"h"}
    assert clients.producers == {}
    assert set(clients.groups_of) == {other.id}


def test_connections_without_a_heartbeat_in_time_are_named_once() -> None:
    clients = ClientTable()
    silent, lively = Peer(), Peer()
    join(clients, "g", client(silent, now_ms=0))
    clients.register_producer("p", client(silent, now_ms=0))
    join(clients, "g", client(lively, now_ms=100))
    assert silent_of(clients, 120_000) == []
    assert silent_of(clients, 120_001) == [silent]
    assert clients.group("g") is not None


def test_a_fingerprint_differs_only_from_one_that_is_stored() -> None:
    clients = ClientTable()
    assert not clients.fingerprint_differs("g", 5)
    join(clients, "g", client(Peer()))
    assert not clients.fingerprint_differs("g", 5)
    assert not clients.fingerprint_differs("g", 5)
    assert clients.fingerprint_differs("g", 6)
    assert not clients.fingerprint_differs("g", 6)


def test_a_producer_is_found_by_its_client_id() -> None:
    clients = ClientTable()
    peer = Peer()
    clients.register_producer("p", client(peer, "me"))
    found = clients.producer("me")
    assert found is not None
    assert found.connection is peer
    assert clients.producer("you") is None


def test_a_connection_that_calls_itself_something_else_each_time_leaves_no_names_behind() -> None:
    clients, peer, other = ClientTable(), Peer(), Peer()
    for number in range(10):
        clients.register_producer(f"p{number % 2}", client(peer, f"me-{number}"))
    clients.register_producer("p0", client(other, "me-9"))
    assert list(clients.holders) == ["me-9"]
    found = clients.producer("me-9")
    assert found is not None
    assert found.connection is other
    clients.leave_all(other.id)
    clients.leave_producers(peer.id, "p0")
    assert clients.producer("me-9") is not None
    clients.leave_all(peer.id)
    assert (clients.holders, clients.id_of, clients.groups_of) == ({}, {}, {})


def test_groups_and_subscriptions_are_limited() -> None:
    clients = ClientTable(max_groups=1, max_subscriptions=1)
    member = client(Peer())
    join(clients, "g", member, [subscription("a")])
    clients.register_producer("p", member)
    with pytest.raises(LimitReached):
        join(clients, "h", member)
    with pytest.raises(LimitReached):
        join(clients, "g", member, [subscription("a"), subscription("b")])
    with pytest.raises(LimitReached):
        clients.register_producer("q", member)


def test_codes_are_worked_out_from_the_text_and_not_taken_from_the_client() -> None:
    data = SubscriptionData(topic="t", sub_string="TagA || TagB", code_set=[1])
    tag_filter = subscription_of(data).tag_filter
    assert tag_filter is not None
    assert tag_filter.codes == frozenset({2598919, 2598920})
    assert not tag_filter.matches(tags_code("TagC"))


def test_an_expression_of_separators_only_matches_nothing() -> None:
    tag_filter = subscription("t", expression="||").tag_filter
    assert tag_filter is not None
    assert not tag_filter.matches(0)


def test_another_language_than_tags_has_no_tag_filter() -> None:
    data = SubscriptionData(topic="t", sub_string="a > 5", expression_type="SQL92")
    assert subscription_of(data).tag_filter is None
    assert is_tag_type(None)
    assert is_tag_type("")
    assert is_tag_type("TAG")
    assert not is_tag_type("SQL92")
