import json
import shutil
from pathlib import Path
from random import Random

import pytest
import trio

from aerobee.store.files.disk import Disk
from aerobee.store.format.faults import CQ_MISSING, IN_THE_LOG
from aerobee.store.format.names import LAST_STOP
from aerobee.store.format.record import read
from aerobee.store.format.timer import TimerCheck
from aerobee.store.timers.timer_check import TimerCheckFile
from aerobee.store.tools.verify import verify
from tests.kit.store_model import LOG_BYTES, flush_everything, log_records
from tests.store.tools.stores import MESSAGES, filled, flip, left_behind, stopped


def test_a_clean_directory_is_sound(tmp_path: Path) -> None:
    found = verify(stopped(tmp_path / "store"))
    assert found.sound
    assert found.clean_stop
    assert found.messages == MESSAGES
    assert not found.notes


def test_what_a_kill_leaves_is_no_damage(tmp_path: Path) -> None:
    found = verify(left_behind(tmp_path / "store", tmp_path / "copy"))
    assert found.sound, found
    assert not found.clean_stop
    assert found.messages == MESSAGES + 20


def test_a_torn_last_body_of_a_kill_is_no_damage_and_no_end_of_looking(tmp_path: Path) -> None:
    copy = left_behind(tmp_path / "store", tmp_path / "copy")
    at, data = log_records(copy)[-1]
    flip(copy / "commitlog" / f"{at - at % LOG_BYTES:020d}", at % LOG_BYTES + 90)
    found = verify(copy)
    assert found.sound, found
    assert found.end_offset == at
    assert [one.kind for one in found.notes if one.physical_offset == at] == ["tail"], data


def test_files_that_a_running_broker_deletes_meanwhile_are_no_damage(tmp_path: Path) -> None:
    """Segments that were read, and the files of queues that lead into them."""
    store = filled(tmp_path / "store")
    flush_everything(store, Disk())
    first = store.root / "commitlog" / f"{0:020d}"
    queue = store.root / "consumequeue" / "T0" / "0"
    files = sorted(queue.iterdir())

    def delete(_done: int, _total: int) -> None:
        for path in (first, *files[:-1]):
            path.unlink(missing_ok=True)

    assert len(files) > 1
    found = verify(store.root, progress=delete)
    assert found.live
    assert found.sound, found
    store.let_go()


def test_a_live_directory_is_sound_and_the_report_says_that_it_lives(tmp_path: Path) -> None:
    store = filled(tmp_path / "store")
    found = verify(store.root)
    assert found.live
    assert found.sound, found
    assert found.notes[0].kind == "live"
    assert trio.run(store.close)


@pytest.mark.parametrize("part", ["body", "size", "physical_offset", "queue_offset", "topic"])
def test_every_flipped_bit_in_a_checked_part_is_found(tmp_path: Path, part: str) -> None:
    root = stopped(tmp_path / "store")
    random = Random(5)
    for _ in range(12):
        at, data = random.choice(log_records(root))
        body = 88 + len(read(data).body)
        begin, end = {
            "body": (88, body),
            "size": (0, 4),
            "physical_offset": (28, 36),
            "queue_offset": (20, 28),
            "topic": (body, body + 3),
        }[part]
        place = at + random.randrange(begin, end)
        path = root / "commitlog" / f"{place - place % LOG_BYTES:020d}"
        bit = random.randrange(8)
        flip(path, place % LOG_BYTES, bit)
        assert not verify(root).sound, (place, bit)
        flip(path, place % LOG_BYTES, bit)
    assert verify(root).sound


def test_a_lost_sector_a_lost_unit_and_a_lost_segment_are_found(tmp_path: Path) -> None:
    root = stopped(tmp_path / "store")
    segment = root / "commitlog" / f"{LOG_BYTES:020d}"
    whole = segment.read_bytes()
    segment.write_bytes(whole[:1024] + bytes(512) + whole[1536:])
    found = verify(root)
    assert sum(found.counts[kind] for kind in IN_THE_LOG) == 1
    assert found.lost_messages > 0
    segment.unlink()
    assert verify(root).counts["hole"] == 1
    segment.write_bytes(whole[:-8])
    assert verify(root).counts["size"] == 1
    segment.write_bytes(whole)
    queue = root / "consumequeue" / "T0" / "0" / f"{0:020d}"
    queue.write_bytes(queue.read_bytes()[:20] + bytes(20) + queue.read_bytes()[40:])
    assert verify(root).counts[CQ_MISSING] == 1


def test_a_timer_log_that_lacks_files_is_noted_with_what_a_start_does(tmp_path: Path) -> None:
    root = stopped(tmp_path / "store")
    (root / "timerlog").mkdir()
    for start in (0, 1_000):
        (root / "timerlog" / f"{start:020d}").write_bytes(bytes(1_000))
    check = TimerCheck(0, 0, 0, 0)._replace(flushed_position=1_520)
    TimerCheckFile(Disk(), root / "config" / "timercheck").write(check)
    assert verify(root).notes == []
    (root / "timerlog" / f"{1_000:020d}").unlink()
    found = verify(root)
    assert found.sound
    [note] = found.notes
    assert (note.kind, note.place) == ("timers", str(root / "timerlog"))
    assert "a start reads its timers from the log again" in note.text


@pytest.mark.parametrize("names", [[], ["consumerOffset.json"], ["../x", "consumerOffset.json"]])
def test_tables_that_were_saved_and_are_gone_are_found(tmp_path: Path, names: list[str]) -> None:
    """The mark is that of the topics, and has the names of the others."""
    root = stopped(tmp_path / "store")
    (root / "savedtopics").write_text("\n".join(names))
    gone = [finding.place for finding in verify(root).damage if finding.kind == "config"]
    assert [Path(place).name for place in gone] == ["topics.json", *names[-1:]]


def test_a_configuration_file_that_cannot_be_read_is_found(tmp_path: Path) -> None:
    root = stopped(tmp_path / "store")
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_bytes(b'{"topicConf')
    assert verify(root).counts["config"] == 1


def test_a_queue_that_a_kill_left_without_files_is_no_damage_but_a_lost_one_is(
    tmp_path: Path,
) -> None:
    store = filled(tmp_path / "store")
    shutil.copytree(store.root, tmp_path / "killed")
    assert trio.run(store.close)
    assert verify(tmp_path / "killed").sound
    shutil.rmtree(store.root / "consumequeue" / "T1" / "0")
    assert verify(store.root).counts[CQ_MISSING] == 1


def test_an_empty_topic_that_was_deleted_and_made_again_is_no_damage(tmp_path: Path) -> None:
    store = filled(tmp_path / "store")

    async def delete_and_stop() -> None:
        await store.space.queues.destroy_topics(frozenset({"T1"}))
        assert await store.close()

    trio.run(delete_and_stop)
    made = {"topicConfigTable": {"T1": {"topicName": "T1"}, "T0": {"topicName": "T0"}}}
    topics = store.root / "config" / "topics.json"
    topics.parent.mkdir(exist_ok=True)
    topics.write_text(json.dumps(made))
    assert verify(store.root).sound
    (store.root / LAST_STOP).unlink()
    assert verify(store.root).counts[CQ_MISSING]


def test_what_a_broker_that_runs_has_deleted_is_no_damage_but_a_lost_queue_is(
    tmp_path: Path,
) -> None:
    """The topic was made again: its last record of the queues tells both from one another."""
    store = filled(tmp_path / "store")

    async def delete() -> None:
        flush_everything(store, Disk())
        await store.space.queues.destroy_topics(frozenset({"T1"}))
        flush_everything(store, Disk())

    trio.run(delete)
    (store.root / "config").mkdir(exist_ok=True)
    made = {"topicConfigTable": {"T1": {"topicName": "T1"}, "T0": {"topicName": "T0"}}}
    (store.root / "config" / "topics.json").write_text(json.dumps(made))
    shutil.copytree(store.root, tmp_path / "killed")
    found = verify(store.root)
    assert found.live
    assert found.sound, found
    assert trio.run(store.close)
    assert verify(tmp_path / "killed").sound
    shutil.rmtree(tmp_path / "killed" / "consumequeue" / "T0" / "0")
    assert verify(tmp_path / "killed").counts[CQ_MISSING]
