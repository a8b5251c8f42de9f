"""One round of RocketMQ 5's clients of other languages: sends, a push and a simple consumer.

Each program takes the endpoints, a topic and a number of messages; it tells each event in a line,
and says "ready" when the simple consumer has all. Each line that it reads then is sent, as often as
it takes, and received; it ends with an empty one.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.kit import golang
from tests.kit.java import CACHE, COMPILE_WITHIN_S, COPY_WITHIN_S, QUICK, run_tool, unavailable
from tests.kit.node import program
from tests.kit.process import Child

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

JAVA: Final = Path(__file__).parents[1] / "interop" / "java5"
SMALL: Final = ("-Xmx96m", *QUICK)
EVENT_WITHIN_S: Final = 60.0


def java(home: Path) -> list[str]:
    """Java's, which comes by Maven as one jar."""
    jars, classes = java_classes()
    return ["java", *SMALL, f"-Duser.home={home}", "-cp", f"{classes}:{jars}/*", "Round"]


@functools.cache
def java_classes() -> tuple[Path, Path]:
    """The jars and our program; skips where they cannot be had."""
    for tool in ("javac", "mvn"):
        if shutil.which(tool) is None:
            unavailable(f"{tool} is not installed")
    content = b"".join((JAVA / name).read_bytes() for name in ("pom.xml", "Round.java"))
    place = CACHE.with_name("java5") / hashlib.sha256(content).hexdigest()[:16]
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            half = place.with_suffix(".part")
            shutil.rmtree(half, ignore_errors=True)
            copy = ["dependency:copy-dependencies", f"-DoutputDirectory={half}/jars"]
            run_tool(["mvn", "-q", "-B", "-f", str(JAVA / "pom.xml"), *copy], COPY_WITHIN_S)
            options = ["-cp", f"{half}/jars/*", "-d", f"{half}/classes"]
            run_tool(["javac", *options, str(JAVA / "Round.java")], COMPILE_WITHIN_S)
            half.rename(place)
    return place / "jars", place / "classes"


def node(home: Path) -> list[str]:
    """Node's, which comes by npm."""
    return ["node", str(program("round.js", folder="node5"))]


def go(home: Path) -> list[str]:
    """Go's, which comes by the module proxy."""
    return [str(golang.program("go5"))]


LANGUAGES: Final[dict[str, Callable[[Path], list[str]]]] = {"java": java, "node": node, "go": go}


class Round:
    """A running program."""

    def __init__(self, language: str, home: Path, endpoints: str, topic: str, count: int) -> None:
        command = [*LANGUAGES[language](home), endpoints, topic, str(count)]
        env = {**os.environ, "HOME": str(home)}
        self.child = Child(command, log=home / f"{language}.log", env=env)
        self.ready = False
        self.told: dict[str, list[str]] = {"sent": [], "received": [], "pushed": []}

    def until(self, count: int, what: str) -> list[str]:
        """Read until it has told so much of that kind; returns that."""
        while len(self.told[what]) < count:
            self._read()
        return self.told[what]

    def until_all(self, bodies: Iterable[str], what: str) -> None:
        """Read until it has told something of that kind of each body."""
        missing = set(bodies)
        while missing := missing - {line.split()[0] for line in self.told[what]}:
            self._read()

    def until_ready(self) -> None:
        """Read until the first messages were received."""
        while not self.ready:
            self._read()

    def send(self, body: str) -> None:
        """Have it send and receive one more message, now or when that is possible again."""
        self.child.write_line(body)

    def end(self) -> None:
        """Have it close its clients."""
        self.until_ready()
        self.child.write_line("")
        self.child.read_until("end", within_s=EVENT_WITHIN_S)

    def _read(self) -> None:
        word, _, rest = self.child.read_line(within_s=EVENT_WITHIN_S).partition(" ")
        if word == "ready":
            self.ready = True
        else:
            self.told[word].append(rest)
