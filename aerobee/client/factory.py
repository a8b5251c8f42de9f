"""Makes a client's state from its options: the only module of the SDK that queries the machine."""

from __future__ import annotations

import os
import socket
import time
from random import Random
from typing import TYPE_CHECKING, Any, Unpack

from aerobee.client.settings.client import ClientConfig, ClientOptions, name_servers
from aerobee.client.steps.effects import Clock
from aerobee.client.steps.instance import Instance
from aerobee.client.steps.messages import UniqIds
from aerobee.errors import ConfigurationError, ForkedClientError

if TYPE_CHECKING:
    from collections.abc import Sequence


def monotonic() -> float:
    """Seconds that never step back, with those in which the machine sleeps where it counts them.

    Locks and invisible times at brokers go on meanwhile.
    """
    return time.clock_gettime(SLEEPS_TOO) if SLEEPS_TOO is not None else time.monotonic()


SLEEPS_TOO: int | None = getattr(time, "CLOCK_BOOTTIME", None)
CLOCK = Clock(monotonic, lambda: time.time_ns() // 1_000_000)


def make_config(
    namesrv: str | Sequence[str] | None, *, lookup_tries: int = 1, **options: Unpack[ClientOptions]
) -> ClientConfig:
    """The options of a new client with defaults filled in.

    Raises: ConfigurationError, also for an option that does not exist.
    """
    unknown = options.keys() - ClientOptions.__annotations__.keys()
    if unknown:
        raise ConfigurationError(f"unknown options: {', '.join(sorted(unknown))}")
    addresses = name_servers(namesrv)
    settings: dict[str, Any] = {**options}
    name = settings.pop("instance_name", None) or f"{os.getpid()}#{time.monotonic_ns()}"
    return ClientConfig(
        name_servers=addresses,
        client_id=f"{own_address(addresses[0])}@{name}",
        process_id=os.getpid(),
        lookup_tries=lookup_tries,
        **settings,
    )


def make_instance(config: ClientConfig) -> Instance:
    """The state of a new client."""
    return Instance(config, CLOCK, random=Random())


def is_copy(instance: Instance) -> bool:
    """Whether this is the copy that a fork made of another process's client."""
    return os.getpid() != instance.config.process_id


def check_process(instance: Instance) -> None:
    """Check that this process created the client, not its parent. Raises: ForkedClientError."""
    if is_copy(instance):
        raise ForkedClientError("this client was made before a fork: make one in this process")


def make_uniq_ids(instance: Instance) -> UniqIds:
    """A source of message ids for one producer."""
    host = instance.config.client_id.partition("@")[0]
    return uniq_ids(host, instance.config.process_id, instance.random)


def uniq_ids(host: str, process_id: int, random: Random) -> UniqIds:
    """A source of message ids for a process on a host, which is given by its address."""
    try:
        address = socket.inet_aton(host)
    except OSError:
        address = socket.inet_pton(socket.AF_INET6, host.strip("[]"))[-4:]
    return UniqIds(address, process_id, random.getrandbits(32), random.getrandbits(16))


def own_address(peer: str) -> str:
    """The local address of this machine for connections to `peer`, IPv6 in brackets.

    It sends nothing.
    """
    host = peer.rpartition(":")[0].strip("[]")
    for target in (host, ELSEWHERE):
        try:
            family, kind, proto, _, address = socket.getaddrinfo(
                target, 9, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST
            )[0]
            with socket.socket(family, kind, proto) as probe:
                probe.connect(address)
                address_here = str(probe.getsockname()[0]).partition("%")[0]
        except (OSError, ValueError):  # The latter for what is no name of a host.
            continue
        return f"[{address_here}]" if ":" in address_here else address_here
    return "127.0.0.1"


ELSEWHERE = "192.0.2.1"
"""An address reserved for documentation (RFC 5737), to find the default route."""
