"""Notifies the brokers of one name that the smallest id among them, the acting master, changed.

A one-way request to each registered address, over a connection of its own, without a retry: a
broker that cannot be reached learns of the change when it next asks the name server. Source:
nameserver §3.3 (RouteInfoManager).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

import structlog
import trio

from aerobee.broker.namesrv.name_server_link import connected
from aerobee.remoting.errors import RemotingError
from aerobee.remoting.wire.headers.namesrv import NotifyMinBrokerIdChange

if TYPE_CHECKING:
    from collections.abc import Callable

    from aerobee.broker.namesrv.registrations import MinIdChange
    from aerobee.remoting.client.link import Link

WAITING_MAX: Final = 1_000
"""Changes that wait to be sent; more are dropped."""
AT_ONCE: Final = 16
"""Brokers that are notified at the same time."""
WITHIN_S: Final = 3.0
"""How long the notice to one broker may take."""

log = structlog.stdlib.get_logger(__name__)


class MinIdNotices:
    """The service that sends the notices. `tell` may be called from anywhere in the loop."""

    def __init__(self, link: Callable[[], Link]) -> None:
        self._link = link
        self.send: trio.MemorySendChannel[MinIdChange]
        self.receive: trio.MemoryReceiveChannel[MinIdChange]
        self.send, self.receive = trio.open_memory_channel(WAITING_MAX)

    def tell(self, change: MinIdChange) -> None:
        """Queue the notices of a change; dropped when too many changes wait."""
        try:
            self.send.send_nowait(change)
        except trio.WouldBlock:
            log.warning("namesrv.min_id_untold", waiting=WAITING_MAX)

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> NoReturn:
        """Send notices until cancelled."""
        task_status.started()
        async for change in self.receive:
            header, limiter = notice(change), trio.CapacityLimiter(AT_ONCE)
            async with trio.open_nursery() as nursery:
                for address in change.told:
                    nursery.start_soon(tell_one, address, header, limiter, self._link())
        raise AssertionError("the channel is never closed")


async def tell_one(
    address: str, header: NotifyMinBrokerIdChange, limiter: trio.CapacityLimiter, link: Link
) -> None:
    """Notify one broker; a log line when it cannot be reached."""
    async with limiter:
        with trio.move_on_after(WITHIN_S):
            try:
                async with connected(address, connect_timeout_s=WITHIN_S, link=link) as broker:
                    await broker.tell(header)
            except (RemotingError, OSError) as error:
                log.info("namesrv.min_id_unheard", address=address, reason=str(error))


def notice(change: MinIdChange) -> NotifyMinBrokerIdChange:
    """The notice of a change."""
    smallest = min(change.addresses)
    return NotifyMinBrokerIdChange(
        min_broker_id=smallest,
        min_broker_addr=change.addresses[smallest],
        offline_broker_addr=change.offline,
        ha_broker_addr=change.ha_address,
    )
