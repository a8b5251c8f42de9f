"""Offsets of groups: queries, and resets by time, to an offset, or from another group.

Source: admin §3 (resetOffsetByTime, cloneGroupOffset), §5, client §13.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.admin import OffsetChange
from aerobee.client.message import GROUP_MAX, check_name
from aerobee.client.steps.admin.brokers import Broker, ask, config_of
from aerobee.client.steps.admin.clients import consumers
from aerobee.client.steps.admin.groups import consumer_lag
from aerobee.client.steps.offsets import Offsets
from aerobee.errors import ClientStateError, ConfigurationError
from aerobee.remoting.wire.headers.offset import ResetOffset
from aerobee.store.format.system_names import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from aerobee.client.send_result import MessageQueue
    from aerobee.client.settings.client import ConsumeFrom
    from aerobee.client.steps.effects import Steps
    from aerobee.client.steps.routes import Routes

SERVER_SIDE = "useServerSideResetOffset"
"""The setting with which a broker resets offsets by itself (on by default since 5.2)."""


def queues_of(routes: Routes, topic: str) -> Steps[Sequence[MessageQueue]]:
    """The readable queues of a topic. Raises: RouteNotFoundError, NoNameServerError."""
    route = yield from routes.fetch_route(topic, routes.config.request_timeout)
    return route.readable


def committed_offsets(
    routes: Routes, group: str, topic: str
) -> Steps[dict[MessageQueue, int | None]]:
    """The committed offset of a group for each queue of a topic; None where it has none.

    Raises: RouteNotFoundError, BrokerError, TransportError.
    """
    offsets = Offsets(routes, group)
    committed: dict[MessageQueue, int | None] = {}
    for queue in (yield from queues_of(routes, topic)):
        committed[queue] = yield from offsets.committed(queue, zero=False)
    return committed


def offsets_for_time(routes: Routes, topic: str, at: datetime) -> Steps[dict[MessageQueue, int]]:
    """The offset of the first message of each queue stored at `at` or later, else its end.

    Raises: RouteNotFoundError, ConfigurationError for a time without a zone, BrokerError,
    TransportError.
    """
    offsets = Offsets(routes, "")
    starts: dict[MessageQueue, int] = {}
    for queue in (yield from queues_of(routes, topic)):
        starts[queue] = yield from offsets.at_time(queue, at)
    return starts


def reset_offsets(
    routes: Routes,
    group: str,
    topic: str,
    to: datetime | ConsumeFrom | int,
    *,
    queues: Collection[MessageQueue] | None = None,
    force: bool = True,
    dry_run: bool = False,
) -> Steps[list[OffsetChange]]:
    """Reset the offsets of a group in a topic, in all queues or some; returns the changes.

    `to` is a time, the first or last message, or an offset, limited to the bounds of each queue.
    Without `force` offsets are only moved back, never forward. With `dry_run` nothing is changed.
    Running consumers continue there. Raises: ConfigurationError, ClientStateError if an old broker
    cannot reset a group that is online, BrokerError, RouteNotFoundError, TransportError.
    """
    check_name("group", group, GROUP_MAX)
    offsets = Offsets(routes, group)
    readable = yield from queues_of(routes, topic)
    wanted = readable if queues is None else sorted(queues)
    unknown = set(wanted) - set(readable)
    if unknown:
        raise ConfigurationError(f"topic {topic} has no queue {min(unknown)}")
    changes = []
    for queue in wanted:
        before = yield from offsets.committed(queue, zero=False)
        after = yield from target_of(offsets, queue, to)
        if before != after and (force or before is None or after < before):
            changes.append(OffsetChange(queue=queue, before=before, after=after))
    if not dry_run:
        yield from move(routes, group, changes)
    return changes


def target_of(
    offsets: Offsets, queue: MessageQueue, to: datetime | ConsumeFrom | int
) -> Steps[int]:
    """The offset of `to` in one queue."""
    if not isinstance(to, int):
        return (yield from offsets.resolve(queue, to))
    first = yield from offsets.lowest(queue)
    end = yield from offsets.end(queue)
    return min(max(to, first), end)


def clone_offsets(
    routes: Routes, source: str, target: str, *, topic: str | None = None, dry_run: bool = False
) -> Steps[list[OffsetChange]]:
    """Copy the offsets of a group to another one, of a topic or of all; returns the changes.

    `target` must exist (`create_group`); its running consumers continue at the new offsets.
    Raises: as `reset_offsets`.
    """
    check_name("group", target, GROUP_MAX)
    lag = yield from consumer_lag(routes, source, topic)
    of_source, of_target = Offsets(routes, source), Offsets(routes, target)
    changes = []
    for queue in (queue.queue for queue in lag.queues):
        if queue.topic.startswith(RETRY_PREFIX):
            continue
        after = yield from of_source.committed(queue, zero=False)
        before = yield from of_target.committed(queue, zero=False)
        if after is not None and after != before:
            changes.append(OffsetChange(queue=queue, before=before, after=after))
    if not dry_run:
        yield from move(routes, target, changes)
    return changes


# ── Changes ──


def move(routes: Routes, group: str, changes: Sequence[OffsetChange]) -> Steps[None]:
    """Apply changes of offsets.

    A broker that resets offsets by itself notifies members with their next pull. On other brokers
    an offset can be written only while no member is online, because members would overwrite it.
    """
    offsets = Offsets(routes, group)
    by_itself: dict[str, bool] = {}
    for change in changes:
        queue = change.queue
        target = Broker(queue.broker_name, routes.master(queue.broker_name))
        if target.name not in by_itself:
            settings = yield from config_of(routes, target)
            by_itself[target.name] = settings.get(SERVER_SIDE) == "true"
            if not by_itself[target.name]:
                yield from check_offline(routes, group, target.name)
        if by_itself[target.name]:
            header = ResetOffset(
                topic=queue.topic,
                group=group,
                timestamp=0,
                is_force=True,
                queue_id=queue.queue_id,
                offset=change.after,
            )
            yield from ask(routes, target, header)
        else:
            yield from offsets.commit(queue, change.after, master_only=True)


def check_offline(routes: Routes, group: str, broker: str) -> Steps[None]:
    """Check that no member is online, which would overwrite offsets. Raises: ClientStateError."""
    online = yield from consumers(routes, group)
    if online.members:
        raise ClientStateError(
            f"group {group} has {len(online.members)} members online, and broker {broker} cannot "
            f"move a group that is ({SERVER_SIDE} is off or not known to it): stop them first"
        )
