"""The real RocketMQ, for the tests that compare with it: jars, classes, and how to run them.

The jars of a version are copied once by Maven from `tests/interop/pom.xml` into
`.cache/java/VERSION` (or are taken from the directory that AEROBEE_TEST_JAVA names); the drivers of
`tests/interop/java` are compiled against them once per content. Where Java, Maven or the network is
missing the test is skipped with the reason; with AEROBEE_CI=1 it fails instead, so that a green run
really ran everything.
"""

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tests.kit.skipping import fail, skip

VERSIONS = ("5.5.0", "4.9.7")
HA_VERSIONS = ("5.5.0", "5.4.0", "4.9.7")
"""Those that replication is tested with."""
PROXY = "5.5.0-proxy"
"""The proxy for RocketMQ 5's clients, with what it needs."""

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "java"
SOURCES = ROOT / "tests" / "interop" / "java"
POM = ROOT / "tests" / "interop" / "pom.xml"

OPENS = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)
"""What RocketMQ of both lines reaches into when it runs on Java 17."""

QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
"""What a JVM of a minute would spend on better code, and on figures for other programs, is lost."""

COPY_WITHIN_S = 300
COMPILE_WITHIN_S = 300


@dataclass(frozen=True, slots=True)
class Toolkit:
    """One RocketMQ version, ready to run."""

    version: str
    jars: Path
    classes: Path
    """Our drivers, compiled against these jars."""

    @property
    def archive(self) -> Path:
        """Where `tests/kit/java_archive.py` puts the classes that most JVMs load."""
        return CACHE / f"{self.version}.jsa"

    def command(self, main: str, *options: str, heap_mib: int, home: Path) -> list[str]:
        """`java` for a main class, small and quick to start; all it writes goes below `home`."""
        places = [f"-Duser.home={home}", f"-Drocketmq.client.logRoot={home}/logs"]
        offsets = f"-Drocketmq.client.localOffsetStoreDir={home}/offsets"
        size = [f"-Xmx{heap_mib}m", "-Xss512k", *QUICK]
        # The jars come first, for the path of an archive has to be the begin of this one.
        path = f"{self.jars}/*:{self.classes}"
        if self.archive.exists():
            size += [f"-XX:SharedArchiveFile={self.archive}", "-Xlog:cds=off"]
        return ["java", *size, *OPENS, *places, offsets, *options, "-cp", path, "Hurry", main]


@functools.cache
def toolkit(version: str) -> Toolkit:
    """The toolkit of a version, fetched and compiled on first use; skips where that cannot be."""
    for program in ("java", "javac"):
        if shutil.which(program) is None:
            unavailable(f"{program} is not installed (a JDK 17 is needed)")
    with _alone():
        jars = _jars(version)
        return Toolkit(version, jars, _classes(version, jars))


def unavailable(reason: str) -> NoReturn:
    """Skip the test that needs what is not here; in CI fail it."""
    reason = f"interop: {reason}"
    if os.environ.get("AEROBEE_CI"):
        fail(f"{reason}; AEROBEE_CI is set, so this is no reason to skip")
    skip(reason)


@contextmanager
def _alone() -> Iterator[None]:
    """Two test runs on one checkout must not fill the cache at the same time."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _jars(version: str) -> Path:
    if given := os.environ.get("AEROBEE_TEST_JAVA"):
        jars = Path(given) / version
        if not any(jars.glob("rocketmq-client-*.jar")):
            unavailable(f"AEROBEE_TEST_JAVA has no RocketMQ {version} in {jars}")
        return jars
    jars = CACHE / version
    if not jars.exists():
        _copy_jars(version, jars)
    return jars


def _copy_jars(version: str, jars: Path) -> None:
    """By Maven, into a directory that gets its name only when it is complete."""
    if shutil.which("mvn") is None:
        unavailable(f"Maven is not installed and {jars} is not there yet")
    half = jars.with_name(f"{version}.part")
    shutil.rmtree(half, ignore_errors=True)
    copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={half}"]
    run_tool(["mvn", "-q", "-B", "-f", str(POM), "-P", version, *copy], COPY_WITHIN_S)
    half.rename(jars)


def _classes(version: str, jars: Path) -> Path:
    sources = sorted(SOURCES.glob("*.java"))
    content = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    classes = CACHE / "classes" / f"{version}-{content[:16]}"
    if not classes.exists():
        half = classes.with_name(f"{classes.name}.part")
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(parents=True)
        options = ["-nowarn", "-proc:none", "-cp", f"{jars}/*", "-d", str(half)]
        run_tool(["javac", *options, *map(str, sources)], COMPILE_WITHIN_S)
        half.rename(classes)
    return classes


def run_tool(command: Sequence[str], within_s: float, *, at: Path | None = None) -> None:
    """Run a compiler or its like, in the folder `at`; a test cannot run where it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=within_s, check=False, cwd=at
        )
    except subprocess.TimeoutExpired:
        unavailable(f"{command[0]} took more than {within_s:g} s")
    if done.returncode:
        unavailable(f"{command[0]} failed: {(done.stdout + done.stderr).strip()[-2_000:]}")
