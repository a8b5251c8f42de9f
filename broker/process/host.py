"""The machine: name, CPUs, addresses, limit on open files; and the build that runs on it."""

from __future__ import annotations

import os
import platform
import resource
import socket
import struct
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from ipaddress import IPv6Address
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from aerobee.broker.config.model import BrokerConfig
    from aerobee.store.files.disk import Disk

SIOCGIFADDR = 0x8915
SIOCGIFFLAGS = 0x8913
IFF_UP, IFF_LOOPBACK = 0x1, 0x8
WILDCARDS = ("0.0.0.0", "::")
INTERFACES = Path("/sys/class/net")
IPV6_TABLE = Path("/proc/net/if_inet6")
PROCESSES = Path("/proc")
SOCKET_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
LISTENS = "0A"
"""The state of a socket that listens, in these tables."""
UNKNOWN: Final = "unknown"
"""The version of a tree that is not installed."""


def cpu_count() -> int:
    """The CPUs that this process may use, at least 1."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return usable or 1


def disk_bytes(config: BrokerConfig, disk: Disk) -> int:
    """The size of the larger of the file systems of store and log. Raises: OSError. Blocking."""
    root = config.store.store_path_root_dir
    places = (root, config.store.store_path_commit_log or root)
    paths = [Path(place).expanduser().absolute() for place in places]
    return max(disk.free_space(nearest(path, disk)).total_bytes for path in paths)


def nearest(path: Path, disk: Disk) -> Path:
    """The path, or the nearest directory above it that exists, as far as this user may see: the
    store makes its own later.
    """
    return next(parent for parent in (path, *path.parents) if _is_seen(parent, disk))


def _is_seen(path: Path, disk: Disk) -> bool:
    try:
        return disk.exists(path)
    except PermissionError:
        return False


def descriptor_limit() -> int | None:
    """The limit on open files and sockets of this process; None: unlimited."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def descriptors_in_use() -> int:
    """Open descriptors of this process; 0 where the system does not say."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


def listeners_on(port: int) -> list[str]:
    """Name and pid of each process that listens on a port of this host, as far as this user may
    see them. Blocking.
    """
    sockets = set()
    for table in SOCKET_TABLES:
        with suppress(OSError):
            for line in table.read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    sockets.add(f"socket:[{fields[9]}]")
    listeners = []
    for process in PROCESSES.glob("[0-9]*") if sockets else ():
        # The process may end while we look, or belong to somebody else.
        with suppress(OSError):
            if any(os.readlink(link) in sockets for link in (process / "fd").iterdir()):
                name = (process / "comm").read_text().strip()
                listeners.append(f"{name} (pid {process.name})")
    return listeners


def raise_descriptor_limit() -> None:
    """Raise the limit on open files as far as that is allowed."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


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
    names = [name for name in interfaces() if not is_virtual(name)]
    ipv4 = [address for name in names if (address := ipv4_of(name))]
    return ipv4 + ipv6_of(set(names))


def interfaces() -> list[str]:
    """The names of the network interfaces, in the order in which the kernel numbers them.

    Not of `if_nameindex`, which asks over a netlink socket: a service may be denied that.
    """
    numbers: dict[str, int] = {}
    for place in INTERFACES.iterdir():
        # An interface may go while we look, and not every entry is one.
        with suppress(OSError):
            numbers[place.name] = int((place / "ifindex").read_text())
    return sorted(numbers, key=numbers.__getitem__)


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


def listens_at(bound: str, host: str) -> bool:
    """Whether a listener bound to one address is reached at another; no name is resolved."""
    local = "127.0.0.1" if host in ("", "localhost") else host.strip("[]")
    if bound in WILDCARDS:
        return local in (*WILDCARDS, "127.0.0.1", "::1", *addresses())
    return local == ("127.0.0.1" if bound == "localhost" else bound)


def other_name_servers(config: BrokerConfig) -> list[str]:
    """The name servers outside this process: NAMESRV_ADDR, meant for clients, has our own as well.

    Registering with our own would do nothing, and fail at the stop.
    """
    remoting, namesrv = config.remoting, config.namesrv
    ports = (namesrv.namesrv_listen_port, remoting.listen_port, remoting.vip_listen_port)
    own = tuple(map(str, ports)) if namesrv.embedded_namesrv else ()

    names = (config.broker.broker_ip2, host_name())

    def inside(address: str) -> bool:
        name, _, port = address.rpartition(":")
        return port in own and (name in names or listens_at(remoting.bind_address, name))

    addresses = filter(None, config.broker.namesrv_addr.split(";"))
    return [address for address in addresses if not inside(address)]


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
    """Addresses of the host's own name, where interfaces cannot be listed."""
    try:
        entries = socket.getaddrinfo(host_name(), None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


# ── The build ──


class Build(NamedTuple):
    """The facts that `aerobee_build_info` tells."""

    version: str
    """As `aerobee --version` prints it; a compiled build ends with `+compiled`."""
    python: str


@cache
def build() -> Build:
    """Of this process, read once: an upgrade of the package changes a process that runs by nothing
    but its restart.
    """
    try:
        release = version("aerobee")
    except PackageNotFoundError:
        release = UNKNOWN
    return Build(release, platform.python_version())
