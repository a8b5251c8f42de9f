import shutil
from pathlib import Path
from random import Random

import trio

from aerobee.store.files.disk import Disk
from aerobee.store.format import properties
from aerobee.store.format.index import IndexShape, KeyHasher
from aerobee.store.index.index_file import IndexBuilder, IndexFile
from aerobee.store.tools.directory import opened
from aerobee.store.tools.findings import Findings
from aerobee.store.tools.index import IndexCheck, Message
from aerobee.store.tools.passage import Passage
from aerobee.store.tools.repair import plan, repair
from aerobee.store.tools.verify import Verification, verify
from tests.kit.store_model import INDEX_ENTRIES, INDEX_SLOTS, draft, open_store
from tests.store.tools.stores import MESSAGES, filled, flip, left_behind, stopped

SHAPE = IndexShape(INDEX_SLOTS, INDEX_ENTRIES)


def looked_at(root: Path) -> Verification:
    return verify(root)


def index_files(root: Path) -> list[Path]:
    return sorted((root / "index").iterdir())


def test_every_entry_of_a_sound_index_leads_to_its_message(tmp_path: Path) -> None:
    found = looked_at(stopped(tmp_path / "store"))
    assert found.sound, found
    assert (found.index_files, found.index_entries) == (5, 2 * MESSAGES)
    assert not found.notes


def test_every_flipped_bit_of_an_index_file_is_found(tmp_path: Path) -> None:
    root = stopped(tmp_path / "store")
    random = Random(11)
    first, *_, last = index_files(root)
    # A time of the first entry counts from a file that is gone: it cannot be told.
    untold = range(SHAPE.entry_position(1) + 12, SHAPE.entry_position(1) + 16)
    for path in (first, last):
        # All of the head, and a third of the slots and entries: R7 flips them by the thousand.
        for place in [*range(SHAPE.slot_position(0)), *range(random.randrange(3), SHAPE.size, 3)]:
            if path == first and place in untold:
                continue
            bit = random.randrange(8)
            flip(path, place, bit)
            found = looked_at(root)
            flip(path, place, bit)
            assert found.counts["index"], (path.name, place, bit)
            assert str(path) in {one.place for one in found.damage}
    assert looked_at(root).sound


def test_an_index_of_other_messages_is_found(tmp_path: Path) -> None:
    root = stopped(tmp_path / "store")
    other = stopped(tmp_path / "other", count=40)
    shutil.rmtree(root / "index")
    shutil.copytree(other / "index", root / "index")
    for segment in (root / "commitlog").iterdir():
        segment.write_bytes(segment.read_bytes().replace(b"k7\x02", b"K7\x02"))
    found = looked_at(root)
    assert {one.kind for one in found.damage} == {"index"}
    assert "no key of their message" in found.damage[0].text


def test_keys_that_java_puts_beside_ours_are_known(tmp_path: Path) -> None:
    """The tags, and a message whose key was put again after a crash."""
    store, _ = open_store(tmp_path / "store", Disk())
    encoded = properties.encode({"KEYS": "a b", "TAGS": "t"}).encode()
    assert store.put(draft("T", 0, b"x", encoded)).count == 1
    store.dispatch()
    (request,) = store.index.service.pending
    request.properties = properties.encode({"KEYS": "a b T#t a"}).encode()
    assert trio.run(store.close)
    found = looked_at(store.root)
    assert found.sound, found
    assert found.index_entries == 4


def test_files_that_a_start_would_not_believe_are_no_damage(tmp_path: Path) -> None:
    copy = left_behind(tmp_path / "store", tmp_path / "copy")
    (copy / "index").mkdir(exist_ok=True)
    (copy / "index" / "20231114221420000").write_bytes(b"\xff" * SHAPE.size)
    (copy / "index" / "README").write_bytes(b"?")
    found = looked_at(copy)
    assert found.sound, found
    assert {"pending", "foreign"} <= {one.kind for one in found.notes}


def test_files_of_java_that_overlap_are_no_damage_and_a_start_builds_them_again(
    tmp_path: Path,
) -> None:
    """What it makes of a file with a head of zeros, in a recovery that drops the one before."""
    root = tmp_path / "store"
    store = filled(root)
    keys: list[tuple[int, int, int]] = []
    for at, header in store.commit_log.walk(0):
        KeyHasher().collect(keys, header.topic, header.properties, at, header.store_timestamp)
    assert trio.run(store.close)
    kept, later = index_files(root)[:3], index_files(root)[3:]
    third = IndexFile(Disk(), kept[-1], SHAPE)
    third.read_head()
    file = IndexFile(Disk(), later[0], SHAPE)
    for path in later:
        path.unlink()
    builder = IndexBuilder.create(file)
    assert builder.add([key for key in keys if key[1] >= third.head.begin_physical_offset])
    builder.write()
    builder.close()
    found = looked_at(root)
    assert found.sound, found
    assert [(one.kind, one.place) for one in found.notes] == [("pending", str(file.path))]
    store, _ = open_store(root, Disk())
    assert [file.path for file in store.index.service.files.files] == kept
    assert trio.run(store.close)
    found = looked_at(root)
    assert found.sound, found
    assert not found.notes
    assert found.index_entries == 2 * MESSAGES


def test_a_damaged_index_is_built_again_by_a_repair(tmp_path: Path) -> None:
    root = stopped(tmp_path / "store")
    flip(index_files(root)[2], SHAPE.entry_position(4))
    wanted = plan(root)
    assert (wanted.needed, wanted.index, wanted.queues, wanted.cut_at) == (True, True, False, None)
    kept = repair(root, wanted, 1_700_000_000_000)
    assert len(list((kept / "index").iterdir())) == 5
    assert not (root / "index").exists()
    store, _ = open_store(root, Disk())
    assert trio.run(store.close)
    found = looked_at(root)
    assert found.sound, found
    assert found.index_entries == 2 * MESSAGES


def test_an_index_of_a_running_broker_is_no_damage(tmp_path: Path) -> None:
    store = filled(tmp_path / "store")

    async def some() -> None:
        while await store.index.service.step():
            pass

    trio.run(some)
    found = looked_at(store.root)
    assert found.sound, found
    assert found.live
    assert trio.run(store.close)


def test_messages_that_a_running_broker_has_just_deleted_are_no_damage(tmp_path: Path) -> None:
    """The log was read through with them, before the index is."""
    root = stopped(tmp_path / "store")
    findings = Findings()
    with opened(root, findings) as directory:
        directory.live = True
        passage = Passage(directory, findings)
        for _ in passage:
            pass
        gone, *_ = directory.log.queue.files
        bounds = {"begin": passage.begin, "end": passage.end}
        check = IndexCheck(directory, findings, **bounds, unreadable=lambda _: False)
        gone.path.unlink()
        assert check.message(gone.start) is None
        assert isinstance(check.message(gone.end), Message)
        check.close()
