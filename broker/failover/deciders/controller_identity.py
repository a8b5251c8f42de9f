"""The number of a member, which RocketMQ's controller gives it once: the file `brokerIdentity`.

Until the controller has confirmed the number it stands in `brokerIdentity-temp`, with a code that
makes the request the same after a crash. Both are as Java writes them, so the number stays with the
directory. It also says whose the epochs in the directory are: those of etcd and of a controller are
numbers of the same kind, and mean nothing to each other. Source: BrokerMetadata,
TempBrokerMetadata.
"""

from __future__ import annotations

import shlex
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from aerobee.broker.failover.decider import DeciderMisused, DeciderSilent
from aerobee.remoting.errors import HeaderError
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.controller import (
    ApplyBrokerId,
    GetNextBrokerId,
    GetNextBrokerIdResponse,
    RegisterBrokerToController,
)
from aerobee.store.errors import StoreRefused
from aerobee.store.format.epoch_file import EPOCH_FILE_NAME

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Protocol

    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header
    from aerobee.store.clock import Clock
    from aerobee.store.files.disk import Disk

    class Calls(Protocol):
        """Requests to the leader of the controllers. Raises: DeciderSilent."""

        async def call(self, header: Header, body: bytes = b"") -> Command: ...


NAME: Final = "brokerIdentity"
TEMP_NAME: Final = "brokerIdentity-temp"
SEPARATOR: Final = "#"
FILE_BYTES_MAX: Final = 4_096
ATTEMPTS: Final = 10
"""So often another member may be faster with the same number."""


BY_CONTROLLER: Final = (
    "{path} is of a group with RocketMQ's controller, and etcdEndpoints is set: the epochs of its"
    " log are the controller's. Set enableControllerMode and controllerAddr in its place, or move"
    " the group to etcd"
)
BY_ETCD: Final = (
    "{path} is of a group with etcd, and enableControllerMode is set: no controller has numbered"
    " this member, or its brokerIdentity is gone. Set etcdEndpoints in its place, or move the group"
    " to the controller"
)
MOVE: Final = (
    "stop all members, forget the old epochs at the one that was the master last ({moves}), give it"
    " the least brokerId, and begin with empty directories at the others"
)


class Member(NamedTuple):
    """A member: the names of its group, and the address that clients and members use."""

    cluster: str
    broker: str
    address: str


class Identity(NamedTuple):
    """A number, and the code with which it was asked for; without one it is confirmed."""

    broker_id: int
    check_code: str = ""


def encode_identity(member: Member, identity: Identity) -> bytes:
    """The content of either file. Raises: StoreRefused for names that cannot stand in it."""
    names = (member.cluster, member.broker)
    if any(SEPARATOR in name for name in names):
        raise StoreRefused(
            f"brokerClusterName and brokerName are {' and '.join(names)}: with a controller"
            f" neither may have a {SEPARATOR}"
        )
    code = [identity.check_code] if identity.check_code else []
    return SEPARATOR.join([*names, str(identity.broker_id), *code]).encode()


def decode_identity(data: bytes, member: Member) -> Identity:
    """The identity in a file. Raises: StoreRefused where it is none, or one of another group."""
    parts = data[:FILE_BYTES_MAX].decode("utf-8", "replace").split(SEPARATOR)
    if len(parts) not in (3, 4) or not (parts[2].isascii() and parts[2].isdigit()):
        raise StoreRefused("it is no cluster#broker#number")
    if parts[:2] != [member.cluster, member.broker]:
        raise StoreRefused(
            f"it is of broker {parts[1]} in cluster {parts[0]}, and this one is {member.broker} in"
            f" {member.cluster}: set brokerName and brokerClusterName to those, or take another"
            " data directory"
        )
    if not 0 < int(parts[2]) < 1 << 63:
        raise StoreRefused(f"its number is {parts[2]}")
    return Identity(int(parts[2]), *parts[3:])


class Identities:
    """The two files of a data directory."""

    def __init__(self, disk: Disk, root: Path, member: Member) -> None:
        self._disk = disk
        self._root = root
        self._member = member

    def read(self, name: str = NAME) -> Identity | None:
        """The identity in a file; None without one. Raises: StoreRefused with the file, OSError.
        Raises: StoreRefused naming the file, OSError.
        """
        path = self._root / name
        if not self._disk.exists(path):
            return None
        try:
            return decode_identity(self._disk.read(path), self._member)
        except StoreRefused as refused:
            raise StoreRefused(f"{path}: {refused}") from refused

    def asked(self, identity: Identity) -> None:
        """Keep what is asked for, durably: it is asked for again after a crash."""
        data = encode_identity(self._member, identity)
        self._disk.write_atomically(self._root / TEMP_NAME, data, backup=False)

    def granted(self, identity: Identity) -> None:
        """The number is this member's, for good."""
        data = encode_identity(self._member, Identity(identity.broker_id))
        self._disk.write_atomically(self._root / NAME, data, backup=False)
        self.refused()

    def refused(self) -> None:
        """Drop an identity that turns out to be another member's."""
        self._disk.remove_durably(self._root / TEMP_NAME)


def refuse_other_decider(disk: Disk, root: Path, *, by_controller: bool) -> None:
    """Refuse a directory whose epochs another kind of decider has given out; nothing is changed.

    Raises: StoreRefused with what to do, OSError.
    """
    names = (NAME, TEMP_NAME, EPOCH_FILE_NAME)
    there = [root / name for name in names if disk.exists(root / name)]
    numbers = [path for path in there if path.name != EPOCH_FILE_NAME]
    if by_controller:
        problem, signs = BY_ETCD, [] if numbers else there
    else:
        problem, signs = BY_CONTROLLER, numbers
    if signs:
        moves = " && ".join(
            f"mv {shlex.quote(str(path))} {shlex.quote(f'{path}.old')}" for path in there
        )
        raise StoreRefused(f"{problem.format(path=signs[0])}: {MOVE.format(moves=moves)}")


async def identify(disk: Disk, root: Path, calls: Calls, member: Member, clock: Clock) -> int:
    """The number of this member: as saved, or a new one of the controller's.

    Raises: DeciderSilent, DeciderMisused, StoreRefused, OSError.
    """
    refuse_other_decider(disk, root, by_controller=True)
    files = Identities(disk, root, member)
    identity = files.read()
    if identity is None:
        identity = await _new(disk, files, calls, member, clock)
    header = RegisterBrokerToController(
        cluster_name=member.cluster,
        broker_name=member.broker,
        broker_id=identity.broker_id,
        broker_address=member.address,
    )
    answer = await calls.call(header)
    if answer.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
        raise StoreRefused(
            f"the controller knows no member {identity.broker_id} of {member.broker}, which"
            f" {root / NAME} says this broker is: controllerAddr leads to other controllers, or"
            " they have lost what they kept"
        )
    if answer.code != ResponseCode.SUCCESS:
        raise DeciderMisused(f"CONTROLLER_REGISTER_BROKER: {answer.code} {answer.remark}")
    return identity.broker_id


async def _new(
    disk: Disk, files: Identities, calls: Calls, member: Member, clock: Clock
) -> Identity:
    for _ in range(ATTEMPTS):
        identity = files.read(TEMP_NAME)
        if identity is None or not identity.check_code:
            number = await _next_id(calls, member)
            identity = Identity(number, f"{member.address};{clock.now_ms()}")
            await disk.in_thread(files.asked, identity)
        header = ApplyBrokerId(
            cluster_name=member.cluster,
            broker_name=member.broker,
            applied_broker_id=identity.broker_id,
            register_check_code=identity.check_code,
        )
        answer = await calls.call(header)
        if answer.code == ResponseCode.SUCCESS:
            await disk.in_thread(files.granted, identity)
            return identity
        if answer.code != ResponseCode.CONTROLLER_BROKER_ID_INVALID:
            raise DeciderMisused(f"CONTROLLER_APPLY_BROKER_ID: {answer.code} {answer.remark}")
        await disk.in_thread(files.refused)
    raise DeciderSilent(f"other members took {ATTEMPTS} numbers before this one")


async def _next_id(calls: Calls, member: Member) -> int:
    header = GetNextBrokerId(cluster_name=member.cluster, broker_name=member.broker)
    answer = await calls.call(header)
    number = None
    if answer.code == ResponseCode.SUCCESS:
        with suppress(HeaderError):
            number = answer.header(GetNextBrokerIdResponse).next_broker_id
    if number is None or number <= 0:
        raise DeciderMisused(f"CONTROLLER_GET_NEXT_BROKER_ID: {answer.code} {answer.remark}")
    return number
