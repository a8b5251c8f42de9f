"""The consume mode and the read permission of a group for a topic.

Source: admin §3 (setConsumeMode, updateSubGroup), §4.2, §4.3 (codes 353, 401, 402).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.admin import RequestMode
from aerobee.client.message import GROUP_MAX, TOPIC_MAX, check_name
from aerobee.client.namespaces import plain, wrapped
from aerobee.client.steps.admin.brokers import ask, at_each, masters, readers_of
from aerobee.errors import ConfigurationError
from aerobee.remoting.wire.bodies.group import GroupForbidden
from aerobee.remoting.wire.bodies.pop import RequestModeRequest, RequestModes
from aerobee.remoting.wire.headers.group import UpdateGroupForbidden
from aerobee.remoting.wire.headers.pop import GetAllMessageRequestMode, SetMessageRequestMode

if TYPE_CHECKING:
    from aerobee.client.steps.admin.brokers import Broker
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.routes import Routes

MODES: Final = ("PULL", "POP")


# ── Pull or POP ──


def request_modes(routes: Routes) -> Steps[list[RequestMode]]:
    """The consume modes, pull or POP, set on each broker. Needs brokers since 5.1.

    Raises: UnsupportedRequestError, BrokerNotFoundError, BrokerError, TransportError.
    """
    namespace = routes.config.namespace
    modes = []
    for target in (yield from masters(routes)):
        answered = yield from ask(routes, target, GetAllMessageRequestMode())
        for topic, groups in answered.body(RequestModes).message_request_mode_map.items():
            if wrapped(topic, namespace) == topic:
                modes += [
                    RequestMode(
                        broker=target.name,
                        topic=plain(topic, namespace),
                        group=plain(group, namespace),
                        mode=mode.mode,
                        share=max(0, mode.pop_share_queue_num),
                    )
                    for group, mode in groups.items()
                ]
    return sorted(modes, key=lambda mode: (mode.topic, mode.group, mode.broker))


def set_request_mode(
    routes: Routes, group: str, topic: str, mode: str, *, share: int = 0
) -> Steps[None]:
    """Set whether a group with broker-side assignment (`server_assignment`) pulls or pops a topic.

    `mode` is `PULL` or `POP`. With POP each queue has `share` further members; 0 assigns all queues
    to all members. Group and topic must exist. Needs brokers since 5.0.
    Raises: ConfigurationError, RouteNotFoundError, UnsupportedRequestError, BrokerError,
    TransportError.
    """
    check_names(group, topic)
    if mode not in MODES or share < 0:
        raise ConfigurationError(f"mode {mode!r}, share {share}: PULL or POP, and 0 or more")
    wanted = RequestModeRequest(
        consumer_group=group, topic=topic, mode=mode, pop_share_queue_num=share
    )
    yield from at_each(
        (yield from readers_of(routes, topic)),
        lambda target: ask(routes, target, SetMessageRequestMode(), body=wanted.to_bytes()),
    )


# ── Read permission ──


def readable(routes: Routes, group: str, topic: str) -> Steps[dict[str, bool]]:
    """Whether a group may read a topic, by broker name.

    Raises: as `set_readable`.
    """
    return (yield from _readable(routes, group, topic, None))


def set_readable(routes: Routes, group: str, topic: str, allowed: bool) -> Steps[dict[str, bool]]:
    """Forbid a group to read a topic, or allow it again; returns the permission by broker name.

    Brokers refuse pulls that rely on the subscription of the heartbeat, as Java's push consumers
    do, with NO_PERMISSION; pulls with an expression of their own are not checked. Needs brokers
    since 5.0.
    Raises: ConfigurationError, RouteNotFoundError, UnsupportedRequestError, BrokerError,
    TransportError.
    """
    return (yield from _readable(routes, group, topic, allowed))


def _readable(
    routes: Routes, group: str, topic: str, allowed: bool | None
) -> Steps[dict[str, bool]]:
    check_names(group, topic)
    header = UpdateGroupForbidden(group=group, topic=topic, readable=allowed)
    allowed_at: dict[str, bool] = {}

    def at(target: Broker) -> Steps[None]:
        answered = yield from ask(routes, target, header)
        allowed_at[target.name] = answered.body(GroupForbidden).readable

    yield from at_each((yield from readers_of(routes, topic)), at)
    return allowed_at


def check_names(group: str, topic: str) -> None:
    """Check the names of a group and a topic. Raises: ConfigurationError."""
    check_name("group", group, GROUP_MAX)
    check_name("topic", topic, TOPIC_MAX)
