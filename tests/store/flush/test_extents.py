"""A start looks into the queues whose files changed, and into no others."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
import trio

from aerobee.store.flush.extents import FEW, SHARE
from aerobee.store.format.names import CONSUME_QUEUE, LOCK, QUEUE_EXTENTS, segment_name
from aerobee.store.format.unit import UNIT_SIZE
from tests.kit.faulty_disk import FaultyDisk
from tests.kit.store_model import Sent, StoreModel, flush_everything, open_store

TOPICS, QUEUES = 50, 4
MORE = 10
"""Queues that get another message behind the save."""


def path_of(model: StoreModel, topic: str, queue_id: int) -> Path:
    return model.root / CONSUME_QUEUE / topic / str(queue_id) / segment_name(0)


def put(model: StoreModel, count: int) -> None:
    for number in range(count):
        model.put(f"T{number % TOPICS}", number // TOPICS % QUEUES, Sent(b"body %d" % number, b""))
    model.store.dispatch()


def save(model: StoreModel) -> None:
    """As behind a thorough round, some time after the newest change."""
    flush_everything(model.store, model.disk)
    trio.run(model.store.points.extents.save)
    date(model, max(changes(model)) + 1)


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
    save(model)
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
    save(model)
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
