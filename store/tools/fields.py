"""Fields of a record that nothing protects, held against what a broker can have written.

Records flow in, in the order of the log; findings flow out. What only a broker writes is damaged
when it cannot be: ports, the place of a half, store times that do not fit between those of the
neighbours. What a client says is taken as it comes, so it is only doubted: sysFlags, counts and
times that no client library sends, and property strings that are broken or one bit away from what
is in nearly every message. A user's flag, an address or the value of a property may be anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.store.format.record import BORN_HOST_IPV6, HEADS, STORE_HOST_IPV6, TRANSACTION_MASK

if TYPE_CHECKING:
    from aerobee.store.format.record import RecordHeader
    from aerobee.store.tools.findings import Findings

__all__ = ["FieldCheck"]

JUMP_MS: Final = 3_600_000
"""Clocks are set now and then; by less than an hour, and not there and back for one message."""
FAMILY: Final = BORN_HOST_IPV6 | STORE_HOST_IPV6
_CLOSER: Final = {
    family: head.pick(
        "born_timestamp",
        "born_host",
        "store_host",
        "reconsume_times",
        "prepared_transaction_offset",
    )
    for family, head in HEADS.items()
}
KNOWN_FLAGS: Final = 0x7FF
TIMES_MAX: Final = 1 << 20
BORN_MAX: Final = 1 << 47
"""Beyond the year 6000, in ms."""
OWN_NAMES: Final = frozenset(
    {b"UNIQ_KEY", b"KEYS", b"TAGS", b"WAIT", b"MSG_REGION", b"TRACE_ON", b"CLUSTER"}
)
"""Nearly every message has these."""
CONSTANT: Final = frozenset({b"MSG_REGION", b"TRACE_ON", b"CLUSTER"})
"""These have the same value for long, and it is printable."""
SEEN_MAX: Final = 4_096
PIECE_MIN: Final = 3
"""Shorter ones are passed over by other brokers, too."""
PRINTABLE: Final = 0x20
_PORT_FRONT: Final = slice(-4, -2)
_NO_PORT: Final = b"\0\0"


class FieldCheck:
    """Looks at one record after the other."""

    __slots__ = (
        "_findings",
        "_last",
        "_last_at",
        "_low",
        "_low_at",
        "_second_last",
        "_seen",
        "_values",
    )

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._second_last = self._last = 0
        self._last_at = 0
        self._low: int | None = None
        """The time in front of one that was much earlier, until the next record is seen."""
        self._low_at = 0
        self._seen: set[bytes] = set()
        """Pieces of property strings that were looked at."""
        self._values: dict[bytes, bytes] = {}
        """The last value of those that are constant."""

    def look(self, data: memoryview, at: int, position: int, header: RecordHeader) -> None:
        """The record at `data[at]`, whose physical offset is `position`. Hot."""
        flags = header.sys_flag
        born, born_host, store_host, times, prepared = _CLOSER[flags & FAMILY](data, at)
        if (
            born_host[_PORT_FRONT] != _NO_PORT
            or store_host[_PORT_FRONT] != _NO_PORT
            or (prepared and not flags & TRANSACTION_MASK)
        ):
            text = (
                f"one of these cannot be: preparedTransactionOffset {prepared} with sysFlag "
                f"{flags:#x}, the ports of the hosts"
            )
            self._damaged(position, header, text)
        if not 0 <= times < TIMES_MAX or not 0 <= born < BORN_MAX or not 0 <= flags <= KNOWN_FLAGS:
            text = f"sysFlag {flags:#x}, bornTimestamp {born}, reconsumeTimes {times}"
            self._doubted(position, header, text)
        for piece in header.properties.split(b"\x02"):
            if piece not in self._seen:
                self._see(piece, position, header)
        stored = header.store_timestamp
        if self._low is not None or stored + JUMP_MS < self._last:
            self._see_jump(stored, position, header)
        self._second_last, self._last, self._last_at = self._last, stored, position

    def _see_jump(self, stored: int, position: int, header: RecordHeader) -> None:
        low, self._low = self._low, None
        if low is not None:
            if stored + JUMP_MS >= low:
                self._damaged(self._low_at, header, "a store time hours before its neighbours'")
        elif stored >= self._second_last:
            self._damaged(self._last_at, header, "a store time hours behind its neighbours'")
        else:
            self._low, self._low_at = self._last, position

    def _see(self, piece: bytes, position: int, header: RecordHeader) -> None:
        """A part of a property string that was not there before."""
        if len(self._seen) >= SEEN_MAX:
            self._seen.clear()
        self._seen.add(piece)
        name, equals, value = piece.partition(b"\x01")
        if not equals and len(piece) >= PIECE_MIN:
            self._doubted(position, header, f"a property without a value: {piece[:40]!r}")
        elif name not in OWN_NAMES:
            if any(_one_bit_apart(name, known) for known in OWN_NAMES):
                self._doubted(position, header, f"a property named {name!r}")
        elif name in CONSTANT:
            last = self._values.get(name, value)
            if _one_bit_apart(last, value) or (value and min(value) < PRINTABLE):
                self._doubted(position, header, f"{name.decode()} is {value!r} after {last!r}")
            self._values[name] = value

    def _doubted(self, position: int, header: RecordHeader, text: str) -> None:
        self._findings.doubted("field", f"{header.topic}-{header.queue_id}", text, position)

    def _damaged(self, position: int, header: RecordHeader, text: str) -> None:
        self._findings.damaged("field", f"{header.topic}-{header.queue_id}", text, position)


def _one_bit_apart(one: bytes, other: bytes) -> bool:
    if len(one) != len(other):
        return False
    return (int.from_bytes(one) ^ int.from_bytes(other)).bit_count() == 1
