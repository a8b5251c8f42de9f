"""The record of a group: its master, since which epoch, and which members have all of the log.

Pure. The decider keeps one record for each group and changes it only by compare-and-swap, so every
change is made of the record that was read. Laws:

- the epoch grows by one with each change of the master, and with nothing else;
- the set's epoch grows by one with each change of the record;
- the master is in the sync set, and the next one comes out of it: a member of the set has all that
  was acknowledged. Only a person may say otherwise, and then the record says so.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

RECORD_BYTES_MAX: Final = 16_384
MEMBERS_MAX: Final = 64
EPOCH_MAX: Final = (1 << 31) - 1
"""An epoch is an i32 where brokers replicate."""
MEMBER_MAX: Final = (1 << 63) - 1


class RecordIllegal(ValueError):
    """The decider has a record that no member of the group can have written."""


class Record(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The decider's record of a group."""

    epoch: int
    """From 1 on."""
    master: int
    """The id of the member that holds the lease, or held it last."""
    sync_set: tuple[int, ...]
    """Ids of members, ascending."""
    set_epoch: int
    lease: str = ""
    """The lease of this master; empty: it gave the lease back."""
    unclean_epoch: int = 0
    """The last epoch whose master was not in the sync set; 0: there was none."""
    address: str = ""
    """Where its master is: its listenPort, as `host:port`."""
    ha_address: str = ""
    """Where its master sends the log: its haListenPort."""
    heir: int = 0
    """The member that is to be the next master, while no lease is held; 0: any of the sync set."""

    def __post_init__(self) -> None:
        """Check the laws that one record can break. Raises: RecordIllegal."""
        members = self.sync_set
        if not 0 < self.epoch <= EPOCH_MAX:
            raise RecordIllegal(f"its epoch is {self.epoch}")
        if self.set_epoch < self.epoch:
            raise RecordIllegal(f"setEpoch {self.set_epoch} is below epoch {self.epoch}")
        if not 0 <= self.unclean_epoch <= self.epoch:
            raise RecordIllegal(f"uncleanEpoch {self.unclean_epoch} is not one of its epochs")
        if not 0 < len(members) <= MEMBERS_MAX:
            raise RecordIllegal(f"its sync set has {len(members)} members")
        if members[0] <= 0 or members[-1] > MEMBER_MAX:
            raise RecordIllegal("a member of its sync set has an id that is not positive")
        if any(before >= member for before, member in pairwise(members)):
            raise RecordIllegal("its sync set is not in order")
        if self.master not in members:
            raise RecordIllegal(f"its master {self.master} is not in its sync set")


def first_record(master: int, lease: str) -> Record:
    """The record of a group that has none: its master alone."""
    return Record(epoch=1, master=master, sync_set=(master,), set_epoch=1, lease=lease)


def elected(record: Record, master: int, lease: str, least: int) -> Record:
    """A member of the sync set is the next master.

    Every member of the set has all that was acknowledged, so the set stays. A master whose lease
    ran out is not waited for, and neither is one that gave it back as it stops, to no heir; unless
    fewer than `least` members would remain: too few acknowledge nothing anyway, and one more may be
    the master after this one.
    """
    assert master in record.sync_set, (master, record)
    members = record.sync_set
    follows = not record.lease and record.heir
    if not follows and record.master != master and len(members) > least:
        members = tuple(member for member in members if member != record.master)
    return _next(record, master, members, lease, record.unclean_epoch)


def elected_unclean(record: Record | None, master: int, lease: str, known: int = 0) -> Record:
    """A person has made any member the master: what only the sync set had is lost.

    Its epoch is above `known` as well, which the member has seen, where the decider has lost it.
    """
    epoch = max(known, 0 if record is None else record.epoch) + 1
    set_epoch = max(epoch, 0 if record is None else record.set_epoch + 1)
    return Record(
        epoch=epoch,
        master=master,
        sync_set=(master,),
        set_epoch=set_epoch,
        lease=lease,
        unclean_epoch=epoch,
    )


def _next(
    record: Record, master: int, members: tuple[int, ...], lease: str, unclean_epoch: int
) -> Record:
    return Record(
        epoch=record.epoch + 1,
        master=master,
        sync_set=members,
        set_epoch=record.set_epoch + 1,
        lease=lease,
        unclean_epoch=unclean_epoch,
    )


def with_set(record: Record, members: Iterable[int]) -> Record:
    """The master has changed the sync set. Raises: RecordIllegal without the master in it."""
    return msgspec.structs.replace(
        record, sync_set=tuple(sorted(set(members))), set_epoch=record.set_epoch + 1
    )


def given_back(record: Record, heir: int = 0) -> Record:
    """The master acknowledges nothing more: the next one need not wait for its lease to end."""
    return msgspec.structs.replace(record, lease="", heir=heir, set_epoch=record.set_epoch + 1)


def reached_at(record: Record, address: str, ha_address: str) -> Record:
    """The record with where its master is."""
    return msgspec.structs.replace(record, address=address, ha_address=ha_address)


def encode_record(record: Record) -> bytes:
    """A record as the decider keeps it: JSON."""
    return msgspec.json.encode(record)


def decode_record(data: bytes) -> Record:
    """The value that the decider has, taken for a record. Raises: RecordIllegal saying what is
    wrong.
    """
    if len(data) > RECORD_BYTES_MAX:
        raise RecordIllegal(f"it has {len(data)} bytes, {RECORD_BYTES_MAX} are possible")
    try:
        return msgspec.json.decode(data, type=Record)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordIllegal(str(error)) from error
