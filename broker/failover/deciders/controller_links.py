"""Connections to the controllers of a group, and calls that the leader among them answers.

A controller takes a broker for dead as soon as the connection closes over which it was heard, and
elects another master. So a connection is kept whatever becomes of a call, and is closed only to be
taken for dead. Source: BrokerOuterAPI.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog
import trio

from aerobee.broker.errors import first_reason
from aerobee.broker.failover.decider import DeciderSilent
from aerobee.remoting.errors import HeaderError, RemotingError
from aerobee.remoting.wire.codes import ResponseCode
from aerobee.remoting.wire.headers.controller import GetMetadataInfo, GetMetadataInfoResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aerobee.broker.replication.master_calls import Connect, MasterLink
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header

AGAIN_S: Final = 0.5
"""The pause before a connection is tried again, and before a leader is looked for again."""
CONTROLLERS_MAX: Final = 16
"""So many are connected to, those among them that only other controllers have named."""
UNANSWERED: Final = (RemotingError, OSError, trio.TooSlowError)

log = structlog.stdlib.get_logger(__name__)


class ControllerLinks:
    """The connections. `run` keeps them; everything else may be called while it runs."""

    def __init__(self, addresses: Sequence[str], answer_s: float, connect: Connect) -> None:
        """`addresses`: `host:port` of each controller. `answer_s`: how long one of them may take
        for an answer.
        """
        assert addresses
        self._addresses = list(addresses)
        self._connect = connect
        self._answer_s = answer_s
        self._open: dict[str, MasterLink] = {}
        self._scopes: dict[str, trio.CancelScope] = {}
        self._problems: dict[str, str] = {}
        """Why there is no connection, by address."""
        self._leader = ""
        """Its address, as long as it answers as the leader."""
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the connections until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for address in self._addresses:
                nursery.start_soon(self._stay, address)
            task_status.started()

    async def _stay(self, address: str) -> None:
        while True:
            try:
                with trio.CancelScope() as scope:
                    async with self._connect(address) as link:
                        self._open[address], self._scopes[address] = link, scope
                        if self._problems.pop(address, ""):
                            log.info("controller.connected", address=address)
                        await trio.sleep_forever()
            except* UNANSWERED as errors:
                if address not in self._problems:
                    log.warning(
                        "controller.unreachable", address=address, reason=first_reason(errors)
                    )
                self._problems[address] = first_reason(errors)
            finally:
                self._open.pop(address, None)
            await trio.sleep(AGAIN_S)

    def close(self) -> None:
        """Close all connections, and open them anew: this broker is taken for dead."""
        for address in list(self._open):
            self._scopes[address].cancel()

    async def tell_all(self, header: Header) -> None:
        """Send a request to every controller, whichever leads; answers are not of interest."""
        async with trio.open_nursery() as nursery:
            for link in list(self._open.values()):
                nursery.start_soon(self._tell, link, header)

    async def _tell(self, link: MasterLink, header: Header) -> None:
        # A connection that breaks says so itself.
        with suppress(*UNANSWERED):
            await link.call(int(header.code), header, b"", self._answer_s)

    async def call(self, header: Header, body: bytes = b"") -> Command:
        """The answer of the leader. Raises: DeciderSilent; the request may be carried out then."""
        with trio.move_on_after(self._answer_s) as search:
            while True:
                link = self._open.get(self._leader) or await self._leading()
                if link is not None:
                    search.deadline = float("inf")
                    try:
                        answer = await link.call(int(header.code), header, body, self._answer_s)
                    except UNANSWERED as error:
                        address, self._leader = self._leader, ""
                        raise DeciderSilent(f"{address}: {error}") from error
                    if answer.code != ResponseCode.CONTROLLER_NOT_LEADER:
                        return answer
                    self._leader = ""
                    search.deadline = trio.current_time() + self._answer_s
                await trio.sleep(AGAIN_S)
        raise DeciderSilent(f"no controller leads: {self._seen()}")

    def _seen(self) -> str:
        states = (f"{address}: {self._problems.get(address, 'connected')}" for address in self._all)
        return "; ".join(states)

    @property
    def _all(self) -> list[str]:
        return list(dict.fromkeys([*self._addresses, *self._scopes]))

    async def _leading(self) -> MasterLink | None:
        """The connection to the leader that some controller names; None: it is not known now.

        All are asked at once: one that hangs would take the time of the others.
        """
        async with trio.open_nursery() as nursery:

            async def ask(address: str, link: MasterLink) -> None:
                leader = await self._leader_by(link)
                if leader in self._open:
                    self._leader = leader
                    nursery.cancel_scope.cancel()
                elif leader:
                    self._learn(leader, address)

            for address, link in self._open.items():
                nursery.start_soon(ask, address, link)
        return self._open.get(self._leader)

    async def _leader_by(self, link: MasterLink) -> str:
        """The address of the leader as a controller knows it; empty: it does not say."""
        header = GetMetadataInfo()
        try:
            answer = await link.call(int(header.code), header, b"", self._answer_s)
            leader = answer.header(GetMetadataInfoResponse).controller_leader_address
        except (*UNANSWERED, HeaderError):
            return ""
        return leader or "" if answer.code == ResponseCode.SUCCESS else ""

    def _learn(self, leader: str, told_by: str) -> None:
        """Connect to a leader under an address that was not configured."""
        known = self._all
        if leader in known or len(known) >= CONTROLLERS_MAX or self._nursery is None:
            return
        log.info("controller.learned", address=leader, told_by=told_by)
        self._addresses.append(leader)
        self._nursery.start_soon(self._stay, leader)
