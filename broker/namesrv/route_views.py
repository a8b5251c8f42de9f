"""Views of a route: only the brokers of a zone, and slaves that act as masters.

Source: nameserver §3.4 (ZoneRouteRPCHook, RouteInfoManager).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.namesrv.registrations import MASTER_ID
from aerobee.broker.topics.topics import PERM_WRITE
from aerobee.store.format.system_names import MEMBERS_PREFIX

if TYPE_CHECKING:
    from aerobee.remoting.wire.bodies.route import TopicRouteData


def of_zone(route: TopicRouteData, zone: str) -> None:
    """Keep the brokers of this zone, and those without a master, whose slaves serve all zones."""
    route.broker_datas = [
        data
        for data in route.broker_datas
        if MASTER_ID not in data.broker_addrs
        or (data.zone_name or "").casefold() == zone.casefold()
    ]
    names = {data.broker_name for data in route.broker_datas}
    route.queue_datas = [queue for queue in route.queue_datas if queue.broker_name in names]
    kept = {address for data in route.broker_datas for address in data.broker_addrs.values()}
    route.filter_server_table = {
        address: servers
        for address, servers in route.filter_server_table.items()
        if address in kept
    }


def with_acting_masters(route: TopicRouteData, topic: str) -> None:
    """Show the smallest id as the master where the master left and the topic is not writable."""
    if topic.startswith(MEMBERS_PREFIX):
        return
    closed = {queue.broker_name for queue in route.queue_datas if not queue.perm & PERM_WRITE}
    for data in route.broker_datas:
        masterless = data.broker_addrs and MASTER_ID not in data.broker_addrs
        if masterless and data.enable_acting_master and data.broker_name in closed:
            acting = min(data.broker_addrs)
            others = {key: value for key, value in data.broker_addrs.items() if key != acting}
            data.broker_addrs = {MASTER_ID: data.broker_addrs[acting], **others}
