"""A JVM of the tests takes nearly all of its classes from the archive of the version."""

from pathlib import Path

import pytest

from tests.kit.java import toolkit
from tests.kit.java_archive import make
from tests.kit.java_server import JavaNamesrv

pytestmark = pytest.mark.interop


def test_a_start_reads_its_classes_in_the_archive(tmp_path: Path) -> None:
    archive = make("5.5.0")
    assert archive == toolkit("5.5.0").archive
    made = archive.stat().st_mtime
    assert make("5.5.0").stat().st_mtime == made, "it is made once"
    loaded = tmp_path / "loaded"
    option = f"-Xlog:class+load:file={loaded}"
    JavaNamesrv(toolkit("5.5.0"), tmp_path / "namesrv", option).stop()
    ours = [line for line in loaded.read_text().splitlines() if "org.apache.rocketmq" in line]
    archived = [line for line in ours if "shared objects file" in line]
    assert len(archived) > 0.9 * len(ours) > 90
