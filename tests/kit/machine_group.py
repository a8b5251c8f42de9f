"""A group of brokers that decides on its master with etcd, each of them on a machine of its own.

Machines are network namespaces: `m1`, `m2`, `m3` of the members, `etcd`, and `c1`, `c2` of the
clients. A member that replaces another one has its machine, and an id of its own. The test itself
reaches all of them, whatever is lost between them.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

from tests.kit.broker_process import BrokerProcess
from tests.kit.etcd import EtcdNode
from tests.kit.failover_group import NAME, record_in
from tests.kit.replicas import SEGMENT_BYTES, log_end
from tests.kit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
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
        self._root = root
        self._machines = {number: f"m{number}" for number in IDS}
        self.etcd = EtcdNode(data=root / ETCD, host=where[ETCD], network=network.spaces[ETCD])
        common: dict[str, object] = {
            "brokerName": NAME,
            "etcdEndpoints": self.etcd.url,
            "failoverMembers": ";".join(map(str, IDS)),
            "haPeers": ";".join(where[name] for name in self._machines.values()),
            "bindAddress": "0.0.0.0",
            "insecure": True,
            "mappedFileSizeCommitLog": SEGMENT_BYTES,
            **(settings or {}),
        }
        self.members = {
            number: BrokerProcess(
                data=root / self.machine(number),
                settings=common | {"brokerId": number, "brokerIP1": where[self.machine(number)]},
                host=where[self.machine(number)],
                network=network.spaces[self.machine(number)],
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
    def ids(self) -> list[int]:
        """Those of the members, ascending."""
        return sorted(self.members)

    def machine(self, number: int) -> str:
        """That of a member."""
        return self._machines[number]

    def replace(self, gone: int) -> int:
        """Remove a member that is dead for good, with its directory; the id of the next one.

        That runs on the same machine and with an empty directory, once it is started. The others
        know of it from their next start on.
        """
        old, number = self.members.pop(gone), max(self.members) + 1
        number = max(number, gone + 1)
        shutil.rmtree(old.data)
        self._machines[number] = self._machines.pop(gone)
        self.members[number] = BrokerProcess(
            data=self._root / f"{self.machine(number)}-{number}",
            settings=dict(old.settings) | {"brokerId": number},
            ports=old.ports,
            namesrv_port=old.namesrv_port,
            host=old.host,
            network=old.network,
        )
        told = ";".join(map(str, self.ids))
        for member in self.members.values():
            member.settings = dict(member.settings) | {"failoverMembers": told}
        return number

    @property
    def addresses(self) -> dict[str, str]:
        """The address of each member, by its machine."""
        return {self.machine(number): member.address for number, member in self.members.items()}

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
        self.until_in_set(self.ids, "all members in the sync set")

    def until_in_set(self, members: Iterable[int], what: str) -> None:
        """Wait until there is a master, and these are in the sync set, if need be with others."""
        wanted = set(members)

        def are_in() -> bool:
            record = self.record()
            there = set(record.get("syncSet", ()))
            whole = wanted == there or (wanted < there and wanted < set(self.ids))
            return whole and bool(record["lease"])

        eventually(are_in, within_s=WITHIN_S, what=what)

    def until_out(self, member: int) -> None:
        """Wait until there is a master, and this one is not in the sync set."""

        def is_out() -> bool:
            record = self.record()
            return bool(record.get("lease")) and member not in record["syncSet"]

        eventually(is_out, within_s=WITHIN_S, what=f"member {member} out of the sync set")

    def until_equal(self) -> int:
        """Wait until all logs end at the same place; nobody sends meanwhile."""

        def ends() -> set[int]:
            return {log_end(member.address) for member in self.members.values()}

        eventually(
            lambda: len(ends()) == 1 and ends() != {-1}, within_s=WITHIN_S, what="equal logs"
        )
        return ends().pop()
