"""Java's own name server, broker and proxy as processes: the other side of a directory exchange.

They are the classes that RocketMQ's start scripts run, with small heaps and small files. They are
up when they have said so on stdout ("boot success", "startup successfully").
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.kit.broker_process import PATIENT, SMALL_FILES
from tests.kit.java import Toolkit
from tests.kit.ports import HOST, PortBlock, free_block, free_port
from tests.kit.process import Child, DidNotStart, Server
from tests.kit.raw_client import RawConnection
from tests.kit.waiting import eventually

BROKER = "org.apache.rocketmq.broker.BrokerStartup"
PROXY = "org.apache.rocketmq.proxy.ProxyStartup"
NAMESRV_HEAP_MIB = 64
PROXY_HEAP_MIB = 192
BROKER_HEAP_MIB = 256
START_WITHIN_S = 180.0
REGISTER_WITHIN_S = 90.0
STOP_WITHIN_S = 60.0
"""5.4.0 takes 11 to 20 seconds to stop."""
PLAIN = "-Dtls.server.mode=disabled"
"""Else a start makes a key and signs a certificate of its own: more than the rest of it takes."""

NO_INTERFACE = 'because "localHost" is null'
"""Java looks at all network interfaces, and does not start where a test just takes one away."""

UPDATE_BROKER_CONFIG = 25
GET_BROKER_CLUSTER_INFO = 106

LOGBACK = '<configuration><root level="OFF"/></configuration>'
"""4.9 refuses to start without this file; 5.x does not look for it."""


def _home(home: Path) -> Path:
    (home / "conf").mkdir(parents=True, exist_ok=True)
    for name in ("logback_broker.xml", "logback_namesrv.xml"):
        (home / "conf" / name).write_text(LOGBACK)
    return home


def _write_conf(path: Path, values: Mapping[str, object]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return path


def booted(launch: Callable[[], Child]) -> Child:
    """The process, once it says that it is up. Raises: DidNotStart."""
    child = launch()
    try:
        child.read_until("boot success", within_s=START_WITHIN_S)
    except DidNotStart:
        if NO_INTERFACE not in child.errors():
            raise
        child = launch()
        child.read_until("boot success", within_s=START_WITHIN_S)
    return child


class JavaNamesrv:
    """One name server, from construction to `stop`."""

    def __init__(self, toolkit: Toolkit, home: Path, *options: str) -> None:
        self.port = free_port()
        conf = _write_conf(_home(home) / "namesrv.conf", {"listenPort": self.port})
        own = (f"-Drocketmq.home.dir={home}", PLAIN)
        main = "org.apache.rocketmq.namesrv.NamesrvStartup"
        command = toolkit.command(main, *own, *options, heap_mib=NAMESRV_HEAP_MIB, home=home)
        self.child = booted(lambda: Child([*command, "-c", str(conf)], log=home / "namesrv.log"))

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"{HOST}:{self.port}"

    def stop(self) -> None:
        """It keeps nothing, so it is killed."""
        self.child.kill()


class JavaProxy:
    """The proxy in CLUSTER mode, between RocketMQ 5's clients and the brokers of a name server."""

    def __init__(self, toolkit: Toolkit, home: Path, namesrv_address: str) -> None:
        self.port = free_port()
        conf = _home(home) / "proxy.json"
        values = {
            "proxyMode": "CLUSTER",
            "rocketMQClusterName": "DefaultCluster",
            "namesrvAddr": namesrv_address,
            "grpcServerPort": self.port,
            "remotingListenPort": free_port(),
        }
        conf.write_text(json.dumps(values))
        own = (f"-Drocketmq.home.dir={home}", PLAIN)
        command = toolkit.command(PROXY, *own, heap_mib=PROXY_HEAP_MIB, home=home)
        self.child = Child([*command, "-pc", str(conf)], log=home / "proxy.log")
        self.child.read_until("startup successfully", within_s=START_WITHIN_S)

    @property
    def endpoints(self) -> str:
        """What its clients are given."""
        return f"{HOST}:{self.port}"

    def stop(self) -> None:
        """It keeps nothing, so it is killed."""
        self.child.kill()


@dataclass(slots=True, kw_only=True)
class JavaBroker(Server):
    """One data directory and the Java broker that serves it; the same shape as `BrokerProcess`."""

    toolkit: Toolkit
    data: Path
    home: Path
    namesrv_address: str = ""
    """Where it registers; nowhere when empty."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """On top of small files; None takes one away."""
    ports: PortBlock = field(default_factory=free_block)
    options: Sequence[str] = ()
    """More for the command line of the JVM."""
    host: str = HOST
    """Where it is reached."""
    network: str = ""
    """The network namespace that it runs in; ours unless told."""
    _child: Child | None = None

    @property
    def address(self) -> str:
        """`host:port` of the broker."""
        return f"{self.host}:{self.ports.listen}"

    def launch(self) -> Child:
        """Run it and wait for nothing."""
        assert shutil.which("java")
        conf = _write_conf(_home(self.home) / "broker.conf", self._values())
        command = self.command(f"-Drocketmq.home.dir={self.home}", PLAIN, *self.options)
        there = ["ip", "netns", "exec", self.network] if self.network else []
        self._child = Child([*there, *command, "-c", str(conf)], log=self.home / "broker.log")
        return self._child

    def command(self, *options: str) -> list[str]:
        """The command line up to the configuration: a small JVM with these options."""
        return self.toolkit.command(BROKER, *options, heap_mib=BROKER_HEAP_MIB, home=self.home)

    def start(self) -> None:
        """Run it until it says that it is up. Raises: DidNotStart."""
        booted(self.launch)
        if self.namesrv_address:
            eventually(self._registered, within_s=REGISTER_WITHIN_S, what="the broker registers")

    def _registered(self) -> bool:
        """5.4.0 often misses its first chance to register; a set permission is the next one."""
        with RawConnection(self.address) as broker, RawConnection(self.namesrv_address) as namesrv:
            if self.address.encode() in namesrv.call(GET_BROKER_CLUSTER_INFO).body:
                return True
            broker.call(UPDATE_BROKER_CONFIG, body=b"brokerPermission=6\n")
            return self.address.encode() in namesrv.call(GET_BROKER_CLUSTER_INFO).body

    def stop(self) -> int:
        """SIGTERM and its exit code: 143, Java's for a shutdown by signal, when all went well."""
        return self.child.stop(within_s=STOP_WITHIN_S)

    def restart(self) -> None:
        """A clean stop and a start."""
        self.stop()
        self.start()

    def _values(self) -> dict[str, object]:
        own: dict[str, object] = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerIP1": self.host,
            "bindAddress": self.host,
            "listenPort": self.ports.listen,
            "haListenPort": self.ports.ha,
            "storePathRootDir": self.data,
            "timerWheelEnable": "false",
            # Until its first flush, ten seconds from the start unless told, a thread of 5.4.0 asks
            # for the time without a pause (TransactionMetricsFlushService).
            "transactionMetricFlushInterval": 200,
            # Each flush compares 38 MB byte by byte: every second that is a quarter of a core.
            "timerFlushIntervalMs": 20_000,
        }
        if self.namesrv_address:
            own["namesrvAddr"] = self.namesrv_address
        pairs = own | SMALL_FILES | PATIENT | dict(self.settings)
        return {key: value for key, value in pairs.items() if value is not None}
