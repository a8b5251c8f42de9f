"""A connection to a name server elsewhere, for as long as a registration lasts."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from broker.services.registration import NameServer

__all__ = ["connected"]


@asynccontextmanager
async def connected(address: str, *, connect_timeout_s: float) -> AsyncIterator[NameServer]:
    """Open a channel to `host:port` and close it at the end. Raises: ConnectFailed."""
    from remoting.client.async_channel import AsyncChannel

    async with trio.open_nursery() as nursery:
        channel = await AsyncChannel.connect(address, nursery, timeout_s=connect_timeout_s)
        try:
            yield channel
        finally:
            await channel.aclose()
            nursery.cancel_scope.cancel()
