"""Settings of name servers: the KV table, and the write permission of brokers.

Name servers do not replicate, so changes are sent to each of them. Source: admin §3
(updateKvConfig, wipeWritePerm), nameserver §4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.client.steps.admin.brokers import asked_of, check_led, masters
from aerobee.client.steps.answers import expect, header_of
from aerobee.client.steps.effects import Ask
from aerobee.errors import AerobeeError, BrokerError, ConfigurationError
from aerobee.remoting.wire.bodies.kv_table import KVTable
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.namesrv import (
    AddWritePermOfBroker,
    AddWritePermOfBrokerResponse,
    DeleteKvConfig,
    GetKvListByNamespace,
    PutKvConfig,
    WipeWritePermOfBroker,
    WipeWritePermOfBrokerResponse,
)

if TYPE_CHECKING:
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.routes import Routes
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header


def kv(routes: Routes, namespace: str) -> Steps[dict[str, str]]:
    """The settings of a namespace in a name server's KV table, such as ORDER_TOPIC_CONFIG.

    Empty if there is no such namespace. Raises: NoNameServerError, BrokerError.
    """
    try:
        answered = yield from asked_of(routes, GetKvListByNamespace(namespace=namespace))
    except BrokerError as error:
        if error.code != ResponseCode.QUERY_NOT_FOUND:
            raise
        return {}
    return answered.body(KVTable).table


def put_kv(routes: Routes, namespace: str, key: str, value: str) -> Steps[None]:
    """Write a setting on every name server. Raises: ConfigurationError, BrokerError,
    TransportError.
    """
    if not (namespace.strip() and key.strip()):
        raise ConfigurationError("a setting of name servers has a namespace and a key")
    yield from told_to_all(routes, PutKvConfig(namespace=namespace, key=key, value=value))


def delete_kv(routes: Routes, namespace: str, key: str) -> Steps[None]:
    """Remove a setting from every name server; a missing one is no error.

    Raises: BrokerError, TransportError.
    """
    yield from told_to_all(routes, DeleteKvConfig(namespace=namespace, key=key))


def told_to_all(routes: Routes, header: Header) -> Steps[list[tuple[Ask, Command]]]:
    """Send a request to every name server; a dead one does not keep it from the others.

    Raises: the first BrokerError or TransportError, at the end.
    """
    answered: list[tuple[Ask, Command]] = []
    failed: list[AerobeeError] = []
    for address in routes.config.name_servers:
        request = Ask(address=address, header=header, timeout_s=routes.config.request_timeout)
        try:
            answered.append((request, expect(request, (yield request), "name server")))
        except AerobeeError as error:
            failed.append(error)
    if failed:
        raise failed[0]
    return answered


def set_write_permission(routes: Routes, broker: str, allowed: bool) -> Steps[int]:
    """Allow producers to send to a broker, or not, as before a stop; returns the changed topics.

    Clients see this in routes until the broker next registers changed topics.
    Raises: BrokerNotFoundError, BrokerError, TransportError.
    """
    (target,) = yield from masters(routes, broker=broker)
    check_led(target)
    if allowed:
        added = yield from told_to_all(routes, AddWritePermOfBroker(broker_name=target.name))
        return max(
            header_of(*exchange, AddWritePermOfBrokerResponse).add_topic_count for exchange in added
        )
    wiped = yield from told_to_all(routes, WipeWritePermOfBroker(broker_name=target.name))
    return max(
        header_of(*exchange, WipeWritePermOfBrokerResponse).wipe_topic_count for exchange in wiped
    )
