"""The file of definitions, and what has to be done for a cluster to have them. No I/O.

    {"aerobee_definitions": 1, "topics": {NAME: {BROKER: settings}}, "groups": …, "users": …,
     "policies": …}

Settings of topics and groups are in RocketMQ's words. A topic or group that is not named in a file
is left alone, so nothing is ever deleted. Secrets are in no file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from aerobee.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

VERSION = 1
KINDS = ("topics", "groups", "users", "policies")
BYTES_MAX = 64 << 20
"""The longest file: some 200,000 topics."""
SHOWN = 120
"""Characters of a value that are shown."""

Placement = dict[str, dict[str, dict[str, Any]]]
"""Name → broker → settings."""


class Definitions(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A file of definitions. The settings of a policy are by `RESOURCE POLICY`."""

    aerobee_definitions: int
    made_at: str = ""
    made_by: str = ""
    topics: Placement = {}
    groups: Placement = {}
    users: Placement = {}
    policies: Placement = {}


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that differs: `before` is None where it is not there."""

    kind: str
    name: str
    broker: str
    before: dict[str, Any] | None
    after: dict[str, Any]

    @property
    def settings(self) -> list[str]:
        """The differences, in words."""
        before = self.before or {}
        return [
            f"{key}: {text(value)}"
            if self.before is None or key not in before
            else f"{key}: {text(before[key])} → {text(value)}"
            for key, value in self.after.items()
            if self.before is None or not holds(before.get(key), value)
        ]


def text(value: Any) -> str:
    """A value on a line."""
    shown = msgspec.json.encode(value).decode()
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}…"


def read(document: bytes) -> Definitions:
    """The definitions in a file. Raises: ConfigurationError, which says what is wrong and where."""
    if len(document) > BYTES_MAX:
        raise ConfigurationError(f"the file is longer than {BYTES_MAX} bytes")
    try:
        head = msgspec.json.decode(document, type=dict[str, msgspec.Raw])
        version = msgspec.json.decode(head.get("aerobee_definitions", b"null"))
        if version is None:
            raise ConfigurationError(
                "the file has no member aerobee_definitions: it is none of `definitions export`"
            )
        if version != VERSION:
            raise ConfigurationError(
                f"the file has version {text(version)} of definitions, this Aerobee reads {VERSION}"
            )
        return msgspec.json.decode(document, type=Definitions)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the file is no JSON of definitions: {error}") from None


def differences(
    wanted: Definitions,
    there: Definitions,
    brokers: Sequence[str],
    kinds: Sequence[str],
    absent: Collection[str] = (),
) -> Iterator[Change]:
    """The changes at each broker: what has to be created or changed. `absent`: brokers of this
    cluster that cannot be asked now.

    Raises: ConfigurationError where a file of another cluster has several settings for one name.
    """
    for kind in kinds:
        has: Placement = getattr(there, kind)
        for name, by_broker in getattr(wanted, kind).items():
            for broker, after in placed(f"{kind} {name}", by_broker, brokers, absent).items():
                before = has.get(name, {}).get(broker)
                if before is None or not holds(before, after):
                    yield Change(kind=kind, name=name, broker=broker, before=before, after=after)


def placed(
    what: str,
    by_broker: Mapping[str, dict[str, Any]],
    brokers: Sequence[str],
    absent: Collection[str],
) -> dict[str, dict[str, Any]]:
    """Settings by broker of this cluster: those of the same names, else the same for all."""
    here = {broker: by_broker[broker] for broker in brokers if broker in by_broker}
    if here or not by_broker or any(broker in by_broker for broker in absent):
        return here
    first, *others = by_broker.values()
    if any(other != first for other in others):
        raise ConfigurationError(
            f"{what}: its settings differ by broker ({', '.join(by_broker)}), and none of these is "
            f"here: name the brokers of this cluster ({', '.join(brokers)}) in the file"
        )
    return dict.fromkeys(brokers, first)


def holds(before: Any, after: Any) -> bool:
    """Whether something already is as it should be: members that are not named do not count, nor
    does the order of words.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        return all(key in before and holds(before[key], value) for key, value in after.items())
    if isinstance(before, list) and isinstance(after, list):
        words = all(isinstance(item, str) for item in (*before, *after))
        return sorted(before) == sorted(after) if words else before == after
    return bool(before == after)
