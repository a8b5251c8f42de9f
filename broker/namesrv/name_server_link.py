"""An outgoing connection to a name server or broker elsewhere, open while it is in use."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from aerobee.remoting.errors import ChannelClosed
from aerobee.remoting.wire.request_signature import with_signature

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aerobee.remoting.client.async_channel import AsyncChannel
    from aerobee.remoting.client.link import Dress, Link
    from aerobee.remoting.wire.command import Command
    from aerobee.remoting.wire.header import Header


@dataclass(frozen=True, slots=True)
class NameServerLink:
    """A channel with the two calls that registration needs."""

    channel: AsyncChannel

    async def call(self, code: int, header: Header, body: bytes, timeout_s: float) -> Command:
        """Send a request and return the response. Raises: CallTimedOut, ChannelClosed."""
        assert code == header.code
        return await self.channel.call(header, body, timeout_s)

    async def tell(self, header: Header) -> None:
        """Send a one-way request. Raises: ChannelClosed."""
        await self.channel.oneway(header)


@asynccontextmanager
async def connected(
    address: str, *, connect_timeout_s: float, link: Link
) -> AsyncIterator[NameServerLink]:
    """Open a channel to `host:port`, and close it at the end of the block.

    Raises: ConnectFailed; ChannelClosed as soon as the peer closes it, at any point of the block.
    """
    from aerobee.remoting.client.async_channel import AsyncChannel

    try:
        async with trio.open_nursery() as nursery:
            channel = await AsyncChannel.connect(address, connect_timeout_s, nursery, link=link)
            watching = trio.CancelScope()
            nursery.start_soon(watch, channel, watching)
            try:
                yield NameServerLink(channel)
            finally:
                watching.cancel()
                await channel.aclose()
                nursery.cancel_scope.cancel()
    except ExceptionGroup as group:
        # A nursery raises errors wrapped in a group; callers expect the error itself.
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from None


def signed_by(account: tuple[str, str] | None) -> Dress | None:
    """The function that signs requests with an access key and its secret key.

    A peer that gets such a request can make nothing else of it: a registration is no order to the
    brokers that know the account.
    """
    if account is None:
        return None
    name, secret = account

    def dress(code: int, fields: dict[str, str], body: bytes) -> dict[str, str]:
        return with_signature(name, secret.encode(), fields, body, code=code)

    return dress


async def watch(channel: AsyncChannel, watching: trio.CancelScope) -> None:
    """Wait until the peer closes the channel. Raises: ChannelClosed."""
    with watching:
        await channel.wait_closed()
        if not watching.cancel_called:
            raise ChannelClosed(f"{channel.address}: closed by the peer")
