"""A start looks into the queues whose files changed, and into no others."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aerobee.store.flush.extents import FEW, SHARE, lacks
from aerobee.store.format.names import (
    CONSUME_QUEUE,
    LAST_STOP,
    LOCK,
    QUEUE_EXTENTS,
    RECOVERY_POINT,
    segment_name,
)
from aerobee.store.format.unit import UNIT_SIZE
from aerobee.store.queues.consume_queue import ConsumeQueue
from tests.kit.faulty_disk import FaultyDisk
from tests.kit.store_model import Sent, StoreModel, check_directory, flush_everything, open_store

TOPICS, QUEUES = 50, 4
MORE = 10
"""Queues that get another message behind the save."""


def path_of(model: StoreModel, topic: str, queue_id: int) -> Path:
    return model.root / CONSUME_QUEUE / topic / str(queue_id) / segment_name(0)


def put(model: StoreModel, count: int) -> None:
    for number in range(count):
        model.put(f"T{number % TOPICS}", number // TOPICS % QUEUES, Sent(b"body %d" % number, b""))
    model.store.dispatch()


def changes(model: StoreModel) -> list[float]:
    """When the files of queues changed, in seconds."""
    files = (model.root / CONSUME_QUEUE).rglob(segment_name(0))
    return [path.stat().st_ctime for path in files]


def date(model: StoreModel, seconds: float) -> None:
    """When the extents were written."""
    os.utime(model.root / QUEUE_EXTENTS, (seconds, seconds))


@pytest.fixture
def model(tmp_path: Path) -> Iterator[StoreModel]:
    """200 queues with two messages each, whose extents are saved."""
    model = StoreModel(
        tmp_path / "d",
        mapped_file_size_commit_log_bytes=1 << 20,
        mapped_file_size_consume_queue_bytes=100 * UNIT_SIZE,
        message_index_enable=False,
    )
    put(model, 2 * TOPICS * QUEUES)
    model.save_extents()
    yield model
    model.disk.kill()


def looked_into(model: StoreModel, restart: Callable[[], None]) -> set[str]:
    """The queues whose files a start opens."""
    model.disk.calls.clear()
    restart()
    within = str(model.root / CONSUME_QUEUE) + os.sep
    opened = [str(call.path) for call in model.disk.calls if call.name == "open"]
    return {path.removeprefix(within) for path in opened if path.startswith(within)}


def test_after_a_stop_no_queue_is_looked_into(model: StoreModel) -> None:
    assert trio.run(model.store.close)
    assert len(looked_into(model, model._reopen)) <= 1
    assert model.recovery.clean
    model.check_store()


def test_after_a_kill_only_those_that_changed_are_looked_into(model: StoreModel) -> None:
    put(model, MORE)
    flush_everything(model.store, model.disk)
    changed = {f"T{number}/0/{segment_name(0)}" for number in range(MORE)}
    assert looked_into(model, model.crash) == changed
    listed = [str(call.path) for call in model.disk.calls if call.name == "scandir"]
    assert not [path for path in listed if path.endswith("/0")], "nor are their directories listed"
    assert not model.recovery.rebuilt_queues
    model.check_store()
    put(model, TOPICS * QUEUES)
    model.crash()
    model.check_store()


def test_a_queue_that_filled_its_file_behind_the_save_has_the_next_one_as_well(
    model: StoreModel,
) -> None:
    for number in range(150):
        model.put("T7", 0, Sent(b"more %d" % number, b""))
    model.store.dispatch()
    flush_everything(model.store, model.disk)
    model.crash()
    assert not model.recovery.rebuilt_queues
    model.check_store()
    model.stop()
    model.check_store()


def test_after_a_power_cut_every_queue_is_looked_into(model: StoreModel, tmp_path: Path) -> None:
    target = model.disk.power_cut(tmp_path / "after", Random(1))
    model.root, model.disk = target, FaultyDisk(target)
    assert len(looked_into(model, model._reopen)) == TOPICS * QUEUES
    model.check_store()


def test_a_queue_that_somebody_cut_is_built_again(model: StoreModel) -> None:
    assert trio.run(model.store.close)
    with path_of(model, "T3", 1).open("r+b") as file:
        file.seek(UNIT_SIZE)
        file.write(bytes(UNIT_SIZE))
    path_of(model, "T4", 2).unlink()
    model._reopen()
    assert model.recovery.rebuilt_queues == 2
    model.check_store()


def test_a_queue_of_another_size_is_not_believed(model: StoreModel) -> None:
    assert trio.run(model.store.close)
    os.truncate(path_of(model, "T3", 1), 50 * UNIT_SIZE)
    model._reopen()
    assert model.recovery.rebuilt_queues == 1
    model.check_store()


def test_extents_say_nothing_once_another_broker_was_here(model: StoreModel) -> None:
    assert trio.run(model.store.close)
    (model.root / LOCK).write_bytes(b"lock")
    assert len(looked_into(model, model._reopen)) == TOPICS * QUEUES
    model.check_store()


def test_a_queue_that_lost_its_oldest_messages_is_looked_into(tmp_path: Path) -> None:
    model = StoreModel(
        tmp_path / "d",
        mapped_file_size_consume_queue_bytes=100 * UNIT_SIZE,
        message_index_enable=False,
    )
    put(model, 2 * TOPICS * QUEUES)
    model.save_extents()
    first, second = model.store.commit_log.queue.files[:2]
    assert trio.run(model.store.close)
    (model.root / "commitlog" / segment_name(first.start)).unlink()
    model.store, recovery = open_store(model.root, model.disk, model.clock, **model.changes)
    assert recovery.clean
    gone = {key for key, queue in model.store.queues.table.items() if queue.min_offset}
    ends = {(topic, queue) for topic, queue, end in model.order if end <= second.start}
    assert gone == ends
    model.disk.kill()


def test_few_changes_are_not_worth_a_save(model: StoreModel) -> None:
    few = max(FEW, TOPICS * QUEUES // SHARE)
    for count, saves in ((few, False), (few + 1, True)):
        put(model, count)
        flush_everything(model.store, model.disk)
        model.disk.calls.clear()
        trio.run(model.store.points.extents.save)
        written = any(call.name == "replace" for call in model.disk.calls)
        assert written is saves


def test_what_changed_just_before_is_not_believed(model: StoreModel) -> None:
    date(model, min(changes(model)) + 0.02)
    assert len(looked_into(model, model.crash)) == TOPICS * QUEUES
    model.check_store()


# ── Whatever stands in the file, and whatever was done to the files ──


class Few(NamedTuple):
    """Eight queues, all of them with extents, and a copy of what was saved before."""

    model: StoreModel
    older: Path

    def names(self) -> Path:
        return self.model.root / QUEUE_EXTENTS

    def restored(self, *names: str) -> None:
        """Files as they were at the save before, with their times."""
        for name in names:
            shutil.copy2(self.older / name, self.model.root / name)


def few_queues(root: Path) -> Few:
    """Two saves with more messages in some queues between them, and more behind the second."""
    model = StoreModel(
        root / "d",
        mapped_file_size_commit_log_bytes=1 << 20,
        mapped_file_size_consume_queue_bytes=100 * UNIT_SIZE,
        message_index_enable=False,
    )
    older = root / "older"
    older.mkdir()
    for number in range(60):
        model.put(f"T{number % 4}", number // 4 % 2, Sent(b"body %d" % number, b""))
        model.store.dispatch()
        if number == 20:
            model.save_extents()
            for name in (QUEUE_EXTENTS, RECOVERY_POINT, LAST_STOP):
                if (model.root / name).exists():
                    shutil.copy2(model.root / name, older / name)
        if number == 50:
            model.save_extents()
    flush_everything(model.store, model.disk)
    return Few(model, older)


@pytest.fixture
def every_extent(monkeypatch: pytest.MonkeyPatch) -> None:
    """One queue without an extent is worth a save."""
    monkeypatch.setattr("aerobee.store.flush.extents.FEW", 0)
    monkeypatch.setattr("aerobee.store.flush.extents.SHARE", 1 << 30)


def ended(few: Few, *, kill: bool) -> None:
    """The end of a run, before the next start."""
    if kill:
        few.model.disk.kill()
    else:
        assert trio.run(few.model.store.close)


def all_is_there(few: Few) -> None:
    """After the next start, and after one more message in each queue and a further start."""
    model = few.model
    model._reopen()
    check_directory(model.root)
    model.check_store()
    for number in range(8):
        model.put(f"T{number % 4}", number // 4, Sent(b"more %d" % number, b""))
    model.store.dispatch()
    model.save_extents()
    model.crash()
    model.check_store()
    check_directory(model.root)
    model.disk.kill()


PLACES = st.integers(0, (1 << 16) - 1)
"""Modulo a length: times have more or fewer digits, and what is drawn may not depend on a clock."""
NUMBERS = st.sampled_from([-1, 0, 1, 20, 1_999, 2_000, 1 << 31, 1 << 63, 1 << 70]) | st.integers()

PLACES = st.integers(0, 1 << 16)
"""Of whatever length the file is: its numbers have more digits or fewer."""


def altered(data: st.DataObject, content: bytes) -> bytes:
    """The file with bits, its end, one of its numbers or one of its parts changed."""
    way = data.draw(st.sampled_from(["bit", "cut", "number", "near", "size", "topic", "less"]))
    if way == "bit":
        bits = bytearray(content)
        bits[data.draw(PLACES) % len(bits)] ^= 1 << data.draw(st.integers(0, 7))
        return bytes(bits)
    if way == "cut":
        return content[: data.draw(PLACES) % len(content)]
    document = msgspec.json.decode(content)
    topic = data.draw(st.sampled_from(sorted(document["topics"])))
    queues = document["topics"][topic]
    extent = queues[data.draw(PLACES) % len(queues)]
    field = data.draw(PLACES) % len(extent)
    if way == "number":
        # msgspec writes no larger number.
        number = data.draw(NUMBERS)
        extent[field] = number if -(1 << 63) <= number < 1 << 64 else str(number)
    elif way == "near":
        extent[field] += data.draw(st.sampled_from([-20, -1, 1, 20]))
    elif way == "size":
        document["file_size"] = data.draw(st.sampled_from([-20, 0, 20, 40, 2_020, 6_000_000]))
    elif way == "topic":
        document["topics"][data.draw(st.sampled_from(["", "..", "T9", "%RETRY%"]))] = queues
        del document["topics"][topic]
    else:
        queues.remove(extent)
    return msgspec.json.encode(document)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data(), kill=st.booleans())
def test_whatever_is_changed_in_the_file_nothing_is_lost_or_invented(
    tmp_path_factory: pytest.TempPathFactory, every_extent: None, data: st.DataObject, kill: bool
) -> None:
    few = few_queues(tmp_path_factory.mktemp("few"))
    ended(few, kill=kill)
    path = few.names()
    times = path.stat()
    path.write_bytes(altered(data, path.read_bytes()))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    all_is_there(few)


def nothing(few: Few) -> None:
    """As they are."""


def older_extents(few: Few) -> None:
    """Of an earlier save."""
    few.restored(QUEUE_EXTENTS)


def older_pair(few: Few) -> None:
    """Of an earlier save, with the recovery point that names them."""
    few.restored(QUEUE_EXTENTS, RECOVERY_POINT)


def of_another_store(few: Few) -> None:
    """Of a directory with the same queues, longer ones."""
    other = few_queues(few.older / "other")
    shutil.copy2(other.names(), few.names())
    other.model.disk.kill()


def dated_late(few: Few) -> None:
    """As if the clock had been set back after they were written."""
    os.utime(few.names(), (1 << 32, 1 << 32))


def dated_early(few: Few) -> None:
    """As if it had been set back before."""
    os.utime(few.names(), (1, 1))


def queue_copied(few: Few) -> None:
    """A queue file replaced by a copy of itself that has its times."""
    path = path_of(few.model, "T1", 0)
    copy = path.with_name("copy")
    shutil.copy2(path, copy)
    copy.replace(path)


def queue_emptied(few: Few) -> None:
    """A queue file of the same name, size and times, without the units of the end."""
    path = path_of(few.model, "T1", 0)
    times = path.stat()
    path.unlink()
    path.write_bytes(b"".ljust(100 * UNIT_SIZE, b"\0"))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def queue_shortened(few: Few) -> None:
    """The last unit of a queue taken away, and the time of modification set back."""
    path = path_of(few.model, "T2", 1)
    times = path.stat()
    units = path.read_bytes().rstrip(b"\0")
    end = (len(units) + UNIT_SIZE - 1) // UNIT_SIZE * UNIT_SIZE
    with path.open("r+b") as file:
        file.seek(end - UNIT_SIZE)
        file.write(bytes(UNIT_SIZE))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def topic_gone(few: Few) -> None:
    """A topic's queues removed by hand."""
    shutil.rmtree(few.model.root / CONSUME_QUEUE / "T3")


@pytest.mark.parametrize("kill", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        nothing,
        older_extents,
        older_pair,
        of_another_store,
        dated_late,
        dated_early,
        queue_copied,
        queue_emptied,
        queue_shortened,
        topic_gone,
    ],
)
def test_whatever_became_of_the_files_nothing_is_lost_or_invented(
    tmp_path: Path, every_extent: None, change: Callable[[Few], None], kill: bool
) -> None:
    few = few_queues(tmp_path)
    ended(few, kill=kill)
    change(few)
    all_is_there(few)


def test_a_queue_that_was_deleted_and_made_anew_is_the_new_one(
    tmp_path: Path, every_extent: None
) -> None:
    few = few_queues(tmp_path)
    model = few.model
    model.save_extents()
    trio.run(model.store.space.queues.destroy, lambda queue: queue.topic == "T1")
    for key in [key for key in model.queues if key[0] == "T1"]:
        del model.queues[key]
    model.order = [one for one in model.order if one[0] != "T1"]
    for _ in range(3):
        model.put("T1", 0, Sent(b"anew", b""))
    model.store.dispatch()
    flush_everything(model.store, model.disk)
    model.crash()
    model.check_store()
    model.stop()
    model.check_store()
    model.disk.kill()


def test_extents_that_no_recovery_point_names_say_nothing(model: StoreModel) -> None:
    put(model, TOPICS * QUEUES)
    flush_everything(model.store, model.disk)
    trio.run(model.store.points.extents.save)
    date(model, max(changes(model)) + 1)
    # The point that would name them did not reach the disk any more.
    assert len(looked_into(model, model.crash)) == TOPICS * QUEUES
    model.check_store()


@pytest.mark.trio
async def test_a_round_names_the_extents_that_it_saved_even_without_news(
    model: StoreModel,
) -> None:
    put(model, TOPICS * QUEUES)
    flush_everything(model.store, model.disk)
    model.store.sync_thread.start()
    assert await model.store.flush_queues()
    model.store.sync_thread.stop()
    date(model, max(changes(model)) + 1)
    assert looked_into(model, model.crash) == set()
    model.check_store()


@pytest.mark.trio
async def test_the_look_for_queues_without_an_extent_is_made_in_slices(
    model: StoreModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = [0]

    def counted(queue: ConsumeQueue) -> bool:
        looked[-1] += 1
        return lacks(queue)

    async def others() -> None:
        while True:
            looked.append(0)
            await trio.lowlevel.checkpoint()

    monkeypatch.setattr("aerobee.store.queues.consume_queues.SLICE", 10)
    monkeypatch.setattr("aerobee.store.flush.extents.lacks", counted)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        assert not await model.store.points.extents.save()
        nursery.cancel_scope.cancel()
    assert sum(looked) == TOPICS * QUEUES
    assert max(looked) <= 20, "two slices: trio shuffles whose turn is first"
