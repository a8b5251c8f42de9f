"""Java's own controllers as processes: one that decides alone, or several that elect a leader.

The class that RocketMQ's start script runs, with a small heap and small files. A member of several
has the port of all its traffic in the list that each is given.
"""

from collections.abc import Mapping
from pathlib import Path

from tests.kit.java import Toolkit
from tests.kit.java_server import NAMESRV_HEAP_MIB, PLAIN, booted
from tests.kit.ports import HOST, free_port
from tests.kit.process import Child
from tests.kit.raw_client import Closed, RawConnection
from tests.kit.waiting import eventually

CONTROLLER = "org.apache.rocketmq.controller.ControllerStartup"
GET_METADATA_INFO = 1005
ELECT_WITHIN_S = 60.0
SCAN_MS = 1_000
"""How often it looks for silent brokers: Java's own rhythm is 5 s."""


class JavaControllers:
    """So many controllers, from construction to `stop`."""

    def __init__(
        self,
        toolkit: Toolkit,
        home: Path,
        count: int = 1,
        settings: Mapping[str, object] | None = None,
        *,
        host: str = HOST,
        network: str = "",
    ) -> None:
        """`network`: the network namespace that they run in; ours unless told."""
        ports = [free_port() for _ in range(count)]
        self.addresses = [f"{host}:{port}" for port in ports]
        self._there = ("ip", "netns", "exec", network) if network else ()
        peers = ";".join(f"n{number}-{address}" for number, address in enumerate(self.addresses))
        self._toolkit, self._home = toolkit, home
        self._settings = {
            "controllerDLegerGroup": "deciders",
            "controllerDLegerPeers": peers,
            "scanNotActiveBrokerInterval": SCAN_MS,
            "mappedFileSize": 1 << 20,
            **(settings or {}),
        }
        self._children: dict[str, Child] = {}
        for address in self.addresses:
            self.start(address)
        self.until_led()

    @property
    def text(self) -> str:
        """What brokers are given as controllerAddr."""
        return ";".join(self.addresses)

    def start(self, address: str) -> None:
        """Run one of them, again after a kill."""
        number = self.addresses.index(address)
        home = self._home / f"controller-{number}"
        home.mkdir(parents=True, exist_ok=True)
        values = {
            **self._settings,
            "controllerDLegerSelfId": f"n{number}",
            "controllerStorePath": home / "store",
        }
        conf = home / "controller.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        own = (f"-Drocketmq.home.dir={home}", PLAIN)
        command = self._toolkit.command(CONTROLLER, *own, heap_mib=NAMESRV_HEAP_MIB, home=home)
        self._children[address] = booted(
            lambda: Child([*self._there, *command, "-c", str(conf)], log=home / "controller.log")
        )

    def until_led(self) -> str:
        """The address of the leader, as soon as those that run agree on one of them."""
        return eventually(self._leader, within_s=ELECT_WITHIN_S, what="a leader of the controllers")

    def _leader(self) -> str:
        told = set()
        for address in self.running:
            try:
                with RawConnection(address) as connection:
                    answer = connection.call(GET_METADATA_INFO)
            except (OSError, Closed):
                return ""
            told.add((answer.ext or {}).get("controllerLeaderAddress") or "")
        leader = told.pop() if len(told) == 1 else ""
        return leader if leader in self.running else ""

    @property
    def running(self) -> list[str]:
        """Those that were not killed."""
        return [address for address, child in self._children.items() if child.running]

    def kill(self, address: str) -> None:
        """SIGKILL one of them."""
        self._children[address].kill()

    def stop(self) -> None:
        """Kill all: what they keep is thrown away."""
        for child in self._children.values():
            child.kill()
