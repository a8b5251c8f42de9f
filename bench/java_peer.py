"""The Java broker as its own start script runs it: 2 GiB heap, G1, pages touched ahead."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.kit.java import OPENS, toolkit
from tests.kit.java_server import JavaNamesrv
from tests.kit.ports import HOST, free_block
from tests.kit.process import Child

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["java_broker"]

VERSION = "5.4.0"
START_WITHIN_S = 90.0
STOP_WITHIN_S = 60.0
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


@contextmanager
def java_broker(directory: Path, settings: Mapping[str, object]) -> Iterator[tuple[str, int]]:
    """Address and pid of a Java broker on an empty directory; its name server runs beside it."""
    tools = toolkit(VERSION)
    namesrv = JavaNamesrv(tools, directory / "namesrv")
    home = directory / "home"
    (home / "conf").mkdir(parents=True)
    ports = free_block()
    values = {
        "brokerIP1": HOST,
        "bindAddress": HOST,
        "namesrvAddr": namesrv.address,
        "listenPort": ports.listen,
        "haListenPort": ports.ha,
        "storePathRootDir": directory / "store",
        **settings,
    }
    conf = home / "conf" / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    command = ["java", *JVM, *OPENS, f"-Duser.home={home}", f"-Drocketmq.home.dir={home}"]
    main = "org.apache.rocketmq.broker.BrokerStartup"
    broker = Child(
        [*command, "-cp", f"{tools.jars}/*", main, "-c", str(conf)], log=directory / "broker.log"
    )
    try:
        broker.read_until("boot success", within_s=START_WITHIN_S)
        yield f"{HOST}:{ports.listen}", broker.pid
    finally:
        broker.kill()
        namesrv.stop()
