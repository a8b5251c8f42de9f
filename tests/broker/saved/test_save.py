from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from aerobee.broker.saved.json_file import JsonFile
from aerobee.broker.saved.save import RETRY_S, Periodic, SavedTable, Saver
from aerobee.store.files.disk import Disk
from tests.broker.peers import HandClock


class Numbers:
    """A table of one number that counts its changes."""

    def __init__(self) -> None:
        self.value = 0
        self.changes = 0

    def set(self, value: int) -> None:
        self.value = value
        self.changes += 1

    def document(self) -> dict[str, Any]:
        return {"value": self.value}


class Held(JsonFile):
    """A file whose writes wait until they are let through, or fail."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, Disk(), HandClock())
        self.gate = trio.Event()
        self.written: list[Any] = []
        self.full = False
        self.tries = 0

    async def write(self, document: Any) -> None:
        self.tries += 1
        await self.gate.wait()
        if self.full:
            raise OSError(28, "No space left on device")
        self.written.append(document["value"])


def held(tmp_path: Path, *, open_gate: bool = True) -> tuple[Numbers, Held, SavedTable]:
    table = Numbers()
    file = Held(tmp_path / "numbers.json")
    if open_gate:
        file.gate.set()
    return table, file, SavedTable(table, file, changes=lambda: table.changes)


@pytest.mark.trio
async def test_a_save_is_on_disk_when_it_returns(tmp_path: Path) -> None:
    table = Numbers()
    file = JsonFile(tmp_path / "config" / "numbers.json", Disk(), HandClock())
    saved = SavedTable(table, file)
    table.set(5)
    await saved.save()
    assert file.path.read_bytes() == b'{"value":5}'
    assert saved.clean


@pytest.mark.trio
async def test_saves_asked_for_during_a_write_share_the_next_one(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    table, file, saved = held(tmp_path, open_gate=False)
    table.set(1)
    nursery.start_soon(saved.save)
    await trio.testing.wait_all_tasks_blocked()
    for value in (2, 3, 4):
        table.set(value)
        nursery.start_soon(saved.save)
    await trio.testing.wait_all_tasks_blocked()
    file.gate.set()
    await trio.testing.wait_all_tasks_blocked()
    assert file.written == [1, 4]
    assert saved.clean


@pytest.mark.trio
async def test_catching_up_waits_for_nothing_when_all_is_on_disk(tmp_path: Path) -> None:
    _, file, saved = held(tmp_path)
    await saved.catch_up()
    assert file.written == []


@pytest.mark.trio
async def test_a_request_is_served_at_once(tmp_path: Path, nursery: trio.Nursery) -> None:
    table, file, saved = held(tmp_path)
    _, _, other = held(tmp_path)
    await nursery.start(Saver([saved], periodic=[Periodic(other, 5)]).run)
    table.set(7)
    saved.request()
    assert not saved.clean
    await trio.testing.wait_all_tasks_blocked()
    assert file.written == [7]
    assert saved.clean
    nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_an_entry_waits_for_the_save_that_has_its_last_change(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    _, file, saved = held(tmp_path, open_gate=False)
    saved.request(["a", "b"])
    nursery.start_soon(saved.catch_up)
    await trio.testing.wait_all_tasks_blocked()
    saved.request(["b", "c"])
    assert [saved.has(name) for name in "abcd"] == [False, False, False, True]
    file.gate.set()
    await trio.testing.wait_all_tasks_blocked()
    assert [saved.has(name) for name in "abcd"] == [True, False, False, True]
    file.full = True
    with pytest.raises(OSError, match="No space"):
        await saved.catch_up()
    assert not saved.has("b")
    file.full = False
    await saved.catch_up(at_once=True)
    assert saved.has("b")
    assert saved.unsaved == {}


@pytest.mark.trio
async def test_offsets_are_saved_every_5_seconds_from_the_start_on_and_only_if_they_changed(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    table, file, saved = held(tmp_path)
    await nursery.start(Saver([], periodic=[Periodic(saved, 5)]).run)
    table.set(1)
    await trio.sleep(4.9)
    assert file.written == []
    await trio.sleep(0.2)
    assert file.written == [1]
    await trio.sleep(5)
    assert file.written == [1]
    table.set(2)
    await trio.sleep(5)
    assert file.written == [1, 2]
    nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_failed_save_is_told_to_who_waits_and_tried_again(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    table, file, saved = held(tmp_path)
    _, _, other = held(tmp_path)
    await nursery.start(Saver([saved], periodic=[Periodic(other, 5)]).run)
    file.full = True
    table.set(1)
    with capture_logs() as logs:
        with pytest.raises(OSError, match="No space left"):
            await saved.save()
        saved.request()
        await trio.sleep(3 * RETRY_S)
        assert not saved.clean
        file.full = False
        await trio.sleep(RETRY_S)
    assert file.written == [1]
    assert saved.clean
    assert [entry["event"] for entry in logs] == ["table.save_failed", "table.save_recovered"]
    nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_after_a_failure_the_disk_is_left_alone_for_a_while_and_who_asks_is_told_at_once(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    table, file, saved = held(tmp_path)
    file.full = True
    table.set(1)
    for _ in range(100):
        with pytest.raises(OSError, match="No space left"):
            await saved.save()
    assert file.tries == 1
    await trio.sleep(RETRY_S)
    file.full = False
    await saved.save()
    assert (file.tries, file.written) == (2, [1])


@pytest.mark.trio
async def test_at_the_stop_every_table_is_saved_even_if_one_fails(tmp_path: Path) -> None:
    bad_table, bad_file, bad = held(tmp_path)
    table, file, saved = held(tmp_path)
    bad_file.full = True
    table.set(3)
    bad_table.set(4)
    assert not await Saver([bad], periodic=[Periodic(saved, 5)]).save_all()
    assert file.written == [3]
    bad_file.full = False
    assert await Saver([bad, saved], periodic=[Periodic(saved, 5)]).save_all()
    assert bad_file.written == [4]
    assert file.written == [3, 3]


@pytest.mark.trio
async def test_a_table_of_progress_is_written_after_what_its_snapshot_speaks_of(
    tmp_path: Path,
) -> None:
    table, file, _ = held(tmp_path)
    copies_on_disk = 0

    async def copies_reach_the_disk() -> None:
        nonlocal copies_on_disk
        copies_on_disk = table.value
        table.set(table.value + 1)
        await trio.lowlevel.checkpoint()

    saved = SavedTable(table, file, relies_on=copies_reach_the_disk)
    table.set(7)
    await saved.save()
    assert file.written == [7]
    assert copies_on_disk == 7


@pytest.mark.trio
async def test_progress_is_not_written_when_its_copies_did_not_reach_the_disk(
    tmp_path: Path,
) -> None:
    table, file, _ = held(tmp_path)

    async def never() -> None:
        raise OSError("the log did not reach the disk in time")

    saved = SavedTable(table, file, relies_on=never)
    table.set(7)
    with pytest.raises(OSError, match="did not reach"):
        await saved.save()
    assert file.written == []
    assert not saved.clean
