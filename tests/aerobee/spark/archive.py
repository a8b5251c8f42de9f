"""The classes of Spark in an archive, as `tests/kit/java_archive.py` has those of RocketMQ.

    python -m tests.aerobee.spark.archive

A session of Spark spends more than half of the CPU time of its start with reading its classes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.aerobee.spark.conftest import session_for
from tests.aerobee.spark.small import ARCHIVE, LEAN


def make() -> Path:
    """The archive for this PySpark, made unless it is there: of what a session and queries load."""
    if not ARCHIVE.exists():
        ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as there:
            home, half = Path(there), Path(there) / "half"
            java = f"{LEAN} -XX:ArchiveClassesAtExit={half} -Xlog:cds=off"
            with session_for(home, java) as session:
                rows = session.range(100).selectExpr("id % 7 AS key", "id")
                rows.groupBy("key").count().orderBy("key").collect()
                rows.write.parquet(str(home / "rows"))
                session.read.parquet(str(home / "rows")).filter("id > 5").count()
            half.rename(ARCHIVE)
    return ARCHIVE


if __name__ == "__main__":
    make()
