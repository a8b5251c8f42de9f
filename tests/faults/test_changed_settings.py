"""Settings that shape files, changed between two starts: what is there keeps its shape.

Each one after a clean stop and after a kill, to more and to less, and back; the log says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from structlog.testing import capture_logs

from aerobee.store.files.disk import Disk
from aerobee.store.format.properties import encode
from aerobee.store.tools.verify import verify
from tests.kit.faulty_disk import FaultyDisk
from tests.kit.store_checker import check_closed
from tests.kit.store_model import (
    INDEX_ENTRIES,
    INDEX_SLOTS,
    ManualClock,
    draft,
    flush_everything,
    open_store,
    read_queue,
)

if TYPE_CHECKING:
    from pathlib import Path

    from aerobee.store.message_store import MessageStore

WRITTEN = 40
ENDS = ("stop", "kill")
INDEX_SHAPES = (
    {"max_hash_slot_num": INDEX_SLOTS * 3, "max_index_num": INDEX_ENTRIES * 3},
    {"max_hash_slot_num": INDEX_SLOTS // 2, "max_index_num": INDEX_ENTRIES // 2},
    # Of the same length as the usual one: only what is in a file tells them apart.
    {"max_hash_slot_num": INDEX_SLOTS + 5, "max_index_num": INDEX_ENTRIES - 1},
    {"max_hash_slot_num": 1, "max_index_num": INDEX_ENTRIES},
)
SIZES = ("mapped_file_size_commit_log_bytes", "mapped_file_size_consume_queue_bytes")


class Settings:
    """A directory that is opened with ever other settings; what was put into it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = ManualClock()
        self.keys: list[str] = []

    def run(self, *, end: str, **changes: Any) -> list[dict[str, Any]]:
        """Start with these settings, check, write more, check, end; what the start said."""
        return trio.run(self._run, end, changes)

    async def _run(self, end: str, changes: dict[str, Any]) -> list[dict[str, Any]]:
        disk = FaultyDisk(self.root) if end == "kill" else Disk()
        with capture_logs() as said:
            store, _ = open_store(self.root, disk, self.clock, **changes)
        await self._check(store)
        for number in range(WRITTEN):
            self._put(store)
            if number == WRITTEN // 2:
                store.dispatch()
                flush_everything(store, disk)
        await self._check(store)
        if isinstance(disk, FaultyDisk):
            disk.kill()
        else:
            assert await store.close()
            check_closed(self.root, clean=True)
            found = verify(self.root)
            assert found.sound, found.damage
        return [dict(line) for line in said]

    def _put(self, store: MessageStore) -> None:
        key = f"key{len(self.keys)}"
        self.clock.ms += 1
        properties = encode({"UNIQ_KEY": f"U{key}", "KEYS": key}).encode()
        put = store.put(draft(queue_id=len(self.keys) % 2, body=bytes(50), properties=properties))
        assert put.queue_offset == len(self.keys) // 2
        self.keys.append(key)

    async def _check(self, store: MessageStore) -> None:
        """Every message is in its queue, and found by its key."""
        store.dispatch()
        service = store.index.service
        while await service.step():
            pass
        await service.write()
        assert service.behind_bytes == 0
        assert sum(len(read_queue(store, "T", queue)) for queue in range(2)) == len(self.keys)
        for key in self.keys:
            found = await store.index.query("T", key, 9, 0, 1 << 62)
            assert len(found.records) == 1, key


def events(said: list[dict[str, Any]]) -> set[str]:
    return {line["event"] for line in said}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("shape", INDEX_SHAPES, ids=str)
def test_index_files_keep_their_slots_and_entries(
    tmp_path: Path, shape: dict[str, int], end: str
) -> None:
    settings = Settings(tmp_path / "store")
    settings.run(end=end)
    told = events(settings.run(end=end, **shape))
    if end == "stop":
        assert "index.shape_kept" in told
        assert "index.file_dropped" not in told, "nothing has to be built again"
    settings.run(end=end)
    settings.run(end="stop", **shape)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("factor", [3, 0.5])
@pytest.mark.parametrize("name", SIZES)
def test_files_of_log_and_queues_keep_their_size(
    tmp_path: Path, name: str, factor: float, end: str
) -> None:
    usual = {SIZES[0]: 4_096, SIZES[1]: 200}
    changed = {name: int(usual[name] * factor)}
    settings = Settings(tmp_path / "store")
    settings.run(end=end)
    said = settings.run(end=end, **changed)
    kept = [line for line in said if line["event"] == "store.size_kept"]
    assert [(line["file_bytes"], line["configured_bytes"]) for line in kept] == [
        (usual[name], changed[name])
    ]
    assert "store.queues_rebuilt" not in events(said)
    assert "store.size_kept" not in events(settings.run(end=end))
    settings.run(end="stop", **changed)
