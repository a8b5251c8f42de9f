"""The classes of RocketMQ as a JVM has them when it has read and checked them, in a file for all.

    python -m tests.kit.java_archive

That is half of what the start of one of Java's brokers costs, and of the first commands of a
client. The file (class data sharing, a part of every JDK) is made once for the jars of a version:
name server, broker and client run for a while and say which classes they load. `Toolkit.command`
names it where it is there; without it, with another JDK or other jars a JVM starts as ever.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.kit.java import HA_VERSIONS, toolkit
from tests.kit.java_driver import JavaClient
from tests.kit.java_server import JavaBroker, JavaNamesrv

if TYPE_CHECKING:
    from tests.kit.java import Toolkit

WITHIN_S: Final = 300.0
HEAP: Final = "-Xmx512m"


def make(version: str) -> Path:
    """The archive of a version, made unless there is a good one."""
    kit = toolkit(version)
    if not (kit.archive.exists() and _fits(kit)):
        with tempfile.TemporaryDirectory(dir=kit.archive.parent) as there:
            half = _dumped(kit, Path(there))
            half.rename(kit.archive)
    return kit.archive


def _fits(kit: Toolkit) -> bool:
    """Whether a JVM of today takes it."""
    files = ["-Xshare:on", f"-XX:SharedArchiveFile={kit.archive}"]
    command = ["java", *files, "-cp", f"{kit.jars}/*", "-version"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _dumped(kit: Toolkit, there: Path) -> Path:
    loaded = there / "loaded"
    loaded.write_text("".join(f"{line}\n" for line in dict.fromkeys(_loaded(kit, there))))
    half = there / "half"
    files = [f"-XX:SharedClassListFile={loaded}", f"-XX:SharedArchiveFile={half}"]
    command = ["java", "-Xshare:dump", HEAP, *files, "-cp", f"{kit.jars}/*"]
    subprocess.run(command, check=True, capture_output=True, timeout=WITHIN_S)
    return half


def _loaded(kit: Toolkit, there: Path) -> list[str]:
    """What the three load that a test starts, as lines for a dump."""

    def told(name: str) -> str:
        return f"-XX:DumpLoadedClassList={there / name}"

    namesrv = JavaNamesrv(kit, there / "namesrv", told("1"))
    client = None
    try:
        with JavaBroker(
            toolkit=kit,
            data=there / "data",
            home=there / "broker",
            namesrv_address=namesrv.address,
            options=[told("2")],
        ) as broker:
            client = JavaClient(kit, there / "client", options=[told("3")])
            _work(client, namesrv.address, broker.address)
    finally:
        namesrv.stop()
        if client is not None:
            client.child.kill()
    return [
        line
        for name in "123"
        for line in (there / name).read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    ]


def _work(client: JavaClient, namesrv: str, broker: str) -> None:
    client.topic(namesrv, broker, "T", queues=4)
    client.producer("p", namesrv)
    client.send("p", "T", ["1", "2"])
    client.consumer("c", namesrv, "T")
    client.received("c", 2)
    client.mqadmin(namesrv, "clusterList")


def main() -> None:
    """Make those of all versions, unless something for that is missing."""
    for version in HA_VERSIONS:
        try:
            make(version)
        except SystemExit as missing:
            print(f"no archive of Java's classes: {missing}")


if __name__ == "__main__":
    main()
