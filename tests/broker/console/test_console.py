"""What the console computes over many rows holds up nobody else."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio

from aerobee.broker.access.audit import Audit
from aerobee.broker.access.authority import Account, Authority
from aerobee.broker.console.assembly import make_console
from aerobee.broker.console.inside import InsideClient, InsideSockets, ending
from aerobee.broker.console.looks.viewers import Viewer
from aerobee.client.steps.effects import Signal, Wait
from tests.broker.desk import open_desk

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from aerobee.broker.access.policies import Policy
    from aerobee.client.steps.effects import Steps

pytestmark = pytest.mark.trio


async def test_rows_are_compared_with_policies_beside_the_loop(tmp_path: Path) -> None:
    seen: set[int] = set()

    def policies(name: str) -> Sequence[Policy]:
        seen.add(threading.get_ident())
        return ()

    account = Account("eve", b"secret")
    authority = Authority({"eve": account}.get, policies)
    async with open_desk(tmp_path) as desk:
        desk.topic()
        audit = Audit(every=lambda: False)
        console = make_console(desk.broker.console, audit, lambda: authority)
        viewer = Viewer(address="127.0.0.1", account=account, authority=authority)
        rows, _ = await console.rows(viewer, "topics")
        assert rows == []
    assert seen
    assert threading.get_ident() not in seen


async def test_a_search_ends_when_nobody_waits_for_it_any_more() -> None:
    # Else eight long searches would take all threads of the console for as long as they like.
    began, ended = trio.Event(), threading.Event()
    token = trio.lowlevel.current_trio_token()
    sockets = InsideSockets(lambda sock, peer: None, lambda viewer: ())
    client = InsideClient("127.0.0.1:1", sockets, "127.0.0.1")

    def endless() -> Steps[None]:
        token.run_sync_soon(began.set)
        while True:
            yield Wait(Signal(), 0.01)

    def search() -> None:
        try:
            client.perform(endless())
        finally:
            ended.set()

    async with trio.open_nursery() as nursery:
        run = partial(trio.to_thread.run_sync, ending, search, abandon_on_cancel=True)
        nursery.start_soon(run)
        await began.wait()
        nursery.cancel_scope.cancel()
    assert await trio.to_thread.run_sync(ended.wait, 20)
