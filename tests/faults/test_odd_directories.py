"""Files that are missing, damaged or somebody else's: what each kind of start makes of it.

Where RocketMQ cuts, forgets or hangs, the start is refused instead, with file, place and remedy,
and with every byte left as it was; or what is missing is built again.
Source: store format §5.6.
"""

import shutil
from pathlib import Path

import pytest
import trio

from aerobee.store.errors import StoreDamaged, StoreRefused, StoreUnusable
from aerobee.store.files.disk import Disk
from aerobee.store.format.faults import CQ_MISSING
from aerobee.store.message_store import MessageStore
from aerobee.store.tools.dump import DumpFilter, dump
from aerobee.store.tools.export import export
from aerobee.store.tools.findings import Findings
from aerobee.store.tools.repair import plan, repair
from aerobee.store.tools.verify import verify
from tests.faults.test_start_refusals import tree
from tests.kit.store_model import (
    LOG_BYTES,
    ManualClock,
    Sent,
    StoreModel,
    check_directory,
    flush_everything,
    log_records,
    open_store,
    read_queue,
    small_config,
)

pytestmark = pytest.mark.faults

MESSAGES = 24
QUEUES = 3
BODY_AT = 88


def sent(number: int) -> Sent:
    return Sent(b"message %d " % number * 60, b"TAGS\x01A\x02KEYS\x01k%d\x02" % number)


def model(root: Path) -> StoreModel:
    filled = StoreModel(root)
    for number in range(MESSAGES):
        filled.put("T", number % QUEUES, sent(number))
        filled.store.dispatch()
    return filled


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """Several segments, queues and index files, stopped cleanly."""
    assert trio.run(model(tmp_path / "d").store.close)
    return tmp_path / "d"


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The same, killed; the checkpoint vouches for all but the last few messages."""
    filled = model(tmp_path / "d")
    flush_everything(filled.store, filled.disk)
    filled.clock.ms += 60_000
    for number in range(MESSAGES, MESSAGES + 2):
        filled.put("T", number % QUEUES, sent(number))
        filled.store.dispatch()
    filled.disk.kill()
    return tmp_path / "d"


def refusal(root: Path, kind: type[StoreRefused] = StoreDamaged) -> str:
    """Two starts, both refused in the same words; not a byte has changed."""
    (root / "lock").write_bytes(b"lock")
    before = tree(root)
    texts = set()
    for _ in range(2):
        store = MessageStore(small_config(root), disk=Disk(), clock=ManualClock())
        with pytest.raises(kind) as refused:
            store.load()
        texts.add(str(refused.value))
        assert tree(root) == before
    [text] = texts
    return text


def served(root: Path, count: int = MESSAGES) -> None:
    """A start that finds every message, and leaves a directory without damage."""
    store, recovery = open_store(root, Disk())
    for queue_id in range(QUEUES):
        wanted = [sent(number) for number in range(queue_id, count, QUEUES)]
        assert read_queue(store, "T", queue_id)[-len(wanted) :] == wanted
    assert not recovery.cut_bytes
    assert trio.run(store.close)
    check_directory(root)
    assert verify(root).sound


def segments(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def spoil(root: Path, number: int) -> tuple[Path, int]:
    """Turn a bit of the body of that record over; its segment, its physical offset."""
    at, _ = log_records(root)[number]
    path = segments(root)[at // LOG_BYTES]
    data = bytearray(path.read_bytes())
    data[at % LOG_BYTES + BODY_AT] ^= 1
    path.write_bytes(data)
    return path, at


# ── Built again ──


@pytest.mark.parametrize("gone", ["consumequeue", "consumequeue/T", "index"])
def test_queues_and_index_that_are_gone_after_a_stop_are_built_again(
    stopped: Path, gone: str
) -> None:
    shutil.rmtree(stopped / gone)
    served(stopped)


def test_a_queue_file_behind_a_link_is_built_again(stopped: Path) -> None:
    """Nothing opens it: who reads its messages would be held there for ever."""
    file = stopped / "consumequeue" / "T" / "1" / f"{0:020}"
    moved = file.rename(stopped.parent / "elsewhere")
    file.symlink_to(moved)
    served(stopped)
    assert not file.is_symlink()
    assert moved.exists()


@pytest.mark.parametrize("name", ["²", "4294967296", "007", "-1"])
def test_a_directory_that_is_no_queues_does_no_harm(stopped: Path, name: str) -> None:
    (stopped / "consumequeue" / "T" / name).mkdir()
    served(stopped)


@pytest.mark.parametrize("gone", ["consumequeue", "consumequeue/T/1", "index"])
def test_queues_and_index_that_are_gone_after_a_kill_are_built_again(
    killed: Path, gone: str
) -> None:
    if (killed / gone).exists():
        shutil.rmtree(killed / gone)
    served(killed, MESSAGES + 2)


def test_one_queue_that_is_gone_after_a_stop_is_found_and_repaired(stopped: Path) -> None:
    """A clean start does not read the log: nobody says that this queue should be there."""
    shutil.rmtree(stopped / "consumequeue" / "T" / "1")
    assert verify(stopped).counts[CQ_MISSING] == 1
    wanted = plan(stopped)
    assert wanted.cut_at is None
    repair(stopped, wanted, 1_700_000_000_000)
    served(stopped)


@pytest.mark.parametrize("content", [None, b"", b"short", bytes(4_096)])
def test_a_checkpoint_that_is_missing_or_short_costs_time_and_nothing_else(
    killed: Path, content: bytes | None
) -> None:
    (killed / "checkpoint").unlink()
    if content is not None:
        (killed / "checkpoint").write_bytes(content)
    served(killed, MESSAGES + 2)


def test_the_oldest_segments_may_be_moved_away(stopped: Path) -> None:
    first, second, *_ = segments(stopped)
    gone = [at for at, _ in log_records(stopped) if at < 2 * LOG_BYTES]
    first.unlink()
    second.unlink()
    store, _ = open_store(stopped, Disk())
    for queue_id in range(QUEUES):
        lost = len([number for number in range(len(gone)) if number % QUEUES == queue_id])
        assert store.min_offset("T", queue_id) == lost
        wanted = [sent(number) for number in range(queue_id, MESSAGES, QUEUES)][lost:]
        assert read_queue(store, "T", queue_id) == wanted
    assert trio.run(store.close)


def test_an_empty_segment_at_the_end_goes_without_a_word(stopped: Path) -> None:
    (stopped / "commitlog" / f"{len(segments(stopped)) * LOG_BYTES:020}").write_bytes(
        bytes(LOG_BYTES)
    )
    served(stopped)


# ── Refused, for what was on disk for certain would vanish ──


@pytest.mark.parametrize("number", [-1, -2, -8])
def test_after_a_stop_a_damaged_record_refuses_the_start(stopped: Path, number: int) -> None:
    """The first eight bytes of the walk's beginning, and the last message of all."""
    path, at = spoil(stopped, number)
    if number < -1:
        shutil.rmtree(stopped / "consumequeue")
    text = refusal(stopped)
    assert str(path) in text
    assert f"physical offset {at} " in text
    assert "restore the file from a copy" in text


def test_after_a_kill_a_damaged_record_that_was_safe_refuses_the_start(killed: Path) -> None:
    (killed / "consumequeue").rename(killed / "elsewhere")
    path, at = spoil(killed, 3)
    text = refusal(killed)
    assert str(path) in text
    assert f"physical offset {at} " in text
    assert "`aerobee store export`" in text
    assert "`aerobee store repair`" in text


def test_the_remedies_of_the_refusal_save_what_is_behind_the_damage(
    killed: Path, tmp_path: Path
) -> None:
    (killed / "consumequeue").rename(killed.parent / "elsewhere")
    every = len(log_records(killed))
    _, at = spoil(killed, 3)
    refusal(killed)
    found = export(killed, tmp_path / "saved", DumpFilter(), unpack=lambda body, _flag: body)
    assert found.messages == every - 1
    wanted = plan(killed)
    assert (wanted.cut_at, wanted.cut_messages) == (at, every - 3)
    kept = repair(killed, wanted, 1_700_000_000_000)
    store, recovery = open_store(killed, Disk())
    assert recovery.end_offset == at
    assert trio.run(store.close)
    assert sum(1 for _ in dump(kept, DumpFilter(behind=at), Findings())) == every - 3


def test_who_gives_up_what_is_behind_the_damage_may_start(killed: Path) -> None:
    """By hand, without a checkpoint: then nothing is known of what was on disk."""
    (killed / "consumequeue").rename(killed.parent / "elsewhere")
    _, at = spoil(killed, 3)
    refusal(killed)
    (killed / "checkpoint").unlink()
    store, recovery = open_store(killed, Disk())
    assert recovery.end_offset == at
    assert trio.run(store.close)
    assert verify(killed).sound


def test_damage_in_front_of_where_a_start_looks_is_the_verifiers(stopped: Path) -> None:
    path, at = spoil(stopped, 0)
    store, _ = open_store(stopped, Disk())
    assert trio.run(store.close)
    [damage] = verify(stopped).damage
    assert (damage.place, damage.physical_offset) == (str(path), at)


def test_a_missing_segment_is_named_with_its_neighbours(stopped: Path) -> None:
    first, middle, last, *_ = segments(stopped)
    middle.rename(stopped / "elsewhere")
    text = refusal(stopped)
    assert all(name in text for name in (str(middle), first.name, last.name))
    (stopped / "elsewhere").rename(middle)
    served(stopped)


def test_after_a_stop_the_only_segment_must_not_have_become_shorter(tmp_path: Path) -> None:
    filled = StoreModel(tmp_path / "d")
    for number in range(3):
        filled.put("T", 0, sent(number))
    assert trio.run(filled.store.close)
    [path] = segments(tmp_path / "d")
    end, data = log_records(tmp_path / "d")[0]
    whole = path.read_bytes()
    path.write_bytes(whole[: len(data) + 20])
    text = refusal(tmp_path / "d")
    assert str(path) in text
    assert f"physical offset {end + len(data)} " in text
    assert "restore the file from a copy" in text
    # Who gives up the rest may start, as the text says.
    (tmp_path / "d" / "checkpoint").unlink()
    (tmp_path / "d" / "abort").touch()
    store, recovery = open_store(tmp_path / "d", Disk())
    assert recovery.end_offset == len(data)
    store.let_go()


def test_after_a_stop_the_last_segment_must_not_be_missing(stopped: Path) -> None:
    *_, last = segments(stopped)
    last.rename(stopped / "elsewhere")
    text = refusal(stopped)
    assert str(last) in text
    assert "consume queues know of messages up to the one at" in text
    (stopped / "elsewhere").rename(last)
    served(stopped)


@pytest.mark.parametrize("also", [None, "consumequeue", "checkpoint"])
def test_a_log_that_is_gone_is_not_an_empty_one(stopped: Path, also: str | None) -> None:
    """Whoever is left, queues or checkpoint, speaks of messages."""
    (stopped / "commitlog").rename(stopped.parent / "log")
    if also:
        (stopped / also).rename(stopped.parent / also)
    text = refusal(stopped)
    assert str(stopped / "commitlog") in text
    assert "restore them from a copy, or move the data directory away" in text
    (stopped.parent / "log").rename(stopped / "commitlog")
    served(stopped)


def test_a_log_that_is_gone_after_a_kill_is_not_an_empty_one(killed: Path) -> None:
    (killed / "commitlog").rename(killed.parent / "log")
    assert "`checkpoint` knows" in refusal(killed)
    (killed.parent / "log").rename(killed / "commitlog")
    served(killed, MESSAGES + 2)


def test_a_power_cut_may_take_the_only_segment_that_was_never_synced(tmp_path: Path) -> None:
    """Queues may be on disk before their messages are; nobody vouches for these."""
    filled = model(tmp_path / "d")
    filled.store.queues.write_all(sync=True)
    filled.disk.kill()
    shutil.rmtree(tmp_path / "d" / "commitlog")
    store, recovery = open_store(tmp_path / "d", Disk())
    assert not recovery.clean
    assert recovery.end_offset == 0
    store.let_go()


def test_a_directory_of_configuration_alone_is_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "d" / "config").mkdir(parents=True)
    (tmp_path / "d" / "config" / "topics.json").write_bytes(b'{"topicConfigTable":{}}')
    store, recovery = open_store(tmp_path / "d", Disk())
    assert recovery.clean
    assert trio.run(store.close)
    # And again, with all that a stop without a message leaves.
    store, _ = open_store(tmp_path / "d", Disk())
    assert trio.run(store.close)


@pytest.mark.parametrize("crashed", [False, True])
def test_a_log_that_is_no_log_is_not_cut(tmp_path: Path, crashed: bool) -> None:
    folder = tmp_path / "d" / "commitlog"
    folder.mkdir(parents=True)
    (folder / f"{0:020}").write_bytes(b"somebody's photographs".ljust(LOG_BYTES, b"\x5a"))
    if crashed:
        (tmp_path / "d" / "abort").touch()
    text = refusal(tmp_path / "d")
    assert f"{0:020}" in text
    assert "move" in text


@pytest.mark.parametrize("left", [b"", b"\xda\xa3\x20\xa7" * 40, b"\0\0\1\0\xda\xa3\x20\xa7 half"])
def test_the_torn_first_record_of_a_new_store_is_cut(tmp_path: Path, left: bytes) -> None:
    if left.startswith(b"\xda"):
        left = b"\0\0\0\xff" + left
    folder = tmp_path / "d" / "commitlog"
    folder.mkdir(parents=True)
    (folder / f"{0:020}").write_bytes(left.ljust(LOG_BYTES, b"\0"))
    (tmp_path / "d" / "abort").touch()
    store, recovery = open_store(tmp_path / "d", Disk())
    assert recovery.end_offset == 0
    store.let_go()


# ── Names ──


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index", "config"])
def test_a_link_that_leads_nowhere_is_not_taken_for_an_empty_directory(
    tmp_path: Path, name: str
) -> None:
    root = tmp_path / "d"
    root.mkdir()
    (root / name).symlink_to(tmp_path / "unmounted" / name)
    assert str(root / name) in refusal(root, StoreUnusable)
    (tmp_path / "unmounted" / name).mkdir(parents=True)
    store, _ = open_store(root, Disk())
    assert trio.run(store.close)


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index", "config"])
def test_a_file_in_the_place_of_a_directory_is_named(stopped: Path, name: str) -> None:
    if (stopped / name).exists():
        (stopped / name).rename(stopped.parent / "elsewhere")
    (stopped / name).write_bytes(b"?")
    assert str(stopped / name) in refusal(stopped, StoreUnusable)


def test_a_directory_in_the_place_of_a_segment_is_called_one(stopped: Path) -> None:
    *_, last = segments(stopped)
    last.rename(stopped / "elsewhere")
    last.mkdir()
    assert f"{last} is a directory" in refusal(stopped)
