"""One Spark session for all tests of a run; a JVM takes longer to start than most of them to run.

Modules that ask for `spark` say `pytestmark = pytest.mark.spark`, so that a parallel run gives them
all to one process. The data sources are found as an installed Aerobee is found: by the names of its
top-level modules.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pyspark.util
import pytest
from pyspark.sql import SparkSession

from tests.aerobee.spark.jobs import packages
from tests.aerobee.spark.small import FEW_ROWS, PYTHON_PATH, quick_java

JAVA_NEEDED = 17
PYSPARK = tuple(map(int, pyspark.__version__.split(".")[:2]))
"""The version that the tests run on: (4, 0)."""
CLOSES_SOCKETS_FROM = (4, 2)
_connect: Any = pyspark.util.local_connect_and_auth
JVM_ENDS_WITHIN_S = 300
"""One that makes an archive of its classes at its end takes its time."""
PATIENCE_S = 120
"""How long Python and its JVM wait for each other's socket; 15 unless told."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two task slots, no UI, UTC; what Spark writes by itself goes below pytest's directory."""
    with session_for(tmp_path_factory.mktemp("spark")) as session:
        yield session


@contextmanager
def session_for(home: Path, java: str = "") -> Iterator[SparkSession]:
    """A session for what runs in this process, with all that Spark writes by itself below `home`.

    `java`: the options of its JVM, when they are to be others than ever.
    Skips where there is no Java for it.
    """
    check_java()
    with pytest.MonkeyPatch.context() as patch:
        # Workers are processes of their own: this interpreter, this checkout.
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", PYTHON_PATH)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("SPARK_LOCAL_DIRS", str(home / "local"))
        patch.setenv("SPARK_AUTH_SOCKET_TIMEOUT", str(PATIENCE_S))
        if PYSPARK < CLOSES_SOCKETS_FROM:
            patch.setattr(pyspark.util, "local_connect_and_auth", _connected_until_unused)
        with _session(home, java or quick_java()) as session:
            yield session


def _connected_until_unused(*where: object) -> tuple[Any, Any]:
    """Connect as PySpark does; the socket closes with the file that is read from it.

    Before 4.2 it leaves both to the garbage collector, which warns of sockets only.
    """
    file, sock = _connect(*where)
    sock.close()
    return file, sock


@contextmanager
def _session(home: Path, java: str) -> Iterator[SparkSession]:
    """A session and its JVM, which is gone afterwards: what is left open would be warned of."""
    places = f"-Djava.io.tmpdir={home} -Dderby.system.home={home}"
    settings: dict[str, str | int | float | bool | None] = {
        "spark.ui.enabled": "false",
        "spark.python.authenticate.socketTimeout": f"{PATIENCE_S}s",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"{places} {java}",
        "spark.driver.memory": "1g",
        "spark.log.level": "WARN",
        **FEW_ROWS,
        **packages.settings(home),
    }
    builder = SparkSession.builder.master("local[2]").appName("tests")
    session = builder.config(map=settings).getOrCreate()
    gateway = session.sparkContext._gateway
    assert gateway is not None
    process = gateway.proc
    try:
        yield session
    finally:
        session.stop()
        gateway.shutdown()
        process.stdin.close()
        process.wait(JVM_ENDS_WITHIN_S)


def check_java() -> None:
    """Skip where no Java is that Spark would run on; with AEROBEE_CI set, fail."""
    program = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    if shutil.which(program) is None:
        unavailable(f"{program} is not there (Java {JAVA_NEEDED} or later is needed)")
    told = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)', told.stderr)
    if version is None or int(version[1]) < JAVA_NEEDED:
        unavailable(f"{program} is older than Java {JAVA_NEEDED}: {told.stderr.strip()[:200]}")


def unavailable(reason: str) -> NoReturn:
    """Skip with the reason; with AEROBEE_CI set, fail."""
    reason = f"spark: {reason}"
    if os.environ.get("AEROBEE_CI"):
        pytest.fail(f"{reason}; AEROBEE_CI is set, so this is no reason to skip")
    pytest.skip(reason)
