"""The number of a member that RocketMQ's controller gives out: known before a broker is built.

Its first start waits for a controller, and so does each later one: where this broker is, they may
have to learn.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog
import trio

from aerobee.broker.config.settings.advertised import with_port
from aerobee.broker.config.settings.auth import credentials_of
from aerobee.broker.failover.decider import DeciderMisused, DeciderSilent
from aerobee.broker.failover.deciders.controller_identity import Member, identify
from aerobee.broker.failover.deciders.controller_links import ControllerLinks
from aerobee.broker.failover.feature import controllers_of
from aerobee.broker.namesrv.name_server_link import connected, signed_by
from aerobee.broker.process.outgoing_tls import outgoing_link
from aerobee.broker.process.signals import STOPS
from aerobee.store.recovery.start_check import make_directory

if TYPE_CHECKING:
    from aerobee.broker.config.model import BrokerConfig
    from aerobee.store.clock import Clock
    from aerobee.store.files.disk import Disk

AGAIN_S: Final = 1.0
"""The pause between two attempts to get a number."""
LOOK_S: Final = 0.1
"""How often it looks whether it is to stop."""

log = structlog.stdlib.get_logger(__name__)


async def numbered(config: BrokerConfig, disk: Disk, clock: Clock) -> BrokerConfig | None:
    """The settings with the number of this member as its brokerId; None: it is to stop meanwhile.

    Raises: StoreRefused for a directory of another group, OSError.
    """
    broker, remoting = config.broker, config.remoting
    root = Path(config.store.store_path_root_dir)
    make_directory(disk, root)
    port = broker.advertised_port or remoting.listen_port
    member = Member(
        broker.broker_cluster_name, broker.broker_name, with_port(broker.broker_ip1, port)
    )
    account = credentials_of(config.auth.inner_client_authentication_credentials)
    link = replace(outgoing_link(config.tls), dress=signed_by(account))
    connect_s = remoting.connect_timeout_ms / 1000
    connect = partial(connected, connect_timeout_s=connect_s, link=link)
    links = ControllerLinks(*controllers_of(config), connect)
    complained = False
    number: int | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_until_stop, nursery.cancel_scope)
        await nursery.start(links.run)
        while number is None:
            try:
                number = await identify(disk, root, links, member, clock)
            except (DeciderSilent, DeciderMisused) as error:
                if not complained:
                    log.warning("failover.no_number", reason=str(error))
                complained = True
                await trio.sleep(AGAIN_S)
        nursery.cancel_scope.cancel()
    if number is None:
        return None
    log.info("failover.number", broker_id=number)
    return replace(config, broker=replace(broker, broker_id=number))


async def _until_stop(waiting: trio.CancelScope) -> None:
    """End the wait once a stop is asked for: signals are blocked, and nobody takes them yet."""
    while not signal.sigpending() & set(STOPS):  # noqa: ASYNC110  (no event tells)
        await trio.sleep(LOOK_S)
    waiting.cancel()
