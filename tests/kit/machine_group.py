"""A group of brokers that decides on its master with etcd, each of them on a machine of its own.

Machines are network namespaces: `m1`, `m2`, `m3` of the members, `etcd`, and `c1`, `c2` of the
clients. The test itself reaches all of them, whatever is lost between them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

from tests.kit.broker_process import BrokerProcess
from tests.kit.etcd import EtcdNode
from tests.kit.failover_group import NAME, record_in
from tests.kit.replicas import SEGMENT_BYTES, log_end
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.kit.machine_network import MachineNetwork

IDS: Final = (1, 2, 3)
ETCD: Final = "etcd"
CLIENTS: Final = ("c1", "c2")
MACHINES: Final = (*(f"m{number}" for number in IDS), ETCD, *CLIENTS)
WITHIN_S: Final = 180.0


class MachineGroup:
    """The members and etcd, from `with` to its end."""

    def __init__(
        self, root: Path, network: MachineNetwork, settings: Mapping[str, object] | None = None
    ) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.network = network
        where = network.addresses
        self.etcd = EtcdNode(data=root / ETCD, host=where[ETCD], network=network.spaces[ETCD])
        common: dict[str, object] = {
            "brokerName": NAME,
            "etcdEndpoints": self.etcd.url,
            "failoverMembers": ";".join(map(str, IDS)),
            "haPeers": ";".join(where[machine(number)] for number in IDS),
            "bindAddress": "0.0.0.0",
            "insecure": True,
            "mappedFileSizeCommitLog": SEGMENT_BYTES,
            **(settings or {}),
        }
        self.members = {
            number: BrokerProcess(
                data=root / machine(number),
                settings=common | {"brokerId": number, "brokerIP1": where[machine(number)]},
                host=where[machine(number)],
                network=network.spaces[machine(number)],
            )
            for number in IDS
        }

    def __enter__(self) -> Self:
        try:
            self.etcd.start()
            for member in self.members.values():
                member.start()
            self.until_complete()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members.values():
            with suppress(AssertionError):
                member.kill()
        self.etcd.kill()

    @property
    def addresses(self) -> dict[str, str]:
        """The address of each member, by its machine."""
        return {machine(number): member.address for number, member in self.members.items()}

    def record(self) -> dict[str, Any]:
        """What etcd has; empty: nothing, or it does not answer."""
        return record_in([self.etcd])

    def master(self) -> int:
        """The member that the record names."""
        return eventually(
            lambda: int(self.record().get("master", 0)), within_s=WITHIN_S, what="a record"
        )

    def until_complete(self) -> None:
        """Wait until there is a master, and all members are in the sync set."""
        eventually(
            lambda: self.record().get("syncSet") == list(IDS) and bool(self.record()["lease"]),
            within_s=WITHIN_S,
            what="all members in the sync set",
        )

    def until_equal(self) -> int:
        """Wait until all logs end at the same place; nobody sends meanwhile."""

        def ends() -> set[int]:
            return {log_end(member.address) for member in self.members.values()}

        eventually(
            lambda: len(ends()) == 1 and ends() != {-1}, within_s=WITHIN_S, what="equal logs"
        )
        return ends().pop()


def machine(number: int) -> str:
    """That of a member."""
    return f"m{number}"
