"""The limits of the disk on a real file system: refusing and taking sends, deleting for space."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest
import trio

from aerobee.store.config import StoreConfig
from aerobee.store.files.disk import Disk
from aerobee.store.files.system_clock import SystemClock
from aerobee.store.format.names import segment_start
from aerobee.store.message_store import MessageStore
from aerobee.store.results import GetStatus, PutStatus
from tests.kit.broker_process import BrokerProcess
from tests.kit.mounts import small_ext4
from tests.kit.raw_client import RawConnection, send_fields
from tests.kit.reading import read_topic
from tests.kit.running_store import roll_at_once
from tests.kit.store_model import draft
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.faults

SERVICE_NOT_AVAILABLE = 14
MiB = 1_048_576
SETTINGS = {
    "mappedFileSizeCommitLog": MiB,
    "ephemeral": "true",
    "cleanResourceInterval": 500,
}
REFUSES_WITHIN_S = 12.0
RECOVERS_WITHIN_S = 10.0


def fill(directory: Path, percent: float) -> Path:
    """Bring the use of the file system to so many percent, by a file that is none of ours."""
    space = os.statvfs(directory)
    used = space.f_blocks - space.f_bfree
    wanted = round((used + space.f_bavail) * percent / 100) - used
    filler = directory / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, wanted * space.f_frsize)
    return filler


def test_sends_are_refused_above_the_warning_level_and_taken_again_by_themselves(
    tmp_path: Path,
) -> None:
    with (
        small_ext4(tmp_path / "small", size_bytes=64 * MiB) as mount,
        BrokerProcess(data=mount / "data", settings=SETTINGS, log_path=tmp_path / "log") as broker,
        RawConnection(broker.address, timeout_s=30) as connection,
    ):

        def send() -> tuple[int, str | None]:
            answer = connection.call(310, send_fields("T", 0), b"hello")
            return answer.code, answer.remark

        assert send()[0] == 0
        filler = fill(mount, 93)
        eventually(
            lambda: send()[0] == SERVICE_NOT_AVAILABLE,
            within_s=REFUSES_WITHIN_S,
            every_s=0.2,
            what="sends are refused above the warning level",
        )
        _, remark = send()
        assert remark is not None
        assert re.search(r"disk is full \[CL:  0.9\d CQ:  0.9\d INDEX:  0.9\d\]", remark)
        stored = len(list(read_topic(connection, "T", 0)))
        assert stored >= 1, "pulls go on"
        filler.unlink()
        eventually(
            lambda: send()[0] == 0,
            within_s=RECOVERS_WITHIN_S,
            every_s=0.2,
            what="sends are taken again",
        )
        assert broker.stop() == 0


@pytest.mark.trio
async def test_above_the_forcible_limit_the_oldest_segments_make_room_and_no_more(
    tmp_path: Path,
) -> None:
    with small_ext4(tmp_path / "small", size_bytes=64 * MiB) as mount:
        config = StoreConfig(
            max_hash_slot_num=1_000,
            max_index_num=4_000,
            store_path_root_dir=str(mount / "data"),
            mapped_file_size_commit_log_bytes=MiB,
            mapped_file_size_consume_queue_bytes=20 * 100,
            delete_commit_log_files_interval_ms=1,
        )
        store = MessageStore(config, disk=Disk(), clock=SystemClock())
        roll_at_once(store)
        store.load()
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            for _ in range(100):
                assert store.put(draft(body=bytes(200_000))).status is PutStatus.PUT_OK
            store.dispatch()
            assert await store.flush_queues()
            view = store.commit_log.view(0, 1_000)
            fill(mount, 89)
            await store.space.cleanup.look()
            await store.space.cleanup.clean()
            assert 1 <= store.stats.segments_forced <= 5
            assert store.space.cleanup.held_bytes == MiB, "the first one is being read"
            forced = store.stats.segments_forced
            assert view is not None
            del view
            await store.space.cleanup.look()
            await store.space.cleanup.look()
            assert store.space.watch.log.used_percent <= 85
            await store.space.cleanup.clean()
            assert store.stats.segments_forced == forced
            names = sorted(path.name for path in (mount / "data" / "commitlog").iterdir())
            assert segment_start(names[0]) == store.commit_log.min_offset == forced * MiB
            assert store.get("T", 0, 0, 1).status is GetStatus.OFFSET_TOO_SMALL
            assert store.get("T", 0, 99, 1).status is GetStatus.FOUND
            nursery.cancel_scope.cancel()
        assert await store.close()
