"""Looks at the brokers of a cluster for each account: what they tell, and those that tell nothing.

A look is made in a thread while somebody looks, at most once in LOOK_S for each account: it asks as
that account, so each broker's own policies decide. A page shows the newest look, with its time. For
the first, and for one in place of a look that is old, it waits at most FIRST_S: a broker that does
not answer holds up no page.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog
import trio

from aerobee.blocking import AdminClient
from aerobee.broker.console.looks.rights import explained_with_right, missing_right
from aerobee.broker.console.looks.snapshot import ClusterLook
from aerobee.broker.console.looks.viewers import Failure
from aerobee.cli.cluster import broker_rows
from aerobee.cli.dead import look_at
from aerobee.client.steps.admin.broker_tables import look_at_tables
from aerobee.client.steps.admin.brokers import Broker
from aerobee.errors import AerobeeError, PermissionDeniedError, TransportError
from aerobee.remoting.border import Border

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aerobee.admin import BrokerInfo
    from aerobee.cli.dead import Look
    from aerobee.client.blocking.client import Client
    from aerobee.client.steps.admin.broker_tables import BrokerTables
    from aerobee.store.clock import Clock

    Row = Mapping[str, Any]

LOOK_S: Final = 5.0
"""Between two looks of an account."""
OLD_S: Final = 2 * LOOK_S
"""A look is old then: nobody has looked meanwhile."""
FIRST_S: Final = 1.0
"""How long a page waits for the first look, and for one in place of an old look."""
KEPT_MAX: Final = 32
"""Accounts whose looks are kept."""
DROPPED_MS: Final = 600_000
"""How long a broker is shown that the name servers have dropped: Java's do so as soon as its
connection is gone. Then somebody has taken it away."""
ASKING: Final = "its brokers are being asked"
LOOK_FAILED: Final = "the look has failed; the log has why"

log = structlog.stdlib.get_logger(__name__)


@dataclass(slots=True)
class KeptLook:
    """The newest look of an account."""

    look: ClusterLook = field(default_factory=lambda: ClusterLook(failure=ASKING))
    made: float | None = None
    come: trio.Event = field(default_factory=trio.Event)
    """Set when there is a look that is not old."""
    at_work: bool = False
    waited_until: float = 0.0
    """The time up to which pages wait for the look that is made, by the clock of trio."""


class ClusterLooks:
    """The newest look of each account. `look`: makes one after another; it blocks."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[object, KeptLook] = {}

    async def newest(
        self, account: object, look: Callable[[ClusterLook], ClusterLook]
    ) -> ClusterLook:
        """The newest look of an account; another one begins when it is older than LOOK_S.

        An error that `look` raises is the failure of that look.
        """
        kept = self._kept.pop(account, None) or KeptLook()
        self._kept[account] = kept
        if len(self._kept) > KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        now = self._clock.monotonic()
        if not kept.at_work and (kept.made is None or now - kept.made > LOOK_S):
            kept.at_work = True
            kept.waited_until = trio.current_time() + FIRST_S
            if kept.made is not None and now - kept.made > OLD_S:
                kept.come = trio.Event()
            token = trio.lowlevel.current_trio_token()
            deliver = partial(self._deliver, token, kept)
            try:
                trio.lowlevel.start_thread_soon(
                    partial(look, kept.look), deliver, name="console.look"
                )
            except RuntimeError as error:
                # The system has no thread left; the next look may have one.
                self._end(kept, failed_look(error))
        # A page asks several times: all of them together wait no longer than one.
        with trio.move_on_at(kept.waited_until):
            await kept.come.wait()
        return kept.look

    def _deliver(self, token: trio.lowlevel.TrioToken, kept: KeptLook, made: Any) -> None:
        with suppress(trio.RunFinishedError):
            token.run_sync_soon(self._take, kept, made)

    def _take(self, kept: KeptLook, made: Any) -> None:
        """Take over an outcome of a look."""
        look = ClusterLook()
        # This runs in the loop itself: what it raised would end the process.
        with Border() as border:
            look = made.unwrap()
        if isinstance(border.error, Failure):
            look = ClusterLook(failure=border.error.text)
        elif border.error is not None:
            look = failed_look(border.error)
        self._end(kept, look)

    def _end(self, kept: KeptLook, look: ClusterLook) -> None:
        if look.failure:
            # A look that failed is no proof that the brokers of the one before are gone.
            rows = untold(kept.look.rows, look.failure)
            look = replace(look, rows=rows, dropped=kept.look.dropped)
        kept.look = look
        kept.at_work = False
        kept.made = self._clock.monotonic()
        kept.come.set()


def failed_look(error: Exception) -> ClusterLook:
    """The look that an error of ours has ended."""
    log.error("console.look_failed", reason=str(error), exc_info=error)
    return ClusterLook(failure=LOOK_FAILED)


def look_at_cluster(
    client: Client,
    before: ClusterLook,
    is_own: Callable[[str], bool],
    now_ms: Callable[[], int],
) -> ClusterLook:
    """Look at all brokers, at those that are not `is_own` (by address) closely. Blocks.

    Raises: AerobeeError when no name server answers.
    """
    at_ms = now_ms()
    with AdminClient(client=client) as admin:
        look = look_at(admin)
    why = {entry.broker.address: entry.why for entry in look.dead}
    states: dict[str, str] = {}
    lacks: dict[str, str] = {}
    for refusing in look.refusing:
        address = refusing.broker.address
        if is_own(address):
            # The console reads its tables, and asks it nothing.
            states[address] = "up"
            continue
        why[address] = explained_with_right(refusing.error)
        lacks[address] = missing_right(refusing.error)
    tables: dict[str, BrokerTables] = {}
    for broker in targets_in(look, is_own):
        target = Broker(broker.name, broker.address, broker.cluster)
        known = before.tables.get(broker.name)
        # Nonsense that no reader of answers has found hides no other broker.
        with Border() as border:
            steps = look_at_tables(client.instance, target, known, now_ms())
            tables[broker.name] = client.perform(steps)
        error = border.error
        if isinstance(error, AerobeeError):
            why[broker.address] = explained_with_right(error)
            lacks[broker.address] = missing_right(error)
            states[broker.address] = state_of(error)
        elif error is not None:
            log.error("console.look_failed", broker=broker.name, reason=str(error), exc_info=error)
            why[broker.address] = LOOK_FAILED
            states[broker.address] = "failing"
    rows = [
        {
            **row,
            "state": states.get(row["address"], row["state"]),
            "own": is_own(row["address"]),
            "why": why.get(row["address"], ""),
            "lacks": lacks.get(row["address"], ""),
        }
        for row in broker_rows(look)
    ]
    dropped = dropped_since(before, rows, now_ms())
    rows += [dropped_row(row) for row in before.rows if row["address"] in dropped]
    return ClusterLook(rows=rows, tables=tables, dropped=dropped, at_ms=at_ms)


def dropped_since(before: ClusterLook, rows: Sequence[Row], now_ms: int) -> dict[str, int]:
    """The brokers of the look before that the name servers know no more, and since when.

    A broker that has come back, at whatever address, is none of them.
    """
    known = {(row["cluster"], row["broker"], row["id"]) for row in rows}
    addresses = {row["address"] for row in rows}
    since = {
        row["address"]: before.dropped.get(row["address"], now_ms)
        for row in before.rows
        # A missing master has no address, and is gone with its slaves.
        if row["address"]
        and (row["cluster"], row["broker"], row["id"]) not in known
        and row["address"] not in addresses
    }
    return {address: at for address, at in since.items() if now_ms - at < DROPPED_MS}


def dropped_row(row: Row) -> dict[str, Any]:
    """The row of such a broker."""
    why = "the name servers have dropped it: it is down, or was taken away"
    return bare_row(row, "dead", why)


def bare_row(row: Row, state: str, why: str) -> dict[str, Any]:
    """The row of a broker of an earlier look: who it is, and no figure of it."""
    who = {name: row[name] for name in ("cluster", "broker", "id", "address")}
    return dict.fromkeys(row) | who | {"state": state, "own": False, "why": why, "lacks": ""}


def untold(rows: Sequence[Row], failure: str) -> list[Row]:
    """The rows after a look that has failed: of the other brokers nothing is known."""
    return [
        row if row["own"] or row["state"] == "dead" else bare_row(row, "failing", failure)
        for row in rows
    ]


def targets_in(look: Look, is_own: Callable[[str], bool]) -> list[BrokerInfo]:
    """The brokers that are asked for their tables: of each name the master, where that does not
    answer a slave. The broker of this process is not asked; of a slave here its master is, since
    only that knows all clients.
    """
    targets: dict[tuple[str, str], BrokerInfo] = {}
    for broker in sorted((broker for broker, _ in look.alive), key=lambda broker: broker.broker_id):
        targets.setdefault((broker.cluster, broker.name), broker)
    return [broker for broker in targets.values() if not is_own(broker.address)]


def state_of(error: AerobeeError) -> str:
    """The state of a broker that has not told everything."""
    if isinstance(error, PermissionDeniedError):
        return "forbidden"
    return "dead" if isinstance(error, TransportError) else "failing"
