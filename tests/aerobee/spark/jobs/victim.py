"""An archive job in a process of its own that says how far it is, so that it can be killed there.

`python -m tests.aerobee.spark.jobs.victim STORE OUTPUT [KIND MANIFEST HOME]`: prints `ready` when
Spark is up, begins with the next line of its stdin, prints `done`. Iceberg's tables are below HOME.
"""

import sys
from contextlib import suppress
from pathlib import Path

from aerobee.spark.jobs.archive import Archive, archive, new_job
from aerobee.spark.jobs.common import Session
from aerobee.spark.jobs.places import AlreadyRunningError
from tests.aerobee.spark.jobs.packages import settings
from tests.aerobee.spark.small import FEW_ROWS, quick_java
from tests.kit.waiting import eventually

SETTINGS = (
    "spark.driver.memory=512m",
    f"spark.driver.extraJavaOptions={quick_java()}",
    *(f"{key}={value}" for key, value in FEW_ROWS.items()),
)


def main(
    store: str, output: str, kind: str = "parquet", manifest: str | None = None, home: str = ""
) -> None:
    task = Archive(
        store=Path(store),
        output=output,
        kind=kind,
        manifest=manifest,
        segments_per_write=1,
        job=new_job(),
    )
    tables = tuple(f"{key}={value}" for key, value in settings(Path(home)).items())
    with Session("local[1]", SETTINGS + tables).opened("victim") as spark:
        print("ready", flush=True)
        sys.stdin.readline()

        def ran() -> bool:
            # What the one before left behind may be on its way out.
            with suppress(AlreadyRunningError):
                return not archive(spark, task).failed
            return False

        eventually(ran, within_s=240, what="an archive without failures")
        print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
