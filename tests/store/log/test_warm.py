"""The pages ahead of the appends are read, no more of them and no others."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pytest
from structlog.testing import capture_logs

from aerobee.store.files.disk import Disk
from aerobee.store.format.names import spare_path
from aerobee.store.log.warm import PAGE_BYTES, Warmer
from aerobee.store.message_store import MessageStore
from tests.kit.cold_disk import ColdDisk
from tests.kit.running_store import running_store
from tests.kit.store_model import ManualClock, draft, small_config

P = ParamSpec("P")
R = TypeVar("R")
AHEAD = 2 * PAGE_BYTES
SEGMENT = 4 * AHEAD
SETTINGS: dict[str, Any] = {
    "mapped_file_size_commit_log_bytes": SEGMENT,
    "flush_least_pages_when_warm_maped_file": 2,
}


def opened(root: Path, disk: Disk) -> tuple[MessageStore, Warmer]:
    config = small_config(root, **SETTINGS)
    store = MessageStore(config, disk=disk, clock=ManualClock())
    store.load()
    return store, Warmer(config, store.commit_log, disk)


def fill_to(store: MessageStore, position: int) -> None:
    """Messages until the log ends at or just before this byte."""
    while (rest := position - store.commit_log.max_offset) >= 200:
        store.put(draft(body=bytes(min(rest, 2_000) - 100)))


@pytest.mark.trio
async def test_the_pages_behind_the_end_are_read_once(tmp_path: Path) -> None:
    disk = ColdDisk()
    store, warmer = opened(tmp_path, disk)
    fill_to(store, 1_000)
    end = store.commit_log.max_offset
    disk.waited.clear()
    assert await warmer.keep_ahead()
    first = store.commit_log.queue.files[0].path
    assert disk.waited == [(first, end, AHEAD)]
    assert not await warmer.keep_ahead()
    fill_to(store, 2_000)
    moved = store.commit_log.max_offset - end
    assert await warmer.keep_ahead()
    assert disk.waited[1:] == [(first, end + AHEAD, moved)]
    await store.close()


@pytest.mark.trio
async def test_at_the_end_of_a_segment_the_prepared_one_is_read_too(tmp_path: Path) -> None:
    disk = ColdDisk()
    store, warmer = opened(tmp_path, disk)
    fill_to(store, SEGMENT - 500)
    queue = store.commit_log.queue
    spare = spare_path(queue.path_of(SEGMENT))
    disk.waited.clear()
    await warmer.keep_ahead()
    assert [path for path, _, _ in disk.waited] == [queue.files[0].path], "none is prepared yet"
    disk.open(spare, create=True).truncate(SEGMENT)
    disk.waited.clear()
    await warmer.keep_ahead()
    ahead = AHEAD - (SEGMENT - store.commit_log.max_offset)
    assert disk.waited == [(spare, 0, ahead)]
    spare.unlink()
    await store.close()


@pytest.mark.trio
async def test_what_appends_have_overtaken_is_left_out(tmp_path: Path) -> None:
    disk = ColdDisk()
    store, warmer = opened(tmp_path, disk)
    fill_to(store, 1_000)
    await warmer.keep_ahead()
    fill_to(store, 3 * AHEAD)
    disk.waited.clear()
    await warmer.keep_ahead()
    assert disk.waited[0][1] == store.commit_log.max_offset
    await store.close()


class SickDisk(Disk):
    """Reads of more than a page fail."""

    def _call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        if function is os.pread and int(str(args[1])) >= AHEAD:
            raise OSError(errno.EIO, "sick")
        return super()._call(function, *args, **kwargs)


@pytest.mark.trio
async def test_pages_that_cannot_be_read_are_reported_and_passed(tmp_path: Path) -> None:
    store, warmer = opened(tmp_path, SickDisk())
    fill_to(store, 1_000)
    with capture_logs() as logs:
        assert await warmer.keep_ahead()
        assert not await warmer.keep_ahead()
    assert [line["event"] for line in logs] == ["commit_log.not_warmed"]
    await store.close()


@pytest.mark.trio
async def test_a_running_store_survives_being_warmed_while_it_rolls(tmp_path: Path) -> None:
    async with running_store(tmp_path, Disk(), **SETTINGS) as store:
        for _ in range(5):
            fill_to(store, store.commit_log.max_offset + SEGMENT // 2)
            await store.space.warmer.keep_ahead()
            store.dispatch()


@pytest.mark.trio
async def test_the_transient_pool_is_accepted_and_said_to_be_needless(
    tmp_path: Path, autojump_clock: object
) -> None:
    with capture_logs() as logs:
        async with running_store(tmp_path, Disk(), transient_store_pool_enable=True) as store:
            await store.flush_queues()
    assert "store.transient_pool_needless" in [line["event"] for line in logs]
