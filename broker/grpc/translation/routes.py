"""The queues of a topic, as the 5.x clients are told of them.

Endpoints are those that the client asked for, so that it finds the broker again behind port
mapping, address translation and host names; ours only when it asked for none. Source: grpc §2.4.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from aerobee.broker.grpc.translation.message_types import types_of
from aerobee.broker.grpc.translation.refusal import RpcRefused
from aerobee.remoting.grpc import messages
from aerobee.remoting.grpc.enums import AddressScheme, Code, Permission

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aerobee.remoting.wire.bodies.topic import TopicConfig

READ: Final = 4
WRITE: Final = 2
ANY_QUEUE: Final = -1
MASTER_ID: Final = 0
ADDRESSES_MAX: Final = 16
HOSTS_CHARS_MAX: Final = 1_024


def check_endpoints(endpoints: Any) -> None:
    """Refuse endpoints that no client has: they are in the answer for each queue. Raises:
    RpcRefused.
    """
    count, length = len(endpoints.addresses), sum(len(each.host) for each in endpoints.addresses)
    if count > ADDRESSES_MAX or length > HOSTS_CHARS_MAX:
        raise RpcRefused(
            Code.ILLEGAL_ACCESS_POINT,
            f"endpoints of {count} addresses and {length} characters: {ADDRESSES_MAX} are taken,"
            f" with hosts of {HOSTS_CHARS_MAX} characters together",
        )


def endpoints_of(address: str) -> Any:
    """The endpoints of a published address, `host:port`."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        scheme = AddressScheme.IPv4 if ip_address(host).version == 4 else AddressScheme.IPv6
    except ValueError:
        scheme = AddressScheme.DOMAIN_NAME
    return messages.Endpoints(
        scheme=scheme, addresses=[messages.Address(host=host, port=int(port))]
    )


def permissions_of(topic: TopicConfig) -> Iterator[Permission]:
    """The permission of clients on each queue: some only read, some only write, the rest both."""
    read = topic.read_queue_nums if topic.perm & READ else 0
    write = topic.write_queue_nums if topic.perm & WRITE else 0
    if not (read or write):
        for _ in range(max(1, topic.read_queue_nums, topic.write_queue_nums)):
            yield Permission.NONE
        return
    both = min(read, write)
    for permission, count in (
        (Permission.READ, read - both),
        (Permission.WRITE, write - both),
        (Permission.READ_WRITE, both),
    ):
        for _ in range(count):
            yield permission


def broker_of(name: str, endpoints: Any) -> Any:
    """This broker, as a client sees it."""
    return messages.Broker(name=name, id=MASTER_ID, endpoints=endpoints)


def queues_of(topic: TopicConfig, resource: Any, broker: Any) -> list[Any]:
    """Every queue of a topic, with what it takes."""
    types = types_of(topic)
    return [
        messages.MessageQueue(
            topic=resource,
            id=number,
            permission=permission,
            broker=broker,
            accept_message_types=types,
        )
        for number, permission in enumerate(permissions_of(topic))
    ]


def assignments_of(topic: TopicConfig, resource: Any, broker: Any, *, fifo: bool) -> list[Any]:
    """The queues that each member of a group consumes: in order every queue, else any of them,
    since POP shares messages out by itself. Raises: RpcRefused when none may be read.
    """
    count = topic.read_queue_nums if topic.perm & READ else 0
    if not count:
        raise RpcRefused(Code.FORBIDDEN, f"topic {topic.topic_name} has no readable queue")
    return [
        messages.Assignment(
            message_queue=messages.MessageQueue(
                topic=resource,
                id=number,
                permission=Permission.READ_WRITE if topic.perm & WRITE else Permission.READ,
                broker=broker,
                accept_message_types=types_of(topic),
            )
        )
        for number in (range(count) if fifo else (ANY_QUEUE,))
    ]
