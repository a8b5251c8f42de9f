"""Each state of a damaged store, each tool, and the next start: no message goes without a word.

A state is made of a store that was stopped, or left by a kill. The oracle knows every message that
was acknowledged. Where `verify` finds a directory sound, a start serves all of them. Where a repair
did something, a start serves them, or the repair has said how many it does not, and those that
could be read are in what it kept. Where it says that only a copy mends, nothing has changed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from typing import TYPE_CHECKING

import trio

from aerobee.store.errors import StoreRefused
from aerobee.store.files.disk import Disk
from aerobee.store.results import GetStatus
from aerobee.store.tools.dump import DumpFilter, dump
from aerobee.store.tools.export import export
from aerobee.store.tools.findings import Findings
from aerobee.store.tools.repair import plan, repair
from aerobee.store.tools.stats import summarise
from aerobee.store.tools.verify import verify
from tests.kit.store_model import LOG_BYTES, log_records, open_store
from tests.store.tools.stores import flip

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOW_MS = 1_700_000_000_000
QUEUES = [(topic, queue_id) for topic in ("T0", "T1") for queue_id in (0, 1)]
Place = tuple[str, int, int]
"""Topic, queue id, queue offset."""


def segments(root: Path) -> list[Path]:
    """The segments with messages."""
    files = sorted((root / "commitlog").iterdir())
    while files and not any(files[-1].read_bytes()):
        files.pop()
    return files


def without(*names: str) -> Callable[[Path], None]:
    def spoil(root: Path) -> None:
        for name in names:
            path = root / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    return spoil


def without_log(*names: str) -> Callable[[Path], None]:
    def spoil(root: Path) -> None:
        for path in (root / "commitlog").iterdir():
            path.unlink()
        without(*names)(root)

    return spoil


def without_segments(first: int, end: int | None = None) -> Callable[[Path], None]:
    def spoil(root: Path) -> None:
        files = segments(root)
        if end is None:
            files += [path for path in (root / "commitlog").iterdir() if path > files[-1]]
        for path in files[first:end]:
            path.unlink()

    return spoil


def flipped(number: int, position: int) -> Callable[[Path], None]:
    """A bit of a record: its magic at 5, its body at 90."""

    def spoil(root: Path) -> None:
        at, _ = log_records(root)[number]
        flip(root / "commitlog" / f"{at - at % LOG_BYTES:020d}", at % LOG_BYTES + position)

    return spoil


def zeroed(root: Path) -> None:
    """A few sectors in the middle of the log."""
    at, _ = log_records(root)[20]
    with (root / "commitlog" / f"{at - at % LOG_BYTES:020d}").open("r+b") as file:
        file.seek(at % LOG_BYTES)
        file.write(bytes(min(600, LOG_BYTES - at % LOG_BYTES)))


def without_end(root: Path) -> None:
    """The second half of the last segment with messages is zeros."""
    last = segments(root)[-1]
    used = len(last.read_bytes().rstrip(b"\0"))
    os.truncate(last, used // 2)
    os.truncate(last, LOG_BYTES)


def shorter(root: Path) -> None:
    os.truncate(segments(root)[-1], 1_000)


def queue_file(number: int, act: Callable[[Path], None]) -> Callable[[Path], None]:
    return lambda root: act(sorted((root / "consumequeue" / "T0" / "0").iterdir())[number])


STOPPED: dict[str, Callable[[Path], None]] = {
    "nothing": lambda _root: None,
    "no segment": without_log(),
    "no segment and no checkpoint": without_log("checkpoint"),
    "no segment and no queues": without_log("consumequeue"),
    "no segment, no queues, no checkpoint": without_log("consumequeue", "checkpoint"),
    "no directory of the log": without("commitlog"),
    "no first segment": without_segments(0, 1),
    "no segment in the middle": without_segments(2, 3),
    "no last segment": without_segments(-1),
    "no last two segments": without_segments(-2),
    "zeros at the end": without_end,
    "a shorter segment": shorter,
    "a body": flipped(20, 90),
    "a magic": flipped(20, 5),
    "the first magic": flipped(0, 5),
    "the last body": flipped(-1, 90),
    "the last magic": flipped(-1, 5),
    "zeros in the middle": zeroed,
    "no checkpoint": without("checkpoint"),
    "no queues": without("consumequeue"),
    "no topic": without("consumequeue/T0"),
    "no first queue file": queue_file(0, os.unlink),
    "no last queue file": queue_file(-1, os.unlink),
    "a shorter queue file": queue_file(-1, lambda path: os.truncate(path, 40)),
    "a unit": queue_file(0, lambda path: flip(path, 26)),
    "a unit that leads behind the end": queue_file(0, lambda path: flip(path, 44)),
    "no index": without("index"),
    "no last stop": without("laststop.json"),
    "no last stop and no queues": without("laststop.json", "consumequeue"),
}
KILLED: dict[str, Callable[[Path], None]] = {
    name: spoil
    for name, spoil in STOPPED.items()
    if name
    not in {
        # Without a checkpoint the last run's record says nothing: that is how one begins anew.
        "no segment and no checkpoint",
        "no segment, no queues, no checkpoint",
        # Nothing tells these from the clean-up of a running broker.
        "no first segment",
        "no first queue file",
        # What was written since the last flush, a second ago at most.
        "no last segment",
        "zeros at the end",
        "the last body",
        "the last magic",
        # The same as after a stop.
        "no topic",
        "no index",
        "no last stop",
        "no last stop and no queues",
        "a unit that leads behind the end",
    }
} | {"no lock": without("lock"), "no recovery point": without("recoverypoint.json")}


def served(root: Path) -> set[Place]:
    """What a start serves; it leaves out what is damaged. Raises: StoreRefused."""
    store, _ = open_store(root, Disk())
    places = set()
    try:
        for topic, queue_id in QUEUES:
            for at in range(store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)):
                if store.get(topic, queue_id, at, 1).status is GetStatus.FOUND:
                    places.add((topic, queue_id, at))
    finally:
        trio.run(store.close)
    return places


def readable(root: Path) -> set[Place]:
    """What a dump shows, but for damaged bodies."""
    return {
        (message["topic"], message["queue_id"], message["queue_offset"])
        for message in dump(root, DumpFilter(), Findings())
        if message["body_sound"]
    }


def tree(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def look(root: Path, scratch: Path) -> bool:
    """Each tool that only reads; whether the directory is sound."""
    before = tree(root)
    sound = False
    with contextlib.suppress(StoreRefused):
        sound = verify(root).sound
        summarise(root)
        export(root, scratch, DumpFilter(), unpack=lambda body, _flag: body)
        plan(root)
    assert tree(root) == before
    return sound


def tried(root: Path, copy: Path) -> set[Place] | None:
    """What a start serves on a copy; None where it is refused."""
    shutil.copytree(root, copy)
    try:
        return served(copy)
    except StoreRefused:
        return None


def check(source: Path, spoil: Callable[[Path], None], base: Path) -> None:
    """One state: the tools that look, a start as it is, a repair and the start behind it."""
    root = base / "damaged"
    shutil.copytree(source, root)
    acknowledged = readable(root)
    spoil(root)
    sound = look(root, base / "exported")
    direct = tried(root, base / "direct")
    if sound:
        assert direct == acknowledged
    try:
        wanted = plan(root)
    except StoreRefused:
        assert direct is None
        return
    shown = readable(root)
    if not wanted.needed:
        assert direct == acknowledged or wanted.left
        return
    kept = repair(root, wanted, NOW_MS)
    after = tried(root, base / "after")
    assert after is not None, "a repaired directory is taken by a start"
    gone = acknowledged - after
    assert len(gone) <= wanted.cut_messages + wanted.lost_messages, (gone, wanted)
    if wanted.cut_at is not None and gone & shown:
        assert gone & shown <= readable(kept)
    if wanted.starts_unrepaired:
        assert direct is not None
        assert direct >= shown, "nothing that can be read is kept from consumers"
