"""Past one machine: a master and two workers of Spark, and Aerobee sent to them as a zip."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest

from aerobee.blocking import AdminClient, Producer
from aerobee.client.message import Message
from tests.aerobee.spark.conftest import check_java
from tests.aerobee.spark.small import AUTOREGISTER, FEW_ROWS, ROOT, quick_java
from tests.conftest import AnyBroker, StartBroker
from tests.kit.ports import HOST, free_port
from tests.kit.process import Child
from tests.kit.waiting import eventually

pytestmark = pytest.mark.spark

SPARK_HOME = Path(pyspark.__file__).parent
PROGRAM = Path(__file__).with_name("spark_cluster_program.py")
START_WITHIN_S = 150
RUN_WITHIN_S = 300
MESSAGES = 1_000
REGISTERED = "Successfully registered with master"


def environment(home: Path) -> dict[str, str]:
    """Without the checkout: what the cluster knows of Aerobee is what it is sent."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK", "SPARK", "PYTHON"))}
    return kept | {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_DAEMON_MEMORY": "128m",
        "SPARK_DAEMON_JAVA_OPTS": quick_java(),
        # Its port is a fixed one.
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        "SPARK_LOCAL_DIRS": str(home / "local"),
        "PYSPARK_PYTHON": sys.executable,
    }


def packed(path: Path) -> Path:
    """Our packages in a zip, with the modules that Spark looks for at its root, as in the wheel."""
    with zipfile.ZipFile(path, "w") as archive:
        for folder, within in (("aerobee", ""), ("remoting", "aerobee"), ("store", "aerobee")):
            for file in sorted((ROOT / folder).rglob("*.py")):
                archive.write(file, within / file.relative_to(ROOT))
        for file in sorted(AUTOREGISTER.glob("*.py")):
            archive.write(file, file.name)
    return path


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The URL of a cluster with two workers of one core each; it ends with the test."""
    check_java()
    port = free_port()
    url = f"spark://{HOST}:{port}"
    spark_class = str(SPARK_HOME / "bin" / "spark-class")
    deploy = "org.apache.spark.deploy"
    where = ["--host", HOST, "--webui-port", "0"]
    commands = {"master": [f"{deploy}.master.Master", *where, "--port", str(port)]}
    for name in ("worker-1", "worker-2"):
        room = ["--cores", "1", "--memory", "600m", "--work-dir", str(tmp_path / f"{name}-work")]
        commands[name] = [f"{deploy}.worker.Worker", *where, *room, url]
    with ExitStack() as running:
        children = [
            running.enter_context(
                Child(
                    [spark_class, *words], log=tmp_path / f"{name}.log", env=environment(tmp_path)
                )
            )
            for name, words in commands.items()
        ]
        workers = children[1:]
        eventually(
            lambda: all(REGISTERED in one.errors() or not one.running for one in workers),
            within_s=START_WITHIN_S,
            what="two workers of Spark",
        )
        for worker in workers:
            assert worker.running, worker.errors()
        yield url


@pytest.fixture
def broker(start_broker: StartBroker) -> AnyBroker:
    """With a topic of MESSAGES messages in four queues, and one for their copies."""
    broker = start_broker()
    with AdminClient(broker.namesrv_address) as admin:
        for topic in ("source", "copy"):
            admin.create_topic(topic, queues=4)
    with Producer(broker.namesrv_address) as producer:
        for first in range(0, MESSAGES, 100):
            numbers = range(first, first + 100)
            producer.send_batch([Message("source", b"%d" % n, tag="T") for n in numbers])
    return broker


def test_executors_of_a_cluster_read_and_write_with_what_they_were_sent(
    master: str, broker: AnyBroker, tmp_path: Path
) -> None:
    package = packed(tmp_path / "aerobee.zip")
    submit = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", master]
    room = ["--executor-memory", "512m", "--driver-memory", "512m", "--py-files", str(package)]
    conf = ["spark.ui.enabled=false", "spark.log.level=WARN"]
    conf += [f"{key}={value}" for key, value in FEW_ROWS.items()]
    conf += [f"spark.{one}.extraJavaOptions={quick_java()}" for one in ("driver", "executor")]
    settings = [word for setting in conf for word in ("--conf", setting)]
    program = [str(PROGRAM), broker.namesrv_address, "source", "copy"]
    done = subprocess.run(
        [*submit, *room, *settings, *program],
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_WITHIN_S,
        env=environment(tmp_path),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["messages"], told["bodies"], told["tags"]) == (MESSAGES, MESSAGES, ["T"])
    assert told["partitions"] == 4
    assert len(told["workers"]) == 2, "each worker has its executor"
    assert all("aerobee.zip" in file for file in [told["driver"], *told["copies"]])
