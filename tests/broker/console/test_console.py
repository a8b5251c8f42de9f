"""What the console computes over many rows holds up nobody else."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio

from aerobee.broker.access.audit import Audit
from aerobee.broker.access.authority import Account, Authority
from aerobee.broker.config.settings.console import ConsoleConfig
from aerobee.broker.console.assembly import make_console
from aerobee.broker.console.console import THREADS, Console
from aerobee.broker.console.inside import InsideClient, InsideSockets, ending
from aerobee.broker.console.looks.viewers import Failure, Outcome, Viewer
from aerobee.client.blocking.client import Client
from aerobee.client.steps.effects import Signal, Wait
from aerobee.errors import NoNameServerError
from tests.broker.desk import open_desk
from tests.broker.peers import HandClock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from aerobee.broker.access.policies import Policy
    from aerobee.broker.console.operations import Operation
    from aerobee.client.steps.effects import Steps

pytestmark = pytest.mark.trio
WITHIN_S = 60.0


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


async def test_one_user_leaves_threads_to_others() -> None:
    going_on, began = threading.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()

    class Slow(Client):
        """A client that does not get to its name server for a long time."""

        def start(self) -> None:
            token.run_sync_soon(began.set)
            assert going_on.wait(WITHIN_S)
            raise NoNameServerError("no name server answers")

    class Quick(Client):
        def start(self) -> None:
            raise NoNameServerError("no name server answers")

    def connect(name: str, secret: str, address: str) -> Client:
        return Slow("127.0.0.1:1") if name == "ann" else Quick("127.0.0.1:1")

    console = Console(
        None, clock=HandClock(), config=ConsoleConfig(), authority=lambda: None, connect=connect
    )

    async def ask(name: str) -> None:
        viewer = Viewer(address="127.0.0.1", account=Account(name, b"secret"))
        with pytest.raises(Failure, match="no name server answers"):
            await console.call(viewer, "cluster.info", {})

    async with trio.open_nursery() as nursery:
        for _ in range(THREADS):
            nursery.start_soon(ask, "ann")
        with trio.fail_after(WITHIN_S):
            await began.wait()
            await ask("bob")
        going_on.set()


async def test_of_one_viewer_dead_letters_are_dealt_with_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They have one producer, and the second order knows what the first has sent."""
    going_on, began = threading.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()
    events: list[str] = []

    class Quick(Client):
        def start(self) -> None:
            pass

    def run(operation: Operation, arguments: Mapping[str, Any], **_: Any) -> Outcome:
        events.append(f"{arguments['group']} begins")
        if arguments["group"] == "first":
            token.run_sync_soon(began.set)
            assert going_on.wait(WITHIN_S)
        events.append(f"{arguments['group']} ends")
        return Outcome()

    monkeypatch.setattr("aerobee.broker.console.commands.run", run)
    console = Console(
        None,
        clock=HandClock(),
        config=ConsoleConfig(),
        authority=lambda: None,
        connect=lambda *_: Quick("127.0.0.1:1"),
    )

    async def redrive(name: str, group: str) -> None:
        viewer = Viewer(address="127.0.0.1", account=Account(name, b"secret"))
        await console.call(viewer, "dlq.redrive", {"group": group}, confirmed=True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(redrive, "ann", "first")
        with trio.fail_after(WITHIN_S):
            await began.wait()
        with monkeypatch.context() as at_once:
            at_once.setattr("aerobee.broker.console.console.TURN_S", 0.0)
            with pytest.raises(Failure, match="try again"):
                await redrive("ann", "third")
        nursery.start_soon(redrive, "ann", "second")
        with trio.fail_after(WITHIN_S):
            await redrive("bob", "other")
        going_on.set()
    order = ["first begins", "other begins", "other ends", "first ends"]
    assert events == [*order, "second begins", "second ends"]
