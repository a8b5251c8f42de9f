"""Figures of the broker: now, and over the last minute, hour and day.

Source: admin §4.3, §6 (AdminBrokerProcessor).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.errors import Refusal
from aerobee.broker.metrics.samples import WINDOWS
from aerobee.remoting.wire.answer import Answer
from aerobee.remoting.wire.bodies.kv_table import KVTable
from aerobee.remoting.wire.bodies.statistics import BrokerStatsData, StatsSnapshot
from aerobee.remoting.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aerobee.broker.admin.runtime_info import RuntimeInfo
    from aerobee.broker.metrics.samples import Samples, Window
    from aerobee.remoting.server.caller import Caller
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.headers import admin as headers

ITEMS: Final[Mapping[str, tuple[str, bool]]] = {
    "TOPIC_PUT_NUMS": ("TOPIC_PUT", False),
    "TOPIC_PUT_SIZE": ("TOPIC_PUT", True),
    "GROUP_GET_NUMS": ("GROUP_GET", False),
    "GROUP_GET_SIZE": ("GROUP_GET", True),
    "SNDBCK_PUT_NUMS": ("SNDBCK_PUT", False),
    "BROKER_PUT_NUMS": ("BROKER_PUT", False),
    "BROKER_GET_NUMS": ("BROKER_GET", False),
    "BROKER_ACK_NUMS": ("BROKER_ACK", False),
    "BROKER_CK_NUMS": ("BROKER_CK", False),
    "GROUP_ACK_NUMS": ("GROUP_ACK", False),
    "GROUP_CK_NUMS": ("GROUP_CK", False),
    "CHANNEL_ACTIVITY": ("CHANNEL_ACTIVITY", False),
    "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC": ("BROKER_PUT_WITHOUT_SYSTEM_TOPIC", False),
    "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC": ("BROKER_GET_WITHOUT_SYSTEM_TOPIC", False),
}
"""RocketMQ's name → the series, and whether the figure is its bytes.

The figures that would need a counter or a clock per message are left out: QUEUE_PUT_…, QUEUE_GET_…,
TOPIC_PUT_LATENCY, GROUP_GET_LATENCY, GROUP_GET_FALL_…, …_REGISTER_TIME. Tools get "not exist".
"""


class Figures:
    """Handles the codes 28 and 315."""

    def __init__(self, samples: Samples, runtime_info: RuntimeInfo) -> None:
        self.samples = samples
        self.runtime_info = runtime_info

    def stats_data(
        self, header: headers.ViewBrokerStatsData, command: Command, connection: Caller
    ) -> Answer:
        """VIEW_BROKER_STATS_DATA."""
        item, of_bytes = ITEMS.get(header.stats_name, ("", False))
        minute, hour, day = (self.snapshot(item, header.stats_key, w, of_bytes) for w in WINDOWS)
        if minute is None or hour is None or day is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
            )
        return Answer(body=BrokerStatsData(minute, hour, day).to_bytes())

    def snapshot(self, item: str, key: str, window: Window, of_bytes: bool) -> StatsSnapshot | None:
        """A series over one window; None for a series without data."""
        grown = self.samples.growth(item, key, window)
        if grown is None:
            return None
        total, per_s = grown.messages, grown.per_s
        if of_bytes:
            total, per_s = grown.size_bytes, grown.bytes_per_s
        return StatsSnapshot(total, per_s, total / grown.messages if grown.messages else 0.0)

    async def runtime(
        self, header: headers.GetBrokerRuntimeInfo, command: Command, connection: Caller
    ) -> Answer:
        """GET_BROKER_RUNTIME_INFO."""
        return Answer(body=KVTable(await self.runtime_info.figures()).to_bytes())
