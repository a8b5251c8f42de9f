"""What a slave asks its master over remoting: where its log ends, and what lies in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from aerobee.broker.config.settings.advertised import with_port
from aerobee.broker.replication.tails import MasterLog, Tail
from aerobee.remoting.errors import BodyError
from aerobee.remoting.wire import relaxed_json
from aerobee.remoting.wire.codes import RequestCode, ResponseCode
from aerobee.remoting.wire.headers.admin import GetBrokerRuntimeInfo
from aerobee.remoting.wire.headers.query import ViewMessageById

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header

CALL_S: Final = 10.0
"""How long the master may take for an answer."""


class MasterLink(Protocol):
    """A connection to the master."""

    async def call(self, code: int, header: Header, body: bytes, timeout_s: float) -> Command: ...


Connect: TypeAlias = "Callable[[str], AbstractAsyncContextManager[MasterLink]]"


class MasterAddress(NamedTuple):
    """Where a master is: its listenPort and its haListenPort, as `host:port`."""

    address: str
    ha_address: str


def address_of(
    configured: str, ha_address: str | None, address: str | None
) -> MasterAddress | None:
    """The master of a slave: as configured, else as name servers say; None: nobody knows.

    The listenPort of a configured one is what name servers say, else one less.
    """
    if not configured:
        return MasterAddress(address, ha_address) if address and ha_address else None
    if not address:
        host, _, port = configured.rpartition(":")
        address = with_port(host.strip("[]"), int(port) - 1)
    return MasterAddress(address, configured)


class MasterRefused(Exception):
    """The master has answered a request with an error."""


async def answered(link: MasterLink, header: Header) -> Command:
    """The answer of the master. Raises: MasterRefused, RemotingError."""
    answer = await link.call(int(header.code), header, b"", CALL_S)
    if answer.code != ResponseCode.SUCCESS:
        name = RequestCode(header.code).name
        raise MasterRefused(f"{name} was answered with {answer.code}: {answer.remark}")
    return answer


async def log_of(link: MasterLink, tail: Tail) -> MasterLog:
    """The master's log as `tails` compares it. Raises: MasterRefused, RemotingError."""
    info = (await answered(link, GetBrokerRuntimeInfo())).body
    try:
        table = relaxed_json.decode(info)["table"]
        begin, end = int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])
    except (BodyError, KeyError, TypeError, ValueError) as error:
        raise MasterRefused(f"the master does not say where its log ends: {error}") from error
    record = None
    if begin <= tail.physical_offset < end:
        asked = ViewMessageById(offset=tail.physical_offset)
        answer = await link.call(int(asked.code), asked, b"", CALL_S)
        if answer.code == ResponseCode.SUCCESS:
            record = bytes(answer.body)
    return MasterLog(begin, end, record)
