"""The Java broker as its own start script runs it: 2 GiB heap, G1, pages touched ahead."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.load import DEFAULT_SIZES
from tests.kit.java import OPENS, toolkit
from tests.kit.java_server import BROKER, JavaBroker, JavaNamesrv

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

VERSION = "5.5.0"
DEFAULTS = DEFAULT_SIZES | {
    "waitTimeMillsInSendQueue": None,
    "timerWheelEnable": None,
    "timerFlushIntervalMs": None,
}
JVM = (
    "-server",
    "-Xms2g",
    "-Xmx2g",
    "-XX:+UseG1GC",
    "-XX:G1HeapRegionSize=16m",
    "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:SoftRefLRUPolicyMSPerMB=0",
    "-XX:+AlwaysPreTouch",
    "-XX:MaxDirectMemorySize=2g",
    "-XX:-UseLargePages",
)


@dataclass(slots=True, kw_only=True)
class JavaPeer(JavaBroker):
    """`JavaBroker` with default sizes and in the JVM that its start script would give it."""

    def command(self, *options: str) -> list[str]:
        places = [f"-Duser.home={self.home}", *options]
        return ["java", *JVM, *OPENS, *places, "-cp", f"{self.toolkit.jars}/*", BROKER]


@contextmanager
def java_broker(directory: Path, settings: Mapping[str, object]) -> Iterator[JavaPeer]:
    """Java broker on `directory / "store"`, not started; its name server runs until the end."""
    tools = toolkit(VERSION)
    namesrv = JavaNamesrv(tools, directory / "namesrv")
    peer = JavaPeer(
        toolkit=tools,
        data=directory / "store",
        home=directory / "home",
        namesrv_address=namesrv.address,
        settings=DEFAULTS | dict(settings),
    )
    try:
        yield peer
    finally:
        peer.__exit__(None, None, None)
        namesrv.stop()
