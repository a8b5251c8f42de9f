"""Records what real clients and a real broker say to each other: `python -m
tests.contract.record_java`.

Rewrites `tests/contract/frames/*.frames`: each entry is `>` (to the broker) or `<` (from it) and
one whole frame. To be run again only for a new RocketMQ version; the tests read the files as they
are.
"""

import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kit.java import VERSIONS, toolkit
from tests.kit.java_driver import JavaClient
from tests.kit.java_server import JavaBroker, JavaNamesrv
from tests.kit.plain_frames import read_plainly
from tests.kit.recorder import ANSWERS, REQUESTS, Tap

FRAMES = Path(__file__).parent / "frames"
MOST_OF_A_KIND = 3
"""Frames of one code with the same fields that are kept; more of the same teach nothing."""


def main() -> None:
    """Both versions with both header types; about a minute."""
    FRAMES.mkdir(exist_ok=True)
    for version in VERSIONS:
        for headers in ("JSON", "ROCKETMQ"):
            with tempfile.TemporaryDirectory() as home, tapped(version, Path(home)) as taps:
                talk(version, headers, Path(home), taps[0])
                write(FRAMES / f"{version}-{headers}.frames", taps)


@contextmanager
def tapped(version: str, home: Path) -> Iterator[tuple[Tap, Tap]]:
    """Taps before a name server and a broker of that version; clients are led through both."""
    names = JavaNamesrv(toolkit(version), home / "names")
    broker = JavaBroker(
        toolkit=toolkit(version),
        data=home / "data",
        home=home / "broker",
        namesrv_address=names.address,
    )
    with broker, Tap(broker.address) as at_broker:
        ports = (str(broker.ports.listen).encode(), str(at_broker.port).encode())
        with Tap(names.address, replace=ports) as at_names:
            yield at_names, at_broker
    names.stop()


def talk(version: str, headers: str, home: Path, at_names: Tap) -> None:
    """What ordinary clients do in their life."""
    client = JavaClient(toolkit(version), home / "client", headers=headers)
    names = f"127.0.0.1:{at_names.port}"
    client.producer("p", names)
    for how in ("sync", "async", "oneway", "batch"):
        client.send("p", "T", ["one", "two ✓"], how=how, tags="A", keys="k1 k2")
    client.call("queues", producer="p", topic="T")
    client.consumer("c", names, "T", tags="A || B")
    client.received("c", 8)
    client.consumer("o", names, "T", orderly=1)
    client.received("o", 8)
    client.commit("c")
    client.pull(names, "T", "pulling", 8)
    client.consumer("d", names, "T", group="c-group")
    client.call("clear")
    client.child.kill()


def write(path: Path, taps: tuple[Tap, Tap]) -> None:
    """Keep a few of each kind, requests first."""
    kept: Counter[tuple[object, ...]] = Counter()
    with path.open("wb") as file:
        for direction in (REQUESTS, ANSWERS):
            for frame in [frame for tap in taps for frame in tap.frames(direction)]:
                plain = read_plainly(frame)
                kind = (direction, plain.code, plain.flag, *sorted(plain.ext))
                kept[kind] += 1
                if kept[kind] <= MOST_OF_A_KIND:
                    file.write(direction + frame)


if __name__ == "__main__":
    main()
