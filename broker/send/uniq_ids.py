"""Generates UNIQ_KEYs for messages without one.

Source: remoting §4.5 (MessageClientIDSetter).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from aerobee.store.format.message_id import uniq_id

if TYPE_CHECKING:
    from aerobee.store.clock import Clock


class UniqIds:
    """A sequence of ids, unique as long as address, process and salt are.

    `address` is packed (4 or 16 bytes); `salt` distinguishes brokers of one process.
    """

    def __init__(self, address: bytes, process_id: int, salt: int, clock: Clock) -> None:
        self._address = address
        self._process_id = process_id
        self._salt = salt
        self._clock = clock
        self._count = 0
        self._month_start_ms = 0
        self._next_month_ms = 0

    def __call__(self) -> str:
        """The next id: 32 upper-case hex digits, 56 with an IPv6 address."""
        now_ms = self._clock.now_ms()
        if not self._month_start_ms <= now_ms < self._next_month_ms:
            self._enter_month(now_ms)
        self._count += 1
        month_ms = now_ms - self._month_start_ms
        return uniq_id(self._address, self._process_id, self._salt, month_ms, self._count)

    def _enter_month(self, now_ms: int) -> None:
        start = datetime.fromtimestamp(now_ms / 1000, UTC).replace(
            day=1, hour=0, minute=0, second=0, microsecond=0
        )
        following = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
        self._month_start_ms = int(start.timestamp() * 1000)
        self._next_month_ms = int(following.timestamp() * 1000)
