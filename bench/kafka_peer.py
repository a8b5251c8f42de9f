"""A Kafka broker of one node, as its own start script runs it, and the jars of Spark's connector.

Both come from Maven on first use, into `.cache/java`. The connector is the newest that is published
for Scala 2.13 beside the PySpark that the suite runs on; Spark loads it although it is older.
"""

from __future__ import annotations

import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.kit.java import CACHE
from tests.kit.ports import HOST, free_block
from tests.kit.process import Child

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

POM = "bench/kafka/pom.xml"
CONNECTOR = (
    "spark-sql-kafka-0-10_2.13,spark-token-provider-kafka-0-10_2.13,kafka-clients,commons-pool2"
)
COPY_WITHIN_S = 600
START_WITHIN_S = 60.0
STOP_WITHIN_S = 30.0
HEAP = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC")
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={logs}
num.partitions={partitions}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""


@contextmanager
def kafka_broker(directory: Path, *, partitions: int) -> Iterator[tuple[str, int]]:
    """Address and pid of a Kafka broker on an empty directory; new topics have `partitions`."""
    jars = copied("broker")
    ports = free_block()
    directory.mkdir(parents=True)
    conf = directory / "server.properties"
    conf.write_text(
        SETTINGS.format(
            host=HOST,
            port=ports.listen,
            controller=ports.ha,
            logs=directory / "logs",
            partitions=partitions,
        )
    )
    java = ["java", *HEAP, "-cp", f"{jars}/*"]
    subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(conf)],
        check=True,
        capture_output=True,
        timeout=START_WITHIN_S,
    )
    simple = "-Dorg.slf4j.simpleLogger.logFile=System.out"
    command = [*java[:-2], simple, *java[-2:], "kafka.Kafka", str(conf)]
    with Child(command, log=directory / "kafka.log") as broker:
        broker.read_until("Kafka Server started", within_s=START_WITHIN_S)
        yield f"{HOST}:{ports.listen}", broker.pid
        broker.stop(within_s=STOP_WITHIN_S)


def connector_jars() -> list[Path]:
    """Spark's source and sink for Kafka, and what they need beside Spark."""
    jars = copied("connector", f"-DincludeArtifactIds={CONNECTOR}")
    return sorted(jars.glob("*.jar"))


def copied(profile: str, *options: str) -> Path:
    """The directory with the jars of a profile; copied by Maven when it is not there yet."""
    jars = CACHE / f"kafka-{profile}"
    if not jars.exists():
        half = jars.with_name(f"{jars.name}.part")
        shutil.rmtree(half, ignore_errors=True)
        copy = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        copy.append(f"-DoutputDirectory={half}")
        subprocess.run(
            ["mvn", "-q", "-B", "-f", POM, "-P", profile, *copy, *options],
            check=True,
            timeout=COPY_WITHIN_S,
        )
        half.rename(jars)
    return jars
