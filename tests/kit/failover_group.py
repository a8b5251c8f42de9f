"""A group of brokers with etcd: each a process of its own, and a name server in another one.

Every record that etcd has is looked at from outside, over etcd's own port.
"""

from __future__ import annotations

import base64
import json
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Self

from tests.kit.broker_process import BrokerProcess
from tests.kit.namesrv_process import NamesrvProcess
from tests.kit.ports import HOST
from tests.kit.raw_client import Closed, RawConnection, send_fields, topic_fields
from tests.kit.replicas import (
    CREATE_TOPIC,
    SEGMENT_BYTES,
    SEND,
    SUCCESS,
    log_end,
    stored_messages,
)
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from tests.kit.etcd import EtcdNode

NAME = "group"
TOPIC = "t"
PROBE = "probe"
"""Created by its first message."""
QUEUES = 4
WITHIN_S = 90.0
LEASE_S = 5
"""Longer than usual: on a machine that has much else to do, a shorter one is lost for nothing."""
KEY = f"/aerobee/DefaultCluster/{NAME}/record"


class FailoverGroup:
    """So many members; etcd runs already. `with` starts them all and waits for a full sync set."""

    def __init__(
        self,
        root: Path,
        etcd: Sequence[EtcdNode],
        *,
        size: int = 3,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.etcd = etcd
        self.names = NamesrvProcess(data=root / "names")
        ids = range(1, size + 1)
        common: dict[str, object] = {
            "brokerName": NAME,
            "etcdEndpoints": ";".join(node.url for node in etcd),
            "failoverMembers": ";".join(map(str, ids)),
            "haPeers": HOST,
            "brokerIP1": HOST,
            "mappedFileSizeCommitLog": SEGMENT_BYTES,
            "failoverLease": LEASE_S,
            "embeddedNamesrv": False,
            **(settings or {}),
        }
        self.members = {
            number: BrokerProcess(
                data=root / f"m{number}",
                settings=common | {"brokerId": number},
                namesrv=self.names.address,
                log_path=root / f"m{number}.log",
            )
            for number in ids
        }
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.names)
            for member in self.members.values():
                stack.enter_context(member)
            self._stack = stack.pop_all()
        try:
            self.until_complete()
            self.make_topic()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._stack.close()

    # ── The record ──

    def record(self) -> dict[str, Any]:
        """What etcd has; empty: nothing, or it does not answer."""
        return record_in(self.etcd)

    def until_set(self, members: Iterable[int]) -> dict[str, Any]:
        """Wait until the sync set is this one."""
        wanted = sorted(members)
        eventually(
            lambda: self.record().get("syncSet") == wanted,
            within_s=WITHIN_S,
            what=f"the sync set {wanted}",
        )
        return self.record()

    def until_complete(self) -> None:
        """Wait until all members are in the sync set."""
        self.until_set(self.members)

    # ── Clients ──

    def make_topic(self, name: str = TOPIC) -> None:
        """Create a topic at the master."""
        master = self.until_master()
        with RawConnection(self.members[master].address) as connection:
            assert connection.call(CREATE_TOPIC, topic_fields(name, QUEUES)).code == SUCCESS

    def send(self, member: int, queue: int, body: bytes, topic: str = TOPIC) -> tuple[int, int]:
        """One send to one member: the code, and the queue offset. Raises: Closed, OSError."""
        with RawConnection(self.members[member].address) as connection:
            answer = connection.call(SEND, send_fields(topic, queue), body)
        return answer.code, int(answer.ext.get("queueOffset", -1))

    def until_master(self, *, but: int = 0) -> int:
        """Wait for a master that acknowledges; another one than `but`."""
        return eventually(
            lambda: next((one for one in self.members if one != but and self._serves(one)), 0),
            within_s=WITHIN_S,
            what="a master that acknowledges",
        )

    def _serves(self, member: int) -> bool:
        try:
            with RawConnection(self.members[member].address, timeout_s=4) as connection:
                answer = connection.call(SEND, send_fields(PROBE, 0), b"probe")
        except (Closed, OSError):
            return False
        return answer.code == SUCCESS


def record_in(etcd: Iterable[EtcdNode]) -> dict[str, Any]:
    """The record of the group, as any of these nodes has it; empty: none has one, or answers."""
    body = {"key": base64.b64encode(KEY.encode()).decode()}
    for node in etcd:
        with suppress(OSError, ValueError):
            rows = node.ask("/v3/kv/range", body).get("kvs", [])
            if rows:
                found: dict[str, Any] = json.loads(base64.b64decode(rows[0]["value"]))
                return found
    return {}


class Ledger:
    """What was acknowledged, and where: each queue and offset with its body.

    A slow machine may have another master at any time: a send is tried again, anywhere, until one
    is acknowledged.
    """

    def __init__(self, group: FailoverGroup) -> None:
        self._group = group
        self._master = 0
        self.acknowledged: dict[tuple[int, int], bytes] = {}

    def send(self, count: int, text: str) -> int:
        """So many sends; the member that acknowledged the last one."""
        for number in range(count):
            body = f"{text} {number}".encode()
            eventually(
                lambda: self._anywhere(number % QUEUES, body),  # noqa: B023  (called at once)
                within_s=WITHIN_S,
                what=f"an acknowledgement of {body!r}",
            )
        return self._master

    def _anywhere(self, queue: int, body: bytes) -> bool:
        members = sorted(self._group.members, key=lambda member: member != self._master)
        return any(self.ask(member, queue, body) == SUCCESS for member in members)

    def ask(self, member: int, queue: int, body: bytes) -> int:
        """Send to this member; the code, −1 without an answer. What it acknowledges is noted."""
        try:
            code, offset = self._group.send(member, queue, body)
        except (Closed, OSError):
            return -1
        if code == SUCCESS:
            place = queue, offset
            assert place not in self.acknowledged, (place, self.acknowledged[place], body)
            self.acknowledged[place] = body
            self._master = member
        return code

    def expect_in(self, member: int) -> None:
        """A member has all of it, where it was acknowledged."""
        found = stored_at(self._group.members[member].data)
        for place, body in self.acknowledged.items():
            assert found.get(place) == body, (member, place, body, found.get(place))

    def expect_everywhere(self) -> None:
        """Wait until all members have the same log, which has all of it."""
        group = self._group
        addresses = [member.address for member in group.members.values()]
        eventually(
            lambda: len({log_end(address) for address in addresses}) == 1,
            within_s=WITHIN_S,
            what="all logs end at the same place",
        )
        for member in group.members:
            self.expect_in(member)


def stored_at(data: Path) -> dict[tuple[int, int], bytes]:
    """The messages of the topic in a log: each queue and offset with its body."""
    found: dict[tuple[int, int], bytes] = {}
    for message in stored_messages(data, TOPIC):
        place = message.queue_id, message.queue_offset
        assert place not in found, (place, found[place], message.body)
        found[place] = message.body
    return found
