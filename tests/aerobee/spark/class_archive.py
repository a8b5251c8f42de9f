"""Spark's classes in a file that a JVM maps when it starts, which halves the work of starting.

`python -m tests.aerobee.spark.class_archive FILE` makes one, out of what a session here needs.
Where Java cannot do that, a JVM starts as it always did.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

__all__ = ["jvm_options"]

FOLDER = Path(__file__).parents[3] / ".cache" / "java"
MADE_WITHIN_S = 300
QUIET = "-Xlog:disable"
"""One that does not fit is passed over, without a word on the stdout of a job."""


def jvm_options(program: str) -> str:
    """What has a JVM map the file of this Spark and this Java; it is made if there is none yet."""
    told = subprocess.run([program, "-version"], capture_output=True, text=True, check=True)
    parts = (pyspark.__version__, pyspark.__file__, told.stderr)
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
    path = FOLDER / f"spark-{pyspark.__version__}-{digest}.jsa"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            draft = path.with_suffix(".draft")
            subprocess.run(
                [sys.executable, "-m", "tests.aerobee.spark.class_archive", str(draft)],
                timeout=MADE_WITHIN_S,
                check=False,
                capture_output=True,
            )
            # Empty when it could not be made: not tried again.
            draft.touch()
            draft.replace(path)
    return f"-XX:SharedArchiveFile={path} {QUIET}" if path.stat().st_size else ""


def main(file: str) -> None:
    """Run a session that loads what tests load; its JVM writes the file when it ends."""
    with tempfile.TemporaryDirectory() as home:
        settings: dict[str, str | int | float | bool | None] = {
            "spark.ui.enabled": "false",
            "spark.sql.warehouse.dir": f"{home}/warehouse",
            "spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={file} "
            f"-Djava.io.tmpdir={home} -Dderby.system.home={home} "
            "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        }
        builder = SparkSession.builder.master("local[2]").config(map=settings)
        spark = builder.getOrCreate()
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        spark.range(100).selectExpr("id", "id % 3 AS k", "cast(id AS string) AS t").write.parquet(
            f"{home}/rows"
        )
        rows = spark.read.parquet(f"{home}/rows")
        rows.createOrReplaceTempView("rows")
        counted = (
            "SELECT a.k, count(*), max(b.t) FROM rows a JOIN rows b ON a.id = b.id GROUP BY a.k"
        )
        spark.sql(f"{counted} ORDER BY 1").collect()
        stream = spark.readStream.schema(rows.schema).parquet(f"{home}/rows")
        options = {"checkpointLocation": f"{home}/checkpoint"}
        query = stream.writeStream.format("noop").options(**options)
        query.trigger(availableNow=True).start().awaitTermination()
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(MADE_WITHIN_S)


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    main(sys.argv[1])
