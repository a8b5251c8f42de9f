"""The questions of a broker to another one over remoting: where its log ends, what lies in it, its
tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec
import trio

from aerobee.broker.config.settings.advertised import with_port
from aerobee.broker.errors import first_reason
from aerobee.broker.replication.tails import MasterLog, Tail
from aerobee.broker.saved.documents import mapping
from aerobee.remoting.errors import BodyError, RemotingError
from aerobee.remoting.wire import relaxed_json
from aerobee.remoting.wire.codes import RequestCode, ResponseCode
from aerobee.remoting.wire.headers.admin import GetBrokerRuntimeInfo
from aerobee.remoting.wire.headers.query import ViewMessageById

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from aerobee.broker.config.settings.broker import BrokerOptions
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header
    from aerobee.store.message_store import MessageStore

PAGE: Final = 2_000
"""Topics or groups that are asked for at once, as in Java."""
ATTEMPTS: Final = 5
"""How often a table that changes meanwhile is copied from its begin."""
CALL_S: Final = 10.0
"""How long the master may take for an answer."""

NAMES: Final = ("brokerClusterName", "brokerName")
"""The settings that a master and its slave have in common."""
SHOWN: Final = 127
"""Characters of a foreign name that are repeated."""

ENDS_ONLY: Final = Tail(0)
"""The tail that has no record to compare."""
NO_RECORD: Final = (ResponseCode.SYSTEM_ERROR, ResponseCode.QUERY_NOT_FOUND)
"""The answers of brokers when no record begins at an offset."""


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
    """The master has answered a request with an error, or with what cannot be read (code −1)."""

    def __init__(self, problem: str, code: int = -1) -> None:
        super().__init__(problem)
        self.code = code


UNANSWERED: Final = (MasterRefused, RemotingError, OSError, trio.TooSlowError, ValueError)
"""How a broker does not answer. ValueError: its answer has another shape, or its host is no name.
"""

T = TypeVar("T")


class NoAnswer(Exception):
    """A broker has not said what it was asked: the text says why."""


async def asked(
    connect: Connect,
    address: str,
    question: Callable[[MasterLink], Awaitable[T]],
    wait_s: float = CALL_S,
) -> T:
    """The answer of a broker, over a connection for this question alone. Raises: NoAnswer."""
    try:
        with trio.fail_after(wait_s):
            async with connect(address) as link:
                return await question(link)
    except* UNANSWERED as errors:
        # Raised in here, it would come in a group.
        reason = first_reason(errors)
    raise NoAnswer(reason)


async def answered(link: MasterLink, header: Header) -> Command:
    """The answer of the master. Raises: MasterRefused, RemotingError."""
    answer = await link.call(int(header.code), header, b"", CALL_S)
    if answer.code != ResponseCode.SUCCESS:
        name = RequestCode(header.code).name
        problem = f"{name} was answered with {answer.code}: {answer.remark}"
        raise MasterRefused(problem, answer.code)
    return answer


async def own_tail(store: MessageStore) -> Tail:
    """The end of this broker's log, for `log_of`. Raises: OSError."""
    end = store.commit_log.max_offset
    last = await store.complete(store.last_record)
    return Tail(end) if last is None else Tail(end, *last)


async def log_of(link: MasterLink, tail: Tail = ENDS_ONLY) -> MasterLog:
    """The master's log as `tails` compares it. Raises: MasterRefused, RemotingError."""
    info = (await answered(link, GetBrokerRuntimeInfo())).body
    try:
        table = relaxed_json.decode(info)["table"]
        begin, end = int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])
    except (BodyError, KeyError, TypeError, ValueError) as error:
        raise MasterRefused(f"the master does not say where its log ends: {error}") from error
    record = None
    if begin <= tail.physical_offset < end:
        try:
            view = await answered(link, ViewMessageById(offset=tail.physical_offset))
            record = bytes(view.body)
        except MasterRefused as refused:
            # An account without rights, or a busy master, says nothing about the log.
            if refused.code not in NO_RECORD:
                raise
    return MasterLog(begin, end, record)


async def log_of_followed(
    link: MasterLink, store: MessageStore, tail: Tail = ENDS_ONLY
) -> MasterLog:
    """The log of the master that is followed: a promotion looks at where it ended."""
    theirs = await log_of(link, tail)
    store.log_in.master_ends = theirs.begin, theirs.end
    return theirs


def table_of(body: bytes | memoryview) -> Mapping[str, Any]:
    """A table as Java or we write it. Raises: BodyError, ValueError."""
    return mapping({"table": relaxed_json.decode(body, most_brackets=None)}, "table")


async def pages(
    link: MasterLink, table: str, header: Callable[[int, str, int], Header], total: str
) -> Mapping[str, Any]:
    """A whole table that comes in pages, of one version; from older masters in one piece.

    `header` makes the request for a page: its first entry, the version, and how many. `total` is
    the field of the answer that says how many there are. Raises: MasterRefused, RemotingError,
    ValueError.
    """
    for _ in range(ATTEMPTS):
        document = await _pages_of_one_version(link, table, header, total)
        if document is not None:
            return document
    raise MasterRefused(f"{table} changed {ATTEMPTS} times while it was copied")


async def _pages_of_one_version(
    link: MasterLink, table: str, header: Callable[[int, str, int], Header], total: str
) -> Mapping[str, Any] | None:
    """A whole table as `pages` gives it; None when it changed meanwhile."""
    document: dict[str, Any] = {}
    entries: dict[str, Any] = {}
    version = ""
    while True:
        answer = await answered(link, header(len(entries), version, PAGE))
        page = table_of(answer.body)
        if version and page.get("dataVersion") != document.get("dataVersion"):
            return None
        rows = mapping(page, table)
        entries.update(rows)
        document = {**page, table: entries}
        count = answer.ext_fields().get(total)
        # The page has everything where its size is not known, as in 4.9.
        if count is None or not rows or len(entries) >= int(count):
            return document
        version = msgspec.json.encode(page.get("dataVersion")).decode()


def settings_of(properties: bytes) -> dict[str, str]:
    """The settings of a broker by name; `properties` has a line each."""
    lines = (line.partition("=") for line in properties.decode("utf-8", "replace").splitlines())
    return {key.strip(): value.strip() for key, _, value in lines}


def other_group(properties: bytes, own: BrokerOptions) -> str:
    """The difference of the master's names, in words; empty: they are those of the slave.

    `properties` are the master's settings, a line each. A name that they lack is not compared.
    """
    theirs = settings_of(properties)
    mine = dict(zip(NAMES, (own.broker_cluster_name, own.broker_name), strict=True))
    wrong = [key for key in NAMES if theirs.get(key, mine[key]) != mine[key]]
    if not wrong:
        return ""
    names = ", ".join(f"{key} is {theirs[key][:SHOWN]} there and {mine[key]} here" for key in wrong)
    return (
        f"the master is of another group: {names}. Set haMasterAddress to the right broker, or"
        " these names to those of the master"
    )
