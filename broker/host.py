"""What the machine says about itself: its name, its CPUs, the addresses of its interfaces."""

from __future__ import annotations

import os
import socket
import struct
from ipaddress import IPv6Address
from pathlib import Path

__all__ = ["addresses", "cpu_count", "host_name"]

SIOCGIFADDR = 0x8915
SIOCGIFFLAGS = 0x8913
IFF_UP, IFF_LOOPBACK = 0x1, 0x8
INTERFACES = Path("/sys/class/net")
IPV6_TABLE = Path("/proc/net/if_inet6")


def cpu_count() -> int:
    """The CPUs that this process may use, at least 1."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return usable or 1


def host_name() -> str:
    """The name of this host; empty if it has none."""
    try:
        return socket.gethostname()
    except OSError:
        return ""


def addresses() -> list[str]:
    """IPv4, then IPv6 addresses of interfaces that are up; no loopback, bridge or virtual one."""
    if not INTERFACES.is_dir():
        return resolved()
    names = [name for _, name in socket.if_nameindex() if not is_virtual(name)]
    ipv4 = [address for name in names if (address := ipv4_of(name))]
    return ipv4 + ipv6_of(set(names))


def is_virtual(name: str) -> bool:
    """Whether the interface is a bridge or an alias of another one."""
    return ":" in name or (INTERFACES / name / "bridge").exists()


def ipv4_of(name: str) -> str:
    """The IPv4 address of an interface; empty if it is down, has none or is the loopback."""
    import fcntl

    request = struct.pack("256s", name.encode()[:15])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            reply = fcntl.ioctl(asking.fileno(), SIOCGIFFLAGS, request)
            (flags,) = struct.unpack_from("=H", reply, 16)
            if not flags & IFF_UP or flags & IFF_LOOPBACK:
                return ""
            reply = fcntl.ioctl(asking.fileno(), SIOCGIFADDR, request)
    except OSError:
        return ""
    return socket.inet_ntoa(reply[20:24])


def ipv6_of(names: set[str]) -> list[str]:
    """The global IPv6 addresses of these interfaces."""
    try:
        lines = IPV6_TABLE.read_text("ascii").splitlines()
    except OSError:
        return []
    rows = [line.split() for line in lines]
    return [
        str(IPv6Address(int(row[0], 16)))
        for row in rows
        if len(row) == 6 and row[3] == "00" and row[5] in names
    ]


def resolved() -> list[str]:
    """Where interfaces cannot be listed: what the host's own name resolves to."""
    try:
        found = socket.getaddrinfo(host_name(), None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))
