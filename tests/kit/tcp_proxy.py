"""A network that has bad days: a TCP proxy that cuts, delays and fragments what passes through it.

    with TcpProxy(broker.address) as proxy:
        proxy.cut()             every connection ends now, on both sides
        proxy.silence()         those that there are stay open and carry nothing any more
        proxy.delay_s = 0.2     whatever passes from now on comes so much later
        proxy.piece_bytes = 1   and in pieces of this size

It runs in a thread with a loop of its own, so that clients of any kind may be on either side.
"""

import threading
from types import TracebackType
from typing import Self

import trio

from tests.kit.ports import HOST, free_port

RECEIVE_BYTES = 65_536
READY_WITHIN_S = 5.0


class TcpProxy:
    """From a port of its own, or the given one, to `target`, `host:port`, on whatever day it is."""

    def __init__(self, target: str, *, at: tuple[str, int] | None = None) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self.host, self.port = at or (HOST, free_port())
        self.delay_s = 0.0
        self.piece_bytes = 0
        """0 for as it comes."""
        self.accepted = 0
        """Connections so far."""
        self._open: set[trio.CancelScope] = set()
        self._silent: set[trio.CancelScope] = set()
        self._token: trio.lowlevel.TrioToken | None = None
        self._stop = trio.CancelScope()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._run,), daemon=True)

    @property
    def address(self) -> str:
        """Where clients connect instead."""
        return f"{self.host}:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(READY_WITHIN_S), "the proxy does not listen"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        assert self._token is not None
        self._token.run_sync_soon(self._stop.cancel)  # this thread may have a loop itself
        self._thread.join()

    def cut(self) -> None:
        """End every connection that there is."""
        trio.from_thread.run_sync(self._cut, trio_token=self._token)

    def _cut(self) -> None:
        for scope in self._open:
            scope.cancel()

    def silence(self) -> None:
        """Swallow what passes on the connections that there are."""
        trio.from_thread.run_sync(self._silence, trio_token=self._token)

    def _silence(self) -> None:
        self._silent |= self._open

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with self._stop:
            async with trio.open_nursery() as nursery:
                listeners = await trio.open_tcp_listeners(self.port, host=self.host)
                nursery.start_soon(trio.serve_listeners, self._carry, listeners)
                self._ready.set()

    async def _carry(self, client: trio.SocketStream) -> None:
        """One connection, until either side or `cut` ends it."""
        self.accepted += 1
        with trio.CancelScope() as scope:
            self._open.add(scope)
            try:
                async with (
                    client,
                    await trio.open_tcp_stream(*self._target) as server,
                    trio.open_nursery() as nursery,
                ):
                    nursery.start_soon(self._pass_on, client, server, scope)
                    nursery.start_soon(self._pass_on, server, client, scope)
            except OSError:
                # Nobody is there now; the client sees its connection end.
                pass
            finally:
                self._open.discard(scope)
                self._silent.discard(scope)

    async def _pass_on(
        self, source: trio.SocketStream, target: trio.SocketStream, scope: trio.CancelScope
    ) -> None:
        try:
            while data := await source.receive_some(RECEIVE_BYTES):
                if scope in self._silent:
                    continue
                await trio.sleep(self.delay_s)
                size = self.piece_bytes or len(data)
                for at in range(0, len(data), size):
                    await target.send_all(data[at : at + size])
        except trio.BrokenResourceError:
            pass
        scope.cancel()
