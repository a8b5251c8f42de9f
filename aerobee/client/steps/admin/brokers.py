"""Requests to brokers: discovery, settings and statistics. Source: admin §3, §4.2, §4.5.

Changes are sent to every master; a request that a broker does not support gives a clear error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from aerobee.admin import BrokerInfo, ClusterInfo, LostBroker, StatsItem, StatsWindow
from aerobee.client.route import MASTER_ID, in_order
from aerobee.client.steps.answers import body_of, error_of, request_name
from aerobee.client.steps.effects import Ask
from aerobee.errors import (
    AerobeeError,
    BrokerNotFoundError,
    ConfigurationError,
    UnsupportedRequestError,
)
from aerobee.remoting.wire.bodies.kv_table import KVTable
from aerobee.remoting.wire.bodies.statistics import BrokerStatsData
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.admin import (
    GetBrokerConfig,
    GetBrokerRuntimeInfo,
    UpdateBrokerConfig,
    ViewBrokerStatsData,
)
from aerobee.remoting.wire.headers.cleanup import (
    CleanExpiredConsumeQueue,
    CleanUnusedTopic,
    DeleteExpiredCommitLog,
)
from aerobee.remoting.wire.version import describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.routes import Routes
    from aerobee.remoting.wire.bodies.body import Body
    from aerobee.remoting.wire.bodies.statistics import StatsSnapshot
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header

B = TypeVar("B", bound="Body")
T = TypeVar("T")

WITHIN_S = 5.0
"""The timeout of an admin request, unless the client's request timeout is longer."""
PREPARED_THERE = (
    "users and policies need authentication_enabled: true there, or are prepared on the host of "
    "the broker before"
)


class Broker(NamedTuple):
    """A broker and its address for requests; empty of a group that has no master."""

    name: str
    address: str
    cluster: str = ""


class Exchange(NamedTuple):
    """A request and its response, of a broker or name server."""

    ask: Ask
    answer: Command
    peer: str

    def body(self, kind: type[B]) -> B:
        """The response body. Raises: TransportError."""
        return body_of(self.ask, self.answer, kind)


def ask(
    routes: Routes,
    broker: Broker,
    header: Header,
    *,
    body: bytes = b"",
    within_s: float = WITHIN_S,
    accept: Sequence[int] = (),
) -> Steps[Exchange]:
    """Send a request to a broker; returns a response with SUCCESS or a code in `accept`.

    Raises: BrokerError, UnsupportedRequestError naming code and version, TransportError,
    BrokerNotFoundError of a group without a master.
    """
    check_led(broker)
    timeout_s = max(within_s, routes.config.request_timeout)
    request = Ask(address=broker.address, header=header, body=body, timeout_s=timeout_s)
    answer = yield request
    return checked(Exchange(request, answer, f"broker {broker.name}"), accept)


def check_led(broker: Broker) -> None:
    """Check that there is somebody to ask. Raises: BrokerNotFoundError."""
    if not broker.address:
        text = f"broker {broker.name} has no master now: `aerobee ha doctor` says why"
        raise BrokerNotFoundError(text).about(broker=broker.name)


def at_each(brokers: Iterable[Broker], change: Callable[[Broker], Steps[object]]) -> Steps[None]:
    """Make a change at each broker; one that fails keeps it from no other.

    Raises: the first AerobeeError, at the end; its note names the brokers without one.
    """
    failed: list[AerobeeError] = []
    done: list[str] = []
    for target in brokers:
        try:
            yield from change(target)
        except AerobeeError as error:
            failed.append(error)
        else:
            done.append(target.name)
    raise_first(failed, done)


def raise_first(failed: Sequence[AerobeeError], done: Sequence[str]) -> None:
    """Raise the first error, if there is any, with a note that names the brokers without one."""
    if failed:
        if done:
            failed[0].add_note(f"no error at {', '.join(done)}")
        raise failed[0]


def asked_of(routes: Routes, header: Header) -> Steps[Exchange]:
    """Send a request to a name server that must succeed. Raises: NoNameServerError, BrokerError."""
    request, answer = yield from routes.ask_name_server(header, routes.config.request_timeout)
    return checked(Exchange(request, answer, "name server"))


def checked(answered: Exchange, accept: Sequence[int] = ()) -> Exchange:
    """Check a response. Raises: BrokerError for a code that is neither SUCCESS nor accepted."""
    request, answer, peer = answered
    if answer.code == ResponseCode.SUCCESS or answer.code in accept:
        return answered
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        version = describe(answer.version)
        remark = f"request code {request.header.code} is not served by this version, {version}"
        if request_name(request).startswith("AUTH_"):
            remark += f"; {PREPARED_THERE}"
        raise UnsupportedRequestError(
            answer.code, remark, peer, request.address, request_name(request)
        )
    raise error_of(request, answer, peer)


# ── Discovery ──


def cluster_info(routes: Routes) -> Steps[ClusterInfo]:
    """All brokers registered with the name server. Raises: NoNameServerError, BrokerError."""
    greeting = yield from routes.greet(routes.config.request_timeout)
    brokers = [
        BrokerInfo(cluster=data.cluster, name=name, broker_id=broker_id, address=address)
        for name, data in greeting.broker_addr_table.items()
        for broker_id, address in data.broker_addrs.items()
    ]
    # A broker that has come back under another name or cluster is not lost.
    known = {broker.address for broker in brokers}
    lost = [
        LostBroker(
            cluster=lost.cluster,
            name=lost.broker_name,
            broker_id=lost.broker_id,
            address=lost.broker_addr,
            silent_s=lost.silent_ms / 1000,
        )
        for lost in greeting.lost_brokers or ()
        if lost.broker_addr not in known
    ]
    return ClusterInfo(brokers=sorted(brokers, key=_place), lost=sorted(lost, key=_place))


def _place(broker: BrokerInfo) -> tuple[str, str, int]:
    return broker.cluster, broker.name, broker.broker_id


def leaving_out(routes: Routes, addresses: frozenset[str], steps: Steps[T]) -> Steps[T]:
    """Steps of an admin client that leaves brokers out: between them, and in what others do at the
    same client, no broker is left out.
    """
    answer: Command | None = None
    error: AerobeeError | None = None
    try:
        while True:
            routes.left_out = addresses
            try:
                effect = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                routes.left_out = frozenset()
            answer, error = None, None
            try:
                answer = yield effect
            except AerobeeError as raised:
                error = raised
    finally:
        steps.close()


def masters(
    routes: Routes, *, cluster: str | None = None, broker: str | None = None
) -> Steps[list[Broker]]:
    """The masters, sorted by name; all, those of one cluster, or one of them.

    A missing master is among them: a request to it fails, and is not left out in silence.
    Raises: BrokerNotFoundError if there is none, NoNameServerError.
    """
    info = yield from cluster_info(routes)
    chosen = [
        Broker(known.name, known.address, known.cluster)
        for known in sorted([*info.brokers, *info.missing_masters], key=_place)
        if known.broker_id == MASTER_ID
        and cluster in (None, known.cluster)
        and broker in (None, known.name, known.address)
        and (broker or (known.address or known.name) not in routes.left_out)
    ]
    if not chosen:
        names = {f"{broker.name} ({broker.cluster})": None for broker in info.brokers}
        there = ", ".join(names) or "none"
        wanted = broker or (f"cluster {cluster}" if cluster else "any broker")
        text = f"the name server knows no master of {wanted}; it knows: {there}"
        raise BrokerNotFoundError(text).about(broker=broker)
    return chosen


def one_broker(routes: Routes, name: str | None) -> Steps[Broker]:
    """The broker with a name or address, or the only broker.

    Raises: BrokerNotFoundError, ConfigurationError if one of several must be named.
    """
    if name is not None and ":" in name:
        info = yield from cluster_info(routes)
        for broker in info.brokers:
            if broker.address == name:
                return Broker(broker.name, broker.address, broker.cluster)
    chosen = yield from masters(routes, broker=name)
    if len(chosen) > 1:
        raise ConfigurationError(
            f"name one broker of {', '.join(target.name for target in chosen)}"
        )
    return chosen[0]


def readers_of(routes: Routes, topic: str) -> Steps[list[Broker]]:
    """The brokers of a topic that are not left out, each at its master's address, else a slave's.

    Raises: RouteNotFoundError, BrokerNotFoundError, NoNameServerError.
    """
    route = yield from routes.fetch_route(topic, routes.config.request_timeout)
    readers = []
    for name, by_id in sorted(route.brokers.items()):
        addresses = [address for address in in_order(by_id) if address not in routes.left_out]
        readers += [Broker(name, address) for address in addresses[:1]]
    return readers


# ── Settings and statistics ──


def broker_config(routes: Routes, broker: str | None = None) -> Steps[dict[str, str]]:
    """All settings of a broker, by RocketMQ name; of the only broker if none is named.

    Raises: BrokerNotFoundError, BrokerError, TransportError.
    """
    return (yield from config_of(routes, (yield from one_broker(routes, broker))))


def config_of(routes: Routes, target: Broker) -> Steps[dict[str, str]]:
    """As `broker_config`, of a broker that is known."""
    answered = yield from ask(routes, target, GetBrokerConfig())
    lines = bytes(answered.answer.body).decode("utf-8", "replace").splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def update_broker_config(
    routes: Routes, values: Mapping[str, str], broker: str | None = None
) -> Steps[str]:
    """Change settings of a running broker; returns its warnings about the new values, or nothing.

    Raises: PermissionDeniedError for settings that cannot be changed, BrokerError, TransportError.
    """
    for name, value in values.items():
        if not name.strip() or any(sign in name + value for sign in "\r\n"):
            raise ConfigurationError(f"setting {name!r}: name and value stand on one line")
    body = "".join(f"{name}={value}\n" for name, value in values.items()).encode()
    target = yield from one_broker(routes, broker)
    answered = yield from ask(routes, target, UpdateBrokerConfig(), body=body)
    return answered.answer.remark or ""


def broker_stats(routes: Routes, broker: str | None = None) -> Steps[dict[str, str]]:
    """The runtime statistics of a broker, by RocketMQ name; of the only broker if none is named.

    Raises: BrokerNotFoundError, BrokerError, TransportError.
    """
    return (yield from stats_of(routes, (yield from one_broker(routes, broker))))


def stats_of(routes: Routes, target: Broker) -> Steps[dict[str, str]]:
    """As `broker_stats`, of a broker that is known."""
    answered = yield from ask(routes, target, GetBrokerRuntimeInfo())
    return answered.body(KVTable).table


def stats_item(routes: Routes, name: str, key: str, broker: str | None = None) -> Steps[StatsItem]:
    """One statistic, such as TOPIC_PUT_NUMS of a topic or GROUP_GET_NUMS of `topic@group`.

    Raises: BrokerError if the broker has no statistic of that name; TransportError.
    """
    target = yield from one_broker(routes, broker)
    header = ViewBrokerStatsData(stats_name=name, stats_key=key)
    data = (yield from ask(routes, target, header)).body(BrokerStatsData)
    return StatsItem(
        name=name,
        key=key,
        minute=window(data.stats_minute),
        hour=window(data.stats_hour),
        day=window(data.stats_day),
    )


def window(snapshot: StatsSnapshot) -> StatsWindow:
    """A window of a statistic, as a public value."""
    return StatsWindow(total=snapshot.sum, per_second=snapshot.tps, average=snapshot.avgpt)


# ── Clean-up ──


def delete_expired_files(routes: Routes, broker: str | None = None) -> Steps[None]:
    """Delete expired log files now, not only at the hour of `deleteWhen`.

    Raises: BrokerNotFoundError, BrokerError, TransportError.
    """
    target = yield from one_broker(routes, broker)
    yield from ask(routes, target, DeleteExpiredCommitLog())


def delete_expired_queues(routes: Routes, broker: str | None = None) -> Steps[None]:
    """Delete consume queue files without messages in the log. Raises: as `delete_expired_files`."""
    target = yield from one_broker(routes, broker)
    yield from ask(routes, target, CleanExpiredConsumeQueue())


def clean_unused_topics(routes: Routes, broker: str | None = None) -> Steps[None]:
    """Delete the queues of deleted topics. Raises: as `delete_expired_files`."""
    target = yield from one_broker(routes, broker)
    yield from ask(routes, target, CleanUnusedTopic())
