"""The real broker under an operating system that is not what it should be: a process of its own.

python -m tests.kit.odd_broker dies:17 broker run …     killed at its 17th change of a file
python -m tests.kit.odd_broker lies broker run …        syncs say done and do nothing
python -m tests.kit.odd_broker slow:500 broker run …    each message takes 500 us longer to store
python -m tests.kit.odd_broker waits:500 broker run …   each sync of the log takes 500 ms longer
python -m tests.kit.odd_broker files:100 broker run …   the system gives it 100 descriptors
python -m tests.kit.odd_broker allocates:900 broker run …  room on its disk takes 900 ms to be had
python -m tests.kit.odd_broker saves broker run …       extents of few queues are worth a save
python -m tests.kit.odd_broker clock:86400 broker run …  its wall clock is a day ahead
python -m tests.kit.odd_broker before:MODULE:CLASS.METHOD broker run …  killed in front of a step
python -m tests.kit.odd_broker after:MODULE:CLASS.METHOD broker run …   killed behind it

The first hits any point of a start or a recovery, repeatably. The second is the control of power
cuts: a test of durability that such a broker passes tests nothing. The third has a capacity that a
few test clients can exceed many times over. In the fourth thousands of senders share one sync. The
fifth runs out of descriptors. The sixth has a disk that is slow to make the next segment of the
log. The seventh starts with a few queues as others do with thousands. The clock of the eighth is
off by so many seconds, fewer than none for one that is behind. The last two are killed at a named
coroutine, where no count of changes would hit. `ODD_BROKER` in the
environment says the same to `stall_watch` and `step_watch`.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aerobee.store.format.layout import Buffer

CHANGES = (
    "fdatasync",
    "fsync",
    "ftruncate",
    "mkdir",
    "posix_fallocate",
    "pwrite",
    "replace",
    "unlink",
)
"""What the broker does to the disk, by the names of the calls. A kill comes after a call."""
SYNCS = ("fdatasync", "fsync")


def dies_at(count: int) -> tuple[str, str]:
    """The `module` of a `BrokerProcess` that is killed right after so many changes of files."""
    return (__name__, f"dies:{count}")


def slow_by(microseconds: int) -> tuple[str, str]:
    """The `module` of a `BrokerProcess` that takes so much longer to store a message."""
    return (__name__, f"slow:{microseconds}")


def few_files(count: int) -> tuple[str, str]:
    """The `module` of a `BrokerProcess` that may have so many descriptors and no more."""
    return (__name__, f"files:{count}")


def without_threads(name: str, given: int) -> tuple[str, str]:
    """The `module` of a `BrokerProcess` that gets so many threads of a name that begins so."""
    return (__name__, f"threads:{given}:{name}")


def allocating_for(milliseconds: int) -> str:
    """For `ODD_BROKER`: each allocation of a file takes so much longer."""
    return f"allocates:{milliseconds}"


def clock_ahead(seconds: int) -> tuple[str, str]:
    """The `module` of a `BrokerProcess` whose wall clock is ahead by so much; negative: behind."""
    return (__name__, f"clock:{seconds}")


def dies_beside(when: str, step: str) -> tuple[str, str]:
    """The `module` of a `BrokerProcess` that is killed `before` or `after` a coroutine.

    `step`: `module:Class.method`, without `aerobee.`.
    """
    return (__name__, f"{when}:{step}")


LIES = (__name__, "lies")
"""The `module` of a `BrokerProcess` whose syncs do nothing."""
SAVES = (__name__, "saves")
"""The `module` of a `BrokerProcess` that saves what its queues reached, few as they are."""
ODD_BROKER = "ODD_BROKER"


def die_at(count: int) -> None:
    """Make this process end by SIGKILL right after so many changes of files."""
    left = count

    def then_die(change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            result = change(*arguments, **options)
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return changed

    for name in CHANGES:
        setattr(os, name, then_die(getattr(os, name)))


def lie() -> None:
    """Make syncs do nothing."""
    for name in SYNCS:
        setattr(os, name, lambda _: None)


def slow_down(microseconds: int) -> None:
    """Make every append keep the loop for so long, as a machine does that is too slow."""
    from aerobee.store.log.commit_log import CommitLog

    append, append_each = CommitLog.append, CommitLog.append_each

    def wait() -> None:
        until = time.monotonic() + microseconds / 1e6
        while time.monotonic() < until:
            pass

    def appended(self: CommitLog, records: Buffer, *times: int) -> bool:
        wait()
        return append(self, records, *times)

    def each_appended(self: CommitLog, records: Iterable[Buffer], *times: int) -> None:
        records = list(records)
        for _ in records:
            wait()
        append_each(self, records, *times)

    setattr(CommitLog, "append", appended)  # noqa: B010  (its type says that it is fixed)
    setattr(CommitLog, "append_each", each_appended)  # noqa: B010  (as it)


def wait_for_syncs(milliseconds: int) -> None:
    """Make every sync of the log wait for so long first, in its thread."""
    from aerobee.store.log.commit_log import CommitLog

    sync = CommitLog.sync

    def synced(self: CommitLog, *arguments: Any) -> None:
        threading.Event().wait(milliseconds / 1_000)
        sync(self, *arguments)

    setattr(CommitLog, "sync", synced)  # noqa: B010  (its type says that it is fixed)


def give_threads(given: int, name: str) -> None:
    """Give so many threads of a name that begins so, and no more."""
    begin, left = threading.Thread.start, given

    def started(self: threading.Thread) -> None:
        nonlocal left
        if self.name.startswith(name):
            if not left:
                raise RuntimeError("can't start new thread")
            left -= 1
        begin(self)

    setattr(threading.Thread, "start", started)  # noqa: B010  (as the others)


def allocate_slowly(milliseconds: int) -> None:
    """Make whoever reserves the blocks of a file wait for so long."""
    allocate = os.posix_fallocate

    def allocated(fd: int, offset: int, size: int) -> None:
        threading.Event().wait(milliseconds / 1_000)
        allocate(fd, offset, size)

    setattr(os, "posix_fallocate", allocated)  # noqa: B010  (as the others)


def save_every_extent() -> None:
    """Make one queue without an extent worth a save."""
    from aerobee.store.flush import extents

    setattr(extents, "FEW", 0)  # noqa: B010 - a constant, elsewhere
    setattr(extents, "SHARE", sys.maxsize)  # noqa: B010 - a constant, elsewhere


def set_the_clock(seconds: int) -> None:
    """Make the wall clock another one."""
    now, now_ns = time.time, time.time_ns
    setattr(time, "time", lambda: now() + seconds)  # noqa: B010  (as the others)
    setattr(time, "time_ns", lambda: now_ns() + seconds * 1_000_000_000)  # noqa: B010  (as it)


def die_beside(when: str, step: str) -> None:
    """Make this process end by SIGKILL in front of a coroutine, or when it has returned."""
    module, _, name = step.partition(":")
    kind, _, method = name.partition(".")
    owner = getattr(import_module(f"aerobee.{module}"), kind)
    run = getattr(owner, method)

    async def ended(*arguments: Any, **options: Any) -> Any:
        if when == "after":
            await run(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, method, ended)


def become(way: str) -> None:
    """Change the world as the first word of the command line says."""
    name, _, count = way.partition(":")
    if name == "dies":
        die_at(int(count))
    elif name == "slow":
        slow_down(int(count))
    elif name == "waits":
        wait_for_syncs(int(count))
    elif name == "files":
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(count), int(count)))
    elif name == "threads":
        given, _, thread = count.partition(":")
        give_threads(int(given), thread)
    elif name == "allocates":
        allocate_slowly(int(count))
    elif name == "clock":
        set_the_clock(int(count))
    elif name in ("before", "after"):
        die_beside(name, count)
    elif name == "saves":
        save_every_extent()
    else:
        assert name == "lies", way
        lie()


def main(way: str, words: list[str]) -> None:
    """Change the world, then run the command line."""
    from aerobee.cli.main import main as aerobee

    become(way)
    aerobee(words)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
