"""The end of the log as crashes leave it: torn at a byte, or with some sectors and without others.

R3 tears one of the last three records at each byte, with zeros, ones or the bytes of an earlier
life behind; R4 lets each sector of what was not synced survive or not. What is left is whole and in
order, what was synced is in it, and a second recovery finds nothing to do.
"""

from __future__ import annotations

import shutil
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from aerobee.store.format.record import Record, read
from tests.kit.campaign import Campaign
from tests.kit.faulty_disk import FaultyDisk
from tests.kit.store_model import (
    Sent,
    StoreModel,
    check_directory,
    flush_everything,
    log_records,
    open_store,
)

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

    from tests.kit.campaign import Run

FILLS = ("zeros", "ones", "an earlier life")
TORN_RECORDS = 3
SECTOR_BYTES = 512
UNSYNCED_BYTES = 64 << 10
SEGMENT_BYTES = 48 << 10
"""So that what is not synced is in two or three segments."""
PROPERTIES = (
    b"",
    b"a\x01b\x00",
    b"\xff",
    b"TAGS\x01A\x02",
    b"KEYS\x01k1 k2\x02TAGS\x01B",
    b"UNIQ_KEY\x017F00000001\x02",
)


def message(random: Random, most_bytes: int) -> Sent:
    """Any body up to that size, any properties."""
    return Sent(random.randbytes(random.randrange(most_bytes)), random.choice(PROPERTIES))


# ── R3 ──


class Killed(NamedTuple):
    """A directory that a kill has left, its one segment, and the records in it."""

    root: Path
    segment: bytes
    old: bytes
    """The same with other bodies: what lay there in an earlier life."""
    records: list[tuple[int, bytes]]

    @property
    def places(self) -> range:
        """The bytes at which it may be torn."""
        at, data = self.records[-1]
        return range(self.records[-TORN_RECORDS][0], at + len(data) + 1)


def killed(root: Path, random: Random) -> Killed:
    """Some messages, never synced; one at least in front of those that will be torn.

    A crash leaves no ones in place of the first: such a log is a stranger's, and refused.
    """
    model = StoreModel(root)
    for number in range(random.randint(TORN_RECORDS + 1, 8)):
        model.put("T", number % 2, message(random, 200))
        model.store.dispatch()
        if random.random() < 0.3:
            model.store.queues.write_all(sync=False)
    model.disk.kill()
    [path] = (root / "commitlog").iterdir()
    segment = path.read_bytes()
    records = log_records(root)
    old = bytearray(segment)
    for at, data in records:
        for place in range(at + 88, at + 88 + len(read(data).body)):
            old[place] ^= 0x20
    return Killed(root, segment, bytes(old), records)


def torn(left: Killed, cut: int, fill: str) -> bytes:
    """The segment, whole up to `cut`."""
    end = left.places.stop - 1
    if fill == "an earlier life":
        return left.segment[:cut] + left.old[cut:]
    byte = b"\0" if fill == "zeros" else b"\xff"
    return left.segment[:cut] + byte * (end - cut) + left.segment[end:]


def recovered(root: Path) -> list[Record]:
    """What a start leaves; a second one finds nothing to do, and changes nothing."""
    disk = FaultyDisk(root)
    store, recovery = open_store(root, disk)
    check_directory(root)
    records = log_records(root)
    assert store.max_offset("T", 0) + store.max_offset("T", 1) == len(records)
    after = {path: path.read_bytes() for path in root.rglob("0*") if path.is_file()}
    disk.kill()
    _, again = open_store(root, disk)
    assert (again.end_offset, again.cut_bytes) == (recovery.end_offset, 0)
    assert after == {path: path.read_bytes() for path in root.rglob("0*") if path.is_file()}
    disk.kill()
    return [read(data) for _, data in records]


def tears(run: Run) -> None:
    """One tear per cycle, at the next byte; a new directory when all of the last are done."""
    scratch = run.directory / "scratch"
    while run.more:
        left = killed(run.directory / f"{run.number}", run.cycle().rng)
        for cut in left.places:
            for fill in FILLS:
                if run.more:
                    one_tear(left, cut, fill, scratch)
                    run.counts[fill] += 1
                    run.done()
        shutil.rmtree(left.root)
        run.counts["directories"] += 1


def one_tear(left: Killed, cut: int, fill: str, scratch: Path) -> None:
    """Tear, start, compare."""
    content = torn(left, cut, fill)
    shutil.copytree(left.root, scratch)
    [path] = (scratch / "commitlog").iterdir()
    path.write_bytes(content)
    found = recovered(scratch)
    shutil.rmtree(scratch)
    wanted = [read(data) for _, data in left.records]
    # Behind the torn one a record without a body looks the same in an earlier life.
    untorn = takewhile(lambda one: content[one[0] : one[0] + len(one[1])] == one[1], left.records)
    whole = len(list(untorn))
    assert found[:whole] == wanted[:whole], f"byte {cut}, {fill}"
    # Behind the tear an earlier life may line up, where its bodies are those that were sent.
    assert fill == "an earlier life" or len(found) == whole, f"byte {cut}, {fill}"
    for record, sent in zip(found, wanted, strict=False):
        assert record.body == sent.body, f"byte {cut}, {fill}"


# ── R4 ──


def lost_sectors(run: Run) -> None:
    """A power cut per cycle, 64 KiB behind the last sync."""
    for cycle in run.cycles():
        random = cycle.rng
        folder = run.directory / f"{cycle.number}"
        model = StoreModel(folder / "d", mapped_file_size_commit_log_bytes=SEGMENT_BYTES)
        model.disk.granule = SECTOR_BYTES
        fill_log(model, random, random.randrange(SEGMENT_BYTES))
        flush_everything(model.store, model.disk)
        synced = model.store.commit_log.flushed
        fill_log(model, random, UNSYNCED_BYTES)
        after = model.disk.power_cut(folder / "after", random, keep=random.random())
        again = StoreModel(after, mapped_file_size_commit_log_bytes=SEGMENT_BYTES)
        end = again.recovery.end_offset
        assert end >= synced, f"{synced} bytes were synced, {end} are left"
        model.forget_behind(end)
        again.clock, again.queues, again.order = model.clock, model.queues, model.order
        check_directory(after)
        again.check_store()
        fill_log(again, random, 2_000)
        again.crash()
        again.check_store()
        again.disk.kill()
        shutil.rmtree(folder)
        run.counts["KiB kept of what was not synced"] += (end - synced) >> 10


def fill_log(model: StoreModel, random: Random, size: int) -> None:
    """Messages of about so many bytes; some queue files are written, never synced."""
    end = model.store.commit_log.max_offset + size
    while model.store.commit_log.max_offset < end:
        queue_id = random.randrange(2)
        if random.random() < 0.1:
            model.put_batch("T", queue_id, [message(random, 300) for _ in range(3)])
        else:
            model.put("T", queue_id, message(random, random.choice((100, 1_500, 6_000))))
        model.store.dispatch()
        if random.random() < 0.1:
            model.store.queues.write_all(sync=False)


R3 = Campaign(
    key="R3",
    title="the log torn at every byte of the last three records",
    unit="tears",
    # In every test run `test_torn_tail` goes through all of them in one directory.
    t1=60,
    t2=20_000,
    run=tears,
)
R4 = Campaign(
    key="R4",
    title="any sectors of the last 64 KiB survive a power cut",
    unit="power cuts",
    t1=40,
    t2=10_000,
    run=lost_sectors,
)
