"""The options of a client, checked once: addresses, names, time-outs, retries."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, TypedDict

from aerobee.client.callables import check_function
from aerobee.client.message import TOPIC_MAX, check_name
from aerobee.errors import ConfigurationError
from aerobee.whole_number import whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from aerobee.client.security import CredentialsSource, TLSConfig
    from aerobee.hooks import Hook

RETRY_CODES = frozenset({1, 2, 14, 16, 17, 204, 205, 1500})
NAMESRV_PORT = 9876
CONNECT_MAX_S = 3600.0
"""The longest timeout of a connection; without an end a silent host would hold up for ever."""
NAMESRV_DEFAULT = f"127.0.0.1:{NAMESRV_PORT}"


class ConsumeFrom(Enum):
    """Where a group without a committed offset begins."""

    LAST = "CONSUME_FROM_LAST_OFFSET"
    FIRST = "CONSUME_FROM_FIRST_OFFSET"


def epoch_ms(at: datetime) -> int:
    """A time in ms since the epoch. Raises: ConfigurationError for a time without a zone."""
    if at.tzinfo is None:
        raise ConfigurationError(f"{at} has no time zone: use datetime.now(UTC) or .astimezone()")
    return int(at.timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a send is tried, and after which response codes. Times in seconds.

    The send's own timeout covers all tries. Source: client §5.3.
    """

    attempts: int = 3
    """The most tries of a send that brokers refuse, including the first."""
    codes: frozenset[int] = RETRY_CODES
    """The response codes after which a send is tried again."""
    per_try: float | None = 3.0
    """The timeout of one try; None for all the remaining time."""
    backoff: float = 0.1
    """The pause before a broker that failed is tried again; it doubles each further time."""
    backoff_max: float = 1.0
    """The longest pause."""
    patient: bool = True
    """Whether temporary failures are retried until the timeout, not only `attempts` times.

    Temporary is a broker that cannot be reached, does not answer or is not ready, and a name server
    that cannot be reached.
    """

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ConfigurationError("RetryPolicy: attempts counts the first try, so at least 1")
        if not (0 <= self.backoff <= self.backoff_max and (self.per_try or 1) > 0):
            raise ConfigurationError("RetryPolicy: 0 <= backoff <= backoff_max, and per_try > 0")


DEFAULT_RETRY = RetryPolicy()
"""The default policy, with which three tries fit into a producer's 10 s."""


class ClientOptions(TypedDict, total=False):
    """The keyword options of a Client, also for producers and consumers with their own client.

    Times are seconds; meanings and defaults are those of ClientConfig.
    """

    instance_name: str | None
    """Part of the client's id, to distinguish clients on one machine; by default it is unique."""
    connect_timeout: float
    request_timeout: float
    route_interval: float
    heartbeat_interval: float
    credentials: CredentialsSource | None
    tls: bool | TLSConfig
    hooks: Sequence[Hook]
    namespace: str | None
    namespace_v2: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """A client's options with defaults filled in. All times in seconds."""

    name_servers: tuple[str, ...]
    client_id: str
    process_id: int
    connect_timeout: float = 3.0
    """The timeout for opening a connection."""
    request_timeout: float = 3.0
    """The timeout of requests that have none of their own."""
    route_interval: float = 30.0
    """The period in which the routes of all topics in use are updated."""
    heartbeat_interval: float = 30.0
    """The period of heartbeats to every broker."""
    credentials: CredentialsSource | None = None
    """The account with which every request is signed."""
    tls: bool | TLSConfig = False
    """Encrypted connections to name servers and brokers; True uses the system's CA certificates."""
    namespace: str | None = None
    """The namespace of 4.x clients, as Java's `namespace`: topic `T` and group `G` are `ns%T` and
    `ns%G` for brokers of any version, and for clients outside of that namespace."""
    namespace_v2: str | None = None
    """The namespace that every request names, as Java's `namespaceV2`: names of topics and groups
    stay unchanged, and brokers and proxies since 5.0 interpret it."""
    hooks: tuple[Hook, ...] = ()
    """Hooks that are called for each send and each delivery, see `aerobee.hooks`."""
    lookup_tries: int = 1
    """The most tries of a query of offsets or routes."""

    def __post_init__(self) -> None:
        for name in ("connect_timeout", "request_timeout", "route_interval", "heartbeat_interval"):
            if not getattr(self, name) > 0:
                raise ConfigurationError(f"{name} is a number of seconds above 0")
        if self.connect_timeout > CONNECT_MAX_S:
            raise ConfigurationError(f"connect_timeout is at most {CONNECT_MAX_S:g} s")
        self._check_namespaces()
        object.__setattr__(self, "hooks", tuple(self.hooks))
        for hook in self.hooks:
            for name in ("before_send", "after_send", "before_consume", "after_consume"):
                if not callable(getattr(hook, name, None)):
                    raise ConfigurationError(
                        f"hook {hook!r} has no {name}: derive it from aerobee.hooks.Hook"
                    )
                check_function(f"{name} of hook {hook!r}", getattr(hook, name))
        if callable(self.credentials):
            check_function("credentials", self.credentials)

    def _check_namespaces(self) -> None:
        for kind, name in (("namespace", self.namespace), ("namespace_v2", self.namespace_v2)):
            if name is not None:
                check_name(kind, name, TOPIC_MAX)
        if self.namespace is not None and "%" in self.namespace:
            raise ConfigurationError(f"namespace {self.namespace!r}: % ends it within a name")
        if self.namespace is not None and self.namespace_v2 is not None:
            raise ConfigurationError(
                "namespace (of 4.x clients, within names) or namespace_v2 (a field of requests "
                "since 5.0): a client is in one of them"
            )


def check_kind(name: str, value: object, *kinds: type) -> None:
    """Check the type of an option, of which another one would be taken for the default, or be found
    out by the first request. Raises: ConfigurationError.
    """
    if not isinstance(value, kinds):
        known = " or ".join(kind.__name__ for kind in kinds)
        raise ConfigurationError(f"{name} is {value!r}: it must be a {known}")


def divided(options: Mapping[str, Any], own: type) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split options into fields of the dataclass `own`, and those of a client."""
    names = {field.name for field in fields(own)}
    mine = {name: value for name, value in options.items() if name in names}
    return mine, {name: value for name, value in options.items() if name not in names}


def name_servers(names: str | Sequence[str] | None) -> tuple[str, ...]:
    """The addresses as `host:port`; from NAMESRV_ADDR, then 127.0.0.1:9876, if none are given.

    A text separates them by `;` or `,`; the port is optional. Raises: ConfigurationError.
    Source: client §2.1.
    """
    listed = names or os.environ.get("NAMESRV_ADDR") or NAMESRV_DEFAULT
    parts = listed.replace(",", ";").split(";") if isinstance(listed, str) else listed
    addresses = tuple(_address(part) for part in parts if part.strip())
    if not addresses:
        raise ConfigurationError(f"no name server address in {listed!r}")
    return addresses


def _address(text: str) -> str:
    """One address as `host:port`; IPv6 hosts are in brackets. Raises: ConfigurationError."""
    plain = text.strip().removeprefix("http://").rstrip("/")
    host, colon, port = plain.rpartition(":")
    if not colon or plain.endswith("]"):
        return f"{plain}:{NAMESRV_PORT}"
    if not host or not 0 < (whole_number(port) or 0) < 65536:
        raise ConfigurationError(f"{text!r} is no address; write host:port")
    return plain
