"""The bodies of etcd's calls and what its answers mean. Pure; JSON, as its gateway takes it.

A group has two keys: `record`, which stays, and `holder`, which is bound to the lease of the master
and vanishes with it. Both are read in one range, so they are of one moment. A change that is sent
again, since the answer was lost, finds its own record there: that is a success.
"""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from aerobee.broker.failover.decider import Sight
from aerobee.broker.failover.record import RecordIllegal, decode_record, encode_record

if TYPE_CHECKING:
    from aerobee.broker.failover.record import Record

RANGE: Final = "/v3/kv/range"
TXN: Final = "/v3/kv/txn"
GRANT: Final = "/v3/lease/grant"
KEEP_ALIVE: Final = "/v3/lease/keepalive"
WATCH: Final = "/v3/watch"
AUTHENTICATE: Final = "/v3/auth/authenticate"
NO_LEASE: Final = "requested lease not found"
"""The text of etcd about a lease that is over. A gateway has its code, 5, for any unknown path."""
TOKEN_REFUSED: Final = frozenset({3, 16})
"""The codes of gRPC for a token that is over: invalid argument, where it is a JWT and etcd's users
or roles have changed since, and unauthenticated."""


class AnswerIllegal(ValueError):
    """An answer that etcd does not give."""


class Keys:
    """The keys of a group, and the bodies that read and change them."""

    def __init__(self, prefix: str, cluster: str, group: str) -> None:
        """`group`: its brokerName."""
        place = f"{prefix.rstrip('/')}/{quote(cluster, safe='')}/{quote(group, safe='')}/"
        self.place = place
        self.record = _b64(f"{place}record".encode())
        self.holder = _b64(f"{place}holder".encode())
        first = place.encode()
        # All keys that begin with the place: up to the next string of its length.
        self._range = {
            "key": _b64(first),
            "range_end": _b64(first[:-1] + bytes([first[-1] + 1])),
        }

    def looking(self) -> dict[str, Any]:
        """Read both keys."""
        return dict(self._range)

    def watching(self, moment: int) -> dict[str, Any]:
        """Be told of the first change behind a moment."""
        return {"create_request": {**self._range, "start_revision": str(moment + 1)}}

    def taking(self, version: int, record: Record) -> dict[str, Any]:
        """Put the record, and a holder with its lease, where nobody holds one."""
        holder = {"key": self.holder, "value": _b64(record.lease.encode()), "lease": record.lease}
        return self._exchange(
            version,
            {"key": self.holder, "target": "CREATE", "create_revision": "0"},
            record,
            {"request_put": holder},
        )

    def changing(self, version: int, record: Record, lease: str) -> dict[str, Any]:
        """Put the record while this lease holds; one without a lease ends it."""
        ending = [] if record.lease else [{"request_delete_range": {"key": self.holder}}]
        held = {"key": self.holder, "target": "VALUE", "value": _b64(lease.encode())}
        return self._exchange(version, held, record, *ending)

    def _exchange(
        self, version: int, condition: dict[str, Any], record: Record, *more: dict[str, Any]
    ) -> dict[str, Any]:
        same = {"key": self.record, "target": "MOD", "mod_revision": str(version)}
        put = {"request_put": {"key": self.record, "value": _b64(encode_record(record))}}
        return {
            "compare": [same | {"result": "EQUAL"}, condition | {"result": "EQUAL"}],
            "success": [put, *more],
            "failure": [{"request_range": self._range}],
        }

    def sight(self, answer: object) -> Sight:
        """The record that a range has found. Raises: AnswerIllegal, RecordIllegal."""
        moment = _revision(answer)
        record, version, held = None, 0, False
        for pair in _rows(answer, "kvs"):
            key = pair.get("key")
            if key == self.record:
                record, version = decode_record(_bytes(pair)), _number(pair, "mod_revision")
            elif key == self.holder:
                held = True
        return Sight(record, version, held, moment)

    def exchanged(self, answer: object, record: Record) -> Sight | None:
        """The record after a change; None: it was refused.

        Raises: AnswerIllegal, RecordIllegal.
        """
        revision = _revision(answer)
        if isinstance(answer, dict) and answer.get("succeeded") is True:
            return Sight(record, revision, bool(record.lease), revision)
        for response in _rows(answer, "responses"):
            inner = response.get("response_range")
            if isinstance(inner, dict):
                sight = self.sight({"header": {"revision": str(revision)}, **inner})
                return sight if sight.record == record else None
        return None


def granting(seconds: int) -> dict[str, Any]:
    """Begin a lease; etcd names it."""
    return {"TTL": str(seconds), "ID": "0"}


def granted(answer: object) -> str:
    """The name of the lease. Raises: AnswerIllegal."""
    lease = answer.get("ID") if isinstance(answer, dict) else None
    if not isinstance(lease, str) or not lease.lstrip("-").isdigit():
        raise AnswerIllegal("a lease without a name")
    return lease


def renewing(lease: str) -> dict[str, Any]:
    """Have a lease begin anew."""
    return {"ID": lease}


def renewed(answer: object) -> bool:
    """Whether it has: one that is over has no time left. Raises: AnswerIllegal."""
    result = answer.get("result") if isinstance(answer, dict) else None
    if not isinstance(result, dict):
        raise AnswerIllegal("a renewal without a result")
    return _number(result, "TTL") > 0


def has_news(line: object) -> bool:
    """Whether a watch tells of a change. Raises: AnswerIllegal where it was cancelled, or failed:
    it will tell of none.
    """
    result = line.get("result") if isinstance(line, dict) else None
    if not isinstance(result, dict) or result.get("canceled"):
        raise AnswerIllegal("a watch that is over")
    return bool(result.get("events"))


def failure(answer: object) -> tuple[int, str]:
    """The code of gRPC and the text of an answer that is no success; −1 without a code."""
    if not isinstance(answer, dict):
        return -1, ""
    code = answer.get("code", -1)
    text = answer.get("message") or answer.get("error") or ""
    return code if isinstance(code, int) else -1, str(text)[:200]


def parsed(data: bytes) -> object:
    """The JSON of an answer. Raises: AnswerIllegal."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise AnswerIllegal(f"no JSON: {error}") from error


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(pair: dict[str, Any]) -> bytes:
    try:
        return base64.b64decode(pair.get("value", ""), validate=True)
    except (ValueError, TypeError) as error:
        raise RecordIllegal(f"it is no base64: {error}") from error


def _number(row: dict[str, Any], name: str) -> int:
    """A number as the gateway writes it: a string, and nothing where it is 0."""
    value = row.get(name, "0")
    if isinstance(value, int | str):
        with suppress(ValueError):
            return int(value)
    raise AnswerIllegal(f"{name} is {value!r:.80}")


def _revision(answer: object) -> int:
    header = answer.get("header") if isinstance(answer, dict) else None
    if not isinstance(header, dict):
        raise AnswerIllegal("an answer without a header")
    return _number(header, "revision")


def _rows(answer: object, name: str) -> list[dict[str, Any]]:
    rows = answer.get(name, []) if isinstance(answer, dict) else []
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise AnswerIllegal(f"{name} is no list of objects")
    return rows
