"""Checks fields of a record that no checksum covers against the values that a broker can write.

It takes records in the order of the log and reports findings. A field that only brokers write is
damaged when its value is impossible: ports, the offset of a half message, store times that do not
fit between those of the neighbours. A field from a client is only doubtful: sysFlags, counts and
times that no client library sends, and property strings that are broken or one bit different from
those of nearly every message. A user's flag, an address or the value of a property can be anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.store.format.record import BORN_HOST_IPV6, HEADS, STORE_HOST_IPV6, TRANSACTION_MASK

if TYPE_CHECKING:
    from aerobee.store.format.record import RecordHeader
    from aerobee.store.tools.findings import Findings

JUMP_MS: Final = 3_600_000
"""A clock may be adjusted by less than an hour, but not back and forth for one message."""
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
"""Property names of nearly every message."""
CONSTANT: Final = frozenset({b"MSG_REGION", b"TRACE_ON", b"CLUSTER"})
"""Properties whose value rarely changes, and is printable."""
SEEN_MAX: Final = 4_096
PIECE_MIN: Final = 3
"""The shortest property that is checked; other brokers ignore shorter ones, too."""
PRINTABLE: Final = 0x20
_PORT_FRONT: Final = slice(-4, -2)
_NO_PORT: Final = b"\0\0"


class FieldCheck:
    """Checks records one after the other."""

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
        """The store time before a much earlier one, until the next record is checked."""
        self._low_at = 0
        self._seen: set[bytes] = set()
        """Properties that were already checked."""
        self._values: dict[bytes, bytes] = {}
        """The last value of each constant property."""

    def look(self, data: memoryview, at: int, position: int, header: RecordHeader) -> None:
        """Check the record at `data[at]`, whose physical offset is `position`. Hot."""
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
        """Check a part of a property string that was not seen before."""
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


def _one_bit_apart(value: bytes, other: bytes) -> bool:
    if len(value) != len(other):
        return False
    return (int.from_bytes(value) ^ int.from_bytes(other)).bit_count() == 1
