"""Messages over Spark Connect: a server, and a client that reads and writes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from tests.aerobee.spark.conftest import check_java, unavailable
from tests.aerobee.spark.filling import bodies, fill, make_topic
from tests.aerobee.spark.small import FEW_ROWS, PYTHON_PATH, ROOT, quick_java
from tests.kit.process import Child
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import StartBroker

pytestmark = pytest.mark.spark

PROGRAM = Path(__file__).with_name("spark_connect_program.py")
COUNT = 7
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
NEEDED = ("grpc", "grpc_status", "google.rpc", "pandas")
"""What PySpark's client of Connect imports."""
STARTED = re.compile(r"Spark Connect server started at: .*:(\d+)")
WITHIN_S = 300
"""Server and program take 20 s together; a JVM beside other load takes long to start."""


@contextmanager
def connect_server(home: Path) -> Iterator[str]:
    """The address of a server of Spark Connect; all that it writes goes below `home`."""
    places = f"-Djava.io.tmpdir={home} -Dderby.system.home={home} {quick_java()}"
    settings = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        **FEW_ROWS,
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.driver.extraJavaOptions": places,
        "spark.driver.memory": "1g",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }
    program = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [str(program), "--class", SERVER]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    environment = os.environ | {
        "SPARK_HOME": str(program.parents[1]),
        "SPARK_LOCAL_DIRS": str(home / "local"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        # Workers are processes of their own: this interpreter, this checkout.
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": PYTHON_PATH,
    }
    with Child([*command, "spark-internal"], log=home / "server.log", env=environment) as server:

        def port() -> str:
            line = STARTED.search(server.errors())
            assert line or server.running, server.errors()
            return line[1] if line else ""

        at = eventually(port, within_s=WITHIN_S, what="the server of Spark Connect")
        yield f"sc://127.0.0.1:{at}"


def test_messages_are_read_and_written_over_spark_connect(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    check_java()
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        unavailable(f"no {', '.join(missing)}, which pyspark[connect] brings")
    broker = start_broker()
    for topic in ("orders", "copied"):
        make_topic(broker, topic)
    fill(broker, "orders", bodies(COUNT))
    with connect_server(tmp_path) as address:
        arguments = [address, broker.namesrv_address]
        program = subprocess.run(
            [sys.executable, str(PROGRAM), *arguments],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
            timeout=WITHIN_S,
        )
    assert program.returncode == 0, program.stdout + program.stderr
    lines = [line for line in program.stdout.splitlines() if line.startswith("[")]
    outcome = dict(json.loads(line) for line in lines)
    assert "batchRows" in outcome.pop("wrong")
    assert outcome == {"batch": COUNT, "sink": 2}
